# make demo     build a first benchmark in minutes, without a key, a GPU or torch
# make test     run everything that a landing must pass
# make nightly  run these tests, and those that are too slow for each landing
# make servers  test against third-party search engines, stores and a Hub on loopback
# make lint     check style and types only
# make docs     build the documentation as a site in build/docs, with the API reference and checked links
# make fuzz     feed hostile inputs to every reader of external data for FUZZ_MINUTES
# make mutate   mutate critical code, and check that a test fails
# make kill     send SIGKILL in every phase, KILLS times
# make gpu      measure on a machine with a GPU, in at most 8 minutes; writes one table
# make release  from a tag: build wheel, sdist, SBOM and hashes in dist/, and try each extra (or EXTRAS); publishes nothing

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
TARGET ?= 8
RUNS ?= runs
JOBS ?= 4
FUZZ_MINUTES ?= 60
KILLS ?= 1000
PIP := $(BIN)/python -m pip install --quiet

# In a temporary folder that is removed however the tests end: in memory if there is plenty, because the tests write tens
# of thousands of small files and wait for each of their commits. Four processes for two cores, because a job often waits
# for its next group of rows. With bytecode, even if the environment forbids it, because hundreds of processes start.
MEGABYTES = $$(df -m --output=avail /dev/shm | tail -1)
FREE_MEGABYTES = $$(awk '/^MemAvailable/ { print int($$2 / 1024) }' /proc/meminfo)
PYTEST = if [ $(MEGABYTES) -gt 8000 ] && [ $(FREE_MEGABYTES) -gt 12000 ]; then place=/dev/shm; fi 2>/dev/null; \
	temporary=$$(TMPDIR=$${place:-$$TMPDIR} mktemp -d) && trap 'rm -rf "$$temporary"' EXIT INT TERM && \
	TMPDIR=$$temporary PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# numba's loops, which each process of the tests would compile again: once, on the core that mypy leaves free.
COMPILE = PYTHONPATH=tests/makers $(BIN)/python -c "import numba, bits; bits.searches()" >/dev/null

.PHONY: demo demo-long-doc test nightly servers lint docs fuzz mutate kill gpu release clean

demo: $(VENV)/.demo
	$(BIN)/airgen init --demo --target $(TARGET) --runs $(RUNS)

demo-long-doc: $(VENV)/.demo-long-doc
	$(BIN)/airgen init --demo --task long-doc --target $(TARGET) --runs $(RUNS)

test: $(VENV)/.test
	$(BIN)/airgen fetch tests
	$(COMPILE) & $(MAKE) --no-print-directory lint && wait
	$(PYTEST)

nightly: $(VENV)/.test lint docs
	$(BIN)/airgen fetch tests
	export AIRGEN_FUZZ=1 AIRGEN_FUZZ_EXAMPLES=200 && $(PYTEST) -m ""

servers: $(VENV)/.test
	$(BIN)/airgen fetch tests
	$(BIN)/python tests/makers/real_servers.py
	$(PYTEST) -m servers tests/servers

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

fuzz: $(VENV)/.test
	end=$$(( $$(date +%s) + $(FUZZ_MINUTES) * 60 )); while [ $$(date +%s) -lt $$end ]; do \
		AIRGEN_FUZZ=1 $(BIN)/python -m pytest tests/fuzz -n $(JOBS) || exit 1; done

mutate: $(VENV)/.test
	rm -f mutants.json
	$(BIN)/python benchmarks/mutate.py --json mutants.json --least 0.9

kill: $(VENV)/.test
	$(BIN)/airgen fetch tests
	$(BIN)/python benchmarks/kill.py --kills $(KILLS) --json kills.json

# Uses the torch that is installed in PYTHON's environment, because the tests' pinned torch has no CUDA.
GPU ?= cuda:0
gpu:
	PYTHONPATH=. $(PYTHON) benchmarks/gpu.py --device $(GPU) --seconds 480 --markdown gpu.md

release: $(VENV)/.release
	$(BIN)/python tests/makers/release.py $(EXTRAS)

clean:
	rm -rf $(VENV) build dist

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "airgen needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -c 'import pip' 2>/dev/null || $(BIN)/python -m ensurepip --upgrade  # uv venv has no pip
	$(PIP) --editable '.[embedded,corpus]'
	touch $@

$(VENV)/.demo-long-doc: $(VENV)/.demo
	$(PIP) --editable '.[embedded,corpus,long-doc]'
	touch $@

# torch comes first and is pinned, because an unpinned torch may bring several GB of CUDA. The tests load the --no-deps
# packages to prove that datasets open in them; these packages pin other versions or need a compiler. The tests run only
# chromadb's server, which does not need the dependencies of its Python client.
$(VENV)/.test: $(VENV)/.demo
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[embedded,long-doc,corpus,languages,models,ann,hub,fast,ray,storage,dumps,dev]'
	$(PIP) --no-deps beir air-benchmark chromadb llama-index-readers-file llama-index-readers-obsidian
	touch $@

$(VENV)/.docs: $(VENV)/.demo
	$(PIP) --editable '.[embedded,corpus,docs]'
	touch $@

$(VENV)/.release: $(VENV)/bin/python
	$(PIP) build twine cyclonedx-bom
	touch $@

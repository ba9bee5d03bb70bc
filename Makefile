# make demo     a first benchmark in minutes, without a key, a GPU or torch
# make test     everything that a landing must pass
# make nightly  that, and the tests that are too long for each landing
# make servers  against search engines, stores and a Hub that nobody here wrote, on loopback
# make lint     style and types only
# make docs     the documentation as a site in build/docs, with the API reference, its links checked
# make fuzz     hostile inputs for FUZZ_MINUTES, from outside to every reader
# make mutate   change the code that must not fail, and see whether a test notices
# make kill     SIGKILL in every phase, KILLS times
# make gpu      on a machine with a GPU: what only a GPU can show, as one table, in at most 8 minutes
# make release  from a tag: wheel, sdist, SBOM and hashes in dist/, each extra (or EXTRAS) tried alone; publishes nothing

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
TARGET ?= 8
RUNS ?= runs
JOBS ?= 3
FUZZ_MINUTES ?= 60
KILLS ?= 1000
PIP := $(BIN)/python -m pip install --quiet

# In a temporary folder that goes away whatever ends the tests. Three processes for two cores: a job often waits for its
# disk or its next group of rows. With bytecode, also where the environment forbids it: hundreds of processes start.
PYTEST = temporary=$$(mktemp -d) && trap 'rm -rf "$$temporary"' EXIT INT TERM && \
	TMPDIR=$$temporary PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

.PHONY: demo demo-long-doc test nightly servers lint docs fuzz mutate kill gpu release clean

demo: $(VENV)/.demo
	$(BIN)/airgen init --demo --target $(TARGET) --runs $(RUNS)

demo-long-doc: $(VENV)/.demo-long-doc
	$(BIN)/airgen init --demo --task long-doc --target $(TARGET) --runs $(RUNS)

test: $(VENV)/.test lint
	$(BIN)/airgen fetch tests
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
	$(BIN)/mypy

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

# With whatever torch is installed there: the pinned one of the tests has no CUDA. PYTHON is that of the environment.
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
	$(BIN)/python -c 'import pip' 2>/dev/null || $(BIN)/python -m ensurepip --upgrade  # uv venv has none
	$(PIP) --editable '.[embedded,corpus]'
	touch $@

$(VENV)/.demo-long-doc: $(VENV)/.demo
	$(PIP) --editable '.[embedded,corpus,long-doc]'
	touch $@

# torch first and pinned: an unpinned one may bring several GB of CUDA. The --no-deps ones are loaded by the tests to
# prove that datasets open in them; they pin versions of what is already here, or need a compiler. Of chromadb the tests
# run the server alone, which needs none of what its Python client brings.
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

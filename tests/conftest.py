"""Shared fixtures: the human-labelled collections where they are, and the loopback server of `makers/llm_server.py`."""

import asyncio
import functools
import gc
import importlib.metadata
import json
import os
import shutil
import signal
import sys
import threading
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import llm_server
import pytest
from browser import browse, browser
from encode_once import encode_once

__all__ = ["browse", "browser", "encode_once"]

# `make fuzz` and `make nightly` draw many examples (tests/fuzz bounds the CPU time of each), `make mutate` draws few.
_SLOW = list(hypothesis.HealthCheck)
hypothesis.settings.register_profile(
    "fuzz",
    max_examples=int(os.environ.get("AIRGEN_FUZZ_EXAMPLES", "2000")),
    deadline=None,
    suppress_health_check=_SLOW,
    print_blob=True,
)
hypothesis.settings.register_profile(
    "mutate", max_examples=30, deadline=None, derandomize=True, database=None, suppress_health_check=_SLOW
)
# A busy machine makes any example slow, and a deadline would call that a fault.
hypothesis.settings.register_profile(
    "land", max_examples=30, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("fuzz" if os.environ.get("AIRGEN_FUZZ") else "land")

# A shell lets what runs in the background (`make test &`) ignore SIGINT, and commands that tests interrupt would, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.pop("COLUMNS", None)  # tables fold on a narrow terminal
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


_frozen = 0  # number of modules when the collector of garbage last stopped looking at them


def _freeze() -> None:
    """What was imported stays to the end: the collector of garbage need not look at it again and again."""
    global _frozen
    _frozen = len(sys.modules)
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    _freeze()


def pytest_runtest_logfinish() -> None:
    if len(sys.modules) > _frozen + 200:  # a test has imported a large package
        _freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests record for the output: `record_property("printed", text)`."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == "printed":
                terminalreporter.write_line(f"\n{text}")


@pytest.fixture(autouse=True, scope="session")
def alike() -> Iterator[None]:
    """New datasets get one known secret, so that jobs in two folders make the same bytes.

    The versions of packages and the BLAS kernel, which each job and dataset names, are read once.
    """
    from airgen.dataset import manifest
    from airgen.dataset.secret import Secret
    from airgen.job import job as job_module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_module, "new_secret", lambda: Secret(bytes(range(32))))
        patch.setattr(importlib.metadata, "version", functools.cache(importlib.metadata.version))
        patch.setattr(manifest, "threadpool_info", functools.cache(manifest.threadpool_info))
        yield


@pytest.fixture(autouse=True, scope="session")
def empty_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], None]]:
    """New work databases are copies of an empty one, because making it takes a tenth of the time of a short job.

    Yields what makes one, for tests/storage.
    """
    from airgen.storage import store

    empty, write = tmp_path_factory.mktemp("empty") / "work.duckdb", store._write_empty

    def copy(path: Path) -> None:
        if not empty.exists():
            write(empty)
        shutil.copyfile(empty, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_write_empty", copy)
        yield write


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with human-labelled collections; tests that need it skip where it is missing."""
    named = os.environ.get("AIRGEN_SHARED")
    path = Path(named) if named else Path(__file__).resolve().parents[2] / "shared"
    if not (path / "collections").is_dir():
        pytest.skip("no human-labelled collections beside the repository (AIRGEN_SHARED)")
    return path


@pytest.fixture(scope="session")
def servers() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop in a thread, where servers run beside the tests."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class Loopback:
    """A running server: its base URL, what it has seen, and a way to end it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, **settings: Any) -> None:
        self._loop = loop
        self._runner, port = self._wait(llm_server.serve(settings))
        self.root = f"http://127.0.0.1:{port}"
        self.base_url = self.root + "/v1"

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def stats(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.root + "/stats", timeout=600) as response:
            return json.load(response)  # type: ignore[no-any-return]

    def set(self, **settings: Any) -> None:
        data = json.dumps(settings).encode()
        headers = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(self.root + "/settings", data, headers), timeout=600).close()

    def end(self) -> None:
        self._wait(llm_server.die(self._runner))
        self._wait(self._runner.cleanup())


@pytest.fixture
def loopback(servers: asyncio.AbstractEventLoop) -> Iterator[Callable[..., Loopback]]:
    """Start servers: `server = loopback(latency=0.05)`; they end with the test."""
    running: list[Loopback] = []

    def start(**settings: Any) -> Loopback:
        running.append(Loopback(servers, **settings))
        return running[-1]

    yield start
    for server in running:
        server.end()

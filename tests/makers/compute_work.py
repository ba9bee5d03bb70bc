"""Work for tests of workers: importable functions that die, hang or fail on purpose."""

import hashlib
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.compute import Work
from airgen.errors import MissingExtra, ModelError
from airgen.retrievers.component import Component
from airgen.retrievers.protocols import TextKind


def _double(item: Any) -> Any:
    return 2 * item


def _nothing() -> Callable[[Any], Any]:
    return _double


def doubling() -> Work[Any, Any]:
    """Work on items of any size."""
    return Work("doubling", _double, _nothing)


def _pids() -> Callable[[int], tuple[int, str]]:
    return lambda item: (os.getpid(), os.environ["OMP_NUM_THREADS"])


def where() -> Work[int, tuple[int, str]]:
    """Return the process of each item, and its number of threads."""
    return Work("where", lambda item: (os.getpid(), ""), _pids)


def _first_time(folder: Path, item: int, times: int) -> bool:
    """Return whether this is one of the first `times` that any process sees an item."""
    for number in range(times):
        try:
            (folder / f"{item}.{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return True
    return False


def _die(folder: Path, number: int, times: int) -> Callable[[int], int]:
    def work(item: int) -> int:
        if item == number and _first_time(folder, item, times):
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * item

    return work


def dying(folder: Path, number: int, times: int = 1) -> Work[int, int]:
    """Kill the worker that gets an item, the first `times`."""
    return Work("dying", _double, partial(_die, folder, number, times))


def _stay(door: Path, node: str) -> Callable[[int], int]:
    import ray

    here = ray.get_runtime_context().get_node_id()

    def work(item: int) -> int:
        if here == node:
            door.write_bytes(b"in")
            threading.Event().wait()
        return 2 * item

    return work


def staying(door: Path, node: str) -> Work[int, int]:
    """Let a worker on a Ray node announce through the pipe `door` that it has an item, and keep it forever."""
    return Work("staying", _double, partial(_stay, door, node))


def _fail(kind: str) -> Callable[[int], int]:
    def work(item: int) -> int:
        if item == 7:
            raise MissingExtra("the model", "numba", "fast") if kind == "extra" else ModelError("item 7 is NaN")
        return 2 * item

    return work


def failing(kind: str) -> Work[int, int]:
    """Fail for item 7."""
    return Work("failing", _fail(kind), partial(_fail, kind))


class HashEmbedder(Component):
    """A user-defined embedder that loads at once, with hash-based vectors of 16 dimensions."""

    name, dim, travels = "hash", 16, True

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        digests = b"".join(hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts)
        rows = np.frombuffer(digests, np.uint8).reshape(-1, 16).astype(np.float32) + 1
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def describe(self) -> Mapping[str, object]:
        return {"family": "hash"}


class Unsendable(Exception):
    """Cannot be pickled, shown or copied."""

    def __str__(self) -> str:
        raise ValueError("mute")

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise SystemExit(0)


ODD_ERRORS = (SystemExit(0), GeneratorExit(), BaseException("own"), ValueError(threading.Lock()), Unsendable())


def _raise_odd(item: int) -> int:
    raise ODD_ERRORS[item]


def raising_odd() -> Callable[[int], int]:
    """Return work that raises one of `ODD_ERRORS`."""
    return _raise_odd

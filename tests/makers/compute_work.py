"""Work for tests of workers: functions that a worker can import, and that die, hang or fail on purpose."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airgen.compute import Work
from airgen.errors import MissingExtra, ModelError
from airgen.retrievers.base import Component, TextKind

__all__ = ["HashEmbedder", "doubling", "doubling_arrays", "dying", "failing", "greedy", "hanging", "staying", "where"]


def _double(batch: list[int]) -> list[int]:
    return [2 * item for item in batch]


def _nothing() -> Callable[[list[int]], list[int]]:
    return _double


def doubling() -> Work[int, int]:
    return Work("doubling", _double, _nothing)


def _double_arrays() -> Callable[[list[NDArray[np.float64]]], list[NDArray[np.float64]]]:
    return lambda batch: [2 * item for item in batch]


def doubling_arrays() -> Work[NDArray[np.float64], NDArray[np.float64]]:
    """Items and results of any size."""
    return Work("doubling", _double_arrays(), _double_arrays)


def _pids() -> Callable[[list[int]], list[tuple[int, str]]]:
    return lambda batch: [(os.getpid(), os.environ["OMP_NUM_THREADS"]) for _ in batch]


def where() -> Work[int, tuple[int, str]]:
    """The process of each item, and the threads that it may use."""
    return Work("where", lambda batch: [(os.getpid(), "") for _ in batch], _pids)


def _first_time(folder: Path, item: int, times: int) -> bool:
    """Whether an item is seen for one of the first `times`, by any process."""
    for number in range(times):
        try:
            (folder / f"{item}.{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return True
    return False


def _die(folder: Path, item: int, times: int) -> Callable[[list[int]], list[int]]:
    def work(batch: list[int]) -> list[int]:
        if item in batch and _first_time(folder, item, times):
            os.kill(os.getpid(), signal.SIGKILL)
        return _double(batch)

    return work


def dying(folder: Path, item: int, times: int = 1) -> Work[int, int]:
    """The worker that gets `item` is killed, the first `times`."""
    return Work("dying", _double, partial(_die, folder, item, times))


def _hang(folder: Path, item: int) -> Callable[[list[int]], list[int]]:
    def work(batch: list[int]) -> list[int]:
        if item in batch and _first_time(folder, item, 1):
            threading.Event().wait()
        return _double(batch)

    return work


def hanging(folder: Path, item: int) -> Work[int, int]:
    """The worker that gets `item` never answers, the first time."""
    return Work("hanging", _double, partial(_hang, folder, item))


def _stay(door: Path, node: str) -> Callable[[list[int]], list[int]]:
    import ray

    here = ray.get_runtime_context().get_node_id()

    def work(batch: list[int]) -> list[int]:
        if here == node:
            door.write_bytes(b"in")
            threading.Event().wait()
        return _double(batch)

    return work


def staying(door: Path, node: str) -> Work[int, int]:
    """The worker on a node of Ray says through the pipe `door` that it has a batch, and keeps it for ever."""
    return Work("staying", _double, partial(_stay, door, node))


def _greed(most: int) -> Callable[[list[int]], list[int]]:
    def work(batch: list[int]) -> list[int]:
        if len(batch) > most:
            raise MemoryError(f"{len(batch)} items")
        return _double(batch)

    return work


def greedy(most: int) -> Work[int, int]:
    """More than `most` items need more memory than a worker has."""
    return Work("greedy", _greed(most), partial(_greed, most))


def _fail(kind: str) -> Callable[[list[int]], list[int]]:
    def work(batch: list[int]) -> list[int]:
        if 7 in batch:
            raise MissingExtra("the model", "numba", "fast") if kind == "extra" else ModelError("item 7 is NaN")
        return _double(batch)

    return work


def failing(kind: str) -> Work[int, int]:
    """The work itself fails for item 7."""
    return Work("failing", _fail(kind), partial(_fail, kind))


class HashEmbedder(Component):
    """Vectors of 16 dimensions by a hash of the text: an embedder of one's own that loads at once."""

    name, dim, travels = "hash", 16, True

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        digests = b"".join(hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts)
        rows = np.frombuffer(digests, np.uint8).reshape(-1, 16).astype(np.float32) + 1
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def describe(self) -> Mapping[str, object]:
        return {"family": "hash"}

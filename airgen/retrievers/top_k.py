"""The k best of many scores, ties by position, without sorting scores that cannot be among them.

A score and its position are packed into one uint64 whose order is (score descending, position ascending), so that
selecting and sorting need one comparison and equal inputs give equal results:

>>> keys = pack(np.array([0.5, -1.0, 0.5], np.float32), 0)
>>> unpack(np.sort(keys)[::-1])[0].tolist()
[0, 2, 1]
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from airgen.jit import numba_is_installed
from airgen.retrievers.base import Hits

__all__ = ["TopK", "pack", "top_k", "unpack"]

_SIGN = np.uint32(0x80000000)
_LOW = np.uint64(0xFFFFFFFF)


def pack(scores: NDArray[np.float32], positions: NDArray[np.int64] | int) -> NDArray[np.uint64]:
    """Keys of finite scores; `positions` are their positions, or that of the first of consecutive scores."""
    bits = (scores + np.float32(0)).view(np.uint32)  # + 0: -0.0 and 0.0 are one score
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN).astype(np.uint64)
    places = positions + np.arange(len(scores)) if isinstance(positions, int) else positions
    return (ordered << np.uint64(32)) | (_LOW - places.astype(np.uint64))


def unpack(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Positions and scores of keys, shape kept."""
    ordered = (keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(ordered & _SIGN, ordered & ~_SIGN, ~ordered).astype(np.uint32)
    return (_LOW - (keys & _LOW)).astype(np.int32), bits.view(np.float32)


class TopK:
    """The k best so far of each of n queries; scores come in chunks of ascending position.

    It keeps up to `capacity` candidates of each query: those above its k-th best score at the last clean-up. So a chunk
    costs little more than one comparison for each score.
    """

    def __init__(self, queries: int, k: int, compiled: bool = True, floor: NDArray[np.float32] | None = None) -> None:
        """`floor`, (queries,): scores below this guess are not kept. A `fill` below k shows that it was too high."""
        self.k = k
        self.keys = np.zeros((queries, self.capacity(k)), np.uint64)
        self.fill = np.zeros(queries, np.int64)
        self.floor = np.full(queries, -np.inf, np.float32) if floor is None else floor.copy()
        loops = _compiled() if compiled else None
        self._collect = loops.collect if loops else _collect

    @staticmethod
    def capacity(k: int) -> int:
        """How many candidates of a query are kept before all but the k best are dropped."""
        return 2 * k + 1024

    def feed(self, scores: NDArray[np.float32], start: int, first: int = 0) -> None:
        """Take scores of shape (m, c): of the queries from `first` on, for the positions from `start` on."""
        end = first + len(scores)
        scores = np.ascontiguousarray(scores)  # numba compiles one version for each memory layout
        self._collect(scores, start, self.keys[first:end], self.fill[first:end], self.floor[first:end], self.k)

    def offer(self, pairs: NDArray[np.int64], scores: NDArray[np.float32], start: int, first: int) -> None:
        """Take scores of single pairs, position << 32 | query, whose positions ascend for each query.

        Positions count from `start`, queries from `first`. This needs numba.
        """
        from airgen.retrievers import _top_k_compiled

        _top_k_compiled.offer(pairs, scores, start, self.keys[first:], self.fill[first:], self.floor[first:], self.k)

    def hits(self) -> Hits:
        """The result so far, shape (n, k)."""
        n = len(self.keys)
        found = Hits.none(n, self.k)
        for query in range(n):
            best = np.sort(self.keys[query, : self.fill[query]])[::-1][: self.k]
            found.positions[query, : len(best)], found.scores[query, : len(best)] = unpack(best)
        return found


def top_k(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Positions and scores of the k best of one row of finite scores; fewer where the row is shorter."""
    keys = pack(scores, 0)
    if len(keys) > k > 0:
        keys = np.partition(keys, len(keys) - k)[len(keys) - k :]
    return unpack(np.sort(keys)[::-1][:k])


def _collect(
    scores: NDArray[np.float32],
    start: int,
    keys: NDArray[np.uint64],
    fill: NDArray[np.int64],
    floor: NDArray[np.float32],
    k: int,
) -> None:
    """Append every score above its query's floor; whenever a buffer is full, keep its k best and raise the floor."""
    capacity = keys.shape[1]
    for query, row in enumerate(scores):
        found = np.flatnonzero(row > floor[query])
        while len(found):
            n = int(fill[query])
            taken = found[: capacity - n]
            keys[query, n : n + len(taken)] = pack(row[taken], taken + start)
            fill[query] = n + len(taken)
            found = found[len(taken) :]
            if fill[query] == capacity:
                best = np.partition(keys[query], capacity - k)[capacity - k :]
                keys[query, :k] = best
                fill[query] = k
                floor[query] = unpack(best.min(keepdims=True))[1][0]
                found = found[row[found] > floor[query]]


def _compiled() -> ModuleType | None:
    """The compiled loops, or None without numba; they are imported at their first use, because numba loads slowly."""
    if not numba_is_installed():
        return None
    from airgen.retrievers import _top_k_compiled

    return _top_k_compiled

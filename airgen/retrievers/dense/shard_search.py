"""Exact search on workers: each searches a shard of the rows in the file of an embedding cache; the best are merged.

The result has the bits of one search over all rows: a score does not depend on the rows beside it, shards begin where
the chunks of one search begin, and ties stay in the order of position. Only queries, hits and (where the corpus is not
in the order of the file) row numbers travel. A worker that cannot see the file leaves its shard to the driver.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.compute import Work, current
from airgen.retrievers.base import Hits
from airgen.retrievers.dense.exact_search import search

_ROWS = 1 << 16  # of a shard at least; a multiple of what one search reads at once
_SCORES = 1 << 28  # fewer are computed here sooner than they travel

Shard = tuple[int, int, NDArray[np.int64] | None, int]
"""Its first row and the one after its last; the rows of the file, where they are not these; a checksum of its ends."""


@dataclass(frozen=True)
class _Search:
    """What a worker does."""

    path: Path
    dim: int
    queries: NDArray[np.float32]
    k: int
    memory_bytes: int

    def make(self) -> Callable[[list[Shard]], list[Hits | None]]:
        """The function of a worker; None where its file is another one, or none."""

        def work(shards: list[Shard]) -> list[Hits | None]:
            try:
                matrix = np.memmap(self.path, np.float16, "r").reshape(-1, self.dim)
            except (OSError, ValueError):
                return [None for _ in shards]
            return [self.hits(matrix, *shard) for shard in shards]

        return work

    def hits(self, matrix: Any, first: int, end: int, rows: NDArray[np.int64] | None, mark: int) -> Hits | None:
        """The hits in a shard, with the positions of its rows in `matrix` or in the corpus."""
        ends = (first, end - 1) if rows is None else (int(rows[0]), int(rows[-1]))
        if max(ends) >= len(matrix) or _mark(matrix, *ends) != mark:
            return None
        some = matrix[first:end] if rows is None else matrix
        return search(some, self.queries, self.k, rows=rows, memory_bytes=self.memory_bytes)


def _mark(matrix: Any, first: int, last: int) -> int:
    return zlib.crc32(matrix[last].tobytes(), zlib.crc32(matrix[first].tobytes()))


def search_shards(
    path: Path,
    matrix: NDArray[np.float16],
    queries: NDArray[np.float32],
    k: int,
    *,
    first: int = 0,
    rows: NDArray[np.int64] | None = None,
    memory_bytes: int = 1 << 30,
) -> Hits:
    """As `search(matrix, ...)`, where `matrix` are the rows from `first` on of the file `path`, (n, dim) in fp16.

    With `rows`, `matrix` is the whole file. Small searches, and all where there is one worker, are done here.
    """
    n, workers = len(matrix) if rows is None else len(rows), current().workers
    if workers < 2 or n <= _ROWS or n * len(queries) < _SCORES:
        return search(matrix, queries, k, rows=rows, memory_bytes=memory_bytes)
    size = max(_ROWS, -(-n // workers // _ROWS) * _ROWS)

    def shards() -> Iterator[tuple[int, Shard]]:
        for start in range(0, n, size):
            end = min(start + size, n)
            some = None if rows is None else rows[start:end]
            ends = (start, end - 1) if some is None else (int(some[0]), int(some[-1]))
            yield start, (first + start, first + end, some, _mark(matrix, *ends))

    one = _Search(path.absolute(), matrix.shape[1], queries, k, memory_bytes)
    work: Work[Shard, Hits | None] = Work("exact search", lambda some: [None for _ in some], one.make)
    best = Hits.none(len(queries), k)
    for start, found in current().map(work, shards()):
        if found is None:
            end = min(start + size, n)
            part = matrix[start:end] if rows is None else matrix
            here = None if rows is None else rows[start:end]
            found = search(part, queries, k, rows=here, memory_bytes=memory_bytes)
        best = merged(best, Hits(np.where(found.positions < 0, -1, found.positions + start), found.scores))
    return best


def merged(before: Hits, after: Hits) -> Hits:
    """The k best of two results whose positions ascend from one to the next; k is the width of the first."""
    k = before.positions.shape[1]
    scores = np.concatenate([before.scores, after.scores], axis=1)
    positions = np.concatenate([before.positions, after.positions], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]  # stable: ties stay in the order of position
    return Hits(
        np.take_along_axis(positions, order, axis=1).astype(np.int32), np.take_along_axis(scores, order, axis=1)
    )

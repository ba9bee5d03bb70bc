"""Exact top-k inner-product search over rows of vectors that may be larger than memory.

The rows (fp16 or fp32, in memory or memory-mapped) are read once, in chunks. BLAS compares a chunk with all queries,
and its products only select: a pair whose product is farther below the query's k-th best score than any order of fp32
additions could have moved it is passed over. All others are scored again in float64 in a fixed order
(`exact.inner_products`) and rounded to fp32. So a score has the same bits on every machine, whoever is asked beside.
At the paper's depth of 1,000 (section 2.4, step 1) this is faster than graph indexes, and exact.

Where faiss is installed and quicker on this processor, it selects: some more rows than are asked for, of each chunk. A
query whose last selected row is too near to its k-th best score to be sure of the rest is searched again without it.

Where torch has a GPU with room for the rows, it selects (`gpu_search`), to the same bits.

On workers, each searches a shard of the rows in the file of the encodings, and the best are merged, to the same bits:
shards begin where the chunks of one search begin. Only queries, hits and row numbers travel. A worker that cannot see
the file leaves its shard to the driver.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.compute import Work, cores, current
from airgen.errors import ModelError
from airgen.exact import LARGE, inner_products, worth_compiling
from airgen.registry import load_extra
from airgen.retrievers.base import Hits, pack, unpack

_CHUNK = 1024  # rows converted and multiplied at once: 1.5 MB of fp32 at 384 dimensions
_BLOCK = 1024  # queries multiplied at once: a block of products (4 MB) stays in the cache while it is scanned
_MEMORY = 1 << 29  # bytes of the candidates of the queries of a pass
_SAMPLE = 4096  # rows that the first threshold is guessed from
_SAMPLE_BLOCK = 256  # queries that meet the sample at once
_GUESS_FROM = 8 * _SAMPLE  # rows; below, guessing costs more than it saves
_ROUNDING = 2.0**-24  # the relative error of rounding to fp32
_SHORT = np.float32(1e-18)  # above the length of a vector whose squares are lost by underflow
_TINY = np.float32(1e-30)  # above the error of products that are lost by underflow


def search(
    matrix: NDArray[Any], queries: NDArray[np.float32], k: int, *, rows: NDArray[np.int64] | None = None
) -> Hits:
    """The k rows with the greatest inner product for each query; ties in the order of position.

    `matrix` is (n, dim), float16 or float32, and may be a memory map larger than memory; `queries` is (m, dim).
    With `rows`, position i of the result means `matrix[rows[i]]`. With very many queries the rows are read several
    times, so that about 1 GB is needed beside the result.
    Raises ModelError for unequal dimensions, NaN or infinite values, or k below 1.
    """
    n = len(matrix) if rows is None else len(rows)
    check_search(matrix, queries, k)
    queries = np.ascontiguousarray(queries, np.float32)
    width = min(k, max(n, 1))
    batch = max(1, _MEMORY // (_capacity(width) * 8 + queries.shape[1] * 4 + 64))  # queries a pass
    compiled = worth_compiling(max(n * len(queries), queries.size * min(n, width)))  # products, or terms of exact ones
    guessing = n >= _GUESS_FROM and width <= n // 20
    hits = Hits.none(len(queries), k)
    faiss = _quicker(n * len(queries), queries.shape[1]) if width <= _FAISS_MOST else None
    for first in range(0, len(queries), batch):
        some = slice(first, first + batch)
        asked = queries[some]
        if faiss is not None:
            selected = _Selected(faiss, asked, width)
            if selected.stream(matrix, rows, n):
                unsure = selected.write(hits.positions[some, :width], hits.scores[some, :width])
                if unsure.size:
                    again = _Best(asked[unsure], width, compiled)
                    again.stream(matrix, rows, n)
                    _put(hits, first + unsure, again, width)
                continue
        guess = _guess(matrix, asked, width, rows, n) if guessing else None
        best = _Best(asked, width, compiled, guess)
        best.stream(matrix, rows, n)
        best.write(hits.positions[some, :width], hits.scores[some, :width])
        if guess is not None and (short := np.flatnonzero(best.fill < width)).size:
            again = _Best(asked[short], width, compiled)  # the guess was too high for these queries
            again.stream(matrix, rows, n)
            _put(hits, first + short, again, width)
    return hits


def _put(hits: Hits, places: NDArray[np.int64], best: _Best, width: int) -> None:
    block = Hits.none(len(places), width)
    best.write(block.positions, block.scores)
    hits.positions[places, :width], hits.scores[places, :width] = block.positions, block.scores


def check_search(matrix: NDArray[Any], queries: NDArray[np.float32], k: int) -> None:
    """Raises ModelError for unequal dimensions, NaN or infinite values in queries, or k below 1."""
    if k < 1:
        raise ModelError(f"k is {k}: at least 1 is needed")
    if queries.ndim != 2 or matrix.ndim != 2 or queries.shape[1] != matrix.shape[1]:
        raise ModelError(f"queries of shape {queries.shape} do not fit rows of shape {matrix.shape}")
    if not np.isfinite(queries).all():
        raise ModelError("a query's embedding contains NaN or infinity")


def _capacity(k: int) -> int:
    """How many candidates of a query are kept before all but the k best are dropped."""
    return 2 * k + 1024


def _guess(
    matrix: NDArray[Any], queries: NDArray[np.float32], k: int, rows: NDArray[np.int64] | None, n: int
) -> NDArray[np.float32]:
    """For each query a score that about a few times k rows exceed, estimated from a sample of the rows.

    A sample of s rows contains about m = k * s / n of the k best rows, and this number is about Poisson distributed.
    So the score of the sample's (m + 4 sqrt(m) + 4)th best row is almost never above that of the k-th best row of all.
    """
    places = np.sort(np.random.default_rng(n).choice(n, _SAMPLE, replace=False))
    sample = np.asarray(matrix[places if rows is None else rows[places]], np.float32)
    mean = k * _SAMPLE / n
    rank = min(_SAMPLE, int(mean + 4 * mean**0.5 + 4))
    floors = np.empty(len(queries), np.float32)
    for first in range(0, len(queries), _SAMPLE_BLOCK):
        products = queries[first : first + _SAMPLE_BLOCK] @ sample.T
        floors[first : first + _SAMPLE_BLOCK] = np.partition(products, _SAMPLE - rank, axis=1)[:, _SAMPLE - rank]
    return floors


@dataclass
class _Best:
    """The k best so far of each query; rows come in chunks of ascending position.

    Of each query up to `_capacity` candidates are kept: those above its k-th best score at the last clean-up, `floor`.
    `guess`, (m,): scores that are not above it are not kept. A `fill` below k shows that it was too high.
    """

    queries: NDArray[np.float32]
    k: int
    compiled: bool
    guess: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        count = len(self.queries)
        self.keys = np.zeros((count, _capacity(self.k)), np.uint64)
        self.fill = np.zeros(count, np.int64)
        self.floor = np.full(count, -np.inf, np.float32) if self.guess is None else self.guess.copy()
        # Whatever the order of its additions, a product of fp32 is within dim * 2**-24 * |row| |query| of the true one.
        # The factor and the terms beyond `dim` are for the roundings of lengths, margin and threshold.
        share = np.float32(1.01 * _ROUNDING * (self.queries.shape[1] + 16))
        with np.errstate(over="ignore"):
            self._reach = share * (np.sqrt((self.queries**2).sum(axis=1)) + _SHORT)
        self._longest = np.float32(0)

    def stream(self, matrix: NDArray[Any], rows: NDArray[np.int64] | None, n: int) -> None:
        """Take all rows. Raises ModelError for one that contains NaN or infinity."""
        for start in range(0, n, _CHUNK):
            end = min(start + _CHUNK, n)
            part = self.floats(matrix[start:end] if rows is None else matrix[rows[start:end]])
            margin = self.margin(part, start)
            with np.errstate(over="ignore", invalid="ignore"):
                for first in range(0, len(self.queries), _BLOCK):
                    some = slice(first, first + _BLOCK)
                    self._take(self.queries[some] @ part.T, part, margin[some], start, some)

    def margin(self, part: NDArray[np.float32], start: int) -> NDArray[np.float32]:
        """How far a product of each query with one of these rows may be from the true one.

        Raises ModelError for a row that holds NaN or infinity; `start` is the position of the first.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("ij,ij->i", part, part)
        if not np.isfinite(squares).all():  # NaN and infinity survive a sum, and large numbers overflow
            bad = np.flatnonzero(~np.isfinite(part).all(axis=1))
            if bad.size:
                raise ModelError(f"the embedding at position {start + int(bad[0])} contains NaN or infinity")
        self._longest = max(self._longest, np.sqrt(squares.max()))
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self._reach * (self._longest + _SHORT) + _TINY, np.float32)

    def floats(self, rows: NDArray[Any], room: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """The rows in fp32, in `room` where they must be converted."""
        if not self.compiled or rows.dtype != np.float16:
            return np.ascontiguousarray(rows, np.float32)
        from airgen.retrievers.dense._select_compiled import widen

        wide = np.empty(rows.shape, np.float32) if room is None else room
        widen(np.ascontiguousarray(rows).view(np.uint16), wide)
        return wide

    def _take(
        self,
        rough: NDArray[np.float32],
        part: NDArray[np.float32],
        margin: NDArray[np.float32],
        start: int,
        some: slice,
    ) -> None:
        if start == 0 and self.guess is None and len(part) > self.k:  # a floor at once, not after `_capacity` scores
            least = np.partition(rough, len(part) - self.k, axis=1)[:, len(part) - self.k]
            floor = least - 2 * margin
            self.floor[some] = np.where(np.isfinite(floor), floor, np.float32(-np.inf))
        held = (self.keys[some], self.fill[some], self.floor[some], self.k)
        select = _select
        if self.compiled:
            from airgen.retrievers.dense._select_compiled import select
        select(rough, part, self.queries[some], margin, start, *held)

    def write(self, positions: NDArray[np.int32], scores: NDArray[np.float32]) -> None:
        """Write the result so far, (m, k)."""
        for query, (keys, fill) in enumerate(zip(self.keys, self.fill, strict=True)):
            best = np.sort(keys[:fill])[::-1][: self.k]
            positions[query, : len(best)], scores[query, : len(best)] = unpack(best)


_MEASURED = 500_000_000  # products, some seconds of work: from here on it is worth to measure which way is quicker
_TRIAL = (256, 40_960)  # queries and rows of that measurement
_FAISS_ROWS = 8192  # of a chunk that faiss looks at, at least
_FAISS_MOST = 32  # hits; for more of them faiss was slower wherever it was measured (benchmarks/recall.py)
_SPARE = 16  # rows that faiss selects beyond k


def _quicker(products: int, dim: int) -> Any:
    """The package faiss where it is to select, or None. The bits of a result do not depend on it."""
    if dim == 0 or not (products >= LARGE or "faiss" in sys.modules) or importlib.util.find_spec("faiss") is None:
        return None
    faiss: Any = load_extra("faiss", "exact search")
    faiss.omp_set_num_threads(cores())
    return faiss if products < _MEASURED or _selects_quicker(dim) else None


@lru_cache(maxsize=8)
def _selects_quicker(dim: int) -> bool:
    """Whether faiss is quicker on this processor, by one search of each way."""
    faiss = load_extra("faiss", "exact search")
    draw = np.random.default_rng(0)
    queries, rows = (draw.standard_normal((count, dim), dtype=np.float32) for count in _TRIAL)
    taken: list[float] = []
    for selects in (True, False):
        start = time.process_time()
        if selects:
            _Selected(faiss, queries, 10).stream(rows, None, len(rows))
        else:
            guess = _guess(rows, queries, 10, None, len(rows))
            _Best(queries, 10, worth_compiling(rows.size), guess).stream(rows, None, len(rows))
        taken.append(time.process_time() - start)
    return taken[0] < taken[1]


class _Selected:
    """The k best by candidates of faiss; rows come in chunks of ascending position."""

    def __init__(self, faiss: Any, queries: NDArray[np.float32], k: int) -> None:
        self._faiss, self._queries, self._k = faiss, queries, k
        self._keys = np.zeros((len(queries), k), np.uint64)
        self._floor = np.full(len(queries), -np.inf, np.float32)  # the k-th best score so far
        self._passed = np.full(len(queries), -np.inf, np.float32)  # no row that was passed over has a greater score
        self._compiled = worth_compiling(queries.size * k)

    def stream(self, matrix: NDArray[Any], rows: NDArray[np.int64] | None, n: int) -> bool:
        """Take all rows; whether that could be done. Raises ModelError for one that contains NaN or infinity."""
        size = max(1, min(max(_FAISS_ROWS, 32 * self._k), n))
        reader = _Best(self._queries, 1, self._compiled)
        # A new one for each chunk would cost a page fault for each page.
        room = np.empty((size, self._queries.shape[1]), np.float32)
        for start in range(0, n, size):
            end = min(start + size, n)
            part = reader.floats(matrix[start:end] if rows is None else matrix[rows[start:end]], room[: end - start])
            margin = reader.margin(part, start)
            if not np.isfinite(margin).all():  # squares that overflow: the products may, too
                return False
            self._take(part, margin, start)
        return True

    def _take(self, part: NDArray[np.float32], margin: NDArray[np.float32], start: int) -> None:
        count = min(self._k + _SPARE, len(part))
        rough, places = self._faiss.knn(self._queries, part, count, metric=self._faiss.METRIC_INNER_PRODUCT)
        if count < len(part):
            self._passed = np.maximum(self._passed, rough[:, -1] + margin)
        scores = np.full(rough.shape, -np.inf, np.float32)
        low = self._floor - margin
        if self._compiled:
            from airgen.retrievers.dense._select_compiled import rescore

            rescore(part, self._queries, places, rough, low, scores)
        else:
            for query, row in enumerate(self._queries):
                near = rough[query] > low[query]
                scores[query, near] = inner_products(part[places[query, near]], row).astype(np.float32)
        good = np.isfinite(scores)
        keys = np.zeros(scores.shape, np.uint64)
        keys[good] = pack(scores[good], places[good] + start)
        both = np.concatenate([self._keys, keys], axis=1)
        self._keys = np.partition(both, both.shape[1] - self._k, axis=1)[:, both.shape[1] - self._k :]
        least = self._keys.min(axis=1)
        self._floor = np.where(least > 0, unpack(least)[1], np.float32(-np.inf))

    def write(self, positions: NDArray[np.int32], scores: NDArray[np.float32]) -> NDArray[np.int64]:
        """Write the result, (m, k); the queries for which a row that was passed over may be among the k best."""
        keys = np.sort(self._keys, axis=1)[:, ::-1]
        places, values = unpack(keys)
        positions[:], scores[:] = np.where(keys > 0, places, -1), np.where(keys > 0, values, np.float32(-np.inf))
        return np.flatnonzero(self._passed >= self._floor)


def _select(
    rough: NDArray[np.float32],
    rows: NDArray[np.float32],
    queries: NDArray[np.float32],
    margin: NDArray[np.float32],
    start: int,
    keys: NDArray[np.uint64],
    fill: NDArray[np.int64],
    floor: NDArray[np.float32],
    k: int,
) -> None:
    """Append every score above its query's floor; whenever a buffer is full, keep its k best and raise the floor.

    Only pairs whose rough product is not below the floor by more than the margin are scored.
    """
    capacity = keys.shape[1]
    for query, products in enumerate(rough):
        places = np.flatnonzero(~(products <= floor[query] - margin[query]))  # also where the product is no number
        scores = inner_products(rows[places], queries[query]).astype(np.float32)
        above = scores > floor[query]
        places, scores = places[above], scores[above]
        while len(places):
            n = int(fill[query])
            taken = places[: capacity - n]
            keys[query, n : n + len(taken)] = pack(scores[: len(taken)], taken + start)
            fill[query] = n + len(taken)
            places, scores = places[len(taken) :], scores[len(taken) :]
            if fill[query] == capacity:
                best = np.partition(keys[query], capacity - k)[capacity - k :]
                keys[query, :k] = best
                fill[query] = k
                floor[query] = unpack(best.min(keepdims=True))[1][0]
                above = scores > floor[query]
                places, scores = places[above], scores[above]


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

    def make(self) -> Callable[[Shard], Hits | None]:
        """The function of a worker; None where its file is another one, or none."""

        def work(shard: Shard) -> Hits | None:
            some = shard_rows(self.path, self.dim, shard)
            return None if some is None else search(some[0], self.queries, self.k, rows=some[1])

        return work


def shard_rows(path: Path, dim: int, shard: Shard) -> tuple[Any, NDArray[np.int64] | None] | None:
    """The rows of a shard in the file at `path`: (matrix, its rows, or None for all). None where it is another file."""
    first, end, rows, mark = shard
    try:
        matrix = np.memmap(path, np.float16, "r").reshape(-1, dim)
    except (OSError, ValueError):
        return None
    ends = (first, end - 1) if rows is None else (int(rows[0]), int(rows[-1]))
    if max(ends) >= len(matrix) or _mark(matrix, *ends) != mark:
        return None
    return (matrix[first:end] if rows is None else matrix), rows


def shard_of(matrix: Any, start: int, end: int, first: int, rows: NDArray[np.int64] | None) -> Shard:
    """The shard of the passages from `start` to `end`; `first` is the row of the file where `matrix` begins."""
    some = None if rows is None else rows[start:end]
    ends = (start, end - 1) if some is None else (int(some[0]), int(some[-1]))
    return first + start, first + end, some, _mark(matrix, *ends)


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
) -> Hits:
    """As `search(matrix, ...)`, where `matrix` are the rows from `first` on of the file `path`, (n, dim) in fp16.

    With `rows`, `matrix` is the whole file. Small searches, and all where there is one worker, are done here.
    """
    n, workers = len(matrix) if rows is None else len(rows), current().workers
    if workers < 2 or n <= _ROWS or n * len(queries) < _SCORES:
        return search(matrix, queries, k, rows=rows)
    size = max(_ROWS, -(-n // workers // _ROWS) * _ROWS)

    def shards() -> Iterator[tuple[int, Shard]]:
        for start in range(0, n, size):
            yield start, shard_of(matrix, start, min(start + size, n), first, rows)

    remote = _Search(path.absolute(), matrix.shape[1], queries, k)
    work: Work[Shard, Hits | None] = Work("exact search", lambda shard: None, remote.make)
    best = Hits.none(len(queries), k)
    for start, hits in current().map(work, shards()):
        if hits is None:
            end = min(start + size, n)
            part = matrix[start:end] if rows is None else matrix
            here = None if rows is None else rows[start:end]
            hits = search(part, queries, k, rows=here)
        best = merged(best, Hits(np.where(hits.positions < 0, -1, hits.positions + start), hits.scores))
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

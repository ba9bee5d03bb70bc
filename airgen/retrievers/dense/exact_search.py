"""Exact top-k inner-product search over rows of vectors that may be larger than memory.

The rows (fp16 or fp32, in memory or memory-mapped) are read once, in chunks. BLAS multiplies a chunk with all queries,
and its products only select candidates: a pair is skipped if its product is farther below the query's k-th best score
than any order of fp32 additions could account for. All other pairs are rescored in float64 in a fixed order
(`exact_arithmetic.inner_products`) and rounded to fp32, so a score has the same bits on every machine, whatever else is
searched. At the paper's depth of 1,000 (section 2.4, step 1), this is faster than graph indexes, and exact.

Processors with bf16 instructions multiply bf16 twice as fast as fp32. On these, torch selects candidates with bf16
products if it is loaded or worth loading. The error of these products is also bounded, so a few more pairs are rescored
in float64, with the same result. On other processors, if faiss is installed and faster, it selects a few more rows than
needed from each chunk. A query is searched again without faiss if its last selected row is too close to its k-th best
score to exclude other rows.

If the rows fit on a GPU, the GPU selects candidates (`gpu_search`), with bit-identical results.

Each worker searches a shard of the rows in the encodings file, and the best hits are merged, with bit-identical
results, since shards begin where the chunks of a single search begin. Only queries, hits and row numbers are sent. If a
worker cannot access the file, the driver searches its shard.
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

from airgen.components.registry import load_extra
from airgen.compute import Work, cores, current
from airgen.compute.exact_arithmetic import LARGE, inner_products, worth_compiling
from airgen.errors import ModelError
from airgen.retrievers.hits import Hits
from airgen.retrievers.top_k import pack, unpack

_CHUNK_ROWS = 1024  # rows converted and multiplied at once: 1.5 MB of fp32 at 384 dimensions
_BLOCK_QUERIES = 1024  # queries multiplied at once: a block of products (4 MB) stays in the cache while it is scanned
_CANDIDATE_BYTES = 1 << 29  # memory for the candidates of all queries of a pass
_SAMPLE_ROWS = 4096  # rows from which the first threshold is estimated
_SAMPLE_QUERIES = 256  # compared with the sample at once
_GUESS_FROM_ROWS = 8 * _SAMPLE_ROWS  # with fewer rows, estimating costs more than it saves
_FEW_HITS = 32  # also for at most this k, because the first chunks give a good threshold
_ROUNDING = 2.0**-24  # relative error of rounding to fp32
_SHORT_ROUNDING = 2.0**-8  # relative error of rounding to bf16
_UNDERFLOW_LENGTH = np.float32(1e-18)  # above the length of a vector whose squares underflow
_UNDERFLOW_ERROR = np.float32(1e-30)  # above the error of products that underflow


def search(
    matrix: NDArray[Any], queries: NDArray[np.float32], k: int, *, rows: NDArray[np.int64] | None = None
) -> Hits:
    """Return the k rows with the greatest inner product per query. Ties are in order of position.

    With very many queries, the rows are read several times, so that only about 1 GB is needed besides the result.

    Args:
        matrix: Rows, float16 or float32 (n, dim); may be a memory map larger than memory.
        queries: Vectors of m queries, float32 (m, dim).
        k: Number of hits per query.
        rows: Rows of `matrix` to search: position i of the result is `matrix[rows[i]]`. Default: all.

    Returns:
        The hits, with arrays of shape (m, k).

    Raises:
        ModelError: Dimensions differ, a value is NaN or infinite, or k is below 1.
    """
    n = len(matrix) if rows is None else len(rows)
    check_search(matrix, queries, k)
    queries = np.ascontiguousarray(queries, np.float32)
    width = min(k, max(n, 1))
    batch = max(1, _CANDIDATE_BYTES // (_capacity(width) * 8 + queries.shape[1] * 4 + 64))  # queries per pass
    compiled = worth_compiling(max(n * len(queries), queries.size * min(n, width)))  # products, or terms of exact ones
    guessing = n >= _GUESS_FROM_ROWS and _FEW_HITS < width <= n // 20
    hits = Hits.none(len(queries), k)
    torch = _torch_if_quicker(n, queries) if compiled else None
    faiss = None
    if torch is None and width <= _FAISS_MOST_HITS:
        faiss = _faiss_if_quicker(n * len(queries), queries.shape[1])
    for first in range(0, len(queries), batch):
        block = slice(first, first + batch)
        block_queries = queries[block]
        if faiss is not None:
            selected = _Selected(faiss, block_queries, width)
            if selected.stream(matrix, rows, n):
                unsure = selected.write(hits.positions[block, :width], hits.scores[block, :width])
                if unsure.size:
                    again = _Best(block_queries[unsure], width, compiled)
                    again.stream(matrix, rows, n)
                    _write_hits(hits, first + unsure, again, width)
                continue
        guess = _guess(matrix, block_queries, width, rows=rows, count=n, torch=torch) if guessing else None
        best = _Best(block_queries, width, compiled, guess, torch)
        best.stream(matrix, rows, n)
        best.write(hits.positions[block, :width], hits.scores[block, :width])
        if guess is not None and (short := np.flatnonzero(best.fill < width)).size:
            again = _Best(block_queries[short], width, compiled)  # the guess was too high for these queries
            again.stream(matrix, rows, n)
            _write_hits(hits, first + short, again, width)
    return hits


def _write_hits(hits: Hits, places: NDArray[np.int64], best: _Best, width: int) -> None:
    block = Hits.none(len(places), width)
    best.write(block.positions, block.scores)
    hits.positions[places, :width], hits.scores[places, :width] = block.positions, block.scores


def check_search(matrix: NDArray[Any], queries: NDArray[np.float32], k: int) -> None:
    """Raise ModelError for unequal dimensions, NaN or infinity in queries, or k below 1."""
    if k < 1:
        raise ModelError(f"k is {k}: at least 1 is needed")
    if queries.ndim != 2 or matrix.ndim != 2 or queries.shape[1] != matrix.shape[1]:
        raise ModelError(f"queries of shape {queries.shape} do not fit rows of shape {matrix.shape}")
    if not np.isfinite(queries).all():
        raise ModelError("a query's embedding contains NaN or infinity")


def _capacity(k: int) -> int:
    """Return how many candidates to keep per query before dropping all but the k best."""
    return 2 * k + 32


def _guess(
    matrix: NDArray[Any],
    queries: NDArray[np.float32],
    k: int,
    *,
    rows: NDArray[np.int64] | None,
    count: int,
    torch: Any = None,
) -> NDArray[np.float32]:
    """Estimate, from a sample of the `count` rows, a score per query that a few times k rows exceed.

    A sample of s of n rows contains about m = k * s / n of the k best rows, a number that is roughly Poisson
    distributed. The score of the sample's (m + 4 sqrt(m) + 4)th best row is therefore almost never above that of the
    k-th best of all rows.
    """
    places = np.sort(np.random.default_rng(count).choice(count, _SAMPLE_ROWS, replace=False))
    sample = np.asarray(matrix[places if rows is None else rows[places]], np.float32)
    mean = k * _SAMPLE_ROWS / count
    rank = min(_SAMPLE_ROWS, int(mean + 4 * mean**0.5 + 4))
    floors = np.empty(len(queries), np.float32)
    for first in range(0, len(queries), _SAMPLE_QUERIES):
        block = slice(first, first + _SAMPLE_QUERIES)
        if torch is None:
            products = queries[block] @ sample.T
        else:  # an error of a few thousandths is far below the sample's error
            short = torch.from_numpy(queries[block]).bfloat16()
            products = (short @ torch.from_numpy(sample).bfloat16().T).float().numpy()
        floors[block] = np.partition(products, _SAMPLE_ROWS - rank, axis=1)[:, _SAMPLE_ROWS - rank]
    return floors


@dataclass
class _Best:
    """The k best rows of each query so far. Rows are added in chunks of ascending position.

    Up to `_capacity` candidates are kept per query: those above its k-th best score at the last clean-up, `floor`.
    Scores up to `guess`, (m,), are not kept; a `fill` below k shows that the guess was too high. `torch` is the package
    for bf16 products, or None for fp32 products with BLAS.
    """

    queries: NDArray[np.float32]
    k: int
    compiled: bool
    guess: NDArray[np.float32] | None = None
    torch: Any = None

    def __post_init__(self) -> None:
        count = len(self.queries)
        self.keys = np.zeros((count, _capacity(self.k)), np.uint64)
        self.fill = np.zeros(count, np.int64)
        self.floor = np.full(count, -np.inf, np.float32) if self.guess is None else self.guess.copy()
        # For any order of additions, a product in fp32 is within dim * 2**-24 * |row| |query| of the true product. The
        # factor and the terms beyond `dim` cover the rounding of lengths, margin and threshold.
        share = np.float32(1.01 * _ROUNDING * (self.queries.shape[1] + 16))
        with np.errstate(over="ignore"):
            lengths = np.sqrt((self.queries**2).sum(axis=1)) + _UNDERFLOW_LENGTH
        self._reach = share * lengths
        self._longest = np.float32(0)
        if self.torch is not None:
            # Rounding adds the measured error of the queries, the error of the rows, and the error of the product.
            self._short = self.torch.from_numpy(self.queries).bfloat16()
            errors = np.sqrt(((self._short.float().numpy() - self.queries) ** 2).sum(axis=1))
            # Additions of bf16 products may round twice each.
            self._short_reach = 1.02 * (errors + 2 * _SHORT_ROUNDING * lengths) + 4 * self._reach

    def stream(self, matrix: NDArray[Any], rows: NDArray[np.int64] | None, n: int) -> None:
        """Process all rows. Raises ModelError if a row contains NaN or infinity."""
        # Allocated once, because new buffers for each chunk would cost a page fault per page.
        size = min(_CHUNK_ROWS, n)
        room = np.empty((size, self.queries.shape[1]), np.float32)
        products = np.empty((min(_BLOCK_QUERIES, len(self.queries)), size), np.float32)
        short_products: Any = None
        for start in range(0, n, _CHUNK_ROWS):
            end = min(start + _CHUNK_ROWS, n)
            part = self.floats(matrix[start:end] if rows is None else matrix[rows[start:end]], room[: end - start])
            margin = self.margin(part, start)
            fine, short_part = margin, None
            if (short := self._short_margin(margin)) is not None:
                margin, short_part = short, self.torch.from_numpy(part).bfloat16().T
                if short_products is None:
                    short_products = self.torch.empty(products.shape, dtype=self.torch.bfloat16)
            with np.errstate(over="ignore", invalid="ignore"):
                for first in range(0, len(self.queries), _BLOCK_QUERIES):
                    block = slice(first, first + _BLOCK_QUERIES)
                    shape = len(self.queries[block]), len(part)
                    rough = products if products.shape == shape else np.empty(shape, np.float32)
                    if short_part is None:
                        np.matmul(self.queries[block], part.T, out=rough)
                    else:
                        out = short_products[: shape[0], : shape[1]]
                        self.torch.mm(self._short[block], short_part, out=out)
                        self.torch.from_numpy(rough).copy_(out)
                    self._take(rough, part, margin[block], fine[block], start=start, block=block)

    def _short_margin(self, margin: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """Return the margin of bf16 products, or None if they are not used or close to overflow."""
        if self.torch is None or not (margin < _SHORT_LARGEST).all():
            return None
        reach = self._short_reach * (self._longest + _UNDERFLOW_LENGTH) + _UNDERFLOW_ERROR
        return np.asarray(reach, np.float32) if (reach < _SHORT_LARGEST).all() else None

    def margin(self, part: NDArray[np.float32], start: int) -> NDArray[np.float32]:
        """Return a bound on the difference between each query's product with one of these rows and the true product.

        Raises ModelError if a row contains NaN or infinity. `start` is the position of the first row.
        """
        if self.compiled:
            from airgen.retrievers.dense._select_compiled import largest_square

            largest = largest_square(part)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                largest = np.einsum("ij,ij->i", part, part).max()
        if not np.isfinite(largest):  # NaN and infinity survive sum and maximum, and large numbers overflow
            bad = np.flatnonzero(~np.isfinite(part).all(axis=1))
            if bad.size:
                raise ModelError(f"the embedding at position {start + int(bad[0])} contains NaN or infinity")
        self._longest = max(self._longest, np.sqrt(largest))
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self._reach * (self._longest + _UNDERFLOW_LENGTH) + _UNDERFLOW_ERROR, np.float32)

    def floats(self, rows: NDArray[Any], room: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the rows in fp32. Converted rows are written to `room`."""
        if rows.dtype == np.float32:
            return np.ascontiguousarray(rows)
        if not self.compiled or rows.dtype != np.float16:
            if room is None:
                return np.ascontiguousarray(rows, np.float32)
            room[:] = rows
            return room
        from airgen.retrievers.dense._select_compiled import widen

        wide = np.empty(rows.shape, np.float32) if room is None else room
        widen(np.ascontiguousarray(rows).view(np.uint16), wide)
        return wide

    def _take(
        self,
        rough: NDArray[np.float32],
        part: NDArray[np.float32],
        margin: NDArray[np.float32],
        fine: NDArray[np.float32],
        *,
        start: int,
        block: slice,
    ) -> None:
        if start == 0 and self.guess is None and len(part) > self.k:  # a floor at once, not after `_capacity` scores
            least = np.partition(rough, len(part) - self.k, axis=1)[:, len(part) - self.k]
            floor = least - 2 * margin
            self.floor[block] = np.where(np.isfinite(floor), floor, np.float32(-np.inf))
        select = _select
        if self.compiled:
            from airgen.retrievers.dense._select_compiled import select
        select(
            rough,
            part,
            self.queries[block],
            margin,
            fine,
            start=start,
            keys=self.keys[block],
            fill=self.fill[block],
            floor=self.floor[block],
            k=self.k,
        )

    def write(self, positions: NDArray[np.int32], scores: NDArray[np.float32]) -> None:
        """Write the result so far, (m, k)."""
        for query, (keys, fill) in enumerate(zip(self.keys, self.fill, strict=True)):
            best = np.sort(keys[:fill])[::-1][: self.k]
            positions[query, : len(best)], scores[query, : len(best)] = unpack(best)


_SHORT_LARGEST = np.float32(1e30)  # with a margin: products of such vectors are far below the largest number
_TORCH_TERMS = 400_000_000_000  # terms of products, 5 seconds of work; with more, loading torch is worth it
_TORCH_LEAST = 20_000_000, 64, 64  # products, queries and dimensions below which bf16 gains nothing


def _torch_if_quicker(rows: int, queries: NDArray[np.float32]) -> Any:
    """Return torch if it should select candidates, or None. The result is bit-identical either way."""
    count, dim = queries.shape
    if any(size < least for size, least in zip((rows * count, count, dim), _TORCH_LEAST, strict=True)):
        return None
    if not (rows * queries.size >= _TORCH_TERMS or "torch" in sys.modules) or importlib.util.find_spec("torch") is None:
        return None
    torch: Any = load_extra("torch", "exact search")
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # since torch 2.12
    return torch if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") else None


_MEASURED_PRODUCTS = 100_000_000  # a second of work: with more, measuring the faster method is worth it
_TRIAL = (256, 40_960)  # queries and rows for this measurement
_FAISS_ROWS = 8192  # minimum chunk size that faiss searches
_FAISS_MOST_HITS = 32  # with more hits, faiss was slower in all measurements (benchmarks/recall.py)
_SPARE_ROWS = 16  # candidates that faiss selects in addition to k


def _faiss_if_quicker(products: int, dim: int) -> Any:
    """Return faiss if it should select candidates, or None. The result is bit-identical either way."""
    if dim == 0 or not (products >= LARGE or "faiss" in sys.modules) or importlib.util.find_spec("faiss") is None:
        return None
    faiss: Any = load_extra("faiss", "exact search")
    faiss.omp_set_num_threads(cores())
    return faiss if products < _MEASURED_PRODUCTS or _faiss_is_quicker(dim) else None


@lru_cache(maxsize=8)
def _faiss_is_quicker(dim: int) -> bool:
    """Measure whether faiss is faster on this processor, by a search with and a search without it."""
    faiss = load_extra("faiss", "exact search")
    draw = np.random.default_rng(0)
    queries, rows = (draw.standard_normal((count, dim), dtype=np.float32) for count in _TRIAL)
    compiled = worth_compiling(_MEASURED_PRODUCTS)  # as in the search for which it is measured

    def taken(count: int, *, selects: bool) -> float:
        """Return the CPU seconds of a search of the first rows."""
        best = _Selected(faiss, queries, 10) if selects else _Best(queries, 10, compiled)
        start = time.process_time()
        best.stream(rows[:count], None, count)
        return time.process_time() - start

    for selects in (True, False):
        taken(_FAISS_ROWS, selects=selects)  # what the first search loads is not its time
    return taken(len(rows), selects=True) < taken(len(rows), selects=False)


class _Selected:
    """The k best rows from faiss's candidates. Rows are added in chunks of ascending position."""

    def __init__(self, faiss: Any, queries: NDArray[np.float32], k: int) -> None:
        self._faiss, self._queries, self._k = faiss, queries, k
        self._keys = np.zeros((len(queries), k), np.uint64)
        self._floor = np.full(len(queries), -np.inf, np.float32)  # the k-th best score so far
        self._passed = np.full(len(queries), -np.inf, np.float32)  # no skipped row has a greater score
        self._compiled = worth_compiling(queries.size * k)

    def stream(self, matrix: NDArray[Any], rows: NDArray[np.int64] | None, n: int) -> bool:
        """Process all rows, and return whether this was possible. Raises ModelError if a row contains NaN or
        infinity."""
        size = max(1, min(max(_FAISS_ROWS, 32 * self._k), n))
        reader = _Best(self._queries, 1, self._compiled)
        # Allocated once, because a new buffer for each chunk would cost a page fault per page.
        room = np.empty((size, self._queries.shape[1]), np.float32)
        for start in range(0, n, size):
            end = min(start + size, n)
            part = reader.floats(matrix[start:end] if rows is None else matrix[rows[start:end]], room[: end - start])
            margin = reader.margin(part, start)
            if not np.isfinite(margin).all():  # squares that overflow, as the products may too
                return False
            self._take(part, margin, start)
        return True

    def _take(self, part: NDArray[np.float32], margin: NDArray[np.float32], start: int) -> None:
        count = min(self._k + _SPARE_ROWS, len(part))
        rough, places = self._faiss.knn(self._queries, part, count, metric=self._faiss.METRIC_INNER_PRODUCT)
        if count < len(part):
            self._passed = np.maximum(self._passed, rough[:, -1] + margin)
        scores = np.full(rough.shape, -np.inf, np.float32)
        low = self._floor - margin
        if self._compiled:
            from airgen.retrievers.dense._select_compiled import rescore

            rescore(part, self._queries, places, rough, low=low, scores=scores)
        else:
            for query, row in enumerate(self._queries):
                promising = rough[query] > low[query]
                scores[query, promising] = inner_products(part[places[query, promising]], row).astype(np.float32)
        good = np.isfinite(scores)
        keys = np.zeros(scores.shape, np.uint64)
        keys[good] = pack(scores[good], places[good] + start)
        both = np.concatenate([self._keys, keys], axis=1)
        self._keys = np.partition(both, both.shape[1] - self._k, axis=1)[:, both.shape[1] - self._k :]
        least = self._keys.min(axis=1)
        self._floor = np.where(least > 0, unpack(least)[1], np.float32(-np.inf))

    def write(self, positions: NDArray[np.int32], scores: NDArray[np.float32]) -> NDArray[np.int64]:
        """Write the result, (m, k), and return the queries whose k best may include a skipped row."""
        keys = np.sort(self._keys, axis=1)[:, ::-1]
        places, values = unpack(keys)
        positions[:], scores[:] = np.where(keys > 0, places, -1), np.where(keys > 0, values, np.float32(-np.inf))
        return np.flatnonzero(self._passed >= self._floor)


def _select(
    rough: NDArray[np.float32],
    rows: NDArray[np.float32],
    queries: NDArray[np.float32],
    margin: NDArray[np.float32],
    fine: NDArray[np.float32],
    start: int,
    keys: NDArray[np.uint64],
    fill: NDArray[np.int64],
    floor: NDArray[np.float32],
    k: int,
) -> None:
    """Append every score above its query's floor. Whenever a buffer is full, keep its k best and raise the floor.

    Only pairs whose approximate product is not below the floor by more than the margin are scored. (`fine`, the margin
    of an fp32 product, only saves work in the compiled loop.)
    """
    capacity = keys.shape[1]
    for query, products in enumerate(rough):
        places = np.flatnonzero(~(products <= floor[query] - margin[query]))  # also if the product is NaN
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


_SHARD_ROWS = 1 << 16  # minimum size of a shard; a multiple of the rows that a search reads at once
_LOCAL_SCORES = 1 << 28  # with fewer, this process is faster than workers

Shard = tuple[int, int, NDArray[np.int64] | None, int]
"""The first row, the row after the last, the rows of the file (unless all are used), and a checksum of the ends."""


@dataclass(frozen=True)
class _ShardSearch:
    """A worker's task of searching shards."""

    path: Path
    dim: int
    queries: NDArray[np.float32]
    k: int

    def make(self) -> Callable[[Shard], Hits | None]:
        """Return the worker's function, which returns None if the worker's file is missing or different."""

        def work(shard: Shard) -> Hits | None:
            opened = shard_rows(self.path, self.dim, shard)
            if opened is None:
                return None
            matrix, rows = opened
            return search(matrix, self.queries, self.k, rows=rows)

        return work


def shard_rows(path: Path, dim: int, shard: Shard) -> tuple[Any, NDArray[np.int64] | None] | None:
    """Map the rows of a shard in the file at `path`.

    Returns:
        The matrix and the rows to search (None for all), or None if this is not the shard's file.
    """
    first, end, rows, checksum = shard
    try:
        matrix = np.memmap(path, np.float32, "r").reshape(-1, dim)
    except (OSError, ValueError):
        return None
    ends = (first, end - 1) if rows is None else (int(rows[0]), int(rows[-1]))
    if max(ends) >= len(matrix) or _checksum(matrix, *ends) != checksum:
        return None
    return (matrix[first:end] if rows is None else matrix), rows


def shard_of(matrix: Any, start: int, end: int, *, first: int, rows: NDArray[np.int64] | None) -> Shard:
    """Return the shard of the passages from `start` to `end`. `first` is the row of the file where `matrix` begins."""
    shard_rows = None if rows is None else rows[start:end]
    ends = (start, end - 1) if shard_rows is None else (int(shard_rows[0]), int(shard_rows[-1]))
    return first + start, first + end, shard_rows, _checksum(matrix, *ends)


def _checksum(matrix: Any, first: int, last: int) -> int:
    return zlib.crc32(matrix[last].tobytes(), zlib.crc32(matrix[first].tobytes()))


def search_shards(
    path: Path,
    matrix: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    *,
    first: int = 0,
    rows: NDArray[np.int64] | None = None,
) -> Hits:
    """Search like `search`, but on the workers if there are several.

    Small searches, and all searches with a single worker, run in this process.

    Args:
        path: File that contains the rows in fp32.
        matrix: The rows of the file from row `first`, float32 (n, dim).
        queries: Vectors of m queries, float32 (m, dim).
        k: Number of hits per query.
        first: Row of the file where `matrix` begins.
        rows: Rows of `matrix` to search; `matrix` is then the whole file. Default: all.

    Returns:
        The hits, with arrays of shape (m, k).
    """
    n, workers = len(matrix) if rows is None else len(rows), current().workers
    if workers < 2 or n <= _SHARD_ROWS or n * len(queries) < _LOCAL_SCORES:
        return search(matrix, queries, k, rows=rows)
    size = max(_SHARD_ROWS, -(-n // workers // _SHARD_ROWS) * _SHARD_ROWS)

    def shards() -> Iterator[tuple[int, Shard]]:
        for start in range(0, n, size):
            yield start, shard_of(matrix, start, min(start + size, n), first=first, rows=rows)

    shard_search = _ShardSearch(path.absolute(), matrix.shape[1], queries, k)
    work: Work[Shard, Hits | None] = Work("exact search", lambda shard: None, shard_search.make)
    best = Hits.none(len(queries), k)
    for start, hits in current().map(work, shards()):
        if hits is None:
            end = min(start + size, n)
            part = matrix[start:end] if rows is None else matrix
            hits = search(part, queries, k, rows=None if rows is None else rows[start:end])
        best = merged(best, Hits(np.where(hits.positions < 0, -1, hits.positions + start), hits.scores))
    return best


def merged(before: Hits, after: Hits) -> Hits:
    """Merge two results, where all positions in the first precede those in the second. k is the width of the first."""
    k = before.positions.shape[1]
    scores = np.concatenate([before.scores, after.scores], axis=1)
    positions = np.concatenate([before.positions, after.positions], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]  # stable: ties stay in the order of position
    return Hits(
        np.take_along_axis(positions, order, axis=1).astype(np.int32), np.take_along_axis(scores, order, axis=1)
    )

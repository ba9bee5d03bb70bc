"""Exact top-k inner-product search over rows that need not fit in memory.

The rows (fp16 or fp32, in memory or memory-mapped) are read once, in chunks, and compared with all queries. Each query
has a threshold that rises, so selecting costs little beside the matrix product. At the paper's depth of 1,000 (section
2.4, step 1) this is faster than graph indexes, and exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.errors import ModelError
from airgen.jit import numba_is_installed
from airgen.registry import load_extra
from airgen.retrievers.base import Hits
from airgen.retrievers.dense.first_pass import FirstPass
from airgen.retrievers.top_k import TopK

__all__ = ["faiss_index", "search", "search_faiss"]

_CHUNK = 1024  # rows converted and multiplied at once: 1.5 MB of fp32 at 384 dimensions
_BLOCK = 1024  # queries multiplied at once: a block of scores (4 MB) stays in the cache while it is scanned
_COMPILE_FROM = 20_000_000  # scores; below, loading numba takes longer than it saves
_FIRST_PASS_FROM = 100_000_000  # scores; below, loading ONNX Runtime and numba takes longer than the pass saves
_FIRST_PASS_QUERIES = 64  # with fewer, making integers of the rows takes as long as the product that it saves
_SAMPLE = 4096  # rows that the first threshold is guessed from
_SAMPLE_BLOCK = 256  # queries that meet the sample at once
_GUESS_FROM = 8 * _SAMPLE  # rows; below, guessing costs more than it saves
_FAISS_ROWS = 1 << 16  # rows given to faiss at once
# Both sides are padded to these multiples. Below them BLAS uses kernels that add in another order: the last bits of a
# score would depend on the number of queries, or on the size of the corpus.
_PAD_QUERIES = 16
_PAD_ROWS = 128


def search(
    matrix: NDArray[Any],
    queries: NDArray[np.float32],
    k: int,
    *,
    rows: NDArray[np.int64] | None = None,
    memory_bytes: int = 1 << 30,
) -> Hits:
    """The k rows with the greatest inner product for each query; ties in the order of position.

    `matrix` is (n, dim), float16 or float32, and may be a memory map larger than memory; `queries` is (m, dim).
    With `rows`, position i of the result means `matrix[rows[i]]`. `memory_bytes` limits the memory beside the
    result, which does not depend on it: with many queries and little memory the rows are read several times.
    Raises ModelError for unequal dimensions, NaN or infinite values, or k below 1.
    """
    n = len(matrix) if rows is None else len(rows)
    if k < 1:
        raise ModelError(f"k is {k}: at least 1 is needed")
    if queries.ndim != 2 or matrix.ndim != 2 or queries.shape[1] != matrix.shape[1]:
        raise ModelError(f"queries of shape {queries.shape} do not fit rows of shape {matrix.shape}")
    if not np.isfinite(queries).all():
        raise ModelError("a query's embedding holds NaN or infinity")
    width = min(k, max(n, 1))
    chunk, batch = _plan(queries.shape[1], width, len(queries), memory_bytes)
    compiled = n * len(queries) >= _COMPILE_FROM and numba_is_installed()
    roomy = memory_bytes >= 4 * _SAMPLE * (queries.shape[1] + _SAMPLE_BLOCK) * 4  # the sample, its scores, their copy
    guessing = roomy and n >= _GUESS_FROM and width <= n // 20
    quick = guessing and len(queries) >= _FIRST_PASS_QUERIES and n * len(queries) >= _FIRST_PASS_FROM
    parts = [
        _one_pass(matrix, queries[first : first + batch], width, rows, n, chunk, compiled, guessing, quick)
        for first in range(0, len(queries), batch)
    ]
    positions = np.full((len(queries), k), -1, np.int32)
    scores = np.full((len(queries), k), -np.inf, np.float32)
    if parts:
        positions[:, :width] = np.concatenate([part.positions for part in parts])
        scores[:, :width] = np.concatenate([part.scores for part in parts])
    return Hits(positions, scores)


def _plan(dim: int, k: int, queries: int, memory: int) -> tuple[int, int]:
    """Rows a chunk, and queries a pass, that fit in `memory` bytes."""
    chunk = _CHUNK
    a_row, a_query = FirstPass.bytes_needed(dim, _BLOCK)
    while chunk > _PAD_ROWS and chunk * (dim * 6 + a_row) > memory // 2:
        chunk //= 2
    a_query += TopK.capacity(k) * 8 + dim * 4
    batch = max(1, (memory // 2) // a_query)
    return chunk, min(max(batch, 1), max(queries, 1))


def _one_pass(
    matrix: NDArray[Any],
    queries: NDArray[np.float32],
    k: int,
    rows: NDArray[np.int64] | None,
    n: int,
    chunk: int,
    compiled: bool,
    guessing: bool,
    quick: bool,
) -> Hits:
    guess = _guess(matrix, queries, k, rows, n) if guessing else None
    best = TopK(len(queries), k, compiled, guess)
    first_pass = FirstPass.ready(queries, _BLOCK) if quick else None
    _stream(best, matrix, queries, rows, n, chunk, compiled, first_pass)
    hits = best.hits()
    if guess is not None and (short := np.flatnonzero(best.fill < k)).size:
        again = TopK(len(short), k, compiled)  # the guess was too high for these queries
        _stream(again, matrix, queries[short], rows, n, chunk, compiled)
        found = again.hits()
        hits.positions[short], hits.scores[short] = found.positions, found.scores
    return hits


def _guess(
    matrix: NDArray[Any], queries: NDArray[np.float32], k: int, rows: NDArray[np.int64] | None, n: int
) -> NDArray[np.float32]:
    """For each query a score that about a few times k rows exceed, estimated from a sample of the rows.

    A sample of s rows contains about m = k * s / n of the k best rows, and this number is about Poisson distributed.
    So the score of the sample's (m + 4 sqrt(m) + 4)th best row is almost never above that of the k-th best row of all.
    """
    places = np.sort(np.random.default_rng(n).choice(n, _SAMPLE, replace=False))
    sample = _padded(matrix[places if rows is None else rows[places]], _PAD_ROWS)
    mean = k * _SAMPLE / n
    rank = min(_SAMPLE, int(mean + 4 * mean**0.5 + 4))
    floors = np.empty(len(queries), np.float32)
    for first in range(0, len(queries), _SAMPLE_BLOCK):
        scores = queries[first : first + _SAMPLE_BLOCK] @ sample.T
        floors[first : first + _SAMPLE_BLOCK] = np.partition(scores, _SAMPLE - rank, axis=1)[:, _SAMPLE - rank]
    return floors


def _stream(
    best: TopK,
    matrix: NDArray[Any],
    queries: NDArray[np.float32],
    rows: NDArray[np.int64] | None,
    n: int,
    chunk: int,
    compiled: bool,
    first_pass: FirstPass | None = None,
) -> None:
    padded = _padded(queries, _PAD_QUERIES)
    for start in range(0, n, chunk):
        end = min(start + chunk, n)
        some = matrix[start:end] if rows is None else matrix[rows[start:end]]
        part = _padded(some, _PAD_ROWS, compiled)
        with np.errstate(over="ignore"):
            total = part.sum(dtype=np.float32)
        if not np.isfinite(total):  # NaN and infinity survive a sum, and large numbers overflow
            bad = np.flatnonzero(~np.isfinite(part).all(axis=1))
            if bad.size:
                raise ModelError(f"the embedding at position {start + int(bad[0])} holds NaN or infinity")
        blocks: Sequence[int] = range(0, len(padded), _BLOCK)
        if first_pass and first_pass.pays:
            blocks = first_pass.feed(best, part[: end - start], start)
        for first in blocks:
            scores = padded[first : first + _BLOCK] @ part.T
            best.feed(scores[: len(queries) - first, : end - start], start, first)


def _padded(rows: NDArray[Any], multiple: int, compiled: bool = False) -> NDArray[np.float32]:
    """The rows as fp32, with rows of zeros up to a multiple."""
    padded = np.empty((-(-len(rows) // multiple) * multiple, rows.shape[1]), np.float32)
    if compiled and rows.dtype == np.float16:
        from airgen.retrievers.dense._first_pass_compiled import widen

        widen(np.ascontiguousarray(rows).view(np.uint16), padded[: len(rows)])
    else:
        padded[: len(rows)] = rows
    padded[len(rows) :] = 0
    return padded


def faiss_index(matrix: NDArray[Any], rows: NDArray[np.int64] | None = None) -> Any:
    """A faiss IndexFlatIP, for comparison: all rows are in memory as fp32. With `rows`, of these rows of the matrix."""
    faiss = load_extra("faiss", "the faiss backend")
    index = faiss.IndexFlatIP(matrix.shape[1])
    n = len(matrix) if rows is None else len(rows)
    for start in range(0, n, _FAISS_ROWS):
        part = slice(start, min(start + _FAISS_ROWS, n))
        index.add(np.ascontiguousarray(matrix[part] if rows is None else matrix[rows[part]], dtype=np.float32))
    return index


def search_faiss(index: Any, queries: NDArray[np.float32], k: int) -> Hits:
    """The same as `search`, by an index of `faiss_index`; the order of ties is open."""
    scores, positions = index.search(np.ascontiguousarray(queries), k)
    scores[positions < 0] = -np.inf
    return Hits(positions.astype(np.int32), scores)

"""A first pass over rows of 8-bit integers, which names the rows that need an exact score.

    first = FirstPass.ready(queries, 1024)      # None where this machine has no fast product of integers
    first.feed(best, part, start)               # `best` gets the scores that the plain way would have given it

A row x is s * a + e with integers a and a small rest e, a query q is t * b + f. So q x = s t (a b) + q e + s a f, and
the last two terms are at most |q| |e| + (|x| + |e|) |f| (Cauchy-Schwarz; all roundings are counted as well). The
product of integers takes a quarter of the time of that of floats. A pair whose upper bound is below the query's
threshold is passed over, and all others get their fp32 score.

This score has the bits that BLAS gives, because it is summed in the order of BLAS. `_order` finds this order by trial.
There is no first pass where it is not found, or where the processor's product of integers saturates (AVX2).
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.errors import AirgenError
from airgen.jit import numba_is_installed
from airgen.registry import load_extra
from airgen.retrievers.top_k import TopK

__all__ = ["FirstPass"]

_CROWDED = 16  # where one pair of so many is near, the plain product of all is as fast
_ROUNDING = 2.0**-24  # the relative error of rounding to fp32
_TINY = np.float32(1e-30)  # above all errors of underflow
_LONGEST = 1 << 15  # dimensions whose product of integers fits in 31 bits


class FirstPass:
    """Queries of shape (m, dim) in integers, with what their bounds need."""

    def __init__(self, queries: NDArray[np.float32], block: int, ends: NDArray[np.int64]) -> None:
        self._queries, self._block, self._ends = np.ascontiguousarray(queries), block, ends
        levels, self._scale, rest, norm = _levelled(self._queries)
        signed = (levels ^ np.uint8(128)).view(np.int8)
        self._zero: NDArray[np.int32] = 128 * signed.sum(
            axis=1, dtype=np.int32
        )  # levels of rows are 128 too high at each place
        self._levels = [np.ascontiguousarray(signed[i : i + block].T) for i in range(0, len(signed), block)]
        # Infinity times zero is no bound, so nothing here is zero.
        rounding = np.float32(1.1 * _ROUNDING * (queries.shape[1] + 64))
        self._reach = np.maximum((norm + rest) * np.float32(1 + 1e-5), _TINY)
        self._slack = rest + self._reach * rounding
        self._margin = 2 * self._reach * rounding
        self._blocks = self._crowded = 0

    @classmethod
    def ready(cls, queries: NDArray[np.float32], block: int) -> FirstPass | None:
        """The first pass for these queries, `block` at a time, or None where the plain way has to do."""
        dim = queries.shape[1]
        packages = numba_is_installed() and importlib.util.find_spec("onnxruntime") is not None
        if not packages or not 0 < dim <= _LONGEST or not len(queries):
            return None
        from airgen.retrievers.dense._first_pass_compiled import TAME

        size = np.abs(queries).max(axis=1)
        if not ((size == 0) | ((size >= TAME[0]) & (size <= TAME[1]))).all() or not _product_is_exact():
            return None
        ends = _order(dim)
        return None if ends is None else cls(queries, block, ends)

    @staticmethod
    def bytes_needed(dim: int, block: int) -> tuple[int, int]:
        """Memory for a row of a chunk, and for a query."""
        return dim + 4 * block + 12 * block // _CROWDED, 3 * dim + 64

    @property
    def pays(self) -> bool:
        """False once most blocks were crowded: many rows come near the threshold, and this pass is waste."""
        return self._crowded <= 4 + self._blocks // 2

    def feed(self, best: TopK, part: NDArray[np.float32], start: int) -> list[int]:
        """Give `best` what it would take of the scores of the rows `part`, at the positions from `start` on.

        Returns the first queries of the blocks for which nothing was given, because too many rows came near.
        """
        from airgen.retrievers.dense import _first_pass_compiled as loops

        levels, row_scale, row_rest, row_norm = _levelled(part)
        pairs = np.empty(len(part) * self._block // _CROWDED + 8, np.int64)
        crowded = []
        for first, block in zip(range(0, len(self._queries), self._block), self._levels, strict=True):
            some = slice(first, first + block.shape[1])
            floor = best.floor[some] - _TINY
            product = _product(levels, block)
            scale, reach, slack = self._scale[some], self._reach[some], self._slack[some]
            near = loops.near(
                product, self._zero[some], scale, reach, slack, floor, row_scale, row_rest, row_norm, pairs
            )
            self._blocks += 1
            if near < 0:
                self._crowded += 1
                crowded.append(first)
                continue
            found, queries = pairs[:near], self._queries[some]
            found = found[: loops.kept(part, queries, self._margin[some], floor, row_norm, found)]
            scores = np.empty(len(found), np.float32)
            loops.score(part, queries, found, self._ends, scores)
            best.offer(found, scores, start, first)
        return crowded


def _levelled(
    vectors: NDArray[np.float32],
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Levels of the vectors, (n, dim), with their size and the bounds of |rest| and |vector|, each (n,)."""
    from airgen.retrievers.dense._first_pass_compiled import level

    levels = np.empty(vectors.shape, np.uint8)
    scales, rests, norms = np.empty((3, len(vectors)), np.float32)
    level(vectors, levels, scales, rests, norms)
    return levels, scales, rests, norms


@cache
def _order(dim: int) -> NDArray[np.int64] | None:
    """The ends of the stretches by which this machine's BLAS sums a product of `dim` terms; None if not found.

    OpenBLAS adds one term after another, in stretches of at most some hundred terms.
    """
    from airgen.retrievers.dense._first_pass_compiled import score

    draw = np.random.default_rng(dim)
    queries, rows = (draw.standard_normal((count, dim), dtype=np.float32) for count in (16, 128))
    wanted = (queries @ rows.T).T.ravel()
    pairs = ((np.arange(128)[:, None] << 32) + np.arange(16)).ravel()
    for longest in (dim, *range(64, dim, 16)):
        for unit in (1, 4, 8, 16, 32):
            ends = _stretches(dim, longest, unit)
            few = np.empty(16, np.float32)
            score(rows, queries, pairs[:16], ends, few)
            if np.array_equal(few, wanted[:16]):
                found = np.empty(len(pairs), np.float32)
                score(rows, queries, pairs, ends, found)
                if np.array_equal(found, wanted):
                    return ends
    return None


def _stretches(dim: int, longest: int, unit: int) -> NDArray[np.int64]:
    """Where stretches end: each is the longest, and what is left of less than two is halved, as OpenBLAS does it."""
    ends = [0]
    while (left := dim - ends[-1]) > 0:
        size = left if left <= longest else longest if left >= 2 * longest else -(-(left // 2) // unit) * unit
        ends.append(ends[-1] + size)
    return np.array(ends[1:], np.int64)


@cache
def _product_is_exact() -> bool:
    """Whether the extremes are multiplied exactly: AVX2 adds two products in 16 bits, and these saturate."""
    rows, queries = np.full((16, 64), 255, np.uint8), np.full((64, 16), 127, np.int8)
    try:
        return bool((_product(rows, queries) == 64 * 255 * 127).all())
    except (AirgenError, RuntimeError):  # a runtime that cannot be loaded: the pass only saves time
        return False


def _product(rows: NDArray[np.uint8], queries: NDArray[np.int8]) -> NDArray[np.int32]:
    """(n, dim) times (dim, m)."""
    found: NDArray[np.int32] = _session().run(None, {"rows": rows, "queries": queries})[0]
    return found


@cache
def _session() -> Any:
    """ONNX Runtime with a model of one node, MatMulInteger, on as many threads as BLAS has."""
    onnxruntime = load_extra("onnxruntime", "the first pass of exact search")
    options = onnxruntime.SessionOptions()
    threads = os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or ""
    options.intra_op_num_threads = int(threads) if threads.isdecimal() else 0  # 0: as many as there are cores
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # a thread that waits takes no time
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(_model(), options, providers=["CPUExecutionProvider"])


def _model() -> bytes:
    """The model in protobuf, by the field numbers of onnx.proto: one node between two inputs and an output."""

    def field(number: int, value: int | bytes) -> bytes:  # all numbers and lengths here are below 128
        return bytes([number << 3, value]) if isinstance(value, int) else bytes([number << 3 | 2, len(value)]) + value

    def tensor(name: bytes, kind: int) -> bytes:
        return field(1, name) + field(2, field(1, field(1, kind)))

    uint8, int8, int32 = 2, 3, 6
    node = field(1, b"rows") + field(1, b"queries") + field(2, b"product") + field(4, b"MatMulInteger")
    inputs = field(11, tensor(b"rows", uint8)) + field(11, tensor(b"queries", int8))
    graph = field(1, node) + field(2, b"graph") + inputs + field(12, tensor(b"product", int32))
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))  # IR version, graph, operator set

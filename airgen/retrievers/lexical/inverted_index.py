"""An inverted index of impacts: what every term adds to the score of every passage that holds it.

    index = InvertedIndex(starts, positions, impacts, size)
    hits = index.search([{3: 1.0, 8: 0.5}], k=10)

The score of a passage is the sum over the query's terms of weight times impact, whatever the impacts are: BM25,
a language model, or the weights of a learned sparse model. Search is exact.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airgen.errors import DatasetError, UsageError
from airgen.interruptible import interruptible
from airgen.jit import numba_is_installed
from airgen.retrievers.base import Hits
from airgen.retrievers.lexical import _postings

_COMPILE_FROM = 20_000_000  # scores; below, loading numba takes longer than it saves
_PARTS = ("starts", "positions", "impacts")


@dataclass(frozen=True)
class InvertedIndex:
    """Postings of all terms: term t adds `impacts[starts[t]:starts[t + 1]]` to `positions[starts[t]:starts[t + 1]]`.

    starts int64 (terms + 1,); positions int32 and impacts float32 (postings,), a term's positions ascending and
    each once, impacts not negative; `size` passages.
    """

    starts: NDArray[np.int64]
    positions: NDArray[np.int32]
    impacts: NDArray[np.float32]
    size: int

    @property
    def bytes(self) -> int:
        """Size of the arrays in bytes."""
        return int(self.starts.nbytes + self.positions.nbytes + self.impacts.nbytes)

    def search(
        self, queries: Sequence[Mapping[int, float]], k: int, threads: int | None = None, compiled: bool | None = None
    ) -> Hits:
        """The k best passages of each query, a mapping from term to weight; terms are added in its order.

        `threads=None` uses all cores; `compiled=None` uses numba where it is installed and worth its loading.
        Neither changes the result. Raises UsageError for a k below 1, a term outside the index, a weight that is
        negative or not finite.
        """
        if k < 1:
            raise UsageError(f"k must be at least 1, not {k}")
        bounds = np.zeros(len(queries) + 1, np.int64)
        np.cumsum([len(query) for query in queries], out=bounds[1:])
        total = int(bounds[-1])
        terms = np.fromiter((term for query in queries for term in query), np.int64, total)
        weights = np.fromiter((weight for query in queries for weight in query.values()), np.float32, total)
        if total and (terms.min() < 0 or terms.max() >= len(self.starts) - 1):
            raise UsageError(f"a query has a term outside the index's {len(self.starts) - 1} terms")
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise UsageError("a query has a weight that is negative or not a finite number")
        positions = np.full((len(queries), k), -1, np.int32)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        if compiled is None:
            compiled = self.size * len(queries) >= _COMPILE_FROM and numba_is_installed()
        run = _postings.search
        if compiled:
            from airgen.retrievers.lexical import _postings_compiled

            run = _postings_compiled.search

        def part(first: int, last: int) -> None:
            run(
                *(self.starts, self.positions, self.impacts, self.size, bounds[first : last + 1], terms, weights),
                *(positions[first:last], scores[first:last]),
            )

        workers = max(1, min(threads or os.cpu_count() or 1, len(queries) // 8))
        edges = np.linspace(0, len(queries), workers + 1).astype(int).tolist()
        if workers == 1:
            interruptible(lambda: part(0, len(queries))) if compiled else part(0, len(queries))
        else:  # the compiled loop holds no interpreter lock
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(part, edges[:-1], edges[1:]))
        return Hits(positions, scores)

    def save(self, folder: Path) -> None:
        """Write one .npy file an array."""
        for name in _PARTS:
            np.save(folder / f"{name}.npy", getattr(self, name))

    @classmethod
    def load(cls, folder: Path, size: int) -> InvertedIndex:
        """Map the files of `save` into memory: pages are read when a query needs them.

        Raises DatasetError for a file that is missing, cut short, or of another shape.
        """
        arrays = []
        for name in _PARTS:
            path = folder / f"{name}.npy"
            try:
                # Copy on write: numba compiles another version of each loop for read-only arrays.
                arrays.append(np.load(path, mmap_mode="c", allow_pickle=False))
            except (OSError, ValueError, EOFError) as error:
                raise DatasetError(
                    f"{path}: not a usable part of an index ({error}); index the corpus again"
                ) from error
        starts, positions, impacts = arrays
        kinds = [(array.ndim, array.dtype.str) for array in arrays]
        if (
            kinds != [(1, "<i8"), (1, "<i4"), (1, "<f4")]
            or not len(starts)
            or not starts[-1] == len(positions) == len(impacts)
        ):
            raise DatasetError(f"{folder}: the parts of the index do not fit together; index the corpus again")
        return cls(starts, positions, impacts, size)

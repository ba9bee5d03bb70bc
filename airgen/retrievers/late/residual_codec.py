"""Token vectors in a few bits: the nearest of some centroids, and the rest of each dimension as one of few levels.

    codec = ResidualCodec.train(sample, centroids=4096, bits=2)
    coded = codec.encode(vectors)          # 384 dimensions at 2 bits: 100 bytes instead of 768
    codec.decode(coded)                    # about the same vectors

After ColBERTv2 (Santhanam and others, 2022, section 3.3). Two things differ: each dimension is divided by its own
spread, and the levels are those of least squared error for the sample (Lloyd and Max) instead of quantiles; and a
decoded vector gets the length of the original one. Everything is seeded, and the same for any number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.errors import ModelError

Floats = NDArray[np.float32]

_ROUNDS = 6  # of k-means; PLAID makes 4
_SEED = 42
_ROWS = 1024  # vectors compared with the centroids at once
_COLUMNS = 4096  # centroids compared at once: 32 MB of scores
_LONGEST = 4.0  # of a token vector: then sums of products of two fp16 vectors are exact in float64
_LEVEL_BITS, _QUERY_BITS = 20, 24  # after the point of a level and of a query: float64 holds their products' sums
_LEVEL_VALUES = 1 << 20  # residuals that the levels are fitted to
_LEVEL_ROUNDS = 50
_LARGEST = np.float32(60_000)  # scales are fp16


@dataclass(frozen=True)
class Coded:
    """Coded vectors: cells (n,), codes uint8 (n, bytes), scales float16 (n,)."""

    cells: NDArray[Any]
    codes: NDArray[np.uint8]
    scales: NDArray[np.float16]

    def __getitem__(self, rows: Any) -> Coded:
        return Coded(self.cells[rows], self.codes[rows], self.scales[rows])


@dataclass(frozen=True)
class ResidualCodec:
    """centroids (k, dim); spread (dim,), the standard deviation of the residuals; levels (2 ** bits,), ascending."""

    centroids: Floats
    spread: Floats
    levels: Floats

    @property
    def bits(self) -> int:
        """Bits for each dimension."""
        return len(self.levels).bit_length() - 1

    @property
    def cutoffs(self) -> Floats:
        """The bounds between the levels, (2 ** bits - 1,): a value gets the nearest level."""
        return np.asarray((self.levels[1:] + self.levels[:-1]) / 2, np.float32)

    @classmethod
    def train(cls, sample: Floats, centroids: int, bits: int) -> ResidualCodec:
        """A codec for vectors like the sample, (n, dim) with at least one row."""
        found = k_means(sample, min(centroids, len(sample)))
        rest = sample - found[nearest(sample, found)]
        spread = np.maximum(rest.std(axis=0, dtype=np.float64), 1e-6).astype(np.float32)
        values = (rest / spread).ravel()
        if len(values) > _LEVEL_VALUES:
            values = values[np.random.default_rng(_SEED).choice(len(values), _LEVEL_VALUES, replace=False)]
        return cls(found, spread, _levels(values, 1 << bits))

    def encode(self, vectors: Floats) -> Coded:
        """Codes of vectors (n, dim)."""
        cells = nearest(vectors, self.centroids)
        rest = (vectors - self.centroids[cells]) / self.spread
        numbers = np.zeros((len(vectors), -(-vectors.shape[1] // self._per_byte) * self._per_byte), np.uint8)
        for cutoff in self.cutoffs:
            numbers[:, : rest.shape[1]] += rest > cutoff
        shifts = np.arange(self._per_byte, dtype=np.uint8) * np.uint8(self.bits)
        codes = (numbers.reshape(len(vectors), -1, self._per_byte) << shifts).sum(axis=2, dtype=np.uint8)
        raw = self.centroids[cells] + self.rest(codes) * self.spread
        lengths = np.linalg.norm(raw, axis=1)
        ones = np.ones(len(raw), np.float32)
        scales = np.divide(np.linalg.norm(vectors, axis=1), lengths, out=ones, where=lengths > 0)
        kind = np.uint16 if len(self.centroids) <= 1 << 16 else np.uint32
        return Coded(cells.astype(kind), codes, np.minimum(scales, _LARGEST).astype(np.float16))

    def decode(self, coded: Coded) -> Floats:
        """The vectors that the codes stand for, (n, dim)."""
        raw = self.centroids[coded.cells] + self.rest(coded.codes) * self.spread
        return np.asarray(raw * coded.scales[:, None].astype(np.float32), np.float32)

    def rest(self, codes: NDArray[np.uint8]) -> Floats:
        """The residuals in units of the spread, (n, dim)."""
        whole = np.take(self._of_byte, codes, axis=0).reshape(len(codes), -1)
        return whole[:, : len(self.spread)]

    @property
    def _per_byte(self) -> int:
        return 8 // self.bits

    @cached_property
    def _of_byte(self) -> Floats:
        """The levels in each byte, (256, dimensions a byte)."""
        shifts = np.arange(self._per_byte) * self.bits
        found: Floats = self.levels[(np.arange(256)[:, None] >> shifts) & (len(self.levels) - 1)]
        return found


def k_means(sample: Floats, count: int, rounds: int = _ROUNDS) -> Floats:
    """Centroids (count, dim) of vectors (n, dim) by Lloyd's algorithm from `count` drawn vectors.

    A centroid that no vector is nearest to stays where it is.
    """
    draw = np.random.default_rng(_SEED)
    centroids = sample[np.sort(draw.choice(len(sample), count, replace=False))].copy()
    for _ in range(rounds):
        cells = nearest(sample, centroids)
        order = np.argsort(cells, kind="stable")
        used, starts, sizes = np.unique(cells[order], return_index=True, return_counts=True)
        for first in range(0, len(used), _COLUMNS):  # some cells at a time: the sorted copy of the sample is large
            some = slice(first, first + _COLUMNS)
            begin = int(starts[first])
            end = int(starts[some][-1] + sizes[some][-1])
            sums = np.add.reduceat(sample[order[begin:end]], starts[some] - begin, axis=0)
            centroids[used[some]] = (sums / sizes[some, None]).astype(np.float16)
    return centroids


def nearest(vectors: Floats, centroids: Floats) -> NDArray[np.int64]:
    """The nearest centroid of each vector, (n,); the first of several. All are fp16 numbers, so products are exact."""
    half = (centroids.astype(np.float64) ** 2).sum(axis=1) / 2
    found = np.zeros(len(vectors), np.int64)
    best = np.full(len(vectors), -np.inf)
    for start in range(0, len(centroids), _COLUMNS):
        columns = centroids[start : start + _COLUMNS].astype(np.float64).T
        for first in range(0, len(vectors), _ROWS):
            some = slice(first, first + _ROWS)
            scores = vectors[some].astype(np.float64) @ columns - half[start : start + _COLUMNS]
            places = scores.argmax(axis=1)
            values = scores[np.arange(len(scores)), places]
            better = values > best[some]
            best[some][better] = values[better]
            found[some][better] = places[better] + start
    return found


def token_rows(vectors: NDArray[Any]) -> NDArray[np.float16]:
    """Token vectors as they are kept, in fp16. Raises ModelError for vectors that are far from length 1.

    fp16 numbers are multiples of 2**-24, so an inner product of two such vectors is a multiple of 2**-48 and below 32:
    float64 holds all of its partial sums, and BLAS gives the same bits in any order.
    """
    found = vectors.astype(np.float16)
    longest = np.sqrt((found.astype(np.float64) ** 2).sum(axis=1)).max(initial=0)
    if longest > _LONGEST:
        raise ModelError(f"a token vector has the length {longest:,.1f}: late interaction takes vectors of length 1")
    return found


def on_grid(query: NDArray[Any]) -> NDArray[np.float64]:
    """A query in units of the spread, rounded so far that its products with levels are exact, too."""
    return np.asarray(np.rint(query.astype(np.float64) * 2.0**_QUERY_BITS) / 2.0**_QUERY_BITS)


def _levels(values: Floats, count: int) -> Floats:
    """`count` levels of least squared error for the values, ascending (Lloyd and Max)."""
    ordered = np.sort(values).astype(np.float64)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    levels = np.quantile(ordered, (np.arange(count) + 0.5) / count)
    for _ in range(_LEVEL_ROUNDS):
        edges = np.searchsorted(ordered, (levels[1:] + levels[:-1]) / 2, side="right")
        edges = np.concatenate(([0], edges, [len(ordered)]))
        sizes = np.diff(edges)
        levels = np.where(sizes > 0, np.diff(sums[edges]) / np.maximum(sizes, 1), levels)
    return (np.rint(np.sort(levels) * 2.0**_LEVEL_BITS) / 2.0**_LEVEL_BITS).astype(np.float32)

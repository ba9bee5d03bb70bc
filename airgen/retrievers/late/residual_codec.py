"""Token vectors in a few bits: the nearest of some centroids, and the rest of each dimension as one of few levels.

    codec = ResidualCodec.train(sample, centroids=4096, bits=2)
    coded = codec.encode(vectors)          # 384 dimensions at 2 bits: 100 bytes instead of 768
    codec.decode(coded)                    # about the same vectors

After ColBERTv2 (Santhanam and others, 2022, section 3.3). Two things differ: each dimension is divided by its own
spread, and the levels are those of least squared error for the sample (Lloyd and Max) instead of quantiles; and a
decoded vector gets the length of the original one. Everything is seeded, and the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Coded", "ResidualCodec", "k_means"]

Floats = NDArray[np.float32]

_ROUNDS = 6  # of k-means; PLAID makes 4
_SEED = 42
_ROWS = 1024  # vectors compared with the centroids at once
_COLUMNS = 4096  # centroids compared at once: 16 MB of scores
_PAD = 128  # rows of a product are padded to a multiple of this, so that BLAS adds in one order for all of them
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
            centroids[used[some]] = sums / sizes[some, None]
    return centroids


def nearest(vectors: Floats, centroids: Floats) -> NDArray[np.int64]:
    """The nearest centroid of each vector, (n,); the first of several."""
    half = (centroids.astype(np.float64) ** 2).sum(axis=1).astype(np.float32) / 2
    blocks = list(_blocks(centroids, half))
    found = np.zeros(len(vectors), np.int64)
    for first in range(0, len(vectors), _ROWS):
        some = vectors[first : first + _ROWS]
        rows = padded(some)
        best = np.full(len(some), -np.inf, np.float32)
        for start, columns, distance in blocks:
            scores = rows @ columns
            scores -= distance
            places = scores[: len(some)].argmax(axis=1)
            values = scores[np.arange(len(some)), places]
            better = values > best
            best[better] = values[better]
            found[first : first + len(some)][better] = places[better] + start
    return found


def _blocks(centroids: Floats, half: Floats) -> Iterator[tuple[int, Floats, Floats]]:
    """(first centroid, some centroids as columns, half their squared lengths), padded by centroids at infinity."""
    for first in range(0, len(centroids), _COLUMNS):
        some = padded(centroids[first : first + _COLUMNS])
        distance = np.full(len(some), np.inf, np.float32)
        distance[: len(half[first : first + _COLUMNS])] = half[first : first + _COLUMNS]
        yield first, np.ascontiguousarray(some.T), distance


def padded(rows: Floats, multiple: int = _PAD) -> Floats:
    """The rows with rows of zeros up to a multiple."""
    missing = -len(rows) % multiple
    return np.concatenate([rows, np.zeros((missing, rows.shape[1]), np.float32)]) if missing else rows


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
    return np.sort(levels).astype(np.float32)

"""Postings, which contain what a term adds to a passage's score (BM25, query likelihood), and their construction.

    builder = PostingsBuilder(count_postings)
    for terms, lengths in encoder.batches(texts):
        builder.add(terms, lengths)
    field = builder.field(len(encoder.vocabulary))
    BM25Weighting(k1=0.9, b=0.4).impacts(field)     # float32, one per posting

Arrays up to 64 MB are in memory, and larger arrays in unnamed files, which the system writes to disk if memory is
short. The postings equal those of a single call of `count_postings` with all terms.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from airgen.compute.exact_arithmetic import log, log1p

_MAPPED_FROM_BYTES = 64 << 20  # bytes from which an array is mapped to a file


def room(size: int, kind: Any, *, least: int | None = None) -> NDArray[Any]:
    """Allocate an array, in an unnamed file if it has at least `least` bytes (64 MB) and the disk has room."""
    if size * np.dtype(kind).itemsize < (_MAPPED_FROM_BYTES if least is None else least):
        return np.empty(size, kind)
    try:
        with tempfile.TemporaryFile(prefix="airgen-") as file:
            if hasattr(os, "posix_fallocate"):  # without enough space, writing to the array would end the process
                os.posix_fallocate(file.fileno(), 0, size * np.dtype(kind).itemsize)
            return np.memmap(file, kind, "w+", shape=(size,))
    except OSError:
        return np.empty(size, kind)


_CHUNK_POSTINGS = 1 << 20  # postings at once: temporaries of 8 MB


@dataclass(frozen=True)
class Field:
    """The postings of one field, with the statistics for weighting.

    starts int64 (terms + 1,), positions and frequencies int32 (postings,), lengths int64 (passages,) in terms.
    """

    starts: NDArray[np.int64]
    positions: NDArray[np.int32]
    frequencies: NDArray[np.int32]
    lengths: NDArray[np.int64]

    @property
    def passages(self) -> int:
        """Return the number of passages with a term in this field. Like Lucene, idf and mean length ignore all
        others."""
        return int(np.count_nonzero(self.lengths))

    @property
    def mean_length(self) -> float:
        """Return the mean length of these passages in terms, or 1 if there are none."""
        return float(self.lengths.sum()) / self.passages if self.passages else 1.0


class Weighting(Protocol):
    """Base class of weightings of postings."""

    def impacts(self, field: Field) -> NDArray[np.float32]:
        """Return what each posting adds to its passage's score, which is never negative."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Return every setting that changes the impacts."""
        ...


@dataclass(frozen=True)
class BM25Weighting:
    """Lucene's BM25 (since version 8): idf * tf / (tf + k1 * (1 - b + b * length / mean length)).

    idf = ln(1 + (N - df + 0.5) / (df + 0.5)). `lossy` rounds lengths to the one byte that Lucene stores; by default,
    lengths are exact. Anserini and BEIR use k1 = 0.9 and b = 0.4; Lucene's own defaults are 1.2 and 0.75.
    """

    k1: float
    b: float
    lossy: bool = False

    def idf(self, documents: NDArray[np.int64], passages: int) -> NDArray[np.float64]:
        """Compute the idf of terms that occur in `documents` of `passages` passages, float64, same shape."""
        idf: NDArray[np.float64] = log1p((passages - documents + 0.5) / (documents + 0.5))
        return idf

    def norms(self, lengths: NDArray[np.int64], mean: float) -> NDArray[np.float64]:
        """Return what each passage adds to the frequency in the denominator."""
        stored = (lossy_lengths(lengths) if self.lossy else lengths).astype(np.float64)
        return self.k1 * (1 - self.b + self.b * stored / mean)

    def impacts(self, field: Field) -> NDArray[np.float32]:
        """Return one impact per posting, float32."""
        idf = self.idf(np.diff(field.starts), field.passages)
        norms = self.norms(field.lengths, field.mean_length)
        impacts = room(len(field.positions), np.float32)
        for part, terms in _chunks(field):
            impacts[part] = self.weigh(idf[terms], field.frequencies[part], norms[field.positions[part]])
        return impacts

    @staticmethod
    def weigh(
        idf: NDArray[np.float64], frequencies: NDArray[np.integer[Any]], norms: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return what each occurrence of a term in a passage adds to the score, float64, all of the same shape."""
        return idf * frequencies / (frequencies + norms)

    def describe(self) -> Mapping[str, object]:
        return {"model": "bm25-lucene", "k1": self.k1, "b": self.b, "lengths": "one byte" if self.lossy else "exact"}


@dataclass(frozen=True)
class DirichletWeighting:
    """Query likelihood with Dirichlet smoothing (Zhai and Lafferty 2001), with terms clipped at 0 as in Lucene.

    ln(1 + tf / (mu * p)) + ln(mu / (length + mu)); p is the term's share of all terms, with Lucene's + 1.
    """

    mu: float

    def impacts(self, field: Field) -> NDArray[np.float32]:
        """Return one impact per posting, float32."""
        terms_in_all = np.zeros(len(field.starts) - 1)
        for part, terms in _chunks(field):
            terms_in_all += np.bincount(terms, weights=field.frequencies[part], minlength=len(terms_in_all))
        share = (terms_in_all + 1) / (field.lengths.sum() + 1)
        smoothing = log(self.mu / (field.lengths + self.mu))
        impacts = room(len(field.positions), np.float32)
        for part, terms in _chunks(field):
            parts = log1p(field.frequencies[part] / (self.mu * share[terms])) + smoothing[field.positions[part]]
            impacts[part] = np.maximum(parts, 0)
        return impacts

    def describe(self) -> Mapping[str, object]:
        return {"model": "dirichlet", "mu": self.mu}


@dataclass(frozen=True)
class PresenceWeighting:
    """Weight 1 for passages that contain the term (bag of words), to measure the contribution of BM25's weights."""

    def impacts(self, field: Field) -> NDArray[np.float32]:
        """Return one impact per posting, float32."""
        return np.ones(len(field.positions), np.float32)

    def describe(self) -> Mapping[str, object]:
        return {"model": "presence"}


def _chunks(field: Field) -> Iterator[tuple[slice, NDArray[np.int64]]]:
    """Yield slices of the postings, each with the term of every posting in it."""
    for start in range(0, len(field.positions), _CHUNK_POSTINGS):
        stop = min(start + _CHUNK_POSTINGS, len(field.positions))
        first = int(np.searchsorted(field.starts, start, side="right")) - 1
        last = int(np.searchsorted(field.starts, stop, side="left"))
        edges = np.clip(field.starts[first : last + 1], start, stop)
        yield slice(start, stop), np.repeat(np.arange(first, last), np.diff(edges))


def lossy_lengths(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round lengths like Lucene's one-byte encoding: exact below 40, then the highest four bits of the excess over
    24."""
    excess = np.maximum(lengths - 24, 0)
    bits = np.where(excess > 0, np.frexp(excess.astype(np.float64))[1], 0)
    shift = np.maximum(bits - 4, 0)
    return np.where(lengths < 24, lengths, 24 + ((excess >> shift) << shift))


_PART_TERMS = 8 << 20  # terms counted at once
_MOVED_POSTINGS = 1 << 20  # postings moved at once

Counted = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]
Count = Callable[[NDArray[np.int32], NDArray[np.int64], int], Counted]


class PostingsBuilder:
    """Collects the terms of one field, counts them in parts, and joins the parts' postings."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._terms: list[NDArray[np.int32]] = []
        self._waiting = 0  # terms that are not counted yet
        self._lengths: list[NDArray[np.int64]] = []
        self._counted = 0  # number of texts whose terms are counted
        self._parts: list[Counted] = []

    def add(self, terms: NDArray[np.int32], lengths: NDArray[np.int64]) -> None:
        """Add the concatenated terms of the next texts, and the number of terms per text."""
        self._terms.append(terms)
        self._lengths.append(lengths)
        self._waiting += len(terms)
        if self._waiting >= _PART_TERMS:
            self._finish_part()

    def _finish_part(self) -> None:
        terms, lengths = np.concatenate(self._terms), np.concatenate(self._lengths[self._counted :])
        before = sum(len(part) for part in self._lengths[: self._counted])
        starts, positions, frequencies = self._count(terms, lengths, int(terms.max(initial=-1)) + 1)
        positions += np.int32(before)
        least = 1 if self._parts else None  # the parts are large together, so only the first may stay in memory
        self._parts.append((starts, _spilled(positions, least), _spilled(frequencies, least)))
        self._terms, self._waiting, self._counted = [], 0, len(self._lengths)

    def field(self, size: int) -> Field:
        """Return the postings of `size` terms, and empty the builder."""
        if self._terms or not self._parts:
            self._terms.append(np.empty(0, np.int32))
            self._lengths.append(np.empty(0, np.int64))
            self._finish_part()
        counts = np.zeros(size, np.int64)
        for starts, _, _ in self._parts:
            counts[: len(starts) - 1] += np.diff(starts)
        starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        lengths = np.concatenate(self._lengths)
        if len(self._parts) == 1:
            _, positions, frequencies = self._parts.pop()
            return Field(starts, positions, frequencies, lengths)
        positions, frequencies = room(int(starts[-1]), np.int32), room(int(starts[-1]), np.int32)
        free = starts[:-1].copy()  # the position of the next posting of each term
        while self._parts:
            of_terms, *part = self._parts.pop(0)
            terms = len(of_terms) - 1
            for first in range(0, len(part[0]), _MOVED_POSTINGS):
                last = min(first + _MOVED_POSTINGS, len(part[0]))
                edges = np.clip(of_terms, first, last)
                moved = np.arange(first, last) + np.repeat(free[:terms] - of_terms[:-1], np.diff(edges))
                positions[moved], frequencies[moved] = part[0][first:last], part[1][first:last]
            free[:terms] += np.diff(of_terms)
        return Field(starts, positions, frequencies, lengths)


def _spilled(values: NDArray[np.int32], least: int | None) -> NDArray[np.int32]:
    """Move an array of at least `least` bytes to a file, if the disk has room."""
    mapped = room(len(values), values.dtype, least=least)
    if isinstance(mapped, np.memmap):
        mapped[:] = values
        return mapped
    return values


# The hot loops in numpy. `_postings_compiled` has the same loops for numba, with bit-identical results: both add a
# query's postings term by term in float32, in the query's order, without fused operations, and order hits by score,
# then by position.


def count_postings(
    terms: NDArray[np.int32], lengths: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Count the postings of texts whose term ids follow one another.

    Args:
        terms: Term ids of all texts, int32.
        lengths: Number of terms of each text, int64.
        size: Number of terms in the vocabulary.

    Returns:
        starts int64 (size + 1,), positions int32 and frequencies int32: term t occurs in the texts
        `positions[starts[t]:starts[t + 1]]`, in ascending order.
    """
    texts = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    width = max(1, len(lengths))
    keys, counts = np.unique(terms.astype(np.int64) * width + texts, return_counts=True)
    starts = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(keys // width, minlength=size), out=starts[1:])
    return starts, (keys % width).astype(np.int32), counts.astype(np.int32)


def search_postings(
    starts: NDArray[np.int64],
    positions: NDArray[np.int32],
    impacts: NDArray[np.float32],
    size: int,
    bounds: NDArray[np.int64],
    terms: NDArray[np.int64],
    weights: NDArray[np.float32],
    out_positions: NDArray[np.int32],
    out_scores: NDArray[np.float32],
) -> None:
    """Search queries `terms[bounds[i]:bounds[i + 1]]` with their weights, and fill the two (n, k) outputs."""
    k = out_positions.shape[1]
    for query in range(len(bounds) - 1):
        scores = np.zeros(size, np.float32)
        for place in range(bounds[query], bounds[query + 1]):
            part = slice(starts[terms[place]], starts[terms[place] + 1])
            scores[positions[part]] += weights[place] * impacts[part]  # a term's postings contain each text once
        matches = np.flatnonzero(scores > 0)
        if len(matches) > k:
            matches = matches[scores[matches] >= np.partition(scores[matches], -k)[-k]]
        matches = matches[np.argsort(-scores[matches], kind="stable")][:k]
        out_positions[query, : len(matches)] = matches
        out_scores[query, : len(matches)] = scores[matches]

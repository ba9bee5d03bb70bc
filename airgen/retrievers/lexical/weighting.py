"""What a term adds to a passage's score: BM25 in Lucene's variant, and a language model with Dirichlet smoothing.

    BM25Weighting(k1=0.9, b=0.4).impacts(field)     # float32, one a posting

Both are functions of one posting, so they are computed once, when the index is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from airgen.exact import log, log1p
from airgen.retrievers.lexical.mapped_arrays import room

_CHUNK = 1 << 20  # postings at once: temporaries of 8 MB


@dataclass(frozen=True)
class Field:
    """Postings of one field with the numbers that weighting needs.

    starts int64 (terms + 1,), positions and frequencies int32 (postings,), lengths int64 (passages,) in terms.
    """

    starts: NDArray[np.int64]
    positions: NDArray[np.int32]
    frequencies: NDArray[np.int32]
    lengths: NDArray[np.int64]

    @property
    def passages(self) -> int:
        """Passages that have a term in this field: Lucene counts no others, neither for idf nor for the mean length."""
        return int(np.count_nonzero(self.lengths))

    @property
    def mean_length(self) -> float:
        """Mean length in terms of those passages; 1 where there are none."""
        return float(self.lengths.sum()) / self.passages if self.passages else 1.0


class Weighting(Protocol):
    """A way to weight postings."""

    def impacts(self, field: Field) -> NDArray[np.float32]:
        """What each posting adds to its passage's score, not negative."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes the impacts."""
        ...


@dataclass(frozen=True)
class BM25Weighting:
    """Lucene's BM25 (since version 8): idf * tf / (tf + k1 * (1 - b + b * length / mean length)).

    idf = ln(1 + (N - df + 0.5) / (df + 0.5)). `lossy` rounds lengths to the one byte that Lucene keeps; exact
    lengths are the default. k1 0.9 and b 0.4 are Anserini's and BEIR's; the usual 1.2 and 0.75 are Lucene's own.
    """

    k1: float
    b: float
    lossy: bool = False

    def idf(self, documents: NDArray[np.int64], passages: int) -> NDArray[np.float64]:
        """Of terms that stand in so many of all passages; float64, same shape."""
        found: NDArray[np.float64] = log1p((passages - documents + 0.5) / (documents + 0.5))
        return found

    def norms(self, lengths: NDArray[np.int64], mean: float) -> NDArray[np.float64]:
        """What is added to the frequency in the denominator, for each passage."""
        kept = (lossy_lengths(lengths) if self.lossy else lengths).astype(np.float64)
        return self.k1 * (1 - self.b + self.b * kept / mean)

    def impacts(self, field: Field) -> NDArray[np.float32]:
        """One a posting, float32."""
        idf = self.idf(np.diff(field.starts), field.passages)
        norms = self.norms(field.lengths, field.mean_length)
        found = room(len(field.positions), np.float32)
        for part, terms in _chunks(field):
            frequencies = field.frequencies[part]
            found[part] = idf[terms] * frequencies / (frequencies + norms[field.positions[part]])
        return found

    def describe(self) -> Mapping[str, object]:
        """k1, b, and how lengths are kept."""
        return {"model": "bm25-lucene", "k1": self.k1, "b": self.b, "lengths": "one byte" if self.lossy else "exact"}


@dataclass(frozen=True)
class DirichletWeighting:
    """Query likelihood with Dirichlet smoothing (Zhai and Lafferty 2001), a term's part not below 0, as Lucene's.

    ln(1 + tf / (mu * p)) + ln(mu / (length + mu)); p is the term's share of all terms, with Lucene's + 1.
    """

    mu: float

    def impacts(self, field: Field) -> NDArray[np.float32]:
        """One a posting, float32."""
        terms_in_all = np.zeros(len(field.starts) - 1)
        for part, terms in _chunks(field):
            terms_in_all += np.bincount(terms, weights=field.frequencies[part], minlength=len(terms_in_all))
        share = (terms_in_all + 1) / (field.lengths.sum() + 1)
        smoothing = log(self.mu / (field.lengths + self.mu))
        found = room(len(field.positions), np.float32)
        for part, terms in _chunks(field):
            parts = log1p(field.frequencies[part] / (self.mu * share[terms])) + smoothing[field.positions[part]]
            found[part] = np.maximum(parts, 0)
        return found

    def describe(self) -> Mapping[str, object]:
        """mu."""
        return {"model": "dirichlet", "mu": self.mu}


@dataclass(frozen=True)
class PresenceWeighting:
    """1 for a passage that has the term: a bag of words, to see what BM25's weights are worth."""

    def impacts(self, field: Field) -> NDArray[np.float32]:
        """One a posting, float32."""
        return np.ones(len(field.positions), np.float32)

    def describe(self) -> Mapping[str, object]:
        """The model's name."""
        return {"model": "presence"}


def _chunks(field: Field) -> Iterator[tuple[slice, NDArray[np.int64]]]:
    """Slices of the postings, each with the term of every posting in it."""
    for start in range(0, len(field.positions), _CHUNK):
        stop = min(start + _CHUNK, len(field.positions))
        first = int(np.searchsorted(field.starts, start, side="right")) - 1
        last = int(np.searchsorted(field.starts, stop, side="left"))
        edges = np.clip(field.starts[first : last + 1], start, stop)
        yield slice(start, stop), np.repeat(np.arange(first, last), np.diff(edges))


def lossy_lengths(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths as Lucene's one byte keeps them: exact below 40, then the highest four bits of what passes 24."""
    rest = np.maximum(lengths - 24, 0)
    bits = np.where(rest > 0, np.frexp(rest.astype(np.float64))[1], 0)
    shift = np.maximum(bits - 4, 0)
    return np.where(lengths < 24, lengths, 24 + ((rest >> shift) << shift))

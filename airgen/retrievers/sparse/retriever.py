"""Learned sparse retrieval: an inverted index with the model's weights as impacts, and the same as a re-ranker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.errors import UsageError
from airgen.retrievers.base import Component, Corpus, Hits, IndexProgress, SettingsWithModel
from airgen.retrievers.output_checks import checked_scores, non_empty
from airgen.retrievers.sparse.splade import SparseEmbedder, SparseRow
from airgen.retrievers.text_memo import Memo
from airgen.retrievers.top_k import top_k
from airgen.settings.base import SPEED, Part

__all__ = ["ImpactIndex", "Sparse", "SparseReranker"]

_BATCH = 64  # texts given to the model at once


class ImpactIndex:
    """Postings by term: the ascending positions of the passages that have the term, and its weights in them.

    >>> row = lambda *pairs: (np.array([t for t, _ in pairs], np.int32), np.array([w for _, w in pairs], np.float32))
    >>> index = ImpactIndex([row((3, 1.0), (7, 2.0)), row((7, 1.0))])
    >>> index.scores(row((7, 0.5))).tolist()
    [1.0, 0.5]
    """

    def __init__(self, rows: Sequence[SparseRow]) -> None:
        self.size = len(rows)
        lengths = np.array([len(terms) for terms, _ in rows], np.int64)
        terms = np.concatenate([terms for terms, _ in rows]) if rows else np.zeros(0, np.int32)
        weights = np.concatenate([weights for _, weights in rows]) if rows else np.zeros(0, np.float32)
        places = np.repeat(np.arange(len(rows), dtype=np.int32), lengths)
        order = np.argsort(terms, kind="stable")  # stable: positions stay ascending within a term
        self._places, self._weights = places[order], weights[order].astype(np.float32)
        vocabulary = int(terms.max()) + 1 if len(terms) else 0
        self._starts = np.zeros(vocabulary + 1, np.int64)
        np.cumsum(np.bincount(terms, minlength=vocabulary), out=self._starts[1:])

    @property
    def nbytes(self) -> int:
        """Bytes of the postings in memory."""
        return self._places.nbytes + self._weights.nbytes + self._starts.nbytes

    def scores(self, query: SparseRow) -> NDArray[np.float32]:
        """The inner product of one query with every passage, shape (size,); terms are added in ascending order."""
        total = np.zeros(self.size, np.float32)
        for term, weight in zip(*query, strict=True):
            if term < len(self._starts) - 1:
                found = slice(self._starts[term], self._starts[term + 1])
                total[self._places[found]] += weight * self._weights[found]  # a place occurs once a term
        return total

    def search(self, queries: Sequence[SparseRow], k: int) -> Hits:
        """The k best passages with a score above 0 of each query."""
        hits = Hits.none(len(queries), k)
        for row, query in enumerate(queries):
            found, values = top_k(self.scores(query), k)
            count = int((values > 0).sum())  # values descend
            hits.positions[row, :count], hits.scores[row, :count] = found[:count], values[:count]
        return hits


class _WithRows(Component):
    """What the retriever and the re-ranker share: a model of sparse rows."""

    class Settings(SettingsWithModel):
        """`model`: a SPLADE-like model. Its own settings may stand beside it."""

        model: Annotated[Any, Part("sparse-embedder")] = "splade-bert-tiny"

    settings: Settings
    model: SparseEmbedder

    def set_up(self) -> None:
        self.name = f"sparse {self.model.name}"


class Sparse(_WithRows):
    """A SPLADE-like model over an inverted index. `progress` may be set before `index`."""

    progress: IndexProgress | None = None

    def set_up(self) -> None:
        super().set_up()
        self._index: ImpactIndex | None = None

    @property
    def index_bytes(self) -> int | None:
        return self._index.nbytes if self._index else None

    def index(self, corpus: Corpus) -> None:
        """Encode every passage. Raises CorpusError for an empty corpus."""
        non_empty(corpus)
        rows: list[SparseRow] = []
        for first in range(0, len(corpus), _BATCH):
            places = range(first, min(first + _BATCH, len(corpus)))
            rows += self.model.encode([corpus.full_text(place) for place in places], "passage")
            if self.progress:
                self.progress(len(rows), len(corpus))
        self._index = ImpactIndex(rows)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The k passages with the greatest inner product. Raises UsageError before `index`."""
        if self._index is None:
            raise UsageError("Sparse.search before Sparse.index: the corpus comes first")
        return self._index.search(self.model.encode(list(queries), "query"), k)

    def describe(self) -> Mapping[str, object]:
        """The model's settings."""
        return {"family": "sparse", "model": dict(self.model.describe())}


class SparseReranker(_WithRows):
    """Scores pairs by the inner product of their sparse rows. The rows of the latest texts are kept."""

    class Settings(_WithRows.Settings):
        """`memory_bytes` limits the rows that are kept."""

        memory_bytes: Annotated[int, SPEED] = Field(default=1 << 28, ge=1)

    settings: Settings

    def set_up(self) -> None:
        super().set_up()
        size = self.settings.memory_bytes
        self._encode = Memo(self.model.encode, lambda row: int(row[0].nbytes + row[1].nbytes), size)

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Inner products, shape (n,)."""
        left = self._encode([query for query, _ in pairs], "query")
        right = self._encode([passage for _, passage in pairs], "passage")
        scores = [_product(query, passage) for query, passage in zip(left, right, strict=True)]
        return checked_scores(scores, len(pairs), self.name)

    def describe(self) -> Mapping[str, object]:
        """The model's settings."""
        return {"family": "sparse", "model": dict(self.model.describe())}


def _product(query: SparseRow, passage: SparseRow) -> np.float32:
    _, left, right = np.intersect1d(query[0], passage[0], assume_unique=True, return_indices=True)
    return np.float32(np.dot(query[1][left], passage[1][right]))

"""Learned sparse retrieval: an inverted index with the model's weights as impacts, and the same as a re-ranker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.batches import batched
from airgen.compute import current
from airgen.errors import UsageError
from airgen.exact import inner_products
from airgen.retrievers.base import Component, Corpus, Hits, IndexProgress, SettingsWithModel
from airgen.retrievers.dense.onnx_encoder import EmbeddedModel
from airgen.retrievers.lexical.inverted_index import InvertedIndex
from airgen.retrievers.on_workers import encoded
from airgen.retrievers.output_checks import checked_scores, non_empty
from airgen.retrievers.sparse.splade import SparseEmbedder, SparseRow
from airgen.retrievers.text_memo import Memo
from airgen.settings.base import FILE, SPEED
from airgen.settings.parts import Part, located

_BATCH = 64  # texts given to the model at once


def impact_index(rows: Sequence[SparseRow]) -> InvertedIndex:
    """The sparse rows of all passages as postings by term, with the model's weights as impacts."""
    terms = np.concatenate([np.zeros(0, np.int32), *(terms for terms, _ in rows)])
    weights = np.concatenate([np.zeros(0, np.float32), *(weights for _, weights in rows)])
    places = np.repeat(np.arange(len(rows), dtype=np.int32), np.array([len(terms) for terms, _ in rows], np.int64))
    order = np.argsort(terms, kind="stable")  # stable: positions stay ascending within a term
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(terms))))
    return InvertedIndex(starts, places[order], weights[order], len(rows))


def search_rows(index: InvertedIndex, queries: Sequence[SparseRow], k: int) -> Hits:
    """The k passages with the greatest inner product above 0 of each query; terms are added in ascending order."""
    size = len(index.starts) - 1  # a term that no passage has finds nothing
    weighted = [dict(zip(terms.tolist(), weights.tolist(), strict=True)) for terms, weights in queries]
    return index.search([{term: weight for term, weight in one.items() if term < size} for one in weighted], k)


class _WithRows(Component):
    """What the retriever and the re-ranker share: a model of sparse rows."""

    class Settings(SettingsWithModel):
        """`model`: a SPLADE-like model. Its own settings may stand beside it.

        `cache` is a root folder for the rows of passages, or where `shared_encodings` says; each is computed once.
        """

        model: Annotated[Any, Part("sparse-embedder")] = "splade-bert-tiny"
        cache: Annotated[Path | None, SPEED, FILE] = None

    settings: Settings
    model: SparseEmbedder

    def set_up(self) -> None:
        self.name = f"sparse {self.model.name}"

    def _memo(self, limit: int, progress: Callable[[], IndexProgress | None] = lambda: None) -> Memo[SparseRow]:
        def size(row: SparseRow) -> int:
            return int(row[0].nbytes + row[1].nbytes)

        root = self.settings.cache and located(str(self.settings.cache), self.folder)
        return Memo(
            self.model.encode, size, limit, model=self.model, form="rows", progress=progress, root=root, arrays=tuple
        )

    def describe(self) -> Mapping[str, object]:
        """The model's settings."""
        return {"family": "sparse", "model": dict(self.model.describe())}


class Sparse(_WithRows):
    """A SPLADE-like model over an inverted index. `progress` may be set before `index`."""

    def set_up(self) -> None:
        super().set_up()
        self._index: InvertedIndex | None = None

    @property
    def index_bytes(self) -> int | None:
        return self._index.bytes if self._index else None

    def index(self, corpus: Corpus) -> None:
        """Encode every passage. Raises CorpusError for an empty corpus."""
        non_empty(corpus)
        rows: list[SparseRow] = []
        for made in self._encoded(corpus.full_texts):
            rows += made
            if self.progress:
                self.progress(len(rows), len(corpus))
        self._index = impact_index(rows)

    def _encoded(self, texts: Iterable[str]) -> Iterator[Sequence[SparseRow]]:
        """The rows of all texts in their order, some at a time."""
        if self.settings.cache is None and not isinstance(self.model, EmbeddedModel):
            return encoded(self.model.encode, batched(texts, _BATCH), "passage")
        encode = self._memo(0)  # a call has work for every worker
        return (encode(some, "passage") for some in batched(texts, _BATCH * max(1, 4 * (current().workers - 1))))

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The k passages with the greatest inner product. Raises UsageError before `index`."""
        if self._index is None:
            raise UsageError("Sparse.search before Sparse.index: the corpus comes first")
        return search_rows(self._index, self.model.encode(list(queries), "query"), k)


class SparseReranker(_WithRows):
    """Scores pairs by the inner product of their sparse rows. The rows of the latest texts are kept."""

    class Settings(_WithRows.Settings):
        """`memory_bytes` limits the rows that are kept."""

        memory_bytes: Annotated[int, SPEED] = Field(default=1 << 28, ge=1)

    settings: Settings

    def set_up(self) -> None:
        super().set_up()
        self._encode = self._memo(self.settings.memory_bytes, lambda: self.progress)

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Inner products, shape (n,)."""
        left = self._encode([query for query, _ in pairs], "query")
        right = self._encode([passage for _, passage in pairs], "passage")
        scores = [_product(query, passage) for query, passage in zip(left, right, strict=True)]
        return checked_scores(scores, len(pairs), self.name)


def _product(query: SparseRow, passage: SparseRow) -> np.float32:
    _, left, right = np.intersect1d(query[0], passage[0], assume_unique=True, return_indices=True)
    return np.float32(inner_products(query[1][None, left], passage[1][right])[0])

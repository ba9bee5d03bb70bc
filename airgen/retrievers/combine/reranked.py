"""Two stages as one system: a first retriever's best hits in a re-ranker's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.errors import UsageError
from airgen.retrievers.base import Corpus, Hits, Reranker, Retriever
from airgen.retrievers.output_checks import checked_scores
from airgen.retrievers.top_k import top_k

__all__ = ["RerankedRetriever"]

_QUERIES = 16  # queries whose pairs are scored in one call: bounds what a re-ranker holds at once


class RerankedRetriever:
    """A first stage whose best `top` hits are put in a re-ranker's order; what is below keeps its place.

    `first` and `reranker` may be settings, as `load_retriever` and `load_reranker` take them. Scores below the
    re-ranked part are made to descend from its last one, so that a run file keeps the order.
    """

    def __init__(
        self,
        first: Retriever | str | Mapping[str, Any],
        reranker: Reranker | str | Mapping[str, Any],
        *,
        top: int = 100,
    ) -> None:
        from airgen.retrievers.load import load_reranker, load_retriever

        if top < 1:
            raise UsageError(f"top is {top}: at least 1 is needed")
        self.first = load_retriever(first) if isinstance(first, str | Mapping) else first
        self.reranker = load_reranker(reranker) if isinstance(reranker, str | Mapping) else reranker
        self.top = top
        self.name = f"{self.first.name} > {self.reranker.name}"
        self._corpus: Corpus | None = None

    def index(self, corpus: Corpus) -> None:
        """Index the first stage; a re-ranker with corpus statistics (bm25) is fitted."""
        self.first.index(corpus)
        fit = getattr(self.reranker, "fit", None)
        if fit is not None:
            fit(corpus)
        self._corpus = corpus

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The first stage's hits, its best `top` re-ranked. Raises UsageError before `index`."""
        if self._corpus is None:
            raise UsageError("RerankedRetriever.search before RerankedRetriever.index: the corpus comes first")
        found = self.first.search(queries, max(k, self.top))
        blocks = [
            self._scores(self._corpus, queries[first : first + _QUERIES], found.positions[first : first + _QUERIES])
            for first in range(0, len(queries), _QUERIES)
        ]
        new = np.concatenate(blocks) if blocks else np.zeros(0, np.float32)
        positions, scores = found.positions.copy(), found.scores.copy()
        start = 0
        for row in range(len(positions)):
            count = int((found.positions[row, : self.top] >= 0).sum())
            # Ties keep the order of position: the candidates are sorted by it first.
            candidates = np.sort(found.positions[row, :count])
            back = np.argsort(found.positions[row, :count], kind="stable")
            order, values = top_k(new[start : start + count][back], count)
            positions[row, :count], scores[row, :count] = candidates[order], values
            rest = np.flatnonzero(positions[row, count:] >= 0) + count
            if len(rest) and count:
                scores[row, rest] = _below(scores[row, count - 1], len(rest))
            start += count
        return Hits(positions[:, :k], scores[:, :k])

    def _scores(self, corpus: Corpus, queries: Sequence[str], positions: NDArray[np.int32]) -> NDArray[np.float32]:
        """The re-ranker's scores of the best `top` hits of each query, one after another."""
        pairs = [
            (query, corpus.full_text(int(place)))
            for query, row in zip(queries, positions, strict=True)
            for place in row[: self.top]
            if place >= 0
        ]
        return checked_scores(self.reranker.score(pairs), len(pairs), self.reranker.name)

    def describe(self) -> Mapping[str, object]:
        """Both stages' settings, and how many hits are re-ranked."""
        return {
            "family": "rerank",
            "first": dict(self.first.describe()),
            "reranker": dict(self.reranker.describe()),
            "top": self.top,
        }


def _below(score: np.float32, count: int) -> NDArray[np.float32]:
    """`count` scores that descend strictly from `score`, in steps that fp32 can tell apart."""
    step = np.float32(max(1e-3, abs(float(score)) * 1e-4))
    return np.asarray(score - step * np.arange(1, count + 1, dtype=np.float32), np.float32)

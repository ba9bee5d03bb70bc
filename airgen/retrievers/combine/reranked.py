"""Two stages as one system: the best hits of a retriever in the order of a re-ranker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.errors import UsageError
from airgen.retrievers.base import Component, Corpus, Hits, Reranker, Retriever, show_corpus
from airgen.retrievers.on_workers import scored
from airgen.retrievers.output_checks import checked_scores
from airgen.retrievers.top_k import top_k
from airgen.settings.parts import Part

_QUERIES = 16  # queries whose pairs are scored in one call: bounds what a re-ranker holds at once


class RerankingSettings(Component.Settings):
    """`reranker`: what orders the first stage's best `top` hits."""

    reranker: Annotated[Any, Part("reranker")]
    top: int = Field(default=100, ge=1)


class RerankedRetriever(Component):
    """A first stage whose best `top` hits are put in a re-ranker's order; what is below keeps its place.

    The scores below the re-ranked part descend from its last score, so that a run file keeps the order.
    """

    class Settings(RerankingSettings):
        """`first`: the retriever whose hits are re-ranked."""

        first: Annotated[Any, Part("retriever")]

    settings: Settings
    first: Retriever
    reranker: Reranker
    positional = ("first", "reranker")

    def set_up(self) -> None:
        self.top = self.settings.top
        self.name = f"{self.first.name} > {self.reranker.name}"
        self._corpus: Corpus | None = None

    def index(self, corpus: Corpus) -> None:
        """Index the first stage, and show the corpus to a re-ranker that needs it."""
        self.first.index(corpus)
        show_corpus(self.reranker, corpus)
        self._corpus = corpus

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The first stage's hits, its best `top` re-ranked. Raises UsageError before `index`."""
        if self._corpus is None:
            raise UsageError("RerankedRetriever.search before RerankedRetriever.index: the corpus comes first")
        found = self.first.search(queries, max(k, self.top))
        new = self._scores(self._corpus, queries, found.positions)
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
        best, name = positions[:, : self.top], self.reranker.name

        def pairs(first: int) -> list[tuple[str, str]]:
            some = zip(queries[first : first + _QUERIES], best[first : first + _QUERIES], strict=True)
            return [(query, corpus.full_text(int(place))) for query, row in some for place in row if place >= 0]

        starts = range(0, len(queries), _QUERIES)
        found = [np.zeros(0, np.float32)]
        for first, scores in zip(starts, scored(self.reranker, map(pairs, starts)), strict=True):
            count = int((best[first : first + _QUERIES] >= 0).sum())
            found.append(checked_scores([] if scores is None else scores, count, name))
        return np.concatenate(found)

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

"""Combine retrievers: fusion, and re-ranking of a first stage.

hybrid = Fused([BM25(), {"kind": "dense", "embedder": "all-minilm-l6-v2-int8"}], method="rrf")
hybrid.index(corpus)
hits = hybrid.search(queries, k=100)
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from airgen.errors import UsageError
from airgen.retrievers.component import Component
from airgen.retrievers.encoding_cache import at_once, scored
from airgen.retrievers.hits import Hits
from airgen.retrievers.model_output import checked_scores
from airgen.retrievers.passages import Passages
from airgen.retrievers.protocols import Reranker, Retriever, show_corpus
from airgen.settings.spec import Part

Normalisation = Literal["min-max", "z-score", "none"]


def reciprocal_rank_fusion(
    systems: Sequence[Hits], k: int, constant: float = 60.0, weights: Sequence[float] = ()
) -> Hits:
    """Fuse rankings by reciprocal rank (Cormack, Clarke and Buettcher, SIGIR 2009).

    A passage scores the sum of weight / (constant + rank) over the systems that retrieved it, with ranks from 1.

    Args:
        systems: Hits of each system for the same queries.
        k: Number of hits per query.
        constant: Constant added to the ranks.
        weights: A weight per system. Default: 1 for each.

    Returns:
        The hits, with arrays of shape (queries, k).

    Raises:
        UsageError: The numbers of queries or weights differ, or there are no systems.
    """
    parts = []
    for hits, weight in _weighted(systems, weights):
        ranks = np.arange(1, hits.positions.shape[1] + 1, dtype=np.float64)
        parts.append((hits.positions, np.broadcast_to(weight / (constant + ranks), hits.positions.shape)))
    return _merge(parts, k)


def weighted_sum(
    systems: Sequence[Hits], k: int, weights: Sequence[float] = (), normalisation: Normalisation = "min-max"
) -> Hits:
    """Fuse rankings by the weighted sum of scores, after normalising each system's scores per query.

    A passage that a system did not retrieve gets that system's lowest normalised score for the query, or 0 without
    normalisation.

    Args:
        systems: Hits of each system for the same queries.
        k: Number of hits per query.
        weights: A weight per system. Default: 1 for each.
        normalisation: "min-max" scales the scores to the range 0 to 1 (equal scores to 1), "z-score" to mean 0 and
            standard deviation 1.

    Returns:
        The hits, with arrays of shape (queries, k).

    Raises:
        UsageError: The numbers of queries or weights differ, or there are no systems.
    """
    parts = []
    for hits, weight in _weighted(systems, weights):
        retrieved = hits.positions >= 0
        scores = np.where(retrieved, hits.scores, 0).astype(np.float64)
        count = np.maximum(retrieved.sum(axis=1, keepdims=True), 1)
        if normalisation == "min-max":
            low = np.where(retrieved, scores, np.inf).min(axis=1, keepdims=True, initial=np.inf)
            spread = np.where(retrieved, scores, -np.inf).max(axis=1, keepdims=True, initial=-np.inf) - low
            equal = ~(spread > 0)  # also for a query without hits, for which it is -inf
            with np.errstate(invalid="ignore"):
                scores = np.where(equal, 1.0, (scores - low) / np.where(equal, 1.0, spread))
        elif normalisation == "z-score":
            mean = scores.sum(axis=1, keepdims=True) / count
            variance = np.where(retrieved, (scores - mean) ** 2, 0).sum(axis=1, keepdims=True) / count
            scores = (scores - mean) / np.where(variance > 0, np.sqrt(variance), 1.0)
            # Shifted so that the lowest score is 0, which a missing passage also gets.
            scores -= np.where(retrieved, scores, np.inf).min(axis=1, keepdims=True, initial=0)
        parts.append((hits.positions, weight * scores))
    return _merge(parts, k)


def _weighted(systems: Sequence[Hits], weights: Sequence[float]) -> list[tuple[Hits, float]]:
    if not systems:
        raise UsageError("nothing to fuse: at least one system is needed")
    if len({len(hits.positions) for hits in systems}) > 1:
        raise UsageError("systems to fuse must have run on the same queries")
    if weights and len(weights) != len(systems):
        raise UsageError(f"{len(systems)} systems need as many weights, not {len(weights)}")
    return list(zip(systems, weights or [1.0] * len(systems), strict=True))


def _merge(parts: Sequence[tuple[NDArray[np.int32], NDArray[np.float64]]], k: int) -> Hits:
    """Sum the scores of each passage, and return the k best; ties are in order of position."""
    if k < 1:
        raise UsageError(f"k must be at least 1, not {k}")
    queries = len(parts[0][0])
    hits = Hits.none(queries, k)
    for query in range(queries):
        places = np.concatenate([part[0][query] for part in parts])
        values = np.concatenate([part[1][query] for part in parts])
        passages, which = np.unique(places[places >= 0], return_inverse=True)
        sums = np.bincount(which, values[places >= 0], len(passages)).astype(np.float32)
        best = np.argsort(-sums, kind="stable")[:k]  # passages ascend, so a stable sort decides ties
        hits.put(query, passages[best].astype(np.int32), sums[best])
    return hits


DEPTH = 1000
"""Minimum number of hits that each system contributes to a hybrid."""


class FusionSettings(Component.Settings):
    """Settings for fusing rankings."""

    method: Literal["rrf", "sum"] = "rrf"
    weights: list[float] = Field(default=[])
    normalisation: Normalisation = "min-max"

    @model_validator(mode="after")
    def _one_weight_each(self) -> Self:
        systems = getattr(self, "systems", [])
        if self.weights and len(self.weights) != len(systems):
            raise ValueError(f"{len(self.weights)} weights for {len(systems)} systems")
        return self


class Fused(Component):
    """A hybrid of several retrievers.

    Args:
        systems: The retrievers, as objects or settings.
        method: "rrf" for reciprocal rank fusion, "sum" for a weighted sum of scores.
        weights: A weight per retriever. Default: 1 for each.
        normalisation: How to normalise scores for "sum": "min-max", "z-score" or "none".
    """

    class Settings(FusionSettings):
        """Settings of a fusion.

        Attributes:
            systems: The retrievers to fuse.
        """

        systems: list[Annotated[Any, Part("retriever")]] = Field(min_length=1)

    settings: Settings
    systems: list[Retriever]

    def set_up(self) -> None:
        names = ", ".join(system.name for system in self.systems)
        self.name = f"{self.settings.method}({names})"

    def index(self, corpus: Passages) -> None:
        """Index the corpus with each retriever."""
        for system in self.systems:
            system.index(corpus)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Search with each retriever, and return the k best passages per query after fusion.

        Args:
            queries: n queries.
            k: Number of hits per query.

        Returns:
            The hits, with arrays of shape (n, k).
        """
        rankings = [system.search(queries, max(k, DEPTH)) for system in self.systems]
        if self.settings.method == "rrf":
            return reciprocal_rank_fusion(rankings, k, weights=self.settings.weights)
        return weighted_sum(rankings, k, self.settings.weights, self.settings.normalisation)

    def describe(self) -> Mapping[str, object]:
        chosen = self.settings
        how: dict[str, object] = {"method": chosen.method, "weights": chosen.weights}
        if chosen.method == "sum":
            how["normalisation"] = chosen.normalisation
        return {**how, "systems": [dict(system.describe()) for system in self.systems], "ties": "by position"}


_QUERIES_AT_ONCE = 16  # queries whose pairs are scored in one call (more on a GPU), which limits a re-ranker's memory


class RerankingSettings(Component.Settings):
    """Settings of re-ranking.

    Attributes:
        reranker: The model that orders the best `top` hits of the first stage.
    """

    reranker: Annotated[Any, Part("reranker")]
    top: int = Field(default=100, ge=1)


class RerankedRetriever(Component):
    """A first-stage retriever whose `top` hits are re-ranked. Lower hits keep their order.

    Hits that are not re-ranked get descending scores below the last re-ranked score, so run files keep the order.

    Args:
        first: The retriever, as an object or settings.
        reranker: The re-ranker, as an object or settings.
        top: Number of hits to re-rank. Default: 100.
    """

    class Settings(RerankingSettings):
        """Settings of a re-ranked retriever.

        Attributes:
            first: The retriever whose hits are re-ranked.
        """

        first: Annotated[Any, Part("retriever")]

    settings: Settings
    first: Retriever
    reranker: Reranker
    positional = ("first", "reranker")

    def set_up(self) -> None:
        self.top = self.settings.top
        self.name = f"{self.first.name} > {self.reranker.name}"
        self._corpus: Passages | None = None

    def index(self, corpus: Passages) -> None:
        """Index the corpus with the first stage, and fit the re-ranker if it needs the corpus."""
        self.first.index(corpus)
        show_corpus(self.reranker, corpus)
        self._corpus = corpus

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Search with the first stage, and re-rank its `top` hits.

        Args:
            queries: n queries.
            k: Number of hits per query.

        Returns:
            The hits, with arrays of shape (n, k).

        Raises:
            UsageError: `index` has not been called.
            ModelError: The re-ranker returned scores that are not finite, or too few or too many of them.
        """
        corpus = self.indexed(self._corpus)
        candidates = self.first.search(queries, max(k, self.top))
        new = self._scores(corpus, queries, candidates.positions)
        positions, scores = candidates.positions.copy(), candidates.scores.copy()
        start = 0
        for row in range(len(positions)):
            count = int((candidates.positions[row, : self.top] >= 0).sum())
            places, values = candidates.positions[row, :count], new[start : start + count]
            order = np.lexsort((places, -values))  # ties are ordered by position
            positions[row, :count], scores[row, :count] = places[order], values[order]
            lower = np.flatnonzero(positions[row, count:] >= 0) + count
            if len(lower) and count:
                last = scores[row, count - 1]
                step = np.float32(max(1e-3, abs(float(last)) * 1e-4))  # distinct scores in fp32
                scores[row, lower] = last - step * np.arange(1, len(lower) + 1, dtype=np.float32)
            start += count
        return Hits(positions[:, :k], scores[:, :k])

    def _scores(self, corpus: Passages, queries: Sequence[str], positions: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return the re-ranker's scores of the `top` hits of all queries, concatenated."""
        best, name = positions[:, : self.top], self.reranker.name

        def pairs(first: int) -> list[tuple[str, str]]:
            rows = best[first : first + size].tolist()
            texts = corpus.full_texts_at(place for row in rows for place in row if place >= 0)
            asked = zip(queries[first : first + size], rows, strict=True)
            return [(query, texts[place]) for query, row in asked for place in row if place >= 0]

        size = max(_QUERIES_AT_ONCE, at_once(self.reranker, 0) // self.top)
        starts = range(0, len(queries), size)
        parts = [np.zeros(0, np.float32)]
        for first, scores in zip(starts, scored(self.reranker, map(pairs, starts)), strict=True):
            count = int((best[first : first + size] >= 0).sum())
            parts.append(checked_scores([] if scores is None else scores, count, name))
        return np.concatenate(parts)

    def describe(self) -> Mapping[str, object]:
        return {
            "family": "rerank",
            "first": dict(self.first.describe()),
            "reranker": dict(self.reranker.describe()),
            "top": self.top,
        }

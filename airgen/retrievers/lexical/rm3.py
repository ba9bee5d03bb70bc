"""Pseudo-relevance feedback: the relevance model RM3 over any lexical retriever.

    rm3 = RM3(BM25())                # Anserini's defaults: 10 terms of 10 passages, half the weight for the query
    rm3.index(corpus)
    hits = rm3.search(queries, k=1000)

RM1 estimates which terms relevant passages use from the first search's best; RM3 mixes that with the query
(Abdul-Jaleel et al., TREC 2004). The details are Anserini's: terms of 2 to 20 letters or digits that at most a
tenth of the passages hold, each passage's most frequent `feedback_terms`, weighted by its score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from airgen.errors import UsageError
from airgen.retrievers.base import Corpus, Hits
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.lexical.index import LexicalRetriever

__all__ = ["RM3"]

_MAX_SHARE = 0.1  # a term in more of the passages says nothing
_SHORTEST, _LONGEST = 2, 20


class RM3:
    """Search, learn terms from the best passages, search again with query and terms."""

    def __init__(
        self,
        first: LexicalRetriever | Mapping[str, Any] | None = None,
        feedback_terms: int = 10,
        feedback_documents: int = 10,
        original_weight: float = 0.5,
        name: str = "",
    ) -> None:
        from airgen.retrievers.load import load_retriever

        if feedback_terms < 1 or feedback_documents < 1:
            raise UsageError("RM3 needs at least one feedback term and one feedback document")
        if not 0 <= original_weight <= 1:
            raise UsageError(f"original_weight must be from 0 to 1, not {original_weight}")
        made = load_retriever(first) if isinstance(first, Mapping) else first or BM25()
        if not isinstance(made, LexicalRetriever):
            raise UsageError(f"RM3 needs a lexical first stage, not {made.name}")
        self.first = made
        self.feedback_terms, self.feedback_documents = feedback_terms, feedback_documents
        self.original_weight = original_weight
        self.name = name or f"{self.first.name}+rm3"
        self._corpus: Corpus | None = None

    def index(self, corpus: Corpus) -> None:
        """Index the first stage; the corpus is kept, because the best passages are read again."""
        self.first.index(corpus)
        self._corpus = corpus

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The k best passages for the expanded queries."""
        return self.first.search_weighted(self.expand(queries), k)

    def expand(self, queries: Sequence[str]) -> list[dict[str, float]]:
        """Each query as weighted terms that sum to 1. A query that finds nothing stays as it is."""
        if self._corpus is None:
            raise UsageError(f"{self.name}: the corpus comes first; call index(corpus)")
        hits = self.first.search(queries, self.feedback_documents)
        vectors: dict[int, dict[str, float]] = {}  # passages that many queries share are read once
        expanded = []
        for query, positions, scores in zip(queries, hits.positions.tolist(), hits.scores.tolist(), strict=True):
            found = [(place, score) for place, score in zip(positions, scores, strict=True) if place >= 0]
            model: dict[str, float] = {}
            for place, score in found:
                if place not in vectors:
                    vectors[place] = self._vector(self._corpus.full_text(place))
                for term, share in vectors[place].items():
                    model[term] = model.get(term, 0.0) + share * score
            original = _unit(Counter(self.first.analyser(query)))
            learned = _unit(_largest(model, self.feedback_terms))
            weight = self.original_weight if learned else 1.0
            expanded.append(
                {
                    term: weight * original.get(term, 0.0) + (1 - weight) * learned.get(term, 0.0)
                    for term in {**original, **learned}
                }
            )
        return expanded

    def _vector(self, text: str) -> dict[str, float]:
        """The passage's most frequent terms with their shares of those terms' occurrences."""
        limit = _MAX_SHARE * len(self._corpus or ())
        counts = {
            term: float(count)
            for term, count in Counter(self.first.analyser(text)).items()
            if _SHORTEST <= len(term) <= _LONGEST and term.isalnum() and self.first.document_frequency(term) <= limit
        }
        return _unit(_largest(counts, self.feedback_terms))

    def describe(self) -> Mapping[str, object]:
        """The first stage's settings and the feedback's."""
        return {
            "feedback": "rm3",
            "feedback_terms": self.feedback_terms,
            "feedback_documents": self.feedback_documents,
            "original_weight": self.original_weight,
            "first": dict(self.first.describe()),
        }


def _largest(values: Mapping[str, float], count: int) -> dict[str, float]:
    """The `count` largest values, equal ones by term, so that any machine keeps the same."""
    return dict(sorted(values.items(), key=lambda item: (-item[1], item[0]))[:count])


def _unit(values: Mapping[str, float]) -> dict[str, float]:
    """Values that sum to 1."""
    total = sum(values.values())
    return {term: value / total for term, value in values.items()} if total > 0 else {}

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
from typing import Annotated, Any

from pydantic import Field, field_validator

from airgen.errors import UsageError
from airgen.registry import resolve
from airgen.retrievers.base import Component, Corpus, Hits
from airgen.retrievers.lexical.index import LexicalRetriever
from airgen.settings.base import LABEL
from airgen.settings.parts import Part, as_mapping, is_spec

_MAX_SHARE = 0.1  # a term that more of the passages hold does not help
_SHORTEST, _LONGEST = 2, 20


class RM3(Component):
    """Search, learn terms from the best passages, search again with query and terms."""

    class Settings(Component.Settings):
        """`first`: a lexical retriever. `original_weight`: the share of the query in the expanded query."""

        first: Annotated[Any, Part("retriever")] = "bm25"
        feedback_terms: int = Field(default=10, ge=1)
        feedback_documents: int = Field(default=10, ge=1)
        original_weight: float = Field(default=0.5, ge=0, le=1)
        name: Annotated[str, LABEL] = ""

        @field_validator("first")
        @classmethod
        def _lexical(cls, value: Any) -> Any:
            kind = as_mapping("retriever", value)["kind"] if is_spec(value) else ""
            if not issubclass(resolve("retriever", kind) if kind else type(value), LexicalRetriever):
                raise ValueError(f"a lexical first stage is needed, not {kind or value.name!r}")
            return value

    settings: Settings
    first: LexicalRetriever

    def set_up(self) -> None:
        self.name = self.settings.name or f"{self.first.name}+rm3"
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
        hits = self.first.search(queries, self.settings.feedback_documents)
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
            learned = _unit(_largest(model, self.settings.feedback_terms))
            weight = self.settings.original_weight if learned else 1.0
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
        return _unit(_largest(counts, self.settings.feedback_terms))

    def describe(self) -> Mapping[str, object]:
        """The first stage's settings and the feedback's."""
        feedback = self.settings.model_dump(include={"feedback_terms", "feedback_documents", "original_weight"})
        return {"feedback": "rm3", **feedback, "first": dict(self.first.describe())}


def _largest(values: Mapping[str, float], count: int) -> dict[str, float]:
    """The `count` largest values; ties go by term, so that every machine keeps the same ones."""
    return dict(sorted(values.items(), key=lambda item: (-item[1], item[0]))[:count])


def _unit(values: Mapping[str, float]) -> dict[str, float]:
    """Values that sum to 1."""
    total = sum(values.values())
    return {term: value / total for term, value in values.items()} if total > 0 else {}

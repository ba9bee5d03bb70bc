"""BM25 as in Lucene (also as a re-ranker), query likelihood, and pseudo-relevance feedback (RM3).

    bm25 = BM25(fields="multi")
    bm25.index(corpus)
    hits = bm25.search(["what do cats eat"], k=10)

RM1 estimates the terms of relevant passages from the top hits of a first search; RM3 interpolates them with the query
(Abdul-Jaleel et al., TREC 2004). As in Anserini, only terms of 2 to 20 letters or digits that occur in at most a tenth
of the passages are used: the most frequent `feedback_terms` of each passage, weighted by its score.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from airgen.retrievers.component import Component
from airgen.retrievers.hits import Hits
from airgen.retrievers.lexical.index import Analysing, FieldSettings, LexicalRetriever, counter
from airgen.retrievers.lexical.postings import BM25Weighting, DirichletWeighting, Weighting
from airgen.retrievers.passages import Passages
from airgen.settings.spec import Part, Spec
from airgen.text.analysis import Encoder

_KEPT_TEXTS = 1 << 16  # texts whose terms are kept, about 100 MB


class BM25Settings(Analysing.Settings):
    """Settings of BM25 (by default Anserini's for BEIR) and of the analyser; see `BM25Weighting` for the formula."""

    k1: float = Field(default=0.9, ge=0)
    b: float = Field(default=0.4, ge=0, le=1)


class BM25(LexicalRetriever):
    """BM25 as in Lucene, over title and text.

    Args:
        k1: Saturation of term frequency. Default: 0.9, as in Anserini for BEIR.
        b: Strength of length normalisation. Default: 0.4, as in Anserini for BEIR.
        fields: "flat" indexes title and text as one text; "multi" scores them separately and adds the scores.
        lossy_lengths: Whether to round passage lengths to the one byte that Lucene stores.
    """

    class Settings(FieldSettings, BM25Settings):
        """Settings of BM25.

        Attributes:
            lossy_lengths: Whether to round lengths to the one byte that Lucene stores.
        """

        lossy_lengths: bool = False

    settings: Settings
    positional = ("k1", "b", "fields")
    name = "bm25"

    def make_weighting(self) -> Weighting:
        return BM25Weighting(self.settings.k1, self.settings.b, self.settings.lossy_lengths)


class QueryLikelihood(LexicalRetriever):
    """A unigram language model of each passage with Dirichlet smoothing."""

    class Settings(FieldSettings):
        """Settings of query likelihood.

        Attributes:
            mu: Strength of smoothing: the number of terms from the corpus's language model added to each passage.
        """

        mu: float = Field(default=1000.0, gt=0)

    settings: Settings
    name = "dirichlet"

    def make_weighting(self) -> Weighting:
        return DirichletWeighting(self.settings.mu)


class BM25Reranker(Analysing):
    """BM25 as a re-ranker, with the statistics of the corpus passed to `fit`.

    Passages of that corpus get the same scores as from `BM25` with one field, to float32 precision.
    """

    Settings = BM25Settings
    settings: BM25Settings
    name = "bm25-reranker"
    texts_at_once = 1 << 16  # the passages of many queries, each read once

    def set_up(self) -> None:
        self.weighting = BM25Weighting(self.settings.k1, self.settings.b)
        self._encoder: Encoder | None = None
        self._idf = np.zeros(0)  # idf of the corpus's terms
        self._unseen, self._mean = 0.0, 1.0  # the idf of any other term, and the mean length in terms
        self._kept: OrderedDict[str, NDArray[np.int32]] = OrderedDict()  # the terms of the latest texts

    def fit(self, corpus: Passages) -> BM25Reranker:
        """Compute the document frequencies and mean length of a corpus, with title and text as one field."""
        encoder = Encoder(self.fix_language(corpus.language))
        documents, filled, total = np.zeros(0, np.int64), 0, 0
        for terms, lengths in encoder.batches(corpus.full_texts):
            size = max(1, len(lengths))
            once = np.unique(terms.astype(np.int64) * size + np.repeat(np.arange(len(lengths)), lengths)) // size
            counts = np.bincount(once, minlength=len(encoder.vocabulary))
            counts[: len(documents)] += documents
            documents, filled, total = counts, filled + int(np.count_nonzero(lengths)), total + int(lengths.sum())
        self._idf = self.weighting.idf(documents, filled)
        self._unseen = float(self.weighting.idf(np.zeros(1, np.int64), filled)[0])
        self._mean = float(total) / filled if filled else 1.0
        self._encoder = encoder
        self._kept.clear()
        return self

    def _terms(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the terms of distinct texts, each of which is split only once while it is kept."""
        new = [text for text in texts if text not in self._kept]
        terms, lengths = self.indexed(self._encoder).encode(new)
        self._kept.update(zip(new, np.split(terms, np.cumsum(lengths)[:-1]), strict=False))
        for text in texts:
            self._kept.move_to_end(text)
        terms_of_texts = [self._kept[text] for text in texts]
        while len(self._kept) > _KEPT_TEXTS:
            self._kept.popitem(last=False)
        return terms_of_texts

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score n (query, passage) pairs; return float32 (n,). Raises UsageError if `fit` has not been called."""
        columns: dict[str, list[int]] = {}
        for number, (query, _) in enumerate(pairs):
            columns.setdefault(query, []).append(number)
        places = {text: place for place, text in enumerate(dict.fromkeys(passage for _, passage in pairs))}
        of_pairs = np.fromiter((places[passage] for _, passage in pairs), np.int64, len(pairs))
        weights = [Counter(terms.tolist()) for terms in self._terms(list(columns))]
        postings = self._postings(self._terms(list(places)), sorted({term for terms in weights for term in terms}))
        scores = np.zeros(len(pairs), np.float32)
        for numbers, terms in zip(columns.values(), weights, strict=True):
            of_query = np.zeros(len(places), np.float32)
            for term, times in terms.items():  # in the query's order, as in a search
                positions, impacts = postings[term]
                of_query[positions] += np.float32(times) * impacts
            scores[numbers] = of_query[of_pairs[numbers]]
        return scores

    def _postings(
        self, passages: Sequence[NDArray[np.int32]], wanted: Sequence[int]
    ) -> dict[int, tuple[NDArray[np.int32], NDArray[np.float32]]]:
        """Return the positions of the passages that hold each of the wanted terms, and what it adds to their scores."""
        encoder = self.indexed(self._encoder)
        numbers = np.full(len(encoder.vocabulary), -1, np.int32)
        numbers[wanted] = np.arange(len(wanted))
        lengths = np.array([len(terms) for terms in passages], np.int64)
        occurrences = numbers[np.concatenate([np.zeros(0, np.int32), *passages])]
        is_wanted = occurrences >= 0
        counts = np.bincount(np.repeat(np.arange(len(passages)), lengths)[is_wanted], minlength=len(passages))
        starts, positions, frequencies = counter(encoder)(occurrences[is_wanted], counts, len(wanted))
        idf = np.full(len(encoder.vocabulary), self._unseen)
        idf[: len(self._idf)] = self._idf
        of_postings = np.repeat(idf[wanted], np.diff(starts))
        norms = self.weighting.norms(lengths, self._mean)
        impacts = self.weighting.weigh(of_postings, frequencies, norms[positions]).astype(np.float32)
        edges = zip(wanted, starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        return {term: (positions[first:last], impacts[first:last]) for term, first, last in edges}

    def describe(self) -> Mapping[str, object]:
        return {**self.weighting.describe(), "analyser": dict(self.analyser.describe()), "mean_length": self._mean}


_MAX_SHARE = 0.1  # maximum share of the passages; a more frequent term does not help
_SHORTEST_TERM, _LONGEST_TERM = 2, 20


class RM3(Component):
    """Pseudo-relevance feedback: search, then search again with terms from the top passages added to the query."""

    class Settings(Component.Settings):
        """Settings of RM3.

        Attributes:
            first: A lexical retriever.
            original_weight: Weight of the original query in the expanded query.
        """

        first: Annotated[Any, Part("retriever")] = "bm25"
        feedback_terms: int = Field(default=10, ge=1)
        feedback_documents: int = Field(default=10, ge=1)
        original_weight: float = Field(default=0.5, ge=0, le=1)

        @field_validator("first")
        @classmethod
        def _lexical(cls, value: Any) -> Any:
            component = value.component_class if isinstance(value, Spec) else type(value)
            if not issubclass(component, LexicalRetriever):
                name = value.kind if isinstance(value, Spec) else value.name
                raise ValueError(f"a lexical first stage is needed, not {name!r}")
            return value

    settings: Settings
    first: LexicalRetriever

    def set_up(self) -> None:
        self.name = f"{self.first.name}+rm3"
        self._corpus: Passages | None = None

    def index(self, corpus: Passages) -> None:
        """Index the corpus with the first stage, and keep the corpus to read the top passages."""
        self.first.index(corpus)
        self._corpus = corpus

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k best passages for each expanded query."""
        return self.first.search_weighted(self.expand(queries), k)

    def expand(self, queries: Sequence[str]) -> list[dict[str, float]]:
        """Expand each query to weighted terms that sum to 1. Queries without hits are not expanded."""
        corpus = self.indexed(self._corpus)
        hits = self.first.search(queries, self.settings.feedback_documents)
        found = sorted({place for row in hits.positions.tolist() for place in row if place >= 0})
        vectors = {place: self._vector(corpus.full_text(place)) for place in found}  # neighbours are read together
        expanded = []
        for query, positions, scores in zip(queries, hits.positions.tolist(), hits.scores.tolist(), strict=True):
            feedback = [(place, score) for place, score in zip(positions, scores, strict=True) if place >= 0]
            model: dict[str, float] = {}
            for place, score in feedback:
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
        """Return the most frequent terms of a passage, with their relative frequencies."""
        limit = _MAX_SHARE * len(self._corpus or ())
        counts = {
            term: float(count)
            for term, count in Counter(self.first.analyser(text)).items()
            if _SHORTEST_TERM <= len(term) <= _LONGEST_TERM
            and term.isalnum()
            and self.first.document_frequency(term) <= limit
        }
        return _unit(_largest(counts, self.settings.feedback_terms))

    def describe(self) -> Mapping[str, object]:
        feedback = self.settings.model_dump(include={"feedback_terms", "feedback_documents", "original_weight"})
        return {"feedback": "rm3", **feedback, "first": dict(self.first.describe())}


def _largest(values: Mapping[str, float], count: int) -> dict[str, float]:
    """Return the `count` largest values; ties are broken by term."""
    return dict(sorted(values.items(), key=lambda item: (-item[1], item[0]))[:count])


def _unit(values: Mapping[str, float]) -> dict[str, float]:
    """Scale values to sum to 1."""
    total = sum(values.values())
    return {term: value / total for term, value in values.items()} if total > 0 else {}

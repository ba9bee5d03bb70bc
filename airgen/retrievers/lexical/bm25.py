"""BM25 in Lucene's variant, and the same as a re-ranker.

    bm25 = BM25(fields="multi")
    bm25.index(corpus)
    hits = bm25.search(["what do cats eat"], k=10)

Reference points (Anserini's BEIR regressions, k1 0.9, b 0.4, nDCG@10): SciFact .6789 flat, .6647 multi.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.errors import UsageError
from airgen.retrievers.base import Corpus
from airgen.retrievers.lexical.index import Fields, LexicalRetriever
from airgen.retrievers.lexical.weighting import BM25Weighting, DirichletWeighting
from airgen.text.analysis import Analyser, Encoder
from airgen.text.analysis import analyser as make_analyser

__all__ = ["BM25", "BM25Reranker", "QueryLikelihood"]


class BM25(LexicalRetriever):
    """Lucene's BM25 over title and text; see `LexicalRetriever` for fields and `BM25Weighting` for the formula."""

    def __init__(
        self,
        k1: float = 0.9,
        b: float = 0.4,
        fields: Fields = "flat",
        analyser: Analyser | Mapping[str, Any] | None = None,
        title_weight: float = 1.0,
        text_weight: float = 1.0,
        lossy_lengths: bool = False,
        threads: int | None = None,
        compiled: bool | None = None,
        name: str = "bm25",
    ) -> None:
        weighting = BM25Weighting(k1, b, lossy_lengths)
        super().__init__(weighting, fields, analyser, title_weight, text_weight, threads, compiled, name)


class QueryLikelihood(LexicalRetriever):
    """A unigram language model of each passage with Dirichlet smoothing."""

    def __init__(
        self,
        mu: float = 1000.0,
        fields: Fields = "flat",
        analyser: Analyser | Mapping[str, Any] | None = None,
        threads: int | None = None,
        compiled: bool | None = None,
        name: str = "dirichlet",
    ) -> None:
        super().__init__(DirichletWeighting(mu), fields, analyser, threads=threads, compiled=compiled, name=name)


class BM25Reranker:
    """BM25 as a re-ranker of any pairs, with the statistics of a fitted corpus.

    A passage of that corpus gets the score that flat `BM25` gives it (to float32).
    """

    def __init__(
        self,
        k1: float = 0.9,
        b: float = 0.4,
        analyser: Analyser | Mapping[str, Any] | None = None,
        name: str = "bm25-reranker",
    ) -> None:
        self.name = name
        self.weighting = BM25Weighting(k1, b)
        self._analyser = analyser if isinstance(analyser, Analyser) else None
        self._options = {} if analyser is None or isinstance(analyser, Analyser) else dict(analyser)
        self._idf: dict[str, float] = {}
        self._unseen = 0.0
        self._mean = 1.0
        self._fitted = False

    def fit(self, corpus: Corpus) -> BM25Reranker:
        """Take document frequencies and mean length from a corpus (titles and texts as one)."""
        if self._analyser is None:
            self._analyser = make_analyser(corpus.language, **self._options)
        encoder = Encoder(self._analyser)
        terms, lengths = encoder.encode([corpus.full_text(position) for position in range(len(corpus))])
        passages = np.repeat(np.arange(len(lengths)), lengths)
        once = np.unique(terms.astype(np.int64) * max(1, len(lengths)) + passages) // max(1, len(lengths))
        documents = np.bincount(once, minlength=len(encoder.vocabulary))
        filled = int(np.count_nonzero(lengths))
        values = self.weighting.idf(documents, filled).tolist()
        self._idf = dict(zip(encoder.vocabulary, values, strict=True))
        self._unseen = float(self.weighting.idf(np.zeros(1, np.int64), filled)[0])
        self._mean = float(lengths.sum()) / filled if filled else 1.0
        self._fitted = True
        return self

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """BM25 of each (query, passage), float32 (n,). Raises UsageError before `fit`."""
        if not self._fitted or self._analyser is None:
            raise UsageError(f"{self.name}: the corpus comes first; call fit(corpus)")
        queries: dict[str, Counter[str]] = {}
        passages: dict[str, tuple[Counter[str], float]] = {}
        found = np.zeros(len(pairs), np.float32)
        for number, (query, passage) in enumerate(pairs):
            if query not in queries:
                queries[query] = Counter(self._analyser(query))
            if passage not in passages:
                terms = Counter(self._analyser(passage))
                length = np.array([terms.total()])
                passages[passage] = terms, float(self.weighting.norms(length, self._mean)[0])
            frequencies, norm = passages[passage]
            score = np.float32(0)
            for term, times in queries[query].items():
                if frequency := frequencies[term]:
                    part = self._idf.get(term, self._unseen) * frequency / (frequency + norm)
                    score += np.float32(times) * np.float32(part)
            found[number] = score
        return found

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes the scores."""
        used = self._analyser or make_analyser("en", **self._options)
        return {**self.weighting.describe(), "analyser": dict(used.describe()), "mean_length": self._mean}

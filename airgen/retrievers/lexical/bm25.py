"""BM25 in Lucene's variant, and the same as a re-ranker.

    bm25 = BM25(fields="multi")
    bm25.index(corpus)
    hits = bm25.search(["what do cats eat"], k=10)

Reference points (Anserini's BEIR regressions, k1 0.9, b 0.4, nDCG@10): SciFact .6789 flat, .6647 multi.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.errors import UsageError
from airgen.retrievers.base import Corpus, TextKind
from airgen.retrievers.lexical.analysing import Analysing
from airgen.retrievers.lexical.index import FieldSettings, LexicalRetriever
from airgen.retrievers.lexical.weighting import BM25Weighting, DirichletWeighting, Weighting
from airgen.retrievers.text_memo import Memo
from airgen.settings.base import LABEL
from airgen.text.analysis import Encoder

_MEMORY = 1 << 28  # bytes for the terms of the latest texts


class BM25Settings(Analysing.Settings):
    """The parameters of BM25 (Anserini's for BEIR) and the analyser; see `BM25Weighting` for the formula."""

    k1: float = Field(default=0.9, ge=0)
    b: float = Field(default=0.4, ge=0, le=1)


class BM25(LexicalRetriever):
    """Lucene's BM25 over title and text."""

    class Settings(FieldSettings, BM25Settings):
        """`title_weight` and `text_weight` count with `fields: multi`; Anserini's runs on BEIR have weights of 1.

        `lossy_lengths` rounds lengths to the one byte that Lucene keeps.
        """

        title_weight: float = Field(default=1.0, ge=0)
        text_weight: float = Field(default=1.0, ge=0)
        lossy_lengths: bool = False
        name: Annotated[str, LABEL] = "bm25"

    settings: Settings
    positional = ("k1", "b", "fields")

    def set_up(self) -> None:
        super().set_up()
        chosen = self.settings
        self.fields, self.title_weight, self.text_weight = chosen.fields, chosen.title_weight, chosen.text_weight

    def make_weighting(self) -> Weighting:
        return BM25Weighting(self.settings.k1, self.settings.b, self.settings.lossy_lengths)


class QueryLikelihood(LexicalRetriever):
    """A unigram language model of each passage with Dirichlet smoothing."""

    class Settings(FieldSettings):
        """`mu`: how many terms of the whole corpus smooth the model of a passage."""

        mu: float = Field(default=1000.0, gt=0)
        name: Annotated[str, LABEL] = "dirichlet"

    settings: Settings

    def set_up(self) -> None:
        super().set_up()
        self.fields = self.settings.fields

    def make_weighting(self) -> Weighting:
        return DirichletWeighting(self.settings.mu)


@dataclass(frozen=True, slots=True)
class BM25Statistics:
    """What BM25 knows of a corpus: the idf of its terms and of a term that it lacks, and the mean length in terms."""

    idf: Mapping[str, float]
    unseen: float
    mean: float
    language: str

    def of(self, terms: Iterable[str]) -> BM25Statistics:
        """The same for these terms alone."""
        return replace(self, idf={term: self.idf[term] for term in terms if term in self.idf})


Parcel = tuple[BM25Statistics, Sequence[tuple[str, str]]]


class BM25Reranker(Analysing):
    """BM25 as a re-ranker of any pairs, with the statistics of a corpus that it saw.

    A passage of that corpus gets the score that flat `BM25` gives it (to float32).
    """

    travels = True

    class Settings(BM25Settings):
        """As for BM25."""

        name: Annotated[str, LABEL] = "bm25-reranker"

    settings: Settings

    def set_up(self) -> None:
        self.name = self.settings.name
        self.weighting = BM25Weighting(self.settings.k1, self.settings.b)
        self._statistics: BM25Statistics | None = None
        self._terms: Memo[tuple[Counter[str], float]] | None = None

    def fit(self, corpus: Corpus) -> BM25Reranker:
        """Take document frequencies and mean length from a corpus (titles and texts as one)."""
        encoder = Encoder(self.fix_language(corpus.language))
        documents, filled, total = np.zeros(0, np.int64), 0, 0
        for terms, lengths in encoder.batches(corpus.full_texts):
            size = max(1, len(lengths))
            once = np.unique(terms.astype(np.int64) * size + np.repeat(np.arange(len(lengths)), lengths)) // size
            counts = np.bincount(once, minlength=len(encoder.vocabulary))
            counts[: len(documents)] += documents
            documents, filled, total = counts, filled + int(np.count_nonzero(lengths)), total + int(lengths.sum())
        values = self.weighting.idf(documents, filled).tolist()
        self._statistics = BM25Statistics(
            dict(zip(encoder.vocabulary, values, strict=True)),
            float(self.weighting.idf(np.zeros(1, np.int64), filled)[0]),
            float(total) / filled if filled else 1.0,
            corpus.language,
        )
        self._terms = Memo(self._counted, _size, _MEMORY)
        return self

    def _counted(self, texts: Sequence[str], kind: TextKind) -> list[tuple[Counter[str], float]]:
        """The terms of each text, and what a passage's length adds to the denominator."""
        found = [Counter(self.analyser(text)) for text in texts]
        norms = self.weighting.norms(np.array([terms.total() for terms in found]), self._fitted().mean)
        return list(zip(found, norms.tolist(), strict=True))

    def _fitted(self) -> BM25Statistics:
        if self._statistics is None:
            raise UsageError(f"{self.name}: the corpus comes first; call fit(corpus)")
        return self._statistics

    def parcel(self, pairs: Sequence[tuple[str, str]]) -> Parcel:
        """The pairs with all that a worker must know of the corpus to score them."""
        statistics, queries = self._fitted(), dict.fromkeys(query for query, _ in pairs)
        return statistics.of({term for query in queries for term in self.analyser(query)}), pairs

    def score_parcel(self, parcel: Parcel) -> NDArray[np.float32]:
        """The scores that `score` gives where the parcel was made; a worker gets parcels of several corpora."""
        before, (self._statistics, pairs) = self._statistics, parcel
        if before is None or (before.language, before.mean) != (self._statistics.language, self._statistics.mean):
            self._analyser = self.analyser_for(self._statistics.language)
            self._terms = Memo(self._counted, _size, _MEMORY)
        return self.score(pairs)

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """BM25 of each (query, passage), float32 (n,). Raises UsageError before `fit`."""
        statistics = self._fitted()
        assert self._terms is not None
        queries = self._terms([query for query, _ in pairs], "query")
        passages = self._terms([passage for _, passage in pairs], "passage")
        found = np.zeros(len(pairs), np.float32)
        for number, ((query, _), (frequencies, norm)) in enumerate(zip(queries, passages, strict=True)):
            score = np.float32(0)
            for term, times in query.items():
                if frequency := frequencies[term]:
                    part = statistics.idf.get(term, statistics.unseen) * frequency / (frequency + norm)
                    score += np.float32(times) * np.float32(part)
            found[number] = score
        return found

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes the scores."""
        mean = 1.0 if self._statistics is None else self._statistics.mean
        return {**self.weighting.describe(), "analyser": dict(self.analyser.describe()), "mean_length": mean}


def _size(one: tuple[Counter[str], float]) -> int:
    return 300 + 100 * len(one[0])

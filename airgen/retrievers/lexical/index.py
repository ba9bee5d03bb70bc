"""The base class of lexical retrievers: an analyser and an inverted index of what each term adds to a passage's score.

    index = InvertedIndex(starts, positions, impacts, size)
    hits = index.search([{3: 1.0, 8: 0.5}], k=10)

The score of a passage is the sum over the query's terms of weight times impact, where impacts can come from BM25, a
language model, or a learned sparse model. Search is exact. Fields are ranges of one index (term t of field f is f *
vocabulary + t), so searching title and text uses the same loop as searching a single text.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import WrapValidator

from airgen.compute.exact_arithmetic import LARGE, worth_compiling
from airgen.errors import UsageError
from airgen.retrievers.component import Component
from airgen.retrievers.hits import Hits
from airgen.retrievers.lexical.postings import (
    Count,
    PostingsBuilder,
    PresenceWeighting,
    Weighting,
    count_postings,
    search_postings,
)
from airgen.retrievers.model_facts import ModelFacts
from airgen.retrievers.passages import Passages, non_empty
from airgen.safety.interruptible import interruptible, thread_pool
from airgen.text.analysis import Analyser, AnalyserSettings, Encoder
from airgen.text.analysis import analyser as make_analyser


@dataclass(frozen=True)
class InvertedIndex:
    """Postings of all terms: term t adds `impacts[starts[t]:starts[t + 1]]` to `positions[starts[t]:starts[t + 1]]`.

    starts int64 (terms + 1,); positions int32 and impacts float32 (postings,), a term's positions ascending and
    each once, impacts not negative; `size` passages.
    """

    starts: NDArray[np.int64]
    positions: NDArray[np.int32]
    impacts: NDArray[np.float32]
    size: int

    @property
    def bytes(self) -> int:
        """Return the size of the arrays in bytes."""
        return int(self.starts.nbytes + self.positions.nbytes + self.impacts.nbytes)

    def search(
        self, queries: Sequence[Mapping[int, float]], k: int, threads: int | None = None, compiled: bool | None = None
    ) -> Hits:
        """Return the k best passages of each query. Neither `threads` nor `compiled` changes the result.

        Args:
            queries: The weight of each term, per query. Terms are added in this order.
            k: Number of hits per query.
            threads: Number of threads. Default: all cores.
            compiled: Whether to use numba. Default: if it is installed and worth loading.

        Returns:
            The hits, with arrays of shape (n, k).

        Raises:
            UsageError: k is below 1, a term is outside the index, or a weight is negative or not finite.
        """
        if k < 1:
            raise UsageError(f"k must be at least 1, not {k}")
        bounds = np.zeros(len(queries) + 1, np.int64)
        np.cumsum([len(query) for query in queries], out=bounds[1:])
        total = int(bounds[-1])
        terms = np.fromiter((term for query in queries for term in query), np.int64, total)
        weights = np.fromiter((weight for query in queries for weight in query.values()), np.float32, total)
        if total and (terms.min() < 0 or terms.max() >= len(self.starts) - 1):
            raise UsageError(f"a query has a term outside the index's {len(self.starts) - 1} terms")
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise UsageError("a query has a weight that is negative or not a finite number")
        positions = np.full((len(queries), k), -1, np.int32)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        if compiled is None:
            compiled = worth_compiling(self.size * len(queries))
        run = search_postings
        if compiled:
            from airgen.retrievers.lexical import _postings_compiled

            run = _postings_compiled.search

        def search_part(first: int, last: int) -> None:
            run(
                self.starts,
                self.positions,
                self.impacts,
                size=self.size,
                bounds=bounds[first : last + 1],
                terms=terms,
                weights=weights,
                out_positions=positions[first:last],
                out_scores=scores[first:last],
            )

        workers = max(1, min(threads or os.cpu_count() or 1, len(queries) // 8))
        edges = np.linspace(0, len(queries), workers + 1).astype(int).tolist()
        if self.size * len(queries) < LARGE or (workers == 1 and not compiled):  # starting a thread would take longer
            search_part(0, len(queries))
        elif workers == 1:
            interruptible(lambda: search_part(0, len(queries)))
        else:  # the compiled loop does not hold the interpreter lock
            with thread_pool(workers) as pool:
                list(pool.map(search_part, edges[:-1], edges[1:]))
        return Hits(positions, scores)


def counter(encoder: Encoder) -> Count:
    """Return the function that counts the postings of an encoder's terms, compiled if the encoder is."""
    if encoder.compiled:
        from airgen.retrievers.lexical import _postings_compiled

        compiled: Count = _postings_compiled.count_postings
        return compiled
    return count_postings


def _made_or_settings(value: Any, check: Any) -> Any:
    return value if isinstance(value, Analyser) else check({} if value is None else value)


class Analysing(Component):
    """A component that splits texts into terms."""

    class Settings(Component.Settings):
        """Settings of a component that splits texts into terms.

        Attributes:
            analyser: Settings such as {stem: false} or, in Python, an Analyser.
        """

        analyser: Annotated[AnalyserSettings, WrapValidator(_made_or_settings)] = AnalyserSettings()

    settings: Settings
    _analyser: Analyser | None = None

    @property
    def analyser(self) -> Analyser:
        """Return the analyser in use: that of the corpus's language, or English before a corpus is indexed."""
        return self._analyser or self.analyser_for("en")

    def analyser_for(self, language: str) -> Analyser:
        """Return the analyser for the settings and a language."""
        chosen: AnalyserSettings | Analyser = self.settings.analyser
        if isinstance(chosen, Analyser):
            return chosen
        return make_analyser(language, self.folder, **dict(chosen))

    def fix_language(self, language: str) -> Analyser:
        """Use the analyser of this language from now on, unless one is already in use."""
        self._analyser = self._analyser or self.analyser_for(language)
        return self._analyser


class LexicalRetriever(Analysing):
    """Exact search by weighted terms."""

    name = "lexical"
    threads: int | None = None  # None: all cores. This and `compiled` only change the speed
    compiled: bool | None = None  # None: numba, if it is faster

    def set_up(self) -> None:
        self.fields: Literal["flat", "multi"] = getattr(self.settings, "fields", "flat")
        self.weighting = self.make_weighting()
        self._vocabulary: dict[str, int] = {}
        self._index: InvertedIndex | None = None

    def make_weighting(self) -> Weighting:
        """Return the weighting of postings. Default: 1 if the passage contains the term."""
        return PresenceWeighting()

    @property
    def facts(self) -> ModelFacts:
        """Return no facts, since there is no model."""
        return ModelFacts(threads=self.threads)

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """Return {term: id}, in order of first occurrence in the corpus."""
        return self._vocabulary

    def index(self, corpus: Passages) -> None:
        """Analyse and index the corpus, replacing any earlier index. Raises CorpusError if it is empty."""
        non_empty(corpus)
        encoder = Encoder(self.fix_language(corpus.language), self.compiled)
        flat = self.fields == "flat"
        texts = [corpus.full_texts] if flat else [corpus.texts, corpus.titles or [""] * len(corpus)]
        builders = [self._counted(encoder, field) for field in texts]
        size = len(encoder.vocabulary)
        starts, positions, impacts = [np.zeros(1, np.int64)], [], []
        offset = 0
        while builders:  # a field's parts are freed once they are joined
            field = builders.pop(0).field(size)
            impacts.append(self.weighting.impacts(field))
            positions.append(field.positions)
            starts.append(field.starts[1:] + offset)
            offset += len(field.positions)
        self._index = InvertedIndex(
            np.concatenate(starts),
            positions[0] if len(positions) == 1 else np.concatenate(positions),
            impacts[0] if len(impacts) == 1 else np.concatenate(impacts),
            len(corpus),
        )
        self._vocabulary = encoder.vocabulary

    @staticmethod
    def _counted(encoder: Encoder, texts: Sequence[str]) -> PostingsBuilder:
        builder = None
        for terms, lengths in encoder.batches(texts):
            builder = builder or PostingsBuilder(counter(encoder))
            builder.add(terms, lengths)
        return builder or PostingsBuilder(count_postings)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k best passages of each query. A term that occurs twice in a query counts twice."""
        analyse = self.analyser
        return self.search_weighted([Counter(analyse(query)) for query in queries], k)

    def search_weighted(self, queries: Iterable[Mapping[str, float]], k: int) -> Hits:
        """Search with given terms (from the analyser) and weights. Unknown terms match nothing.

        Raises UsageError if `index` has not been called, if k is below 1, or if a weight is negative or not finite.
        """
        index = self.postings
        size = len(self._vocabulary)
        known = [
            {self._vocabulary[term]: weight for term, weight in query.items() if term in self._vocabulary}
            for query in queries
        ]
        if self.fields == "multi":
            known = [{field * size + term: query[term] for field in (0, 1) for term in query} for query in known]
        return index.search(known, k, self.threads, self.compiled)

    def document_frequency(self, term: str) -> int:
        """Return the number of passages that contain the term (in their text, if the fields are separate)."""
        index, number = self.postings, self._vocabulary.get(term)
        return 0 if number is None else int(index.starts[number + 1] - index.starts[number])

    @property
    def postings(self) -> InvertedIndex:
        """Return the inverted index, with terms numbered as in `vocabulary`. Raises UsageError if there is none."""
        return self.indexed(self._index)

    @property
    def index_bytes(self) -> int | None:
        """Return the size of the index in bytes, without the vocabulary."""
        return self._index.bytes if self._index else None

    def describe(self) -> Mapping[str, object]:
        analyser = dict(self.analyser.describe())
        return {**self.weighting.describe(), "analyser": analyser, "fields": self.fields, "ties": "by position"}


class FieldSettings(Analysing.Settings):
    """Settings for indexing title and text.

    Attributes:
        fields: `flat` indexes title and text as one text; `multi` scores them separately and adds the scores.
    """

    fields: Literal["flat", "multi"] = "flat"

"""Teachers to distil from: one re-ranker, or the mean of several.

BEIR's cross-encoder learned from an ensemble of three (its section 4, after Hofstätter and others, 2021), E5 from one
(section 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.retrievers.base import Corpus, Reranker, show_corpus
from airgen.retrievers.load import load_reranker

TeacherSpec = str | dict[str, Any] | list[str | dict[str, Any]] | None


class Teacher:
    """Scores passages of one corpus; `spec` is an argument of `load_reranker`, or a list of them.

    Each (query, passage) pair is scored once: scores are kept in memory. Raises the re-rankers' UsageError, ModelError.
    """

    def __init__(self, spec: TeacherSpec, corpus: Corpus) -> None:
        self._corpus = corpus
        specs = spec if isinstance(spec, list) else [spec] if spec is not None else []
        self._teachers: list[Reranker] = [load_reranker(one) for one in specs]
        for teacher in self._teachers:
            show_corpus(teacher, corpus)
        self._known: dict[str, dict[int, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._teachers)

    def scores(self, queries: Sequence[str], places: NDArray[np.int64]) -> NDArray[np.float32]:
        """The mean score over all teachers, in the shape of `places`, (queries, passages)."""
        missing: dict[tuple[str, int], None] = {}
        for query, row in zip(queries, places.tolist(), strict=True):
            known = self._known.setdefault(query, {})
            missing.update(((query, place), None) for place in row if place not in known)
        if missing:
            pairs = [(query, self._corpus.full_text(place)) for query, place in missing]
            total = np.mean([teacher.score(pairs) for teacher in self._teachers], axis=0)
            for (query, place), value in zip(missing, total.tolist(), strict=True):
                self._known[query][place] = value
        rows = [
            [self._known[query][place] for place in row] for query, row in zip(queries, places.tolist(), strict=True)
        ]
        return np.array(rows, np.float32)

    def describe(self) -> list[Mapping[str, object]]:
        """The settings of each teacher."""
        return [teacher.describe() for teacher in self._teachers]

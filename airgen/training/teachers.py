"""Teachers for distillation: re-rankers, or their scores from a file, for all datasets or for each dataset.

    --set teacher=BAAI/bge-reranker-base        for all queries
    --on msmarco=1,teacher=simlm.jsonl.gz       the scores of a file, whose passages are the hard negatives
    --on nli=1,teacher=none                     learned from labels alone, as E5 learns NLI (its section 4.2)

A file of scores is TSV or JSON Lines with query-id, corpus-id and score, like qrels, or has SimLM's rows: {"query_id",
"positives": {"doc_id": [...], "score": [...]}, "negatives": {...}}.

BEIR's cross-encoder learned from an ensemble of three re-rankers (its section 4, after Hofstätter and others, 2021), E5
from one (section 4.2).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.beir import objects
from airgen.errors import DatasetError
from airgen.retrievers.load import load_reranker
from airgen.retrievers.passages import Passages
from airgen.retrievers.protocols import Reranker, show_corpus
from airgen.tables.pairs import label_rows
from airgen.training.dataset_columns import Example, Examples, KeyPlaces, key_of

TeacherSpec = str | dict[str, Any] | list[str | dict[str, Any]] | None

NONE = "none"
"""The value for a dataset without a teacher."""


class FileScores:
    """The scores in a file for the examples of a training set."""

    def __init__(self, rows: Iterable[tuple[str, str, float]], examples: Examples, corpus: Passages) -> None:
        """Load the scores of these queries and passages. Raises DatasetError if there are none."""
        ids = [key_of(key) for key in examples.each_id()]
        self._examples, passages = KeyPlaces(ids), KeyPlaces([*map(key_of, corpus.ids)])
        keys, scores = array("q"), array("f")
        for query, passage, score in rows:
            keys.extend((key_of(query), key_of(passage)))
            scores.append(score)
        pairs = np.asarray(keys).reshape(-1, 2)
        numbers, places = self._examples.find(pairs[:, 0]), passages.find(pairs[:, 1])
        known = (numbers >= 0) & (places >= 0)
        if not known.any():
            raise DatasetError(
                f"{len(pairs):,} scores of a teacher, but none is for a training query and a passage of its corpus"
            )
        order = np.flatnonzero(known)[np.argsort(numbers[known], kind="stable")]
        self._places, self._scores = places[order], np.asarray(scores)[order]
        self._starts = np.searchsorted(numbers[order], np.arange(len(ids) + 1))

    def _of(self, number: int) -> dict[int, float]:
        rows = slice(self._starts[number], self._starts[number + 1])
        return dict(zip(self._places[rows].tolist(), self._scores[rows].tolist(), strict=True))

    def negatives(self, number: int, positives: Iterable[int]) -> tuple[int, ...]:
        """Return an example's scored passages that are not relevant, highest score first."""
        scores, known = self._of(number), set(positives)
        return tuple(sorted((place for place in scores if place not in known), key=lambda at: (-scores[at], at)))

    def scores(self, query: str, places: Sequence[int]) -> list[float]:
        """Return the score of each passage for a query, given by its id, or NaN if the file has none."""
        number = int(self._examples.find([key_of(query)])[0])
        of_query = self._of(number) if number >= 0 else {}
        return [of_query.get(place, np.nan) for place in places]


def read_scores(path: Path) -> Iterator[tuple[str, str, float]]:
    """Yield the (query id, passage id, score) rows of a file. Raises DatasetError with file and line."""
    if ".jsonl" not in path.suffixes or not any("positives" in row for _, row in _first(path)):
        yield from ((query, passage, score) for _, query, passage, score in label_rows(path))
        return
    for where, row in objects(path):
        try:
            for side in (row["positives"], row["negatives"]):
                for passage, score in zip(side["doc_id"], side["score"], strict=True):
                    yield str(row["query_id"]), str(passage), float(score)
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(
                f"{where}: needs query_id, positives and negatives; in each of the two, doc_id and score must be "
                f"lists of equal length ({error})"
            ) from error


def _first(path: Path) -> list[tuple[object, dict[str, Any]]]:
    return [row for row, _ in zip(objects(path), range(1), strict=False)]


@dataclass(frozen=True)
class OwnTeacher:
    """The teacher of one dataset, whose passages are the next `passages` passages of a mixed corpus.

    Attributes:
        spec: The spec of a re-ranker, "none", or None for the recipe's teacher.
        scores: Scores from a file.
        prefix: Prefix of its query ids in a mixed dataset.
    """

    passages: int
    spec: str | None = None
    scores: FileScores | None = None
    prefix: str = ""


class Teacher:
    """Scores passages of a corpus. Each (query, passage) pair is scored once, since scores are cached in memory.

    Raises the re-rankers' UsageError or ModelError.

    Args:
        spec: The recipe's teacher: one or more arguments for `load_reranker`.
        teachers: The datasets' own teachers, if any, in the order of their passages in the corpus.
    """

    def __init__(self, spec: TeacherSpec, corpus: Passages, teachers: Sequence[OwnTeacher] = ()) -> None:
        self._corpus = corpus
        self._parts = tuple(teachers) or (OwnTeacher(len(corpus)),)
        self._ends = [*accumulate(part.passages for part in self._parts)]
        usual = _several(spec)
        self._rerankers = [self._of_part(part, usual) for part in self._parts]
        self._known: dict[tuple[str, int], float] = {}

    def _of_part(self, part: OwnTeacher, usual: list[Reranker]) -> list[Reranker]:
        if part.scores is not None or part.spec == NONE:
            return []
        rerankers = usual if part.spec is None else _several(part.spec)
        for teacher in rerankers:
            show_corpus(teacher, self._corpus)
        return rerankers

    def __bool__(self) -> bool:
        return any(self._rerankers) or any(part.scores for part in self._parts)

    @property
    def of_all(self) -> bool:
        """Return whether every query has a teacher."""
        return all(rerankers or part.scores for rerankers, part in zip(self._rerankers, self._parts, strict=True))

    def scores(self, examples: Sequence[Example], places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the mean score over a query's teachers, in the shape of `places`, (queries, passages).

        The score is NaN if a query has no teacher, or if a file does not contain the pair.
        """
        means = np.full(places.shape, np.nan, np.float32)
        parts = np.searchsorted(self._ends, places[:, 0], "right")
        for number in np.unique(parts).tolist():
            rows = np.flatnonzero(parts == number).tolist()
            part, first = self._parts[number], self._ends[number] - self._parts[number].passages
            if part.scores is not None:
                for row in rows:
                    own_places = (places[row] - first).tolist()
                    means[row] = part.scores.scores(examples[row].id.removeprefix(part.prefix), own_places)
            elif self._rerankers[number]:
                pairs = [(examples[row].query, place) for row in rows for place in places[row].tolist()]
                means[rows] = np.reshape(self._asked(self._rerankers[number], pairs), (len(rows), -1))
        return means

    def _asked(self, teachers: Sequence[Reranker], pairs: Sequence[tuple[str, int]]) -> list[float]:
        missing = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if missing:
            texts = [(query, self._corpus.full_text(place)) for query, place in missing]
            total = np.mean([teacher.score(texts) for teacher in teachers], axis=0)
            self._known.update(zip(missing, total.tolist(), strict=True))
        return [self._known[pair] for pair in pairs]

    def describe(self) -> list[Mapping[str, object]]:
        """Return the settings of each re-ranker."""
        return [teacher.describe() for rerankers in self._rerankers for teacher in rerankers]


def _several(spec: TeacherSpec) -> list[Reranker]:
    specs = spec if isinstance(spec, list) else [spec] if spec is not None else []
    return [load_reranker(reranker) for reranker in specs]

"""A dataset as columns: texts on disk, labels as numbers in memory; and the training queries among them.

columns = DatasetColumns(BeirDataset.open("data/pairs"), "en")
for query, passages, labels in columns.groups(dataset.label_rows("train")):
    columns.query_ids[query], columns.corpus.ids[passages[0]], labels[0]
examples[0]                 # Example(id="q1", query="...", positives=(3,), negatives=())
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.beir import BeirDataset
from airgen.retrievers.base import Corpus
from airgen.sequences import Indexed
from airgen.training.stored import KeyCounts, KeyPlaces, StoredTexts, key_of

Group = tuple[int, list[int], list[float]]
"""A query and its labels, in the order of the file. Places are -1 where the file of texts lacks the id."""


class DatasetColumns:
    """Corpus and queries of a dataset. Raises DatasetError for a damaged file."""

    def __init__(self, dataset: BeirDataset, language: str) -> None:
        ids, texts, titles = StoredTexts(), StoredTexts(), StoredTexts()
        self.query_ids, self.query_texts = StoredTexts(), StoredTexts()
        passages, queries, titled = array("q"), array("q"), False
        for passage in dataset.passages(KeyCounts()):
            ids.append(passage.id)
            texts.append(passage.text)
            titles.append(passage.title)
            titled = titled or bool(passage.title)
            passages.append(key_of(passage.id))
        for query in dataset.each_query(seen=KeyCounts()):
            self.query_ids.append(query.id)
            self.query_texts.append(query.text)
            queries.append(key_of(query.id))
        self.corpus = Corpus(ids, texts, titles if titled else (), language)
        self._passages, self._queries = KeyPlaces(passages), KeyPlaces(queries)

    def text(self, key: str) -> str:
        """The text of a query by its id, or ""."""
        place = int(self._queries.find([key_of(key)])[0])
        return str(self.query_texts[place]) if place >= 0 else ""

    def places_of(self, queries: Iterable[str], passages: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The places of queries and of passages by their ids; -1 where there is none."""
        return self._queries.find([*map(key_of, queries)]), self._passages.find([*map(key_of, passages)])

    def ordered(self, found: list[tuple[float, int]]) -> list[int]:
        """The places of passages in the order of these numbers; those of one number in the order of their ids."""
        if len(found) < 2:
            return [place for _, place in found]
        return [place for _, _, place in sorted((number, self.corpus.ids[place], place) for number, place in found)]

    def groups(self, rows: Iterable[tuple[str, str, float]]) -> Iterator[Group] | None:
        """The labels of each query, in the order of its first row; None if a pair has two labels that differ."""
        keys, values = array("q"), array("d")
        for query, passage, label in rows:
            keys.extend((key_of(query), key_of(passage)))
            values.append(label)
        pairs, labels = np.asarray(keys).reshape(-1, 2), np.asarray(values)
        order = np.lexsort(pairs.T[::-1])
        again = (np.diff(pairs[order], axis=0) == 0).all(axis=1)
        if (again & (np.diff(labels[order]) != 0)).any():
            return None
        kept = np.ones(len(labels), np.bool_)
        kept[order[1:][again]] = False
        queries, passages = pairs[kept].T
        _, first, group = np.unique(queries, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))[group]
        order = np.argsort(rank, kind="stable")
        ends = np.cumsum(np.bincount(rank))
        found = self._queries.find(queries[np.sort(first)]), self._passages.find(passages[order])
        return _groups(*found, labels[kept][order], ends)


def _groups(
    queries: NDArray[np.int64], places: NDArray[np.int64], labels: NDArray[np.float64], ends: NDArray[np.int64]
) -> Iterator[Group]:
    start = 0
    for query, end in zip(queries, ends, strict=True):
        yield int(query), places[start:end].tolist(), labels[start:end].tolist()
        start = end


@dataclass(frozen=True, slots=True)
class Example:
    """A training query. `positives` and `negatives` are places in the corpus, best (or highest ranked) first."""

    id: str
    query: str
    positives: tuple[int, ...]
    negatives: tuple[int, ...] = ()


class _Lists:
    """Lists of places, one after another in one array."""

    def __init__(self) -> None:
        self.ends, self.places = array("q", [0]), array("i")

    def append(self, places: Iterable[int]) -> None:
        self.places.extend(places)
        self.ends.append(len(self.places))

    def __getitem__(self, number: int) -> tuple[int, ...]:
        return tuple(self.places[self.ends[number] : self.ends[number + 1]])


class Examples(Indexed[Example]):
    """Examples whose ids and texts are in `ids` and `texts`, at the places of their queries."""

    def __init__(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        self.ids, self.texts = ids, texts
        self._queries, self._positives, self._negatives = array("i"), _Lists(), _Lists()

    def append(self, query: int, positives: Iterable[int], negatives: Iterable[int]) -> None:
        """Add the query at that place."""
        self._queries.append(query)
        self._positives.append(positives)
        self._negatives.append(negatives)

    def __len__(self) -> int:
        return len(self._queries)

    def _item(self, place: int) -> Example:
        query = self._queries[place]
        return Example(self.ids[query], self.texts[query], self._positives[place], self._negatives[place])

    def rows(self) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """(place of the query, positives, negatives) of each, without its texts."""
        for number, query in enumerate(self._queries):
            yield query, self._positives[number], self._negatives[number]

    def where(self, kept: NDArray[np.bool_]) -> Examples:
        """Those that are kept, in the same order."""
        found = Examples(self.ids, self.texts)
        for row, stays in zip(self.rows(), kept, strict=True):
            if stays:
                found.append(*row)
        return found

    def with_negatives(self, lists: Iterable[Iterable[int]]) -> Examples:
        """The same examples with other negatives, one list for each."""
        found = Examples(self.ids, self.texts)
        for (query, positives, _), negatives in zip(self.rows(), lists, strict=True):
            found.append(query, positives, negatives)
        return found

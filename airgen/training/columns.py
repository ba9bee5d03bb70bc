"""The files of a dataset as columns: texts on disk, labels as numbers in memory.

columns = DatasetColumns(BeirDataset.open("data/pairs"), "en")
for group in columns.groups(dataset.label_rows("train")):
    columns.query_ids[group.query], group.passages, group.labels
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.beir import BeirDataset
from airgen.retrievers.base import Corpus
from airgen.training.mining.seen_keys import KeyCounts
from airgen.training.stored import KeyPlaces, StoredTexts, key_of

_GROUPS = 10_000  # queries made into Python's numbers at once


@dataclass(frozen=True, slots=True)
class LabelGroup:
    """The labels of one query, in the order of the file. Places are -1 where the file of texts lacks the id."""

    query: int
    passages: list[int]
    labels: list[float]


class DatasetColumns:
    """Corpus and queries of a dataset. Raises DatasetError for a damaged file."""

    def __init__(self, dataset: BeirDataset, language: str) -> None:
        self.corpus, passages = _stored_corpus(dataset, language)
        self.query_ids, self.query_texts = StoredTexts(), StoredTexts()
        queries = array("q")
        for query in dataset.each_query(seen=_Seen()):
            self.query_ids.append(query.id)
            self.query_texts.append(query.text)
            queries.append(key_of(query.id))
        self._passages, self._queries = KeyPlaces(passages), KeyPlaces(queries)

    def text(self, key: str) -> str:
        """The text of a query by its id, or ""."""
        place = int(self._queries.find([key_of(key)])[0])
        return str(self.query_texts[place]) if place >= 0 else ""

    def ordered(self, found: list[tuple[float, int]]) -> list[int]:
        """The places of passages in the order of these numbers; those of one number in the order of their ids."""
        if len(found) < 2:
            return [place for _, place in found]
        return [place for _, _, place in sorted((number, self.corpus.ids[place], place) for number, place in found)]

    def groups(self, rows: Iterable[tuple[str, str, float]]) -> Iterator[LabelGroup] | None:
        """The labels of each query, in the order of its first row; None if a pair has two labels that differ."""
        asked, answered, values = array("q"), array("q"), array("d")
        for query, passage, label in rows:
            asked.append(key_of(query))
            answered.append(key_of(passage))
            values.append(label)
        queries, passages, labels = np.asarray(asked), np.asarray(answered), np.asarray(values)
        known, first, group = np.unique(queries, return_index=True, return_inverse=True)
        rank = np.empty(len(known), np.int64)
        rank[np.argsort(first, kind="stable")] = np.arange(len(known))
        order = np.lexsort((np.arange(len(group)), passages, rank[group]))
        again = (np.diff(rank[group][order]) == 0) & (np.diff(passages[order]) == 0)
        if np.any(again & (np.diff(labels[order]) != 0)):
            return None
        kept = np.ones(len(order), np.bool_)
        kept[order[1:][again]] = False
        order = np.argsort(rank[group], kind="stable")
        order = order[kept[order]]
        places = self._passages.find(passages[order])
        ends = np.cumsum(np.bincount(rank[group][order], minlength=len(known)))
        asked_at = self._queries.find(queries[np.sort(first)])
        return _lists(asked_at, places, labels[order], ends)


def _lists(
    queries: NDArray[np.int64],
    places: NDArray[np.int64],
    labels: NDArray[np.float64],
    ends: NDArray[np.int64],
) -> Iterator[LabelGroup]:
    start = 0
    for first in range(0, len(queries), _GROUPS):
        some, lasts = queries[first : first + _GROUPS], ends[first : first + _GROUPS]
        for query, end in zip(some.tolist(), lasts.tolist(), strict=True):
            yield LabelGroup(query, places[start:end].tolist(), labels[start:end].tolist())
            start = end


def _stored_corpus(dataset: BeirDataset, language: str) -> tuple[Corpus, array[int]]:
    """The corpus with its texts on disk, and a key of each id."""
    ids, texts, titles = StoredTexts(), StoredTexts(), StoredTexts()
    keys = array("q")
    for passage in dataset.passages(_Seen()):
        if passage.title and not titles:
            for _ in range(len(ids)):
                titles.append("")
        if passage.title or titles:
            titles.append(passage.title)
        ids.append(passage.id)
        texts.append(passage.text)
        keys.append(key_of(passage.id))
    return Corpus(ids, texts, titles if titles else (), language), keys


class _Seen:
    """Ids that were met, known by their hashes on disk: it stands in for a set of texts."""

    def __init__(self) -> None:
        self._keys = KeyCounts()

    def __contains__(self, text: object) -> bool:
        return key_of(str(text)) in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, text: str) -> None:
        """Note an id."""
        self._keys.add(key_of(text))

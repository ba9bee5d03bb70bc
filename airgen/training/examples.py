"""Training queries with their positives and negatives: numbers in memory, texts on disk.

examples = Examples.grouped(queries, corpus_ids, rows)
examples[0]                 # Example(id="q1", query="...", positives=(3,), negatives=())
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airgen.sequences import Indexed


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
    """Examples whose ids and texts are in `ids` and `texts`, at the places `of_queries`."""

    def __init__(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        self.ids, self.texts = ids, texts
        self._queries = array("i")
        self._positives, self._negatives = _Lists(), _Lists()
        self._chosen: NDArray[np.int64] | None = None

    def append(self, query: int, positives: Iterable[int], negatives: Iterable[int]) -> None:
        """Add the query at that place."""
        self._queries.append(query)
        self._positives.append(positives)
        self._negatives.append(negatives)

    def __len__(self) -> int:
        return len(self._queries) if self._chosen is None else len(self._chosen)

    def _item(self, place: int) -> Example:
        number = place if self._chosen is None else int(self._chosen[place])
        query = self._queries[number]
        return Example(self.ids[query], self.texts[query], self._positives[number], self._negatives[number])

    def __iter__(self) -> Iterator[Example]:
        for place in range(len(self)):
            yield self[place]

    def rows(self) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """(place of the query, positives, negatives) of each, without its texts."""
        for number in self._numbers().tolist():
            yield self._queries[number], self._positives[number], self._negatives[number]

    def where(self, kept: NDArray[np.bool_]) -> Examples:
        """Those that are kept, in the same order."""
        found = Examples(self.ids, self.texts)
        found._queries, found._positives, found._negatives = self._queries, self._positives, self._negatives
        found._chosen = self._numbers()[kept]
        return found

    def with_negatives(self, lists: Iterable[Iterable[int]]) -> Examples:
        """The same examples with other negatives, one list for each."""
        found = Examples(self.ids, self.texts)
        for (query, positives, _), negatives in zip(self.rows(), lists, strict=True):
            found.append(query, positives, negatives)
        return found

    def _numbers(self) -> NDArray[np.int64]:
        return np.arange(len(self._queries)) if self._chosen is None else self._chosen

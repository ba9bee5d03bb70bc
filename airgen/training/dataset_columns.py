"""A dataset as columns, with texts on disk and labels as numbers in memory, and its training queries.

columns = DatasetColumns(BeirDataset.open("data/pairs"), "en")
for query, passages, labels in columns.groups(dataset.label_rows("train")):
    columns.query_ids[query], columns.corpus.ids[passages[0]], labels[0]
examples[0]                 # Example(id="q1", query="...", positives=(3,), negatives=())

Data that need not be in memory is in temporary databases (in TMPDIR), so training on millions of pairs takes about 60
bytes for each, whatever the length of the texts. (Reading a text takes 2.6 microseconds. A row of `datasets` takes 14,
and its Arrow column .6, but nothing can be added to the latter once it has been read, and a killed process leaves its
files behind.)
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from airgen.components.keys import text_key
from airgen.dataset.beir import BeirDataset
from airgen.errors import AirgenError
from airgen.retrievers.passages import Passages
from airgen.storage.sequences import Indexed
from airgen.storage.sql_connections import temporary

T = TypeVar("T")

Group = tuple[int, list[int], list[float]]
"""A query and its labels in file order. A position is -1 if the id is not in the text file."""

_CACHE_MIB = 16  # MiB of a temporary database in memory


def key_of(text: str) -> int:
    """Return a 63-bit hash. Among a billion texts, the probability that any two have the same hash is 5%."""
    return int(text_key(text)[:16], 16) >> 1


class _Table:
    """Numbered values in a temporary database. Raises AirgenError if they cannot be written."""

    SCHEMA = "CREATE TABLE held (key INTEGER PRIMARY KEY, value)"

    def __init__(self) -> None:
        self._base = temporary(self.SCHEMA, cache=_CACHE_MIB)

    def _run(self, words: str, *values: object) -> Any:
        """Return the first value of the result, or None."""
        try:
            return next(iter(self._base.execute(words, values).fetchone() or ()), None)
        except sqlite3.Error as error:
            raise AirgenError(
                f"a temporary file cannot be written ({error}): free disk space, or set TMPDIR"
            ) from error

    def _put(self, key: int | bytes, text: str) -> None:
        self._run("INSERT OR REPLACE INTO held VALUES (?, ?)", key, text.encode("utf-8", "surrogatepass"))

    def _get(self, key: int | bytes) -> str | None:
        value = self._run("SELECT value FROM held WHERE key = ?", key)
        return None if value is None else bytes(value).decode("utf-8", "surrogatepass")


class StoredTexts(_Table, Indexed[str]):
    """A list of texts."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        super().__init__()
        self._count = 0
        for text in texts:
            self.append(text)

    def append(self, text: str) -> None:
        """Add a text at the end."""
        self._put(self._count, text)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def _item(self, place: int) -> str:
        return str(self._get(int(place)))  # a numpy number would be bound as bytes


class TextTable(_Table):
    """Texts by key, stored in the order of the keys, as in dumps."""

    SCHEMA = "CREATE TABLE held (key BLOB PRIMARY KEY, value) WITHOUT ROWID"

    def put(self, key: str, text: str) -> None:
        """Store a text, replacing any earlier text with the same key."""
        self._put(key.encode("utf-8", "surrogatepass"), text)

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        return self._get(key.encode("utf-8", "surrogatepass"))


class KeyCounts(_Table):
    """Counts of many texts. A key is a text, or the hash of one."""

    def __len__(self) -> int:
        return int(self._run("SELECT count(*) FROM held"))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int | str) and self.count(key) > 0

    def count(self, key: int | str) -> int:
        """Return how many times the key was added."""
        number = key_of(key) if isinstance(key, str) else int(key)
        return self._run("SELECT value FROM held WHERE key = ?", number) or 0

    def add(self, key: int | str) -> int:
        """Add the key, and return how many times it has been added, including this time."""
        words = "INSERT INTO held VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET value = value + 1 RETURNING value"
        return int(self._run(words, key_of(key) if isinstance(key, str) else int(key)))


class KeyPlaces:
    """The places of many keys, with 12 bytes per key instead of a dict's 100."""

    def __init__(self, keys: Sequence[int] | array[int] | NDArray[np.int64]) -> None:
        all_keys = np.asarray(keys, np.int64)
        self._order = np.argsort(all_keys, kind="stable").astype(np.int32)
        self._sorted = all_keys[self._order]

    def find(self, keys: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first place of each key, or -1: int64 (n,)."""
        wanted = np.asarray(keys, np.int64)
        if not len(self._sorted):
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        return np.where(self._sorted[at] == wanted, self._order[at], -1).astype(np.int64)

    def count(self, keys: Sequence[int]) -> int:
        """Return the number of places that have one of these keys."""
        first, last = (np.searchsorted(self._sorted, np.asarray(keys, np.int64), side) for side in ("left", "right"))
        return int((last - first).sum())


class Joined(Indexed[T]):
    """The concatenation of several sequences. `change(number of the sequence, item)` transforms each item."""

    def __init__(self, parts: Sequence[Sequence[T]], change: Callable[[int, T], T] = lambda _, item: item) -> None:
        self._parts, self._change = parts, change
        self._starts = [0, *accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self._starts[-1]

    def _item(self, place: int) -> T:
        part = int(np.searchsorted(self._starts, place, "right")) - 1
        return self._change(part, self._parts[part][place - self._starts[part]])


class _Chosen(Indexed[T]):
    """The items of a sequence at these places."""

    def __init__(self, items: Sequence[T], places: Sequence[int] | NDArray[np.int64]) -> None:
        self._items, self._places = items, places

    def __len__(self) -> int:
        return len(self._places)

    def _item(self, place: int) -> T:
        return self._items[int(self._places[place])]


def part_of(corpus: Passages, places: Sequence[int] | NDArray[np.int64]) -> Passages:
    """Return the passages at these places."""
    ids, texts = _Chosen(corpus.ids, places), _Chosen(corpus.texts, places)
    return Passages(ids, texts, _Chosen(corpus.titles, places) if corpus.titles else (), corpus.language)


class DatasetColumns:
    """The corpus and queries of a dataset. Raises DatasetError if a file is damaged."""

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
        self.corpus = Passages(ids, texts, titles if titled else (), language)
        self._passages, self._queries = KeyPlaces(passages), KeyPlaces(queries)

    def text(self, key: str) -> str:
        """Return the text of a query by its id, or ""."""
        place = int(self._queries.find([key_of(key)])[0])
        return str(self.query_texts[place]) if place >= 0 else ""

    def places_of(self, queries: Iterable[str], passages: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the places of queries and of passages by their ids, or -1 for an unknown id."""
        return self._queries.find([*map(key_of, queries)]), self._passages.find([*map(key_of, passages)])

    def ordered(self, numbered: list[tuple[float, int]]) -> list[int]:
        """Return the places of passages sorted by these numbers. Ties are in the order of the ids."""
        if len(numbered) < 2:
            return [place for _, place in numbered]
        return [place for _, _, place in sorted((number, self.corpus.ids[place], place) for number, place in numbered)]

    def groups(self, rows: Iterable[tuple[str, str, float]]) -> Iterator[Group] | None:
        """Yield the labels of each query, in the order of its first row, or None if a pair has two different labels."""
        keys, values = array("q"), array("d")
        for query, passage, label in rows:
            keys.extend((key_of(query), key_of(passage)))
            values.append(label)
        pairs, labels = np.asarray(keys).reshape(-1, 2), np.asarray(values)
        _, first, same = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        if (labels != labels[first[same.ravel()]]).any():
            return None
        first.sort()
        queries, passages = pairs[first].T
        _, start, group = np.unique(queries, return_index=True, return_inverse=True)
        order = np.argsort(start[group], kind="stable")
        ends = np.flatnonzero(np.diff(group[order], append=-1)) + 1
        places = self._queries.find(queries[np.sort(start)]), self._passages.find(passages[order])
        return _groups(*places, labels[first][order], ends)


def _groups(
    queries: NDArray[np.int64], places: NDArray[np.int64], labels: NDArray[np.float64], ends: NDArray[np.int64]
) -> Iterator[Group]:
    start = 0
    for query, end in zip(queries, ends, strict=True):
        yield int(query), places[start:end].tolist(), labels[start:end].tolist()
        start = end


@dataclass(frozen=True, slots=True)
class Example:
    """A training query. `positives` and `negatives` are places in the corpus, best (or highest-ranked) first."""

    id: str
    query: str
    positives: tuple[int, ...]
    negatives: tuple[int, ...] = ()


class _Lists:
    """Lists of places, concatenated in one array."""

    def __init__(self) -> None:
        self.ends, self.places = array("q", [0]), array("i")

    def append(self, places: Iterable[int]) -> None:
        self.places.extend(places)
        self.ends.append(len(self.places))

    def __getitem__(self, number: int) -> tuple[int, ...]:
        return tuple(self.places[self.ends[number] : self.ends[number + 1]])


class Examples(Indexed[Example]):
    """Training examples, whose ids and texts are in `ids` and `texts` at the places of their queries."""

    def __init__(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        self.ids, self.texts = ids, texts
        self._queries, self._positives, self._negatives = array("i"), _Lists(), _Lists()

    def append(self, query: int, positives: Iterable[int], negatives: Iterable[int]) -> None:
        """Add the query at this place."""
        self._queries.append(query)
        self._positives.append(positives)
        self._negatives.append(negatives)

    def __len__(self) -> int:
        return len(self._queries)

    def _item(self, place: int) -> Example:
        query = self._queries[place]
        return Example(self.ids[query], self.texts[query], self._positives[place], self._negatives[place])

    def each_id(self) -> Iterator[str]:
        """Yield the ids without reading the texts."""
        return (self.ids[query] for query in self._queries)

    def rows(self) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """Yield (place of the query, positives, negatives) for each example, without its texts."""
        for number, query in enumerate(self._queries):
            yield query, self._positives[number], self._negatives[number]

    def where(self, mask: NDArray[np.bool_]) -> Examples:
        """Return the examples selected by the mask, in the same order."""
        examples = Examples(self.ids, self.texts)
        for row, wanted in zip(self.rows(), mask, strict=True):
            if wanted:
                examples.append(*row)
        return examples

    def with_negatives(self, lists: Iterable[Iterable[int]]) -> Examples:
        """Return the same examples with other negatives, one list per example."""
        examples = Examples(self.ids, self.texts)
        for (query, positives, _), negatives in zip(self.rows(), lists, strict=True):
            examples.append(query, positives, negatives)
        return examples

"""The corpus of quality control: the passages, then the hard negatives. Its texts stay in the work database.

A passage costs about 20 bytes of memory: its id and its place in the database.

pool = Pool.of(store, plan, accepted)
pool.corpus(language)          # what retrievers take; a text is read when it is asked for
pool.rows(["doc-7"])           # {"doc-7": (title, text)}
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from airgen.pipeline.generate import Accepted
from airgen.pipeline.stage import Plan
from airgen.retrievers.base import Corpus
from airgen.sequences import Indexed
from airgen.store import Store

_BLOCK = 1024  # passages read at once where single ones are asked for: neighbours are asked for next
_COLUMNS = "t.id, t.title, t.text"
_PASSAGES = "SELECT t.id, t.title, t.text FROM membership m JOIN passage t ON t.key = m.key WHERE m.fingerprint = ?"

Text = tuple[str, str]  # title and text


@dataclass(frozen=True)
class Pool:
    """Passages of one state of the corpus in their order, then hard negatives by id.

    `ids` are those of both, `places` are where the passages stand in their table of the work database.
    """

    store: Store
    corpus_fingerprint: str
    ids: Sequence[str]
    places: NDArray[np.int64]
    negatives: Mapping[str, Text]
    digest: str

    @classmethod
    def of(cls, store: Store, plan: Plan, accepted: Accepted) -> Pool:
        """The pool of a job, with a digest of everything that is in it."""
        negatives = {one.id: (one.title, one.text) for lineage in accepted.lineages for one in lineage.hard_negatives}
        digest, ids = hashlib.blake2b(digest_size=16), _Ids()
        places, _ = store.places(plan["corpus"])
        rest = ((id_, *negatives[id_]) for id_ in sorted(negatives))
        for id_, title, text in chain(_passages(store, places), rest):
            digest.update(f"{id_}\x1f{title}\x1f{text}\x1e".encode("utf-8", "surrogatepass"))
            ids.append(id_)
        return cls(store, plan["corpus"], ids, places, dict(sorted(negatives.items())), digest.hexdigest())

    def corpus(self, language: str) -> Corpus:
        """The pool as retrievers take it."""
        return Corpus(self.ids, _Column(self, 1), _Column(self, 0), language)

    def rows(self, ids: Collection[str]) -> dict[str, Text]:
        """Titles and texts by id; ids that are not in the pool are left out."""
        wanted = set(ids)
        found = {id_: self.negatives[id_] for id_ in wanted if id_ in self.negatives}
        sql = f"{_PASSAGES} AND t.id IN (SELECT unnest(?))"
        passages = self.store.query(sql, [self.corpus_fingerprint, sorted(wanted - set(found))])
        return found | {id_: (title, text) for id_, title, text in passages}

    def titles(self, ids: Collection[str]) -> dict[str, str]:
        """Titles by id, of passages alone."""
        sql = _PASSAGES.replace(", t.text", "") + " AND t.id IN (SELECT unnest(?))"
        return dict(self.store.query(sql, [self.corpus_fingerprint, sorted(ids)]))

    def __iter__(self) -> Iterator[Text]:
        for _, title, text in _passages(self.store, self.places):
            yield title, text
        yield from self.negatives.values()

    def block(self, number: int) -> list[Text]:
        """Titles and texts of the places from `number` times 1024 on."""
        if self._last and self._last[0][0] == number:
            return self._last[0][1]
        span = self.places[number * _BLOCK : (number + 1) * _BLOCK]
        found: list[Text] = self.store.passages_at(span, "t.title, t.text")
        beyond = max(0, number * _BLOCK - len(self.places))
        found += islice(self.negatives.values(), beyond, beyond + _BLOCK - len(found))
        self._last[:] = [(number, found)]
        return found

    @cached_property
    def _last(self) -> list[tuple[int, list[Text]]]:
        return []  # the block that was read last


def _passages(store: Store, places: NDArray[np.int64]) -> Iterator[tuple[str, str, str]]:
    """Ids, titles and texts, a block in memory at a time."""
    for first in range(0, len(places), _BLOCK):
        yield from store.passages_at(places[first : first + _BLOCK], _COLUMNS)


class _Ids(Indexed[str]):
    """Strings one after another in one array: a list of them would take four times the memory."""

    def __init__(self) -> None:
        self._bytes, self._ends = bytearray(), array("q", [0])

    def append(self, id_: str) -> None:
        self._bytes += id_.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def _item(self, place: int) -> str:
        return self._bytes[self._ends[place] : self._ends[place + 1]].decode("utf-8", "surrogatepass")


class _Column(Indexed[str]):
    """Titles (0) or texts (1) of a pool, by place."""

    def __init__(self, pool: Pool, which: int) -> None:
        self._pool, self._which = pool, which

    def __len__(self) -> int:
        return len(self._pool.ids)

    def __iter__(self) -> Iterator[str]:
        return (row[self._which] for row in self._pool)

    def _item(self, place: int) -> str:
        number, at = divmod(place, _BLOCK)
        return self._pool.block(number)[at][self._which]

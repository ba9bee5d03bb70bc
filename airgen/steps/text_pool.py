"""The texts for quality control: the passages of one corpus state, followed by the generated hard negatives.

Texts are read from the work database on demand, so a passage takes only about 20 bytes of memory.
"""

import hashlib
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from airgen.retrievers.passages import Passages
from airgen.steps.accepted import Accepted
from airgen.steps.step import Plan
from airgen.storage.sequences import Indexed
from airgen.storage.store import Store

_BLOCK_PASSAGES = 1024  # texts read at once, since the neighbours of a text are needed next
_KEPT_BLOCKS = 8  # blocks in memory, because the hits of a query are spread over the corpus


Text = tuple[str, str]  # title and text


@dataclass(frozen=True)
class Pool:
    """The passages of one corpus state in order, followed by hard negatives sorted by id.

    `ids` are the ids of both, and `places` the positions of the passages in their table of the work database.
    """

    store: Store
    corpus_fingerprint: str
    ids: Sequence[str]
    places: NDArray[np.int64]
    negatives: Mapping[str, Text]
    digest: str

    @classmethod
    def of(cls, store: Store, plan: Plan, accepted: Accepted) -> "Pool":
        """Return the pool of a job, with a digest of its contents."""
        rows = [negative for lineage in accepted.lineages for negative in lineage.hard_negatives]
        negatives = {negative.id: (negative.title, negative.text) for negative in rows}
        digest, ids = hashlib.blake2b(digest_size=16), _Ids()
        places, _ = store.places(plan["corpus"])
        rest = ((id_, *negatives[id_]) for id_ in sorted(negatives))
        for id_, title, text in chain(_passages(store, places), rest):
            digest.update(f"{id_}\x1f{title}\x1f{text}\x1e".encode("utf-8", "surrogatepass"))
            ids.append(id_)
        return cls(
            store=store,
            corpus_fingerprint=plan["corpus"],
            ids=ids,
            places=places,
            negatives=dict(sorted(negatives.items())),
            digest=digest.hexdigest(),
        )

    def corpus(self, language: str) -> Passages:
        """Return the pool as a corpus for retrievers."""
        return Passages(self.ids, _Column(self, 1), _Column(self, 0), language)

    def rows(self, ids: Collection[str]) -> dict[str, Text]:
        """Return titles and texts by id, omitting ids that are not in the pool."""
        negatives = {id_: self.negatives[id_] for id_ in ids if id_ in self.negatives}
        others = set(ids) - set(negatives)
        return negatives | self.store.passages_named(self.corpus_fingerprint, others, "t.title, t.text")

    def __iter__(self) -> Iterator[Text]:
        for _, title, text in _passages(self.store, self.places):
            yield title, text
        yield from self.negatives.values()

    def block(self, number: int) -> list[Text]:
        """Return the titles and texts of block `number`, which begins at position `number` * 1024."""
        return self._kept(number)

    @cached_property
    def _kept(self) -> Callable[[int], list[Text]]:
        return lru_cache(_KEPT_BLOCKS)(self._read)

    def _read(self, number: int) -> list[Text]:
        span = self.places[number * _BLOCK_PASSAGES : (number + 1) * _BLOCK_PASSAGES]
        texts: list[Text] = self.store.passages_at(span, "t.title, t.text")
        beyond = max(0, number * _BLOCK_PASSAGES - len(self.places))
        texts += islice(self.negatives.values(), beyond, beyond + _BLOCK_PASSAGES - len(texts))
        return texts


def _passages(store: Store, places: NDArray[np.int64]) -> Iterator[tuple[str, str, str]]:
    """Yield ids, titles and texts, holding one block in memory at a time."""
    for first in range(0, len(places), _BLOCK_PASSAGES):
        yield from store.passages_at(places[first : first + _BLOCK_PASSAGES], "t.id, t.title, t.text")


class _Ids(Indexed[str]):
    """Strings concatenated in one array, which takes a quarter of the memory of a list."""

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
    """The titles (0) or texts (1) of a pool by position."""

    def __init__(self, pool: Pool, which: int) -> None:
        self._pool, self._which = pool, which

    def __len__(self) -> int:
        return len(self._pool.ids)

    def __iter__(self) -> Iterator[str]:
        return (row[self._which] for row in self._pool)

    def _item(self, place: int) -> str:
        number, at = divmod(place, _BLOCK_PASSAGES)
        return self._pool.block(number)[at][self._which]

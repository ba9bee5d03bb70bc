"""Set-wise stages: work on all accepted queries at once, over the whole corpus (paper 2.4).

Such a stage depends on the corpus, so its fingerprint has the corpus's digest in it, and a barrier stands before it:
candidate generation is over. Otherwise it is a stage like any other: rows by key, and pending is what has no row.

Texts are read from the work database when they are asked for: a passage costs some 20 bytes of memory.
"""

import hashlib
import threading
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from airgen.errors import Stopped
from airgen.pipeline.generate import Accepted
from airgen.pipeline.progress import Display
from airgen.pipeline.stage import Plan, Tools
from airgen.records import Row, flat_text, prompt_text
from airgen.retrievers.base import Corpus, IndexProgress
from airgen.sequences import Indexed
from airgen.settings import ControlSettings
from airgen.store import Store

_BLOCK = 1024  # passages read at once where single ones are asked for: neighbours are asked for next
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
    def of(cls, store: Store, plan: Plan, accepted: Accepted) -> "Pool":
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
        found = {id_: self.negatives[id_] for id_ in ids if id_ in self.negatives}
        return found | self.store.passages_named(self.corpus_fingerprint, set(ids) - set(found), "t.title, t.text")

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
        yield from store.passages_at(places[first : first + _BLOCK], "t.id, t.title, t.text")


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


@dataclass(frozen=True)
class SetWork:
    """What set-wise stages work on: queries by key over one corpus. `plan` has the fingerprints of finished stages.

    names, name: the ids of the queries in the finished dataset, and its name, which run files have. digest, places: the
    corpus's, and its positions by id (where texts are in memory). scope: tells query keys of several corpora apart.
    sources: the documents that each query was made from, by id; the user's own queries have none. folder: where
    relative paths of the settings start. encoding: is told how many passages a model has encoded.
    """

    store: Store
    settings: ControlSettings
    corpus: Corpus
    digest: str
    places: Mapping[str, int]
    queries: Mapping[str, str]
    display: Display
    embeddings: Path
    stopping: threading.Event = field(default_factory=threading.Event)
    plan: Plan = field(default_factory=dict)
    scope: str = ""
    folder: Path | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    encoding: IndexProgress = lambda done, total: None

    def texts(self, ids: Collection[str]) -> dict[str, tuple[str, str]]:
        """Titles and texts by id."""
        corpus, places = self.corpus, {id_: self.places[id_] for id_ in ids}
        return {id_: (corpus.titles[at] if corpus.titles else "", corpus.texts[at]) for id_, at in places.items()}

    def full_texts(self, ids: Collection[str]) -> dict[str, str]:
        """What a re-ranker reads, by id."""
        return {id_: flat_text(*row) for id_, row in self.texts(ids).items()}

    def documents(self, ids: Collection[str]) -> dict[str, str]:
        """What the judge reads, by id: as `Lineage.document`, so that a pair's request is the same in every stage."""
        return {id_: prompt_text(*row) for id_, row in self.texts(ids).items()}

    def rows(self, stage: str, kind: type[Any]) -> dict[str, Any]:
        """The rows of a finished stage that makes one row a query, by query key."""
        return {row.parent: row for row in self.store.made(kind, self.plan[stage], self.queries)}


@dataclass(frozen=True, kw_only=True)
class Control(SetWork):
    """The set-wise work of a job: its accepted queries over passages and hard negatives, which stay on the disk."""

    pool: Pool
    tools: Tools
    accepted: Accepted
    workers: int

    @classmethod
    def of(
        cls, store: Store, tools: Tools, accepted: Accepted, display: Display, embeddings: Path, **rest: Any
    ) -> Self:
        """The work of a job whose candidates are generated."""
        pool = Pool.of(store, tools.plan, accepted)
        corpus = pool.corpus(tools.pipeline.language)
        queries = {lineage.final.key: lineage.final.text for lineage in accepted.lineages}
        sources = {lineage.final.key: [one.id for one in lineage.sources] for lineage in accepted.lineages}
        return cls(
            store, tools.pipeline.control, corpus, pool.digest, {}, queries, display, embeddings,
            plan=tools.plan, folder=tools.folder, sources=sources, pool=pool, tools=tools, accepted=accepted, **rest,
        )  # fmt: skip

    def texts(self, ids: Collection[str]) -> dict[str, tuple[str, str]]:
        """Titles and texts by id, read from the work database."""
        return self.pool.rows(ids)


W = TypeVar("W", bound=SetWork)


@dataclass(frozen=True)
class SetStage:
    """One set-wise step. `work` gets the keys of the queries that have no row (with `always`, of all: what it reads may
    have grown), and yields rows in batches, each of which is on the disk before the next one begins. `fingerprint` and
    `work` get the `model`, which is made once.
    """

    name: str
    writes: type[Row]
    label: str
    fingerprint: Callable[[Any, Any], str]
    work: Callable[[Any, Any, str, Sequence[str]], Iterator[list[Any]]]
    model: Callable[[Any], Any] = lambda work: None
    note: Callable[[Any], str] = lambda model: ""
    always: bool = False


def add_rows(stage: SetStage, work: W) -> W:
    """Do what is pending of one stage; returns the work with the stage in its plan. Raises Stopped between batches."""
    model = stage.model(work)
    fingerprint = stage.fingerprint(work, model)
    made = () if stage.always else work.store.made(stage.writes, fingerprint, work.queries)
    known = {row.parent for row in made}
    pending = [key for key in work.queries if key not in known]
    note = stage.note(model)
    with work.display.stage(stage.label, len(work.queries), len(work.queries) - len(pending), note) as bar:
        working = replace(work, encoding=partial(bar.encoding, note))
        for rows in stage.work(working, model, fingerprint, pending) if pending else ():
            work.store.put(rows)
            bar.advance(len({row.parent for row in rows}), note)
            if work.stopping.is_set():
                raise Stopped("stopped by the user: run the same command to go on")
    return replace(work, plan={**work.plan, stage.name: fingerprint})

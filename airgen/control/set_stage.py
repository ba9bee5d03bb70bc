"""Set-wise stages: work on all accepted queries at once, over the whole corpus (paper 2.4).

Such a stage depends on the corpus, so its fingerprint has the corpus's digest in it, and a barrier stands before it:
candidate generation is over. Otherwise it is a stage like any other: rows by key, and pending is what has no row.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from airgen.control.pool import Pool
from airgen.errors import Stopped
from airgen.records import Row, flat_text, prompt_text
from airgen.retrievers.component import Component
from airgen.retrievers.corpus import Corpus
from airgen.retrievers.protocols import IndexProgress
from airgen.settings import ControlSettings
from airgen.steps.accepted import Accepted
from airgen.steps.progress import Display
from airgen.steps.stage import Plan, Tools
from airgen.store import Store


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
        try:
            for rows in stage.work(working, model, fingerprint, pending) if pending else ():
                work.store.put(rows)
                bar.advance(len({row.parent for row in rows}), note)
                if work.stopping.is_set():
                    raise Stopped("stopped by the user: run the same command again to continue")
        finally:
            if isinstance(model, Component):
                model.release()  # the models of the next stage need the memory
    return replace(work, plan={**work.plan, stage.name: fingerprint})

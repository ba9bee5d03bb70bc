"""Set-wise stages: work on all accepted queries at once, over the whole corpus (paper 2.4).

A set-wise stage depends on the corpus, so its fingerprint has the corpus's digest in it, and a barrier stands before
it: candidate generation is over. Otherwise it is a stage like any other: rows by key, and pending is what has no row.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from airgen.errors import Stopped
from airgen.pipeline.control.combined_judge import Combination
from airgen.pipeline.generate import Accepted
from airgen.pipeline.progress import Display
from airgen.pipeline.stage import Plan, Tools
from airgen.records import Row, prompt_text
from airgen.retrievers.base import Corpus
from airgen.settings import ControlSettings
from airgen.store import Store

__all__ = ["Control", "SetStage", "SetWork", "add_rows", "pool_of"]


@dataclass(frozen=True)
class SetWork:
    """What set-wise stages work on: queries by key over one corpus. `plan` has the fingerprints of finished stages.

    `digest` is the corpus's, `places` its positions by id. `scope` tells query keys of several corpora apart. Relative
    paths of the settings start at `folder`.
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

    def full_text(self, id_: str) -> str:
        """What a re-ranker reads."""
        return self.corpus.full_text(self.places[id_])

    def document(self, id_: str) -> str:
        """What the judge reads: as `Lineage.document`, so that a pair's request is the same whichever stage asks."""
        place = self.places[id_]
        return prompt_text(self.corpus.titles[place] if self.corpus.titles else "", self.corpus.texts[place])

    def rows(self, stage: str, kind: type[Any]) -> dict[str, Any]:
        """The rows of a finished stage that makes one row a query, by query key."""
        return {row.parent: row for row in self.store.made(kind, self.plan[stage], self.queries)}


@dataclass(frozen=True, kw_only=True)
class Control(SetWork):
    """The set-wise work of a job: its accepted queries over passages and hard negatives."""

    tools: Tools
    accepted: Accepted
    workers: int
    combination: Combination | None = None

    @classmethod
    def of(
        cls, store: Store, tools: Tools, accepted: Accepted, display: Display, embeddings: Path, **rest: Any
    ) -> Self:
        """The work of a job whose candidates are generated."""
        corpus, digest = pool_of(store, tools.plan, accepted, tools.pipeline.language)
        places = {id_: place for place, id_ in enumerate(corpus.ids)}
        queries = {lineage.final.key: lineage.final.text for lineage in accepted.lineages}
        return cls(
            store, tools.pipeline.control, corpus, digest, places, queries, display, embeddings,
            plan=tools.plan, folder=tools.folder, tools=tools, accepted=accepted, **rest,
        )  # fmt: skip


def pool_of(store: Store, plan: Plan, accepted: Accepted, language: str) -> tuple[Corpus, str]:
    """The corpus of quality control and its digest: passages in their order, then hard negatives by id."""
    rows = {passage.id: (passage.title, passage.text) for passage in store.passages(plan["corpus"])}
    negatives = {one.id: (one.title, one.text) for lineage in accepted.lineages for one in lineage.hard_negatives}
    rows.update(sorted(negatives.items()))
    digest = hashlib.blake2b(digest_size=16)
    for id_, (title, text) in rows.items():
        digest.update(f"{id_}\x1f{title}\x1f{text}\x1e".encode("utf-8", "surrogatepass"))
    titles, texts = [title for title, _ in rows.values()], [text for _, text in rows.values()]
    return Corpus(list(rows), texts, titles, language), digest.hexdigest()


W = TypeVar("W", bound=SetWork)


@dataclass(frozen=True)
class SetStage:
    """One set-wise step. `work` gets the keys of the queries that have no row, and yields rows in batches.

    Each batch is on the disk before the next one begins. `model` is made once; `fingerprint` and `work` both get it.
    With `always`, `work` gets all queries: what it reads may have grown, as when failed judgments were asked again.
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
    """Do what is pending of one stage; returns the work with the stage in its plan.

    Raises Stopped between two batches where the user wants to stop.
    """
    model = stage.model(work)
    fingerprint = stage.fingerprint(work, model)
    made = () if stage.always else work.store.made(stage.writes, fingerprint, work.queries)
    known = {row.parent for row in made}
    pending = [key for key in work.queries if key not in known]
    note = stage.note(model)
    with work.display.stage(stage.label, len(work.queries), len(work.queries) - len(pending), note) as bar:
        for rows in stage.work(work, model, fingerprint, pending) if pending else ():
            work.store.put(rows)
            bar.advance(len({row.parent for row in rows}), note)
            if work.stopping.is_set():
                raise Stopped("stopped by the user: run the same command to go on")
    return replace(work, plan={**work.plan, stage.name: fingerprint})

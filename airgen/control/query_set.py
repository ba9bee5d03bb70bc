"""The queries for quality control over one corpus, from a job or a labelled collection (paper 2.4).

The results of quality control depend on the whole corpus, so its digest is part of the steps' fingerprints.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from airgen.evaluation.systems import SystemSettings
from airgen.retrievers.passages import Passages
from airgen.settings import ControlSettings
from airgen.steps.accepted import Accepted
from airgen.steps.kept_scores import KeptScores
from airgen.steps.progress import Display
from airgen.steps.step import Tools, Whole
from airgen.steps.text_pool import Pool
from airgen.storage.records import Judgment, Recall, flat_text, prompt_text
from airgen.storage.store import Store

OWN = "own_query"
"""The plan's name for the user's own queries and their labels, only in a pipeline with `queries`."""


@dataclass(frozen=True, kw_only=True)
class QuerySet(Whole):
    """The input of quality control: queries by key over one corpus.

    Attributes:
        names, name: The queries' ids in the finished dataset, and its name, as in run files.
        digest, places: The digest of the corpus, and positions by id if texts are in memory.
        scope: Distinguishes the query keys of several corpora.
        sources: The ids of the documents from which each query was generated; none for the user's own queries.
        folder: Folder to which paths in the settings are relative.
        kept: Scores that re-rankers returned before.
        systems: The user's own systems, whose hits join the recall; None without any.
    """

    settings: ControlSettings
    corpus: Passages
    digest: str
    places: Mapping[str, int]
    queries: Mapping[str, str]
    embeddings: Path
    scope: str = ""
    folder: Path | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kept: KeptScores = field(default_factory=KeptScores)
    systems: Sequence[SystemSettings] | None = None

    @property
    def parents(self) -> Collection[str]:
        """Return the keys of the queries."""
        return self.queries

    def texts(self, ids: Collection[str]) -> dict[str, tuple[str, str]]:
        """Return titles and texts by id."""
        corpus, places = self.corpus, {id_: self.places[id_] for id_ in ids}
        return {id_: (corpus.titles[at] if corpus.titles else "", corpus.texts[at]) for id_, at in places.items()}

    def full_texts(self, ids: Collection[str]) -> dict[str, str]:
        """Return the texts for re-rankers by id."""
        return {id_: flat_text(*row) for id_, row in self.texts(ids).items()}

    def documents(self, ids: Collection[str]) -> dict[str, str]:
        """Return the texts for the judge by id, like `Lineage.document`, so that a pair's request is the same in every
        step."""
        return {id_: prompt_text(*row) for id_, row in self.texts(ids).items()}

    @property
    def unread(self) -> Collection[str]:
        """Return the keys of the queries whose labels do not depend on re-rankers, so that they read nothing."""
        return frozenset()

    @property
    def unread_parts(self) -> dict[str, Any]:
        """Return the settings on which `unread` depends."""
        return {}

    def rows(self, step: str, kind: type[Any], keys: Collection[str] | None = None) -> dict[str, Any]:
        """Return the rows of a finished step by query key, for steps with one row per query: of all queries, or of
        those with these `keys`."""
        among = self.queries if keys is None else keys
        return {row.parent: row for row in self.store.rows_of(kind, self.plan[step], among)}


@dataclass(frozen=True, kw_only=True)
class Control(QuerySet):
    """The accepted queries of a job over its passages and hard negatives, whose texts stay on disk."""

    pool: Pool
    tools: Tools
    accepted: Accepted
    workers: int

    @classmethod
    def of(
        cls, store: Store, tools: Tools, accepted: Accepted, display: Display, embeddings: Path, **rest: Any
    ) -> Self:
        """Return the accepted queries of a job whose candidates are generated."""
        pool = Pool.of(store, tools.plan, accepted)
        corpus = pool.corpus(tools.pipeline.language)
        queries = {lineage.final.key: lineage.final.text for lineage in accepted.lineages}
        sources = {lineage.final.key: [passage.id for passage in lineage.sources] for lineage in accepted.lineages}
        return cls(
            store=store,
            display=display,
            plan=tools.plan,
            settings=tools.pipeline.control,
            corpus=corpus,
            digest=pool.digest,
            places={},
            queries=queries,
            embeddings=embeddings,
            folder=tools.folder,
            sources=sources,
            pool=pool,
            tools=tools,
            accepted=accepted,
            **rest,
        )

    @cached_property
    def unread(self) -> Collection[str]:
        """Return the user's own queries of which no known relevant passage was recalled, if votes decide, which then
        say nothing.

        The label of a document is that of its passage which the re-rankers rank highest, so they read its query.
        """
        if not self.unread_parts:
            return frozenset()
        rows = self.store.rows_of(Judgment, self.plan[OWN], self.queries)
        passages = self.store.passages_named(self.plan["corpus"], {row.id for row in rows}, "t.key")
        cut, recalls = self.settings.judge.relevant_from, self.rows("recall", Recall)
        compared = {row.parent for row in rows if row.level >= cut and row.id in recalls[row.parent].ids}
        return self.queries.keys() - compared - {row.parent for row in rows if row.id not in passages}

    @property
    def unread_parts(self) -> dict[str, Any]:
        """Return the settings on which `unread` depends."""
        if OWN not in self.plan or not self.settings.votes_decide:
            return {}
        return {"labels": self.plan[OWN], "relevant_from": self.settings.judge.relevant_from}

    def texts(self, ids: Collection[str]) -> dict[str, tuple[str, str]]:
        """Return titles and texts by id, read from the work database."""
        return self.pool.rows(ids)

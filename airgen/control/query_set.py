"""The queries that quality control works on, over one corpus: those of a job, or of a labelled collection (paper 2.4).

What the steps of quality control make depends on the whole corpus, so its digest is in their fingerprints.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from airgen.control.text_pool import Pool
from airgen.records import flat_text, prompt_text
from airgen.retrievers.indexed_corpus import Corpus
from airgen.settings import ControlSettings
from airgen.steps.accepted import Accepted
from airgen.steps.progress import Display
from airgen.steps.step import Tools, Whole
from airgen.store import Store


@dataclass(frozen=True, kw_only=True)
class QuerySet(Whole):
    """What quality control works on: queries by key over one corpus.

    Attributes:
        names, name: The ids of the queries in the finished dataset, and its name, which run files have.
        digest, places: The corpus's, and its positions by id (where texts are in memory).
        scope: Tells query keys of several corpora apart.
        sources: The documents that each query was made from, by id; the user's own queries have none.
        folder: Where relative paths of the settings start.
    """

    settings: ControlSettings
    corpus: Corpus
    digest: str
    places: Mapping[str, int]
    queries: Mapping[str, str]
    embeddings: Path
    scope: str = ""
    folder: Path | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def parents(self) -> Collection[str]:
        """Return the keys of the queries."""
        return self.queries

    def texts(self, ids: Collection[str]) -> dict[str, tuple[str, str]]:
        """Return titles and texts by id."""
        corpus, places = self.corpus, {id_: self.places[id_] for id_ in ids}
        return {id_: (corpus.titles[at] if corpus.titles else "", corpus.texts[at]) for id_, at in places.items()}

    def full_texts(self, ids: Collection[str]) -> dict[str, str]:
        """Return the texts that a re-ranker reads, by id."""
        return {id_: flat_text(*row) for id_, row in self.texts(ids).items()}

    def documents(self, ids: Collection[str]) -> dict[str, str]:
        """Return what the judge reads, by id: as `Lineage.document`, so that a pair's request is the same in every
        step."""
        return {id_: prompt_text(*row) for id_, row in self.texts(ids).items()}

    def rows(self, step: str, kind: type[Any]) -> dict[str, Any]:
        """Return the rows of a finished step that makes one row per query, by query key."""
        return {row.parent: row for row in self.store.made(kind, self.plan[step], self.queries)}


@dataclass(frozen=True, kw_only=True)
class Control(QuerySet):
    """The accepted queries of a job over passages and hard negatives, which stay on the disk."""

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

    def texts(self, ids: Collection[str]) -> dict[str, tuple[str, str]]:
        """Return titles and texts by id, read from the work database."""
        return self.pool.rows(ids)

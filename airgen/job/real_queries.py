"""Estimate how many of their words real queries share with the passages that answer them, from ten queries or more.

The estimate decides which wording of each generated need is exported (`generation.wording: {like: log.csv}`). If the
queries have labels (a folder in BEIR's layout), their overlap with the passages that people called relevant is exact.
Otherwise, the job's own recall and re-rankers find the passages that most likely answer each query, by votes: the
passage that the re-rankers put first stands for the source. That costs no LLM call. The figures stay in the job's
folder.

A generated query was written from one of the passages that answer it, whichever was drawn. So its overlap with its
source is compared with the mean overlap of a real query over the passages that answer it, not with the best of them: on
cranfield, where many passages answer a query, that ranked systems with .86 instead of .71 (docs/notes/agreement.md).
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.components.keys import content_key, file_sha256, text_key
from airgen.control.prelabel import prelabel_steps, prelabels_of
from airgen.control.query_set import QuerySet
from airgen.control.recall import RECALL
from airgen.control.table2 import median_ranks, ranked
from airgen.dataset.beir import BeirDataset
from airgen.errors import UsageError
from airgen.job.job import Job
from airgen.job.user_query_files import queries_path, read_queries
from airgen.settings import Pipeline, QueriesSettings
from airgen.settings.base import answer_settings
from airgen.steps.accepted import Accepted
from airgen.steps.loops import run_whole
from airgen.steps.progress import STATUS, Display
from airgen.steps.step import Plan
from airgen.steps.text_pool import Pool
from airgen.steps.votes import relevant, voted
from airgen.storage.json_values import DAMAGE, read_json, write_json
from airgen.storage.records import Prelabel
from airgen.storage.store import Store
from airgen.text.overlap import Overlap, overlap

FEWEST = 10
"""Minimum number of real queries. The mean overlap of ten is within .08 of the mean of all in two of three draws
(docs/notes/agreement.md)."""

_VERSION = 2
"""Of the estimate; raise it to compute kept figures again."""

FILE = "real-queries.json"
"""The file with the figures, in the job's folder."""


@dataclass(frozen=True)
class RealQueries:
    """The overlaps of real queries with the passages that answer them. `labelled` says whether people named these."""

    overlaps: Sequence[float]
    labelled: bool

    @property
    def mean(self) -> float:
        """Return the mean overlap."""
        return statistics.fmean(self.overlaps)


def real_overlap(job: Job, store: Store, plan: Plan) -> float:
    """Return the mean overlap of the job's real queries. Raises the errors of `real_queries`."""
    return real_queries(job, store, plan).mean


def real_queries(job: Job, store: Store, plan: Plan, display: Display | None = None) -> RealQueries:
    """Return the overlaps of the real queries in `generation.wording.like`, from the job's folder if they are there.

    Raises UsageError if there are fewer than ten queries, and the errors of a file of queries and of the models.
    """
    like, pipeline = named_queries(job.pipeline), job.pipeline
    assert like is not None
    path = job.folder / Path(like).expanduser()
    file = queries_path(path)
    control = answer_settings(pipeline.control)
    identity = content_key(
        [
            file_sha256(file),
            plan["corpus"],
            control["recall"],
            control["rerankers"],
            control["pools"],
            pipeline.relevance,
            _VERSION,
        ]
    )
    saved = job.directory / FILE
    try:
        known = read_json(saved)
        if known["identity"] == identity:
            return RealQueries(known["overlaps"], known["labelled"])
    except DAMAGE:
        pass  # the file is missing or damaged: the figures are computed again
    texts = {text_key(line.text): line.text for line in read_queries(_SETTINGS, file, pipeline.language).lines}
    texts = {key: text for key, text in texts.items() if text.strip()}
    if len(texts) < FEWEST:
        raise UsageError(f"generation.wording.like: {file} has {len(texts)} different queries, but {FEWEST} are needed")
    labels = _labels(path)
    if labels:
        measured = _by_labels(store, plan, labels, path, pipeline.language)
    else:
        shown = display or Display(job.directory / STATUS, None)
        measured = list(overlaps_by_rerankers(job, store, plan, texts, shown).values())
    overlaps = [round(value.mean, 4) for value in measured if value is not None]
    if len(overlaps) < FEWEST:
        raise UsageError(
            f"generation.wording.like: the overlap of only {len(overlaps)} queries of {file} can be measured, but "
            f"{FEWEST} are needed"
        )
    result = RealQueries(overlaps, bool(labels))
    write_json(saved, {"identity": identity, "overlaps": overlaps, "labelled": result.labelled})
    return result


def named_queries(pipeline: Pipeline) -> str | None:
    """Return the file of real queries that decide the wording: `wording.like`, or else `examples`."""
    return pipeline.generation.wording.like or pipeline.generation.examples


_SETTINGS = QueriesSettings(file="")


def _labels(path: Path) -> dict[str, list[str]]:
    """Return the relevant passages of each query of a folder in BEIR's layout; empty for other files."""
    if not path.is_dir() or not (path / "qrels").is_dir():
        return {}
    labels = BeirDataset.open(path).qrels("all").labels
    return {query: [id_ for id_, label in row.items() if label > 0] for query, row in labels.items()}


def _by_labels(
    store: Store, plan: Plan, labels: Mapping[str, Sequence[str]], path: Path, language: str
) -> list[Overlap | None]:
    ids = {id_ for row in labels.values() for id_ in row}
    texts: dict[str, Any] = store.passages_named(plan["corpus"], ids, "t.title, t.text")
    queries = BeirDataset.open(path).queries()
    return [
        overlap(queries[query].text, [texts[id_] for id_ in row if id_ in texts], language)
        for query, row in labels.items()
        if query in queries
    ]


def overlaps_by_rerankers(
    job: Job, store: Store, plan: Plan, queries: Mapping[str, str], display: Display
) -> dict[str, Overlap | None]:
    """Return the overlap of each query with the passages that the job's recall and re-rankers find for it.

    Args:
        queries: Texts by id. A query for which nothing is found is left out.
    """
    pipeline = job.pipeline
    pool = Pool.of(store, plan, Accepted([], [], 0, False))
    corpus = pool.corpus(pipeline.language)
    whole = QuerySet(
        store=store,
        display=display,
        plan={"corpus": plan["corpus"]},
        settings=pipeline.control,
        corpus=corpus,
        digest=pool.digest,
        places={id_: place for place, id_ in enumerate(corpus.ids)},
        queries=queries,
        embeddings=job.embeddings,
        scope="real queries",
        folder=job.folder,
    )
    whole = run_whole(RECALL, whole)
    for step in prelabel_steps(whole.settings):
        whole = run_whole(step, whole)
    found = {query: answering(rows, pipeline.relevance) for query, rows in prelabels_of(whole).items()}
    texts = whole.texts({id_ for ids in found.values() for id_ in ids})
    return {
        query: overlap(text, [texts[id_] for id_ in ids], pipeline.language)
        for query, text in queries.items()
        if (ids := found.get(query, []))
    }


def answering(rows: Sequence[Prelabel], relevance: str) -> list[str]:
    """Return the passages that answer a query by the re-rankers' votes, with the one that they put first as its source;
    none if nothing was recalled.

    With relevance `answer`, only the first counts, as most queries have one answer and few of the others are right
    (docs/notes/agreement.md, "Without labels").
    """
    best = best_passage(rows)
    if best is None:
        return []
    if relevance == "answer":
        return [best]
    return [best, *sorted(relevant(voted(rows, [best]), [best], relevance, len(rows)) - {best})]


def best_passage(rows: Sequence[Prelabel]) -> str | None:
    """Return the passage that the re-rankers put first: the best median rank, then the best rank of the first one."""
    orders = [ranked(row) for row in rows]
    if not orders or not orders[0]:
        return None
    ranks = median_ranks(orders)
    first = {id_: place for place, id_ in enumerate(orders[0])}
    return min(ranks, key=lambda id_: (ranks[id_], first[id_]))

"""The two sides of `airgen agree`: the systems on a human-labelled collection, and on what is generated from it.

The collection's corpus becomes the pipeline's corpus, and its human positives are the documents that queries are
generated from (paper, section 4.1). The job is an ordinary one in its own work directory, so it can be stopped at any
point. Systems are run once on each set of queries. Labels that are only different (graded, soft, without control) are
scored from the same runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from airgen.corpus.settings import CleanSettings, CorpusSettings
from airgen.dataset.beir import BeirDataset, Qrels, read_qrels
from airgen.dataset.manifest import load_manifest
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.experiment import EvaluationOptions, evaluate
from airgen.evaluation.measures import parse_measure, score
from airgen.evaluation.rank_correlation import LEAST_SYSTEMS
from airgen.evaluation.result import Result
from airgen.evaluation.run import read_run
from airgen.evaluation.systems import SystemSettings
from airgen.pipeline.job import Job
from airgen.pipeline.progress import Display
from airgen.quality.agreement.rankings import Side
from airgen.retrievers import Retriever
from airgen.settings import load_pipeline
from airgen.settings.yaml_file import find_yaml

Sources = Literal["positives", "any"]
Labels = Mapping[str, Mapping[str, float]]

COMPLETE = "complete"
ABLATIONS = {
    "control": "no quality control", "correction": "no correction of labels", "negatives": "no hard negatives",
    "rewrite": "no rewriting",
}  # fmt: skip
GAINS = {"graded": "graded labels", "soft": "soft gains"}

_KEEP_ALL = CleanSettings(
    min_tokens=0, max_tokens=None, language="off", boilerplate="off", personal_data="off", offensive_share=None,
    exact_duplicates="off", near_duplicates=None,
)  # fmt: skip


@dataclass(frozen=True)
class GeneratedSide:
    """One set of labels on the generated queries, and the scores of every system by them."""

    name: str
    side: Side
    labels: Labels = field(repr=False)

    @property
    def positives(self) -> float:
        """Mean number of positives a query; for soft labels, the mean sum of gains."""
        every = [label for labels in self.labels.values() for label in labels.values() if label > 0]
        return (sum(every) if self.name == GAINS["soft"] else len(every)) / max(1, len(self.labels))


def collection_corpus(dataset: BeirDataset, language: str, domain: str) -> CorpusSettings:
    """The collection's corpus as a corpus of airgen. Nothing is cleaned away, because human labels name any of it."""
    info, folder = dataset.info, dataset.file("corpus").resolve().parent
    fields = {"fields": {"id": "id"}} if dataset.air_bench is not None else {}
    corpus = CorpusSettings(
        name=_slug(dataset.name),
        language=str(info.get("language") or language),
        domain=str(info.get("domain") or domain),
        licence=str(info.get("source_licence") or "unknown"),
        source=dataset.name,
        reader={"kind": "beir", "path": folder.name, **fields},
        clean=_KEEP_ALL,
    )
    corpus._base = folder.parent
    return corpus


def positives_of(dataset: BeirDataset, split: str) -> frozenset[str]:
    """The documents that a person found relevant for some query. Raises DatasetError if there are none."""
    labels = dataset.qrels(split).labels
    found = frozenset(id_ for judged in labels.values() for id_, label in judged.items() if label > 0)
    if not found:
        raise DatasetError(
            f"{dataset.path}: no label of the split {split!r} is above 0, so no system can be ranked; use another split"
        )
    return found


def agree_job(
    collection: Path,
    pipeline: Path,
    runs: Path = Path("runs"),
    *,
    sources: Sources = "positives",
    split: str = "test",
    target: int | None = None,
) -> Job:
    """The job that generates from the collection; its name is made of the pipeline's and the collection's.

    `sources` says which documents queries are generated from: those with a human positive label, as in section 4.1 of
    the paper, or any. Raises DatasetError for a collection without positives, SettingsError for a wrong pipeline, and
    UsageError for a pipeline of another task than qa.
    """
    pipeline = find_yaml("pipelines", pipeline)
    dataset = BeirDataset.open(collection)
    positives = positives_of(dataset, split)
    settings = load_pipeline(pipeline)
    if settings.task != "qa":
        raise UsageError(
            f"{pipeline}: the task is {settings.task!r}, but the documents of a collection are passages: it must be qa"
        )
    corpus = collection_corpus(dataset, settings.language, settings.domain)
    changes = {"name": f"{settings.name}-{corpus.name}"[:100], "language": corpus.language, "domain": corpus.domain}
    # Labels are compared by id, so the export must keep the collection's ids. A study publishes nothing: without a
    # secret, the same seed draws the same documents on every machine.
    export = settings.export.model_copy(update={"ids": "original", "secret": False})
    settings = settings.model_copy(update={**changes, "export": export})
    frame = positives if sources == "positives" else None
    return Job(pipeline, runs, target=target, pipeline=settings, corpus=corpus, frame=frame)


def run_systems(
    dataset: Path,
    systems: Sequence[SystemSettings],
    out: Path,
    split: str,
    folder: Path,
    language: str,
    display: Display,
    indexes: MutableMapping[str, Retriever] | None = None,
    report: bool = True,
) -> list[Result]:
    """Evaluate every system on one dataset; results of before are kept. Raises UsageError for too few systems.

    report: write the tables, tests of all pairs and charts of the dataset beside its results.
    """
    if len(systems) < LEAST_SYSTEMS:
        raise UsageError(
            f"{len(systems)} system(s): a rank correlation needs at least {LEAST_SYSTEMS}, and says little below ten; "
            "name more systems"
        )
    with display.stage(f"systems on {out.name}", len(systems)) as bar:
        measures = ["nDCG@10", "Recall@10", "Recall@100"]
        options = EvaluationOptions(split, measures, language=language, folder=folder, report=report)
        return evaluate(
            dataset, systems, out, options,
            indexes=indexes, progress=lambda line: bar.advance(note=line.split(": ", 1)[-1]),
        )  # fmt: skip


def scored(results: Sequence[Result], labels: Labels, measure: str) -> Side:
    """The runs of the systems, scored with these labels; a query without results counts as zero."""
    wanted = [parse_measure(measure)]
    rows = [score(read_run(result.paths.run), labels, wanted).of(measure) for result in results]
    return Side(tuple(result.name for result in results), np.array(rows))


def generated_sides(
    job: Job,
    systems: Sequence[SystemSettings],
    folder: Path,
    measure: str,
    display: Display,
) -> list[GeneratedSide]:
    """The finished job's dataset, its other labels and its ablations, each with the scores of all systems.

    Systems are run again only if the corpus or the queries of an ablation differ from the complete dataset's.
    """
    out, language = job.directory / "agreement", job.pipeline.language
    files = load_manifest(job.dataset).files
    texts = [files[name].sha256 for name in ("corpus.jsonl", "queries.jsonl")]
    indexes: dict[str, Retriever] = {}  # most ablations change the queries but not the corpus
    results = run_systems(job.dataset, systems, out / "generated", "all", folder, language, display, indexes)
    complete = BeirDataset.open(job.dataset).qrels("all").labels
    found = [GeneratedSide(COMPLETE, scored(results, complete, measure), complete)]
    for kind, name in GAINS.items():
        labels = variant_labels(job.dataset, kind)
        if labels is not None:
            found.append(GeneratedSide(name, scored(results, labels, measure), labels))
    for left_out, name in ABLATIONS.items():
        if not _has_step(job, left_out):
            continue
        directory = out / "datasets" / f"without-{left_out}"
        with job.open_store() as store:
            manifest = job.export(store, job.accepted(store), directory, [left_out])
        same = [manifest.files[file].sha256 for file in ("corpus.jsonl", "queries.jsonl")] == texts
        own = results
        if not same:
            place = out / directory.name  # the figures of an ablation stand in the report of the study
            own = run_systems(directory, systems, place, "all", folder, language, display, indexes, report=False)
        labels = BeirDataset.open(directory).qrels("all").labels
        found.append(GeneratedSide(name, scored(own, labels, measure), labels))
    return found


def _has_step(job: Job, ablation: str) -> bool:
    """Whether the pipeline has the step that an ablation leaves out."""
    generation = job.pipeline.generation
    return {"negatives": generation.hard_negatives[1] > 0, "rewrite": generation.rewrites > 0}.get(ablation, True)


def variant_labels(dataset: Path, kind: str) -> Labels | None:
    """The labels of all splits in one of the export's other forms (graded, soft); None if it does not have them."""
    labels: dict[str, Mapping[str, float]] = {}
    for path in sorted((dataset / f"qrels-{kind}").glob("*.tsv")):
        read: Qrels = read_qrels(path)
        labels.update(read.labels)
    return labels or None


def _slug(name: str) -> str:
    """A name that is allowed for corpora and pipelines."""
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:60] or "collection"

"""Generate from a human-labelled collection: its corpus becomes the pipeline's, its positives the sampling frame.

    job = agree_job(Path("scifact"), Path("pipelines/agree.yaml"), sources="positives")
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from airgen.corpus.settings import CleanSettings, CorpusSettings
from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError
from airgen.runner.job import Job
from airgen.settings import load_pipeline

__all__ = ["Sources", "agree_job", "collection_corpus", "positives_of"]

Sources = Literal["positives", "any"]

_KEEP_ALL = CleanSettings(
    min_tokens=0, max_tokens=None, language="off", boilerplate="off", personal_data="off", offensive_share=None,
    exact_duplicates="off", near_duplicates=None,
)  # fmt: skip


def collection_corpus(dataset: BeirDataset, language: str, domain: str) -> CorpusSettings:
    """The collection's corpus as a corpus of airgen: nothing is cleaned away, because the human labels name it all."""
    info = dataset.info
    corpus = CorpusSettings(
        name=_slug(dataset.name),
        language=str(info.get("language") or language),
        domain=str(info.get("domain") or domain),
        licence=str(info.get("source_licence") or "unknown"),
        source=dataset.name,
        reader={"kind": "beir", "path": dataset.path.resolve().name},
        clean=_KEEP_ALL,
    )
    corpus._base = dataset.path.resolve().parent
    return corpus


def positives_of(dataset: BeirDataset, split: str) -> frozenset[str]:
    """The documents that a human found relevant for some query. Raises DatasetError where there is none."""
    labels = dataset.qrels(split).labels
    found = frozenset(id_ for of_query in labels.values() for id_, label in of_query.items() if label > 0)
    if not found:
        raise DatasetError(
            f"{dataset.path}: no label of the split {split!r} is above 0, so it ranks nothing; use another split"
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
    """The job that generates from the collection; its name is the pipeline's and the collection's.

    `sources` says which documents queries are generated from: those with a human positive, as in the paper's 4.1,
    or any. Raises DatasetError for a collection without positives, SettingsError for a wrong pipeline.
    """
    dataset = BeirDataset.open(collection)
    positives = positives_of(dataset, split)
    settings = load_pipeline(pipeline)
    corpus = collection_corpus(dataset, settings.language, settings.domain)
    settings = settings.model_copy(
        update={"name": f"{settings.name}-{corpus.name}"[:100], "language": corpus.language, "domain": corpus.domain}
    )
    frame = positives if sources == "positives" else None
    return Job(pipeline, runs, target=target, pipeline=settings, corpus=corpus, frame=frame)


def _slug(name: str) -> str:
    """A name as corpora and pipelines have them."""
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:60] or "collection"

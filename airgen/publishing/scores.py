"""Scoring a submission with private labels. The measures come from outside, so that this knows no metric code.

A query without results counts as zero and is named; hits of unknown queries or documents are counted and gain
nothing; another version than that of the labels is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from airgen.dataset.files import write_text
from airgen.dataset.layouts import read_rows
from airgen.dataset.manifest import MANIFEST, Manifest, load_manifest
from airgen.errors import DatasetError
from airgen.publishing.submission import NO_RERANKER, Results, Submission
from airgen.publishing.suites import dataset_key

__all__ = [
    "CLASSES",
    "DatasetScore",
    "Labels",
    "SystemScore",
    "load_labels",
    "load_scores",
    "save_score",
    "score_results",
]

CLASSES = ("Retrieval Only", "Reranking Only", "Retrieval + Reranking")
"""AIR-Bench's classes: no re-ranker; a re-ranker on BM25's top 100; any retriever with any re-ranker."""

RERANK_DEPTH = 100
FORMAT = 1
_NAMED = 50  # missing queries that are named; their number is always told

Scorer = Callable[[Mapping[str, Mapping[str, float]], Mapping[str, Mapping[str, float]]], Mapping[str, float]]
"""(labels {query: {document: label}}, hits {query: {document: score}}) to {measure: mean over the labels' queries}."""


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of one split; `corpus` is its corpus.jsonl, where that is at hand."""

    manifest: Manifest
    split: str
    qrels: Mapping[str, Mapping[str, int]]
    corpus: Path | None = None

    @property
    def key(self) -> tuple[str, str]:
        return dataset_key(self.manifest), self.split


@dataclass(frozen=True, slots=True)
class DatasetScore:
    """A system on one split of one dataset. `missing` names queries without results, `missing_count` counts them."""

    dataset: str
    task: str
    domain: str
    language: str
    split: str
    measures: Mapping[str, float]
    queries: int
    missing: tuple[str, ...] = ()
    missing_count: int = 0
    unknown_queries: int = 0
    unknown_documents: int | None = None


@dataclass(frozen=True, slots=True)
class SystemScore:
    """A submission's scores: one system on the datasets of one version; `absent` are datasets it has no results for."""

    model: str
    reranker: str
    version: str
    datasets: tuple[DatasetScore, ...]
    absent: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def system_class(self) -> str:
        """One of `CLASSES`."""
        if self.reranker == NO_RERANKER:
            return CLASSES[0]
        return CLASSES[1] if self.model.lower() == "bm25" else CLASSES[2]


def load_labels(directories: Sequence[Path], split: str = "test") -> list[Labels]:
    """The labels of `split` below directories: datasets, label parts, suites. Raises DatasetError for none."""
    found: dict[tuple[str, str], Labels] = {}
    for directory in directories:
        if not directory.is_dir():
            raise DatasetError(f"{directory} is not a directory")
        for path in sorted(directory.rglob(MANIFEST)):
            manifest = load_manifest(path.parent)
            if split not in manifest.labelled_splits:
                continue
            labels = _load(path.parent, manifest, split)
            if labels.key in found:
                raise DatasetError(f"labels of {labels.key[0]} are there twice, in {path.parent} for one")
            found[labels.key] = labels
    if not found:
        raise DatasetError(f"no labels of {split!r} in {', '.join(map(str, directories))}")
    return [found[key] for key in sorted(found)]


def _load(home: Path, manifest: Manifest, split: str) -> Labels:
    qrels: dict[str, dict[str, int]] = {}
    for row in read_rows(home / "qrels" / f"{split}.jsonl"):
        qrels.setdefault(row["query-id"], {})[row["corpus-id"]] = row["score"]
    corpus = home / "corpus.jsonl"
    return Labels(manifest, split, qrels, corpus if corpus.is_file() else None)


def score_results(
    results: Iterable[Results], labels: Sequence[Labels], scorer: Scorer, *, first: Submission | None = None
) -> SystemScore:
    """Score one system's results, one at a time. `first` is the official BM25 submission, to check Reranking Only.

    Raises DatasetError for results of a dataset that there are no labels for or of another version, results of the
    class Reranking Only that are not of BM25's top 100, and no result at all.
    """
    by_key = {one.key: one for one in labels}
    scored = []
    have = set()
    head: Results | None = None
    for one in results:
        head = head or one
        label = by_key.get((one.key, one.split))
        if label is None:
            known = ", ".join(f"{key} {split}" for key, split in by_key)
            raise DatasetError(f"there are no labels for {one.key} {one.split} (there are for: {known})")
        if one.version != label.manifest.info.version:
            wanted = label.manifest.info.version
            raise DatasetError(f"{one.key}: results are of version {one.version!r}, the labels of {wanted!r}")
        if one.reranker != NO_RERANKER and one.model.lower() == "bm25":
            _check_reranking(one, first.find(one.entry) if first else None)
        scored.append(_score_one(one, label, scorer))
        have.add((one.key, one.split))
    if head is None:
        raise DatasetError("there are no results to score")
    absent = tuple(f"{key} {split}" for key, split in by_key if (key, split) not in have)
    return SystemScore(head.model, head.reranker, head.version, tuple(scored), absent)


def _check_reranking(one: Results, first: Results | None) -> None:
    for query, hits in one.hits.items():
        if len(hits) > RERANK_DEPTH:
            raise DatasetError(
                f"{one.key}: Reranking Only is of BM25's top {RERANK_DEPTH}; query {query!r} has {len(hits)} hits"
            )
        if first is not None:
            ranked = sorted(first.hits.get(query, {}).items(), key=lambda item: (-item[1], item[0]))
            top = {document for document, _ in ranked[:RERANK_DEPTH]}
            for document in hits:
                if document not in top:
                    raise DatasetError(
                        f"{one.key}: document {document!r} of query {query!r} is not in BM25's top {RERANK_DEPTH}"
                    )


def _score_one(one: Results, label: Labels, scorer: Scorer) -> DatasetScore:
    known = {query: hits for query, hits in one.hits.items() if query in label.qrels}
    missing = sorted(query for query in label.qrels if not known.get(query))
    unknown = None
    if label.corpus is not None:
        found = Counter(document for hits in known.values() for document in hits)
        for row in read_rows(label.corpus):  # a stream: only what was found is held
            found.pop(row["_id"], None)
        unknown = found.total()
    info = label.manifest.info
    return DatasetScore(
        dataset=info.name,
        task=info.task,
        domain=info.domain,
        language=info.language,
        split=one.split,
        measures={name: round(float(value), 6) for name, value in scorer(label.qrels, known).items()},
        queries=len(label.qrels),
        missing=tuple(missing[:_NAMED]),
        missing_count=len(missing),
        unknown_queries=len(one.hits) - len(known),
        unknown_documents=unknown,
    )


def save_score(score: SystemScore, directory: Path) -> Path:
    """Write a score for the leaderboard; scoring the same system again replaces it. Returns the file."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{score.model}_{score.reranker}")[:80].strip("-.")
    identity = hashlib.blake2b(repr((score.model, score.reranker, score.version)).encode(), digest_size=4).hexdigest()
    path = directory / f"{name}-{identity}.score.json"
    value = {"format": FORMAT, "class": score.system_class, **asdict(score)}
    write_text(path, json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n")
    return path


def load_scores(directory: Path) -> list[SystemScore]:
    """The saved scores of a directory, by file name. Raises DatasetError for a file that is none."""
    scores = []
    for path in sorted(directory.glob("*.score.json")):
        try:
            value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if value.pop("format") != FORMAT:
                raise DatasetError(f"{path}: was written by another version of airgen: score the submission again")
            value.pop("class")
            datasets = tuple(DatasetScore(**{**row, "missing": tuple(row["missing"])}) for row in value.pop("datasets"))
            value |= {"datasets": datasets, "absent": tuple(value["absent"]), "notes": tuple(value["notes"])}
            scores.append(SystemScore(**value))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DatasetError(f"{path}: is not a saved score ({error}): score the submission again") from error
    return scores

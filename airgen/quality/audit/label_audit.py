"""The audit of the labels of a job, or of a dataset without its job, of which only the labels are known.

runs/NAME/audit/
    audit.html      for people: works without a server, saves audit-answers.json
    audit.csv       the same for a spreadsheet
    sample.json     the sample with the judge's answers, for scoring; people who answer should not open it
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from airgen.dataset.beir import BeirDataset
from airgen.dataset.manifest import load_manifest
from airgen.dataset.write import seal
from airgen.errors import DatasetError
from airgen.kept import write_json
from airgen.pipeline.control.set_stage import Pool
from airgen.pipeline.job import Job
from airgen.quality.audit.page import write_sample
from airgen.quality.audit.sample import (
    LABELLED,
    AuditItem,
    AuditResult,
    AuditSample,
    draw,
    load_sample,
    read_answers,
    score,
)
from airgen.records import Decision


def labelled_items(dataset: BeirDataset, split: str) -> list[AuditItem]:
    """Every label of a split with its texts. Raises DatasetError if the split has no labels here."""
    labels = dataset.qrels(split).labels
    queries = dataset.queries(split)
    wanted = {passage for of_query in labels.values() for passage in of_query}
    texts = {row.id: (row.title, row.text) for row in dataset.passages() if row.id in wanted}
    return [
        AuditItem(query, passage, LABELLED[label <= 0], None, label > 0, queries[query].text, *texts[passage])
        for query, of_query in labels.items()
        for passage, label in of_query.items()
        if query in queries and passage in texts
    ]


def draw_from_labels(home: Path, split: str, count: int, out: Path, seed: int = 0) -> AuditSample:
    """Draw a sample of a dataset's labels, and write page, table and sample to `out`. An older sample is replaced."""
    dataset = BeirDataset.open(home)
    relevant_from = int(str(dataset.info.get("relevant_from") or 2))
    items = labelled_items(dataset, split)
    if not items:
        raise DatasetError(f"{home}: no label of {split} has both its texts here: the labels are of another dataset")
    sample = draw(items, count, dataset=f"{dataset.name} {split}", relevant_from=relevant_from, seed=seed)
    write_sample(sample, out)
    return sample


def score_labels(home: Path, split: str, answers: Sequence[Path], folder: Path) -> AuditResult:
    """Score the answers to the sample in `folder`; the result is also in its `result.json`.

    Raises DatasetError if labels have changed since the sample was drawn.
    """
    sample = load_sample(folder / "sample.json")
    result = score(sample, [read_answers(path, sample) for path in answers])
    labels = BeirDataset.open(home).qrels(split).labels
    changed = sum((labels.get(one.query, {}).get(one.document, -1) > 0) != one.relevant for one in sample.items)
    if changed:
        raise DatasetError(
            f"{folder}: {changed} of {len(sample.items)} labels are others in {home}: the sample is of another dataset "
            "or version, so draw one of this with `airgen audit sample`"
        )
    write_json(folder / "result.json", result)
    return result


_KINDS = {  # decision -> kind of document, and whether it is relevant in the dataset
    "keep_query": ("positive", True),
    "add_positive": ("added positive", True),
    "keep_negative": ("generated negative", False),
    "drop_negative": ("dropped negative", True),
    "ignore": ("other", False),
    "add_negative": ("other", False),  # of a query of the user's own
}


def decided_items(job: Job) -> list[AuditItem]:
    """Every decision of a finished job with its texts. Raises StoreError if the job was never run."""
    with job.open_store(read_only=True) as store:
        accepted = job.accepted(store)
        plan = job.plan(store)
        decisions: dict[str, list[Decision]] = {}
        for row in store.made(Decision, plan.get("decision", ""), accepted.keys):
            decisions.setdefault(row.parent, []).append(row)
        decided = {row.id for rows in decisions.values() for row in rows if row.action in _KINDS}
        texts = Pool.of(store, plan, accepted).rows(decided)
    ids, items = job.ids, []
    for lineage in accepted.lineages:
        for row in decisions.get(lineage.final.key, ()):
            if row.action not in _KINDS:
                continue
            kind, relevant = _KINDS[row.action]
            about = (ids.query(lineage), ids.document(row.id), kind, row.level, relevant)
            items.append(AuditItem(*about, lineage.final.text, *texts[row.id]))
    return items


def draw_sample(job: Job, count: int, out: Path, seed: int = 0) -> AuditSample:
    """Draw a sample, and write page, table and sample to `out`. An older sample there is replaced."""
    relevant_from = job.pipeline.control.judge.relevant_from
    sample = draw(decided_items(job), count, dataset=job.pipeline.name, relevant_from=relevant_from, seed=seed)
    write_sample(sample, out)
    return sample


def score_answers(job: Job, answers: Sequence[Path], folder: Path) -> AuditResult:
    """Score the answers to the sample in `folder`, and write the result into the card of the job's dataset.

    Raises DatasetError if decisions have changed since the sample was drawn.
    """
    sample = load_sample(folder / "sample.json")
    result = score(sample, [read_answers(path, sample) for path in answers])
    now = {(item.query, item.document): (item.kind, item.level) for item in decided_items(job)}
    changed = sum(now.get((item.query, item.document)) != (item.kind, item.level) for item in sample.items)
    if changed:
        raise DatasetError(
            f"{folder}: {changed} of {len(sample.items)} pairs were decided otherwise since the sample was drawn: "
            "draw another sample with `airgen audit sample`"
        )
    manifest = load_manifest(job.dataset)
    files = {name: entry for name, entry in manifest.files.items() if name not in ("README.md", "croissant.json")}
    seal(job.dataset, dataclasses.replace(manifest, files=files, audit=result.as_card()))
    return result

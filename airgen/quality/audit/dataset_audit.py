"""The audit of a dataset without its job, such as a released one: its labels become items for people.

Only the labels are known, not how they came about. So there are two kinds of pairs, and no level of a judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from airgen.dataset.beir import BeirDataset
from airgen.dataset.files import write_text
from airgen.errors import DatasetError
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
from airgen.text.display import json_text


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
    write_text(folder / "result.json", json_text(result.as_dict(), indent=1) + "\n")
    return result

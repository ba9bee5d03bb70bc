"""The audit in a report: the pairs of the sample that `airgen audit sample` drew, as people are to see them.

    audit_part(source)    # {"key", "dataset", "levels", "items": [{"query", "document", "text", "title", "body"}], ...}

It has no label, level or decision. `key` is None where no sample was drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airgen.errors import DatasetError
from airgen.evaluation.experiment import results_folder
from airgen.quality.audit.answers import ANSWERS
from airgen.quality.audit.page import LEVELS
from airgen.quality.audit.sample import AuditSample, load_sample
from airgen.report.source import ReportSource

_LONGEST = 100_000  # characters of a document


def audit_folder(source: ReportSource) -> Path:
    """Where `airgen audit` keeps the sample of a job or dataset, and the answers."""
    return source.job.directory / "audit" if source.job is not None else results_folder("audit", source.name, "")


def audit_sample(source: ReportSource) -> AuditSample | None:
    """The sample that was drawn, or None. Raises DatasetError if its file cannot be read."""
    path = audit_folder(source) / "sample.json"
    return load_sample(path) if path.is_file() else None


def audit_part(source: ReportSource) -> dict[str, Any] | None:
    """What the pages of the audit need; None for a source without a finished dataset."""
    if source.dataset is None:
        return None
    what = source.dataset.path if source.job is None else source.job.path
    try:
        sample = audit_sample(source)
    except DatasetError as error:
        source.notes.append(f"the audit is not shown: {error}")
        return None
    items = [] if sample is None else sample.items
    wanted = {one.document for one in items}
    passages = source.dataset.passages() if wanted else ()
    texts = {one.id: (one.title, one.text) for one in passages if one.id in wanted}
    shown = []
    for one in items:
        title, body = texts.get(one.document, ("", ""))
        query = source.queries.get(one.query)
        text = query.text if query is not None else ""
        shown.append(
            {"query": one.query, "document": one.document, "text": text, "title": title, "body": body[:_LONGEST]}
        )
    return {
        "key": None if sample is None else sample.key,
        "dataset": source.name if sample is None else sample.dataset,
        "levels": LEVELS,
        "items": shown,
        "file": str(audit_folder(source) / ANSWERS),
        "draw": f"airgen audit sample {what} 100",
        "score": f"airgen audit score {what}",
    }

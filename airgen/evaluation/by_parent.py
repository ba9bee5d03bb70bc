"""Read the results of chunks per document: a document's score and its label are the largest of its chunks.

    parents = read_parents("datasets/x/private/parents.jsonl")      # {"d1": "p1", "d2": "p1", "d3": "p2"}
    score(run_by_parent(run, parents), labels_by_parent(qrels.labels, parents), measures)

A passage without a parent (a generated document) is a document of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from airgen.dataset.beir import numbered_lines
from airgen.errors import DatasetError
from airgen.evaluation.run import Run, run_from_dict

PARENTS = "private/parents.jsonl"
"""Where a dataset of chunks has the document of each."""


def read_parents(path: str | Path) -> dict[str, str]:
    """The parent of each passage, from JSON Lines with `_id` and `parent`. Raises DatasetError with file and line."""
    found: dict[str, str] = {}
    for number, line in numbered_lines(Path(path)):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{path}:{number}: not JSON: {error}") from None
        passage, parent = (row.get("_id"), row.get("parent")) if isinstance(row, dict) else (None, None)
        if not isinstance(passage, str) or not isinstance(parent, str):
            raise DatasetError(f"{path}:{number}: a line needs the texts `_id` and `parent`")
        found[passage] = parent
    if not found:
        raise DatasetError(f"{path}: holds no parents")
    return found


def run_by_parent(run: Run, parents: Mapping[str, str]) -> Run:
    """The run of documents: each has the best score of its chunks. Raises DatasetError where no chunk has a parent."""
    if not any(passage in parents for passage in run.passage_ids):
        example, known = next(iter(run.passage_ids), ""), next(iter(parents), "")
        raise DatasetError(f"no passage of the run has a parent: the run has {example!r}, the parents {known!r}")
    return run_from_dict({query: _largest(dict(hits), parents) for query, hits in run.items()})


def labels_by_parent(
    labels: Mapping[str, Mapping[str, float]], parents: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """The labels of documents: each has the highest label of its chunks."""
    return {query: _largest(row, parents) for query, row in labels.items()}


def _largest(row: Mapping[str, float], parents: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for passage, value in row.items():
        parent = parents.get(passage, passage)
        found[parent] = max(found.get(parent, value), value)
    return found

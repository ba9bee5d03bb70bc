"""A directory in BEIR format, written from a few rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Rows = Iterable[Mapping[str, Any]]


def write_beir(
    folder: Path, corpus: Rows, queries: Rows, qrels: Mapping[str, Iterable[tuple[str, str, int]]], **info: object
) -> Path:
    """`qrels`: {split: (query id, passage id, label)}. `info`: what a manifest says; without it there is none."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split, labels in qrels.items():
        lines = "".join(f"{query}\t{passage}\t{label}\n" for query, passage, label in labels)
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    if info:
        (folder / "manifest.json").write_text(json.dumps({"info": info}))
    return folder

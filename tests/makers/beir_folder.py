"""Write a directory in BEIR format from a few rows, and read one."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Rows = Iterable[Mapping[str, Any]]


def write_beir(
    folder: Path, corpus: Rows, queries: Rows, qrels: Mapping[str, Iterable[tuple[str, str, int]]], **info: object
) -> Path:
    """Write a BEIR directory. `qrels` is {split: (query id, passage id, label)}; a manifest is written if `info` is
    given."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", corpus), ("queries", queries)):
        write_rows(folder / f"{name}.jsonl", rows)
    for split, labels in qrels.items():
        lines = "".join(f"{query}\t{passage}\t{label}\n" for query, passage, label in labels)
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    if info:
        (folder / "manifest.json").write_text(json.dumps({"info": info}))
    return folder


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(path: Path, rows: Rows) -> None:
    """Write a JSON Lines file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def label_rows(dataset: Path) -> list[dict[str, Any]]:
    """Return all label rows of an airgen dataset with their split."""
    files = sorted((dataset / "qrels").glob("*.jsonl"))
    return [{**row, "split": file.stem} for file in files for row in read_rows(file)]


def data_files(dataset: Path) -> dict[str, bytes]:
    """Return the bytes of a dataset by path, except files that describe it and its pipeline."""
    about = ("manifest.json", "README.md", "croissant.json", "pipeline.yaml")
    paths = sorted(path for path in dataset.rglob("*") if path.is_file() and path.name not in about)
    assert paths
    return {path.relative_to(dataset).as_posix(): path.read_bytes() for path in paths}

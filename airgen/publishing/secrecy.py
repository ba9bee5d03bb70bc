"""Can private labels be computed from what is public? The checks that need no retrieval and no LLM.

An adversary has airgen's code, the public part, the corpus that it was made from and the original ids. The attack
itself, with all its steps, is `tests/publishing/test_attack.py`; `airgen verify` and `airgen publish` run what is here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airgen.dataset.layouts import read_rows
from airgen.dataset.manifest import Manifest, load_manifest
from airgen.dataset.secret import SECRET_FILE, secret_of
from airgen.dataset.verify import DatasetProblem
from airgen.keys import text_key
from airgen.publishing.marks import marks_of_generated

_ORDERED = ("corpus.jsonl", "queries.jsonl")


def secrecy_problems(dataset: Path) -> list[DatasetProblem]:
    """Why the labels of a dataset are not secret: errors for a secret that is public, else warnings.

    Raises DatasetError for a directory without a readable manifest.
    """
    manifest = load_manifest(dataset)
    if manifest.part == "labels":
        return []
    if not manifest.secret:
        what = "its ids and splits depend on no secret, so its labels are not secret from someone with the corpus"
        return [DatasetProblem("not-secret", "manifest.json", f"{what}: export it again", "warning")]
    try:
        return [
            *_secret_in_public(dataset, manifest),
            *_ids(dataset, manifest),
            *_order(dataset),
            *_habits(dataset),
        ]
    except (OSError, KeyError, TypeError) as error:  # `verify` says what is wrong with the files
        return [DatasetProblem("unreadable", "manifest.json", f"secrecy cannot be checked: {error!r}")]


def _secret_in_public(dataset: Path, manifest: Manifest) -> Iterator[DatasetProblem]:
    """The secret in a file that is not private. A dataset without its secret is found, too, unless it is public."""
    secret = secret_of(dataset)
    if secret is None:
        if manifest.part == "whole":
            message = "is missing: put back secret.key of the job, or this file of the private repository"
            yield DatasetProblem("lost-secret", f"private/{SECRET_FILE}", message)
        return
    if secret.name != manifest.secret:
        yield DatasetProblem(
            "lost-secret", f"private/{SECRET_FILE}", "is not the secret that this dataset was made with"
        )
    pattern = re.compile(re.escape(secret.hex.encode()), re.IGNORECASE)
    for path in sorted(dataset.rglob("*")):
        name = path.relative_to(dataset).as_posix()
        if path.is_file() and not name.startswith("private/"):
            with path.open("rb") as file:
                if any(pattern.search(line) for line in file):
                    yield DatasetProblem("leak", name, "holds the secret of the dataset: remove it and make a new one")


def _ids(dataset: Path, manifest: Manifest) -> Iterator[DatasetProblem]:
    """Ids that follow from the original ones, of which the private lineage has some."""
    path = dataset / "private" / "lineage.jsonl"
    if not path.is_file():
        return
    for row in read_rows(path):
        source, published = row.get("source"), row.get("positive")
        if source is not None and published in (source, "d" + text_key(f"{manifest.info.name}\x1f{source}")[:15]):
            message = f"the id {published!r} follows from the original id {source!r}: export with `ids: opaque`"
            yield DatasetProblem("ids", "corpus.jsonl", message, "warning")
            return


def _habits(dataset: Path) -> Iterator[DatasetProblem]:
    """What tells generated passages from others besides their words."""
    path = dataset / "private" / "lineage.jsonl"
    if not path.is_file():
        return
    generated = {str(id_) for row in read_rows(path) for id_ in row.get("negatives") or ()}
    for mark in marks_of_generated(read_rows(dataset / "corpus.jsonl"), generated):
        yield DatasetProblem("habits", "corpus.jsonl", str(mark), "warning")


def _order(dataset: Path) -> Iterator[DatasetProblem]:
    """Rows out of the order of their ids, or with other fields than the first row: both can mark rows."""
    for name in _ORDERED:
        last, fields = "", None
        for row in read_rows(dataset / name):
            shape = [*row, *_inner(row)]
            fields = fields or shape
            if row["_id"] < last or shape != fields:
                message = f"the row {row['_id']!r} is out of order or has other fields than the first: export it again"
                yield DatasetProblem("order", name, message, "warning")
                break
            last = row["_id"]


def _inner(row: dict[str, Any]) -> list[str]:
    metadata = row.get("metadata")
    return list(metadata) if isinstance(metadata, dict) else []

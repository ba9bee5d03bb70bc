"""Can private labels be computed from what is public? The checks that need no retrieval and no LLM.

An adversary has airgen's code, the public part, the corpus that it was made from and the original ids. The attack
itself, with all its steps, is `tests/publishing/test_attack.py`; `airgen publish` runs what is here, and so does
`publish verify`.
Marks are plain questions about a row: a large language model has its habits, such as typographic quotes or titles with
capitals, which could tell generated passages from the others.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.dataset.layouts import read_rows
from airgen.dataset.manifest import Manifest, load_manifest
from airgen.dataset.secret import SECRET_FILE, secret_of
from airgen.dataset.verify import DatasetProblem
from airgen.keys import text_key

Row = Mapping[str, Any]

_FEWEST = 20  # generated passages, below which no share means anything
_DEVIATIONS, _DIFFERENCE = 5.0, 0.1
_END = re.compile(r"[.!?。！？؟।…][\"'”’»)\]]*$")
_BULLET = re.compile(r"(?m)^[^\S\n]*(?:[-*•‣◦]|\d{1,2}[.)]) ")


def _searches(pattern: str) -> Callable[[Row], bool]:
    compiled = re.compile(pattern)
    return lambda row: compiled.search(row["text"]) is not None


MARKS: dict[str, Callable[[Row], bool]] = {
    "have no title": lambda row: not row["title"],
    "have a title that ends in a sentence mark": lambda row: _END.search(row["title"]) is not None,
    "have a title with capitals": lambda row: row["title"].istitle() and " " in row["title"],
    "begin with their title": lambda row: bool(row["title"]) and row["text"].startswith(row["title"]),
    "have line breaks": _searches(r"\n"),
    "have blank lines": _searches(r"\n\n"),
    "have double spaces": _searches("  "),
    "have spaces at an end": lambda row: row["text"] != row["text"].strip(),
    "have typographic double quotes": _searches("[“”„]"),
    "have plain double quotes": _searches('"'),
    "have typographic apostrophes": _searches("[‘’]"),
    "have plain apostrophes": _searches("'"),
    "have long dashes": _searches("[—–]"),
    "have an ellipsis as one character": _searches("…"),
    "have Markdown": _searches(r"\*\*|__|(?m:^#+ )|`"),
    "have bullets or numbers at the beginning of a line": lambda row: _BULLET.search(row["text"]) is not None,
    "have odd spaces or invisible characters": lambda row: not row["text"].replace("\n", "").isprintable(),
    "end without a sentence mark": lambda row: _END.search(row["text"]) is None,
    "begin with a small letter": lambda row: row["text"][:1].islower(),
    "have a length that 10 divides": lambda row: len(row["text"]) % 10 == 0,
    "have an id with other characters": lambda row: re.fullmatch("[a-z][0-9a-f]+", row["_id"]) is None,
    "have other fields": lambda row: list(row) != ["_id", "title", "text"],
}


@dataclass(frozen=True, slots=True)
class TellingMark:
    """A question whose answer tells generated passages from others: how many of each say yes."""

    name: str
    generated: int
    of_generated: int
    others: int
    of_others: int

    def __str__(self) -> str:
        return (
            f"generated passages can be told apart: {self.generated:,} of {self.of_generated:,} {self.name}, "
            f"{self.others:,} of {self.of_others:,} other passages do"
        )


def marks_of_generated(rows: Iterable[Row], generated: Collection[str]) -> Iterator[TellingMark]:
    """The marks that are more than chance: five standard errors and a tenth of the passages."""
    yes: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    total: Counter[bool] = Counter()
    for row in rows:
        is_generated = row["_id"] in generated
        total[is_generated] += 1
        yes[is_generated].update(name for name, has in MARKS.items() if has(row))
    n, m = total[True], total[False]
    if n < _FEWEST or m < _FEWEST:
        return
    for name in MARKS:
        a, b = yes[True][name], yes[False][name]
        share = (a + b) / (n + m)
        error = math.sqrt(share * (1 - share) * (1 / n + 1 / m))
        if abs(a / n - b / m) > max(_DEVIATIONS * error, _DIFFERENCE):
            yield TellingMark(name, a, n, b, m)


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
        return [*_secret_in_public(dataset, manifest), *_ids(dataset, manifest), *_order(dataset), *_habits(dataset)]
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

"""Use people's answers as labels: a person's label for a pair overrides a model's.

    rows, queries, change = override(rows, queries, [PersonsLabel("q1", "d7", 0)], relevant_from=2)

A query that thereby loses its last relevant passage cannot be scored: it is dropped or, if queries are marked as
answerable or not, marked as unanswerable. The corpus does not change: a passage that appeared or disappeared with an
answer would reveal the answer.
"""

import dataclasses
import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.components.keys import content_key, text_key
from airgen.dataset.content import ANSWERED, QrelRow, QueryRow
from airgen.errors import DatasetError
from airgen.safety.escaping import json_text
from airgen.storage.whole_files import write_text

PEOPLE = "people"
"""The judge of a label from a person; also the variant `qrels-people`, which has only these labels."""

NOTE = "labels by people"
"""The manifest note with the number of people's labels and their effects."""

CONFIRMED = "labels that people confirm, weighted by stratum"
"""The audit figure for the reliability of the labels."""


@dataclass(frozen=True, slots=True)
class PersonsLabel:
    """A person's label for a pair, identified by its public ids.

    `why` is the reason in a sentence, and `mark` the `pair_mark` of the texts that the person read.
    """

    query: str
    document: str
    level: int
    why: str = ""
    mark: str = ""

    def __post_init__(self) -> None:
        if type(self.level) is not int or not 0 <= self.level <= 3:
            raise ValueError(f"level {self.level!r} is not one of 0 to 3")
        if not all(isinstance(text, str) for text in (self.query, self.document, self.why, self.mark)):
            raise ValueError("query, document, why and mark must be strings")


def pair_mark(query: str, title: str, text: str) -> str:
    """Hash the texts of a pair, because an answer is about texts, and an id may stay the same when a text changes."""
    return text_key("\x1f".join((query, title, text)))[:16]


def read_labels(path: Path) -> list[PersonsLabel]:
    """Read the labels in a file by `write_labels`; none if there is no file. Raises DatasetError if the file is
    damaged."""
    # A broken link may point to an unmounted disk, where the labels still exist.
    if not path.is_file() and (path.exists() or path.is_symlink()):
        raise DatasetError(f"{path}: is not a file, so people's labels cannot be read: put the file back, or remove it")
    try:
        lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be read ({error})") from error
    labels = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("an object is needed")
            labels.append(PersonsLabel(**row))
        except (ValueError, TypeError, RecursionError) as error:
            raise DatasetError(
                f"{path}:{number}: not a person's label ({str(error)[:100]}): correct the line"
            ) from error
    return labels


def write_labels(path: Path, labels: Iterable[PersonsLabel]) -> None:
    """Write labels, one per line, sorted by pair."""
    rows = sorted(labels, key=lambda label: (label.query, label.document))
    write_text(path, (json_text(dataclasses.asdict(label)) + "\n" for label in rows))


def newer(old: Iterable[PersonsLabel], new: Iterable[PersonsLabel]) -> list[PersonsLabel]:
    """Merge labels. For a pair in both, the new label wins."""
    return list({(label.query, label.document): label for label in (*old, *new)}.values())


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of people's labels.

    `confirmed` labels agree with the previous ones, `now_relevant` and `now_not_relevant` contradict them, and `new`
    labels are for pairs without a label, of which `new_relevant` are relevant: the others counted as not relevant
    before. `fallen` are the queries that no longer have a relevant passage, and `risen` those that have a first one.
    """

    confirmed: int = 0
    now_relevant: int = 0
    now_not_relevant: int = 0
    new: int = 0
    new_relevant: int = 0
    fallen: tuple[str, ...] = ()
    risen: tuple[str, ...] = ()
    digest: str = ""

    @property
    def labels(self) -> int:
        """Return the number of people's labels."""
        return self.confirmed + self.now_relevant + self.now_not_relevant + self.new

    def as_note(self) -> dict[str, Any]:
        """Return the note for the manifest: counts, and the identity of the answers."""
        return {
            "labels": self.labels,
            "confirmed": self.confirmed,
            "now relevant": self.now_relevant,
            "now not relevant": self.now_not_relevant,
            "new": self.new,
            "new and relevant": self.new_relevant,
            "queries with a first relevant passage": len(self.risen),
            "queries without a relevant passage": len(self.fallen),
            "digest": self.digest,
        }


def note_text(note: Any) -> str:
    """Describe the note in a manifest as text; "" for anything else."""
    if not isinstance(note, dict):
        return ""
    others = note.get("of other texts, left out")
    old = f"{others:,} are of texts that are gone or changed, and do not count" if isinstance(others, int) else ""
    if not note.get("labels"):
        return old and f"people's labels: {old}"

    def number(name: str) -> int:
        value = note.get(name)
        return value if isinstance(value, int) else 0

    names = ("confirmed", "now relevant", "now not relevant")
    parts = [f"{number(name):,} {name}" for name in names if number(name)]
    if new := number("new"):
        parts.append(f"{new:,} of pairs without a label ({number('new and relevant'):,} relevant)")
    changes = [", ".join(parts)]
    if fallen := number("queries without a relevant passage"):
        changes.append(f"{fallen:,} queries have no relevant passage any more")
    if risen := number("queries with a first relevant passage"):
        changes.append(f"{risen:,} queries have one for the first time")
    return f"{note['labels']:,} labels are people's: " + "; ".join([*changes, *([old] if old else [])])


AGREEMENT = "agreement with the labels given"
"""The manifest note with the number of labels given with the queries that the judge confirms."""


def agreement_note(judge: str, pairs: Sequence[tuple[bool, bool]]) -> dict[str, Any]:
    """Return the note for the manifest.

    Args:
        judge: What decided: the judge, or the votes.
        pairs: Of each pair, whether it is relevant by its label, and whether the judge calls it relevant.
    """
    note: dict[str, Any] = {"judge": judge}
    for name, side in (("relevant", True), ("not relevant", False)):
        of_side = [relevant == label for label, relevant in pairs if label is side]
        note |= {name: len(of_side), f"{name}, confirmed": sum(of_side)}
    return note


def agreement_text(note: Any) -> str:
    """Describe the note in a manifest as a sentence; "" for anything else."""
    if not isinstance(note, dict) or not isinstance(note.get("judge"), str):
        return ""
    sides = [(name, note.get(name), note.get(f"{name}, confirmed")) for name in ("relevant", "not relevant")]
    counted = [(name, n, k) for name, n, k in sides if isinstance(n, int) and isinstance(k, int) and 0 <= k <= n > 0]
    if not counted:
        return ""
    every, confirmed = sum(n for _, n, _ in counted), sum(k for _, _, k in counted)
    low, high = share_interval(confirmed / every, every)
    agree = "judge agrees" if note["judge"] == "judge" else "votes agree"
    parts = ", ".join(f"{k:,} of {n:,} that are {name}" for name, n, k in counted)
    sentence = f"the {agree} with {confirmed:,} of {every:,} of your labels: {confirmed / every:.0%}"
    return f"{sentence} (95% interval {low:.0%} to {high:.0%}; {parts})"


def share_interval(share: float, size: float, z: float = 1.959964) -> tuple[float, float]:
    """Return Wilson's score interval of a share of `size` cases (1927), 95% by default, which is valid for few cases
    and near 1.

    >>> [round(end, 3) for end in share_interval(0.9, 10)]
    [0.596, 0.982]
    """
    middle = (share + z * z / (2 * size)) / (1 + z * z / size)
    reach = z / (1 + z * z / size) * math.sqrt(share * (1 - share) / size + z * z / (4 * size**2))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def override(
    rows: Sequence[QrelRow],
    queries: Sequence[QueryRow],
    labels: Sequence[PersonsLabel],
    relevant_from: int,
    *,
    absent: Collection[str] = (),
) -> tuple[list[QrelRow], list[QueryRow], Change]:
    """Apply people's labels, and report the changes.

    Args:
        rows: The existing labels.
        queries: The queries of the dataset. Labels for other queries are ignored.
        labels: People's labels, at most one per pair.
        relevant_from: Lowest level that counts as relevant.
        absent: Documents that are not in the corpus, whose labels are ignored.

    Returns:
        The new labels, the remaining queries, and the change.
    """
    known = {row.id for row in queries}
    by_pair = {(row.query, row.document): row for row in rows}
    counts = dict.fromkeys(("confirmed", "now_relevant", "now_not_relevant", "new", "new_relevant"), 0)
    had_answer = {row.query for row in rows if row.score}
    sure = max((row.score for row in rows), default=0) or 1  # what a person calls relevant is as certain as a source
    used = [label for label in labels if label.query in known and label.document not in absent]
    for label in used:
        pair, relevant = (label.query, label.document), label.level >= relevant_from
        before = by_pair.get(pair)
        by_pair[pair] = QrelRow(label.query, label.document, relevant * sure, level=label.level, by=PEOPLE)
        same = before is not None and (before.score > 0) == relevant
        counts["new" if before is None else "confirmed" if same else f"now_{'not_' * (not relevant)}relevant"] += 1
        counts["new_relevant"] += before is None and relevant
    answered = {row.query for row in by_pair.values() if row.score}
    named = {label.query for label in used}
    fallen = [row.id for row in queries if row.id in named and row.id not in answered]
    risen = tuple(row.id for row in queries if row.id in answered - had_answer)
    marked = {row.id for row in queries if ANSWERED in row.metadata}
    gone = set(fallen)
    answerable = []
    for row in queries:
        if row.id in gone and row.id not in marked:
            continue
        if row.id in named and row.id in marked:
            row = dataclasses.replace(row, metadata={**row.metadata, ANSWERED: row.id in answered})
        answerable.append(row)
    left = [row for row in by_pair.values() if row.query not in gone]
    digest = content_key(sorted([label.query, label.document, label.level] for label in used))[:16]
    return left, answerable, Change(**counts, fallen=tuple(fallen), risen=risen, digest=digest)

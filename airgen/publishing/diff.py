"""The changes between two versions of a suite: datasets that were added, removed, trimmed or extended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from airgen.dataset.layouts import read_rows
from airgen.dataset.manifest import Manifest
from airgen.publishing.suites import datasets_of

_LICENCES = ("source_licence", "labels_licence")


@dataclass(frozen=True, slots=True)
class DatasetChange:
    """The change of one dataset: `kind` is added, removed, changed or same; `details` are lines of text."""

    dataset: str
    kind: str
    details: tuple[str, ...] = ()


def diff(old: Path, new: Path) -> list[DatasetChange]:
    """The changes from version directory `old` to `new`, by dataset. Raises DatasetError for unfinished versions."""
    before, after = datasets_of(old), datasets_of(new)
    changes = []
    for key in sorted(before.keys() | after.keys()):
        if key not in before:
            changes.append(DatasetChange(key, "added", (_size(after[key]),)))
        elif key not in after:
            changes.append(DatasetChange(key, "removed", (_size(before[key]),)))
        elif before[key].digest == after[key].digest:
            changes.append(DatasetChange(key, "same"))
        else:
            changes.append(DatasetChange(key, "changed", tuple(_details(key, old, new, before[key], after[key]))))
    return changes


def diff_text(changes: list[DatasetChange]) -> str:
    """The changes as lines of text. Unchanged datasets are only counted."""
    lines = []
    for change in changes:
        if change.kind != "same":
            lines.append(f"{change.kind}: {change.dataset}")
            lines += [f"  {detail}" for detail in change.details]
    lines.append(f"{sum(change.kind == 'same' for change in changes)} unchanged")
    return "\n".join(lines)


def _size(manifest: Manifest) -> str:
    statistics = manifest.statistics
    queries = sum(part.queries for part in statistics.splits.values())
    return f"{statistics.passages:,} passages, {queries:,} queries"


def _details(key: str, old: Path, new: Path, before: Manifest, after: Manifest) -> list[str]:
    lines = []
    a, b = before.statistics.passages, after.statistics.passages
    if a != b:
        trimmed = " (trimmed)" if "passages before trimming" in after.notes and b < a else ""
        lines.append(f"passages: {a:,} -> {b:,}{trimmed}")
    was, now = _splits(old / key), _splits(new / key)
    added, gone = now.keys() - was.keys(), was.keys() - now.keys()
    if added or gone:
        lines.append(f"queries: {len(added):,} added, {len(gone):,} removed")
    moved = sorted(query for query in was.keys() & now.keys() if was[query] != now[query])
    if moved:
        lines.append(f"{len(moved):,} queries changed split, such as {moved[0]!r}: this should never happen")
    positives = [sum(part.positives or 0 for part in m.statistics.splits.values()) for m in (before, after)]
    if positives[0] != positives[1]:
        lines.append(f"positives: {positives[0]:,} -> {positives[1]:,}")
    licences = [(what, getattr(before.info, what), getattr(after.info, what)) for what in _LICENCES]
    lines += [f"{what}: {first!r} -> {second!r}" for what, first, second in licences if first != second]
    return lines or ["texts or labels differ"]


def _splits(dataset: Path) -> Mapping[str, str]:
    return {row["_id"]: row["metadata"]["split"] for row in read_rows(dataset / "queries.jsonl")}

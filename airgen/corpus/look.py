"""What a person sees of corpora: their list, a passage, a document that was dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airgen.corpus.fetch import is_fetched
from airgen.corpus.settings import load_corpus_settings, manifest_names
from airgen.errors import SettingsError
from airgen.records import Dropped, Passage
from airgen.text.display import one_line, terminal_table

_COLUMNS = ("name", "task", "language", "domain", "licence", "from", "state")


def corpora() -> list[dict[str, Any]]:
    """All corpora: those in ./corpora and those that airgen ships, and whether their files are here."""
    found: list[dict[str, Any]] = []
    for name in manifest_names():
        try:
            settings = load_corpus_settings(name)
        except SettingsError as error:  # one broken file must not hide the others
            found.append(dict.fromkeys(_COLUMNS, "") | {"name": name, "state": f"broken: {error}"})
            continue
        kind = settings.fetch.kind if settings.fetch else "local"
        state = "here" if is_fetched(settings) else {"hub": "network", "file": "get file"}.get(kind, "to fetch")
        known = settings.model_dump(include={"task", "language", "domain", "licence"})
        found.append(dict.fromkeys(_COLUMNS, "") | known | {"name": name, "from": kind, "state": state})
    return found


def corpora_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same for a terminal."""
    shown = [[row[name] if name != "licence" else one_line(row[name], 24) for name in _COLUMNS] for row in rows]
    return [line.rstrip() for line in terminal_table([_COLUMNS, *shown], range(len(_COLUMNS))).splitlines()]


def passage_lines(row: Passage) -> list[str]:
    """A passage for a terminal."""
    place = one_line(f"{row.source} {row.position}")
    head = f"── {one_line(row.id)}  {one_line(row.title)}  ({row.tokens} tokens; {place})"
    return [head, *(one_line(line) for line in row.text.split("\n")), ""]


def dropped_lines(row: Dropped) -> list[str]:
    """A document that was dropped: why, and how it begins."""
    detail = f" ({one_line(row.detail, 80)})" if row.detail else ""
    name = one_line(row.id or f"{row.source} {row.position}".strip(), 60)
    text = [f"    {one_line(row.text, 140)}"] if row.text.strip() else []
    return [f"{name}  {row.cleaner}: {row.reason}{detail}", *text]

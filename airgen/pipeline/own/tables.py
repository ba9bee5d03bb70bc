"""Rows of small tables that people bring: CSV of any separator and encoding, TSV, JSON Lines.

    for line, row in table_rows(Path("log.csv"), "en"): ...       # (2, {"query": "login fails", "count": "7"})

A file of Excel is read as Excel saves it: with semicolons, a line `sep=;`, UTF-16 or an old code page. Such files are
read whole, so they have a bound.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from airgen.corpus.readers.encodings import decoded
from airgen.errors import DatasetError, UsageError
from airgen.registry import closest
from airgen.text.display import one_line

MAX_BYTES = 256 << 20  # of a file, after inflation
_MARKS = (b"\xff\xfe", b"\xfe\xff")

Row = Mapping[str, Any]


def read_text(path: Path, language: str) -> str:
    """The text of a file, gzipped or not, in UTF-8 or the encoding that its bytes show. Raises DatasetError."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error
    if len(raw) > MAX_BYTES:
        raise DatasetError(f"{path}: has more than {MAX_BYTES >> 20} MB: take a part of it")
    if raw[:2] not in _MARKS and b"\x00" in raw[:4096]:
        raise DatasetError(f"{path}: is not text (an .xlsx file? save it as CSV)")
    try:
        return decoded(raw, "", language)
    except UnicodeError as error:
        raise DatasetError(f"{path}: its encoding is not known: save it in UTF-8") from error


def kind_of(path: Path) -> str:
    """`jsonl`, `table` or `text`, by the file's name."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    return {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "table", ".tsv": "table"}.get(suffix, "text")


def table_rows(path: Path, language: str) -> Iterator[tuple[int, Row]]:
    """(number of the line, from 1; {column: value}) of each row that is not empty. Raises DatasetError."""
    text = read_text(path, language)
    yield from _jsonl(path, text) if kind_of(path) == "jsonl" else _csv(path, text)


def _jsonl(path: Path, text: str) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{path}:{number}: not JSON ({error})") from error
        row = {"query": row} if isinstance(row, str) else row
        if not isinstance(row, dict):
            raise DatasetError(f"{path}:{number}: holds {type(row).__name__} where an object was expected")
        yield number, row


def _csv(path: Path, text: str) -> Iterator[tuple[int, Row]]:
    first, skipped = text.partition("\n")[0].strip().strip('"'), 0
    separator = ""
    if first.lower().startswith("sep=") and len(first) == 5:  # Excel's own first line
        separator, skipped = first[4], 1
        text = text.partition("\n")[2]
        first = text.partition("\n")[0]
    separator = separator or max("\t,;|", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    names: list[str] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not names:
                names = [cell.strip() for cell in cells]
                continue
            yield reader.line_num + skipped, dict(zip(names, cells, strict=False))
    except csv.Error as error:
        raise DatasetError(f"{path}:{reader.line_num + skipped}: {error}") from error


def find_column(
    rows: Sequence[tuple[int, Row]], named: str, usual: Sequence[str], where: str, what: str, *, needed: bool = False
) -> str | None:
    """The column that a setting names, or one of the usual names; None if there is none and none is needed.

    Raises UsageError for a named column that is not there, or where a needed one is not found.
    """
    known = list(dict.fromkeys(name for _, row in rows[:100] for name in row))
    if named:
        if named not in known:
            raise UsageError(f"{where}: there is no column {named!r}{closest(named, known)} (it has {_few(known)})")
        return named
    folded = {"".join(name.casefold().replace("_", " ").replace("-", " ").split()): name for name in reversed(known)}
    found = next((folded[name] for name in usual if name in folded), None)
    if found is None and needed:
        raise UsageError(f"{where}: which column is {what}? It has {_few(known)}: name one of them")
    return found


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(one_line(repr(name), 60) for name in names[:12]) + more if names else "no column"

"""The queries of a file that people bring: a text with a query a line, a CSV, TSV or JSON Lines file, or a BEIR folder.

    read_queries(QueriesSettings(file="log.csv"), Path("log.csv"), "en")    # [Line(2, "login fails", "", 7), ...]
    for line, row in table_rows(Path("log.csv"), "en"): ...                 # (2, {"query": "login fails"})

A file of Excel is read as Excel saves it: with semicolons, a line `sep=;`, UTF-16 or an old code page. Such files are
read whole, so they have a bound.
"""

import gzip
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.corpus.columns import csv_rows
from airgen.corpus.readers.reader import decoded
from airgen.dataset.content import check_id
from airgen.errors import DatasetError, UsageError
from airgen.registry import meant
from airgen.settings import QueriesSettings
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
    if kind_of(path) == "jsonl":
        yield from _jsonl(path, text)
        return
    try:
        yield from csv_rows(text)
    except ValueError as error:
        raise DatasetError(f"{path}:{error}") from error


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


def find_column(
    rows: Sequence[tuple[int, Row]], named: str, usual: Sequence[str], where: str, what: str, *, needed: bool = False
) -> str | None:
    """The column that a setting names, or one of the usual names; None if there is none and none is needed. Raises
    UsageError for a named or a needed column that is not there."""
    known = list(dict.fromkeys(name for _, row in rows[:100] for name in row))
    if named:
        if named not in known:
            hint = meant(named, known) or f" (it has {_few(known)})"
            raise UsageError(f"{where}: there is no column {named!r}{hint}")
        return named
    folded = {"".join(name.casefold().replace("_", " ").replace("-", " ").split()): name for name in reversed(known)}
    found = next((folded[name] for name in usual if name in folded), None)
    if found is None and needed:
        raise UsageError(f"{where}: which column is {what}? It has {_few(known)}: name one of them")
    return found


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(one_line(repr(name), 60) for name in names[:12]) + more if names else "no column"


MAX_LINES = 2_000_000
_TEXTS = (
    "query", "querytext", "text", "question", "searchterm", "searchquery", "search", "q", "keywords", "topic",
    "suchbegriff", "suchanfrage", "anfrage", "frage", "requête", "requete", "consulta", "запрос",
)  # fmt: skip
_IDS = ("_id", "id", "qid", "queryid", "topicid")
_COUNTS = ("count", "frequency", "freq", "hits", "searches", "times", "n", "anzahl", "total", "volume")


@dataclass(frozen=True, slots=True)
class Line:
    """One query of the file. `id` is empty where the file has none; `count` says how often it was asked."""

    line: int
    text: str
    id: str = ""
    count: int = 1


def queries_path(path: Path) -> Path:
    """The file itself, or `queries.jsonl` of a folder in BEIR format. Raises DatasetError."""
    if not path.is_dir():
        return path
    for name in ("queries.jsonl", "queries.jsonl.gz"):
        if (path / name).is_file():
            return path / name
    raise DatasetError(f"{path}: has no queries.jsonl: name a file of queries, or a folder in BEIR format")


def files_behind(settings: QueriesSettings, folder: Path) -> list[Path]:
    """The file of the queries, then those of labels. Raises DatasetError where one is missing."""
    found = [queries_path(folder / Path(settings.file).expanduser())]
    found += [folder / Path(one.file).expanduser() for one in settings.labels]
    for path in found:
        if not path.is_file():
            raise DatasetError(f"queries: {path}: no such file")
    return found


def read_queries(settings: QueriesSettings, path: Path, language: str) -> list[Line]:
    """The queries in the order of the file, lines without text too.

    Raises DatasetError for a file that cannot be read, has more than 2,000,000 lines, or gives a bad count or id;
    UsageError for a column that is not there.
    """
    path = queries_path(path)
    lines = _text_lines(path, language) if kind_of(path) == "text" else _table_lines(settings, path, language)
    found: list[Line] = []
    seen: dict[str, int] = {}
    for one in lines:
        if len(found) == MAX_LINES:
            raise DatasetError(f"{path}: has more than {MAX_LINES:,} queries: take a part of it")
        if one.id:
            check_id(one.id, f"{path}:{one.line}: query")
            if seen.setdefault(one.id, one.line) != one.line:
                raise DatasetError(f"{path}:{one.line}: the id {one.id!r} is that of line {seen[one.id]}, too")
        found.append(one)
    if not any(one.text.strip() for one in found):
        raise DatasetError(f"{path}: holds no query")
    return found


def _text_lines(path: Path, language: str) -> Iterator[Line]:
    text = read_text(path, language).replace("\r\n", "\n").replace("\r", "\n")
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        yield Line(number, line)


def _table_lines(settings: QueriesSettings, path: Path, language: str) -> Iterator[Line]:
    rows = list(table_rows(path, language))
    where, alone = str(path), len(rows[0][1]) == 1 if rows else True
    text = find_column(rows, settings.column, _TEXTS, where, "the query's text (queries.column)", needed=not alone)
    if text is None:  # one column without a name: its first line is a query, too
        yield from _text_lines(path, language)
        return
    id_ = find_column(rows, settings.id_column, _IDS, where, "the id")
    count = find_column(rows, settings.count_column, _COUNTS, where, "the count")
    for number, row in rows:
        at = f"{path}:{number}"
        yield Line(number, _value(row, text, at), _value(row, id_, at).strip(), _count(row, count, at))


def _value(row: Row, column: str | None, where: str) -> str:
    value: Any = row.get(column) if column is not None else None
    if isinstance(value, bool | list | dict):
        raise DatasetError(f"{where}: {column} is {type(value).__name__} where text was expected")
    return "" if value is None else str(value)


def _count(row: Row, column: str | None, where: str) -> int:
    text = _value(row, column, where).strip()
    if not text:
        return 1
    plain = text.replace("\u00a0", "").replace("\u202f", "").replace(" ", "")
    parts = plain.replace(".", ",").split(",")
    if len(parts) > 1 and all(len(part) == 3 for part in parts[1:]):  # 1,234 or 1.234
        plain = "".join(parts)
    try:
        value = float(plain)
    except ValueError:
        value = math.nan
    if not 0 < value < 1e15 or value != int(value):
        raise DatasetError(f"{where}: the count {one_line(repr(text), 60)} is not a whole number above 0")
    return int(value)

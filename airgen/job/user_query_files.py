"""Read the user's queries from a text file with one query per line, a table, JSON, topics, or a BEIR folder.

own = read_queries(QueriesSettings(file="log.csv"), Path("log.csv"), "en")
own.lines                       # [Line(2, "login fails", "", 7), ...]
own.about                       # "query = 'question', count = 'searches' (not used: 'hits')"
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airgen.dataset.beir import filter_of
from airgen.dataset.content import FILTER, RESERVED, check_id
from airgen.errors import DatasetError, UsageError
from airgen.safety.escaping import one_line
from airgen.settings import QueriesSettings
from airgen.tables import Choice, Role, TableColumn, choose, folded, whole_number
from airgen.tables.cells import id_text
from airgen.tables.chats import rich_text
from airgen.tables.read import UserTable, read
from airgen.tables.values import INNER
from airgen.tables.vocabulary import names

Row = Mapping[str, Any]
MAX_LINES = 2_000_000
_MOST_VALUES = 50  # different values of a column that is kept as metadata
_LONGEST_VALUE = 100  # characters
_TEXTS = names("query", "search", "any text")
_IDS = names("id", "query id", "number")
_MEMBERS = ("queries", "judgmentRatings", "tests", "testcases", "goldens", "examples", "samples", "rows", "data")


def _is_text(column: TableColumn) -> bool:
    if "id" in column.words and column.several_words < 0.2:
        return False  # prompt_id
    if column.words & {*names("output")} and not column.words & {*names("asked")}:
        return False  # outputs.text
    return column.letters >= 0.5 and not column.like_ids and not _holds_lists(column)


def _holds_lists(column: TableColumn) -> bool:
    """Return whether the values are lists as Python or JSON writes them, such as the answers of DPR's questions."""
    return bool(column.texts) and all(text.startswith("[") and text.endswith("]") for text in column.texts)


def _the_only_text(columns: Sequence[TableColumn], chosen: Mapping[str, TableColumn]) -> TableColumn | None:
    """Return the only text column, or the column whose texts are less than half as long as the others'."""
    texts = sorted(
        (column for column in columns if column.plain and _is_text(column) and column.several_words >= 0.2),
        key=lambda column: column.length,
    )
    if not texts and len(columns) == 1 and columns[0].invented:
        return columns[0]
    single = [column for column in columns if column.plain and _is_text(column) and column.invented]
    texts = texts or (single if len(single) == 1 else [])
    alone = len(texts) == 1 or (len(texts) > 1 and texts[0].length < texts[1].length / 2)
    return texts[0] if alone else None


def _names_rows(column: TableColumn) -> bool:
    """Return whether a column with this name contains ids. User and session ids have similar names, but repeat."""
    return column.identifies(0.5 if folded(column.name) in _IDS else 1.0)


def _beside_the_text(columns: Sequence[TableColumn], chosen: Mapping[str, TableColumn]) -> TableColumn | None:
    """Return a column of ids in a table without a header, in which numbers must precede the query's text, or a column
    named like a text."""
    text = chosen.get("query")
    named = [
        column for column in columns if folded(column.name) in _TEXTS and column.identifies() and not _is_text(column)
    ]
    ids = [
        column
        for column in columns
        if column.invented and column.identifies() and (column.like_ids or len(column.counts) == column.rows)
    ]
    before = [column for column in ids if len(column.counts) < column.rows or (text and column.place < text.place)]
    return next(iter(named + before), None)


def _counts(column: TableColumn) -> bool:
    """Return whether a column contains counts. A number that is not whole is an error. `hits` is often the number of
    results, which can be 0."""
    return column.numbers >= 0.9 and (column.name.casefold() != "hits" or 0 not in column.counts)


def _after_the_text(columns: Sequence[TableColumn], chosen: Mapping[str, TableColumn]) -> TableColumn | None:
    """Return the column of whole numbers after the query's text, in a table without a header."""
    text = chosen.get("query")
    after = [
        column
        for column in columns
        if column.invented and text and column.place > text.place and len(column.counts) == column.rows
    ]
    return after[0] if len(after) == 1 else None


ROLES = {
    "query": Role("the query's text (queries.column)", _TEXTS, _is_text, _the_only_text, needed=True),
    "id": Role("the id", _IDS, _names_rows, _beside_the_text),
    "count": Role("the count", names("count"), _counts, _after_the_text),
}
KNOWN = frozenset(name for role in ROLES.values() for name in role.names) - {"n", "q", "value", "total", "number"}


@dataclass(frozen=True, slots=True)
class Line:
    """A query in the file. `id` is empty if the file has no ids, and `count` is the frequency of the query.

    `filter` has the required metadata values of its passages: from `filter.NAME` columns, or from a `filter` object in
    the row or its `metadata`. `metadata` has the values of the other columns that are kept.
    """

    line: int
    text: str
    id: str = ""
    count: int = 1
    filter: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class OwnLines:
    """The queries in their order, including those without text. `about` describes the columns and any oddities, and
    `counted` says whether there is a column of counts."""

    lines: Sequence[Line]
    about: str
    counted: bool = False


def queries_path(path: Path) -> Path:
    """Return the file itself, or `queries.jsonl` in a BEIR folder. Raises DatasetError if there is none."""
    if not path.is_dir():
        return path
    for name in ("queries.jsonl", "queries.jsonl.gz"):
        if (path / name).is_file():
            return path / name
    raise DatasetError(f"{path}: contains no queries.jsonl: give a query file, or a folder in BEIR format")


def files_behind(settings: QueriesSettings, folder: Path) -> list[Path]:
    """Return the query file and then the label files. Raises DatasetError if one is missing."""
    files = [queries_path(folder / Path(settings.file).expanduser())]
    files += [folder / Path(labels.file).expanduser() for labels in settings.labels]
    for path in files:
        if not path.is_file():
            raise DatasetError(f"queries: {path}: no such file", code="no_file", where=path)
    return files


def read_queries(settings: QueriesSettings, source: Any, language: str) -> OwnLines:
    """Return the queries of a file, or of rows, a data frame or a mapping.

    Raises DatasetError if the source cannot be read, has more than 2,000,000 queries, or contains an invalid count or
    id, and UsageError for a missing column.
    """
    source = queries_path(Path(source)) if isinstance(source, str | Path) else source
    how: dict[str, Any] = {"known": KNOWN, "members": _MEMBERS, "absorbing": _TEXTS, "chats": True}
    table = read(source, name="queries", language=language, **how)
    if len(table.rows) > MAX_LINES:
        raise DatasetError(f"{table.name}: has more than {MAX_LINES:,} queries: use only a part of it")
    counted = False
    if table.form == "lines":
        lines = [Line(number, row["value"]) for number, row in table.rows]
        about = "; ".join(["a query a line", *table.notes])
    else:
        lines, about, counted = _table_lines(settings, table)
    seen: dict[str, int] = {}
    for line in lines:
        if line.id:
            check_id(line.id, f"{table.where(line.line)}: query")
            if seen.setdefault(line.id, line.line) != line.line:
                before = f"{'row' if table.form == 'json' else 'line'} {seen[line.id]}"
                raise DatasetError(f"{table.where(line.line)}: the id {line.id!r} is that of {before}, too")
    if not any(line.text.strip() for line in lines):
        raise DatasetError(f"{table.name}: contains no query")
    return OwnLines(lines, about, counted)


def _table_lines(settings: QueriesSettings, table: UserTable) -> tuple[list[Line], str, bool]:
    if not table.rows:
        raise DatasetError(f"{table.name}: contains no query")
    if all(INNER in row for _, row in table.rows) and not settings.column:
        raise DatasetError(f"{table.name}: contains labels or scores of pairs, and no queries")
    named = {"query": settings.column, "id": settings.id_column, "count": settings.count_column}
    columns = table.columns()
    choice = choose(columns, ROLES, named=named, where=table.name)
    kept = _kept_columns(settings, table, [column for column in columns if column.name not in choice.columns.values()])
    lines = [
        Line(
            line=number,
            text=_value(row, choice["query"], at),
            id=id_text(_plain(row, choice["id"], at)),
            count=_count(row, choice, at),
            filter=_filter(row, at),
            metadata={name: value for name in kept if (value := _scalar(row.get(name))) not in (None, "")},
        )
        for number, row in table.rows
        for at in [table.where(number)]
    ]
    return lines, "; ".join([choice.line(kept), *table.notes]), choice["count"] is not None


def _kept_columns(settings: QueriesSettings, table: UserTable, columns: Sequence[TableColumn]) -> list[str]:
    """Return the columns to keep as metadata: those in the settings, or those that say what kind of query it is, which
    have few different values. Ids of users and sessions have many.

    Raises UsageError for a column that the table does not have.
    """
    names = [column.name for column in columns if not column.name.startswith(FILTER)]
    if settings.metadata is not None:
        if unknown := [name for name in settings.metadata if name not in names]:
            known = ", ".join(names) or "none"
            raise UsageError(
                f"{table.name}: queries.metadata: {unknown[0]!r} is not one of its other columns ({known})",
                code="unknown_column",
                where=table.name,
                names=names,
            )
        return settings.metadata
    few = []
    for column in columns:
        values = {_scalar(row.get(column.name)) for _, row in table.rows} - {None, ""}
        repeated = 1 < len(values) <= min(_MOST_VALUES, len(table.rows) // 2)
        short = all(len(str(value)) <= _LONGEST_VALUE for value in values)
        if repeated and short and column.plain and not column.invented and column.name in names:
            few.append(column.name)
    return [name for name in few if name not in RESERVED]


def _scalar(value: Any) -> str | int | float | bool | None:
    """Return a value as metadata; None for a list or an object, and for a number that JSON cannot hold."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool | int):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else None


def _plain(row: Row, column: str | None, where: str) -> Any:
    value: Any = row.get(column) if column is not None else None
    if isinstance(value, bool | list | dict):
        raise DatasetError(f"{where}: {column} is {type(value).__name__} where text was expected")
    return value


def _value(row: Row, column: str | None, where: str) -> str:
    if column is not None and (rich := rich_text(row.get(column))) is not None:
        return rich
    value = _plain(row, column, where)
    return "" if value is None or value != value else str(value)  # NaN, which data frames use for missing values


def _filter(row: Row, where: str) -> dict[str, Any]:
    metadata = row.get("metadata")
    named = {**(filter_of(metadata, where) if isinstance(metadata, dict) else {}), **filter_of(row, where)}
    wanted = {name: value for name, value in named.items() if value == value}  # NaN, as data frames write nothing
    for name, value in wanted.items():
        if not isinstance(value, str | int | float | bool) or value in (math.inf, -math.inf):
            raise DatasetError(f"{where}: the filter {one_line(name, 60)} must be a text, a number, or true or false")
    return wanted


def _count(row: Row, choice: Choice, where: str) -> int:
    text = _value(row, choice["count"], where).strip()
    number = whole_number(text) if text else 1
    if number is None:
        raise DatasetError(f"{where}: the count {one_line(repr(text), 60)} is not a whole number of 0 or more")
    return number

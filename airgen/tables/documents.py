"""Guess which columns of a table are id, title and text from its first rows, for `airgen init`.

guess_fields([{"Ticket Nr": "7", "Betreff": "Login", "Beschreibung": "Ich kann mich nicht ..."}])
# {"id": "Ticket Nr", "title": "Betreff", "text": "Beschreibung"}
guess_fields([{"headline": "Storm", "body": {"text": "A storm came ..."}}])
# {"id": None, "title": "headline", "text": "body.text"}
"""

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from airgen.errors import CorpusError
from airgen.storage.records import storable
from airgen.storage.sql_connections import Config, in_memory, without_globs
from airgen.tables import Role, TableColumn, choose, columns_of
from airgen.tables.cells import column, id_text, text_of
from airgen.tables.chats import as_text, messages_of
from airgen.tables.json_files import json_value, lines, rows_over_lines
from airgen.tables.json_rows import find_rows
from airgen.tables.open_table import open_table
from airgen.tables.vocabulary import folded, is_named, names
from airgen.text.character_encodings import decoded

_SAMPLE_ROWS, _SAMPLE_BYTES = 200, 1 << 20  # rows and bytes read at the beginning of a file
_MAX_VALUE_CHARACTERS = 4096  # characters per value, because a Parquet file of some kilobytes can hold gigabytes
_MAX_JSON_BYTES = 64 << 20  # a larger JSON file is not inspected
_DUCKDB: Config = {"threads": 1, "memory_limit": "1GB"}
_HTML = re.compile(
    r"</(?:p|div|span|li|td|h[1-6]|a|b|i|strong|em|ul|table|code)\s*>|<(?:br|p|div|img|hr)\b[^<>]*>", re.I
)
_MARKDOWN = re.compile(r"^#{1,6} \S|\*\*\S[^*\n]*\*\*|\]\((?:https?:|/|#|\.)[^)\s]*\)|^```|^\|[ :]*-{3,}", re.MULTILINE)
_MIN_MARKUP_SHARE = 0.3  # the share of texts with markup above which a column is treated as written in it

Row = Mapping[str, Any]


def guess_fields(rows: Sequence[Row]) -> dict[str, Any]:
    """Guess a reader's `fields`: the column with the longest texts, a shorter one as title, one without repetition as
    id.

    `id` and `title` are None if no column looks suitable. The result is empty if no column holds text. It includes
    `markup` if the texts are HTML or Markdown, and `each` if they are lists of long texts.
    """
    columns = columns_of([flat_fields(row) for row in rows])
    choice = choose(columns, _ROLES)
    by_name = {column.name: column for column in columns}
    text = choice["text"]
    if text is None:
        return {}
    fields: dict[str, Any] = {"id": choice["id"], "title": choice["title"], "text": text}
    values = {text: by_name[text].values}
    if markup := markup_of(values[text]):
        fields["markup"] = markup
    items = [item for value in values[text] if isinstance(value, list) for item in value]
    if items and fmean(map(len, items)) >= 200:
        fields["each"] = True
    return fields


def markup_of(values: Sequence[Any]) -> str:
    """Return the markup in which texts, or lists of texts, are written: html, markdown, or "" for plain text."""
    texts = [text for value in values if (text := as_text(value)) is not None]
    shares = {
        markup: sum(bool(sign.search(text[:100_000])) for text in texts) / max(len(texts), 1)
        for markup, sign in (("html", _HTML), ("markdown", _MARKDOWN))
    }
    if shares["html"] >= _MIN_MARKUP_SHARE and shares["html"] >= shares["markdown"]:
        return "html"
    return "markdown" if shares["markdown"] >= _MIN_MARKUP_SHARE else ""


def without_unique_ids(rows: Sequence[Row]) -> tuple[str, bool]:
    """Return a column that is called an id, although some rows lack one or two have the same, and whether ids repeat.

    The name is "" if there is no such column.
    """
    columns = columns_of([flat_fields(row) for row in rows])
    called = [column for column in columns if is_named(column.name, "id", "document id") and column.plain]
    column = min(called, key=lambda column: not is_named(column.name, "id"), default=None)
    return ("", False) if column is None else (column.name, len(set(map(id_text, column.values))) < len(column.values))


def _lengths(columns: Sequence[TableColumn]) -> dict[str, float]:
    """Return the mean length of each column of texts, or of lists of texts."""
    return {
        column.name: fmean(len(_joined(value)) for value in column.values)
        for column in columns
        if column.values and all(isinstance(value, str) or _is_texts(value) for value in column.values)
    }


def _find_text_column(columns: Sequence[TableColumn], chosen: Mapping[str, TableColumn]) -> TableColumn | None:
    """Return the column with the longest texts, preferring usual names for texts; in a FAQ, the answers."""
    all_lengths = _lengths(columns)
    lengths = {name: mean for name, mean in all_lengths.items() if mean >= 20 or _is_named(name, "text")} or all_lengths
    answers = [column for column in columns if column.name in all_lengths and column.words & {*names("answer")}]
    if answers and any(is_question(column.name) for column in columns):
        return max(answers, key=lambda column: all_lengths[column.name])
    best = max(lengths, key=lambda name: (lengths[name] * (3 if _is_named(name, "text") else 1), name), default=None)
    return next((column for column in columns if column.name == best), None)


def _find_title_column(columns: Sequence[TableColumn], chosen: Mapping[str, TableColumn]) -> TableColumn | None:
    """Return a column of shorter texts with a usual name for titles; in a FAQ, the questions, however long."""
    if (text := chosen.get("text")) is None:
        return None
    most = _lengths([text])[text.name]
    plain = [column for column in columns if column.values and all(isinstance(value, str) for value in column.values)]
    titles = [column for column in plain if _is_named(column.name, "title") and _lengths([column])[column.name] < most]
    questions = [column for column in plain if is_question(column.name) and text.words & {*names("answer")}]
    return next(iter(questions + titles), None)


def _find_id_column(columns: Sequence[TableColumn], chosen: Mapping[str, TableColumn]) -> TableColumn | None:
    ids = [column for column in columns if _is_named(column.name, *_IDS) and _identifies(column.values, column.rows)]
    usual = names(*_IDS)
    return min(
        ids,
        key=lambda column: (column.name != "_id", min(map(usual.index, _words(column.name) & {*usual}))),
        default=None,
    )


_IDS = ("id", "document id", "number", "ticket")
_ROLES = {
    "text": Role("the text", guess=_find_text_column),
    "title": Role("the title", guess=_find_title_column),
    "id": Role("the id", guess=_find_id_column),
}


def is_question(name: str) -> bool:
    """Return whether a column has a usual name for questions."""
    return any(word in name.casefold() for word in names("question"))


def _joined(value: Any) -> str:
    return value if isinstance(value, str) else "\n".join(value)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def flat_fields(row: Row, depth: int = 3) -> Row:
    """Return a row with dotted names for nested values, as readers use them: {"body": {"text": ..}}, or a list of such
    objects, has body.text. A conversation is the text of its messages."""
    flat_row: dict[str, Any] = {}
    for name, value in row.items():
        mixed = isinstance(value, list) and len({isinstance(item, str) for item in value}) > 1  # rich text
        if (mixed or messages_of(value) is not None) and (text := as_text(value)) is not None:
            flat_row[name] = text
            continue
        inner = flat_fields(value, depth - 1) if isinstance(value, Mapping) and depth else {}
        if isinstance(value, list) and value and depth and all(isinstance(item, Mapping) for item in value):
            inner = {below: column(row, f"{name}.{below}") for item in value[:20] for below in item}
        flat_row.update({f"{name}.{below}": nested for below, nested in inner.items()} or {name: value})
    return flat_row


def _identifies(values: Sequence[Any], rows: int) -> bool:
    plain = [
        str(int(value) if isinstance(value, float) and value.is_integer() else value)
        for value in values
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    ]
    if any(isinstance(value, float) and not value.is_integer() for value in values):
        return False
    return len(plain) == rows and len(set(plain)) == rows and max(map(len, plain), default=0) <= 200


def _words(name: str) -> set[str]:
    low = name.lower()
    return {folded(low), *low.replace("-", "_").replace(" ", "_").replace(".", "_").split("_")}


def _is_named(name: str, *roles: str) -> bool:
    return bool(_words(name) & {*names(*roles)})


def first_rows(path: Path, kind: str) -> list[Row]:
    """Return the first rows of a CSV, JSON, JSON Lines or Parquet file as its reader sees them, or none if it cannot be
    read."""
    try:
        if kind == "parquet":
            return [_texts_of(row) for row in _parquet_rows(path)]
        if kind == "csv":
            with open_table(path, header=None) as table:
                return [row.cells for row in islice(table.rows, _SAMPLE_ROWS)]
        if kind == "json":
            return [_texts_of(row) for row in json_rows(path)[1][:_SAMPLE_ROWS]]
        rows = rows_over_lines(path, "", _SAMPLE_BYTES)
        if rows is not None:
            return [_texts_of(row) for row in rows[:_SAMPLE_ROWS] if isinstance(row, dict)]
        return list(islice(_json_lines(path), _SAMPLE_ROWS))
    except (OSError, EOFError, ValueError, RecursionError, zlib.error, CorpusError):
        return []


def csv_settings(paths: Sequence[Path]) -> dict[str, Any]:
    """Return the reader settings for the format of CSV files, as far as all files share it."""
    dialects: list[dict[str, Any]] = []
    for path in paths:
        try:
            with open_table(path, header=None) as table:
                about: dict[str, Any] = {"delimiter": table.dialect.delimiter}
                about |= {} if table.dialect.header else {"header": False}
                dialects.append(about | ({} if table.encoding.startswith("utf") else {"encoding": table.encoding}))
        except CorpusError:
            continue
    if not dialects:
        return {}
    return {key: value for key, value in dialects[0].items() if all(dialect.get(key) == value for dialect in dialects)}


def json_rows(path: Path) -> tuple[str, list[Row]]:
    """Return (where the rows are, the rows) of a JSON file, as its reader takes them. Raises CorpusError."""
    where, rows = find_rows(json_value(path, "", _MAX_JSON_BYTES)[0])
    return where, [*rows]


def _json_lines(path: Path) -> Iterator[Row]:
    size = 0
    for _, line in lines(path, _SAMPLE_BYTES):
        size += len(line or b"")
        if line and line.strip():
            row = json.loads(decoded(line, "", "").text)
            if isinstance(row, dict):
                yield _texts_of(row)
        if size > _SAMPLE_BYTES:
            return


def _texts_of(row: Row) -> Row:
    """Return the row with texts that can be stored: no lone surrogates, and bytes decoded to text."""
    texts = {name: text_of(value) for name, value in row.items()}
    return {name: storable(value) if isinstance(value, str) else value for name, value in texts.items()}


def _parquet_rows(path: Path) -> list[Row]:
    """Return the first rows of a Parquet file: truncated texts, numbers (which may be ids), and small nested values.
    Return none if it cannot be read."""
    import duckdb

    with suppress(duckdb.Error), in_memory(files=[path], config=_DUCKDB) as database:
        name = without_globs(path)
        types = {row[0]: row[1] for row in database.execute("DESCRIBE FROM read_parquet(?)", [name]).fetchall()}
        wanted = {}
        for known, kind in types.items():
            quoted = '"' + known.replace('"', '""') + '"'
            if kind == "VARCHAR":
                wanted[known] = f"left({quoted}, {_MAX_VALUE_CHARACTERS})"
            elif kind == "BLOB":
                wanted[known] = f"CASE WHEN octet_length({quoted}) < {_SAMPLE_BYTES} THEN {quoted} END"
            elif kind.endswith(("INT", "INTEGER", "DOUBLE", "FLOAT")):
                wanted[known] = quoted
            elif kind.startswith("STRUCT") or kind.endswith("[]"):
                wanted[known] = f"CASE WHEN strlen(CAST({quoted} AS VARCHAR)) < {_SAMPLE_BYTES} THEN {quoted} END"
        if not wanted:
            return []
        columns = ", ".join(wanted.values())
        rows = database.execute(f"SELECT {columns} FROM read_parquet(?) LIMIT {_SAMPLE_ROWS}", [name])
        return [dict(zip(wanted, row, strict=True)) for row in rows.fetchall()]
    return []

"""Which columns of a table are id, title and text: a guess from the first rows, for `airgen init`.

guess_fields([{"Ticket Nr": "7", "Betreff": "Login", "Beschreibung": "Ich kann mich nicht ..."}])
# {"id": "Ticket Nr", "title": "Betreff", "text": "Beschreibung"}
guess_fields([{"headline": "Storm", "body": {"text": "A storm came ..."}}])
# {"id": None, "title": "headline", "text": "body.text"}
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import duckdb

from airgen.database import Config, in_memory, without_globs

_ROWS, _BYTES = 200, 1 << 20  # what is looked at
_LONGEST = 4096  # characters of a value in a Parquet file, of which some kilobytes can hold gigabytes
_DUCKDB: Config = {"threads": 1, "memory_limit": "1GB"}
_IDS = ("_id", "id", "doc_id", "docid", "key", "uuid", "number", "nr", "no", "ticket", "url")
_TITLES = ("title", "name", "subject", "headline", "heading", "summary", "question", "titel", "betreff", "titre")
_TEXTS = ("text", "body", "content", "contents", "description", "passage", "article", "abstract", "answer")

Row = Mapping[str, Any]


def guess_fields(rows: Sequence[Row]) -> dict[str, Any]:
    """`fields` of a reader: the column of the longest texts, a short one as title, one without repetition as id.

    `id` and `title` are None where no column looks like one; empty where no column holds text.
    """
    rows = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = {name: [row[name] for row in rows if row.get(name) not in (None, "")] for name in names}
    lengths = {
        name: fmean(map(len, found))
        for name, found in values.items()
        if found and all(isinstance(v, str) for v in found)
    }
    texts = {name: mean for name, mean in lengths.items() if mean >= 20 or _named(name, _TEXTS)} or lengths
    if not texts:
        return {}
    text = max(texts, key=lambda name: (texts[name] * (3 if _named(name, _TEXTS) else 1), name))
    titles = [name for name in lengths if name != text and _named(name, _TITLES) and lengths[name] < texts[text]]
    ids = [name for name, found in values.items() if name not in (text, *titles[:1]) and _identifies(found, len(rows))]
    ids = [name for name in ids if _named(name, _IDS)]
    ids.sort(key=lambda name: next(place for place, known in enumerate(_IDS) if known in _words(name)))
    return {"id": ids[0] if ids else None, "title": titles[0] if titles else None, "text": text}


def _flat(row: Row, depth: int = 3) -> Row:
    """A row whose nested values have names with dots, as readers take them: {"body": {"text": ..}} has body.text."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        inner = _flat(value, depth - 1) if isinstance(value, Mapping) and depth else {}
        found.update({f"{name}.{below}": one for below, one in inner.items()} or {name: value})
    return found


def _identifies(values: Sequence[Any], rows: int) -> bool:
    plain = [str(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool)]
    return len(plain) == rows and len(set(plain)) == rows and max(map(len, plain), default=0) <= 200


def _words(name: str) -> set[str]:
    low = name.lower()
    return {low, *low.replace("-", "_").replace(" ", "_").replace(".", "_").split("_")}


def _named(name: str, known: Sequence[str]) -> bool:
    return bool(_words(name) & set(known))


def first_rows(path: Path, kind: str) -> list[Row]:
    """The first rows of a CSV, JSON, JSON Lines or Parquet file; none where they cannot be read."""
    try:
        if kind == "parquet":
            return _parquet_rows(path)
        text, whole = _beginning(path)
        if kind == "csv":
            return [row for _, row in islice(csv_rows(text), _ROWS)]
        if kind == "json":
            return json_rows(json.loads(text))[1][:_ROWS] if whole else []
        lines = text.splitlines() if whole else text.splitlines()[:-1]
        rows = [json.loads(line) for line in lines if line.strip()]
        return [row for row in rows[:_ROWS] if isinstance(row, dict)]
    except (OSError, EOFError, ValueError, RecursionError, zlib.error, duckdb.Error):
        return []


def json_rows(value: Any) -> tuple[str, list[Row]]:
    """(where the rows are, the rows) of a JSON value: itself, or the longest list of objects at the top."""
    if isinstance(value, list):
        return "", [row for row in value if isinstance(row, dict)]
    lists = {name: one for name, one in value.items() if isinstance(one, list)} if isinstance(value, dict) else {}
    if not lists:
        return "", []
    name = max(lists, key=lambda name: (len(lists[name]), name))
    return name, [row for row in lists[name] if isinstance(row, dict)]


def _parquet_rows(path: Path) -> list[Row]:
    """The first rows of a Parquet file: its texts, cut, and its whole numbers, which may be ids."""
    with in_memory(files=[path], config=_DUCKDB) as database:
        name = without_globs(path)
        types = {row[0]: row[1] for row in database.execute("DESCRIBE FROM read_parquet(?)", [name]).fetchall()}
        quoted = {column: '"' + column.replace('"', '""') + '"' for column in types}
        wanted = {
            column: f"left({quoted[column]}, {_LONGEST})" if kind == "VARCHAR" else quoted[column]
            for column, kind in types.items()
            if kind == "VARCHAR" or kind.endswith(("INT", "INTEGER"))
        }
        if not wanted:
            return []
        rows = database.execute(f"SELECT {', '.join(wanted.values())} FROM read_parquet(?) LIMIT {_ROWS}", [name])
        return [dict(zip(wanted, row, strict=True)) for row in rows.fetchall()]


def _beginning(path: Path) -> tuple[str, bool]:
    """The first MiB of a file as text, and whether that is all of it."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        data = file.read(_BYTES + 1)
    return data[:_BYTES].decode("utf-8-sig", "replace"), len(data) <= _BYTES


def csv_rows(text: str) -> Iterator[tuple[int, Row]]:
    """(number of the line, from 1; {column: value}) of each row of a table that is not empty, as Excel saves it, too:
    its first line may be `sep=;`. Raises ValueError with the line."""
    first, skipped = text.partition("\n")[0].strip().strip('"'), 0
    separator = ""
    if first.lower().startswith("sep=") and len(first) == 5:
        separator, skipped = first[4], 1
        text = text.partition("\n")[2]
        first = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator or max("\t,;|", key=first.count))
    names: list[str] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if names:
                yield reader.line_num + skipped, dict(zip(names, cells, strict=False))
            names = names or [cell.strip() for cell in cells]
    except csv.Error as error:
        raise ValueError(f"{reader.line_num + skipped}: {error}") from error

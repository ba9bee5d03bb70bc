"""What a JSON file holds: its values, where its rows are, and the text that is elsewhere in it.

    value = parsed('{"page": 1, "docs": [{"id": 7, "text": "..."}]}')
    find_rows(value)                    # ("docs", [{"id": 7, "text": "..."}]): where most of the text is
    rows_at(value, "docs")              # the same rows, for the reader
    elsewhere(value, "docs")            # [("note", "...")]: texts that are not in these rows

A path `a.b.*` stands for all lists in `a.b`. What one list of objects is for a reader, other tools write in a dozen
ways: see `airgen.tables.frame_rows`, and below.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from airgen.tables.frames import frame_rows, is_usual
from airgen.tables.open_table import USUAL_NAMES
from airgen.tables.vocabulary import is_named

KEY, VALUE = "key", "value"
"""The columns of rows made from an object's members: name and value."""
ALL = "*"
_MAX_DEPTH = 3  # levels of objects that are searched for rows
_SAMPLE_ROWS = 200
_NAMED_WEIGHT = 3  # a text in a column that is called so counts as much more
_MIN_WORDS = 3  # of a text elsewhere: shorter ones are names and states

Row = dict[str, Any]


def parsed(text: str, repeated: list[str] | None = None) -> Any:
    """Return the value of a JSON text; of several values one after the other, as jq and loggers write them, the list.

    Tabs and line breaks inside a text, which JSON requires to be escaped, are read as they are.

    Args:
        text: The JSON text.
        repeated: Receives the texts of members whose name comes again in the same object, of which only the last is
            read.

    Raises ValueError, which names the place.
    """
    text = text.lstrip("\ufeff \t\r\n")
    # Python handles Ctrl-C between two calls of the hook.
    decoder = json.JSONDecoder(object_pairs_hook=partial(_object, repeated), strict=False)
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Extra data"):
            raise
        return _several(text, decoder)


def one_row(text: str, repeated: list[str]) -> Any:
    """Return the value of a line of JSON Lines; see `parsed`. Raises ValueError."""
    return json.JSONDecoder(object_pairs_hook=partial(_object, repeated), strict=False).decode(text)


def _object(repeated: list[str] | None, pairs: list[tuple[str, Any]]) -> Row:
    members = dict(pairs)
    if repeated is not None and len(members) < len(pairs):
        repeated += [value for name, value in pairs if isinstance(value, str) and value != members[name]]
    return members


def _several(text: str, decoder: json.JSONDecoder) -> list[Any]:
    place, values = 0, list[Any]()
    while place < len(text):
        value, place = decoder.raw_decode(text, place)
        values += value if isinstance(value, list) else [value]
        while place < len(text) and (text[place].isspace() or text[place] in ",\x1e"):
            place += 1
    return values


def as_rows(value: Any, has_text: Callable[[Row], bool] | None = None) -> list[Any] | None:
    """Return the rows that a value stands for; None for a plain value.

    Args:
        value: A value with rows, in any of the forms that exist.
        has_text: Whether an object has the text of a document, so that it is one row. Without it, an object is one row
            unless its members look like rows.
    """
    if (rows := frame_rows(value, USUAL_NAMES)) is not None:
        return rows
    if isinstance(value, list):
        return (
            value
            if any(isinstance(item, dict) for item in value)
            else [{VALUE: item} if isinstance(item, str) else item for item in value]
        )
    if not isinstance(value, dict):
        return None
    if has_text(value) if has_text else not _by_name(value):
        return [value]
    return [{KEY: key, **row} if isinstance(row, dict) else {KEY: key, VALUE: row} for key, row in value.items()]


def _by_name(value: Mapping[str, Any]) -> bool:
    """Return whether an object's members are rows: objects that are alike, or two texts or more whose names are no
    usual ones."""
    members = list(value.values())
    if len(members) < 2 or any(is_usual(name, USUAL_NAMES) for name in value):
        return False
    if all(isinstance(member, str) for member in members):
        return True
    return all(isinstance(member, dict) for member in members) and bool(
        set.intersection(*(set(member) for member in members[:50]))
    )


def rows_at(value: Any, where: str, has_text: Callable[[Row], bool]) -> list[Any] | None:
    """Return the rows at a path in a value; None if there is nothing that holds rows.

    Args:
        value: The content of the file.
        where: Dotted path; empty for the value itself, `*` at its end for all members.
        has_text: Whether an object has the text of a document, so that it is one row.
    """
    path, every = (where[: -len(ALL)].rstrip("."), True) if where.split(".")[-1] == ALL else (where, False)
    container = at(value, path) if path else value
    if not every:
        return as_rows(container, has_text)
    members = container.values() if isinstance(container, dict) else container if isinstance(container, list) else ()
    return [row for member in members for row in as_rows(member, has_text) or ()]


def at(value: Any, path: str) -> Any:
    """Return the value at a dotted path of names, which may have dots themselves; None if there is none."""
    if not isinstance(value, dict):
        return None
    if path in value:
        return value[path]
    for end in range(len(path) - 1, 0, -1):
        if path[end] == "." and path[:end] in value:
            inner = at(value[path[:end]], path[end + 1 :])
            if inner is not None:
                return inner
    return None


def find_rows(value: Any) -> tuple[str, list[Row]]:
    """Return (where the rows with most of the text are, the rows); an empty list if there are none."""
    best: tuple[float, str, list[Row]] = (0.0, "", [])

    def consider(where: str, rows: Sequence[Any] | None, *, alone: bool = False) -> None:
        nonlocal best
        objects = [row for row in rows or () if isinstance(row, dict)]
        size = _text_size(objects, alone=alone)
        if objects and (size > best[0] or not best[2]):
            best = size, where, objects

    def search(inner: Any, where: str, depth: int) -> None:
        prefix = f"{where}." if where else ""
        if isinstance(inner, list):
            consider(where, as_rows(inner))
        elif isinstance(inner, dict):
            rows = as_rows(inner)
            consider(where, rows, alone=rows == [inner])
            lists = [member for member in inner.values() if isinstance(member, list) and _objects(member)]
            if len(lists) > 1 and _alike(lists) and frame_rows(inner, USUAL_NAMES) is None:
                consider(prefix + ALL, [row for rows in lists for row in rows])
            for name, member in inner.items() if depth else ():
                if isinstance(member, list | dict):
                    search(member, prefix + name, depth - 1)

    search(value, "", 0 if isinstance(value, list) else _MAX_DEPTH)
    return best[1], best[2]


def _objects(rows: Sequence[Any]) -> bool:
    return bool(rows) and all(isinstance(row, dict) for row in rows)


def _alike(lists: Sequence[Sequence[Row]]) -> bool:
    """Return whether the rows of all lists have the columns with the text in common."""
    first = [set(rows[0]) for rows in lists]
    return len(set.intersection(*first)) > 0.5 * max(map(len, first))


def _text_size(rows: Sequence[Row], *, alone: bool) -> float:
    """Return about how many characters the column with the most text has.

    Args:
        rows: Rows of one table.
        alone: The rows are one object, of which only its own texts count, not those of tables in it.
    """
    sizes: dict[str, float] = {}
    for row in rows[:_SAMPLE_ROWS]:
        for name, size in _sizes(row, "", 0 if alone else 3):
            sizes[name] = sizes.get(name, 0.0) + size
    weighted = (
        size * (_NAMED_WEIGHT if is_named(name.rpartition(".")[2], "text") else 1) for name, size in sizes.items()
    )
    return max(weighted, default=0.0) * len(rows) / max(min(len(rows), _SAMPLE_ROWS), 1)


def _sizes(row: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    for name, value in row.items():
        if isinstance(value, str):
            yield prefix + name, len(value)
        elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            yield prefix + name, sum(map(len, value))
        elif depth and isinstance(value, dict):
            yield from _sizes(value, f"{prefix}{name}.", depth - 1)
        elif depth and isinstance(value, list):
            for item in value[:20]:
                if isinstance(item, dict):
                    yield from _sizes(item, f"{prefix}{name}.", depth - 1)


def elsewhere(value: Any, where: str) -> list[tuple[str, str]]:
    """Return (path, text) of each text of some words that is not in the rows at a path.

    Columns of the rows are not looked at: which of them are read is said elsewhere.
    """
    path = where.removesuffix(f".{ALL}").removesuffix(ALL)
    inside = at(value, path) if path else value
    texts: list[tuple[str, str]] = []
    stack: list[tuple[Any, str]] = [(value, "")]
    while stack:
        current, name = stack.pop()
        if current is inside:
            continue
        if isinstance(current, str):
            if len(current.split()) >= _MIN_WORDS:
                texts.append((name, current))
        elif isinstance(current, dict):
            stack += [(member, f"{name}.{key}" if name else str(key)) for key, member in reversed(current.items())]
        elif isinstance(current, list):
            stack += [(item, name) for item in reversed(current)]
    return texts

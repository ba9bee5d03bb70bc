"""Tables in a JSON value: as pandas, `datasets`, vector stores and spreadsheets' services write them.

frame_rows({"columns": ["id", "text"], "index": [0], "data": [["7", "login"]]})     # pandas, orient="split"
frame_rows({"schema": {"fields": [..]}, "data": [{"index": 0, "text": "login"}]})   # orient="table"
frame_rows({"text": {"0": "login", "1": "logout"}})                                 # orient="columns"
frame_rows({"ids": ["7", "8"], "documents": ["login", "logout"]})                   # columns as lists
frame_rows([["id", "text"], ["7", "login"]])                                        # orient="values", with a header

Each gives a list of rows; what is no table gives None. An object of rows by id is no table, but a value of its own.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from airgen.tables.delimited import has_names
from airgen.tables.vocabulary import folded

Row = dict[str, Any]
_CELL = (str, int, float, bool, type(None))


def frame_rows(value: Any, known: Collection[str] = ()) -> list[Row] | None:
    """Return the rows of a table; None for a value that is none.

    Args:
        value: The parsed value.
        known: Usual names of columns, folded.
    """
    if isinstance(value, list):
        return _of_lists(value, known)
    if not isinstance(value, Mapping) or not value:
        return None
    if "columns" in value and "data" in value:
        return _split(value)
    if isinstance(schema := value.get("schema"), Mapping) and "fields" in schema and "data" in value:
        rows = value["data"]
        return [dict(row) for row in rows] if _are(rows, dict) else None
    if _are(list(value.values()), dict):
        return _by_column(value, known)
    return _columns(value, known)


def is_usual(name: str, known: Collection[str]) -> bool:
    """Return whether a column's name is a usual one, also in the plural."""
    return folded(name) in known or folded(name).removesuffix("s") in known


def _are(values: Any, *kinds: type) -> bool:
    """Return whether a value is a list of such values, one at least."""
    return isinstance(values, list) and bool(values) and all(isinstance(value, kinds) for value in values)


def _split(value: Mapping[str, Any]) -> list[Row] | None:
    """Return the rows of pandas' orient="split"; an index of names is a column `index`."""
    names, cells, index = value["columns"], value["data"], value.get("index")
    if not _are(names, *_CELL) or not isinstance(cells, list):
        return None
    columns = [str(name) for name in names]
    if not all(isinstance(row, list) and len(row) == len(columns) for row in cells):
        return None
    rows = [dict(zip(columns, row, strict=True)) for row in cells]
    named = isinstance(index, list) and len(index) == len(rows) and index != list(range(len(rows)))
    return [{"index": label, **row} for label, row in zip(index or (), rows, strict=True)] if named else rows


def _by_column(value: Mapping[str, Mapping[str, Any]], known: Collection[str]) -> list[Row] | None:
    """Return the rows of {column: {row: cell}}; None for {row: {column: cell}}."""
    labels = list(next(iter(value.values())))
    if not labels or any(list(cells) != labels for cells in value.values()):
        return None
    numbered = all(label.isdigit() for label in labels)
    usual = any(is_usual(name, known) for name in value)
    if any(map(str.isdigit, "".join(value))) or any(is_usual(label, known) for label in labels):
        return None
    if not (numbered or usual) or any(isinstance(cell, dict) for cells in value.values() for cell in cells.values()):
        return None
    rows = [{name: cells[label] for name, cells in value.items()} for label in labels]
    return rows if numbered else [{"index": label, **row} for label, row in zip(labels, rows, strict=True)]


def _columns(value: Mapping[str, Any], known: Collection[str]) -> list[Row] | None:
    """Return the rows of {column: [cells]}. Lists of another length, and members without a value, are no columns."""
    if not all(isinstance(cells, list) or cells is None for cells in value.values()):
        return None
    lists = {name: cells for name, cells in value.items() if cells}
    usual = [name for name in lists if is_usual(name, known) and all(isinstance(cell, _CELL) for cell in lists[name])]
    sizes = Counter(len(lists[name]) for name in usual or lists)
    if not sizes:
        return None
    size = max(sizes, key=lambda size: (sizes[size], size))
    columns = {name: cells for name, cells in lists.items() if len(cells) == size}
    others = [cell for cells in lists.values() if len(cells) != size for cell in cells]
    if any(not isinstance(cell, str) or " " in cell for cell in others):
        return None  # they hold more than names
    if not usual:
        plain = all(not isinstance(cell, dict) for cells in columns.values() for cell in cells[:5])
        if len(columns) < 2 or others or not plain or any(map(str.isdigit, "".join(columns))):
            return None
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _of_lists(value: list[Any], known: Collection[str]) -> list[Row] | None:
    """Return the rows of a list of equally long lists, the first of which may contain the column names."""
    if not _are(value, list) or len({len(row) for row in value}) != 1 or len(value[0]) < 2:
        return None
    if not all(isinstance(cell, _CELL) for row in value for cell in row):
        return None
    texts = [["" if cell is None else str(cell) for cell in row] for row in value[:1000]]
    names = [f"column {place}" for place in range(1, len(value[0]) + 1)]
    if _are(value[0], str) and len(value) > 1 and has_names(texts, known, usual=False):
        names, value = value[0], value[1:]
    return [dict(zip(names, row, strict=True)) for row in value]

"""Convert rows of any kind to mappings: data frames, Arrow tables, datasets, and lists of mappings, texts or documents.

    for row in rows_of(frame): ...          # {"url": ..., "title": ..., "body": ...}

Values are converted to JSON types: NaN, NaT and NA become None, numpy numbers become Python's, dates become ISO 8601.
"""

import datetime
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from airgen.errors import UsageError
from airgen.tables.values import json_rows

Row = Mapping[str, Any]
_SLICE = 10_000  # rows of a data frame that are converted at once


def rows_of(
    data: Any, *, known: Collection[str] = (), members: Sequence[str] = (), pairs: bool = False
) -> Iterator[Row]:
    """Yield the rows of any table, in order.

    Args:
        data: A data frame or series, whose named index is a column, an Arrow table, a data set, a mapping as
            `airgen.tables.values.json_rows` takes it, or an iterable of mappings, texts, lists or documents.
        known: Usual names of columns, folded.
        members: Names of the members of a mapping that may contain the rows.
        pairs: Whether {name: {inner name: number}} and {name: [inner names]} are pairs.

    Raises:
        UsageError: An object has no rows.
        ValueError: A mapping has none.
    """
    package, kind = type(data).__module__.partition(".")[0], type(data).__name__
    if package == "pandas" and kind in ("DataFrame", "Series"):
        yield from _of_pandas(data)
    elif package == "polars" and kind in ("DataFrame", "LazyFrame"):
        frame = data.collect() if kind == "LazyFrame" else data
        yield from map(_clean, frame.iter_rows(named=True))
    elif package == "pyarrow" and hasattr(data, "to_batches"):
        for batch in data.to_batches():
            yield from map(_clean, batch.to_pylist())
    elif package == "datasets" and isinstance(data, Mapping):
        raise UsageError(
            f"the data set has splits ({', '.join(map(str, data))}): pass one of them, such as data['train']"
        )
    elif isinstance(data, Mapping) or _is_of_lists(data):
        yield from json_rows(plain_value(data), members, known, pairs=pairs)
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
        for number, item in enumerate(data):
            yield _row(item, number)
    else:
        raise UsageError(
            f"a {kind} contains no rows: give a data frame, a list of mappings, a folder, or a corpus's YAML"
        )


def _of_pandas(data: Any) -> Iterator[Row]:
    """Yield the rows of a data frame or series. The levels of an index that have names are columns; the index of a
    series of texts has ids, unless it only counts."""
    if type(data).__name__ == "Series":
        named = any(name is not None for name in data.index.names)
        ids = not named and data.index.nlevels == 1 and data.index.dtype.kind not in "iuf"
        unnamed = "value" if data.dtype.kind in "biuf" else "text"
        data = data.to_frame(unnamed if data.name is None else data.name)
        data = data.rename_axis("_id") if ids else data
    if not data.columns.is_unique:
        twice = data.columns[data.columns.duplicated()][0]
        raise UsageError(f"the data frame has two columns {str(twice)!r}: rename one of them")
    levels = [name for name in data.index.names if name is not None and name not in data.columns]
    for first in range(0, len(data), _SLICE):
        part = data.iloc[first : first + _SLICE]
        yield from (_clean(row) for row in (part.reset_index(level=levels) if levels else part).to_dict("records"))


def _is_of_lists(data: Any) -> bool:
    """Return whether rows are lists of cells: of (query, document, rating), perhaps below their names."""
    if not isinstance(data, list | tuple) or not data:
        return False
    return all(isinstance(row, list | tuple) and not hasattr(row, "_fields") for row in data)


def _row(item: Any, number: int) -> Row:
    """Convert an item of an iterable to a row: a mapping, a text, or an object of LangChain, LlamaIndex, Haystack or
    another library."""
    if isinstance(item, Mapping):
        return _clean(item)
    if isinstance(item, str):
        return {"text": item}
    metadata = getattr(item, "metadata", None)
    more = dict(metadata) if isinstance(metadata, Mapping) else {}
    if isinstance(text := getattr(item, "page_content", None), str):  # LangChain
        return _clean({**more, "id": getattr(item, "id", None) or more.get("id"), "text": text})
    if callable(content := getattr(item, "get_content", None)):  # LlamaIndex
        return _clean({**more, "id": getattr(item, "node_id", None), "text": content()})
    fields = getattr(item, "__dataclass_fields__", None) or getattr(item, "_fields", None)
    fields = fields or getattr(type(item), "model_fields", None)  # of pydantic
    if fields:
        return _clean({name: getattr(item, name) for name in fields})
    raise UsageError(f"row {number} is a {type(item).__name__}: a mapping of columns to values is needed, or a text")


def _clean(row: Mapping[Any, Any]) -> Row:
    return {str(name): plain_value(value) for name, value in row.items()}


def plain_value(value: Any) -> Any:
    """Convert a value to JSON types."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): plain_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(plain_value, value), key=str)
    if callable(as_list := getattr(value, "tolist", None)):  # of numpy
        return plain_value(as_list())
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)

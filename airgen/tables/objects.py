"""Convert rows of any kind to mappings: data frames, Arrow tables, datasets, and lists of mappings, texts or documents.

    for row in rows_of(frame): ...          # {"url": ..., "title": ..., "body": ...}

Values are converted to JSON types: NaN, NaT and NA become None, numpy numbers become Python's, dates become ISO 8601.
"""

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airgen.errors import UsageError

Row = Mapping[str, Any]


def rows_of(data: Any) -> Iterator[Row]:
    """Yield the rows of any table, in order. Raises UsageError for an object without rows."""
    package, kind = type(data).__module__.partition(".")[0], type(data).__name__
    if package == "pandas" and kind == "DataFrame":
        for first in range(0, len(data), 10_000):
            yield from (_clean(row) for row in data.iloc[first : first + 10_000].to_dict("records"))
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
    elif isinstance(data, Mapping):  # BEIR's corpus: {id: {"title", "text"}}, or {id: text}
        for key, value in data.items():
            yield _clean({"_id": key, **(value if isinstance(value, Mapping) else {"text": value})})
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
        for number, item in enumerate(data):
            yield _row(item, number)
    else:
        raise UsageError(
            f"a {kind} contains no rows: give a data frame, a list of mappings, a folder, or a corpus's YAML"
        )


def _row(item: Any, number: int) -> Row:
    """Convert an item of an iterable to a row: a mapping, a text, or a LangChain or llama-index document."""
    if isinstance(item, Mapping):
        return _clean(item)
    if isinstance(item, str):
        return {"text": item}
    metadata = getattr(item, "metadata", None)
    more = dict(metadata) if isinstance(metadata, Mapping) else {}
    if isinstance(text := getattr(item, "page_content", None), str):  # LangChain
        return _clean({**more, "id": getattr(item, "id", None) or more.get("id"), "text": text})
    if callable(content := getattr(item, "get_content", None)):  # llama-index
        return _clean({**more, "id": getattr(item, "node_id", None), "text": content()})
    fields = getattr(item, "__dataclass_fields__", None) or getattr(item, "_fields", None)
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
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_value(item) for item in value]
    if callable(as_list := getattr(value, "tolist", None)):  # of numpy
        return plain_value(as_list())
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)

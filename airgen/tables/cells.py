"""What a cell of a user's table holds.

column({"body": {"text": "login"}}, "body.text")        # "login": nested fields have dotted names
text_of(b"login")                                       # "login"
"""

from collections.abc import Mapping
from typing import Any


def column(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a column, or None.

    `a.b` is `b` of `a` or, if `a` is a list of objects, the list of their `b`.
    """
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if isinstance(value, list):
            value = [item.get(part) for item in value if isinstance(item, Mapping)]
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def text_of(value: Any) -> Any:
    """Decode bytes as UTF-8 text, since Parquet files by Spark, Hive and Impala do not mark text as such."""
    if isinstance(value, list):
        return [text_of(item) for item in value]
    if isinstance(value, Mapping):
        return {name: text_of(item) for name, item in value.items()}
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            return value
    return value


def id_text(value: Any) -> str:
    """Return an id as text; "" for a missing one.

    A whole float is an integer: data frames turn 7 into 7.0 where another id is missing.
    """
    if value is None or value != value:
        return ""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()

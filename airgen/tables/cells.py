"""What a cell of a user's table holds.

column({"body": {"text": "login"}}, "body.text")        # "login": nested fields have dotted names
text_of(b"login")                                       # "login"
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from airgen.tables.vocabulary import is_degree, yes_or_no

HIGHEST_RATING = 10
"""The highest rating in a column whose name gives no hint."""

MOST_RATINGS = 6
"""How many different ratings are in such a column at most."""

NO_RATINGS = ("count", "id", "query id", "document id", "number", "ticket", "title", "facet")
"""The roles of columns that hold no ratings, even if their values look like them."""


def finite_number(value: object) -> float | None:
    """Return the value as a finite float, or None if it is text, a bool, NaN or too large.

    >>> finite_number(2), finite_number(10**400), finite_number("2")
    (2.0, None, None)
    """
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        return None
    try:
        number = float(value)
    except Exception:  # noqa: BLE001  # a foreign type
        return None
    return number if math.isfinite(number) else None


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


def as_rating(value: Any) -> float | None:
    """Return a rating as a number, 1 or 0 for a word such as `yes` or `not relevant`; None for anything else."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        if (answer := yes_or_no(value)) is not None:
            return answer
        try:
            value = float(value)
        except ValueError:
            return None
    return finite_number(value)


def may_be_rating(values: Sequence[Any]) -> bool:
    """Return whether values, in a column whose name gives no hint, look like ratings: few small numbers, or words."""
    texts = [str(value).strip() for value in values if value is not None and str(value).strip()]
    if not texts:
        return False
    if all(is_degree(text) or yes_or_no(text) is not None for text in texts):
        return True
    numbers = set(map(as_rating, texts))
    small = all(number is not None and 0 <= number <= HIGHEST_RATING and number % 1 == 0 for number in numbers)
    return small and len(numbers) <= MOST_RATINGS

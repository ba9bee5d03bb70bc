"""Tables for the pages of a report: formatted texts, and what a page needs to sort, link and draw them.

    page_table("Splits", Table(rows, [PageColumn("Split", name), PageColumn("Queries", queries, ",")]))

The same `Table` also provides text, Markdown and CSV. A page creates text nodes from the cells, sorts and filters the
rows, and adds small pictures, but does not format or compute anything. The value is stored by column, without empty
parts.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airgen.display.study import Column, Table


@dataclass(frozen=True, slots=True)
class Link:
    """A link from the cells of a column to other parts of the report.

    Attributes:
        to: The first parts of the address, such as ("d0", "query").
        last: Function that returns the last part for a row, or several; None for a cell without a link.
        query: The part after the `?`.
    """

    to: tuple[str, ...]
    last: Callable[[Any], str | tuple[str, ...] | None]
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Picture:
    """A small picture in each cell of a column.

    Attributes:
        kind: In place of a text, `interval`, `ranks` or `bar`. Of the text, `shade` (behind it), `tag` (its first words
            on a colour), `strip` (a square for each of its signs) or `pair` (its sign on a colour).
        value: Function that returns what is drawn for a row: [value, low, high]; [low, high]; a share; a share; [words,
            colour, what follows]; an explanation of each square; from -1 (worse) to 1 (better).
        axis: The common scale of all rows: [low, high] of intervals, or the number of ranks.
    """

    kind: str
    value: Callable[[Any], Any]
    axis: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageColumn(Column):
    """A column with additional information for pages.

    Attributes:
        hint: A sentence that explains the heading.
        sort: Function that returns the sort key of a row. Default: the cell.
        link: The link of the cells.
        picture: The picture in the cells.
        role: Layout on the page: `place`, `name`, `main`, `bars` or `quiet`; `code` if the cells are commands, or
            `money` if they are formatted amounts.
        wide: Whether to omit the column on a phone.
        width: Pixels, in a table of which only the rows in view are drawn.
        below: Function that returns what a phone shows below the cell in place of omitted columns.
        remark: Function that returns an explanation of a cell.
    """

    hint: str = ""
    sort: Callable[[Any], Any] | None = None
    link: Link | None = None
    picture: Picture | None = None
    role: str = ""
    wide: bool = False
    width: int = 0
    below: Callable[[Any], str] | None = None
    remark: Callable[[Any], str] | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """A choice among the rows of a table.

    Attributes:
        name: Its name in the address of a page.
        title: Its name on the page.
        value: Function that returns what a row is chosen by; None or an empty text for a row that no choice shows.
        words: Function that returns how a value is called.
        order: Values in the order in which they are listed; the others follow, numbers by size.
        fewest: Fewest values for which there is something to choose.
    """

    name: str
    title: str
    value: Callable[[Any], str | None]
    words: Callable[[str], str] = str
    order: Sequence[str] = ()
    fewest: int = 2


_MOST_CHOICES = 60  # values of a filter; more are not a useful choice


def page_table(
    label: str,
    table: Table,
    *,
    sort: str = "",
    stack: bool | str = True,
    opens: bool = False,
    square: bool = False,
    filters: Sequence[Filter] = (),
) -> dict[str, Any]:
    """Convert a table to plain values for a page.

    Args:
        label: The table's name, for screen readers and files.
        table: The rows and columns, which may also be a study's plain columns.
        sort: Title of the column by which the table is initially sorted, or `-title` for descending order.
        stack: When a phone shows each row as a list: if there are many columns (True), `always`, or never (False).
        opens: Whether a click on a row follows the link of its column of the role `main`.
        square: Whether its rows and columns are the same things, so that it is not sorted.
        filters: What its rows can be chosen by.

    Returns:
        `label`, `size` and `columns`, each with its `title`, `texts` and other properties. A filter has `choices`, each
        a value and what it is called, and `at`: the place of each row's choice, or -1.
    """
    texts = list(zip(*table.cells(), strict=True)) or [()] * len(table.columns)
    columns = [_column(column, table.rows, list(text)) for column, text in zip(table.columns, texts, strict=True)]
    value: dict[str, Any] = {"label": label, "size": len(table.rows), "columns": columns}
    if sort:
        at = [column.title for column in table.columns].index(sort.removeprefix("-"))
        value["sort"] = f"-{at}" if sort.startswith("-") else str(at)
    if stack is not True:
        value["stack"] = stack
    value |= {name: True for name, is_so in (("opens", opens), ("square", square)) if is_so}
    chosen = [choices for each in filters if (choices := _choices(each, table.rows)) is not None]
    return {**value, "filters": chosen} if filters else value


def _choices(each: Filter, rows: Sequence[Any]) -> dict[str, Any] | None:
    """Return a filter; None where there is nothing to choose."""
    values = [each.value(row) or "" for row in rows]
    order = {value: at for at, value in enumerate(each.order)}
    known = sorted(set(values) - {""}, key=lambda value: (order.get(value, len(order)), *natural(value)))
    if not each.fewest <= len(known) < _MOST_CHOICES:
        return None
    place = {value: at for at, value in enumerate(known)}
    return {
        "name": each.name,
        "title": each.title,
        "choices": [[value, each.words(value)] for value in known],
        "at": [place.get(value, -1) for value in values],
    }


def natural(text: str) -> tuple[list[tuple[int, int, str]], str]:
    """Return what a text is sorted by, as a person would: `2` before `10`, and `b` after `A`."""
    parts = re.split(r"([0-9]+)", text.casefold())
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part], text


def _column(column: Column, rows: Sequence[Any], texts: list[str]) -> dict[str, Any]:
    """Return one column of a page's table."""
    values = [column.value(row) for row in rows]
    numeric = [_number(value) for value in values]
    known = [number for number in numeric if number is not None]
    is_number = not column.left and bool(known or column.form)
    drawn: dict[str, Any] = {"title": column.title, "texts": texts}
    if is_number:
        drawn |= {"number": True, "sort": numeric}
        if column.best and known and len(rows) > 1:
            best_text = texts[numeric.index(max(known))]
            drawn["bold"] = [at for at, text in enumerate(texts) if text == best_text]
    if not isinstance(column, PageColumn):
        return drawn
    if column.sort is not None:
        drawn["sort"] = [column.sort(row) for row in rows]
        drawn["number"] = not column.left
    if column.link is not None:
        drawn |= {"to": list(column.link.to), "ids": [column.link.last(row) for row in rows]}
        if column.link.query:
            drawn["query"] = dict(column.link.query)
    if column.picture is not None:
        picture = column.picture
        drawn["picture"] = {
            "kind": picture.kind,
            "values": [picture.value(row) for row in rows],
            "axis": picture.axis,
        }
    for name in ("hint", "role", "wide", "width"):
        if getattr(column, name):
            drawn[name] = getattr(column, name)
    if column.below is not None:
        drawn["below"] = [column.below(row) for row in rows]
    if column.remark is not None and any(remarks := [column.remark(row) for row in rows]):
        drawn["remarks"] = remarks
    return drawn


def _number(value: Any) -> float | int | None:
    """Return the numeric sort key of a cell (the value or lower end of an interval), or None for text."""
    if isinstance(value, tuple) and value:
        value = value[0]
    value = getattr(value, "value", value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value
    return round(value, 9) if math.isfinite(value) else None  # JSON has no other numbers


def shades(values: Sequence[float | None]) -> list[float | None]:
    """Return the intensity of each cell's shade, from 0 for the lowest value to 1 for the highest, or None if it is
    missing."""
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    return [None if value is None else (value - low) / (high - low) if high > low else 1.0 for value in values]

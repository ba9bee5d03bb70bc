"""Assign roles to columns by their names and contents.

    choice = choose(columns_of(rows), {"query": QUERY, "count": COUNT}, where="log.csv")
    choice.columns                  # {"query": "Suchbegriff", "count": "Anzahl"}
    choice.line()                   # query = 'Suchbegriff', count = 'Anzahl'

A role rates how well a column fits. A name alone is not enough: a column `query` of numbers contains ids.
"""

import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from airgen.components.registry import meant
from airgen.errors import UsageError
from airgen.safety.escaping import one_line
from airgen.tables.vocabulary import folded

_NUMBER = re.compile(r"[+-]?(?:\d[\d\u00a0\u202f ,.']*|\.\d+)(?:[eE][+-]?\d+)?")
_MAX_ID_CHARACTERS = 200  # characters


def is_number(text: str) -> bool:
    """Return whether a cell is a number, with or without digit grouping."""
    return bool(_NUMBER.fullmatch(text.strip().removesuffix("%").rstrip()))


def whole_number(text: str) -> int | None:
    """Parse a non-negative whole number, with or without grouped thousands (1,234 or 1.234); None for anything else."""
    plain = re.sub(r"[\u00a0\u202f ']", "", text)
    parts = plain.replace(".", ",").split(",")
    if len(parts) > 1 and all(len(part) == 3 for part in parts[1:]):
        plain = "".join(parts)
    try:
        value = float(plain)
    except ValueError:
        return None
    return int(value) if math.isfinite(value) and 0 <= value < 1e15 and value == int(value) else None


@dataclass(frozen=True, eq=False)
class TableColumn:
    """A column of a sample: its name, its position from 0, its non-empty values, and the number of rows.

    Attributes:
        invented: Whether the table has no header, so that the name only states the position.
    """

    name: str
    place: int
    values: Sequence[Any]
    rows: int
    invented: bool = False

    @cached_property
    def words(self) -> set[str]:
        """Return the folded words of the column's name, each unchanged and in the singular."""
        parts = re.split(r"[\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.name).casefold())
        return {word for part in parts if part for word in (part, re.sub("ies$", "y", part).removesuffix("s"))}

    @cached_property
    def texts(self) -> list[str]:
        """Return the plain values as text."""
        return [str(value).strip() for value in self.values if not isinstance(value, bool | list | dict)]

    @cached_property
    def plain(self) -> bool:
        """Return whether nearly all rows have a plain value."""
        return bool(self.values) and len(self.texts) >= 0.9 * len(self.values)

    @cached_property
    def numbers(self) -> float:
        """Return the share of values that are numbers."""
        return sum(map(is_number, self.texts)) / len(self.texts) if self.texts else 0.0

    @cached_property
    def counts(self) -> list[int]:
        """Return the values that are non-negative whole numbers."""
        return [number for text in self.texts if (number := whole_number(text)) is not None]

    @cached_property
    def distinct(self) -> float:
        """Return the share of values that differ from all earlier ones."""
        return len(set(self.texts)) / len(self.texts) if self.texts else 0.0

    @cached_property
    def letters(self) -> float:
        """Return the share of values with a letter in any script."""
        return sum(any(map(str.isalpha, text)) for text in self.texts) / len(self.texts) if self.texts else 0.0

    @cached_property
    def length(self) -> float:
        """Return the mean number of characters per value."""
        return fmean(map(len, self.texts)) if self.texts else 0.0

    @cached_property
    def several_words(self) -> float:
        """Return the share of values with two or more words. In scripts without spaces, four characters count as two
        words."""
        multiword = (len(text.split()) > 1 or (not text.isascii() and len(text) > 3) for text in self.texts)
        return sum(multiword) / len(self.texts) if self.texts else 0.0

    @cached_property
    def like_ids(self) -> bool:
        """Return whether all values are distinct, short, single words, most of which have a digit or are long."""
        if not self.texts or self.distinct < 1 or len(self.texts) < self.rows:
            return False
        short = all(len(text.split()) == 1 and len(text) <= _MAX_ID_CHARACTERS for text in self.texts)
        return short and sum(any(map(str.isdigit, text)) for text in self.texts) >= 0.9 * len(self.texts)

    def identifies(self, share: float = 1.0) -> bool:
        """Return whether nearly every row has a distinct value that can be an id."""
        enough = len(self.texts) >= share * self.rows and len(set(self.texts)) >= share * self.rows
        return bool(self.texts) and enough and max(map(len, self.texts)) <= _MAX_ID_CHARACTERS

    def has(self, known: Container[str]) -> float:
        """Return the share of values that are known."""
        return sum(text in known for text in self.texts) / len(self.texts) if self.texts else 0.0

    def named(self, names: Sequence[str]) -> int | None:
        """Return the position of the column's name, or of a word in it, among usual names.

        Returns None if it is not a usual name.
        """
        if self.invented:
            return None
        whole = folded(self.name)
        if whole in names:
            return names.index(whole)
        last = folded(self.name.rpartition(".")[2])  # {"vars": {"question": ..}}
        if last in names:
            return len(names) + names.index(last)
        return next((2 * len(names) + place for place, name in enumerate(names) if name in self.words), None)


Guess = Callable[[Sequence["TableColumn"], Mapping[str, "TableColumn"]], "TableColumn | None"]


def nothing(columns: Sequence[TableColumn], chosen: Mapping[str, TableColumn]) -> TableColumn | None:
    """Make no guess: there is no such column unless it has a usual name."""
    return None


def anything(column: TableColumn) -> bool:
    """Accept any content."""
    return True


@dataclass(frozen=True)
class Role:
    """A role of a column. `what` describes it in messages, with the setting that names it.

    Attributes:
        names: Usual names, folded, most usual first.
        fits: Returns whether a column's contents fit the role.
        guess: Chooses one of the free columns (including lists), given the chosen ones, if no column with a usual name
            fits.
        needed: Whether a column is required.
    """

    what: str
    names: tuple[str, ...] = ()
    fits: Callable[[TableColumn], bool] = anything
    guess: Guess = nothing
    needed: bool = False


@dataclass(frozen=True)
class Choice:
    """The column of each role, or None."""

    columns: Mapping[str, str | None]
    known: Sequence[str]

    def __getitem__(self, role: str) -> str | None:
        return self.columns[role]

    def line(self, kept: Sequence[str] = ()) -> str:
        """Describe the roles and the unused columns on one line. The columns in `kept` have no role, but are kept."""
        used = [f"{role} = {one_line(repr(name), 60)}" for role, name in self.columns.items() if name is not None]
        unused = [name for name in self.known if name not in {*self.columns.values(), *kept}]
        rest = [f"kept as metadata: {list_columns(kept, 6)}"] * bool(kept)
        rest += [f"not used: {list_columns(unused, 6)}"] * bool(unused)
        return ", ".join(used) + (f" ({'; '.join(rest)})" if rest else "")


def columns_of(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str] = (), *, invented: bool = False
) -> list[TableColumn]:
    """Return the columns of a table from some of its rows.

    Args:
        rows: Values by column.
        names: The header. Its columns come first, followed by others in order of first occurrence.
        invented: Whether the names only state the position, because the table has no header.
    """
    values: dict[str, list[Any]] = {name: [] for name in names}
    for row in rows:
        for name, value in row.items():
            filled = values.setdefault(name, [])
            if value is not None and value != "" and not (isinstance(value, str) and not value.strip()):
                filled.append(value)
    return [
        TableColumn(name, place, filled, rows=len(rows), invented=invented)
        for place, (name, filled) in enumerate(values.items())
    ]


def choose(
    columns: Sequence[TableColumn],
    roles: Mapping[str, Role],
    *,
    named: Mapping[str, str] | None = None,
    where: str = "",
) -> Choice:
    """Assign to each role, in order, the column that fits best.

    Args:
        columns: The columns of the table.
        roles: The roles by name.
        named: Columns named in settings, by role. An empty name counts as none.
        where: Name of the table for messages.

    Raises:
        UsageError: A named column does not exist, or a required role has no column.
    """
    known, by_name = [column.name for column in columns], {column.name: column for column in columns}
    chosen: dict[str, TableColumn] = {}
    for role in roles:
        if name := (named or {}).get(role, ""):
            if name not in known:
                hint = meant(name, known) or f" (it has {list_columns(known)})"
                words = f"{where}: there is no column {name!r}{hint}"
                raise UsageError(words, code="unknown_column", where=where, names=known)
            chosen[role] = by_name[name]
    for role, spec in roles.items():
        if role in chosen:
            continue
        free = [column for column in columns if column not in chosen.values()]
        places = [(place, column) for column in free if (place := column.named(spec.names)) is not None]
        usual = [column for _, column in sorted(places, key=lambda pair: (pair[0], pair[1].place))]
        best = next((column for column in usual if column.plain and spec.fits(column)), None)
        # A name that only contains a usual word, such as prompt_id, does not outweigh contents that do not fit.
        by_name_alone = [column for place, column in places if place < 2 * len(spec.names)]
        by_name_alone.sort(key=usual.index)
        best = best or spec.guess(free, chosen) or (by_name_alone[0] if by_name_alone and spec.needed else None)
        if best is not None:
            chosen[role] = best
        elif spec.needed:
            words = f"{where}: which column is {spec.what}? It has {list_columns(known)}: name one of them"
            raise UsageError(words, code="unclear_column", where=where, names=known)
    return Choice({role: chosen[role].name if role in chosen else None for role in roles}, known)


def list_columns(names: Sequence[str], most: int = 12) -> str:
    """Format the first names and the number of others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(one_line(repr(name), 60) for name in names[:most]) + more if names else "no column"

"""Parse delimited text: CSV, TSV, and files from spreadsheets, search logs and test collections.

    table = DelimitedTable(io.StringIO("sep=;\nid;query\n7;login fails\n"))
    table.dialect                                   # TableDialect(delimiter=";", header=True, width=2, skipped=1)
    list(table)                                     # [TableRow(3, {"id": "7", "query": "login fails"})]

The dialect is detected once, from the first rows, and applies to the whole file. A cell ends at its delimiter: a
quotation mark that is never closed, or that is followed by anything but a delimiter, is part of the text and cannot
join lines. In tab-separated text, where quotation marks are mostly part of the text, they are removed only if the cell
needs them (because it contains a tab, a line break or a doubled mark) or if the column has them in all rows.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from airgen.tables.choose_columns import is_number
from airgen.tables.vocabulary import folded

_SAMPLE_ROWS, _SAMPLE_CHARACTERS = 1000, 1 << 20
_DELIMITERS = "\t;,|"  # if two fit equally well, the earlier one is used
# Other delimiters are recognised by usual names that stand between them in the first row; control characters, which
# are nothing else, without.
_RARE_DELIMITERS = "\x1f\x01\x02\x1e^~¦§¬þ:#/$"
_CERTAIN_DELIMITERS = "\x1f\x01\x02\x1e"
_MAX_PREAMBLE_LINES = 20  # maximum number of lines before the header
_MAX_NAME_CHARACTERS = 60  # a row with a longer cell is not a header
_MIN_REGULAR_SHARE = 0.6  # share of the rows that must have the table's width
_MIN_CLEAR_SHARE = 0.9  # the same, for a table after a preamble without known names
_MIN_ROWS = 3


@dataclass(frozen=True, slots=True)
class TableDialect:
    """The format of a table.

    Attributes:
        delimiter: The delimiter, or "" for a single column.
        quoted: Whether unnecessary quotation marks are removed from cells.
        skipped: Number of lines above the header.
        width: Number of cells per row.
        lines: Whether a line that can be a whole row is one, although it may continue a quoted cell. A log with tabs
            has one row per line, and a mark in it may never be closed.
    """

    delimiter: str
    header: bool
    width: int
    quoted: bool = True
    skipped: int = 0
    lines: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row: its first line number, from 1, and its cells by column.

    Attributes:
        ragged: Whether the row had too few or too many cells.
        surplus: Number of extra cells, which were added to a column.
    """

    line: int
    cells: Mapping[str, str]
    ragged: bool = False
    surplus: Sequence[str] = ()


class DelimitedTable:
    """A table that is read once, as a stream.

    lines: with or without their ends; `\\n` and `\\r\\n` are both taken. delimiter: None to tell it, empty for one
    column. header: None to tell whether the first row holds names. known: usual names of columns, folded. tabs: the
    file's name promises tabs.

    A short row is filled with empty cells. Extra cells are added to the column `absorbing`, by default the last one,
    since they usually come from unquoted text with delimiters. `ragged` counts both kinds of rows; nothing is left out.
    """

    def __init__(
        self,
        lines: Iterable[str],
        *,
        delimiter: str | None = None,
        header: bool | None = None,
        known: Collection[str] = (),
        tabs: bool = False,
    ) -> None:
        lines = iter(lines)
        sample = _sample(lines)
        self.dialect = _dialect(sample, delimiter, header, known=known, tabs=tabs)
        self._records = _records(chain(sample, lines), self.dialect)
        self.names = self._names()
        self.absorbing = self.names[-1] if self.names else ""
        self.ragged = 0

    def _names(self) -> list[str]:
        width = self.dialect.width
        if not self.dialect.header:
            return [f"column {place}" for place in range(1, width + 1)]
        _, cells = next(self._records, (0, []))
        cells = [cell.strip() for cell in cells]
        while len(cells) > width and not cells[-1]:
            cells.pop()
        names: dict[str, None] = {}
        for place, cell in enumerate([*cells, *[""] * (width - len(cells))], 1):
            name, number = cell or f"column {place}", 2
            while name in names:
                name, number = f"{cell} ({number})", number + 1
            names[name] = None
        return list(names)

    def __iter__(self) -> Iterator[TableRow]:
        names, width = self.names, len(self.names)
        for line, cells in self._records:
            ragged, extra = False, list[str]()
            if len(cells) != width:
                while len(cells) > width and not cells[-1].strip():
                    cells.pop()  # Excel writes delimiters for cells that were emptied
                ragged = len(cells) != width
                if surplus := max(0, len(cells) - width):
                    place = names.index(self.absorbing)
                    extra = cells[place + 1 : place + surplus + 1]
                    joined = self.dialect.delimiter.join(cells[place : place + surplus + 1])
                    cells[place : place + surplus + 1] = [joined]
                cells += [""] * (width - len(cells))
            self.ragged += ragged
            yield TableRow(line, dict(zip(names, cells, strict=True)), ragged, extra)


def _sample(lines: Iterator[str]) -> list[str]:
    sample: list[str] = []
    size = 0
    for line in lines:
        sample.append(line)
        size += len(line)
        if len(sample) >= _SAMPLE_ROWS or size > _SAMPLE_CHARACTERS:
            break
    return sample


def _dialect(
    sample: list[str], delimiter: str | None, header: bool | None, known: Collection[str], tabs: bool
) -> TableDialect:
    """Detect the dialect of a table from its first lines."""
    skipped = 0
    first = sample[0].strip().strip('"') if sample else ""
    if first.lower().startswith("sep=") and len(first) == 5:
        delimiter, skipped = first[4] if delimiter is None else delimiter, 1
    if delimiter is None:
        candidates = [mark for mark in _DELIMITERS if any(mark in line for line in sample)]
    else:
        candidates = [delimiter] if delimiter else []
    stated = bool(delimiter)
    readings = (_shape(sample, mark, skipped, known=known, stated=stated) for mark in candidates)
    shapes = [shape for shape in readings if shape is not None]
    if delimiter is None and (rare := _rare_delimiter(sample, skipped, known)):
        shape = _shape(sample, rare, skipped, known=known, stated=True)
        shapes = [shape] if shape is not None else shapes
    if delimiter and not shapes:
        rows = [cells for _, cells in _records(sample, TableDialect(delimiter, header=False, width=0, skipped=skipped))]
        shapes = [(TableDialect(delimiter, header=False, width=len(rows[0]) if rows else 1, skipped=skipped), 0.5)]
    if tabs and any(shape[0].delimiter == "\t" for shape in shapes):
        shapes = [shape for shape in shapes if shape[0].delimiter == "\t"]
    if shapes:
        dialect = max(shapes, key=lambda shape: (shape[1], -_DELIMITERS.find(shape[0].delimiter)))[0]
    else:
        dialect = TableDialect("", header=False, width=1, skipped=skipped)
    quoted = dialect.delimiter not in ("\t", "") or _all_quoted(sample, dialect)
    dialect = replace(dialect, quoted=quoted, lines=tabs and not quoted)
    rows = [cells for _, cells in _records(sample, dialect)]
    return replace(dialect, header=has_names(rows, known, not tabs) if header is None else header)


def _rare_delimiter(sample: list[str], skipped: int, known: Collection[str]) -> str:
    """Return an unusual delimiter of a table; empty if it has none.

    Names between it in the first row decide: all of them are usual ones, where with a usual delimiter some are not.
    """
    first = next((line.strip("\ufeff\r\n") for line in sample[skipped:] if line.strip()), "")
    for mark in _RARE_DELIMITERS:
        if mark not in first:
            continue
        cells = [folded(cell.strip().strip('"')) for cell in first.split(mark)]
        if all(cell in known for cell in cells):
            return mark
        rows = [line.count(mark) for line in sample[skipped:] if line.strip()]
        if mark in _CERTAIN_DELIMITERS and sum(count == rows[0] for count in rows) >= _MIN_CLEAR_SHARE * len(rows):
            return mark
    return ""


def _shape(
    sample: list[str], delimiter: str, skipped: int, known: Collection[str], stated: bool
) -> tuple[TableDialect, float] | None:
    """Return the dialect and the regularity of the rows if the lines are a table with this delimiter, or None."""
    dialect = TableDialect(delimiter, header=False, width=0, quoted=True, skipped=skipped)
    rows = list(_records(sample, dialect))
    if not rows:
        return None
    first = rows[0][1]
    names = sum(folded(cell) in known for cell in first)
    if len(first) > 1 and (stated or 2 * names >= len(first)):
        return replace(dialect, width=len(first)), max(0.5, _regular(rows, len(first)))
    if len(first) == 1 and names:
        return None  # the name of a single column, followed by its texts
    counts = Counter(len(cells) for _, cells in rows)
    width = len(first)
    if width < 2 or counts[width] < _MIN_REGULAR_SHARE * len(rows):
        width = max(counts, key=lambda size: (counts[size], size))
    # A title, an export date or the like may precede the header. It has fewer cells than the table.
    beginning = rows[: _MAX_PREAMBLE_LINES + 1]
    start = next((place for place, (_, cells) in enumerate(beginning) if len(cells) == width), len(rows))
    table = rows[start:]
    if width < 2 or not table:
        return None
    regular, named = _regular(table, width), any(folded(cell) in known for cell in table[0][1])
    if start:
        several = len(table) > _MIN_ROWS and regular >= _MIN_CLEAR_SHARE
        if (
            not (named or several)
            or not _look_like_names(table[0][1])
            or any(len(cells) > width for _, cells in rows[:start])
        ):
            return None
    if regular < _MIN_REGULAR_SHARE or (not named and _looks_like_prose(table)):
        return None
    return replace(dialect, width=width, skipped=table[0][0] - 1 if start else skipped), regular


def _looks_like_prose(rows: list[tuple[int, list[str]]]) -> bool:
    """Return whether a space follows nearly all delimiters, as in a sentence."""
    after = [cell for _, cells in rows for cell in cells[1:]]
    return sum(cell.startswith(" ") for cell in after) > 0.8 * len(after)


def _regular(rows: list[tuple[int, list[str]]], width: int) -> float:
    """Return the share of rows with this many cells, in twentieths, so that small differences do not decide between
    delimiters."""
    return round(20 * sum(len(cells) == width for _, cells in rows) / len(rows)) / 20


def _look_like_names(cells: list[str]) -> bool:
    """Return whether cells may be column names: short, distinct, not numbers, and non-empty (except the last ones)."""
    names = [cell.strip() for cell in cells]
    while names and not names[-1]:
        names.pop()
    return (
        bool(names)
        and all(name and len(name) <= _MAX_NAME_CHARACTERS and not is_number(name) for name in names)
        and len(set(names)) == len(names)
    )


def has_names(rows: list[list[str]], known: Collection[str], usual: bool) -> bool:
    """Return whether the first row contains column names.

    Args:
        usual: Whether to assume a header in case of doubt, as is usual in CSV files.
    """
    if not rows:
        return False
    first, others = rows[0], rows[1:]
    named = sum(folded(cell) in known for cell in first)
    if len(first) == 1:
        return bool(named)
    columns = [[row[place].strip() for row in others if len(row) > place] for place in range(len(first))]
    filled = [[value for value in values if value] for values in columns]
    numbers = [bool(values) and sum(map(is_number, values)) >= 0.9 * len(values) for values in filled]
    if named and named >= len([cell for cell in first if cell.strip()]) / 2:
        return True
    if any(is_numeric and is_number(cell) for is_numeric, cell in zip(numbers, first, strict=True)):
        return False  # a number above numbers is an ordinary row
    if named:
        return True
    if not _look_like_names(first) or any(cell.strip() in values for cell, values in zip(first, columns, strict=True)):
        return False
    if any(is_numeric and cell.strip() for is_numeric, cell in zip(numbers, first, strict=True)):
        return True  # a word above numbers
    marked = [
        _looks_like_id(cell) and all(map(_looks_like_id, values))
        for cell, values in zip(first, filled, strict=True)
        if values
    ]
    return usual and not any(marked) if others else usual


def _looks_like_id(cell: str) -> bool:
    """Return whether a cell looks like an id, a single word with a digit. Above such ids, such a cell is not a name."""
    return len(cell.split()) == 1 and any(map(str.isdigit, cell))


def _all_quoted(sample: list[str], dialect: TableDialect) -> bool:
    """Return whether all non-empty cells of a column are quoted, in at least two rows, except perhaps its name in the
    first row."""
    rows = [cells for _, cells in _records(sample, replace(dialect, quoted=False))]
    columns = [[row[place] for row in rows if len(row) > place and row[place]] for place in range(dialect.width)]
    marked = [[len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells] for cells in columns]
    needed = [[any(sign in cell for sign in ("\n", "\t", '"')) for cell in cells] for cells in columns]
    return any(
        sum(marks) > 1 and all(map(max, marks[1:], others[1:])) for marks, others in zip(marked, needed, strict=True)
    )


def _records(lines: Iterable[str], dialect: TableDialect) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the first line, cells) for each non-empty row."""
    source, grammar = _Lines(lines), _Grammar(dialect)
    while (line := source.next()) is not None:
        if source.number <= dialect.skipped:
            continue
        number = source.number
        cells = grammar.cells(line, source) if '"' in line else grammar.plain(line)
        if any(cell.strip() for cell in cells):
            yield number, cells


class _Lines:
    """Numbered lines without line endings, with lookahead."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._seen: list[str] = []  # lines that were looked at; those before `_place` are taken
        self._place = 0
        self.number = 0

    def next(self) -> str | None:
        """Return and consume the next line, or None at the end."""
        line = self.peek(0)
        if line is not None:
            self.take(1)
        return line

    def peek(self, ahead: int) -> str | None:
        """Return the line `ahead` lines after the next one."""
        while len(self._seen) <= self._place + ahead:
            line = next(self._lines, None)
            if line is None:
                return None
            first = not self.number and not self._seen
            self._seen.append((line.removeprefix("\ufeff") if first else line).rstrip("\r\n"))
        return self._seen[self._place + ahead]

    def take(self, count: int) -> None:
        """Consume `count` lines."""
        self._place += count
        self.number += count
        if self._place > 1000 or self._place == len(self._seen):
            del self._seen[: self._place]
            self._place = 0


class _Grammar:
    """Splits lines with quotation marks into cells, in linear time."""

    _LONGEST = 1 << 24  # maximum characters of a quoted cell over several lines; a longer one was never closed
    _REPAIRED = 1 << 14  # characters of a line whose marks are not doubled: each reading may look at all of it

    def __init__(self, dialect: TableDialect) -> None:
        self._dialect = dialect
        end = f"(?={re.escape(dialect.delimiter)}|\\Z)" if dialect.delimiter else r"(?=\Z)"
        self._inner = re.compile(rf'(?:[^"\\]++|""|\\"(?!{end})|\\)*+')
        self._lazy = re.compile(r'"(.*?)"[ ]*' + end)
        self._greedy = re.compile(r'"(.*)"[ ]*' + end)

    def plain(self, line: str) -> list[str]:
        """Return the cells of a line whose quotation marks are part of the text."""
        return line.split(self._dialect.delimiter) if self._dialect.delimiter else [line]

    def cells(self, line: str, source: _Lines) -> list[str]:
        """Return the cells of the row that begins with a line, consuming the other lines of the row."""
        width, mark = self._dialect.width, self._dialect.delimiter
        cells, used = self._strict(line, source)
        if used and self._dialect.lines and self._are_rows([line, *map(source.peek, range(used))]):
            cells, used = None, 0
        fits = cells is not None and (not width or len(cells) == width or (len(cells) < width and mark != "\t"))
        if cells is not None and (fits or not used):
            if fits:
                source.take(used)
                return cells
        elif cells is not None:
            cells = None  # the quotation mark joined several lines
        literal = self.plain(line)
        if not width or len(line) > self._REPAIRED:
            return cells or literal
        # Quotation marks that are not doubled: the right reading gives the row its width.
        readings = [self._loose(line, self._lazy), self._loose(line, self._greedy), literal]
        return next((reading for reading in readings if len(reading) == width), cells or literal)

    def _are_rows(self, lines: Iterable[str | None]) -> bool:
        """Return whether each of the lines that a mark joins is a whole row if marks are text."""
        return all(line is not None and len(self.plain(line)) == self._dialect.width for line in lines)

    def _strict(self, line: str, source: _Lines) -> tuple[list[str] | None, int]:
        """Return the cells and the number of further lines used, or None if a quoted cell does not end with a mark
        before a delimiter."""
        cells: list[str] = []
        text, place, used, size, mark = line, 0, 0, 0, self._dialect.delimiter
        while True:
            if text.startswith('"', place):
                inner, start = [], place + 1
                while (end := self._end(text, start)) == len(text):
                    inner.append(text[start:])
                    more, size = source.peek(used), size + len(text)
                    if more is None or size > self._LONGEST:
                        return None, 0
                    text, start, used = more, 0, used + 1
                inner.append(text[start:end])
                place = end + 1
                while text.startswith(" ", place):
                    place += 1
                if place < len(text) and not (mark and text.startswith(mark, place)):
                    return None, 0
                cells.append(self._plain("\n".join(inner)))
            else:
                end = text.find(mark, place) if mark else -1
                end = len(text) if end < 0 else end
                cells.append(text[place:end])
                place = end
            if place >= len(text):
                return cells, used
            place += 1
            if place == len(text):  # a delimiter at the end means one more cell, which is empty
                return [*cells, ""], used

    def _end(self, text: str, start: int) -> int:
        """Return the position of the mark that closes a cell, or the length of the text if there is none."""
        match = self._inner.match(text, start)
        return match.end() if match else start

    def _loose(self, text: str, pattern: re.Pattern[str]) -> list[str]:
        """Return the cells of a line whose quoted cells end where a pattern matches. A cell without an end is text."""
        cells, place, mark = [], 0, self._dialect.delimiter
        while True:
            match = pattern.match(text, place) if text.startswith('"', place) else None
            if match is not None:
                cells.append(self._plain(match[1]))
                end = match.end()
            else:
                end = text.find(mark, place) if mark else -1
                end = len(text) if end < 0 else end
                cells.append(text[place:end])
            if end >= len(text):
                return cells
            place = end + 1

    def _plain(self, inner: str) -> str:
        """Return a quoted cell without its marks, unless they are part of the text."""
        mark = self._dialect.delimiter
        if not self._dialect.quoted and not ("\n" in inner or '""' in inner or (mark and mark in inner)):
            return f'"{inner}"'
        return inner.replace('""', '"').replace('\\"', '"')

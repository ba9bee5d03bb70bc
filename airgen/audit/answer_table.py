"""The table of an audit that people fill in with a spreadsheet: one row per pair, with the columns `level` and `why`.

    number,query,title,text,level,why,sample
    1,login fails,Passwords,"Reset your password ...",3,names the steps,4511f41bb0ad12fc

Spreadsheets save it with other delimiters, encodings and numbers (`2.0`), so it is read by the reader of users' tables.
"""

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from airgen.errors import DatasetError
from airgen.safety.escaping import one_line
from airgen.tables import DelimitedTable, folded
from airgen.tables.read import read_text

COLUMNS = ("number", "query", "title", "text", "level", "why", "sample")
_CANNOT_SAY = ("x", "?")
_WHOLE = re.compile(r"\d{1,9}([.,]0+)?")


@dataclass(frozen=True, slots=True)
class FilledRow:
    """A row with a level or a reason, as written.

    Attributes:
        line: The row's first line in the file, from 1.
        number: The number of the pair in its sample.
        sample: The key of the sample, or "" if the column is missing.
    """

    line: int
    number: str
    level: str
    why: str
    sample: str


def whole(text: str) -> int | None:
    """Return the whole number in a cell, also written as `2.0` or `2,0`; None for anything else."""
    return int(text.replace(",", ".").partition(".")[0]) if _WHOLE.fullmatch(text) else None


def is_table(path: Path) -> bool:
    """Return whether a file of answers is a table rather than the JSON that the page saves."""
    if path.suffix.lower() == ".json":
        return False
    with path.open("rb") as file:
        start = file.read(256).removeprefix(b"\xef\xbb\xbf")
    return not start.lstrip().startswith(b"{")


def read_answer_table(path: Path) -> list[FilledRow]:
    """Return all rows of a table. Raises DatasetError if the file is not a table with the columns number and level."""
    text = read_text(path, "en")
    tabs = "\t" in text.partition("\n")[0]
    table = DelimitedTable(io.StringIO(text, newline=None), known=COLUMNS, header=True, tabs=tabs)
    names = {folded(name): name for name in table.names}
    if missing := [name for name in ("number", "level") if name not in names]:
        raise DatasetError(
            f"{path}: no column {missing[0]!r}: fill in the table that airgen wrote, and keep its first row"
        )

    def cell(row: Mapping[str, str], name: str) -> str:
        return row.get(names.get(name, ""), "").strip()

    wanted = ("number", "level", "why", "sample")
    return [FilledRow(row.line, *(cell(row.cells, name) for name in wanted)) for row in table]


def level_of(path: Path, row: FilledRow, levels: Mapping[int, str] | None) -> int | None:
    """Return the level that a person wrote, or None for `x` ("I cannot say").

    Args:
        levels: The allowed answers in words. Yes and no may also be written as 1 and 0.

    Raises:
        DatasetError: The cell is neither a level nor one of the words.
    """
    word = row.level.casefold()
    words = {meaning.casefold(): level for level, meaning in (levels or {}).items()}
    if levels and len(levels) == 2:
        yes, no = max(levels), min(levels)
        words |= {"yes": yes, "y": yes, "1": yes, "no": no, "n": no, "0": no}
    if word in _CANNOT_SAY:
        return None
    number = whole(row.level)
    if word in words or str(number) in words:
        return words[word if word in words else str(number)]
    if number is None or number > 3:
        choices = "yes or no" if levels and len(levels) == 2 else "0, 1, 2 or 3"
        raise DatasetError(
            f"{path}:{row.line}: level {one_line(row.level, 40)!r}: write {choices}, or x if you cannot say"
        )
    return number

"""Text from outside, made safe for a terminal, a Markdown or CSV table, or an HTML page.

    terminal_text("a\\x1b[31mb")                      # 'a [31mb': no escape sequence reaches the terminal
    md("<b>|x|")                          # '&lt;b&gt;\\\\|x\\\\|': cannot break a row or open a tag
    markdown_table(["system", "nDCG@10"], rows)      # cells are Markdown already
    csv_text(["system", "nDCG@10"], rows)            # a cell that looks like a formula stays text

Names, titles and documents come from files of other people, so every place that shows them calls one of these.
"""

from __future__ import annotations

import csv
import html
import io
import itertools
import math
import re
from collections.abc import Iterable, Sequence

__all__ = [
    "csv_text",
    "distinct_names",
    "figure",
    "html_text",
    "markdown_table",
    "md",
    "one_line",
    "p_value",
    "terminal_lines",
    "terminal_table",
    "terminal_text",
]

_JOINERS = "\u200c\u200d"  # Persian, Hindi and emoji need them; they are not printable, but they do no harm
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def terminal_text(text: str) -> str:
    """The text without control characters, line breaks and escape sequences; each becomes a space."""
    return "".join(char if char.isprintable() or char in _JOINERS else " " for char in text)


def terminal_lines(text: str) -> str:
    """The same, but line breaks and tabs stay."""
    return "\n".join("\t".join(map(terminal_text, line.split("\t"))) for line in text.split("\n"))


def one_line(text: object, longest: int = 0) -> str:
    """The text on one line with single spaces, cut to `longest` characters with an ellipsis (0: not cut)."""
    line = " ".join(terminal_text(str(text)).split())
    return line[: longest - 1] + "…" if longest and len(line) > longest else line


def figure(value: float | None, form: str = ".3f", missing: str = "–", *, scale: float = 1) -> str:
    """A number for a table, times `scale`; None and NaN are shown as `missing`."""
    return missing if value is None or math.isnan(value) else format(value * scale, form)


def p_value(value: float) -> str:
    """A p-value for a table."""
    return "<.0001" if value < 0.0001 else figure(value, ".4f", "undefined")


def distinct_names(names: Iterable[str]) -> list[str]:
    """The names, each different from the others: a repeated one gets a number.

    >>> distinct_names(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
    found: list[str] = []
    for name in names:
        numbered = (f"{name} ({number})" for number in itertools.count(2))
        found.append(name if name not in found else next(other for other in numbered if other not in found))
    return found


def terminal_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as aligned columns: the first column to the left, the others to the right."""
    clean = [[terminal_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in clean)
    )


def md(text: object) -> str:
    """Text for a Markdown cell or line: no line breaks, HTML, column separators, emphasis or links."""
    escaped = html.escape(one_line(text), quote=False)
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", escaped)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool] = ()) -> str:
    """A table whose cells are Markdown already.

    `right` says which columns are right-aligned; by default all but the first.
    """
    sides = right or [place > 0 for place in range(len(header))]
    lines = [
        "".join(f"| {cell} " if cell else "| " for cell in header) + "|",
        "|" + "|".join(" ---: " if side else " --- " for side in sides) + "|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The text of a CSV file with a header and lines ending in '\\n'.

    A cell that a spreadsheet would take for a formula gets an apostrophe, which makes it text; numbers stay numbers.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([f"'{cell}" if _is_formula(cell) else cell for cell in row] for row in rows)
    return stream.getvalue()


def _is_formula(cell: object) -> bool:
    return isinstance(cell, str) and cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell)


def html_text(text: object, longest: int = 0) -> str:
    """Text for HTML, outside or inside a quoted attribute: escaped, on one line, cut to `longest` characters."""
    return html.escape(one_line(text, longest))

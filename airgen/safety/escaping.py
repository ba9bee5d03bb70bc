"""Make external text safe for a terminal, a Markdown or CSV table, an HTML page, a dataset or a JSON file.

    terminal_text("a\\x1b[31mb")                      # 'a [31mb': no escape sequence reaches the terminal
    visible("a\\x1b[31mb")                            # 'a\\u001b[31mb': for whole outputs, JSON among them
    plain_text("a\\x1b[31mb")                         # 'ab': for datasets and CSV files
    md("<b>|x|")                          # '&lt;b&gt;\\\\|x\\\\|': cannot break a row or open a tag
    markdown_table(["system", "nDCG@10"], rows)      # cells are Markdown already
    csv_text(["system", "nDCG@10"], rows)            # a cell that looks like a formula stays text

Names, titles and documents come from other people's files, so all code that displays them calls one of these functions.
"""

import csv
import html
import io
import itertools
import json
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any

_JOINERS = "\u200c\u200d"  # Persian, Hindi and emoji need them; they are not printable but harmless
# What a spreadsheet drops before a formula does not hide one; Japanese ones take the wide signs, too.
_FORMULA = re.compile(r"\A(?:[\t\r]|[\s\u00ad\u200b-\u200f\u2060\ufeff]*+[=+\-@＝＋－＠])")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")

# C0 except tab and line ends, DEL, C1, and characters that change the direction of the following text.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_ESCAPE = re.compile("(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\\]|\x9d)[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\\\|\x9c)")
_MIN_FOLDED_WIDTH = 15  # characters of a column whose texts are folded
_SPACES = dict.fromkeys((0x0B, 0x0C, 0x85), " ")


def dollars(usd: float) -> str:
    """Format an amount with its significant digits: `dollars(8.117) == "$8.12"`, `dollars(0.00052) == "$0.00052"`."""
    if usd == 0 or abs(usd) >= 1:
        return f"${usd:,.2f}"
    return f"${usd:.{max(2, 1 - math.floor(math.log10(abs(usd))))}f}"


def visible(text: str) -> str:
    """Return the text with each control character as an escape, `\\u001b`; text without any is unchanged.

    In JSON, such an escape represents the character itself, so this function suits any output as a whole. A carriage
    return is kept only before a line feed.
    """
    if text.isprintable():
        return text
    text = re.sub("\r(?!\n)", r"\\u000d", text)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def plain_text(text: str) -> str:
    """Return the text without control characters and escape sequences. Tabs, line endings and other text are
    unchanged."""
    if text.isprintable() or not _CONTROL.search(text):
        return text
    return _CONTROL.sub("", _ESCAPE.sub("", text).translate(_SPACES))


def json_text(value: Any, **options: Any) -> str:
    """Return JSON for a file or terminal, readable in every language, with control characters escaped."""
    return visible(json.dumps(value, ensure_ascii=False, **options))


def terminal_text(text: str) -> str:
    """Return the text with control characters, line breaks and escape sequences replaced by spaces."""
    return "".join(char if char.isprintable() or char in _JOINERS else " " for char in text)


def terminal_lines(text: str) -> str:
    """Return the same, but keep line breaks and tabs."""
    return "\n".join("\t".join(map(terminal_text, line.split("\t"))) for line in text.split("\n"))


def one_line(text: object, longest: int = 0) -> str:
    """Return the text on one line with single spaces, truncated to `longest` characters with an ellipsis (0: not
    truncated)."""
    line = " ".join(terminal_text(str(text)).split())
    return line[: longest - 1] + "…" if longest and len(line) > longest else line


def figure(value: float | None, form: str = ".3f", missing: str = "–") -> str:
    """Format a number for a table. None and NaN are shown as `missing`."""
    return missing if value is None or math.isnan(value) else format(value, form)


def p_value(value: float) -> str:
    """Format a p-value for a table."""
    return "<.0001" if value < 0.0001 else figure(value, ".4f", "undefined")


def distinct_names(names: Iterable[str]) -> list[str]:
    """Make names distinct by numbering repeated ones.

    >>> distinct_names(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
    distinct: list[str] = []
    for name in names:
        numbered = (f"{name} ({number})" for number in itertools.count(2))
        distinct.append(name if name not in distinct else next(other for other in numbered if other not in distinct))
    return distinct


def terminal_table(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """Format rows of cells as aligned columns. The columns `left` are left-aligned, the others right-aligned.

    On a terminal that is too narrow, long titles and the texts of left-aligned columns are wrapped.
    """
    clean = [[terminal_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    room = shutil.get_terminal_size((0, 0)).columns if sys.stdout.isatty() or "COLUMNS" in os.environ else 0
    if room and len(clean) > 1:
        title, *cells = clean
        whole = [[*title[place].split(), *(row[place] for row in cells)] for place in range(len(widths))]
        least = [
            max(_MIN_FOLDED_WIDTH, *(len(word) for cell in column for word in cell.split()))  # names can be copied
            if place in left
            else max(map(len, column))
            for place, column in enumerate(whole)
        ]
        for _ in range(sum(widths) + 2 * len(widths) - 2 - room):
            widest = max(range(len(widths)), key=lambda place: (widths[place] > least[place], widths[place]))
            widths[widest] -= widths[widest] > least[widest]
        fold = partial(textwrap.wrap, break_on_hyphens=False, break_long_words=False)
        folded = [[fold(cell, width) for cell, width in zip(row, widths, strict=True)] for row in clean]
        clean = [list(line) for row in folded for line in itertools.zip_longest(*row, fillvalue="")]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place in left else cell.rjust(width) for place, (cell, width) in enumerate(pairs)
        )
        for pairs in (list(zip(row, widths, strict=True)) for row in clean)
    )


def md(text: object) -> str:
    """Escape text for a Markdown cell or line: no line breaks, HTML, column separators, emphasis or links."""
    escaped = html.escape(one_line(text), quote=False)
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", escaped)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool] = ()) -> str:
    """Format a table whose cells are already Markdown.

    `right` lists the right-aligned columns. Default: all but the first.
    """
    sides = right or [place > 0 for place in range(len(header))]
    lines = [
        "".join(f"| {cell} " if cell else "| " for cell in header) + "|",
        "|" + "|".join(" ---: " if side else " --- " for side in sides) + "|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return the text of a CSV file with a header and lines ending in '\\n'.

    A cell that a spreadsheet would treat as a formula gets an apostrophe, which makes it text. Numbers remain numbers,
    and control characters are removed.
    """
    return csv_lines([_without_formula(cell) for cell in row] for row in (header, *rows))


def csv_lines(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV with lines ending in '\\n', every cell unchanged.

    Python quotes no '\\r', which spreadsheets take for the end of a row.
    """
    stream = io.StringIO()
    plain = csv.writer(stream, lineterminator="\n")
    quoted = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        returns = any(isinstance(cell, str) and "\r" in cell for cell in row)
        (quoted if returns else plain).writerow(row)
    return stream.getvalue()


def _without_formula(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    text = plain_text(cell)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def html_text(text: object, longest: int = 0) -> str:
    """Escape text for HTML, including quoted attributes, on one line and truncated to `longest` characters."""
    return html.escape(one_line(text, longest))

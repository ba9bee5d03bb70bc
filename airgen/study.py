"""What is printed, written and shown: tables and sentences as one value, for a terminal, Markdown, CSV and HTML.

    measure = Column("nDCG@10", lambda row: row.mean, ".4f", best=True)
    table = Table(rows, [Column("system", lambda row: row.name), measure])
    Study("Results", ["Best bold.", table]).markdown()

A cell is a value: a text, which is escaped here for each output, a number, a tuple (low, high), or an interval with
`value`, `low` and `high`. Sentences are Markdown already: whoever puts a name from outside into one calls `md`.
"""

import base64
import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from airgen.text.display import csv_text, html_text, markdown_table, md, p_value, terminal_table

P = "p"
"""The form of p-values."""


class Html(str):
    """A cell or a part that is HTML already; for HTML alone."""


def shown(value: Any, form: str = "", missing: str = "–") -> str:
    """A cell for people; None and NaN are `missing`."""
    if isinstance(value, str):
        return value
    if hasattr(value, "low"):
        middle = shown(value.value, form, "undefined")
        return middle if math.isnan(value.low) else f"{middle} [{value.low:{form}}, {value.high:{form}}]"
    if isinstance(value, tuple):
        low, high = value
        return span(low, high, form)
    if form == P:
        return p_value(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return missing
    return format(value, form)


def span(low: float, high: float, form: str = "") -> str:
    """From the one to the other: `3`, `3–9`, `-0.1 to 0.2`."""
    if math.isnan(low):
        return "–"
    if low == high and not form:
        return str(low)
    between = " to " if low < 0 or form.startswith("+") else "–"
    return f"{low:{form}}{between}{high:{form}}"


@dataclass(frozen=True, slots=True)
class Column:
    """value: makes a row's cell. form: of its number. best: the highest value is bold, the second is underlined.

    left: the text begins at the left, as the first column does.
    """

    title: str
    value: Callable[[Any], Any]
    form: str = ""
    best: bool = False
    left: bool = False
    missing: str = "–"


def columns(*titles: str, form: str = "", left: Collection[int] = (), missing: str = "–") -> list[Column]:
    """The columns of rows that are sequences of cells already."""
    return [Column(title, itemgetter(at), form, left=at in left, missing=missing) for at, title in enumerate(titles)]


@dataclass(frozen=True)
class Table:
    """Rows, and the columns that make cells of them."""

    rows: Sequence[Any]
    columns: Sequence[Column]

    def cells(self, clean: Callable[[str], str] = str, marks: Sequence[str] = ("{}", "{}")) -> list[list[str]]:
        """The cells of each row as texts; `clean` escapes those that come from outside."""
        every = []
        for column in self.columns:
            values = [column.value(row) for row in self.rows]
            texts = [clean(one) if type(one) is str else shown(one, column.form, column.missing) for one in values]
            if column.best and len(values) > 1:
                known = sorted({text for text, one in zip(texts, values, strict=True) if one is not None}, key=float)
                mark = dict(zip(known[::-1], marks, strict=False))
                texts = [mark.get(text, "{}").format(text) for text in texts]
            every.append(texts)
        return [list(row) for row in zip(*every, strict=True)]

    @property
    def _left(self) -> list[int]:
        return [at for at, column in enumerate(self.columns) if column.left or at == 0]

    def text(self) -> str:
        """Aligned columns for a terminal."""
        return terminal_table([[column.title for column in self.columns], *self.cells()], left=self._left)

    def markdown(self) -> str:
        """A Markdown table."""
        right = [at not in self._left for at in range(len(self.columns))]
        header = [md(column.title) for column in self.columns]
        return markdown_table(header, self.cells(md, ("**{}**", "<u>{}</u>")), right)

    def csv(self) -> str:
        """A CSV file."""
        return csv_text([column.title for column in self.columns], self.cells())

    def html(self) -> str:
        """An HTML table."""
        head = [f'<th scope="col"{self._side(at)}>{html_text(one.title)}</th>' for at, one in enumerate(self.columns)]
        body = [
            "<tr>" + "".join(f"<td{self._side(at)}>{cell}</td>" for at, cell in enumerate(row)) + "</tr>\n"
            for row in self.cells(lambda text: html_text(text, 300), ('<b class="best">{}</b>', "<u>{}</u>"))
        ]
        table = f"<table>\n<thead><tr>{''.join(head)}</tr></thead>\n<tbody>\n{''.join(body)}</tbody>\n</table>"
        return f'<div class="table">{table}</div>\n'

    def _side(self, at: int) -> str:
        return ' class="foreign"' if at in self._left else ' class="number"'


@dataclass(frozen=True)
class Study:
    """A title, and what stands below it: tables, sentences in Markdown, and headings (`## Costs`)."""

    title: str
    parts: Iterable[str | Table]

    def markdown(self) -> str:
        """The whole; empty parts, and headings without anything below them, are left out."""
        return "\n\n".join([f"# {md(self.title)}", *body(self.parts)]) + "\n"

    def html(self) -> str:
        """The whole as a page without scripts that loads nothing."""
        from markdown_it import MarkdownIt

        render = MarkdownIt("commonmark", {"html": False}).render
        every = [
            one.html() if isinstance(one, Table) else one if isinstance(one, Html) else render(one)
            for one in _shown(self.parts)
        ]
        title = html_text(self.title, 300)
        return html_page(title, f'<main>\n<h1 class="foreign">{title}</h1>\n{"".join(every)}</main>')

    def write(self, path: Path) -> None:
        """The whole as a Markdown file."""
        write_lines(path, self.markdown())


def body(parts: Iterable[str | Table]) -> list[str]:
    """The parts as Markdown, without empty ones and headings without anything below them."""
    shown = _shown(part for part in parts if not isinstance(part, Html))
    return [(part if isinstance(part, str) else part.markdown()).rstrip("\n") for part in shown]


def _shown(parts: Iterable[str | Table]) -> list[str | Table]:
    found: list[str | Table] = []
    for part in parts:
        if found and _is_heading(found[-1]) and _is_heading(part):
            found.pop()
        found += [part] if (part if isinstance(part, str) else part.rows) else []
    return found[:-1] if found and _is_heading(found[-1]) else found


def _is_heading(part: str | Table) -> bool:
    return isinstance(part, str) and part.startswith("## ") and "\n" not in part


STYLE = Path(__file__).parent / "style.css"
"""The look of all pages."""


def html_page(title: str, body: str, script: str = "") -> str:
    """A page in one file, which loads nothing and runs nothing but `script`. `title` and `body` are HTML already."""
    style = STYLE.read_text(encoding="utf-8")
    allowed = f"style-src '{_hash(style)}'" + (f"; script-src '{_hash(script)}'" if script else "")
    body = f'<body class="sheet">\n{body}\n' + (f"<script>{script}</script>\n" if script else "")
    return html_document(title, f"default-src 'none'; {allowed}", f"<style>{style}</style>", f"{body}</body>")


def html_document(title: str, policy: str, head: str, body: str) -> str:
    """The text of any HTML page. policy: of its content security."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}; base-uri 'none'; form-action 'none'">
<title>{title}</title>
{head}
</head>
{body}
</html>
"""


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def write_lines(path: Path, text: str) -> None:
    """Write text that may hold anything."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")

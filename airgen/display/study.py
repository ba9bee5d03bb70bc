"""A value made of tables and text, which can be printed, or written as Markdown, CSV, HTML or JSON.

    measure = Column("nDCG@10", lambda row: row.mean, ".4f", best=True)
    table = Table(rows, [Column("system", lambda row: row.name), measure])
    Study("Results", ["Best bold.", table]).markdown()

A cell is a text (escaped for each output format), a number, a tuple (low, high), or an interval with `value`, `low` and
`high`. Sentences are Markdown, so callers must escape external text in them with `md`.
"""

import base64
import hashlib
import html
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from airgen.components.registry import load_extra
from airgen.errors import UsageError
from airgen.safety.escaping import (
    csv_text,
    html_text,
    markdown_table,
    md,
    one_line,
    p_value,
    terminal_lines,
    terminal_table,
)
from airgen.storage.json_values import plain, write_json
from airgen.storage.whole_files import write_text

T = TypeVar("T")

P = "p"
"""Format of p-values."""


class Html(str):
    """A cell or part that is already HTML. Other formats omit it."""


class Plain(str):
    """A part that is plain text from any source. Each format escapes it, and several lines keep their alignment."""

    def markdown(self) -> str:
        """Return the text as a paragraph, or several lines as an indented block."""
        lines = terminal_lines(self).split("\n")
        return md(self) if len(lines) == 1 else "\n".join(f"    {line}" for line in lines)

    def html(self) -> str:
        """Return the text as an HTML paragraph, or several lines as a preformatted block."""
        lines = [html.escape(line) for line in terminal_lines(self).split("\n")]
        kind = "p" if len(lines) == 1 else "pre"
        return f'<{kind} class="foreign">' + "\n".join(lines) + f"</{kind}>\n"


def shown(value: Any, form: str = "", missing: str = "–") -> str:
    """Format a cell; None and NaN become `missing`."""
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
    """Format a range: `3`, `3–9`, `-0.1 to 0.2`."""
    if math.isnan(low):
        return "–"
    if low == high and not form:
        return str(low)
    between = " to " if low < 0 or form.startswith("+") else "–"
    return f"{low:{form}}{between}{high:{form}}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: The heading.
        value: Function that returns the cell for a row.
        form: Format specification of numbers.
        best: Print the highest value in bold and underline the second highest.
        left: Align left, as the first column always is.
        missing: Text for None and NaN.
    """

    title: str
    value: Callable[[Any], Any]
    form: str = ""
    best: bool = False
    left: bool = False
    missing: str = "–"


def columns(*titles: str, form: str = "", left: Collection[int] = (), missing: str = "–") -> list[Column]:
    """Return the columns of a table whose rows are sequences of cells."""
    return [Column(title, itemgetter(at), form, left=at in left, missing=missing) for at, title in enumerate(titles)]


@dataclass(frozen=True)
class Table:
    """Rows, and the columns that turn them into cells."""

    rows: Sequence[Any]
    columns: Sequence[Column]

    def cells(self, clean: Callable[[str], str] = str, marks: Sequence[str] = ("{}", "{}")) -> list[list[str]]:
        """Return the cells of each row as text; `clean` escapes external text."""
        cells = []
        for column in self.columns:
            values = [column.value(row) for row in self.rows]
            texts = [
                clean(value) if type(value) is str else shown(value, column.form, column.missing) for value in values
            ]
            if column.best and len(values) > 1:
                known = sorted(
                    {text for text, value in zip(texts, values, strict=True) if value is not None}, key=float
                )
                mark = dict(zip(known[::-1], marks, strict=False))
                texts = [mark.get(text, "{}").format(text) for text in texts]
            cells.append(texts)
        return [list(row) for row in zip(*cells, strict=True)]

    @property
    def _left(self) -> list[int]:
        return [at for at, column in enumerate(self.columns) if column.left or at == 0]

    def text(self) -> str:
        """Return aligned columns for a terminal. A table without titles has no header."""
        titles = [column.title for column in self.columns]
        rows = [titles, *self.cells()] if any(titles) else self.cells()
        return "\n".join(line.rstrip() for line in terminal_table(rows, left=self._left).splitlines())

    def markdown(self) -> str:
        """Return a Markdown table."""
        right = [at not in self._left for at in range(len(self.columns))]
        header = [md(column.title) for column in self.columns]
        return markdown_table(header, self.cells(md, ("**{}**", "<u>{}</u>")), right)

    def csv(self) -> str:
        """Return the text of a CSV file."""
        return csv_text([column.title for column in self.columns], self.cells())

    def html(self) -> str:
        """Return an HTML table."""
        head = [
            f'<th scope="col"{self._side(at)}>{html_text(column.title)}</th>' for at, column in enumerate(self.columns)
        ]
        body = [
            "<tr>" + "".join(f"<td{self._side(at)}>{cell}</td>" for at, cell in enumerate(row)) + "</tr>\n"
            for row in self.cells(lambda text: html_text(text, 300), ('<b class="best">{}</b>', "<u>{}</u>"))
        ]
        table = f"<table>\n<thead><tr>{''.join(head)}</tr></thead>\n<tbody>\n{''.join(body)}</tbody>\n</table>"
        return f'<div class="table">{table}</div>\n'

    def _side(self, at: int) -> str:
        return ' class="foreign"' if at in self._left else ' class="number"'


class Rows(list[T]):
    """Rows of a table, each a dataclass or a dict."""

    def to_pandas(self) -> Any:
        """Return a data frame; nested fields become columns such as `means.nDCG@10`. Raises MissingExtra."""
        return load_extra("pandas", "to_pandas()").json_normalize(plain(self))

    def __repr__(self) -> str:
        more = _more(len(self), _TEXT_ROWS)
        return Study("", [_table_of(plain(self[:_TEXT_ROWS]), _TEXT_WIDTH), more]).text() if self else "[]"

    def _repr_html_(self) -> str:
        """Return the first rows for a notebook."""
        return fragment([_table_of(plain(self[:_NOTEBOOK_ROWS])), _more(len(self), _NOTEBOOK_ROWS)])


class Shown:
    """A value that is shown as tables. Subclasses define the tables in `study`; by default, all fields are shown."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Let a data class keep the tables as its text, in place of its fields in full."""
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__ and not issubclass(cls, dict):
            cls.__repr__ = Shown.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return self.study().text()

    def study(self) -> "Study":
        """Return the value as tables and text."""
        return study_of(type(self).__name__, self)

    def _repr_html_(self) -> str:
        return self.study()._repr_html_()

    def to_pandas(self) -> Any:
        """Return the first table as a data frame. Raises MissingExtra if pandas is not installed."""
        return self.study().to_pandas()

    def save(self, path: str | Path) -> Path:
        """Write the value as Markdown, HTML, CSV or JSON, depending on the file name; return the path."""
        if Path(path).suffix.lower() == ".json":
            write_json(Path(path), self)
            return Path(path)
        return self.study().save(path)


class Figures(dict[str, Any], Shown):
    """A mapping of results, as a command prints them with `--json`."""


@dataclass(frozen=True, repr=False)
class Study:
    """A title followed by tables, paragraphs in Markdown, and headings (`## Costs`).

    Args:
        title: The title, in plain text.
        parts: The tables and texts, in order: a `str` is Markdown. Empty parts, and headings without content, are left
            out.
    """

    title: str
    parts: Iterable[str | Table]

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """Return the study as HTML for a notebook."""
        return fragment([f"### {md(self.title)}", *self.parts])

    def to_pandas(self) -> Any:
        """Return the first table as a data frame. Raises MissingExtra if pandas is not installed."""
        pandas = load_extra("pandas", "to_pandas()")
        table = next((part for part in self.parts if isinstance(part, Table) and part.rows), Table([], []))
        return pandas.DataFrame(
            [[column.value(row) for column in table.columns] for row in table.rows],
            columns=[column.title for column in table.columns],
        )

    def save(self, path: str | Path) -> Path:
        """Write the study to a file.

        Args:
            path: A file ending in .md, .html, .csv (first table only) or .json.

        Returns:
            The path.

        Raises:
            UsageError: The file has another ending.
        """
        path, ending = Path(path), Path(path).suffix.lower()
        tables = [part for part in self.parts if isinstance(part, Table) and part.rows]
        if ending == ".json":
            rows = [
                [dict(zip((column.title for column in table.columns), row, strict=True)) for row in table.cells()]
                for table in tables
            ]
            write_json(path, {"title": self.title, "tables": rows})
        elif ending in (".html", ".htm"):
            write_lines(path, self.html())
        elif ending == ".csv":
            write_lines(path, tables[0].csv() if tables else "")
        elif ending in (".md", ".markdown", ".txt"):
            write_lines(path, self.markdown())
        else:
            raise UsageError(f"{path}: the file name must end in .md, .html, .csv or .json")
        return path

    def text(self, *, title: bool = True) -> str:
        """Return the study as text for a terminal, with or without its title. Tables are aligned, and headings follow a
        blank line.
        """
        lines = [terminal_lines(self.title)] if title and self.title else []
        for part in _shown(part for part in self.parts if not isinstance(part, Html)):
            if _is_heading(part):
                lines += ([""] if lines else []) + [_unescaped(str(part).removeprefix("## "))]
            elif isinstance(part, Table):
                lines.append(part.text())
            else:
                lines.append(terminal_lines(part) if isinstance(part, Plain) else _unescaped(part))
        return "\n".join(lines)

    def markdown(self) -> str:
        """Return the study as Markdown."""
        return "\n\n".join([f"# {md(self.title)}", *body(self.parts)]) + "\n"

    def html(self) -> str:
        """Return the study as an HTML page that has no scripts and loads no other files."""
        from markdown_it import MarkdownIt

        render = MarkdownIt("commonmark", {"html": False}).render
        fragments = [_html_of(part, render) for part in _shown(self.parts)]
        title = html_text(self.title, 300)
        return html_page(title, f'<main>\n<h1 class="foreign">{title}</h1>\n{"".join(fragments)}</main>')

    def write(self, path: Path) -> None:
        """Write the study as a Markdown file."""
        write_lines(path, self.markdown())


_TEXT_ROWS = 10  # rows of a table in a console
_TEXT_WIDTH = 60  # characters of a cell in it
_NOTEBOOK_ROWS = 20  # rows of a table in a notebook
_NOTEBOOK_COLUMNS = 12  # columns of it
_NOTEBOOK_STYLE = (
    ".airgen table{border-collapse:collapse;margin:.4em 0}.airgen th,.airgen td{padding:.15em .7em;border-bottom:1px "
    "solid #8884;text-align:right}.airgen .foreign{text-align:left}.airgen p{margin:.3em 0}.airgen h3{margin:.2em 0}"
)


def fragment(parts: Iterable[str | Table]) -> str:
    """Return parts as HTML for a notebook, with minimal styling; external names are escaped."""
    from markdown_it import MarkdownIt

    render = MarkdownIt("commonmark", {"html": False}).render
    fragments = [_html_of(part, render) for part in _shown(parts)]
    return f'<div class="airgen"><style>{_NOTEBOOK_STYLE}</style>{"".join(fragments)}</div>'


def study_of(title: str, value: Any) -> Study:
    """Turn any value into tables: one for its numbers and texts, and one for each list or mapping of records."""
    data = plain(value)
    if isinstance(data, list):
        return Study(title, [_table_of(data[:_NOTEBOOK_ROWS]), _more(len(data), _NOTEBOOK_ROWS)])
    if not isinstance(data, dict):
        return Study(title, [md(str(data))])
    parts: list[str | Table] = []
    simple = [
        (name, item) for name, item in data.items() if not isinstance(item, dict | list) and item not in ("", None)
    ]
    for name, item in data.items():
        if isinstance(item, dict) and item and all(isinstance(each, dict) for each in item.values()):
            item = [{"": key, **each} for key, each in item.items()]
        if isinstance(item, list) and item and all(isinstance(each, dict) for each in item):
            parts += [
                f"## {md(name.replace('_', ' '))}",
                _table_of(item[:_NOTEBOOK_ROWS]),
                _more(len(item), _NOTEBOOK_ROWS),
            ]
        elif isinstance(item, dict) and item and not any(isinstance(each, dict | list) for each in item.values()):
            parts += [f"## {md(name.replace('_', ' '))}", Table(list(item.items()), columns("", "value", left=(1,)))]
        elif isinstance(item, list) and item and all(isinstance(each, str) for each in item):
            parts += [f"## {md(name.replace('_', ' '))}", "\n".join(f"- {md(each)}" for each in item[:_NOTEBOOK_ROWS])]
    head = Table(simple, columns("", "value", left=(1,)))
    return Study(title, [*parts, *([head] if not parts else ["## figures", head])])


def _table_of(rows: Sequence[Any], width: int | None = None) -> Table:
    """Return plain records as a table, omitting nested lists and mappings. Longer texts than `width` are cut."""
    records = [row if isinstance(row, dict) else {"value": row} for row in rows]
    names = dict.fromkeys(name for row in records for name, cell in row.items() if not isinstance(cell, dict | list))
    few = list(names)[:_NOTEBOOK_COLUMNS]
    return Table(records, [Column(name, partial(_cell, name, width), left=True) for name in few])


def _cell(name: str, width: int | None, row: Mapping[str, Any]) -> Any:
    value = row.get(name)
    if isinstance(value, str) and width is not None:
        return one_line(value, width)
    if isinstance(value, bool):
        return str(value)
    return round(value, 4) if isinstance(value, float) else value


def _more(count: int, shown: int) -> str:
    return f"... and {count - shown:,} more" if count > shown else ""


def body(parts: Iterable[str | Table]) -> list[str]:
    """Return the parts as Markdown, omitting empty parts and headings with nothing below them."""
    shown = _shown(part for part in parts if not isinstance(part, Html))
    return [(part.markdown() if isinstance(part, Table | Plain) else part).rstrip("\n") for part in shown]


def _html_of(part: str | Table, render: Callable[[str], str]) -> str:
    """Return a part as HTML; `render` turns Markdown into it."""
    if isinstance(part, Table | Plain):
        return part.html()
    return part if isinstance(part, Html) else render(part)


def _unescaped(text: str) -> str:
    """Remove the escapes of `md` from Markdown, for a terminal."""
    return terminal_lines(html.unescape(re.sub(r"\\([\\|`*_\[\]])", r"\1", text)))


def _shown(parts: Iterable[str | Table]) -> list[str | Table]:
    shown_parts: list[str | Table] = []
    for part in parts:
        if shown_parts and _is_heading(shown_parts[-1]) and _is_heading(part):
            shown_parts.pop()
        shown_parts += [part] if (part if isinstance(part, str) else part.rows) else []
    return shown_parts[:-1] if shown_parts and _is_heading(shown_parts[-1]) else shown_parts


def _is_heading(part: str | Table) -> bool:
    return isinstance(part, str) and part.startswith("## ") and "\n" not in part


STYLE = Path(__file__).parent / "style.css"
"""The style of all pages."""


def html_page(title: str, body: str, script: str = "") -> str:
    """Return a self-contained page, which loads nothing and runs only `script`. `title` and `body` are HTML."""
    style = STYLE.read_text(encoding="utf-8")
    allowed = f"style-src '{_hash(style)}'" + (f"; script-src '{_hash(script)}'" if script else "")
    body = f'<body class="sheet">\n{body}\n' + (f"<script>{script}</script>\n" if script else "")
    return html_document(title, f"default-src 'none'; {allowed}", f"<style>{style}</style>", f"{body}</body>")


def html_document(title: str, policy: str, head: str, body: str) -> str:
    """Return the source of an HTML page. `policy` is its content security policy."""
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
    """Write text that may contain any characters."""
    write_text(path, text.encode("utf-8", "backslashreplace").decode())

"""The columns of a row that make a document: `fields: {id: url, title: head, text: [summary, body], markup: html}`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from airgen.corpus.readers.html import TooMuchMarkupError, html_blocks
from airgen.corpus.readers.markdown import markdown_blocks
from airgen.corpus.readers.reader import Place, ReaderSettings, drop
from airgen.errors import CorpusError
from airgen.keys import text_key
from airgen.records import Document, Dropped
from airgen.registry import closest
from airgen.settings.base import Settings

Scalar = str | int | bool


class Fields(Settings):
    """The columns of a row that make a document. Several text columns are joined by a blank line.

    With `id: null` the id is a hash of title and text. The column `a.b` is `b` of the object `a`. `markup`: what the
    texts are written in; HTML and Markdown lose their markup, not their words. `each`: the text is a list, and each of
    its items is a document: ID#1, ID#2.
    """

    id: str | None = "_id"
    title: str | None = "title"
    text: str | list[str] = "text"
    markup: Literal["text", "html", "markdown"] = "text"
    each: bool = False

    def named(self) -> list[str]:
        """The columns that the YAML names itself: they must exist."""
        texts = [self.text] if isinstance(self.text, str) else self.text
        columns: dict[str, list[str | None]] = {"id": [self.id], "title": [self.title], "text": [*texts]}
        return [name for key in columns if key in self.model_fields_set for name in columns[key] if name]


class RowSettings(ReaderSettings):
    """The base of the settings of readers whose documents are rows."""

    fields: Fields = Fields()

    def required_packages(self) -> tuple[str, ...]:
        """The packages of the reader, and of the markup."""
        return (*self.packages, "selectolax") if self.fields.markup == "html" else self.packages


class ChosenRows(RowSettings):
    """The base of the settings of readers that can leave rows out. A row that is left out is no part of the corpus.

    where: the value that a column must have, or one of several; of a column that is a list, one of its items.
    characters: the least and the largest length of a text.
    """

    where: dict[str, Scalar | list[Scalar]] = Field(default_factory=dict)
    characters: tuple[int, int] | None = None

    def chooses(self, row: Mapping[str, Any]) -> bool:
        """Whether the row has the values that are wanted."""
        for name, wanted in self.where.items():
            found = column(row, name)
            values = wanted if isinstance(wanted, list) else [wanted]
            if not any(item in values for item in (found if isinstance(found, list) else [found])):
                return False
        return True

    def fits(self, found: Document | Dropped) -> bool:
        """Whether the document has a length that is wanted."""
        if self.characters is None or isinstance(found, Dropped):
            return True
        return self.characters[0] <= len(found.text) <= self.characters[1]


def check_columns(fields: Fields, known: Collection[str], where: object) -> None:
    """Raise CorpusError for a column that the YAML names and the file does not have."""
    for name in fields.named():
        if name not in known and name.split(".")[0] not in known:
            near = closest(name, sorted(known)) if len(known) < 1000 else ""
            hint = near if "did you mean" in near else f" (it has {few(sorted(known))})"
            raise CorpusError(f"{where}: no column {name!r}{hint}; set reader.fields")


class SeenColumns:
    """Which columns the rows of a file without a header have."""

    def __init__(self, fields: Fields) -> None:
        self._fields, self._open = fields, set(fields.named())
        self._known: set[str] = set()

    def add(self, row: Mapping[str, Any]) -> None:
        """Note the columns of a row."""
        if self._open:
            self._open -= {name for name in self._open if name in row or name.split(".")[0] in row}
            if len(self._known) < 200:
                self._known.update(list(row)[:200])

    def join(self, later: SeenColumns) -> None:
        """Note the columns of the rows that another one has seen."""
        self._open &= later._open
        if self._open and len(self._known) < 200:
            self._known |= later._known

    def check(self, where: object) -> None:
        """Raise CorpusError if no row had one of the named columns."""
        if self._open and self._known:
            check_columns(self._fields, self._known, where)


def few(columns: list[str], most: int = 20) -> str:
    """The first columns, each cut to a readable length, and how many there are besides."""
    rest = f" and {len(columns) - most:,} more" if len(columns) > most else ""
    return ", ".join(column[:60] for column in columns[:most]) + rest


def stable_id(*parts: str) -> str:
    """An id of 16 hex digits for a document of a source without ids: a hash of its content."""
    return text_key("\x1f".join(parts))[:16]


def column(row: Mapping[str, Any], name: str) -> Any:
    """The value of a column, or None. `a.b` is `b` of `a`; if `a` is a list of objects, the list of their `b`."""
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if isinstance(value, list):
            value = [item.get(part) for item in value if isinstance(item, Mapping)]
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def to_document(row: Mapping[str, Any], fields: Fields, place: Place, source: str, position: str) -> Document | Dropped:
    """A row as a document, or as Dropped where its text is missing or has a wrong type."""
    texts = []
    for name in [fields.text] if isinstance(fields.text, str) else fields.text:
        value = column(row, name)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            value = "\n".join(value)
        if value is not None and not isinstance(value, str):
            return drop(
                "text is not a string", detail=f"{name}: {type(value).__name__}", source=source, position=position
            )
        if value:
            texts.append(value)
    if not texts:
        return drop("missing text", detail=f"no column {fields.text!r}", source=source, position=position)
    try:
        text = "\n\n".join(_plain(value, fields.markup) for value in texts)
        title_value = column(row, fields.title) if fields.title else None
        title = _plain(title_value, fields.markup) if isinstance(title_value, str) else ""
    except TooMuchMarkupError as error:
        return drop(error.reason, detail=str(error), source=source, position=position)
    id_value = column(row, fields.id) if fields.id else None
    if id_value is None or id_value == "" or isinstance(id_value, (bool, float, dict, list)):
        identity = stable_id(title, text)
    else:
        identity = str(id_value)
    return Document(identity, text, title, source, position, place.licence, place.language)


def to_documents(
    row: Mapping[str, Any], fields: Fields, place: Place, source: str, position: str
) -> Iterator[Document | Dropped]:
    """The documents of a row: one, or with `fields.each` one for each item of its list."""
    if not fields.each or not isinstance(fields.text, str):
        yield to_document(row, fields, place, source, position)
        return
    items = column(row, fields.text)
    if not isinstance(items, list):
        detail = f"{fields.text}: {type(items).__name__}"
        yield drop("text is not a list", detail=detail, source=source, position=position)
        return
    for number, item in enumerate(items, 1):
        found = to_document({**row, fields.text: item}, fields, place, source, f"{position}, item {number}")
        named = fields.id is not None and isinstance(found, Document)
        yield replace(found, id=f"{found.id}#{number}") if named else found


def _plain(text: str, markup: str) -> str:
    """A value without its markup."""
    if markup == "markdown":
        return "\n\n".join(block.text for block in markdown_blocks(text)[1])
    if markup == "html" and ("<" in text or "&" in text):
        return "\n\n".join(block.text for block in html_blocks(text)[1])
    return text

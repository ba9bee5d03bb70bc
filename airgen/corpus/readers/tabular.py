"""Read rows as documents: choose their columns, and read Parquet through DuckDB and CSV.

reader: {kind: parquet, path: data/*.parquet, fields: {id: url, title: head, text: [summary, body], markup: html}}
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from airgen.components.keys import text_key
from airgen.components.registry import meant
from airgen.corpus.readers.files import PathReader
from airgen.corpus.readers.html import html_page
from airgen.corpus.readers.markdown import markdown_page
from airgen.corpus.readers.metadata import metadata_text
from airgen.corpus.readers.reader import SHOWN, Place, ReaderSettings, Unusable, drop, left_out
from airgen.errors import CorpusError
from airgen.safety.interruptible import interruptible
from airgen.settings.base import FILE, Settings
from airgen.storage.records import Document, Dropped
from airgen.storage.sequences import batched
from airgen.storage.sql_connections import Config, in_memory, without_globs
from airgen.tables import TableRow
from airgen.tables.cells import column, text_of
from airgen.tables.chats import as_text, messages_of
from airgen.tables.open_table import MAX_LINE, TableFile, open_table

Scalar = str | int | bool


ID_COLUMNS = ("_id", "id", "docid")
"""The possible columns of the id, unless the YAML names its column."""


class Fields(Settings):
    """The columns that make up a document. Several text columns are joined with a blank line.

    The id is in `_id`, `id` or `docid`, whichever a row has. With `id: null`, it is a hash of title and text. The
    column `a.b` is `b` of the object `a`. `markup` is the markup of the texts, which is removed from HTML and Markdown.
    With `each`, the text is a list, and each of its items becomes a document: ID#1, ID#2.
    """

    id: str | None = "_id"
    title: str | None = "title"
    text: str | list[str] = "text"
    markup: Literal["text", "html", "markdown"] = "text"
    each: bool = False

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the possible columns of the id, of which the first existing one is used; none if the id is a hash."""
        if "id" in self.model_fields_set:
            return () if self.id is None else (self.id,)
        return ID_COLUMNS

    def named(self) -> list[str]:
        """Return the columns that the YAML names explicitly, which must exist."""
        texts = [self.text] if isinstance(self.text, str) else self.text
        columns: dict[str, list[str | None]] = {"id": [self.id], "title": [self.title], "text": [*texts]}
        return [name for key in columns if key in self.model_fields_set for name in columns[key] if name]


class RowSettings(ReaderSettings):
    """Base class of the settings of readers whose documents are rows."""

    fields: Fields = Fields()

    def named(self) -> list[str]:
        """Return the columns that must exist: those that the YAML names in `fields`, and those in `metadata`."""
        return [*self.fields.named(), *self.metadata]

    def required_packages(self) -> tuple[str, ...]:
        """Return the packages that the reader and the markup need."""
        return (*self.packages, "selectolax") if self.fields.markup == "html" else self.packages


class ChosenRows(RowSettings):
    """Base class of the settings of readers that can select rows. Other rows are not part of the corpus.

    Attributes:
        where: The value, or list of values, that a column must have. For a list column, one of its items must match.
        characters: Minimum and maximum length of a text.
    """

    where: dict[str, Scalar | list[Scalar]] = Field(default_factory=dict)
    characters: tuple[int, int] | None = None

    def documents(
        self, row: object, seen: SeenColumns, place: Place, source: str, position: str
    ) -> Iterator[Document | Dropped]:
        """Yield the documents of a row if it is selected, and record its columns in `seen`."""
        if not isinstance(row, dict):
            kind, text = type(row).__name__, str(row)[:200]
            yield drop("not a JSON object", detail=kind, source=source, position=position, text=text)
            return
        seen.add(row)
        if all(self._has(column(row, name), wanted) for name, wanted in self.where.items()):
            least, most = self.characters or (0, sys.maxsize)
            where = {"source": source, "position": position}
            for document in to_documents(row, self.fields, place, **where, metadata=self.metadata):
                if isinstance(document, Dropped) or least <= len(document.text) <= most:
                    yield document

    def _has(self, value: Any, wanted: Scalar | list[Scalar]) -> bool:
        values = wanted if isinstance(wanted, list) else [wanted]
        return any(item in values for item in (value if isinstance(value, list) else [value]))


def check_columns(named: Iterable[str], known: Collection[str], where: object) -> None:
    """Raise CorpusError if the YAML names a column that the file does not have."""
    for name in named:
        if name not in known and name.split(".")[0] not in known:
            suggestion = meant(name, sorted(known)) if len(known) < 1000 else ""
            hint = suggestion or f" (it has {shorten_columns(sorted(known))})"
            raise CorpusError(
                f"{where}: no column {name!r}{hint}; set reader.fields or reader.metadata{_or_delimiter(known)}",
                code="unknown_column",
                where=where,
                names=known,
            )


def _or_delimiter(known: Collection[str]) -> str:
    """Return advice for a table that was read as one column, whose name looks like several."""
    only = next(iter(known)) if len(known) == 1 else ""
    return ", or set reader.delimiter to the separator of its columns" if re.search(r"\w\W+\w", only) else ""


def check_text_columns(settings: RowSettings, known: Collection[str], where: object) -> set[str]:
    """Return the text columns, or the columns that contain them.

    Raises CorpusError if there are none or if a named column is missing.
    """
    check_columns(settings.named(), known, where)
    fields = settings.fields
    texts = [fields.text] if isinstance(fields.text, str) else fields.text
    roots = {column.split(".")[0] if column not in known else column for column in texts}
    if not roots & set(known):
        names, others = ", ".join(map(repr, texts)), shorten_columns(sorted(known))
        words = f"{where}: no column {names} (it has {others}); set reader.fields.text{_or_delimiter(known)}"
        raise CorpusError(words, code="unknown_column", where=where, names=known)
    return roots


class SeenColumns:
    """Collects the columns of the rows in a file without a header."""

    def __init__(self, named: Sequence[str]) -> None:
        self._named, self._open = named, set(named)
        self._known: set[str] = set()

    def add(self, row: Mapping[str, Any]) -> None:
        """Record the columns of a row."""
        if self._open:
            inner = row.get("metadata")
            beside = inner if isinstance(inner, Mapping) else {}
            self._open -= {name for name in self._open if name in row or name.split(".")[0] in row or name in beside}
            if len(self._known) < 200:
                self._known.update(list(row)[:200])

    def join(self, later: SeenColumns) -> None:
        """Record the columns that another instance has seen."""
        self._open &= later._open
        if self._open and len(self._known) < 200:
            self._known |= later._known

    def check(self, where: object) -> None:
        """Raise CorpusError if no row had one of the named columns."""
        if self._open and self._known:
            check_columns(self._named, self._known, where)


def shorten_columns(columns: list[str]) -> str:
    """Format the first columns, each truncated to a readable length, and the number of others."""
    rest = f" and {len(columns) - 20:,} more" if len(columns) > 20 else ""
    return ", ".join(column[:60] for column in columns[:20]) + rest


def stable_id(*parts: str) -> str:
    """Return an id of 16 hex digits, a hash of the content, for a document from a source without ids."""
    return text_key("\x1f".join(parts))[:16]


def row_document(
    row: Mapping[str, Any], fields: Fields, place: Place, source: str, position: str, metadata: Sequence[str] = ()
) -> Iterator[Document | Dropped]:
    """Yield a row as a document, then the pieces left out of its markup.

    A row whose text is missing or has a wrong type becomes a Dropped.

    Args:
        row: Values by column.
        fields: The columns that make up a document.
        place: Settings of the corpus that apply to all documents.
        source: The file or dataset, for messages and rows.
        position: The position of the row in it.
        metadata: Names of columns to keep besides the text.
    """
    texts = []
    left: list[tuple[str, str]] = []
    for name in [fields.text] if isinstance(fields.text, str) else fields.text:
        value = text_of(column(row, name))
        if (messages := messages_of(value)) is not None:
            left += [("parts of messages that are not text", part) for message in messages for part in message.rest]
        piece = as_text(value)
        if value is not None and piece is None:
            detail = f"{name}: {type(value).__name__}"
            yield drop("text is not a string", detail=detail, source=source, position=position, text=_shown(row))
            return
        if piece:
            texts.append(piece)
    if not texts:
        detail = f"no column {fields.text!r}"
        yield drop("missing text", detail=detail, source=source, position=position, text=_shown(row))
        return
    try:
        text = "\n\n".join(_plain(value, fields.markup, left) for value in texts)
        title_value = text_of(column(row, fields.title)) if fields.title else None
        title = _plain(title_value, fields.markup, left) if isinstance(title_value, str) else ""
    except Unusable as error:
        yield drop(error.reason, detail=error.detail, source=source, position=position, text=_shown(row))
        return
    candidates = (text_of(column(row, name)) for name in fields.ids)
    id_value = next((value for value in candidates if value not in (None, "")), None)
    if isinstance(id_value, float) and id_value.is_integer():  # pandas turns 7 into 7.0 if an id is missing
        id_value = int(id_value)
    if id_value is None or id_value == "" or isinstance(id_value, (bool, float, dict, list)):
        identity = stable_id(title, text)
    else:
        identity = str(id_value)
    inner = row.get("metadata")
    beside = inner if isinstance(inner, Mapping) else {}  # names used by BEIR and by other libraries
    values = {name: beside.get(name) if (value := column(row, name)) is None else value for name in metadata}
    metadata_json = metadata_text(metadata, values)
    yield Document(
        identity,
        text,
        title,
        source=source,
        position=position,
        licence=place.licence,
        language=place.language,
        metadata=metadata_json,
    )
    for reason, piece in left:
        yield left_out(reason, identity=identity, source=source, position=position, text=piece)


def _shown(row: Mapping[str, Any]) -> str:
    """Return the texts of a dropped row."""
    return " | ".join(f"{name}: {value}" for name, value in list(row.items())[:50] if value not in (None, ""))[:SHOWN]


def to_documents(
    row: Mapping[str, Any], fields: Fields, place: Place, source: str, position: str, metadata: Sequence[str] = ()
) -> Iterator[Document | Dropped]:
    """Yield the documents of a row: one, or with `fields.each`, one per item of its list.

    The arguments are those of `row_document`.
    """
    if not fields.each or not isinstance(fields.text, str):
        yield from row_document(row, fields, place, source=source, position=position, metadata=metadata)
        return
    items = column(row, fields.text)
    if (messages := messages_of(items)) is not None:
        items = [message.text for message in messages if message.text]
    if not isinstance(items, list):
        detail = f"{fields.text}: {type(items).__name__}"
        yield drop("text is not a list", detail=detail, source=source, position=position, text=_shown(row))
        return
    for number, item in enumerate(items, 1):
        where = f"{position}, item {number}"
        item_row = {**row, fields.text: item}
        for document in row_document(item_row, fields, place, source=source, position=where, metadata=metadata):
            named = fields.id is not None and document.id
            yield replace(document, id=f"{document.id}#{number}") if named else document


def _plain(text: str, markup: str, left: list[tuple[str, str]]) -> str:
    """Return a value without its markup, adding what is left out to `left`."""
    if markup == "markdown":
        page = markdown_page(text)
    elif markup == "html" and ("<" in text or "&" in text):
        page = html_page(text)
    else:
        return text
    left += page.left
    return page.text


_BATCH_ROWS = 1024
_VECTOR_ROWS = 2048  # rows that DuckDB copies at once
_PART_BYTES = 128 * 1024 * 1024
_MEMORY_LIMIT = "2GB"  # memory for DuckDB, which reports an error if it is not enough


class ParquetReader(PathReader):
    """Reads rows of Parquet files in order. Only the columns in `fields` are read."""

    class Settings(RowSettings):
        """Settings of the Parquet reader.

        Attributes:
            path: A file, glob or folder.
            where: A condition on the columns in DuckDB SQL.
        """

        path: Annotated[str, FILE]
        where: str = ""

    suffixes: tuple[str, ...] = (".parquet",)

    def table(self) -> str:
        """Return DuckDB's table function for these files, with `?` for the file."""
        return "read_parquet(?)"

    def read_file(self, path: Path) -> Iterator[Document | Dropped]:
        yield from self.read_table(path, path)

    def read_table(self, path: Path, original: Path) -> Iterator[Document | Dropped]:
        """Yield one document per row of a file that DuckDB can read. Rows and errors name `original`."""
        source_name = original.name
        name = without_globs(path)
        with _Query(path, original) as query:
            types = {row[0]: row[1] for row in query.all(f"DESCRIBE SELECT * FROM {self.table()}", name)}
            wanted = self._wanted(original, set(types))
            condition = f" WHERE {self.settings.where}" if self.settings.where else ""
            source = f" FROM {self.table()}{condition}"
            columns = ['"' + column.replace('"', '""') + '"' for column in wanted]
            texts = [_size_of(types[known], column) for known, column in zip(wanted, columns, strict=True)]
            size = f"greatest(0, {', '.join(texts)})"  # bytes of the largest value; without NULLs
            sizes = (row[0] for row in query.rows(f"SELECT {size}{source}", name))
            limit = self.settings.max_bytes
            # A value that is too large is not fetched. It then looks like NULL, so the size is fetched too.
            selected = ", ".join(f"CASE WHEN {size} <= {limit} THEN {column} END" for column in columns)
            number = 0
            for start, count in _parts(sizes, len(wanted), limit):
                part = f" LIMIT {count} OFFSET {start}" if count else ""
                for largest, *values in query.rows(f"SELECT {size}, {selected}{source}{part}", name):
                    where = {"source": source_name, "position": f"row {number}"}
                    if largest > limit:
                        yield drop("too large", detail=f"more than {limit} bytes", **where)
                    else:
                        row = dict(zip(wanted, values, strict=True))
                        own = self.settings
                        yield from row_document(row, own.fields, self.place, **where, metadata=own.metadata)
                    number += 1

    def _wanted(self, path: Path, known: set[str]) -> list[str]:
        fields = self.settings.fields
        roots = check_text_columns(self.settings, known, path)
        names = [column for column in (*fields.ids, fields.title, *self.settings.metadata) if column]
        return sorted({column if column in known else column.split(".")[0] for column in names} & known | roots & known)


def _size_of(kind: str, column: str) -> str:
    """Return the SQL for the size of a value in bytes."""
    if kind == "BLOB":
        return f"octet_length({column})"
    return f"strlen({column if kind == 'VARCHAR' else f'CAST({column} AS VARCHAR)'})"


def _parts(sizes: Iterable[int], columns: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield (first row, number of rows) for each part to fetch; (0, 0) means everything at once.

    DuckDB copies 2,048 rows at once. A file of a few kilobytes can contain rows of many megabytes, stored only once, so
    a file with large rows is fetched in parts of limited size.
    """
    cuts, part_bytes, count, largest = [0], 0, 0, 0
    for number, size in enumerate(sizes):
        size = min(size, limit) * columns
        largest, part_bytes, count = max(largest, size), part_bytes + size, number + 1
        if part_bytes > _PART_BYTES and number > cuts[-1]:
            cuts.append(number)
            part_bytes = size
    if largest * _VECTOR_ROWS <= 4 * _PART_BYTES:
        yield 0, 0
    else:
        yield from ((start, end - start) for start, end in zip(cuts, [*cuts[1:], count], strict=True))


class _Query:
    """A DuckDB connection that can read only the folder of `path`, uses limited memory and responds to Ctrl-C."""

    def __init__(self, path: Path, original: Path) -> None:
        import duckdb

        self._path, self._error = original, duckdb.Error
        # A corpus's YAML may come from someone else, so its condition can read only this folder.
        config: Config = {"threads": 1, "preserve_insertion_order": True, "memory_limit": _MEMORY_LIMIT}
        self._database = in_memory(folders=[path.parent], config=config)
        self._busy = False

    def __enter__(self) -> _Query:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._busy:
            self._database.close()

    def all(self, statement: str, name: str) -> list[Any]:
        """Return all rows of a small result."""
        result: list[Any] = self._call(lambda: self._database.execute(statement, [name]).fetchall())
        return result

    def rows(self, statement: str, name: str) -> Iterator[Any]:
        """Yield the rows of any result, streamed. Raises CorpusError."""
        self._call(lambda: self._database.execute(statement, [name]))
        while rows := self._call(lambda: self._database.fetchmany(_BATCH_ROWS)):
            yield from rows

    def _call(self, work: Callable[[], Any]) -> Any:
        """Run a query so that Ctrl-C interrupts it, since DuckDB may ignore signals for a long time."""
        self._busy = True
        try:
            result = interruptible(work, self._database.interrupt)
        except self._error as error:
            self._busy = False
            raise CorpusError(f"{self._path}: cannot be read: {str(error).splitlines()[0]}") from error
        self._busy = False
        return result


class CsvReader(PathReader):
    """Reads rows of CSV and TSV files, compressed or not. All columns are text, and an empty cell is not a value."""

    class Settings(ParquetReader.Settings):
        """Settings for the format of the files. What is not given is detected for each file (see `airgen.tables`).

        Attributes:
            delimiter: The delimiter, or "" for a table with one column.
            header: False if the first row is not a header; the columns are then `column 1`, `column 2`, ...
            encoding: The encoding. Default: UTF-8, or else the encoding detected from the bytes.
        """

        delimiter: str | None = Field(default=None, max_length=2)
        header: bool | None = True
        encoding: str = ""

    version: ClassVar[int] = 2
    suffixes = (".csv", ".tsv", ".tab", ".csv.gz", ".tsv.gz")

    def read_file(self, path: Path) -> Iterator[Document | Dropped]:
        """Yield one document for each row.

        Lines above the header, cells beyond the last column and damaged bytes become pieces that are left out. Rows
        with a different number of cells are counted.
        """
        settings = self.settings
        delimiter = "\t" if settings.delimiter == "\\t" else settings.delimiter
        how = {"language": self.place.language, "encoding": settings.encoding, "header": settings.header}
        limit, known = min(settings.max_bytes, MAX_LINE), settings.named()
        counts: dict[str, list[int]] = {}
        with open_table(path, delimiter=delimiter, known=known, limit=limit, **how) as table:
            check_text_columns(self.settings, set(table.names), path)
            for line in table.above:
                yield left_out("line above the header", source=path.name, text=line)
            condition = _Condition(settings.where, table.names, path) if settings.where else None
            for batch in batched(enumerate(table.rows), _BATCH_ROWS):
                rows = condition.of(batch) if condition else batch
                for number, row in rows:
                    position = f"row {number}"
                    yield from self._documents(row, table, source=path.name, position=position, counts=counts)
        for reason, lines in counts.items():
            yield left_out(reason, detail=f"{len(lines):,} rows, the first in line {lines[0]}", source=path.name)

    def _documents(
        self, row: TableRow, table: TableFile, source: str, position: str, counts: dict[str, list[int]]
    ) -> Iterator[Document | Dropped]:
        """Yield the document of a row. Repaired rows are recorded in `counts` by kind of repair."""
        where, fields = {"source": source, "position": position}, self.settings.fields
        if max(map(len, row.cells.values())) > self.settings.max_bytes:
            yield drop("too large", detail=f"a cell has more than {self.settings.max_bytes} characters", **where)
            return
        texts = [fields.text] if isinstance(fields.text, str) else fields.text
        if row.ragged and not row.surplus:
            counts.setdefault("row with too few cells, the others are empty", []).append(row.line)
        elif row.surplus and table.names[-1] in texts:
            counts.setdefault("row with too many cells, joined in the last column", []).append(row.line)
        if table.damaged and any("\ufffd" in value for value in row.cells.values()):
            counts.setdefault(f"bytes that are not {table.encoding}", []).append(row.line)
        cells = {name: value or None for name, value in row.cells.items()}
        documents = list(row_document(cells, fields, self.place, **where, metadata=self.settings.metadata))
        yield from documents
        if row.surplus and table.names[-1] not in texts:
            identity = documents[0].id
            yield left_out("cells beyond the last column", identity=identity, text=" | ".join(row.surplus), **where)


class _Condition:
    """A DuckDB SQL condition on the rows of a table of text columns. It cannot read anything else."""

    def __init__(self, condition: str, names: Sequence[str], path: Path) -> None:
        import duckdb

        self._path, self._error = path, duckdb.Error
        self._database = in_memory(config={"threads": 1, "memory_limit": _MEMORY_LIMIT})
        columns = ", ".join('"' + name.replace('"', '""') + '" VARCHAR' for name in names)
        self._create = f"CREATE OR REPLACE TABLE batch ({columns}, airgen_row INTEGER)"
        self._select = f"SELECT airgen_row FROM batch WHERE {condition}"

    def of(self, rows: Sequence[tuple[int, TableRow]]) -> list[tuple[int, TableRow]]:
        """Return the rows that meet the condition. Raises CorpusError."""
        values: list[dict[str, Any]] = [
            {name: value or None for name, value in row.cells.items()} | {"airgen_row": place}
            for place, (_, row) in enumerate(rows)
        ]
        try:
            self._database.execute(self._create)
            self._database.execute("INSERT INTO batch SELECT unnest(?, recursive := true)", [values])
            return [rows[place] for (place,) in sorted(self._database.execute(self._select).fetchall())]
        except self._error as error:
            raise CorpusError(f"{self._path}: reader.where: {str(error).splitlines()[0]}") from error

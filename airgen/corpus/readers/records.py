"""JSON and JSON Lines, plain or gzip: `reader: {kind: jsonl, path: data/*.jsonl.gz, fields: {id: url, text: body}}`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from airgen.corpus.readers.fields import ChosenRows, Fields, RowSettings, SeenColumns, column, to_document, to_documents
from airgen.corpus.readers.files import PathReader, lines, opened
from airgen.corpus.readers.reader import drop
from airgen.errors import CorpusError
from airgen.records import Document, Dropped
from airgen.settings.base import FILE

_MAX_JSON = 512 * 1024 * 1024
_MAX_VALUES = 30_000_000  # of such a file: each is an object in memory


class JsonLinesReader(PathReader):
    """One JSON object for each line. A line that is not a JSON object is dropped with its reason."""

    class Settings(ChosenRows):
        """`path`: a file, glob or folder below the corpus's root."""

        path: Annotated[str, FILE]

    suffixes = (".jsonl", ".jsonl.gz", ".ndjson", ".json")

    def read_file(self, path: Path) -> Iterator[Document | Dropped]:
        """One document for each line."""
        seen = SeenColumns(self.settings.fields)
        yield from self.read_lines(path, lines(path, self.settings.max_bytes), seen)
        seen.check(path)

    def read_lines(
        self, path: Path, numbered: Iterable[tuple[int, bytes | None]], seen: SeenColumns
    ) -> Iterator[Document | Dropped]:
        """One document for each of these lines of a file, whose columns are noted in `seen`."""
        limit = self.settings.max_bytes
        for number, line in numbered:
            where = {"source": path.name, "position": f"line {number}"}
            if line is None:
                yield drop("too large", detail=f"more than {limit} bytes", **where)
                continue
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except UnicodeDecodeError:
                yield drop("broken UTF-8", text=line[:200].decode("utf-8", "replace"), **where)
                continue
            except (ValueError, RecursionError) as error:
                text = line[:200].decode("utf-8", "replace")
                yield drop("not JSON", detail=str(error)[:200], text=text, **where)
                continue
            if not isinstance(row, dict):
                yield drop("not a JSON object", detail=type(row).__name__, text=line[:200].decode(), **where)
                continue
            seen.add(row)
            if self.settings.chooses(row):
                found = to_documents(row, self.settings.fields, self.place, **where)
                yield from filter(self.settings.fits, found)


class JsonReader(PathReader):
    """One JSON file that holds a list of objects, or an object with such a list at `rows`.

    The file is read whole and can have at most 512 MB; larger data belongs in JSON Lines.
    """

    class Settings(RowSettings):
        """`rows`: the dotted path of the list in the file. The members of an object are rows with a column `key`."""

        path: Annotated[str, FILE]
        rows: str = ""
        fields: Fields = Field(default=Fields(), validate_default=True)

    suffixes = (".json", ".json.gz")

    def read_file(self, path: Path) -> Iterator[Document | Dropped]:
        """One document for each row."""
        seen = SeenColumns(self.settings.fields)
        for number, row in enumerate(self._rows(path)):
            where = {"source": path.name, "position": f"row {number}"}
            if isinstance(row, dict):
                seen.add(row)
                yield to_document(row, self.settings.fields, self.place, **where)
            else:
                yield drop("not a JSON object", detail=type(row).__name__, text=str(row)[:200], **where)
        seen.check(path)

    def _rows(self, path: Path) -> list[Any]:
        with opened(path) as stream:
            raw = stream.read(_MAX_JSON + 1)
        if len(raw) > _MAX_JSON:
            raise CorpusError(f"{path}: more than {_MAX_JSON >> 20} MB of JSON; convert it to JSON Lines (kind: jsonl)")
        if sum(raw.count(mark) for mark in (b",", b"{", b"[")) > _MAX_VALUES:
            raise CorpusError(f"{path}: more than {_MAX_VALUES:,} JSON values; convert it to JSON Lines (kind: jsonl)")
        try:
            # A function of Python's own for each object: between two of them Ctrl-C is heard.
            value = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=lambda pairs: dict(pairs))
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{path}: not JSON: {error}") from error
        found = column(value, self.settings.rows) if self.settings.rows and isinstance(value, dict) else value
        if isinstance(found, dict):
            found = [
                {"key": key, **row} if isinstance(row, dict) else {"key": key, "value": row}
                for key, row in found.items()
            ]
        if not isinstance(found, list):
            raise CorpusError(f"{path}: no list of rows at {self.settings.rows or 'the top'!r}; set reader.rows")
        return found

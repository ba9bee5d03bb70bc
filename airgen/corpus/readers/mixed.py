"""Read folders with several kinds of files: `reader: {kind: files, path: docs, readers: [html, {kind: pdf, split:
pages}]}`.

Each file goes to the first reader that supports its extension. `only` limits a reader to files whose path below `path`
matches one of the patterns. One corpus can thus contain PDF, HTML and tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from airgen.components.registry import closest, resolve
from airgen.corpus.readers.files import PathReader, Raw, endings
from airgen.corpus.readers.reader import Place, ReaderSettings, drop
from airgen.corpus.readers.tabular import RowSettings
from airgen.corpus.readers.text_files import FileReader
from airgen.settings.base import FILE
from airgen.settings.spec import Spec, problems, read_spec
from airgen.storage.records import Document, Dropped

_TEXTS = ("docx", "email", "epub", "html", "ipynb", "markdown", "odt", "pdf", "pptx", "text")


class FilesReader(PathReader):
    """Reads each file of a folder with the reader for its extension."""

    class Settings(ReaderSettings):
        """Settings of the reader for folders with several kinds of files.

        Attributes:
            readers: Names of readers, or mappings with the settings of their kind (without `path`) and optionally
                `only`, patterns of the files to read. Default: every reader of text files, but not of tables.
        """

        path: Annotated[str, FILE]
        readers: tuple[Any, ...] = Field(default=_TEXTS, min_length=1, max_length=200)

        @model_validator(mode="after")
        def _each_is_right(self) -> FilesReader.Settings:
            for number, entry in enumerate(self.readers):
                try:
                    self.entry_spec(entry)
                except ValueError as error:
                    raise ValueError(f"readers.{number}: {'; '.join(problems(error))}") from None
            return self

        def entry_spec(self, entry: Any) -> tuple[Spec, tuple[str, ...]]:
            """Validate an entry of `readers`, and return its reader and file patterns (none for all files)."""
            if not isinstance(entry, str | dict):
                raise ValueError("each must be the name of a reader, or a mapping with `kind` and its settings")
            values = {"kind": entry} if isinstance(entry, str) else dict(entry)
            kind, only = values.get("kind"), values.pop("only", [])
            if kind not in endings():
                hint = closest(str(kind), list(endings()))
                raise ValueError(f"{kind!r} is not a reader that recognises files by their extension{hint}")
            patterns = only if isinstance(only, list) else [only]
            if not all(isinstance(pattern, str) for pattern in patterns):
                raise ValueError(f"{kind}: `only` must be a pattern or a list of patterns, such as tickets/*.csv")
            if "path" in values:
                raise ValueError(f"{kind}: give `path` once, above the readers; `only` selects files")
            # This reader's limits and kept fields apply to all readers.
            bounds = {"max_bytes", "metadata"} & self.model_fields_set
            common = {name: getattr(self, name) for name in bounds}
            return read_spec("reader", {**common, **values, "path": self.path}), tuple(patterns)

        def inner(self) -> list[Spec]:
            """Return the kind and settings of each reader."""
            return [self.entry_spec(entry)[0] for entry in self.readers]

        def required_packages(self) -> tuple[str, ...]:
            """Return the packages of all readers."""
            return tuple(dict.fromkeys(name for part in self.inner() for name in part.settings.required_packages()))

    def __init__(self, settings: FilesReader.Settings, place: Place) -> None:
        super().__init__(settings, place)
        self._readers: list[tuple[tuple[str, ...], PathReader]] = []
        for part, only in map(settings.entry_spec, settings.readers):
            self._readers.append((only, resolve("reader", part.kind)(part.settings, place)))
        self.suffixes = tuple(dict.fromkeys(ending for _, reader in self._readers for ending in reader.suffixes))

    def look_around(self, paths: Sequence[Path]) -> None:
        paths_by_reader: dict[int, list[Path]] = {}
        for path in paths:
            place = next(
                (at for at, (only, candidate) in enumerate(self._readers) if self._reads(path, only, candidate)), -1
            )
            paths_by_reader.setdefault(place, []).append(path)
        for place, (_, reader) in enumerate(self._readers):
            reader.look_around(paths_by_reader.get(place, []))

    def read_file(self, path: Path) -> Iterator[Document | Dropped]:
        """Yield the documents of one file. The id of a table row begins with the file's name, since tables may share
        ids."""
        name = self.name(path)
        reader = self._reader_of(path)
        if reader is None:
            yield drop("no reader for this file", identity=name, source=name)
            return
        rows = isinstance(reader.settings, RowSettings)
        for row in reader.read_file(path):
            if rows and isinstance(row, Document):
                yield replace(row, id=f"{self.identity(name)}#{row.id}", source=name)
            else:
                yield replace(row, source=name) if rows else row

    def raw_file(self, path: Path) -> Iterator[Raw | Document | Dropped]:
        """Yield the bytes of one file, or the documents of a table."""
        reader = self._reader_of(path)
        yield from reader.raw_file(path) if isinstance(reader, FileReader) else self.read_file(path)

    def read_raw(self, raw: Raw) -> Iterator[Document | Dropped]:
        reader = self._reader_of(raw.path)
        assert reader is not None
        yield from reader.read_raw(raw)

    def _reader_of(self, path: Path) -> PathReader | None:
        for only, reader in self._readers:
            if self._reads(path, only, reader):
                reader.twice = self.twice
                return reader
        return None

    def _reads(self, path: Path, only: Sequence[str], reader: PathReader) -> bool:
        below = self.below(path)
        ours = any(fnmatchcase(below, pattern) for pattern in only) if only else True
        return ours and path.name.lower().endswith(reader.suffixes)

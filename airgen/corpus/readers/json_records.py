"""Read records as documents: JSON and JSON Lines (optionally compressed), BEIR folders, Hugging Face `datasets`.

reader: {kind: jsonl, path: data/*.jsonl.gz, fields: {id: url, text: body}}
reader: {kind: beir, path: scifact}                          # its corpus, without queries and qrels
reader: {kind: datasets, path: allenai/c4, config: en}       # from the Hub, or saved on disk
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from airgen.components.registry import load_extra
from airgen.corpus.readers.files import PathReader, Raw, files, opened
from airgen.corpus.readers.reader import Place, drop, left_out
from airgen.corpus.readers.tabular import ChosenRows, Fields, SeenColumns
from airgen.errors import CorpusError
from airgen.safety.mask_secrets import error_words
from airgen.settings.base import FILE
from airgen.storage.records import Document, Dropped
from airgen.storage.sequences import batched
from airgen.tables.cells import column
from airgen.tables.json_files import json_value, lines, rows_over_lines
from airgen.tables.json_rows import elsewhere, one_row, rows_at
from airgen.text.character_encodings import encoding_of, is_wide, wide_lines

REPEATED = "value of a name that comes again in the same object"
_PART_BYTES = 1 << 20  # bytes


class JsonLinesReader(PathReader):
    """Reads one JSON object per line. A line that is not a JSON object is dropped with a reason.

    A file in a different layout, such as a list or objects that span several lines, is read as a whole.
    """

    class Settings(ChosenRows):
        """Settings of the JSON Lines reader.

        Attributes:
            path: A file, glob or folder, relative to the corpus's root.
        """

        path: Annotated[str, FILE]

    suffixes: tuple[str, ...] = (
        ".jsonl", ".jsonl.gz", ".jsonl.bz2", ".jsonl.zst", ".ndjson", ".ndjson.gz", ".ndjson.zst", ".json"
    )  # fmt: skip

    def __init__(self, settings: Any, place: Place) -> None:
        super().__init__(settings, place)
        self.seen: dict[Path, SeenColumns] = {}  # files of which only a part is read
        self._encodings: dict[Path, str] = {}  # files that are not UTF-8

    def read_file(self, path: Path) -> Iterator[Document | Dropped]:
        yield from super().read_file(path)
        if path in self.seen:
            self.seen.pop(path).check(path)

    def raw_file(self, path: Path) -> Iterator[Raw]:
        """Yield the lines of one file, in pieces of a megabyte."""
        with opened(path) as stream:
            wide = is_wide(stream.read(4096))
        if not wide and (rows := rows_over_lines(path, self.place.language, self.settings.max_bytes)) is not None:
            # The rows are given as lines, because any process can read those.
            numbered_rows = ((number, json.dumps(row).encode()) for number, row in enumerate(rows))
            for rows_part in batched(numbered_rows, _PART_BYTES, lambda line: len(line[1]) + 1):
                yield Raw(path, lines=[*rows_part], unit="row")
            return
        numbered = wide_lines(path, self.settings.max_bytes) if wide else lines(path, self.settings.max_bytes)
        for part in batched(numbered, _PART_BYTES, lambda line: len(line[1] or b"") + 1):
            yield Raw(path, lines=part)

    def read_raw(self, raw: Raw) -> Iterator[Document | Dropped]:
        """Yield one document for each of these lines, and record their columns in `seen`."""
        limit = self.settings.max_bytes
        seen = self.seen.setdefault(raw.path, SeenColumns(self.settings.named()))
        for number, line in raw.lines:
            where = {"source": raw.path.name, "position": f"{raw.unit} {number}"}
            if line is None:
                yield drop("too large", detail=f"more than {limit} bytes", **where)
                continue
            # The separator in a sequence of JSON texts (RFC 7464), and the mark of a file that was appended.
            line = line.lstrip(b"\x1e").removeprefix(codecs.BOM_UTF8)
            if not line.strip():
                continue
            words = self._text(line, raw.path)
            if words is None:
                yield drop("broken UTF-8", text=line[:200].decode("utf-8", "replace"), **where)
                continue
            repeated: list[str] = []
            try:
                row = one_row(words.rstrip().removesuffix(","), repeated)
            except (ValueError, RecursionError) as error:
                text = line[:200].decode("utf-8", "replace")
                yield drop("not JSON", detail=str(error)[:200], text=text, **where)
                continue
            yield from self.settings.documents(row, seen, self.place, **where)
            if repeated:
                yield left_out(REPEATED, text="\n".join(repeated), **where)

    def _text(self, line: bytes, path: Path) -> str | None:
        """Decode a line as UTF-8 or in the legacy encoding detected for the file; None if it is neither."""
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            pass
        if path not in self._encodings:
            try:
                self._encodings[path] = encoding_of(path, "", self.place.language)[0]
            except CorpusError:
                self._encodings[path] = "utf-8"
        try:
            return line.decode(self._encodings[path])
        except UnicodeDecodeError:
            return None


class JsonReader(PathReader):
    """A JSON file: a list of objects at `rows`, or what other tools write in its place.

    A table of pandas, columns as lists, objects or texts by id, one object, and several objects one after the other are
    read as rows, too. Texts elsewhere in the file are counted. The file is read as a whole and limited to 512 MB.
    Convert larger data to JSON Lines.
    """

    class Settings(ChosenRows):
        """Settings of the JSON reader.

        Attributes:
            rows: Dotted path to the rows in the file; `*` at its end stands for all lists there. The members of an
                object are rows with a column `key`, and texts have a column `value`.
        """

        path: Annotated[str, FILE]
        rows: str = ""
        fields: Fields = Field(default=Fields(), validate_default=True)

    version = 2
    suffixes = (".json", ".json.gz")

    def read_file(self, path: Path) -> Iterator[Document | Dropped]:
        seen = SeenColumns(self.settings.named())
        repeated: list[str] = []
        value, damaged = json_value(path, self.place.language, repeated=repeated)
        rows = rows_at(value, self.settings.rows, self._has_text)
        if rows is None:
            raise CorpusError(f"{path}: no list of rows at {self.settings.rows or 'the top'!r}; set reader.rows")
        for number, row in enumerate(rows):
            yield from self.settings.documents(row, seen, self.place, source=path.name, position=f"row {number}")
        if others := elsewhere(value, self.settings.rows):
            yield _elsewhere(others, path.name)
        if repeated:
            yield left_out(REPEATED, source=path.name, text="\n".join(repeated))
        if damaged:
            yield left_out("bytes that are not in the file's encoding", source=path.name)
        if rows != [value]:  # of a file for each document, one may lack a column
            seen.check(path)

    def _has_text(self, row: Mapping[str, Any]) -> bool:
        texts = self.settings.fields.text
        names = [texts] if isinstance(texts, str) else texts
        return any(column(row, name) not in (None, "", []) for name in names)


def _elsewhere(texts: Sequence[tuple[str, str]], source: str) -> Dropped:
    """Return the piece for texts of a file that are in none of its rows."""
    names = ", ".join(list(dict.fromkeys(name for name, _ in texts))[:5])
    detail = f"{len(texts):,} texts outside of reader.rows, at {names}"
    return left_out("text outside of the rows", detail=detail, source=source, text="\n".join(text for _, text in texts))


_NAMES = ("corpus.jsonl", "corpus.jsonl.gz")


class BeirReader(JsonLinesReader):
    """Reads Reads Reads `corpus.jsonl` or `corpus.jsonl.gz` with `_id`, `title` and `text`."""

    class Settings(JsonLinesReader.Settings):
        """Settings of the BEIR reader.

        Attributes:
            path: The folder with the corpus file.
        """

        path: Annotated[str, FILE] = "."

    suffixes = ()

    def list_files(self) -> list[Path | Dropped]:
        """Return its one file. Raises CorpusError if there is not exactly one."""
        candidates = files(self.place, self.settings.path, _NAMES, self.settings.skip)
        wanted = [path for path in candidates if isinstance(path, Path) and path.name in _NAMES]
        if len(wanted) != 1:
            raise CorpusError(
                f"{self.place.root / self.settings.path}: {len(wanted)} files named corpus.jsonl, but one is needed"
            )
        return [*wanted]


class DatasetsReader:
    """Streams splits of a dataset without downloading all of it. Code in a repository is never run."""

    class Settings(ChosenRows):
        """Settings of the Hugging Face datasets reader.

        Attributes:
            path: Name on the Hub, or a folder written by `save_to_disk`, relative to the corpus's root.
            config: One configuration or several, which are read in order.
            split: One split or several, which are read in order.
            files: Globs of files to read in place of a repository. They have no config, and their only split is
                `train`.
        """

        packages: ClassVar[tuple[str, ...]] = ("datasets",)
        path: str
        config: str | list[str] | None = None
        split: str | list[str] = "train"
        files: str | list[str] | None = None
        revision: str | None = None
        fields: Fields = Fields(id=None, title=None)

        @model_validator(mode="after")
        def _files_have_no_config(self) -> DatasetsReader.Settings:
            if self.files is not None and (self.config is not None or self.split != "train"):
                raise ValueError("files: have no config and no split")
            return self

    def __init__(self, settings: Settings, place: Place) -> None:
        self.settings, self.place = settings, place

    def read(self) -> Iterator[Document | Dropped]:
        source, seen = self.settings.path, SeenColumns(self.settings.named())
        for number, row in enumerate(self._rows()):
            position = f"row {number}"
            for document in self.settings.documents(row, seen, self.place, source=source, position=position):
                if isinstance(document, Document) and len(document.text) > self.settings.max_bytes:
                    yield drop(
                        "too large", identity=document.id, source=source, position=document.position, text=document.text
                    )
                else:
                    yield document
        seen.check(f"data set {source!r}")

    def _rows(self) -> Iterator[Any]:
        config, split = self.settings.config, self.settings.split
        for name in config if isinstance(config, list) else [config]:
            for part in [split] if isinstance(split, str) else split:
                yield from self._split(name, part)

    def _split(self, config: str | None, split: str) -> Iterator[Any]:
        datasets = load_extra("datasets", "reader 'datasets'")
        local = self.place.root / self.settings.path
        try:
            if (local / "dataset_info.json").is_file() or (local / "dataset_dict.json").is_file():
                dataset = datasets.load_from_disk(str(local))
                if isinstance(dataset, datasets.DatasetDict):
                    dataset = dataset[split]
            else:
                name = str(local) if local.is_dir() else self.settings.path
                more = {} if self.settings.files is None else {"data_files": self.settings.files}
                revision = self.settings.revision
                dataset = datasets.load_dataset(name, config, split=split, revision=revision, streaming=True, **more)
            yield from dataset
        except (OSError, ValueError, KeyError, RuntimeError) as error:  # the Hub's errors are OSErrors
            words = error_words(error)
            raise CorpusError(
                f"data set {self.settings.path!r}, split {split!r}: cannot be read: {words}; "
                "a data set of the Hub needs the network, and some also need a login (HF_TOKEN)"
            ) from error

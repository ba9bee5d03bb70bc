"""The protocol of readers, and the functions that all readers use.

    reader = resolve("reader", "jsonl")(settings, place)
    for row in reader.read():           # a Document, or a Dropped with its reason
        ...

A reader streams: it holds one document at a time, and what its format needs to find the next one. It raises CorpusError
for a file that cannot be used, and yields Dropped for a part of a file that cannot be used.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol, cast

from pydantic import Field

from airgen.errors import CorpusError
from airgen.keys import text_key
from airgen.records import Document, Dropped
from airgen.settings.base import Settings
from airgen.settings.parts import elsewhere

__all__ = [
    "Fields",
    "PathReader",
    "Place",
    "Reader",
    "ReaderSettings",
    "drop",
    "files",
    "lines",
    "stable_id",
    "to_document",
]

MAX_BYTES = 16 * 1024 * 1024


class ReaderSettings(Settings):
    """The base of every reader's settings. `max_bytes` limits the raw size of one document.

    `packages` are the imports without which the reader cannot run.
    """

    packages: ClassVar[tuple[str, ...]] = ()
    max_bytes: int = Field(default=MAX_BYTES, ge=1)

    def text_version(self) -> str:
        """The version of a text that is no file of the corpus, such as Python's own reference; empty for files."""
        return ""


class Fields(Settings):
    """The columns of a row that make a document. Several text columns are joined by a blank line.

    With `id: null` the id is a hash of title and text. The column `a.b` is `b` of the object `a`.
    """

    id: str | None = "_id"
    title: str | None = "title"
    text: str | list[str] = "text"


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a corpus's files, and what the corpus's YAML says about all of them."""

    root: Path
    source: str = ""
    licence: str = ""
    language: str = ""


class Reader(Protocol):
    """A reader of one source format. `Settings` validates its part of the corpus YAML, without `kind`."""

    Settings: ClassVar[type[ReaderSettings]]

    def __init__(self, settings: Any, place: Place) -> None: ...

    def read(self) -> Iterator[Document | Dropped]:
        """The documents, streamed in a fixed order. Raises CorpusError."""
        ...


class PathReader:
    """The base of readers that read the files of `path` one after another.

    `version` is raised when the reader gives other text for the same files: corpora are then read again.
    """

    version: ClassVar[int] = 1
    suffixes: tuple[str, ...] = ()

    def __init__(self, settings: Any, place: Place) -> None:
        self.settings, self.place = settings, place

    def read(self) -> Iterator[Document | Dropped]:
        """Documents in the order of the files' names."""
        for path in files(self.place, self.settings.path, self.suffixes):
            if isinstance(path, Dropped):
                yield path
            else:
                yield from self.read_file(path)

    def read_file(self, path: Path) -> Iterator[Document | Dropped]:
        """The documents of one file."""
        raise NotImplementedError


def stable_id(*parts: str) -> str:
    """An id of 16 hex digits for a document of a source without ids: a hash of its content."""
    return text_key("\x1f".join(parts))[:16]


def drop(
    reason: str, *, identity: str = "", detail: str = "", source: str = "", position: str = "", text: str = ""
) -> Dropped:
    """A part of the source that a reader cannot use. `prepare` sets its key."""
    return Dropped("", identity, "reader", reason, detail, source, position, text[:200])


def files(place: Place, pattern: str, suffixes: tuple[str, ...] = ()) -> Iterator[Path | Dropped]:
    """The files of a path or glob below the root, sorted; of a folder, all files in it.

    With `suffixes`, only the files of a folder with one of these endings. A link to a place outside the root becomes a
    Dropped. Raises CorpusError if there is no file.
    """
    root, written = place.root.resolve(), pattern
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        # The user's YAML can name any folder; links must not leave that folder.
        root, pattern = _outside(place.root, pattern)
    start = root / pattern
    if start.is_dir():
        found = sorted(path for path in start.rglob("*") if path.name.lower().endswith(suffixes or ("",)))
    elif any(mark in pattern for mark in "*?["):
        found = sorted(root.glob(pattern))
    else:
        found = [start]
    wanted = [path for path in found if not path.is_dir()]
    if not any(path.exists() for path in wanted):
        if start.is_dir():
            raise CorpusError(f"{start}: the folder is empty; check reader.path, or run `airgen corpus fetch`")
        hint = elsewhere(written, place.root) or "; check reader.path, or run `airgen corpus fetch`"
        raise CorpusError(f"{start}: no such file{hint}")
    for path in wanted:
        name = path.relative_to(root).as_posix()
        if not path.resolve().is_relative_to(root):
            yield drop("link out of the folder", source=name)
        elif not path.is_file():
            yield drop("not a file", source=name)
        else:
            yield path


def _outside(base: Path, pattern: str) -> tuple[Path, str]:
    parts = Path(pattern).parts
    fixed = next((i for i, part in enumerate(parts) if any(mark in part for mark in "*?[")), len(parts))
    root = (base / Path(*parts[:fixed])).resolve()
    if fixed == len(parts) and not root.is_dir():
        return root.parent, root.name
    return root, str(Path(*parts[fixed:])) if fixed < len(parts) else "."


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, unpacked if they begin like gzip. Raises CorpusError for a damaged file."""
    try:
        with path.open("rb") as raw:
            if raw.read(2) == b"\x1f\x8b":
                raw.seek(0)
                with gzip.open(raw) as unpacked:
                    yield cast(IO[bytes], unpacked)
            else:
                raw.seek(0)
                yield raw
    except EOFError as error:
        raise CorpusError(f"{path}: the gzip ends early; fetch or copy it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(f"{path}: damaged gzip ({error}); fetch or copy it again") from error
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror or error}") from error


def lines(path: Path, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """(number from 1, line without its end); None instead of a line of more than `limit` bytes."""
    with opened(path) as stream:
        number = 0
        while piece := stream.readline(limit + 1):
            number += 1
            if len(piece) > limit and not piece.endswith(b"\n"):
                while (rest := stream.readline(limit)) and not rest.endswith(b"\n"):
                    pass
                yield number, None
            else:
                yield number, piece.rstrip(b"\r\n")


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
    text = "\n\n".join(texts)
    title_value = column(row, fields.title) if fields.title else None
    title = title_value if isinstance(title_value, str) else ""
    id_value = column(row, fields.id) if fields.id else None
    if id_value is None or id_value == "" or isinstance(id_value, (bool, float, dict, list)):
        identity = stable_id(title, text)
    else:
        identity = str(id_value)
    return Document(identity, text, title, source, position, place.licence, place.language)

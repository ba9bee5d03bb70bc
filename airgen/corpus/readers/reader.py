"""The protocol of readers, and helpers shared by all of them.

    reader = resolve("reader", "jsonl")(settings, place)
    for row in reader.read():           # a Document, or a Dropped with its reason
        ...

A reader streams: it holds only one document at a time, and what its format needs to find the next one. It raises
CorpusError if a file cannot be used, and yields Dropped if only a part of it cannot.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import Field

from airgen.settings.base import Settings
from airgen.settings.spec import Spec
from airgen.storage.records import PART, Document, Dropped

MAX_BYTES = 16 * 1024 * 1024
SHOWN = 2000  # characters of what was dropped
SHOWN_PIECE = 20_000  # characters of a piece, whose text is not stored elsewhere


class ReaderSettings(Settings):
    """Base class of all readers' settings. `max_bytes` limits the raw size of a document.

    `packages` lists the imports that the reader needs.

    Attributes:
        skip: Names of files and folders to leave out below `path` at any depth, or patterns of names (`*.bak`).
        metadata: Metadata to keep with each document: names of columns or of a file's properties
            (`airgen.corpus.readers.metadata`).
    """

    packages: ClassVar[tuple[str, ...]] = ()
    max_bytes: int = Field(default=MAX_BYTES, ge=1)
    skip: tuple[str, ...] = (".*", "node_modules", "__pycache__")
    metadata: tuple[str, ...] = ()

    def inner(self) -> Sequence[Spec]:
        """Return the readers that this one combines."""
        return ()

    def local_paths(self) -> Sequence[str]:
        """Return the files and folders that the reader reads besides those in fields marked FILE."""
        return ()

    def problems(self) -> list[str]:
        """Return a line for each missing requirement other than packages and files."""
        return []

    def text_version(self) -> str:
        """Return the version of a text that is not in a file, such as Python's own reference, or "" for files."""
        return ""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a corpus's files, and the settings of the corpus YAML that apply to all of them."""

    root: Path
    source: str = ""
    licence: str = ""
    language: str = ""


class Reader(Protocol):
    """A reader for one source format. `Settings` validates its part of the corpus YAML, without `kind`."""

    Settings: ClassVar[type[ReaderSettings]]

    def __init__(self, settings: Any, place: Place) -> None: ...

    def read(self) -> Iterator[Document | Dropped]:
        """Stream the documents in a fixed order. Raises CorpusError."""
        ...


class Unusable(Exception):
    """A document cannot be used and becomes a Dropped, with a reason, which is counted, and a detail."""

    def __init__(self, reason: str, detail: str = "", text: str = "") -> None:
        super().__init__(detail)
        self.reason, self.detail, self.text = reason, detail[:200], text


def drop(
    reason: str, *, identity: str = "", detail: str = "", source: str = "", position: str = "", text: str = ""
) -> Dropped:
    """Return a Dropped for a part of the source that a reader cannot use. `prepare` sets its key."""
    return Dropped(
        key="",
        id=identity,
        cleaner="reader",
        reason=reason,
        detail=detail,
        source=source,
        position=position,
        text=text[:SHOWN],
    )


def left_out(
    reason: str, *, identity: str = "", detail: str = "", source: str = "", position: str = "", text: str = ""
) -> Dropped:
    """Return a Dropped for a piece that a reader leaves out of a document or changes."""
    if len(text) > SHOWN_PIECE:
        detail = "; ".join(filter(None, (detail, f"the first {SHOWN_PIECE:,} of {len(text):,} characters")))
    return Dropped(
        key="",
        id=identity,
        cleaner=PART,
        reason=reason,
        detail=detail,
        source=source,
        position=position,
        text=text[:SHOWN_PIECE],
    )

"""Folders of text: `reader: {kind: text, path: notes}`, and what readers of other files share with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import field_validator

from airgen.corpus.readers.encodings import decoded
from airgen.corpus.readers.files import PathReader, opened
from airgen.corpus.readers.reader import Place, ReaderSettings, drop
from airgen.corpus.sections import Block, sections
from airgen.records import Document, Dropped
from airgen.settings.base import FILE


class SectionSettings(ReaderSettings):
    """A folder of files. `split`: what a document is: a file, or a section of a file below its headings; in PDF
    files also a page, in books also a chapter. `encoding`: without one, UTF-8, else what is found by the bytes.

    The limits of a section are in words; see `sections`.
    """

    path: Annotated[str, FILE]
    encoding: str = ""
    split: Literal["file", "pages", "chapters", "sections"] = "file"
    min_words: int = 45
    max_words: int = 190
    splits: ClassVar[tuple[str, ...]] = ("file", "sections")

    @field_validator("split")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in cls.splits:
            raise ValueError(f"{value!r} is not one of {', '.join(cls.splits)} for this reader")
        return value


def documents_of(
    blocks: Iterator[Block] | list[Block], title: str, name: str, settings: SectionSettings, place: Place, identity: str
) -> Iterator[Document]:
    """The blocks of one file as one document, or one for each section, with its anchor in the id."""
    common: dict[str, Any] = {"source": name, "licence": place.licence, "language": place.language}
    if settings.split == "file":
        held = [block for block in blocks if block.text]
        outline = tuple((block.level, block.text) for block in held if block.level)
        yield Document(identity, "\n\n".join(block.text for block in held), title, outline=outline, **common)
        return
    least, most = settings.min_words, settings.max_words
    for part in sections(blocks, title, language=place.language, min_words=least, max_words=most):
        yield Document(f"{identity}#{part.anchor}", part.text, part.title, position=part.anchor, **common)


class FileReader(PathReader):
    """The base of readers that read one file at a time; a subclass turns its bytes into documents."""

    Settings: type[SectionSettings] = SectionSettings
    version = 2

    def read_file(self, path: Path) -> Iterator[Document | Dropped]:
        """The documents of one file; an empty or too large one is dropped."""
        name = self.name(path)
        with opened(path) as stream:
            raw = stream.read(self.settings.max_bytes + 1)
        if len(raw) > self.settings.max_bytes:
            yield drop("too large", identity=name, detail=f"more than {self.settings.max_bytes} bytes", source=name)
        elif not raw.strip():
            yield drop("empty file", identity=name, source=name)
        else:
            yield from self.parse(raw, name)

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """The documents of one file's bytes."""
        text = self.decode(raw, name)
        if isinstance(text, Dropped):
            yield text
        else:
            yield from self.parse_text(text, name)

    def parse_text(self, text: str, name: str) -> Iterator[Document | Dropped]:
        """The documents of one file's text."""
        raise NotImplementedError

    def decode(self, raw: bytes, name: str) -> str | Dropped:
        """The file's text, in its encoding; Dropped where none fits."""
        encoding = self.settings.encoding
        try:
            return decoded(raw, encoding, self.place.language)
        except UnicodeError as error:
            reason = (
                "unknown encoding" if not encoding else "broken UTF-8" if encoding == "utf-8" else f"not {encoding}"
            )
            text = raw[:200].decode("utf-8", "replace")
            return drop(reason, identity=name, detail=str(error)[:200], source=name, text=text)
        except LookupError:
            return drop("unknown encoding", identity=name, detail=f"{encoding}: no such encoding", source=name)


class TextReader(FileReader):
    """Plain text without a title. Blank lines separate paragraphs."""

    suffixes = (".txt", ".text", ".txt.gz", ".rst", ".rst.gz")

    def parse_text(self, text: str, name: str) -> Iterator[Document | Dropped]:
        """One document, or its paragraphs joined to sections."""
        blocks = [Block(piece.strip("\n")) for piece in re.split(r"\r?\n\s*\n", text) if piece.strip()]
        yield from documents_of(blocks, "", name, self.settings, self.place, self.identity(name))

"""Files of text, and what readers of other files share with them: sections of a useful length.

>>> blocks = [Block("Loops", 1), Block("A loop repeats."), Block("while", 2), Block("While tests first.")]
>>> [(s.title, s.text) for s in sections(blocks, "Guide", min_words=1)]
[('Guide > Loops', 'A loop repeats.'), ('Guide > Loops > while', 'While tests first.')]

A passage must be understandable alone. So its title is the path of headings above it, and a paragraph that ends with a
colon stays together with the next one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import field_validator

from airgen.corpus.readers.encodings import Decoded, decoded, usual_encoding
from airgen.corpus.readers.files import PathReader, Raw, opened
from airgen.corpus.readers.metadata import file_values
from airgen.corpus.readers.reader import ReaderSettings, Unusable, drop, left_out
from airgen.errors import CorpusError
from airgen.records import Document, Dropped
from airgen.settings.base import FILE
from airgen.text.words import count_words

_MAX_SAMPLED_FILES, _SAMPLE_BYTES = 100, 1 << 14  # from which the encoding is found
_MAX_HEADING_CHARACTERS = 1000  # in a title, since each section below the heading repeats it


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph (level 0) or a heading (level 1 is the highest).

    Attributes:
        joins: Whether it stays together with the next block.
    """

    text: str
    level: int = 0
    joins: bool = False


@dataclass(frozen=True)
class Page:
    """What a text with markup holds: its title, its blocks, and the pieces that are left out: (reason, text)."""

    title: str
    blocks: list[Block]
    left: Sequence[tuple[str, str]] = ()

    @property
    def text(self) -> str:
        """Return the whole text."""
        return "\n\n".join(block.text for block in self.blocks if block.text)


@dataclass(frozen=True, slots=True)
class Section:
    """A run of paragraphs below one heading. `anchor` is unique within the document and stable."""

    title: str
    text: str
    anchor: str


def slug(text: str, size: int = 48) -> str:
    """Return the text as a part of an id: its letters and digits, of any script, joined by hyphens."""
    return re.sub(r"[^\w]+", "-", text.lower()).strip("-")[:size].strip("-")


def sections(
    blocks: Iterable[Block], title: str = "", *, min_words: int = 45, max_words: int = 190, language: str = "en"
) -> Iterator[Section]:
    """Join the paragraphs below a heading up to `max_words`; a rest shorter than `min_words` joins the one before it.

    A section exceeds `max_words` only if one paragraph does, or by at most `min_words` at the end of a heading. A
    heading with nothing below it, and one too long for a title, is a paragraph, too: no word is lost.
    """
    path: list[tuple[int, str]] = []
    pending: list[Block] = []
    used: dict[str, int] = {}
    anchors: set[str] = set()
    title = title[:_MAX_HEADING_CHARACTERS]

    def flush() -> Iterator[Section]:
        names = [name for _, name in path if name]
        heading = " > ".join([title, *names] if title and title != (names or [""])[0] else names)
        base = slug(names[-1]) if names else "text"
        for text in _pack(pending, min_words, max_words, language):
            anchor = base
            while not used.get(base) or anchor in anchors:  # a heading "Use 2" comes after two of "Use", perhaps
                used[base] = used.get(base, 0) + 1
                anchor = base if used[base] == 1 else f"{base}-{used[base]}"
            anchors.add(anchor)
            yield Section(heading, text, anchor)
        pending.clear()

    bare: Block | None = None  # the last heading, as long as nothing is below it
    for block in blocks:
        if block.level == 0:
            bare = None
            pending.append(block)
            continue
        if bare is not None and bare.level >= block.level:
            pending.append(replace(bare, level=0))
        yield from flush()
        while path and path[-1][0] >= block.level:
            path.pop()
        name = " ".join(block.text.split())
        path.append((block.level, name[:_MAX_HEADING_CHARACTERS]))
        bare = block if name else None
        if len(name) > _MAX_HEADING_CHARACTERS:
            pending.append(Block(name, joins=True))
            bare = None
    if bare is not None:
        pending.append(replace(bare, level=0))
    yield from flush()


def _pack(paragraphs: list[Block], min_words: int, max_words: int, language: str) -> list[str]:
    joined: list[list[str]] = []
    joins = False
    for block in paragraphs:
        if joins:
            joined[-1].append(block.text)
        else:
            joined.append([block.text])
        joins = block.joins or block.text.rstrip().endswith((":", "："))
    packed: list[list[str]] = []
    sizes: list[int] = []
    for texts in joined:
        size = count_words("\n\n".join(texts), language)
        if packed and (sizes[-1] + size <= max_words or (sizes[-1] < min_words and size < max_words)):
            packed[-1] += texts
            sizes[-1] += size
        else:
            packed.append(texts)
            sizes.append(size)
    if len(packed) > 1 and sizes[-1] < min_words:
        last = packed.pop()
        packed[-1] += last
    return ["\n\n".join(texts) for texts in packed]


class SectionSettings(ReaderSettings):
    """Settings of a folder of files.

    The limits of a section are in words; see `sections`.

    Attributes:
        split: What a document is: a file, or a section of a file below its headings; in PDF files also a page, in books
            also a chapter.
        encoding: Default: UTF-8, else the encoding recognised from the bytes.
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


class FileReader(PathReader):
    """The base of readers that read one file at a time; a subclass turns its bytes, or its text, into documents.

    Where it raises Unusable, the file is dropped.
    """

    Settings: type[SectionSettings] = SectionSettings
    version = 3
    usual = ""  # the encoding of files that are no UTF-8
    packed = False  # whether files say their encoding inside

    def look_around(self, paths: Sequence[Path]) -> None:
        """Note the old encoding that the files have, from some of them: a few words alone leave it open."""
        if not (self.packed or self.settings.encoding) and len(paths) > 1:
            sample = paths[:: max(len(paths) // _MAX_SAMPLED_FILES, 1)]
            self.usual = usual_encoding(map(_beginning, sample), self.place.language)

    def raw_file(self, path: Path) -> Iterator[Raw | Dropped]:
        """Yield the bytes of one file; an empty or too large one is dropped."""
        name = self.name(path)
        with opened(path) as stream:
            raw = stream.read(self.settings.max_bytes + 1)
        if len(raw) > self.settings.max_bytes:
            yield drop("too large", identity=name, detail=f"more than {self.settings.max_bytes} bytes", source=name)
        elif not raw.strip():
            yield drop("empty file", identity=name, source=name)
        else:
            yield Raw(path, raw)

    def read_raw(self, raw: Raw) -> Iterator[Document | Dropped]:
        """Yield the documents of one file's bytes."""
        name = self.name(raw.path)
        self.about = {name: file_values(name, raw.data)} if self.settings.metadata else {}
        try:
            yield from self.parse(raw.data, name)
        except Unusable as error:
            yield drop(error.reason, identity=name, detail=error.detail, source=name, text=error.text)

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """Yield the documents of one file's bytes."""
        result = self.decode(raw)
        yield from self.parse_text(result.text, name)
        if result.damaged:
            yield damage(result, self.identity(name), name)

    def parse_text(self, text: str, name: str) -> Iterator[Document | Dropped]:
        """Return the documents of one file's text."""
        raise NotImplementedError

    def pieces(self, left: Iterable[tuple[str, str]], name: str, position: str = "") -> Iterator[Dropped]:
        """Yield the pieces that are left out of a file, as (reason, text)."""
        for reason, text in left:
            yield left_out(reason, identity=self.identity(name), source=name, position=position, text=text)

    def documents(self, blocks: Iterable[Block], title: str, name: str) -> Iterator[Document]:
        """Yield the blocks of one file as one document, or one for each section, with its anchor in the id.

        Raises Unusable for a file without text.
        """
        blocks = [block for block in blocks if block.text]
        if not blocks:
            raise Unusable("no text in the file")
        if self.settings.split == "file":
            outline = tuple((block.level, block.text) for block in blocks if block.level)
            yield self.document(name, "\n\n".join(block.text for block in blocks), title, outline=outline)
            return
        least, most = self.settings.min_words, self.settings.max_words
        for part in sections(blocks, title, language=self.place.language, min_words=least, max_words=most):
            yield self.document(name, part.text, part.title, f"#{part.anchor}", position=part.anchor)

    def decode(self, raw: bytes) -> Decoded:
        """Return the file's text, and its encoding. Raises Unusable if none fits."""
        encoding = self.settings.encoding
        try:
            return decoded(raw, encoding, self.place.language, self.usual)
        except UnicodeError as error:
            reason = (
                "unknown encoding" if not encoding else "broken UTF-8" if encoding == "utf-8" else f"not {encoding}"
            )
            raise Unusable(reason, str(error), raw[:200].decode("utf-8", "replace")) from error
        except LookupError as error:
            raise Unusable("unknown encoding", f"{encoding}: no such encoding") from error


def _beginning(path: Path) -> bytes:
    """Return the first bytes of a file that are looked at; none of one that cannot be read."""
    try:
        with opened(path) as stream:
            return stream.read(_SAMPLE_BYTES)
    except CorpusError:
        return b""


def damage(result: Decoded, identity: str, name: str) -> Dropped:
    """Return a note about bytes of a text that are not in its encoding: how many, and the first lines with them."""
    lines = [line.strip() for line in result.text.split("\n") if "\ufffd" in line]
    count = result.text.count("\ufffd")
    detail = f"{count:,} places are U+FFFD now"
    reason = f"bytes that are not {result.encoding}"
    return left_out(reason, identity=identity, detail=detail, source=name, text="\n".join(lines[:20]))


def paragraphs(text: str) -> list[Block]:
    """Return the paragraphs of a plain text, between its blank lines."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return [Block(piece.strip("\n")) for piece in re.split(r"\n\s*\n", lines) if piece.strip()]


_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}")


def rst_blocks(text: str) -> tuple[str, list[Block]]:
    """Return the title, and the headings and paragraphs, of a text in reStructuredText; its markup within lines stays.

    A heading is a line with a line of one sign below it, or one above it, too, which are at least as long. The levels
    are those of the signs in the order in which they come.
    """
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    levels: dict[tuple[str, bool], int] = {}
    blocks: list[Block] = []
    paragraph: list[str] = []

    def flush() -> None:
        if any(map(str.strip, paragraph)):
            blocks.append(Block("\n".join(paragraph).strip("\n")))
        paragraph.clear()

    place = 0
    while place < len(lines):
        line = lines[place]
        over = _ADORNMENT.fullmatch(line) if not paragraph else None
        if (
            over
            and place + 2 < len(lines)
            and lines[place + 2] == line
            and 0 < len(lines[place + 1].strip()) <= len(line)
        ):
            sign, words, size = (line[0], True), lines[place + 1].strip(), 3
        elif (
            not paragraph
            and line.strip()
            and not line[0].isspace()
            and not over
            and place + 1 < len(lines)
            and _ADORNMENT.fullmatch(lines[place + 1])
            and len(lines[place + 1]) >= min(len(line), 4)
        ):
            sign, words, size = (lines[place + 1][0], False), line.strip(), 2
        else:
            if line.strip():
                paragraph.append(line)
            else:
                flush()
            place += 1
            continue
        flush()
        blocks.append(Block(words, min(levels.setdefault(sign, len(levels) + 1), 6)))
        place += size
    flush()
    return next((block.text for block in blocks if block.level == 1), ""), blocks

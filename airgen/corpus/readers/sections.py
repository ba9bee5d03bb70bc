"""Cut the text of a file into sections of a useful length, at its headings and paragraphs.

>>> blocks = [Block("Loops", 1), Block("A loop repeats."), Block("while", 2), Block("While tests first.")]
>>> [(s.title, s.text) for s in sections(blocks, "Guide", min_words=1)]
[('Guide > Loops', 'A loop repeats.'), ('Guide > Loops > while', 'While tests first.')]

A passage must be understandable on its own. Its title is therefore the path of headings above it, and a paragraph
ending with a colon stays together with the next one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import field_validator

from airgen.corpus.readers.reader import ReaderSettings
from airgen.settings.base import FILE
from airgen.text.words import count_words

_MAX_HEADING_CHARACTERS = 1000  # maximum length in a title, since each section below the heading repeats it


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
    """A parsed text: its title, its blocks, and the pieces that are left out, as (reason, text)."""

    title: str
    blocks: list[Block]
    left: Sequence[tuple[str, str]] = ()

    @property
    def text(self) -> str:
        """Return the whole text."""
        return "\n\n".join(block.text for block in self.blocks if block.text)


@dataclass(frozen=True, slots=True)
class Section:
    """A run of paragraphs below a heading. `anchor` is stable, and unique within the document."""

    title: str
    text: str
    anchor: str


def slug(text: str, size: int = 48) -> str:
    """Convert a text to a part of an id: its letters and digits, in any script, joined by hyphens."""
    return re.sub(r"[^\w]+", "-", text.lower()).strip("-")[:size].strip("-")


def sections(
    blocks: Iterable[Block], title: str = "", *, min_words: int = 45, max_words: int = 190, language: str = "en"
) -> Iterator[Section]:
    """Join the paragraphs below a heading up to `max_words`. A remainder shorter than `min_words` joins the previous
    section.

    A section exceeds `max_words` only if a single paragraph does, or by at most `min_words` before the next heading. A
    heading with nothing below it, or too long for a title, also becomes a paragraph, so that no word is lost.
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
            while not used.get(base) or anchor in anchors:  # a heading "Use 2" may follow two headings "Use"
                used[base] = used.get(base, 0) + 1
                anchor = base if used[base] == 1 else f"{base}-{used[base]}"
            anchors.add(anchor)
            yield Section(heading, text, anchor)
        pending.clear()

    bare: Block | None = None  # the last heading, while nothing is below it
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
    """Settings of readers that split files into sections.

    The limits of a section are in words; see `sections`.

    Attributes:
        split: What becomes a document: a file or a section below its headings; for PDF files also a page, for books
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


def paragraphs(text: str) -> list[Block]:
    """Return the paragraphs of a plain text, which are separated by blank lines."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return [Block(piece.strip("\n")) for piece in re.split(r"\n\s*\n", lines) if piece.strip()]

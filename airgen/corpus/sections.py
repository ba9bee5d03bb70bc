"""Turn headings and paragraphs into self-contained sections of a useful length.

>>> blocks = [Block("Loops", 1), Block("A loop repeats."), Block("while", 2), Block("While tests first.")]
>>> [(s.title, s.text) for s in sections(blocks, "Guide", min_words=1)]
[('Guide > Loops', 'A loop repeats.'), ('Guide > Loops > while', 'While tests first.')]

A passage must be understandable alone. So its title is the path of headings above it, and a paragraph that ends with a
colon stays together with the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airgen.text.words import count_words

_HEADING = 1000  # most characters of one heading in a title: each section below it repeats it


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph (level 0) or a heading (level 1 is the highest). `joins`: it stays together with the next block."""

    text: str
    level: int = 0
    joins: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A run of paragraphs below one heading. `anchor` is unique within the document and stable."""

    title: str
    text: str
    anchor: str


def slug(text: str, size: int = 48) -> str:
    """The text as a part of an id: its letters and digits, of any script, joined by hyphens."""
    return re.sub(r"[^\w]+", "-", text.lower()).strip("-")[:size].strip("-")


def sections(
    blocks: Iterable[Block], title: str = "", *, min_words: int = 45, max_words: int = 190, language: str = "en"
) -> Iterator[Section]:
    """Join the paragraphs below a heading up to `max_words`; a rest shorter than `min_words` joins the one before it.

    A section exceeds `max_words` only if one paragraph does, or by at most `min_words` at the end of a heading.
    """
    path: list[tuple[int, str]] = []
    held: list[Block] = []
    used: dict[str, int] = {}
    taken: set[str] = set()
    title = title[:_HEADING]

    def flush() -> Iterator[Section]:
        names = [name for _, name in path if name]
        heading = " > ".join([title, *names] if title and title != (names or [""])[0] else names)
        base = slug(names[-1]) if names else "text"
        for text in _pack(held, min_words, max_words, language):
            anchor = base
            while not used.get(base) or anchor in taken:  # a heading "Use 2" comes after two of "Use", perhaps
                used[base] = used.get(base, 0) + 1
                anchor = base if used[base] == 1 else f"{base}-{used[base]}"
            taken.add(anchor)
            yield Section(heading, text, anchor)
        held.clear()

    for block in blocks:
        if block.level == 0:
            held.append(block)
            continue
        yield from flush()
        while path and path[-1][0] >= block.level:
            path.pop()
        path.append((block.level, " ".join(block.text.split())[:_HEADING]))
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

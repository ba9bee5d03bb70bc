"""Read PowerPoint presentations: `reader: {kind: pptx, path: talks, split: sections}`.

The title of a slide is a heading, and its texts, tables and speaker notes are the text, in the order of the file.
Footers, hidden slides, comments, charts and text on all slides are pieces that are left out.
"""

from collections.abc import Iterator
from typing import ClassVar

from airgen.corpus.readers.packed_xml import DAMAGED, Element, PackedXml, local
from airgen.corpus.readers.reader import Unusable
from airgen.corpus.readers.sections import Block, SectionSettings
from airgen.corpus.readers.text_files import FileReader
from airgen.storage.records import Document, Dropped

_FURNITURE = {
    "ftr": "footer of the slide",
    "hdr": "header of the slide",
    "dt": "date of the slide",
    "sldNum": "number of the slide",
}
# Members whose words are not part of a slide, by folder.
_BESIDE = {
    "ppt/comments": "comments", "ppt/charts": "words of a chart", "ppt/diagrams": "words of a drawing",
    "ppt/slideMasters": "on all slides", "ppt/slideLayouts": "on all slides",
}  # fmt: skip
Pieces = list[tuple[str, str]]


class SlidesReader(FileReader):
    """Yields one document per presentation or section."""

    class Settings(SectionSettings):
        """Settings of the PowerPoint reader.

        Attributes:
            max_bytes: Maximum size of a file and of its unpacked XML.
        """

        max_bytes: int = 256 * 1024 * 1024
        packages: ClassVar[tuple[str, ...]] = ()

    suffixes = (".pptx", ".pptm", ".ppsx", ".potx")
    version, packed = 1, True

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """Yield the pieces left out of a file, then its documents. Raises Unusable if it is damaged or protected."""
        blocks: list[Block] = []
        left: Pieces = []
        try:
            deck = PackedXml(raw, self.settings.max_bytes)
            slides, lost = _slides(deck)
            for member in slides:
                slide = deck.tree(member)
                hidden = slide.get("show") in ("0", "false")
                own = [*_slide(slide, left, first=not blocks), *_notes(deck, member, left)]
                if hidden:
                    left.append(("hidden slide", "\n".join(block.text for block in own)))
                else:
                    blocks += own
            left += [("slide is not in the file", member) for member in lost]
            for member in deck.names:
                reason = _BESIDE.get(member.rpartition("/")[0], "")
                if reason:
                    left.append((reason, "\n".join(_words_of(deck.tree(member), reason))))
        except DAMAGED as error:
            raise Unusable("damaged document", f"{type(error).__name__}: {error}") from error
        texts: dict[str, dict[str, None]] = {}  # each text once, in order
        for reason, text in left:
            if any(map(str.isalnum, text)):
                texts.setdefault(reason, {})[text] = None
        yield from self.pieces([(reason, "\n".join(parts)) for reason, parts in texts.items()], name)
        if not any(block.text for block in blocks):
            raise Unusable("no text in the document")
        title = next((block.text for block in blocks if block.level), "")
        yield from self.documents(blocks, title, name)


def _slides(deck: PackedXml) -> tuple[list[str], list[str]]:
    """Return the slides' members in order (unlisted slides last), and the missing ones."""
    targets = deck.targets("ppt/presentation.xml")
    ids = [node for node in deck.tree("ppt/presentation.xml").iter() if local(node) == "sldId"]
    named = [targets.get(node.get(key, ""), "") for node in ids for key in node.attrib if key.endswith("}id")]
    members = dict.fromkeys(
        member for member in deck.names if member.startswith("ppt/slides/") and member.endswith(".xml")
    )
    listed = dict.fromkeys(member for member in named if member)
    order = [member for member in listed if member in members]
    return order + [member for member in members if member not in listed], [
        member for member in listed if member not in members
    ]


def _slide(slide: Element, left: Pieces, first: bool) -> Iterator[Block]:
    """Yield the blocks of a slide."""
    for shape in _shapes(slide):
        if words := [
            text
            for node in shape.iter()
            if local(node) == "cNvPr"
            for text in (node.get("descr"), node.get("title"))
            if text
        ]:
            left.append(("alternative text of a picture", "\n".join(words)))
        kind = _placeholder(shape)
        paragraphs = list(_paragraphs(shape))
        if kind in _FURNITURE:
            left.append((_FURNITURE[kind], "\n".join(paragraphs)))
        elif kind in ("title", "ctrTitle"):
            yield Block(" ".join(" ".join(paragraphs).split()), 1 if first else 2)
            first = False
        elif paragraphs:
            yield Block("\n".join(paragraphs))


def _notes(deck: PackedXml, slide: str, left: Pieces) -> Iterator[Block]:
    """Yield the speaker notes of a slide."""
    for member in deck.targets(slide).values():
        if not member.startswith("ppt/notesSlides/") or member not in deck.names:
            continue
        for shape in _shapes(deck.tree(member)):
            words = "\n".join(_paragraphs(shape))
            if _placeholder(shape) in _FURNITURE:
                left.append((_FURNITURE[_placeholder(shape)], words))
            elif words:
                yield Block(words)


def _shapes(root: Element) -> Iterator[Element]:
    """Yield the shapes, tables and pictures of a slide, including those in groups."""
    stack = [root]
    while stack:
        element = stack.pop()
        if local(element) in ("sp", "graphicFrame", "pic", "cxnSp"):
            yield element
        elif local(element) == "AlternateContent":
            stack += list(element)[:1]
        else:
            stack += reversed(element)


def _placeholder(shape: Element) -> str:
    return next((node.get("type", "body") for node in shape.iter() if local(node) == "ph"), "")


def _paragraphs(shape: Element) -> Iterator[str]:
    """Yield the paragraphs of a shape or the rows of a table."""
    stack = [shape]
    while stack:
        element = stack.pop()
        name = local(element)
        if name == "p":
            if text := _line(element):
                yield text
        elif name == "tr":
            cells = [" ".join(_paragraphs(cell)) for cell in element if local(cell) == "tc"]
            yield " | ".join(filter(None, cells))
        elif name == "AlternateContent":
            stack += list(element)[:1]
        else:
            stack += reversed(element)


def _line(paragraph: Element) -> str:
    pieces: list[str] = []
    stack = [paragraph]
    while stack:
        element = stack.pop()
        if local(element) == "t":
            pieces.append(element.text or "")
        elif local(element) in ("br", "tab"):
            pieces.append(" ")
        elif local(element) == "AlternateContent":
            stack += list(element)[:1]
        stack += reversed(element) if local(element) != "AlternateContent" else []
    return "".join(pieces).strip()


def _words_of(root: Element, reason: str) -> Iterator[str]:
    """Yield the words of a member other than a slide, except a master's placeholders, which only name their
    contents."""
    if reason == "on all slides":
        for shape in _shapes(root):
            if not _placeholder(shape):
                yield from _paragraphs(shape)
        return
    yield from filter(None, (_line(node) for node in root.iter() if local(node) == "p"))
    for node in root.iter():
        text = (node.text or "").strip()
        if local(node) in ("v", "text") and text and not text.replace(".", "").isdigit():
            yield text

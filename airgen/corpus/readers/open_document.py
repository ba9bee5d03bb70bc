"""Read LibreOffice and OpenOffice texts (OpenDocument): `reader: {kind: odt, path: handbook, split: sections}`.

The text consists of headings, paragraphs, lists, tables, text boxes, equations and footnotes. Comments, deleted text,
tables of contents, headers, footers and the words in charts are pieces that are left out.
"""

from collections.abc import Iterator
from typing import ClassVar

from airgen.corpus.readers.packed_xml import DAMAGED, Element, PackedXml, attribute, local
from airgen.corpus.readers.reader import Unusable
from airgen.corpus.readers.sections import Block, SectionSettings
from airgen.corpus.readers.text_files import FileReader
from airgen.storage.records import Document, Dropped

# Elements that are not part of the document's text, and why.
_BESIDE = {
    "annotation": "comments", "tracked-changes": "deleted text", "table-of-content": "table of contents",
    "alphabetical-index": "index", "title": "alternative text of a picture", "desc": "alternative text of a picture",
}  # fmt: skip
_SKIPPED = ("forms", "sequence-decls", "variable-decls", "user-field-decls", "index-source", "note-citation")


class OpenDocumentReader(FileReader):
    """Yields one document per file or section."""

    class Settings(SectionSettings):
        """Settings of the OpenDocument reader.

        Attributes:
            max_bytes: Maximum size of a file and of its unpacked XML.
        """

        max_bytes: int = 256 * 1024 * 1024
        packages: ClassVar[tuple[str, ...]] = ()

    suffixes = (".odt", ".ott")
    version, packed = 1, True

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """Yield the pieces left out of a file, then its documents. Raises Unusable if it is damaged or protected."""
        try:
            pack = PackedXml(raw, self.settings.max_bytes)
            if "META-INF/manifest.xml" in pack.names and any(
                local(node) == "encryption-data" for node in pack.tree("META-INF/manifest.xml").iter()
            ):
                raise Unusable("password needed")
            walk = _Walk(pack)
            walk.walk(next(node for node in pack.tree("content.xml").iter() if local(node) == "body"))
            title = walk.title
            if "meta.xml" in pack.names:
                named = next((node.text for node in pack.tree("meta.xml").iter() if local(node) == "title"), "")
                title = title or (named or "").strip()
            if "styles.xml" in pack.names:
                for node in pack.tree("styles.xml").iter():
                    if local(node) in (
                        "header",
                        "footer",
                        "header-left",
                        "footer-left",
                        "header-first",
                        "footer-first",
                    ):
                        reason = f"{local(node).partition('-')[0]} of the page"
                        walk.left.append((reason, "\n".join(_all_text(node))))
        except StopIteration as error:
            raise Unusable("damaged document", "it has no body") from error
        except DAMAGED as error:
            raise Unusable("damaged document", f"{type(error).__name__}: {error}") from error
        texts: dict[str, dict[str, None]] = {}  # each text once, in order
        for reason, text in walk.left:
            if any(map(str.isalnum, text)):
                texts.setdefault(reason, {})[text] = None
        yield from self.pieces([(reason, "\n".join(parts)) for reason, parts in texts.items()], name)
        blocks = [block for block in walk.blocks if block.text]
        if not blocks:
            raise Unusable("no text in the document")
        yield from self.documents(blocks, title or next((block.text for block in blocks if block.level == 1), ""), name)


class _Walk:
    """The blocks of a body, in order, and what is left out."""

    def __init__(self, pack: PackedXml) -> None:
        self._pack = pack
        self.blocks: list[Block] = []
        self.left: list[tuple[str, str]] = []
        self.title = ""
        self._after: list[Block] = []  # text boxes and notes of the current paragraph

    def walk(self, root: Element) -> None:
        stack: list[tuple[Element, str]] = [(root, "")]
        while stack:
            element, prefix = stack.pop()
            name = local(element)
            if name in ("h", "p"):
                text = self._line(element)
                level = attribute(element, "outline-level")
                if name == "p" and attribute(element, "style-name") == "Title" and not self.title:
                    self.title = text
                    self.blocks.append(Block(text, 1))
                elif name == "h":
                    self.blocks.append(
                        Block(" ".join(text.split()), min(int(level), 6) if level.isdigit() and level != "0" else 1)
                    )
                else:
                    self.blocks.append(Block(prefix + text if text else ""))
                self.blocks += self._after
                self._after = []
            elif name == "table-row":
                cells = [
                    " ".join(self._cell(cell))
                    for cell in element
                    if local(cell) in ("table-cell", "covered-table-cell")
                ]
                self.blocks.append(Block(" | ".join(filter(None, cells))))
                self.blocks += self._after
                self._after = []
            elif name in _BESIDE:
                self._beside(element)
            elif name not in _SKIPPED:
                inner = "- " if name in ("list-item", "list-header") else prefix
                stack += [(child, inner if place == 0 else "") for place, child in reversed(list(enumerate(element)))]

    def _cell(self, cell: Element) -> Iterator[str]:
        for paragraph in cell.iter():
            if local(paragraph) in ("p", "h") and (text := " ".join(self._line(paragraph).split())):
                yield text

    def _beside(self, element: Element) -> None:
        self.left.append((_BESIDE[local(element)], "\n".join(_all_text(element))))

    def _line(self, paragraph: Element) -> str:
        """Return the words of a paragraph, whose notes and text boxes follow it."""
        pieces = [paragraph.text or ""]
        stack = [(child, False) for child in reversed(paragraph)]
        while stack:
            element, done = stack.pop()
            name = local(element)
            if done:
                pieces.append(element.tail or "")
                continue
            stack.append((element, True))
            if name in _BESIDE:
                self._beside(element)
            elif name == "s":
                count = attribute(element, "c")
                pieces.append(" " * (min(int(count), 1000) if count.isdigit() else 1))
            elif name == "tab":
                pieces.append("\t")
            elif name == "line-break":
                pieces.append("\n")
            elif name == "note":
                mark = "".join(text for node in element if local(node) == "note-citation" for text in node.itertext())
                body = " ".join(text for node in element if local(node) == "note-body" for text in _all_text(node))
                pieces.append(f"[{mark}]")
                self._after.append(Block(f"[{mark}] {body}"))
            elif name == "text-box":
                self._after += [Block(text) for text in _all_text(element)]
            elif name == "object":
                pieces.append(self._object(attribute(element, "href")))
            elif name not in _SKIPPED:
                pieces.append(element.text or "")
                stack += [(child, False) for child in reversed(element)]
        return "".join(pieces).strip()

    def _object(self, href: str) -> str:
        """Return the equation in an object. The words in any other object are left out."""
        member = f"{href.removeprefix('./')}/content.xml"
        if member not in self._pack.names:
            return ""
        root = self._pack.tree(member)
        if local(root) == "math":
            source = next((node.text for node in root.iter() if local(node) == "annotation" and node.text), "")
            return f" {' '.join((source or ' '.join(root.itertext())).split())} "
        self.left.append(("words of a chart", "\n".join(_all_text(root))))
        return ""


def _all_text(element: Element) -> list[str]:
    """Return the paragraphs in an element, counting nested paragraphs once."""
    texts, stack = list[str](), [element]
    while stack:
        node = stack.pop()
        if local(node) in ("p", "h"):
            texts.append(" ".join("".join(node.itertext()).split()))
        elif local(node) in ("title", "desc") and node.text:
            texts.append(node.text)
        else:
            stack += reversed(node)
    return [text for text in texts if text]

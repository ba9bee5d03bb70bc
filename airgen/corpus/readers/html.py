"""Folders of HTML: `reader: {kind: html, path: html, content: "div.body", remove: [.toc], split: sections}`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from airgen.corpus.readers.reader import drop
from airgen.corpus.readers.texts import FileReader, SectionSettings, documents_of
from airgen.corpus.sections import Block
from airgen.records import Document, Dropped
from airgen.registry import load_extra

__all__ = ["HtmlReader", "html_blocks"]

# Elements that are never part of a page's text.
REMOVE = (
    "script", "style", "noscript", "template", "nav", "header", "footer", "aside", "form", "button", "iframe", "svg",
    "[hidden]", "[aria-hidden=true]", "[role=navigation]", "[role=banner]", "[role=contentinfo]", "[role=search]",
)  # fmt: skip
_BLOCKS = frozenset((
    "address", "article", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "html", "li", "main", "ol", "p",
    "pre", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
))  # fmt: skip
_OPEN_OR_CLOSE = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9:-]{0,60})(?=[\s/>])")
# Elements without content, and those that the next one of their kind closes.
_CLOSED = frozenset((
    "a", "area", "base", "body", "br", "col", "colgroup", "dd", "dt", "embed", "head", "hr", "html", "img", "input",
    "li", "link", "meta", "nobr", "optgroup", "option", "p", "param", "rp", "rt", "source", "tbody", "td", "tfoot",
    "th", "thead", "tr", "track", "wbr",
))  # fmt: skip
# The parser's time grows with a page's size times its depth, so a large page may not be deep.
_DEPTH, _SIZE_TIMES_DEPTH = 512, 400_000_000
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{3,20})", re.IGNORECASE)


class NestedTooDeepError(ValueError):
    """A page whose elements are nested deeper than any honest one's."""


class HtmlReader(FileReader):
    """HTML pages: headings, paragraphs, list items, table rows and code, without scripts and navigation."""

    class Settings(SectionSettings):
        """`content`: a CSS selector of the elements with the text; `remove`: selectors of elements to leave out."""

        packages: ClassVar[tuple[str, ...]] = ("selectolax",)
        content: str = ""
        remove: tuple[str, ...] = ()

    suffixes = (".html", ".htm", ".xhtml", ".html.gz")
    settings: Settings

    def parse_text(self, text: str, name: str) -> Iterator[Document | Dropped]:
        """One document for each page or section."""
        try:
            title, blocks = html_blocks(text, self.settings.content, self.settings.remove)
        except NestedTooDeepError as error:
            yield drop("nested too deep", identity=name, detail=str(error), source=name)
            return
        if not blocks:
            yield drop("no text in the page", identity=name, source=name)
            return
        yield from documents_of(blocks, title, name, self.settings, self.place, self.identity(name))

    def decode(self, raw: bytes, name: str) -> str | Dropped:
        """The file's text, in the encoding that a meta element declares, if one does."""
        declared = _CHARSET.search(raw[:2048])
        if (
            declared
            and declared[1].lower() not in (b"utf-8", b"utf8")
            and not raw.startswith((b"\xff\xfe", b"\xfe\xff"))
        ):
            try:
                return raw.decode(declared[1].decode("ascii"))
            except (UnicodeDecodeError, LookupError):
                pass  # declarations are often wrong: try the encoding of the settings
        return super().decode(raw, name)


def html_blocks(html: str, content: str = "", remove: Sequence[str] = ()) -> tuple[str, list[Block]]:
    """Title and blocks of a page. Raises MissingExtra without selectolax, NestedTooDeepError."""
    _check_depth(html)
    lexbor = load_extra("selectolax.lexbor", "reader 'html'")
    tree = lexbor.LexborHTMLParser(html)
    title = tree.css_first("title")
    heading = " ".join(title.text().split()) if title is not None else ""
    roots = tree.css(content) if content else []
    roots = roots or tree.css("main") or ([tree.body] if tree.body is not None else [])
    found: list[Block] = []
    seen: set[int] = set()
    for root in roots:
        if root.mem_id in seen:  # inside an earlier one, whose text is read already
            continue
        for node in root.css(", ".join([*REMOVE, *remove])):
            if node.tag not in ("body", "html"):
                node.decompose()
        _Walk(found, seen).walk(root)
    first = next((block.text for block in found if block.level == 1), "")
    return first or heading, [block for block in found if block.text]


def _check_depth(html: str) -> None:
    """Raise NestedTooDeepError where more elements are open at once than a page has."""
    limit = max(_DEPTH, _SIZE_TIMES_DEPTH // max(len(html), 1))
    opened: Counter[str] = Counter()
    depth = 0
    for match in _OPEN_OR_CLOSE.finditer(html):
        tag = match[2].lower()
        if tag in _CLOSED:
            continue
        if not match[1]:
            opened[tag] += 1
            depth += 1
            if depth > limit:
                raise NestedTooDeepError(f"more than {limit} elements inside each other")
        elif opened[tag]:
            opened[tag] -= 1
            depth -= 1


class _Walk:
    """A depth-first walk over block elements; the inline text between two of them is a paragraph."""

    def __init__(self, found: list[Block], seen: set[int]) -> None:
        self.found, self.seen = found, seen
        self.cells: list[str] = []  # of the row that is the last block, after its first cell
        self.held: list[str] = []
        self.prefix = ""

    def walk(self, root: Any) -> None:
        # With a stack of its own, because some pages are nested deeper than Python can recurse.
        stack: list[tuple[Any, bool]] = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            tag = node.tag
            if leaving:
                self.close(tag)
                continue
            if tag == "-text":
                self.held.append(re.sub(r"\s+", " ", node.text_content or ""))
            elif tag == "br":
                self.held.append("\n")
            elif tag == "pre":
                self.close("")
                text = node.text().strip("\n")
                if text.strip():
                    self.add(Block(text))
            elif tag and not tag.startswith(("-", "!")):
                self.seen.add(node.mem_id)
                if tag in _BLOCKS:
                    self.close("")
                    stack.append((node, True))
                    if tag == "li":
                        self.prefix = "- "
                children = []
                child = node.child
                while child is not None:
                    children.append((child, False))
                    child = child.next
                stack.extend(reversed(children))
        self.close("")
        self.end_row()

    def add(self, block: Block) -> None:
        self.end_row()
        self.found.append(block)

    def end_row(self) -> None:
        if self.cells:
            self.found[-1] = Block(" | ".join([self.found[-1].text, *self.cells]))
            self.cells.clear()

    def close(self, tag: str) -> None:
        text = "\n".join(" ".join(line.split()) for line in "".join(self.held).split("\n")).strip()
        self.held.clear()
        level = int(tag[1]) if tag in ("h1", "h2", "h3", "h4", "h5", "h6") else 0
        if not text:
            self._row = self._row and tag != "tr"
            return
        if tag in ("td", "th") and self.found and not self.found[-1].level and self._row:
            self.cells.append(text)
        else:
            # A term is kept together with its definition.
            self.add(Block(text if level else self.prefix + text, level, joins=tag == "dt"))
        self._row = tag in ("td", "th")
        self.prefix = ""

    _row = False

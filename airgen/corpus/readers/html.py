"""Folders of HTML: `reader: {kind: html, path: html, content: "div.body", remove: [.toc], split: sections}`."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from airgen.corpus.readers.encodings import Decoded, decoded_html
from airgen.corpus.readers.reader import Unusable
from airgen.corpus.readers.texts import Block, FileReader, SectionSettings
from airgen.records import Document
from airgen.registry import load_extra

# Elements that are never part of a page's text.
REMOVE = (
    "script", "style", "noscript", "template", "nav", "header", "footer", "aside", "form", "button", "iframe", "svg",
    "[hidden]", "[aria-hidden=true]", "[role=navigation]", "[role=banner]", "[role=contentinfo]", "[role=search]",
    "a.headerlink", "a.anchor-link", "a.hash-link",  # the sign behind a heading: Sphinx, Jupyter, Docusaurus
)  # fmt: skip
_BLOCKS = frozenset((
    "address", "article", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "html", "li", "main", "ol", "p",
    "pre", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
))  # fmt: skip
_OPEN_OR_CLOSE = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9:-]{0,60})(?=[\s/>])([^<>]*+)")
# Elements without content, and those that the next one of their kind closes.
_CLOSED = frozenset((
    "a", "area", "base", "body", "br", "col", "colgroup", "dd", "dt", "embed", "head", "hr", "html", "img", "input",
    "li", "link", "meta", "nobr", "optgroup", "option", "p", "param", "rp", "rt", "source", "tbody", "td", "tfoot",
    "th", "thead", "tr", "track", "wbr",
))  # fmt: skip
_DRAWING = frozenset((
    "a", "circle", "clippath", "defs", "ellipse", "g", "image", "line", "lineargradient", "marker", "mask", "path",
    "pattern", "polygon", "polyline", "radialgradient", "rect", "stop", "symbol", "text", "tspan", "use",
))  # fmt: skip
# The parser's time grows with a page's size times its depth, so a large page may not be deep.
_DEPTH, _SIZE_TIMES_DEPTH = 512, 400_000_000
MAX_MARKS = 1_000_000  # tags of one page


_FEW = 8  # words
Extract = Literal["main", "page", "trafilatura"]


class HtmlReader(FileReader):
    """HTML pages: headings, paragraphs, list items, table rows and code, without scripts and navigation."""

    class Settings(SectionSettings):
        """`content`: a CSS selector of the elements with the text; `remove`: selectors of elements to leave out.

        `extract`: `page` takes all text; `main` leaves out what trafilatura leaves out and what is mostly links, or
        less than eight words with a link; `trafilatura` takes its text as it is. The default is `main`, and `page`
        where `content` or `remove` say what the text is.
        """

        packages: ClassVar[tuple[str, ...]] = ("selectolax",)
        content: str = ""
        remove: tuple[str, ...] = ()
        extract: Extract | None = None

        def required_packages(self) -> tuple[str, ...]:
            """trafilatura, too, unless the whole page is taken."""
            return self.packages if self.chosen() == "page" else (*self.packages, "trafilatura")

        def chosen(self) -> Extract:
            """What is taken of a page."""
            return self.extract or ("page" if self.content or self.remove else "main")

    version = 4
    suffixes = (".html", ".htm", ".xhtml", ".html.gz")
    settings: Settings

    def parse_text(self, text: str, name: str) -> Iterator[Document]:
        title, blocks = html_blocks(text, self.settings.content, self.settings.remove, self.settings.chosen())
        if not blocks:
            raise Unusable("no text in the page")
        yield from self.documents(blocks, title, name)

    def decode(self, raw: bytes) -> Decoded:
        """The page's text, as a browser decodes it."""
        try:
            return decoded_html(raw, self.settings.encoding, self.place.language)
        except (UnicodeError, LookupError):
            return super().decode(raw)  # which says what was tried


def html_blocks(
    html: str, content: str = "", remove: Sequence[str] = (), extract: Extract = "page"
) -> tuple[str, list[Block]]:
    """Title and blocks of a page. Raises Unusable for too much markup; MissingExtra without its packages."""
    _check_depth(html)
    title, found, linked = _walked(html, content, remove)
    if extract != "page":
        trafilatura = load_extra("trafilatura", "reader 'html' (extract)")
        main = trafilatura.extract(
            html, output_format="html", include_formatting=True, include_tables=True, favor_recall=True,
            deduplicate=False,
        )  # fmt: skip
        kept = _walked(main, "", ())[1] if main else []
        if extract == "trafilatura":
            found = kept or found
        elif kept:
            texts = {_letters(block.text) for block in kept}
            found = [
                block
                for block, links in zip(found, linked, strict=True)
                if block.level or _letters(block.text) in texts or not _is_furniture(block.text, links)
            ]
    first = next((block.text for block in found if block.level == 1), "")
    return first or title, found


def _walked(html: str, content: str, remove: Sequence[str]) -> tuple[str, list[Block], list[int]]:
    """The title element, the blocks, and how many characters of each are links."""
    lexbor = load_extra("selectolax.lexbor", "reader 'html'")
    tree = lexbor.LexborHTMLParser(html)
    title = tree.css_first("title")
    heading = " ".join(title.text().split()) if title is not None else ""
    roots = tree.css(content) if content else []
    roots = roots or tree.css("main") or ([tree.body] if tree.body is not None else [])
    walk = _Walk()
    for root in roots:
        if root.mem_id in walk.seen:  # inside an earlier one, whose text is read already
            continue
        for node in root.css(", ".join([*REMOVE, *remove])):
            if node.tag not in ("body", "html"):
                node.decompose()
        walk.walk(root)
    return heading, walk.found, walk.links


def _letters(text: str) -> str:
    return re.sub(r"\W+", "", text)


def _is_furniture(text: str, links: int) -> bool:
    """Whether a block that trafilatura left out looks like a part of the site: links, or a few words with one."""
    return links * 2 > len(text) or (links > 0 and len(text.split()) < _FEW)


def _check_depth(html: str) -> None:
    """Raise Unusable for more tags than are read, and for more elements open at once than a page has."""
    if html.count("<") > MAX_MARKS:
        raise Unusable("too large", f"more than {MAX_MARKS:,} tags")
    limit = max(_DEPTH, _SIZE_TIMES_DEPTH // max(len(html), 1))
    opened: Counter[str] = Counter()
    depth, drawing = 0, False
    for match in _OPEN_OR_CLOSE.finditer(html):
        tag = match[2].lower()
        alone = match[3].endswith("/")
        # An element of a drawing can close itself (`<path/>`); one of HTML cannot, and ends the drawing.
        drawing = tag in _DRAWING if drawing else tag == "svg" and not match[1] and not alone
        if tag in _CLOSED or (drawing and alone):
            continue
        if not match[1]:
            opened[tag] += 1
            depth += 1
            if depth > limit:
                raise Unusable("nested too deep", f"more than {limit} elements inside each other")
        elif opened[tag]:
            opened[tag] -= 1
            depth -= 1


class _Walk:
    """A depth-first walk over block elements; the inline text between two of them is a paragraph."""

    def __init__(self) -> None:
        self.found: list[Block] = []
        self.links: list[int] = []  # characters of each block that are links
        self.seen: set[int] = set()
        self.linked, self.inside = 0, 0
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
                if tag == "a":
                    self.inside -= 1
                else:
                    self.close(tag)
                continue
            if tag == "-text":
                self.held.append(re.sub(r"\s+", " ", node.text_content or ""))
                self.linked += len(self.held[-1]) if self.inside else 0
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
                elif tag == "a":
                    self.inside += 1
                    stack.append((node, True))
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
        if block.text:
            self.found.append(block)
            self.links.append(self.linked)
        self.linked = 0

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
            self.links[-1] += self.linked
            self.linked = 0
        else:
            # A term is kept together with its definition.
            self.add(Block(text if level else self.prefix + text, level, joins=tag == "dt"))
        self._row = tag in ("td", "th")
        self.prefix = ""

    _row = False

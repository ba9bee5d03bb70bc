"""Read folders of HTML: `reader: {kind: html, path: html, content: "div.body", remove: [.toc], split: sections}`.

Every word that a browser shows is in the text, or in a piece that is left out with a reason. No element is left out
because of its name alone: a form may enclose the page, a button may contain a question, and a header an article's
title. Page furniture is left out: navigation and the site's footer by their position, and other blocks by their
position if other pages of the site repeat them (`repeated_blocks`).
"""

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from airgen.components.registry import load_extra
from airgen.corpus.readers.files import opened
from airgen.corpus.readers.html_tags import MAX_MARKS, bounded, is_xhtml
from airgen.corpus.readers.reader import Place, Unusable
from airgen.corpus.readers.sections import Block, Page, SectionSettings
from airgen.corpus.readers.text_files import FileReader, damage
from airgen.errors import CorpusError
from airgen.storage.records import Document, Dropped
from airgen.text.character_encodings import Decoded, decoded_html

__all__ = ["MAX_MARKS", "TITLE", "HtmlReader", "html_blocks", "html_page"]

_BLOCKS = frozenset((
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "div", "dl",
    "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup",
    "hr", "html", "legend", "li", "main", "menu", "nav", "ol", "option", "optgroup", "p", "pre", "section", "select",
    "search", "summary", "table", "tbody", "td", "textarea", "tfoot", "th", "thead", "tr", "ul",
))  # fmt: skip
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_NEVER = frozenset(("script", "style", "template", "head", "link", "meta", "param", "source", "track", "rp"))
# Elements whose text is not shown or is not part of the page, with the reason for leaving them out.
_ASIDE = {
    "noscript": "shown without scripts only", "noframes": "shown without frames only", "iframe": "instead of a frame",
    "object": "instead of an object", "video": "instead of a video", "audio": "instead of a sound",
    "canvas": "instead of a drawing", "svg": "words of a drawing", "rt": "pronunciation of a word (ruby)",
    "select": "options of a form field", "datalist": "options of a form field", "textarea": "field of a form",
    "x-template": "template that scripts fill",
}  # fmt: skip
_PLACES = {"nav": "navigation", "footer": "footer of the page", "header": "header of the page", "dialog": "dialog"}
_ROLES = {
    "navigation": "navigation", "search": "search form", "contentinfo": "footer of the page",
    "banner": "header of the page", "dialog": "dialog", "alertdialog": "dialog", "menubar": "navigation",
}  # fmt: skip
_MENUS = frozenset((
    "nav", "navbar", "navigation", "menu", "sidebar", "sphinxsidebar", "breadcrumb", "breadcrumbs", "pagination",
    "related", "site-header", "site-footer", "topbar", "toolbar", "footer", "header", "nav-links", "page-nav",
    "sitenav", "topnav", "bottomnav", "subnav", "toc", "bd-toc", "sidebar-tree", "wy-nav-side", "navheader",
    "navfooter", "skip-link", "rst-footer-buttons", "edit-page",
))  # fmt: skip
_CONSENT = re.compile(r"cookie|consent|gdpr", re.IGNORECASE)
_PICTURED = ("math", "latex", "tex")  # pictures of equations, whose words are LaTeX
_SELF_LINKS = frozenset(("headerlink", "anchor-link", "hash-link", "anchorjs-link", "heading-anchor", "permalink"))
_SIGN = re.compile(r"\W{0,4}|(?i:\W{0,4}(?:perma)?(?:link|anchor)\b.{0,60})")
_LINE_NUMBERS = frozenset(("linenos", "gutter", "lineno", "rouge-gutter", "line-numbers-rows", "linenodiv"))
_NO_TEXT = frozenset(
    ("navigation", "footer of the page", "search form", "dialog", "consent to cookies", "outside of main")
)
TITLE = "title of the page, which has a heading"
_PERHAPS_TEXT = frozenset(("dialog", "consent to cookies"))
_FEW_WORDS = 8
_LAYOUT_SELECTOR = "table, h1, h2, h3, h4, h5, h6, pre"  # elements that occur only in a table for layout
_MAX_CELL_CHARACTERS = 2000  # a longer cell is treated as text
Extract = Literal["main", "page", "trafilatura"]


@dataclass(frozen=True, slots=True)
class _PlacedBlock:
    """A block of a page, with the number of its characters that are links.

    Attributes:
        place: Its position, if it is not part of the page's text.
        core: Whether it is in the page's `main` or in an article.
    """

    block: Block
    place: str = ""
    linked: int = 0
    core: bool = False


class HtmlReader(FileReader):
    """HTML pages: headings, paragraphs, list items, table rows and code, without scripts and navigation."""

    class Settings(SectionSettings):
        """Settings of the HTML reader.

        Attributes:
            content: CSS selector of the elements that contain the text.
            remove: CSS selectors of elements to leave out.
            extract: `main` leaves out navigation, the site's header and footer, and blocks that other pages repeat
                around their text. `page` keeps all text. `trafilatura` keeps what that library selects. Default:
                `main`, or `page` if `content` or `remove` is given.
        """

        packages: ClassVar[tuple[str, ...]] = ("selectolax",)
        content: str = ""
        remove: tuple[str, ...] = ()
        extract: Extract | None = None

        def required_packages(self) -> tuple[str, ...]:
            """Return the required packages, including trafilatura if it selects the text."""
            return (*self.packages, "trafilatura") if self.extract == "trafilatura" else self.packages

        def chosen(self) -> Extract:
            """Return which part of a page to read."""
            return self.extract or ("page" if self.content or self.remove else "main")

    version = 7
    suffixes = (".html", ".htm", ".xhtml", ".xht", ".shtml", ".html.gz")
    settings: Settings

    def __init__(self, settings: Settings, place: Place) -> None:
        super().__init__(settings, place)
        self.common: dict[str, frozenset[str]] = {}
        self.repeated: dict[str, frozenset[str]] = {}

    @property
    def repeating(self) -> list[str]:
        """Return the names of pages that repeat the site, such as a print version."""
        return list(self.repeated)

    def look_around(self, paths: Sequence[Path]) -> None:
        """Find the blocks that many pages of a folder repeat, from a sample, and pages that repeat all others."""
        super().look_around(paths)
        if self.settings.chosen() == "main":
            texts_of = lru_cache(_MAX_SAMPLED_PAGES)(self._texts_of)  # several comparisons look at the same pages
            self.common = repeated_blocks(paths, self._folder, texts_of)
            self.repeated = {self.name(path): texts for path, texts in repeating_pages(paths, texts_of).items()}

    def _folder(self, path: Path) -> str:
        return str(PurePosixPath(self.name(path)).parent)

    def _texts_of(self, path: Path) -> set[str]:
        """Return the texts of a page for `repeated_blocks`; none if the page cannot be read."""
        try:
            with opened(path) as stream:
                raw = stream.read(self.settings.max_bytes)
            entries = _parse_blocks(bounded(self.decode(raw).text), "", ())[1]
        except (Unusable, CorpusError):
            return set()
        return {key for entry in entries if (key := _key(entry.block.text))}

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """Yield the documents of one page, then the pieces that are left out. Raises Unusable."""
        decoded = self.decode(raw)
        settings = self.settings
        common = self.common.get(str(PurePosixPath(name).parent), frozenset()) | self.common.get("", frozenset())
        page = html_page(decoded.text, settings.content, settings.remove, extract=settings.chosen(), common=common)
        if others := self.repeated.get(name):
            page = _without_repeated(page, others)
        yield from self.pieces(page.left, name)
        if decoded.damaged:
            yield damage(decoded, self.identity(name), name)
        if not page.blocks:
            raise Unusable("repeats other pages" if name in self.repeated else "no text in the page")
        yield from self.documents(page.blocks, page.title, name)

    def decode(self, raw: bytes) -> Decoded:
        """Decode the page like a browser."""
        try:
            return decoded_html(raw, self.settings.encoding, self.place.language, usual=self.usual)
        except (UnicodeError, LookupError):
            return super().decode(raw)  # its message lists what was tried


# How many pages are compared to find repeated texts: in all folders, and in one folder.
_MAX_SAMPLED_PAGES, _MAX_SAMPLED_PER_FOLDER = 200, 30
# A text is repeated if at least so many of the compared pages have it, and at least this share of them.
_MIN_REPEATS, _MIN_REPEAT_SHARE = 4, 0.3


def repeated_blocks(
    paths: Sequence[Path], folder_of: Callable[[Path], str], texts_of: Callable[[Path], Collection[str]]
) -> dict[str, frozenset[str]]:
    """Return the texts that many pages of each folder share and, under "", those that many of all pages share.

    They are determined from an evenly drawn sample of pages. A folder with fewer than four pages has none.
    """
    folders: dict[str, list[Path]] = {"": [*paths]}
    for path in paths:
        folders.setdefault(folder_of(path), []).append(path)
    budget, seen, repeated = _MAX_SAMPLED_PAGES, dict[Path, Collection[str]](), dict[str, frozenset[str]]()
    for folder, pages in sorted(folders.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        if len(pages) < _MIN_REPEATS or budget < _MIN_REPEATS:
            continue
        size = min(len(pages), _MAX_SAMPLED_PER_FOLDER, budget)
        sample = [pages[place * len(pages) // size] for place in range(size)]
        for path in sample:
            if path not in seen:
                seen[path] = texts_of(path)
                budget -= 1
        counts = Counter(key for path in sample for key in seen[path])
        least = max(_MIN_REPEATS, _MIN_REPEAT_SHARE * len(sample))
        repeated[folder] = frozenset(key for key, count in counts.items() if count >= least)
    return repeated


# A page repeats others if it contains at least so many of them, and at least this share of the compared pages.
_MIN_COPIED_PAGES, _MIN_COPIED_SHARE = 3, 0.7
_MIN_MATCH_LETTERS = 20  # a shorter text may match by chance
_LARGEST_PAGES = 5  # only this many of the largest pages are tested


def repeating_pages(paths: Sequence[Path], texts_of: Callable[[Path], Collection[str]]) -> dict[Path, frozenset[str]]:
    """Return {page: texts of the others} for pages that repeat most others, such as a print version of a manual.

    Such a page is larger than the others; a sample of them shows whether it repeats them.
    """
    if len(paths) <= _MIN_COPIED_PAGES:
        return {}
    sizes = sorted((path.stat().st_size, path) for path in paths)
    median = sizes[len(sizes) // 2][0]
    large = [path for size, path in sizes[-_LARGEST_PAGES:] if size > 2 * median]
    repeating: dict[Path, frozenset[str]] = {}
    for page in large:
        others = [path for path in paths if path != page]
        own = set(texts_of(page))
        step = max(len(others) // _MAX_SAMPLED_PER_FOLDER, 1)
        copies = [_is_within(texts_of(path), own) for path in others[::step]]
        if sum(copies) >= _MIN_COPIED_PAGES and sum(copies) >= _MIN_COPIED_SHARE * len(copies):
            texts = (key for path in others if path not in repeating for key in texts_of(path))
            repeating[page] = frozenset(key for key in texts if len(key) >= _MIN_MATCH_LETTERS)
    return repeating


def _is_within(texts: Collection[str], others: Collection[str]) -> bool:
    long = [text for text in texts if len(text) >= _MIN_MATCH_LETTERS]
    return bool(long) and sum(text in others for text in long) >= 0.8 * len(long)


def _without_repeated(page: Page, others: Collection[str]) -> Page:
    """Return the page without what other pages contain, and without headings that are left without text."""
    remaining: list[Block] = []
    for block in page.blocks:
        if not block.level and _key(block.text) in others:
            continue
        while block.level and remaining and remaining[-1].level >= block.level:
            remaining.pop()
        remaining.append(block)
    while remaining and remaining[-1].level:
        remaining.pop()
    removed_text = "\n".join(block.text for block in page.blocks if not block.level and _key(block.text) in others)
    return replace(page, blocks=remaining, left=[*page.left, ("repeats other pages", removed_text)])


def html_blocks(
    html: str, content: str = "", remove: Sequence[str] = (), extract: Extract = "page"
) -> tuple[str, list[Block]]:
    """Return the title and blocks of a page. Raises Unusable for too much markup, and MissingExtra for a missing
    package."""
    page = html_page(html, content, remove, extract)
    return page.title, page.blocks


def html_page(
    html: str,
    content: str = "",
    remove: Sequence[str] = (),
    extract: Extract = "page",
    common: Collection[str] = (),
) -> Page:
    """Parse a page into its title, its blocks, and the pieces that are left out.

    Args:
        html: The page.
        content: CSS selector of the elements with the text, or "" for the page's `main` or the whole page.
        remove: CSS selectors of elements to leave out.
        extract: See `HtmlReader.Settings`.
        common: Texts that other pages of the site also contain, from `repeated_blocks`.

    Raises Unusable for too much markup, and MissingExtra for a missing package."""
    html = bounded(_as_shown(html))
    title, entries, left = _parse_blocks(html, content, remove)
    if (
        not entries
        and any(len(text.split()) >= _MIN_NOSCRIPT_WORDS for _, text in left)
        and "<noscript" in html.lower()
    ):
        # What a page that scripts fill shows without them. A few words only ask for scripts.
        title, entries, left = _parse_blocks(_NOSCRIPT.sub(r"<\1div", html), content, remove)
    if extract == "trafilatura":
        entries, more = _by_trafilatura(html, entries)
    elif extract == "main":
        entries, more = _without_furniture(entries, common)
    elif content:
        more = []
    else:
        entries, more = _without_places(entries)
    blocks = [entry.block for entry in entries]
    first = next((block.text for block in blocks if block.level == 1), "")
    if first and _letters(title) not in _letters("\n".join(block.text for block in blocks)):
        more = [*more, (TITLE, title)]  # the title often ends with the name of the site, so the heading is better
    return Page(first or title, blocks, _joined([*left, *more]))


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


_TEMPLATE = re.compile(r"<(/?)template\b([^<>]*)>", re.IGNORECASE)
_TEMPLATE_KIND = re.compile(r"template|markdown|handlebars|mustache|text/(?:html|plain)")  # of a script with text
_NOSCRIPT = re.compile(r"<(/?)noscript\b", re.IGNORECASE)
_MIN_NOSCRIPT_WORDS = 30
_NOFRAMES = re.compile(r"</?noframes\b[^<>]*>", re.IGNORECASE)


def _as_shown(html: str) -> str:
    """Return the page with what a browser shows and the parser would not: the shadow tree of an element, CDATA of
    XHTML, and the page instead of frames; and with templates as elements, since the parser hides what is in them.
    """
    if "template" in html.lower():
        opened: list[bool] = []

        def as_element(tag: re.Match[str]) -> str:
            if tag[2].endswith("/"):
                return ""
            if not tag[1]:
                opened.append("shadowroot" in tag[2].lower())
            shown = opened.pop() if tag[1] and opened else bool(opened) and opened[-1]
            return f"<{tag[1]}{'div' if shown else 'x-template'}>"

        html = _TEMPLATE.sub(as_element, html)
    if "<![CDATA[" in html and is_xhtml(html):
        pieces, at = [], 0
        while (start := html.find("<![CDATA[", at)) >= 0 and (end := html.find("]]>", start)) >= 0:
            words = html[start + 9 : end].replace("&", "&amp;").replace("<", "&lt;")
            pieces += [html[at:start], words]
            at = end + 3
        html = "".join([*pieces, html[at:]])
    low = html.lower()
    start = low.find("<frameset")
    if start >= 0 and "<body" not in low[:start] and len(parts := _NOFRAMES.split(html[start:])) > 1:
        html = "\n".join(parts[1::2])
    return html


def _joined(left: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return one piece for each reason, in order of first occurrence."""
    texts: dict[str, list[str]] = {}
    for reason, text in left:
        if any(map(str.isalnum, text)):
            texts.setdefault(reason, []).append(text.strip())
    return [(reason, "\n".join(parts)) for reason, parts in texts.items()]


def _by_trafilatura(html: str, entries: list[_PlacedBlock]) -> "_Split":
    """Return the blocks that trafilatura selects, and the others."""
    trafilatura = load_extra("trafilatura", "reader 'html' (extract)")
    main = trafilatura.extract(
        html, output_format="html", include_formatting=True, include_tables=True, favor_recall=True, deduplicate=False
    )
    extracted = _parse_blocks(main, "", ())[1] if main else []
    if not extracted:
        return entries, []
    texts = {_key(entry.block.text) for entry in extracted}
    others = [entry.block.text for entry in entries if _key(entry.block.text) not in texts]
    return [_PlacedBlock(entry.block) for entry in extracted], [("left out by trafilatura", text) for text in others]


_Split = tuple[list[_PlacedBlock], list[tuple[str, str]]]


def _without_places(entries: Sequence[_PlacedBlock]) -> _Split:
    """Return the blocks without those in places that never contain the text of a page.

    If a page has no other text, a dialog or a cookie notice is its text.
    """
    remaining = [entry for entry in entries if entry.place not in _NO_TEXT]
    never = _NO_TEXT
    if not any(not entry.block.level for entry in remaining):
        never = _NO_TEXT - _PERHAPS_TEXT
        remaining = [entry for entry in entries if entry.place not in never]
    return remaining, [(entry.place, entry.block.text) for entry in entries if entry.place in never]


def _without_furniture(entries: Sequence[_PlacedBlock], common: Collection[str]) -> _Split:
    """Return the blocks of the page's own text, the furniture around it, and headings that are left without text."""
    left: list[tuple[str, str]] = []
    remaining: list[_PlacedBlock] = []
    own = [place for place, entry in enumerate(entries) if not entry.place and _key(entry.block.text) not in common]
    inner = range(own[0], own[-1] + 1) if own else range(len(entries))
    texts = [place for place in own if not _is_linked(entries[place])]
    main = range(texts[0], texts[-1] + 1) if texts else range(len(entries))
    for place, entry in enumerate(entries):
        text, repeated = entry.block.text, _key(entry.block.text) in common
        is_short = len(text.split()) < _FEW_WORDS and len(text) < 60
        reason = ""
        if entry.place in _NO_TEXT:
            reason = entry.place
        elif repeated and (entry.place or (place not in inner and (entry.linked or is_short or "©" in text))):
            reason = "on other pages, too"
        elif entry.place and _is_linked(entry):
            reason = entry.place
        elif place not in main and not entry.core and _is_linked(entry):
            reason = "links around the text"
        if reason and not (entry.block.level and entry.place not in _NO_TEXT):
            left.append((reason, text))
        else:
            remaining.append(entry)
    if not any(not entry.block.level for entry in remaining):
        return _without_places(entries)  # the page has only what counts as furniture on other pages
    remaining, bare = _without_bare_headings(remaining, common, left)
    return remaining, left + bare


def _is_linked(entry: _PlacedBlock) -> bool:
    """Return whether most of a block consists of links. A term does not count, because it belongs to its definition."""
    return not (entry.block.level or entry.block.joins) and entry.linked * 2 > len(entry.block.text)


def _without_bare_headings(
    entries: Sequence[_PlacedBlock], common: Collection[str], left: Sequence[tuple[str, str]]
) -> _Split:
    """Leave out furniture headings that are left without text."""
    if not left:
        return [*entries], []
    remaining: list[_PlacedBlock] = []
    bare: list[tuple[str, str]] = []
    for place, entry in enumerate(entries):
        below = entries[place + 1] if place + 1 < len(entries) else None
        alone = below is None or (below.block.level and below.block.level <= entry.block.level)
        if entry.block.level and alone and (entry.place or _key(entry.block.text) in common):
            bare.append((entry.place or "on other pages, too", entry.block.text))
        else:
            remaining.append(entry)
    return remaining, bare


def _key(text: str) -> str:
    """Return the letters and digits of a text, for comparing the texts of two pages."""
    return _letters(text)[:500]


def _parse_blocks(
    html: str, content: str, remove: Sequence[str]
) -> tuple[str, list[_PlacedBlock], list[tuple[str, str]]]:
    """Return the title element, the blocks, and what is always left out."""
    lexbor = load_extra("selectolax.lexbor", "reader 'html'")
    tree = lexbor.LexborHTMLParser(html)
    title = tree.css_first("title")
    heading = " ".join(title.text().split()) if title is not None else ""
    body = tree.body
    if body is None:
        return heading, [], []
    walk = _Walk()
    if remove:
        walk.removed = {node.mem_id for selector in remove for node in body.css(selector)}
    if content and (wanted := tree.css(content)):
        walk.wanted = {node.mem_id for node in wanted}
    walk.mains = {node.mem_id for node in body.css("main, [role=main]")}
    walk.walk(body)
    if walk.mains and not content:
        _mark_outside_main(walk)
    return heading, walk.entries, walk.left


def _mark_outside_main(walk: "_Walk") -> None:
    """Mark blocks outside `main` if `main` contains the text of the page."""
    inside = sum(len(entry.block.text) for entry, main in zip(walk.entries, walk.in_main, strict=True) if main)
    free = sum(
        len(entry.block.text)
        for entry, main in zip(walk.entries, walk.in_main, strict=True)
        if not (main or entry.place)
    )
    if inside * 5 > free:
        walk.entries = [
            entry if main or entry.place else replace(entry, place="outside of main")
            for entry, main in zip(walk.entries, walk.in_main, strict=True)
        ]


class _Walk:
    """A depth-first walk over block elements. Inline text between two of them is a paragraph."""

    def __init__(self) -> None:
        self.entries: list[_PlacedBlock] = []
        self.in_main: list[bool] = []  # for each block
        self.left: list[tuple[str, str]] = []
        self.removed: set[int] = set()
        self.wanted: set[int] | None = None
        self.mains: set[int] = set()
        self._held: list[str] = []
        self._prefix = ""
        self._heading = 0
        self._linked = self._links = self._depth_main = self._depth_wanted = self._sections = 0
        self._places: list[str] = []
        self._buttons: list[str] = []
        self._row: list[str] | None = None  # the cells of a row in a table of data
        self._pieces: list[str] = []  # of a cell

    def walk(self, root: Any) -> None:
        # With an explicit stack, because some pages are nested deeper than Python can recurse.
        stack: list[tuple[Any, Any]] = [(root, None)]
        while stack:
            node, leave = stack.pop()
            if leave is not None:
                leave()
                continue
            tag = node.tag
            if tag == "-text":
                self._text(node.text_content or "")
                continue
            if not tag or tag.startswith(("-", "!")):
                continue
            if tag == "br":
                self._held.append("\n")
                continue
            if tag == "input":
                self._input(node.attributes)
                continue
            if tag == "area":
                self.left.append(("alternative text of a picture", node.attributes.get("alt") or ""))
                continue
            if tag == "img":
                words = node.attributes.get("alt") or ""
                if (node.attributes.get("class") or "") in _PICTURED:
                    self._held.append(f" {words} ")
                else:
                    self.left.append(("alternative text of a picture", words))
                continue
            enter = self._enter(node, tag)
            if enter is None:
                continue
            stack.append((node, enter))
            child, children = node.child, []
            while child is not None:
                children.append((child, None))
                child = child.next
            stack.extend(reversed(children))
        self._close()

    def _text(self, text: str) -> None:
        self._held.append(re.sub(r"\s+", " ", text))
        if self._links:
            self._linked += len(self._held[-1].strip())

    def _enter(self, node: Any, tag: str) -> Any:
        """Return what to do at the end of an element, or None to skip it."""
        attributes: Mapping[str, str | None] = node.attributes
        if tag in ("script", "textarea") and "data-markdown" in node.parent.attributes:
            self._close()
            if text := textwrap.dedent(node.text()).strip():
                self._add(text, 0)  # a slide of reveal.js
            return None
        if tag in _NEVER:
            kind = (attributes.get("type") or "").lower() if tag == "script" else ""
            if "math/tex" in kind:
                self._held.append(f" {node.text().strip()} ")  # an equation of MathJax
            elif _TEMPLATE_KIND.search(kind):
                self.left.append((_ASIDE["x-template"], node.text()))
            return None
        if node.mem_id in self.removed:
            self._leave_out("left out by reader.remove", node)
            return None
        if tag in _ASIDE:
            self._leave_out(_ASIDE[tag], node)
            self.left += [(_ASIDE[tag], words) for words in _of_attributes(node, tag)]
            return None
        classes = frozenset((attributes.get("class") or "").split())
        if (tag == "math" or "katex" in classes) and (equation := _equation(node)) is not None:
            self._held.append(equation)
            return None
        if classes & _LINE_NUMBERS:
            self._leave_out("numbers of lines", node)
            return None
        if tag == "a" and classes & _SELF_LINKS and _SIGN.fullmatch(node.text().strip()):
            self._leave_out("sign behind a heading", node)
            return None
        if attributes.get("aria-hidden") == "true" and tag in ("span", "i", "a", "b", "em", "button"):
            self._leave_out("hidden from screen readers", node)
            return None
        if tag == "pre":
            self._preformatted(node)
            return None
        return self._enter_block(node, tag, attributes, classes)

    def _enter_block(self, node: Any, tag: str, attributes: Mapping[str, str | None], classes: frozenset[str]) -> Any:
        ends: list[Any] = []
        if node.mem_id in self.mains:
            self._close()
            self._depth_main += 1
            ends.append(lambda: setattr(self, "_depth_main", self._depth_main - 1))
        if self.wanted is not None and node.mem_id in self.wanted:
            self._close()
            self._depth_wanted += 1
            ends.append(lambda: setattr(self, "_depth_wanted", self._depth_wanted - 1))
        if tag in ("article", "section") and not self._places:
            self._sections += 1
            ends.append(lambda: setattr(self, "_sections", self._sections - 1))
        if place := self._place(node, tag, attributes, classes):
            self._close()
            self._places.append(place)
            ends.append(self._places.pop)
        if tag == "a":
            self._links += 1
            ends.append(lambda: setattr(self, "_links", self._links - 1))
        elif tag == "button":
            start = len(self._held)
            panel = any(name in attributes for name in ("aria-expanded", "aria-controls", "data-toggle", "role"))
            ends.append(lambda: self._button(start, panel))
        elif tag == "label":
            ends.append(lambda: self._held.append(" "))
        elif tag == "tr" and self._row is None and _is_data(node):
            self._close()
            self._row = []
            ends.append(self._end_row)
        elif tag in ("td", "th") and self._row is not None:
            ends.append(self._end_cell)
        if tag in _BLOCKS:
            if self._row is not None:
                self._held.append(" ")
                if tag == "li":
                    self._held.append("- ")
            else:
                self._close()
                if tag == "li":
                    self._prefix = "- "
                if tag in _HEADINGS:
                    self._heading = _HEADINGS[tag]
                    ends.append(self._end_heading)
                ends.insert(0, lambda: self._close(joins=tag == "dt"))
        return lambda: [end() for end in ends]

    def _place(self, node: Any, tag: str, attributes: Mapping[str, str | None], classes: frozenset[str]) -> str:
        """Return the place of an element's contents, or "" if they are in the same place as the element."""
        role = (attributes.get("role") or "").lower()
        inside = self._depth_main or self._sections
        named = " ".join(classes) + " " + (attributes.get("id") or "")
        if _CONSENT.search(named) and tag in ("div", "section", "aside", "dialog", "form") and len(node.text()) < 3000:
            return "consent to cookies"
        if role in _ROLES and not (inside and role in ("banner", "contentinfo")):
            return _ROLES[role]
        if tag in _PLACES and not (inside and tag in ("header", "footer")) and not self._places:
            return _PLACES[tag]
        if tag == "aside" and not inside:
            return "beside the text"
        words = classes | {attributes.get("id") or ""}
        if tag in ("div", "ul", "ol", "td", "section", "table", "p") and words & _MENUS:
            return "menu, by its name"
        return ""

    def _leave_out(self, reason: str, node: Any) -> None:
        text = " ".join(node.text(separator=" ").split())
        if text:
            self.left.append((reason, text))

    def _input(self, attributes: Mapping[str, str | None]) -> None:
        kind = (attributes.get("type") or "text").lower()
        if kind == "image":
            self.left.append(("alternative text of a picture", attributes.get("alt") or ""))
        if kind in ("hidden", "password", "checkbox", "radio", "file", "color", "range"):
            return
        words = " ".join(filter(None, (attributes.get("value"), attributes.get("placeholder"))))
        if words.strip():
            reason = "button" if kind in ("submit", "button", "reset") else "field of a form"
            self.left.append((reason, words))

    def _button(self, start: int, panel: bool) -> None:
        """Keep a button as text in a heading, among words, or if it opens a part of the page; otherwise leave it
        out."""
        words = " ".join("".join(self._held[start:]).split())
        del self._held[start:]
        before = "".join(self._held).strip()
        if self._heading or panel or before or self._row is not None or len(words.split()) > 3 or len(words) > 24:
            self._held.append(words if not before or self._held[-1].endswith((" ", "\n")) else f" {words}")
        elif words:
            self._held.append(f"\x00{words}\x00")  # the text after it decides

    def _preformatted(self, node: Any) -> None:
        for number in node.css(".linenos, .lineno, .line-numbers-rows"):
            number.decompose()
        for line_break in node.css("br"):
            line_break.replace_with("\n")
        text = node.text().strip("\n")
        if self._row is not None:
            self._held.append(f" {text} ")
            return
        self._close()
        if text.strip():
            self._add(text, 0)

    def _end_heading(self) -> None:
        self._heading = 0

    def _end_cell(self) -> None:
        assert self._row is not None
        if text := " ".join(self._words().split()):
            self._row.append(text)
        self._held.clear()

    def _end_row(self) -> None:
        cells, self._row = self._row or [], None
        if rest := " ".join(self._words().split()):
            cells.append(rest)
        self._held.clear()
        if cells:
            self._add(" | ".join(cells), 0)

    def _words(self) -> str:
        """Return the collected inline text. Buttons are kept only if they are among other words."""
        text = "".join(self._held)
        if "\x00" not in text:
            return text
        pieces = text.split("\x00")
        plain = "".join(pieces[0::2]).strip()
        if plain:
            return text.replace("\x00", "")
        self.left += [("button", piece) for piece in pieces[1::2] if piece]
        return ""

    def _close(self, joins: bool = False) -> None:
        """End a paragraph."""
        if self._row is not None:
            return
        text = "\n".join(" ".join(line.split()) for line in self._words().split("\n")).strip()
        self._held.clear()
        if text:
            self._add(text if self._heading else self._prefix + text, self._heading, joins)
            self._prefix = ""
            self._heading = 0

    def _add(self, text: str, level: int, joins: bool = False) -> None:
        if self.wanted is not None and not self._depth_wanted:
            self.left.append(("outside of reader.content", text))
            self._linked = 0
            return
        place = self._places[0] if self._places else ""
        core = bool(self._depth_main or self._sections)
        self.entries.append(_PlacedBlock(Block(text, level, joins), place, self._linked, core))
        self.in_main.append(bool(self._depth_main))
        self._linked = 0


def _of_attributes(node: Any, tag: str) -> list[str]:
    """Return the words in an element's attributes that a browser shows: labels of options, placeholders of fields, a
    frame's page.
    """
    if tag == "iframe" and (page := node.attributes.get("srcdoc")):
        return [_plain_words(page)]
    if tag in ("select", "datalist"):
        return [label for option in node.css("option, optgroup") if (label := option.attributes.get("label"))]
    return [words] if tag == "textarea" and (words := node.attributes.get("placeholder")) else []


def _plain_words(html: str) -> str:
    """Return all text of a page without the frames in it, of which there may be thousands, nested in each other."""
    tree = load_extra("selectolax.lexbor", "reader 'html'").LexborHTMLParser(bounded(html))
    for node in tree.css("script, style"):
        node.decompose()
    return " ".join(tree.body.text(separator=" ").split()) if tree.body is not None else ""


def _is_data(row: Any) -> bool:
    """Return whether a table row contains data rather than the layout of the page."""
    return row.css_first(_LAYOUT_SELECTOR) is None and len(row.text()) <= _MAX_CELL_CHARACTERS


def _equation(node: Any) -> str | None:
    """Return an equation as LaTeX, if the page has it, otherwise as letters; None if there is no equation."""
    source = node.css_first("annotation[encoding='application/x-tex']")
    if source is not None:
        return f" {source.text().strip()} "
    if node.tag != "math":
        return None
    words = node.attributes.get("alttext") or node.text()
    return f" {' '.join(words.split())} "

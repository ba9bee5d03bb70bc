"""Read Markdown as rendered, with markdown-it-py: `reader: {kind: markdown, path: docs, split: sections}`.

>>> markdown_blocks("# Use\\n\\nSee [the **guide**](g.html) of `cp <from> <to>`.")[1][1].text
'See the guide of cp <from> <to>.'

Every word of the rendered page is kept. Markup is removed, including HTML tags, but not placeholders that only look
like tags.
"""

import html
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from mdit_py_plugins.footnote import footnote_plugin

from airgen.corpus.readers.sections import Block, Page, paragraphs
from airgen.corpus.readers.text_files import FileReader
from airgen.storage.records import Document, Dropped

_FENCE = re.compile(r"(---|\+\+\+)[ \t]*")
_MAX_FRONT_MATTER_CHARACTERS = 64 * 1024  # characters of front matter
_TAG = re.compile(r"<(/?)([a-zA-Z][\w.:-]*+)([^<>]*+)>")
_CLOSING = re.compile(r"</([a-zA-Z][\w.:-]*+)")
# Elements that have no closing tag, or rarely have one.
_UNCLOSED = frozenset(("br", "dd", "dt", "hr", "img", "input", "li", "p", "source", "td", "th", "tr", "wbr"))
_ALT = re.compile(r"""\balt=(["'])(.*?)\1""", re.IGNORECASE | re.DOTALL)
_SHOWN = re.compile(
    r"""(?<![\w-])(?:title|label|header|heading|summary|description|caption|question|name)=(["'])(.*?)\1""", re.DOTALL
)
_TITLED = re.compile(r"""(?<![\w-])(?:title|caption|filename)=(["'])(.*?)\1""")
_CELL_END = re.compile(r"(?<!\\)\|")
_CELL = "\x1c"  # stands where a cell of HTML begins
_SPACES = re.compile(r"\s+")  # to Python, _CELL is a space, too
# Elements of HTML that begin or end a line.
_LINES = frozenset((
    "blockquote", "br", "dd", "details", "div", "dt", "figcaption", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li",
    "ol", "p", "summary", "table", "tr", "ul",
))  # fmt: skip
_HIDDEN = re.compile(r"(?:script|style)(?=[\s/>])", re.IGNORECASE)


class MarkdownReader(FileReader):
    """Reads Markdown without its markup. The title comes from the front matter or the first heading of level 1."""

    version = 5
    suffixes = (".md", ".markdown", ".mdown", ".mkd", ".mdx", ".qmd", ".rmd", ".md.gz")

    def parse_text(self, text: str, name: str) -> Iterator[Document | Dropped]:
        page = markdown_page(text)
        yield from self.pieces(page.left, name)
        yield from self.documents(page.blocks, page.title, name)


def markdown_blocks(text: str) -> tuple[str, list[Block]]:
    """Return the title and the blocks of `markdown_page`."""
    page = markdown_page(text)
    return page.title, page.blocks


def markdown_page(text: str) -> Page:
    """Parse Markdown (CommonMark with tables, strikethrough and footnotes) into its title, headings, paragraphs, lists,
    tables and code. Front matter is a piece that is left out."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    title, matter, text = _without_matter(text.removeprefix("\ufeff"))
    tokens = _parsed(text)
    parsed_blocks = paragraphs(text) if tokens is None else _Walk(text).blocks(SyntaxTreeNode(tokens))
    blocks = [block for block in parsed_blocks if block.text.strip()]
    left = [("front matter", matter)] if any(map(str.isalnum, matter)) else []
    return Page(title or next((block.text for block in blocks if block.level == 1), ""), blocks, left)


def _without_matter(text: str) -> tuple[str, str, str]:
    """Return the front matter's title, the front matter, and the text after it.

    Text that only looks like front matter, such as text between two rules, remains text.
    """
    first, _, rest = text.partition("\n")
    fence = _FENCE.fullmatch(first)
    if fence is None:
        return "", "", text
    matter_lines: list[str] = []
    size = 0
    lines = rest[:_MAX_FRONT_MATTER_CHARACTERS].split("\n")
    for number, line in enumerate(lines):
        if line.rstrip() in ((fence[1], "...") if fence[1] == "---" else (fence[1],)):
            matter = _matter("\n".join(matter_lines), fence[1])
            if matter is None:
                return "", "", text
            after = rest[size + len(line) + 1 :] if number < len(lines) else ""
            title = matter.get("title", matter.get("Title", ""))
            words = " ".join(str(title).split()) if isinstance(title, str | int | float) else ""
            return words, "" if {*matter} <= {"title", "Title"} and words else "\n".join(matter_lines), after
        matter_lines.append(line)
        size += len(line) + 1
    return "", "", text


def _matter(text: str, fence: str) -> Mapping[str, Any] | None:
    """Parse front matter as YAML or TOML, or return None if it is neither. Broken YAML yields only its title line."""
    if fence == "+++":
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError):
            return _named_lines(text, "=")
    if not text.strip():
        return {}
    try:
        value = yaml.load(text, Loader=_Matter)
    except (yaml.YAMLError, ValueError, RecursionError):
        return _named_lines(text, ":")
    return value if isinstance(value, dict) else None


class _Matter(yaml.SafeLoader):
    """A YAML loader that keeps values as written and refuses aliases, which can expand without limit."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("alias")
        return super().compose_node(parent, index)


_Matter.yaml_implicit_resolvers = {}


def _named_lines(text: str, sign: str) -> Mapping[str, Any] | None:
    """Return {name: value} for front matter that cannot be parsed, or None if no line has that form."""
    values: dict[str, Any] = {}
    for line in text.split("\n"):
        name, mark, value = line.partition(sign)
        if mark and name.strip().replace("_", "").replace("-", "").isalnum() and not line[:1].isspace():
            values.setdefault(name.strip(), _unquoted(value))
    return values or None


_MAX_NESTING = 100  # levels that the parser looks into


@cache
def _parser() -> MarkdownIt:
    return (
        MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).enable(["table", "strikethrough"]).use(footnote_plugin)
    )


def _parsed(text: str) -> list[Token] | None:
    """Return the tokens of a text, including unreferenced footnotes, or None if it is nested deeper than `_NESTED`."""
    notes: dict[str, Any] = {}
    tokens = _parser().parse(text, notes)
    if any(token.level >= _MAX_NESTING - 1 for token in tokens):
        return None
    alone = [label[1:] for label, used in notes.get("footnotes", {}).get("refs", {}).items() if used < 0]
    if not alone:
        return tokens
    # The parser returns only notes that are referenced, so append a paragraph that references them, and remove it
    # again.
    tokens = _parser().parse(f"{text}\n\n{' '.join(f'[^{label}]' for label in alone)}")
    end = next((place for place, token in enumerate(tokens) if token.type == "footnote_block_open"), len(tokens))
    is_last = end >= 3 and tokens[end - 3].type == "paragraph_open"
    return tokens[: end - 3] + tokens[end:] if is_last else tokens


class _Walk:
    """The blocks of a page with these lines. `closed` holds the names of tags that are closed on the page."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._closed = frozenset(name.lower() for name in _CLOSING.findall(text))

    def blocks(self, parent: SyntaxTreeNode) -> Iterator[Block]:
        for node in parent.children:
            if node.type == "heading":
                yield Block(" ".join(self.inline(node).split()), int(node.tag[1]))
            elif node.type in ("bullet_list", "ordered_list"):
                yield from map(Block, self._items(node))
            else:
                yield from map(Block, self._texts(node))

    def _texts(self, node: SyntaxTreeNode) -> Iterator[str]:
        """Yield the texts of a block that is neither a top-level heading nor a list."""
        if node.type in ("paragraph", "heading"):
            yield self.inline(node)
        elif node.type in ("fence", "code_block"):
            yield "\n".join(filter(None, (_caption(node.info), node.content.rstrip("\n"))))
        elif node.type == "html_block":
            words = html.unescape(_SPACES.sub(_start_row, self._tags(node.content)))
            yield words.replace(_CELL, " | ").strip()
        elif node.type == "table":
            rows = (row for part in node.children for row in part.children)
            yield "\n".join(" | ".join([*map(self.inline, row.children), *self._surplus(row)]) for row in rows)
        elif node.type in ("bullet_list", "ordered_list"):
            yield from self._items(node)
        elif node.type == "footnote":
            inner = "\n".join(text for child in node.children for text in self._texts(child))
            yield f"[{node.meta['id'] + 1}] {inner}"
        else:
            for child in node.children:
                yield from self._texts(child)

    def _items(self, node: SyntaxTreeNode) -> Iterator[str]:
        """Yield the items of a list with their markers, or a tight list as a single text."""
        marks = (f"{item.info}{item.markup}" if node.type == "ordered_list" else "-" for item in node.children)
        tight = all(part.hidden for item in node.children for part in item.children if part.type == "paragraph")
        items = []
        for mark, item in zip(marks, node.children, strict=True):
            inner = ("\n" if tight else "\n\n").join(text for part in item.children for text in self._texts(part))
            items.append(f"{mark} " + inner.replace("\n", "\n  ").replace("\n  \n", "\n\n"))
        yield from ["\n".join(items)] if tight else items

    def _surplus(self, row: SyntaxTreeNode) -> list[str]:
        """Return the cells beyond the last column of a row, which are not rendered."""
        if row.map is None or row.map[0] >= len(self._lines):
            return []
        line = self._lines[row.map[0]].strip().removeprefix("|").removesuffix("|")
        cells = [cell.replace("\\|", "|").strip() for cell in _CELL_END.split(line)]
        first = row.children[0].children[0].content if row.children and row.children[0].children else ""
        start = next((place for place, cell in enumerate(cells) if cell == first), 0)  # after a list's mark
        return [cell for cell in cells[start + len(row.children) :] if cell]

    def inline(self, node: SyntaxTreeNode) -> str:
        """Return the text of a paragraph, heading or cell."""
        return "".join(self._inline(node)).strip()

    def _inline(self, node: SyntaxTreeNode) -> Iterator[str]:
        if node.type in ("softbreak", "hardbreak"):
            yield "\n"
        elif node.type == "html_inline":
            yield self._tags(node.content).replace(_CELL, " ")
        elif node.type == "footnote_ref":
            yield f"[{node.meta['id'] + 1}]"
        elif node.children:
            for child in node.children:
                yield from self._inline(child)
        elif node.type != "footnote_anchor":
            yield node.content

    def _tags(self, text: str) -> str:
        """Return HTML without comments, scripts and tags, but with placeholders such as `<path>`."""
        return _TAG.sub(self._tag, _without_hidden(text))

    def _tag(self, match: re.Match[str]) -> str:
        name, inside = match[2].lower(), match[3]
        if name == "img" and (words := _ALT.search(inside)):
            return words[2]
        if match[2] != name and (shown := _SHOWN.findall(inside)):  # a component of MDX
            return "".join(f"{words}\n" for _, words in shown)
        if name in self._closed or name in _UNCLOSED or "=" in inside or inside.endswith("/"):
            if name in ("td", "th"):
                return "" if match[1] else _CELL
            return "\n" if name in _LINES else ""
        return match[0]


def _start_row(spaces: re.Match[str]) -> str:
    """Return a run of spaces without the marks of cells with which a row of HTML begins."""
    run = spaces[0]
    start, last = 0 if not spaces.start() else run.find("\n"), run.rfind(_CELL)
    return run if not 0 <= start <= last else f"{run[:start]}\n{run[last + 1 :]}"


def _caption(info: str) -> str:
    """Return the visible part of a fence's info string: the title of code, or of a directive such as `{note} Title`."""
    if title := _TITLED.search(info):
        return title[2]
    name, _, rest = info.partition("}")
    return rest.strip() if name.startswith("{") and any(map(str.isalpha, rest)) else ""


def _without_hidden(text: str) -> str:
    """Return HTML without comments, declarations, scripts and styles. An unclosed one is kept."""
    absent: set[str] = set()

    def after(mark: str, at: int) -> int:
        """Return the end of the next `mark`, or -1.

        A mark that was not found once is never searched for again, which keeps the time linear.
        """
        match = None if mark in absent else re.compile(mark, re.IGNORECASE).search(text, at)
        if match is None:
            absent.add(mark)
        return match.end() if match else -1

    pieces, at = [], 0
    while (start := text.find("<", at)) >= 0:
        end = -1
        if text.startswith("<!--", start):
            end = after("-->", start + 4)
        elif text.startswith(("<!", "<?"), start):
            end = after(">", start)
        elif hidden := _HIDDEN.match(text, start + 1):
            end = after(f"</{hidden[0].lower()}\\s*>", start)
        at, begin = (end, at) if end >= 0 else (start + 1, at)
        pieces.append(text[begin : start if end >= 0 else at])
    return "".join(pieces) + text[at:]


def _unquoted(value: str) -> str:
    value = value.strip()
    value = value[1:] if value.startswith(("'", '"')) else value
    return value[:-1] if value.endswith(("'", '"')) else value

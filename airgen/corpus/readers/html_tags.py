"""Limit the markup of a page before it reaches a parser whose time grows faster than the page's size.

    html = bounded(html)        # raises Unusable for too many tags, or too many levels of nested elements

A tag with thousands of attributes loses them: they contain no text, and parsers compare each with all earlier ones. In
XHTML, each `<title/>` gets its end: a parser of HTML ignores the slash, and takes the rest of the page for a title.
"""

import re
from collections import Counter
from collections.abc import Iterator

from airgen.corpus.readers.reader import Unusable

MAX_MARKS = 1_000_000  # maximum number of tags per page
_MAX_ATTRIBUTES = 500  # maximum number of attributes per tag
# The parser's time is proportional to a page's size times its depth, so a large page may not be deep.
_MAX_DEPTH, _MAX_SIZE_TIMES_DEPTH = 512, 400_000_000
# Elements without content, and elements that the next element of the same kind closes.
_CLOSED = frozenset((
    "a", "area", "base", "body", "br", "col", "colgroup", "dd", "dt", "embed", "head", "hr", "html", "img", "input",
    "li", "link", "meta", "nobr", "optgroup", "option", "p", "param", "rp", "rt", "source", "tbody", "td", "tfoot",
    "th", "thead", "tr", "track", "wbr",
))  # fmt: skip
_DRAWING = frozenset((
    "a", "circle", "clippath", "defs", "ellipse", "g", "image", "line", "lineargradient", "marker", "mask", "path",
    "pattern", "polygon", "polyline", "radialgradient", "rect", "stop", "symbol", "text", "tspan", "use",
))  # fmt: skip
_RAW = frozenset(("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"))  # no nested tags
_VOID = frozenset((
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
))  # fmt: skip
_XHTML_BEGINS = 2000  # characters in which a page says that it is XHTML
_OPEN_OR_CLOSE = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9:-]{0,60})(?=[\s/>])([^<>]*+)")
# A tag as defined by the HTML standard: names, and quoted values that may contain anything.
_ATTRIBUTE = r"(?<![\s/])[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s>\"'][^\s>]*+|(?=>)))?+"
_TAG = re.compile(rf"<([a-zA-Z][^\s/>]*+)((?:{_ATTRIBUTE})*+)[\s/]*+(>?)")
_ATTRIBUTE_PATTERN = re.compile(_ATTRIBUTE)


def bounded(html: str) -> str:
    """Return the page with at most a few hundred attributes per tag.

    Raises Unusable for too many tags, and for too many levels of nested elements.
    """
    if html.count("<") > MAX_MARKS:
        raise Unusable("too large", f"more than {MAX_MARKS:,} tags")
    xhtml = is_xhtml(html)
    _check_depth(html, xhtml)
    return _mended(html, xhtml)


def is_xhtml(html: str) -> bool:
    """Return whether a page is written in XML, as chapters of books are."""
    beginning = html[:_XHTML_BEGINS]
    return beginning.lstrip("\ufeff \t\r\n").startswith("<?xml") or "http://www.w3.org/1999/xhtml" in beginning


def _check_depth(html: str, xhtml: bool) -> None:
    limit = max(_MAX_DEPTH, _MAX_SIZE_TIMES_DEPTH // max(len(html), 1))
    opened: Counter[str] = Counter()
    depth, drawing = 0, False
    for match in _OPEN_OR_CLOSE.finditer(html):
        tag = match[2].lower()
        alone = match[3].endswith("/")
        # An element of a drawing can close itself (`<path/>`). An HTML element cannot, and ends the drawing.
        drawing = tag in _DRAWING if drawing else tag == "svg" and not match[1] and not alone
        if tag in _CLOSED or ((drawing or xhtml) and alone):
            continue
        if not match[1]:
            opened[tag] += 1
            depth += 1
            if depth > limit:
                raise Unusable("nested too deep", f"more than {limit} levels of nested elements")
        elif opened[tag]:
            opened[tag] -= 1
            depth -= 1


def _mended(html: str, xhtml: bool) -> str:
    """Return the page without the attributes of tags that have too many, and with an end for each element of XHTML
    that has none, as one of HTML that is not empty must have.
    """
    pieces: list[str] = []
    position = 0
    for tag, empty in _tags(html, xhtml):
        text = tag[2]
        if len(text) > 2 * _MAX_ATTRIBUTES and sum(1 for _ in _ATTRIBUTE_PATTERN.finditer(text)) > _MAX_ATTRIBUTES:
            pieces += [html[position : tag.start()], f"<{tag[1]}>"]
            position = tag.end()
        if empty:
            pieces += [html[position : tag.end()], f"</{tag[1]}>"]
            position = tag.end()
    return "".join([*pieces, html[position:]]) if pieces else html


def _tags(html: str, xhtml: bool) -> Iterator[tuple[re.Match[str], bool]]:
    """Yield the opening tags of a page, as a parser meets them: not those in comments and scripts; and whether the
    element is empty (`<title/>`), which holds in XHTML, and in HTML for those that would take the rest of the page.
    """
    at, never_closed = html.find("<"), set[str]()
    while at >= 0:
        if html.startswith("<!--", at):
            end = html.find("-->", at + 4)
            at = html.find("<", end) if end >= 0 else -1
            continue
        if tag := _TAG.match(html, at):
            if not tag[3]:
                return  # a tag that is not closed before the page ends takes everything after it
            at, name = tag.end(), tag[1].lower()
            empty = tag[0].endswith("/>") and not tag[2].endswith("/") and name not in _VOID  # no slash of an address
            if name in _RAW and not (xhtml and empty):
                close = None if name in never_closed else re.compile(f"</{name}", re.IGNORECASE).search(html, at)
                if close is None:
                    never_closed.add(name)
                else:
                    at, empty = close.start(), False
                yield tag, empty
            else:
                yield tag, empty and xhtml
        else:
            at += 1
        at = html.find("<", at)

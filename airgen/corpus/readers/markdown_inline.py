"""Remove Markdown's inline markup in linear time: `unmark("see [the **guide**](g.html)") == "see the guide"`.

A pattern looks for the end of a link after each opening bracket, which is quadratic where no end follows. Here the
places of all ends are found once, and each beginning looks up the first end after it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

__all__ = ["unmark"]

_PLAIN = re.compile(r"[^()\s]*+")
_SPACE = re.compile(r"\s++")
_STRONG = re.compile(r"(?<!\w)(?=(\*\*|__)\S)")
_STRONG_ENDS = {"**": r"(?<=\S)(?=\*\*(?!\w))", "__": r"(?<=\S)(?=__(?!\w))"}
_EMPHASIS = re.compile(r"(?<![\w*])\*(?=\S)([^*]++)(?<=\S)\*(?![\w*])")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,300}+>")


class _Places:
    """Where a mark stands in a text, for any number of questions."""

    def __init__(self, text: str, mark: str) -> None:
        self._found = [match.start() for match in re.finditer(mark, text)]

    def after(self, at: int) -> int:
        """The first place from `at` on, or -1."""
        place = bisect_left(self._found, at)
        return self._found[place] if place < len(self._found) else -1


def unmark(text: str) -> str:
    """The text without images, links, emphasis, comments and tags; the words of them stay."""
    for mark, find in (("](", _images), ("](", _links), ("][", _references)):
        if mark in text:
            text = _kept(text, find(text))
    if "**" in text or "__" in text:
        text = _kept(text, _strong(text))
    text = _EMPHASIS.sub(r"\1", text)
    return _TAG.sub("", _uncommented(text)).strip()


def _kept(text: str, found: Iterator[tuple[int, int, int, int]]) -> str:
    """The text with `text[start:end]` replaced by `text[first:last]`, for each (start, first, last, end) in order."""
    pieces, at = [], 0
    for start, first, last, end in found:
        if start >= at:
            pieces += [text[at:start], text[first:last]]
            at = end
    return "".join(pieces) + text[at:]


def _images(text: str) -> Iterator[tuple[int, int, int, int]]:
    """`![words](address)`."""
    brackets, parentheses = _Places(text, r"\]"), _Places(text, r"\)")
    for start in (match.start() for match in re.finditer(r"!\[", text)):
        last = brackets.after(start + 2)
        if last >= 0 and text.startswith("(", last + 1) and (end := parentheses.after(last + 2)) >= 0:
            yield start, start + 2, last, end + 1


def _links(text: str) -> Iterator[tuple[int, int, int, int]]:
    """`[words](address "title")`; the address may hold parentheses."""
    brackets, parentheses, quotes = _Places(text, r"\]"), _Places(text, r"\)"), _Places(text, '"')
    ends: dict[int, int] = {}  # what follows the address that goes on at this place: the end of the link, or -1

    def end_of(at: int) -> int:
        passed = []
        while at not in ends:
            passed.append(at)
            stop = match.end() if (match := _PLAIN.match(text, at)) else at
            if text.startswith("(", stop) and (closed := parentheses.after(stop + 1)) >= 0:
                at = closed + 1
                continue
            if (space := _SPACE.match(text, stop)) and text.startswith('"', space.end()):
                stop = quotes.after(space.end() + 1) + 1 or len(text)
            ends[at] = stop + 1 if text.startswith(")", stop) else -1
        for place in passed:
            ends[place] = ends[at]
        return ends[at]

    for start in (match.start() for match in re.finditer(r"\[", text)):
        last = brackets.after(start + 1)
        if last > start + 1 and text.startswith("(", last + 1) and (end := end_of(last + 2)) >= 0:
            yield start, start + 1, last, end


def _references(text: str) -> Iterator[tuple[int, int, int, int]]:
    """`[words][name]`."""
    brackets = _Places(text, r"\]")
    for start in (match.start() for match in re.finditer(r"\[", text)):
        last = brackets.after(start + 1)
        if last > start + 1 and text.startswith("[", last + 1) and (end := brackets.after(last + 2)) >= 0:
            yield start, start + 1, last, end + 1


def _strong(text: str) -> Iterator[tuple[int, int, int, int]]:
    """`**words**` and `__words__`, on one line."""
    ends, breaks = {mark: _Places(text, end) for mark, end in _STRONG_ENDS.items()}, _Places(text, "\n")
    for match in _STRONG.finditer(text):
        start = match.start()
        last, line = ends[match[1]].after(start + 3), breaks.after(start + 2)
        if last >= 0 and not 0 <= line < last:
            yield start, start + 2, last, last + 2


def _uncommented(text: str) -> str:
    pieces, at = [], 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        pieces.append(text[at:start])
        at = end + 3
    return "".join(pieces) + text[at:]

"""Which passage cites which: section numbers, quoted headings, manual pages.

>>> index = Citations()
>>> index.add(0, "Guide > 2.1. Loops", "A loop repeats.", "guide")
>>> index.add(1, "Guide > 2.2. Breaks", "A break leaves a loop, see Section 2.1.", "guide")
>>> [(one.source, one.target) for one in index.resolve()]
[(1, 0)]

A citation names a heading: by its number (`see Section 14.2`, `§ 5`), by its text in quotation marks (`see “Loops”`),
or by the name of a manual page (`ls(1)`). Numbers are looked up only in the same book, the `scope` of a passage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import regex

_PATH = " > "
# The words for "section" before a number, in the languages that airgen knows.
_WORDS = (
    "section|sections|sect|sec|chapter|appendix|article|part|clause|rule|"
    "abschnitt|kapitel|anhang|artikel|teil|chapitre|annexe|partie|sección|capítulo|apéndice|artículo|parte|"
    "раздел|разделе|раздела|глава|главе|главы|приложение|приложении|статья|статье|статьи|"
    "bagian|bab|lampiran|pasal|अध्याय|अनुभाग|अनुच्छेद|অধ্যায়|অনুচ্ছেদ|القسم|الفصل|المادة|بخش|فصل|ماده|장|절|부록"
)
_NUMBER = r"(?:[A-Z]\.)?\d{1,4}(?:\.\d{1,4}){0,5}[a-z]?"
_NUMBERED = regex.compile(rf"(?i:\b(?:{_WORDS})\.?\s{{0,3}}|§\s{{0,2}})({_NUMBER})(?![\d])", regex.V1)
_CJK = regex.compile(r"第\s?(\d{1,4}(?:\.\d{1,4}){0,5})\s?[章节節条條]")
_QUOTED = regex.compile(r"[“„«「『\"]([^“”„«»「」『』\"\n]{4,100})[”“»」』\"]")
_MANUAL = regex.compile(r"(?<![\w.(])([A-Za-z_][\w.+-]{0,40}\([1-8][a-z]{0,4}\))")
_HEADING = regex.compile(
    rf"(?i:(?:{_WORDS})\.?\s+)?({_NUMBER})(?:[.:)]?(?:\s+|$)|[.:)]\s*)|第\s?(\d{{1,4}})\s?[章节節条條][:：.\s]*"
)
_MANUAL_NAME = regex.compile(r"[A-Za-z_][\w.+-]{0,40}\([1-8][a-z]{0,4}\)")
_MOST = 3  # citations taken from one passage; more are usually a list of links


@dataclass(frozen=True, slots=True)
class Citation:
    """Passage number `source` cites passage number `target`. Without a target, `reason` says why."""

    source: int
    target: int | None
    reason: str = ""


def leaf_of(title: str) -> str:
    """The last heading of a path of headings."""
    return title.rpartition(_PATH)[2]


def unnumbered(heading: str) -> str:
    """A heading without its number: `14.2. Statistics` gives `Statistics`; a number alone stays."""
    found = _HEADING.match(heading)
    return heading[found.end() :].strip() or heading if found else heading


class Citations:
    """Headings and references of passages that are added one after another; texts are not kept."""

    def __init__(self) -> None:
        # key -> (first passage below the heading, the heading's path), or None if two headings have the key.
        self._places: dict[tuple[str, str], tuple[int, str] | None] = {}
        self._references: list[tuple[int, tuple[str, str]]] = []
        self._dropped: list[int] = []

    def add(self, number: int, title: str, text: str, scope: str) -> None:
        """Add passage `number`: its path of headings, its text, and the book that its section numbers belong to."""
        path = ""
        for heading in filter(None, (part.strip() for part in title.split(_PATH))):
            path = f"{path}{_PATH}{heading}" if path else heading
            for key in _keys_of(heading, scope):
                known = self._places.setdefault(key, (number, path))
                if known is not None and known[1] != path:
                    self._places[key] = None
        found = list(dict.fromkeys(_references(text, scope)))
        self._references += [(number, key) for key in found[:_MOST]]
        self._dropped += [number] * (len(found) - _MOST)

    def resolve(self) -> Iterator[Citation]:
        """Every citation in the order of its source; a source cites each target once."""
        done: set[tuple[int, int]] = set()
        for source, key in self._references:
            if key not in self._places:
                if key[0] != "name":  # most quotations do not name a heading
                    yield Citation(source, None, "no passage has the cited number")
                continue
            place = self._places[key]
            if place is None:
                yield Citation(source, None, "several headings have the cited name")
            elif place[0] == source:
                yield Citation(source, None, "cites itself")
            elif (source, place[0]) not in done:
                done.add((source, place[0]))
                yield Citation(source, place[0])
        for source in self._dropped:
            yield Citation(source, None, f"more than {_MOST} citations in a passage")


def _keys_of(heading: str, scope: str) -> Iterator[tuple[str, str]]:
    if _MANUAL_NAME.fullmatch(heading):
        yield "page", heading.casefold()
        return
    found = _HEADING.match(heading)
    if found:
        yield f"number\x1f{scope}", (found[1] or found[2]).casefold()
    name = unnumbered(heading).casefold()
    if len(name) >= 4:
        yield "name", name


def _references(text: str, scope: str) -> Iterator[tuple[str, str]]:
    found = [(match.start(), ("page", match[1].casefold())) for match in _MANUAL.finditer(text)]
    for pattern in (_NUMBERED, _CJK):
        found += [(match.start(), (f"number\x1f{scope}", match[1].casefold())) for match in pattern.finditer(text)]
    for match in _QUOTED.finditer(text):
        found.append((match.start(), ("name", unnumbered(match[1].strip(" ,.")).casefold())))
    yield from (key for _, key in sorted(found))

"""Navigation and boilerplate: menus, lists of links, index pages, tables of numbers, cookie notices, repetition.

The rules look at shares of lines and characters, like those of Gopher (Rae et al. 2021, A.1.1) and C4 (Raffel et al.
2020, 2.2), with limits that also fit scripts without case and without spaces.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from airgen.corpus.cleaning.cleaner import KEEP, CleanResult, Item

_SENTENCE_END = re.compile(r"[.!?:;。！？：；؟۔।॥…»”\"')\]}]\s*$")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S")
_PAGE = re.compile(r"\.(?:html?|php|aspx)\b")
_LINK_SIGNS = ("http", "www.", ".htm", ".php", ".aspx")
_PHRASES = (
    "cookie policy", "cookies policy", "cookie settings", "cookie notice", "use cookies", "uses cookies",
    "accept cookies", "accept all cookies", "enable javascript", "javascript is disabled", "javascript is required",
    "all rights reserved", "terms of use", "terms of service", "privacy policy", "skip to content",
    "skip to main content", "sign in", "sign up", "log in", "login", "subscribe", "newsletter", "lorem ipsum",
    "click here", "read more", "previous page", "next page", "back to top", "table of contents", "share on",
    "share this",
)  # fmt: skip
_NO_LETTERS = bytes(code for code in range(256) if not chr(code).isalpha() or code > 127)


def _letters(text: str) -> int:
    """How many characters are letters."""
    if text.isascii():
        return len(text.encode().translate(None, _NO_LETTERS))
    return sum(map(str.isalpha, text))


def _link_size(word: str) -> int:
    """How many characters of a word belong to a link: an address, or a page's name such as `a/b.html`."""
    if _ADDRESS.match(word):
        return len(word)
    end = 0
    for page in _PAGE.finditer(word, 1):
        end = page.end()
    address = _ADDRESS.search(word, end)
    return end + (len(word) - address.start() if address else 0)


def judge_text(text: str) -> CleanResult:
    """Whether to keep a text; the reason names the rule that it breaks."""
    size = len(text)
    if size < 1:
        return KEEP
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    words = text.split()
    if _letters(text) < 0.4 * sum(map(len, words)):
        return CleanResult(False, "few letters", "less than 40 % of the visible characters")
    if len(lines) >= 5:
        short = sum(len(line) < 40 and not _SENTENCE_END.search(line) for line in lines)
        if short >= 0.8 * len(lines):
            return CleanResult(
                False, "list of links or headings", f"{short} of {len(lines)} lines are short and end without a stop"
            )
        counts = Counter(lines)
        repeated = sum(count - 1 for count in counts.values())
        if repeated >= 0.3 * len(lines):
            return CleanResult(False, "repeated lines", f"{repeated} of {len(lines)} lines")
    if any(sign in text for sign in _LINK_SIGNS):
        links = sum(map(_link_size, words))
        if links >= 0.3 * size:
            return CleanResult(False, "mostly links", f"{links} of {size} characters")
    if size < 4000:
        low = text.lower()
        phrases = [phrase for phrase in _PHRASES if phrase in low]
        if len(phrases) >= 2 and len(phrases) * 150 >= size:
            return CleanResult(False, "page furniture", ", ".join(phrases[:4]))
    # Here one run of three words can be a quarter of the whole text.
    if len(words) >= 40 and len(set(words)) < 0.8 * len(words):
        common, count = Counter(zip(words, words[1:], words[2:], strict=False)).most_common(1)[0]
        share = count * (sum(map(len, common)) + 2) / size
        if share >= 0.25:
            return CleanResult(False, "repetition", f"{' '.join(common)[:60]!r} {count} times")
    return KEEP


class Boilerplate:
    """Drop texts that are not prose."""

    name = "boilerplate"

    def judge(self, items: Sequence[Item]) -> list[CleanResult]:
        """One result an item, in order."""
        return [judge_text(item.document.text) for item in items]

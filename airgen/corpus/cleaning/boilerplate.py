"""Navigation and boilerplate: menus, lists of links, index pages, tables of numbers, cookie notices, repetition.

Shares of lines and characters, in the manner of the Gopher rules (Rae et al. 2021, A.1.1) and C4 (Raffel et al.
2020, 2.2), with limits that hold in scripts without case and without spaces.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from airgen.corpus.cleaning.base import KEEP, Item, Verdict

__all__ = ["Boilerplate", "judge_text"]

_LETTER = re.compile(r"[^\W\d_]")
_SENTENCE_END = re.compile(r"[.!?:;。！？：；؟۔।॥…»”\"')\]}]\s*$")
_LINK = re.compile(r"https?://\S+|www\.\S+|\S+\.(?:html?|php|aspx)\b")
_PHRASES = re.compile(
    r"\b(?:cookies? (?:policy|settings|notice)|uses? cookies|accept (?:all )?cookies|enable javascript"
    r"|javascript is (?:disabled|required)"
    r"|all rights reserved|terms of (?:use|service)|privacy policy|skip to (?:main )?content"
    r"|sign (?:in|up)|log ?in|subscribe|newsletter"
    r"|lorem ipsum|click here|read more|previous page|next page|back to top|table of contents|share (?:on|this))\b",
    re.IGNORECASE,
)


def judge_text(text: str) -> Verdict:
    """One text's verdict; the reason names the rule."""
    size = len(text)
    if size < 1:
        return KEEP
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if len(_LETTER.findall(text)) < 0.4 * len("".join(text.split())):
        return Verdict(False, "few letters", "less than 40 % of the visible characters")
    if len(lines) >= 5:
        short = sum(len(line) < 40 and not _SENTENCE_END.search(line) for line in lines)
        if short >= 0.8 * len(lines):
            return Verdict(
                False, "list of links or headings", f"{short} of {len(lines)} lines are short and end without a stop"
            )
        counts = Counter(lines)
        repeated = sum(count - 1 for count in counts.values())
        if repeated >= 0.3 * len(lines):
            return Verdict(False, "repeated lines", f"{repeated} of {len(lines)} lines")
    links = sum(len(link) for link in _LINK.findall(text))
    if links >= 0.3 * size:
        return Verdict(False, "mostly links", f"{links} of {size} characters")
    if size < 4000:
        phrases = _PHRASES.findall(text)
        if len(phrases) >= 2 and len(phrases) * 150 >= size:
            return Verdict(False, "page furniture", ", ".join(sorted({phrase.lower() for phrase in phrases})[:4]))
    words = text.split()
    if len(words) >= 40:
        common, count = Counter(zip(words, words[1:], words[2:], strict=False)).most_common(1)[0]
        share = count * (sum(map(len, common)) + 2) / size
        if share >= 0.25:
            return Verdict(False, "repetition", f"{' '.join(common)[:60]!r} {count} times")
    return KEEP


class Boilerplate:
    """Drop what is no prose."""

    name = "boilerplate"

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        """Verdicts for a batch."""
        return [judge_text(item.document.text) for item in items]

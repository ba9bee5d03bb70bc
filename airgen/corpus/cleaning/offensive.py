"""Drop texts with a large share of offensive words.

The lists of words are those of the package glin-profanity (MIT), for 11 of AIR-Bench's 13 languages: not for Indonesian
and Bengali. A share decides, not a single word: texts on medicine and on dog breeding use `sex` and `bitch`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from airgen.corpus.cleaning.cleaner import KEEP, CleanResult, Item
from airgen.corpus.needs import package_folder
from airgen.languages import SPACELESS, SUPPORTED, language_name
from airgen.text.words import count_words

_LEAST = 2  # a single word can be a quotation, a name, or a mistake of the list


def _path(language: str) -> Path | None:
    folder = package_folder("glin_profanity") / "data" / "dictionaries"
    path = folder / f"{language_name(language).lower()}.json"
    return path if path.is_file() else None


def has_list(language: str) -> bool:
    """Whether there is a list for the language. Raises MissingExtra without the package."""
    return language in SUPPORTED and _path(language) is not None


@cache
def word_list(language: str) -> frozenset[str]:
    """The offensive words of a language in lower case; empty for a language without a list."""
    path = _path(language)
    if path is None:
        return frozenset()
    value = json.loads(path.read_text(encoding="utf-8"))
    words = value.get("words", []) if isinstance(value, dict) else value
    return frozenset(word.lower().strip() for word in words if isinstance(word, str) and len(word.strip()) > 1)


class Offensive:
    """Drop a text if at least `share` of its words, and at least two of them, are on the list."""

    name = "offensive"

    def __init__(self, language: str, share: float) -> None:
        self._language, self._share = language, share
        words = sorted(word_list(language), key=lambda word: (-len(word), word))
        inner = "|".join(re.escape(word) for word in words) or r"(?!)"
        self._pattern = re.compile(inner if language in SPACELESS else rf"(?<!\w)(?:{inner})(?!\w)")

    def judge(self, items: Sequence[Item]) -> list[CleanResult]:
        """One result an item, in order; the detail counts the words and does not quote them."""
        return [self._judge(item.document.text) for item in items]

    def _judge(self, text: str) -> CleanResult:
        hits = len(self._pattern.findall(text.lower()))
        if hits < _LEAST:
            return KEEP
        total = max(count_words(text, self._language), 1)
        if hits < self._share * total:
            return KEEP
        return CleanResult(False, "offensive", f"{hits} of {total} words")

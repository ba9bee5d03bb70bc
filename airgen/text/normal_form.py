"""Unicode's normal forms in linear time: `normal_form("NFC", "e\\u0301") == "é"`.

Python sorts the marks after a letter by insertion, which is quadratic: 40,000 marks take seconds, and no signal is
heard meanwhile. No script puts more than a few marks on a letter, so marks after the 30th are left out. Unicode's
Stream-Safe Text Format (UAX #15, section 13) has the same limit.
"""

from __future__ import annotations

import unicodedata
from typing import Literal

import regex

_MANY_MARKS = regex.compile(r"(?<=\p{M}{30})\p{M}++")


def limit_marks(text: str) -> str:
    """The text with at most 30 combining marks in a row."""
    return text if text.isascii() else _MANY_MARKS.sub("", text)


def normal_form(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """The text in a normal form, with at most 30 combining marks in a row."""
    return text if text.isascii() else limit_marks(unicodedata.normalize(form, limit_marks(text)))

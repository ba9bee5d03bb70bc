"""Normal forms of Unicode in linear time, and text that libraries outside Python can take.

Python sorts the combining marks after a letter by insertion, which takes quadratic time: 40,000 marks take seconds,
during which no signal is handled. No script puts more than a few marks on a letter, so marks after the 30th are
removed, as in Unicode's Stream-Safe Text Format (UAX #15, section 13).
"""

import unicodedata
from typing import Literal

import regex

_MANY_MARKS = regex.compile(r"(?<=\p{M}{30})\p{M}++")


def limit_marks(text: str) -> str:
    """Return the text with at most 30 combining marks in a row."""
    return text if text.isascii() else _MANY_MARKS.sub("", text)


def normal_form(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """Return the text in a normal form, with at most 30 combining marks in a row."""
    return text if text.isascii() else limit_marks(unicodedata.normalize(form, limit_marks(text)))


def encodable(text: str) -> str:
    """Make a text encodable for libraries outside Python by replacing each lone surrogate with a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")

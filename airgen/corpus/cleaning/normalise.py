"""Normalise text: NFC, without control characters, escape sequences and superfluous spaces.

>>> normalise("\\ufeffA\\r\\nb\\x00\\u0007  c \\n\\n\\n\\nd")
'A\\nb c\\n\\nd'

Zero-width joiners and non-joiners are kept: Persian, Hindi and Bengali are misspelt without them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from airgen.corpus.cleaning.cleaner import Item
from airgen.records import SURROGATE
from airgen.text.normal_form import limit_marks, normal_form

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Controls except \n and \t; soft hyphen, zero-width space, bidi controls, byte order mark, non-characters.
_UNWANTED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff]"
)
_CODE = re.compile(r"""^(?:>>>|\.\.\.|[$#|+]) |["'`=]""")
_BREAKS = re.compile(r"\n{3,}")


def _is_clean(text: str) -> bool:
    """Whether a text is normalised already, as most texts are; a few scans in C find out."""
    return (
        text.replace("\n", "").isprintable()  # neither controls nor odd spaces nor invisible characters
        and "  " not in text
        and " \n" not in text
        and "\n " not in text
        and "\n\n\n" not in text
        and not text[:1].isspace()
        and not text[-1:].isspace()
        and (text.isascii() or (limit_marks(text) == text and unicodedata.is_normalized("NFC", text)))
    )


def normalise(text: str) -> str:
    """The text with \\n as line break, at most one blank line in a row, and single spaces except in code."""
    if _is_clean(text):
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x0c", "\n")
    text = text.replace("\u2028", "\n").replace("\u2029", "\n\n")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    text = _UNWANTED.sub("", text)
    text = SURROGATE.sub("\ufffd", text)
    text = normal_form("NFC", text)
    # Spaces matter at the beginning of a line (code, lists) and in code; elsewhere a run of them is one space.
    rows = []
    for row in text.split("\n"):
        row = row.expandtabs(4)
        body = row.lstrip()
        indent = min(len(row) - len(body), 64)
        if not _CODE.search(body):
            body = " ".join(body.split())
        rows.append(" " * indent + body.rstrip() if body else "")
    return _BREAKS.sub("\n\n", "\n".join(rows)).strip()


def normalise_line(text: str) -> str:
    """The normalised text on one line, for titles and ids."""
    return " ".join(normalise(text).split())


class Normalise:
    """Normalise title and text."""

    name = "normalise"

    def change(self, items: Sequence[Item]) -> None:
        """Replace documents whose title or text is not normalised."""
        for item in items:
            document = item.document
            text, title = normalise(document.text), normalise_line(document.title)
            if text is not document.text or title != document.title:
                item.document = replace(document, text=text, title=title)

"""Token boundaries: Lucene's StandardTokenizer in two implementations with equal results.

`tokens("Don't 人々", False)` uses a regular expression, which suits queries. `classes` contains the same rules as a
table from code points to word-break classes, for the compiled scan of a whole corpus (`_scan`).

With bigrams (Lucene's CJKBigramFilter), each run of Han, kana and Hangul is split into overlapping pairs: 東京都
becomes 東京 and 京都. A single character remains a token.
"""

from functools import cache
from itertools import pairwise

import numpy as np
import regex
from numpy.typing import NDArray

from airgen.text.words import WORD

MAX_TOKEN = 255
"""A longer token is cut into pieces of this many characters, as in Lucene."""

# The scan compares ranges, so the order matters: first classes that can begin a word, then those that can occur inside.
_NAMES = (
    *("other", "letter", "digit", "katakana", "joiner", "mid_letter", "mid_both", "mid_digit", "mark", "zwj", "single"),
    *("south_east_asian", "pictograph", "flag", "cjk"),
)
CLASSES = {name: number for number, name in enumerate(_NAMES)}

# The first matching property wins. ZWJ is a mark as well, but only it can join two emoji.
_PROPERTIES: tuple[tuple[str, str], ...] = (
    ("zwj", r"\p{WB=ZWJ}"),
    ("mark", r"[\p{WB=Extend}\p{WB=Format}]"),
    ("letter", r"[\p{WB=ALetter}\p{WB=Hebrew_Letter}]"),
    ("digit", r"\p{WB=Numeric}"),
    ("katakana", r"\p{WB=Katakana}"),
    ("joiner", r"\p{WB=ExtendNumLet}"),
    ("mid_letter", r"\p{WB=MidLetter}"),
    ("mid_both", r"[\p{WB=MidNumLet}\p{WB=Single_Quote}]"),
    ("mid_digit", r"\p{WB=MidNum}"),
    ("single", r"[\p{Script=Han}\p{Script=Hiragana}]"),
    ("south_east_asian", r"\p{LB=SA}"),
    ("flag", r"\p{WB=Regional_Indicator}"),
    ("pictograph", r"[\p{Emoji_Presentation}\p{Extended_Pictographic}]"),  # so a lone ® is a token too
)
_CJK = r"(?!\p{WB=Extend})[\p{Script=Han}\p{Script=Hiragana}\p{WB=Katakana}\p{Script=Hangul}]"

_MARKS = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+"
_FLAG = r"\p{WB=Regional_Indicator}"
_NO_LETTER = "".join(f"(?!{pattern})" for name, pattern in _PROPERTIES[:12])
_PICTOGRAPH = rf"{_NO_LETTER}[\p{{Extended_Pictographic}}\p{{Emoji_Presentation}}]{_MARKS}"
_TOKEN = regex.compile(rf"{WORD.pattern}|{_PICTOGRAPH}(?:(?<=\u200D){_PICTOGRAPH})*+|(?:{_FLAG}{_MARKS}){{2}}")
_UNIT = regex.compile(rf"{_CJK}{_MARKS}")
_RUN = regex.compile(rf"(?:{_CJK}{_MARKS})++")


def tokens(text: str, bigrams: bool) -> list[str]:
    """Return the tokens of `text` in order, preserving case. With `bigrams`, runs of Chinese, Japanese and Korean are
    pairs."""
    if not bigrams:
        return _cut(_TOKEN.findall(text))
    pieces: list[str] = []
    start = 0
    for run in _RUN.finditer(text):
        pieces += _TOKEN.findall(text[start : run.start()])
        units = _UNIT.findall(run[0])
        pieces += [first + second for first, second in pairwise(units)] or units
        start = run.end()
    return _cut(pieces + _TOKEN.findall(text[start:]))


def _cut(pieces: list[str]) -> list[str]:
    if all(len(token) <= MAX_TOKEN for token in pieces):
        return pieces
    return [token[start : start + MAX_TOKEN] for token in pieces for start in range(0, len(token), MAX_TOKEN)]


@cache
def classes(limit: int, bigrams: bool) -> NDArray[np.uint8]:
    """Return the word-break class of each code point below `limit`, uint8 (limit,)."""
    table = np.zeros(limit, dtype=np.uint8)
    text = "".join(map(chr, range(limit)))
    for name, pattern in reversed(_PROPERTIES):
        for run in regex.finditer(rf"(?:{pattern})+", text):
            table[run.start() : run.end()] = CLASSES[name]
    if bigrams:
        for run in regex.finditer(rf"{_CJK}+", text):
            part = table[run.start() : run.end()]
            part[(part != CLASSES["mark"]) & (part != CLASSES["zwj"])] = CLASSES["cjk"]
    table.setflags(write=False)
    return table

"""What could tell generated passages from the others besides their words, as plain questions about one row.

`airgen verify` compares the answers for generated passages with those for the others. A large language model has its
habits: typographic quotes, Markdown, line breaks, titles with capitals.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

_FEWEST = 20  # generated passages, below which no share means anything
_DEVIATIONS, _DIFFERENCE = 5.0, 0.1
_END = re.compile(r"[.!?。！？؟।…][\"'”’»)\]]*$")
_BULLET = re.compile(r"(?m)^[^\S\n]*(?:[-*•‣◦]|\d{1,2}[.)]) ")


def _searches(pattern: str) -> Callable[[Row], bool]:
    compiled = re.compile(pattern)
    return lambda row: compiled.search(row["text"]) is not None


MARKS: dict[str, Callable[[Row], bool]] = {
    "have no title": lambda row: not row["title"],
    "have a title that ends in a sentence mark": lambda row: _END.search(row["title"]) is not None,
    "have a title with capitals": lambda row: row["title"].istitle() and " " in row["title"],
    "begin with their title": lambda row: bool(row["title"]) and row["text"].startswith(row["title"]),
    "have line breaks": _searches(r"\n"),
    "have blank lines": _searches(r"\n\n"),
    "have double spaces": _searches("  "),
    "have spaces at an end": lambda row: row["text"] != row["text"].strip(),
    "have typographic double quotes": _searches("[“”„]"),
    "have plain double quotes": _searches('"'),
    "have typographic apostrophes": _searches("[‘’]"),
    "have plain apostrophes": _searches("'"),
    "have long dashes": _searches("[—–]"),
    "have an ellipsis as one character": _searches("…"),
    "have Markdown": _searches(r"\*\*|__|(?m:^#+ )|`"),
    "have bullets or numbers at the beginning of a line": lambda row: _BULLET.search(row["text"]) is not None,
    "have odd spaces or invisible characters": lambda row: not row["text"].replace("\n", "").isprintable(),
    "end without a sentence mark": lambda row: _END.search(row["text"]) is None,
    "begin with a small letter": lambda row: row["text"][:1].islower(),
    "have a length that 10 divides": lambda row: len(row["text"]) % 10 == 0,
    "have an id with other characters": lambda row: re.fullmatch("[a-z][0-9a-f]+", row["_id"]) is None,
    "have other fields": lambda row: list(row) != ["_id", "title", "text"],
}


@dataclass(frozen=True, slots=True)
class TellingMark:
    """A question whose answer tells generated passages from others: how many of each say yes."""

    name: str
    generated: int
    of_generated: int
    others: int
    of_others: int

    def __str__(self) -> str:
        return (
            f"generated passages can be told apart: {self.generated:,} of {self.of_generated:,} {self.name}, "
            f"{self.others:,} of {self.of_others:,} other passages do"
        )


def marks_of_generated(rows: Iterable[Row], generated: Collection[str]) -> Iterator[TellingMark]:
    """The marks that are more than chance: five standard errors and a tenth of the passages."""
    yes: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    total: Counter[bool] = Counter()
    for row in rows:
        is_generated = row["_id"] in generated
        total[is_generated] += 1
        yes[is_generated].update(name for name, has in MARKS.items() if has(row))
    n, m = total[True], total[False]
    if n < _FEWEST or m < _FEWEST:
        return
    for name in MARKS:
        a, b = yes[True][name], yes[False][name]
        share = (a + b) / (n + m)
        error = math.sqrt(share * (1 - share) * (1 / n + 1 / m))
        if abs(a / n - b / m) > max(_DEVIATIONS * error, _DIFFERENCE):
            yield TellingMark(name, a, n, b, m)

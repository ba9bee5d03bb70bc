"""Count tokens by the corpus's tokenizer, and drop texts that are too short or too long (paper, A.1)."""

from __future__ import annotations

from collections.abc import Sequence

from airgen.corpus.cleaning.cleaner import KEEP, CleanResult, Item
from airgen.text.tokens import Tokenizer


class CountTokens:
    """Set each item's number of tokens."""

    name = "tokens"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._count = tokenizer.count

    def change(self, items: Sequence[Item]) -> None:
        """Set `tokens` of each item."""
        for item, size in zip(items, self._count([item.document.text for item in items]), strict=True):
            item.tokens = size


class Length:
    """Drop texts outside the limits, both inclusive."""

    name = "length"

    def __init__(self, least: int, most: int | None) -> None:
        self._least, self._most = least, most

    def judge(self, items: Sequence[Item]) -> list[CleanResult]:
        """One result an item, in order."""
        return [self._judge(item) for item in items]

    def _judge(self, item: Item) -> CleanResult:
        if not item.document.text:
            return CleanResult(False, "empty")
        if item.tokens < self._least:
            return CleanResult(False, "too short", f"{item.tokens} tokens < {self._least}")
        if self._most is not None and item.tokens > self._most:
            return CleanResult(False, "too long", f"{item.tokens} tokens > {self._most}")
        return KEEP

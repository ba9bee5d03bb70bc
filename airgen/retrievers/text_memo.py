"""Encoded texts, kept in memory between calls: a re-ranker gets the same passages for many queries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from airgen.keys import text_key
from airgen.retrievers.base import TextKind

__all__ = ["Memo"]

T = TypeVar("T")


class Memo(Generic[T]):
    """The encodings of the latest texts, up to about `limit` bytes; a dropped text is encoded again.

    The embedder must encode each text by itself, so that an encoding does not depend on the texts beside it.
    """

    def __init__(self, encode: Callable[[Sequence[str], TextKind], Sequence[T]], size: Callable[[T], int], limit: int):
        self._encode, self._size, self._limit = encode, size, limit
        self._kept: OrderedDict[tuple[str, str], T] = OrderedDict()
        self._bytes = 0

    def __call__(self, texts: Sequence[str], kind: TextKind) -> list[T]:
        """One encoding for each text; a text that comes twice is encoded once."""
        keys = [(kind, text_key(text)) for text in texts]
        found = {key: self._kept[key] for key in keys if key in self._kept}
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if new:
            for key, value in zip(new, self._encode(list(new.values()), kind), strict=True):
                found[key] = value
                self._kept[key] = value
                self._bytes += self._size(value)
        for key in found:
            self._kept.move_to_end(key)
        while self._bytes > self._limit and self._kept:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= self._size(dropped)
        return [found[key] for key in keys]

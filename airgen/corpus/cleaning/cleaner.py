"""The protocols of cleaning steps: a cleaner keeps or drops documents, a changer rewrites them.

    class TooShort:
        name = "length"
        def judge(self, items):
            return [KEEP if item.tokens >= 20 else CleanResult(False, "too short") for item in items]

Steps work on batches, because the fast ones are vectorised. The result for a document depends only on it and on earlier
documents, never on the size of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from airgen.records import Document

__all__ = ["KEEP", "Changer", "CleanResult", "Cleaner", "Item", "Step"]


class CleanResult(NamedTuple):
    """Whether to keep a document; `reason` is a short category for the funnel, `detail` is about this document."""

    keep: bool
    reason: str = ""
    detail: str = ""


KEEP = CleanResult(True)


@dataclass(slots=True)
class Item:
    """A document during cleaning, or a chunk of the document `parent`, where it starts at `start`.

    `tokens` is its length once a step has counted it.
    """

    document: Document
    tokens: int = 0
    parent: str = ""
    start: int = 0


class Cleaner(Protocol):
    """Keeps or drops documents and never changes them."""

    name: str

    def judge(self, items: Sequence[Item]) -> list[CleanResult]:
        """One result an item, in order."""
        ...


class Changer(Protocol):
    """Changes documents and never drops them."""

    name: str

    def change(self, items: Sequence[Item]) -> None:
        """Set `item.document` or `item.tokens`, in place."""
        ...


Step = Cleaner | Changer

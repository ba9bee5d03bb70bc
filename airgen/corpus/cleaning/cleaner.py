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
from typing import Any, NamedTuple, Protocol, runtime_checkable

from airgen.records import Document


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


@runtime_checkable
class CorpusWide(Cleaner, Protocol):
    """A cleaner whose result depends on earlier documents, too: `judge(items)` is `compare(ids, look(items))`."""

    def look(self, items: Sequence[Item]) -> list[Any]:
        """What it has to know of each item; it needs no other item, and may be done anywhere."""
        ...

    def compare(self, ids: Sequence[str], seen: Sequence[Any]) -> list[CleanResult]:
        """One result for each document, of which `look` saw this, in the order of the corpus."""
        ...


class Changer(Protocol):
    """Changes documents and never drops them."""

    name: str

    def change(self, items: Sequence[Item]) -> None:
        """Set `item.document` or `item.tokens`, in place."""
        ...


Step = Cleaner | Changer

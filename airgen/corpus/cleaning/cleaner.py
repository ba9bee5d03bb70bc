"""One small class per step, `(keep, reason)`: what every cleaner is.

    class TooShort:
        name = "length"
        def judge(self, items): return [KEEP if item.tokens >= 20 else CleanResult(False, "too short") for item in items]

Steps work on batches, because the fast ones are vectorised; what they say of one document depends on that
document and on earlier ones only, never on how the batches fall. A step that holds files has `close()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from airgen.records import Document

__all__ = ["KEEP", "Changer", "CleanResult", "Cleaner", "Item", "Step"]


class CleanResult(NamedTuple):
    """Keep or not; `reason` is a short category for the funnel, `detail` what is special to this document."""

    keep: bool
    reason: str = ""
    detail: str = ""


KEEP = CleanResult(True)


@dataclass(slots=True)
class Item:
    """A document on its way through the steps, with its length in tokens once that is known."""

    document: Document
    tokens: int = 0


class Cleaner(Protocol):
    """Judges documents and never changes them."""

    name: str

    def judge(self, items: Sequence[Item]) -> list[CleanResult]:
        """One verdict an item, in order."""
        ...


class Changer(Protocol):
    """Changes documents and never drops them."""

    name: str

    def change(self, items: Sequence[Item]) -> None:
        """Set `item.document` or `item.tokens`, in place."""
        ...


Step = Cleaner | Changer

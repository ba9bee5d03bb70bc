"""What stands around a long document's text: front matter, contents, references, index. Found and cut away."""

from __future__ import annotations

from collections.abc import Sequence

from airgen.records import Document

__all__ = ["remove_apparatus"]


def remove_apparatus(
    text: str, starts: list[tuple[int, Document]], kinds: Sequence[str], language: str
) -> tuple[str, list[tuple[int, Document]], list[tuple[str, str]]]:
    """The text without the parts of these kinds, the documents' new starts, and what was removed as (kind, text)."""
    return text, starts, []

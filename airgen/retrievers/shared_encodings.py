"""Encodings that the steps of one run share: recall, voters and evaluation often have the same model and texts.

    with shared_encodings(folder):      # encodings of passages go to disk, into `folder`
        ...

An encoding is the same with and without it, because only models that encode each text by itself take part. Times that
are measured while encodings are reused say nothing: `reused` tells whether there were such.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT = 1 << 27  # bytes in memory


@dataclass
class SharedEncodings:
    """What one run has encoded so far. The first encodings are kept, up to LIMIT bytes."""

    folder: Path
    reused: int = 0
    _kept: dict[tuple[str, ...], Any] = field(default_factory=dict)
    _bytes: int = 0

    def find(self, key: tuple[str, ...]) -> Any:
        """The encoding of this key (model, kind of text, text), or None."""
        found = self._kept.get(key)
        self.reused += found is not None
        return found

    def keep(self, key: tuple[str, ...], value: Any, size: int) -> None:
        """Keep an encoding of `size` bytes, where there is room."""
        if key not in self._kept and self._bytes + size <= LIMIT:
            self._kept[key] = value
            self._bytes += size


_CURRENT: ContextVar[SharedEncodings | None] = ContextVar("shared encodings", default=None)


@contextmanager
def shared_encodings(folder: Path) -> Iterator[None]:
    """Share encodings among all that is done inside it, by this thread and by those that get a copy of its context."""
    token = _CURRENT.set(SharedEncodings(folder))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def shared() -> SharedEncodings | None:
    """What is shared here, or None."""
    return _CURRENT.get()


def reused() -> int:
    """How many encodings were not computed because another step had done it."""
    current = _CURRENT.get()
    return current.reused if current else 0

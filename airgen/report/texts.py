"""Texts of many documents by id, in a temporary file: a report needs a few of a large corpus at a time."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

LONGEST = 4000
"""Characters of a document in a report; the rest is counted."""


class TextFile:
    """Documents that were put in, by id; as a context manager the file is deleted at the end."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="airgen-report-")  # noqa: SIM115
        self._places: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> TextFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Put in rows of id, title and text."""
        self._file.seek(0, 2)
        for id_, title, text in rows:
            raw = json.dumps([title[:LONGEST], text[:LONGEST], max(0, len(text) - LONGEST)]).encode("ascii")
            self._places[id_] = (self._file.tell(), len(raw))
            self._file.write(raw)

    def shown(self, lengths: Mapping[str, int]) -> dict[str, dict[str, Any]]:
        """{id: title, text and, where it is cut, how many characters are missing}; unknown ids are left out.

        `lengths` says for each id how many characters are wanted.
        """
        found = {}
        for id_, longest in lengths.items():
            if id_ in self._places:
                start, length = self._places[id_]
                self._file.seek(start)
                title, text, more = json.loads(self._file.read(length))
                more += max(0, len(text) - longest)
                found[id_] = {"title": title, "text": text[:longest], **({"more": more} if more else {})}
        return found

"""Texts by key in a file, for dumps whose rows refer to earlier ones: a comment to its post, a paper to another.

with TextStore() as posts:
    posts.put("7nas1f", "Which tyres for gravel?")
    posts.get("7nas1f")

SQLite looks one row up in microseconds, where DuckDB, which reads columns, needs a hundred times that.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from types import TracebackType

from airgen.errors import CorpusError
from airgen.keys import text_key

_CACHE = 64 << 10  # KiB of pages in memory


class TextStore:
    """A temporary file of texts; a context manager. Raises CorpusError if the disk refuses."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="airgen-dump-")
        self._rows = sqlite3.connect(Path(self._folder.name) / "texts.sqlite", isolation_level=None)
        for setting in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{_CACHE}"):
            self._rows.execute(f"PRAGMA {setting}")
        self._rows.execute("CREATE TABLE held (key INTEGER PRIMARY KEY, text BLOB)")
        self._rows.execute("BEGIN")

    def __enter__(self) -> TextStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.close()
        self._folder.cleanup()

    def put(self, key: str, text: str) -> None:
        """Store a text; a second one of the same key replaces the first."""
        value = text.encode("utf-8", "surrogatepass")
        try:
            self._rows.execute("INSERT OR REPLACE INTO held VALUES (?, ?)", (_number(key), value))
        except sqlite3.Error as error:
            message = f"{self._folder.name}: cannot be written ({error}): free disk space, or set TMPDIR"
            raise CorpusError(message) from error

    def get(self, key: str) -> str | None:
        """The text of a key, or None."""
        found = self._rows.execute("SELECT text FROM held WHERE key = ?", (_number(key),)).fetchone()
        return None if found is None else bytes(found[0]).decode("utf-8", "surrogatepass")


def _number(key: str) -> int:
    """A key as a number. Ids of base 36 keep their order, so that rows of a dump are stored one after another."""
    if key.isascii() and key.isalnum() and key == key.lower() and len(key) <= 12 and not key.startswith("0"):
        return int(key, 36)
    return -int(text_key(key)[:15], 16) - 1

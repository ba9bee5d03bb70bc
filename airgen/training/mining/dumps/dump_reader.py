"""The protocol of readers of dumps, and what all of them use.

    reader = resolve("dump", "reddit")([Path("RS_2019-01.zst"), Path("RC_2019-01.zst")], DumpSettings())
    for row in reader.read():       # a SourcePassage, a MinedPair, LinkedPassages, or a RefusedRow with its reason
        ...

A reader streams: memory holds one row, and what it must join waits in a file (`TextStore`). A line or record that is
damaged is a `RefusedRow`. It raises CorpusError for a file that cannot be opened or unpacked.
"""

from __future__ import annotations

import html
import json
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from airgen.corpus.cleaning.filters import normalise, normalise_line
from airgen.corpus.readers.files import lines
from airgen.errors import CorpusError
from airgen.keys import text_key
from airgen.text.words import count_words
from airgen.training.mining.pairs import LinkedPassages, MinedPair, RefusedRow, SourcePassage

LONGEST_LINE = 16 << 20  # bytes of one row
_PASSAGE_WORDS = 100  # of a passage that is cut from a page, as the Wikipedia passages of DPR


@dataclass(frozen=True, slots=True)
class DumpSettings:
    """What readers of dumps keep.

    language: ISO 639-1 code of the texts. min_score: of a comment or an answer (E5: 1). question: whether a post or
    question is its title and text, or its title. max_perplexity: of a web page, where the dump says it (cc_net).
    """

    language: str = "en"
    min_score: int = 1
    question: str = "full"
    max_perplexity: float | None = None


DumpRow = SourcePassage | MinedPair | LinkedPassages | RefusedRow


class DumpReader:
    """A reader of the files of one source."""

    def __init__(self, files: Sequence[Path], settings: DumpSettings) -> None:
        self.files, self.settings = files, settings

    def read(self) -> Iterator[DumpRow]:
        """The rows, streamed in a fixed order. Raises CorpusError."""
        raise NotImplementedError


def json_rows(path: Path) -> Iterator[dict[str, Any] | RefusedRow]:
    """The objects of a JSONL file; a RefusedRow for a line that is none. Blank lines are skipped."""
    for number, line in lines(path, LONGEST_LINE):
        if line is None:
            yield RefusedRow("line", f"longer than {LONGEST_LINE >> 20} MB")
            continue
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            yield RefusedRow("line", "not JSON")
            continue
        yield row if isinstance(row, dict) else RefusedRow("line", "not a JSON object")


def first_text(row: dict[str, Any], *names: str) -> str:
    """The first of these columns that holds a text, or ""."""
    return next((value for name in names if isinstance(value := row.get(name), str) and value.strip()), "")


def plain(text: str) -> str:
    """A text without character references, control characters and superfluous spaces."""
    return normalise(html.unescape(text) if "&" in text else text)


def plain_line(text: str) -> str:
    """The same on one line."""
    return normalise_line(html.unescape(text) if "&" in text else text)


def heading(text: str) -> str:
    """One heading as a part of a path of headings, which ` > ` divides."""
    return plain_line(text).replace(" > ", " – ")


def passage_id(origin: str, text: str) -> str:
    """The id of a passage: where it is from and a hash of its text, so that two texts never share one."""
    known = "".join(char for char in origin[:80] if char.isprintable() and not char.isspace())
    return f"{known}.{text_key(text)[:16]}"


def passages_of(text: str, language: str, words: int = _PASSAGE_WORDS) -> Iterator[str]:
    """Cut a text into passages: runs of whole paragraphs, each ended by the one with which it has `words` words."""
    held: list[str] = []
    count = 0
    for paragraph in filter(None, (line.strip() for line in text.split("\n"))):
        held.append(paragraph)
        count += count_words(paragraph, language)
        if count >= words:
            yield "\n".join(held)
            held, count = [], 0
    if held:
        yield "\n".join(held)


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

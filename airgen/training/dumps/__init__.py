"""Readers for dumps of the sources of E5's CCPairs (section 3): `airgen train pairs reddit:RS_2019-01.zst ...`.

A reader is a class in its own module and a line in `airgen.components.registry.REGISTRY["dump"]`:

    reader = resolve("dump", "reddit")([Path("RS_2019-01.zst"), Path("RC_2019-01.zst")], DumpSettings())
    for row in reader.read():       # a SourcePassage, a MinedPair, LinkedPassages, or a RefusedRow with its reason
        ...

Files may be compressed with gzip, bzip2 or zstd. A reader streams: it holds one row in memory, and data to join in a
file (`TextTable`). A damaged line becomes a `RefusedRow`. A reader raises CorpusError if a file cannot be opened or
decompressed.
"""

import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.components.keys import text_key
from airgen.corpus.cleaning.filters import normalise, normalise_line
from airgen.tables.json_files import lines
from airgen.text.words import count_words
from airgen.training.mining.pairs import LinkedPassages, MinedPair, RefusedRow, SourcePassage

LONGEST_LINE = 16 << 20  # maximum bytes per row
_PASSAGE_WORDS = 100  # words of a passage that is cut from a page, as in DPR's Wikipedia passages


@dataclass(frozen=True, slots=True)
class DumpSettings:
    """Settings of the readers of dumps.

    Attributes:
        language: ISO 639-1 code of the texts.
        min_score: Minimum score of a comment or an answer (E5: 1).
        question: Whether the query of a post is its title and text, or only its title.
        max_perplexity: Maximum perplexity of a web page, if the dump contains it (cc_net).
    """

    language: str = "en"
    min_score: int = 1
    question: str = "full"
    max_perplexity: float | None = None


DumpRow = SourcePassage | MinedPair | LinkedPassages | RefusedRow


class DumpReader:
    """Base class of readers for the files of one source."""

    def __init__(self, files: Sequence[Path], settings: DumpSettings) -> None:
        self.files, self.settings = files, settings

    def read(self) -> Iterator[DumpRow]:
        """Stream the rows in a fixed order, file by file. Raises CorpusError."""
        for path in self.files:
            for row in json_rows(path):
                yield from [row] if isinstance(row, RefusedRow) else self.of_row(row)

    def of_row(self, row: dict[str, Any]) -> Iterator[DumpRow]:
        """Yield the rows from one line of a JSONL file."""
        raise NotImplementedError


def json_rows(path: Path) -> Iterator[dict[str, Any] | RefusedRow]:
    """Yield the objects in a JSONL file, or a RefusedRow for any other line. Blank lines are skipped."""
    for row in json_values(path):
        yield row if isinstance(row, dict | RefusedRow) else RefusedRow("line", "not a JSON object")


def json_values(path: Path) -> Iterator[Any]:
    """Yield the values in a JSONL file, or a RefusedRow for an invalid line. Blank lines are skipped."""
    for _, line in lines(path, LONGEST_LINE):
        if line is None:
            yield RefusedRow("line", f"longer than {LONGEST_LINE >> 20} MB")
            continue
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = RefusedRow("line", "not JSON")
        yield value


def first_text(row: dict[str, Any], *names: str) -> str:
    """Return the first of these columns that contains a text, or ""."""
    return next((value for name in names if isinstance(value := row.get(name), str) and value.strip()), "")


def plain(text: str) -> str:
    """Return a text without character references, control characters and superfluous spaces."""
    return normalise(html.unescape(text) if "&" in text else text)


def plain_line(text: str) -> str:
    """Return the text on one line."""
    return normalise_line(html.unescape(text) if "&" in text else text)


def heading(text: str) -> str:
    """Clean a heading for a path of headings separated by ` > `."""
    return plain_line(text).replace(" > ", " – ")


def passage_id(origin: str, text: str) -> str:
    """Return the id of a passage: its origin and a hash of its text, so that different texts have different ids."""
    known = "".join(char for char in origin[:80] if char.isprintable() and not char.isspace())
    return f"{known}.{text_key(text)[:16]}"


def passages_of(text: str, language: str, words: int = _PASSAGE_WORDS) -> Iterator[str]:
    """Split a text into passages: runs of whole paragraphs with at least `words` words each."""
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

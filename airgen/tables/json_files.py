"""Read files of JSON and JSON Lines as values.

value, damaged = json_value(Path("pages.json"), "en")
rows_over_lines(Path("pages.jsonl"), "en", limit)       # the rows of a file that is no JSON Lines, for all its name
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airgen.errors import CorpusError
from airgen.storage.compressed_files import opened
from airgen.tables.json_rows import as_rows, parsed
from airgen.text.character_encodings import decoded

_MAX_LINE_BYTES = 16 * 1024 * 1024  # of the lines that are looked at
_MAX_JSON_BYTES = 512 * 1024 * 1024
_MAX_VALUES = 30_000_000  # maximum values in such a file, since each is an object in memory


def lines(path: Path, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield (number from 1, line without its ending and byte order mark). A line of more than `limit` bytes is None."""
    with opened(path, CorpusError) as stream:
        for number, piece in enumerate(iter(lambda: stream.readline(limit + 1), b""), 1):
            if len(piece) > limit and not piece.endswith(b"\n"):
                while (rest := stream.readline(limit)) and not rest.endswith(b"\n"):
                    pass
                yield number, None
            else:
                piece = piece.rstrip(b"\r\n")
                yield number, piece.removeprefix(b"\xef\xbb\xbf") if number == 1 else piece


def rows_over_lines(path: Path, language: str, limit: int) -> list[Any] | None:
    """Return the rows of a file whose first line is no object, but a list, or the beginning of either.

    None for JSON Lines, and for a file that is no JSON as a whole either.
    """
    for _, line in lines(path, limit):
        if line is None or not line.strip(b"\x1e \t\r"):
            continue
        beginning = line.lstrip(b"\x1e \t\r")
        try:
            if not isinstance(json.loads(beginning.rstrip().removesuffix(b",")), list):
                return None
        except (ValueError, RecursionError):
            pass
        break
    else:
        return None
    if beginning[:1] not in (b"{", b"["):
        return None
    try:
        return as_rows(json_value(path, language)[0])
    except CorpusError:
        return None  # the lines say what is wrong


def has_json_lines(path: Path) -> bool:
    """Return whether a file has several lines, the first of which is an object. Raises CorpusError if damaged."""
    written = (line for _, line in lines(path, _MAX_LINE_BYTES) if line is None or line.strip())
    first = next(written, None)
    try:
        return first is not None and isinstance(json.loads(first), dict) and next(written, b"") != b""
    except (ValueError, RecursionError):
        return False


def json_value(
    path: Path, language: str, most: int = _MAX_JSON_BYTES, repeated: list[str] | None = None
) -> tuple[Any, bool]:
    """Return the value of a JSON file, and whether bytes of it are not in its encoding.

    `repeated` receives texts that are not read, because their name comes again in the same object.

    Raises CorpusError for a file that is not JSON, and for one of more than `most` bytes.
    """
    with opened(path, CorpusError) as stream:
        raw = stream.read(most + 1)
    if len(raw) > most:
        raise CorpusError(f"{path}: more than {most >> 20} MB of JSON; convert it to JSON Lines (kind: jsonl)")
    if sum(raw.count(mark) for mark in (b",", b"{", b"[")) > _MAX_VALUES:
        raise CorpusError(f"{path}: more than {_MAX_VALUES:,} JSON values; convert it to JSON Lines (kind: jsonl)")
    try:
        result = decoded(raw, "", language)
    except UnicodeError as error:
        raise CorpusError(f"{path}: its encoding is not known: save it in UTF-8") from error
    try:
        return parsed(result.text, repeated), result.damaged
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path}: not JSON: {error}") from error

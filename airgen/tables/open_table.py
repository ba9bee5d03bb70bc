"""Read CSV and TSV files: decode them and split them into lines for the parser in `airgen.tables`.

    with open_table(Path("faq.csv"), language="de") as table:
        table.encoding, table.dialect   # "cp1252", TableDialect(delimiter=";", header=True, width=3)
        table.names                     # ["id", "question", "answer"]
        for row in table.rows: ...      # TableRow(line=2, cells={"id": "7", ...})

A file of any size is read as a stream.
"""

import io
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from airgen.errors import CorpusError
from airgen.storage.compressed_files import opened
from airgen.tables.delimited import DelimitedTable, TableDialect, TableRow
from airgen.tables.vocabulary import folded, names
from airgen.text.character_encodings import encoding_of, is_ebcdic, with_line_feeds

MAX_LINE = 64 * 1024 * 1024  # characters
_MAX_EBCDIC_BYTES = 512 * 1024 * 1024
_MAX_PREAMBLE_LINES = 25  # maximum number of lines before a header
USUAL_NAMES = frozenset(names("id", "document id", "number", "ticket", "title", "text"))


@dataclass(frozen=True, slots=True)
class TableFile:
    """An open CSV or TSV file.

    Attributes:
        above: The lines above the header.
        damaged: Whether bytes that are not in the encoding were replaced by U+FFFD.
    """

    names: list[str]
    rows: Iterator[TableRow]
    dialect: TableDialect
    encoding: str = "utf-8"
    damaged: bool = False
    above: tuple[str, ...] = ()


@contextmanager
def open_table(
    path: Path,
    *,
    language: str = "",
    encoding: str = "",
    delimiter: str | None = None,
    header: bool | None = True,
    known: Collection[str] = (),
    limit: int = MAX_LINE,
) -> Iterator[TableFile]:
    """Open a CSV or TSV file, compressed or not.

    Args:
        path: The file.
        language: Language of the texts, which helps to recognise a legacy encoding.
        encoding: The encoding. "" detects it from the bytes.
        delimiter: The delimiter. None detects it from the rows; "" means a table with one column.
        header: Whether the first row names the columns. None detects this from its contents.
        known: Expected column names, besides the usual ones.
        limit: Maximum number of characters per line.

    Raises CorpusError if the file cannot be read, its encoding is unknown, or a line is longer than `limit`.
    """
    detected, damaged = encoding_of(path, encoding, language)
    above: list[str] = []
    with opened(path, CorpusError) as raw:
        if is_ebcdic(detected):
            raw = io.BytesIO(with_line_feeds(raw.read(_MAX_EBCDIC_BYTES + 1), detected))
            if len(raw.getbuffer()) > _MAX_EBCDIC_BYTES:
                raise CorpusError(f"{path}: more than {_MAX_EBCDIC_BYTES >> 20} MB in {detected}; convert it to UTF-8")
        stream = io.TextIOWrapper(raw, detected, "replace" if damaged else "strict", newline="")
        try:
            table = DelimitedTable(
                _with_preamble(_bounded(stream, path, limit), above),
                delimiter=delimiter,
                header=header,
                known=USUAL_NAMES | {folded(name) for name in known},
                tabs=path.name.lower().endswith((".tsv", ".tab")),
            )
            shown = tuple(line.strip() for line in above[: table.dialect.skipped] if line.strip())
            shown = shown[1:] if shown and shown[0].lower().strip('"').startswith("sep=") else shown
            yield TableFile(table.names, iter(table), table.dialect, encoding=detected, damaged=damaged, above=shown)
        except UnicodeError as error:
            raise CorpusError(f"{path}: not all of it is encoded in {detected}; set reader.encoding") from error
        finally:
            stream.detach()


def _bounded(stream: IO[str], path: Path, limit: int) -> Iterator[str]:
    while line := stream.readline(limit + 1):
        if len(line) > limit and not line.endswith(("\n", "\r")):
            raise CorpusError(f"{path}: cannot be read: a line has more than {limit:,} characters")
        yield line


def _with_preamble(lines: Iterator[str], preamble: list[str]) -> Iterator[str]:
    for line in lines:
        if len(preamble) < _MAX_PREAMBLE_LINES:
            preamble.append(line)
        yield line

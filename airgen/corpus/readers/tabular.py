"""Parquet and CSV through DuckDB: `reader: {kind: parquet, path: data/*.parquet, fields: {text: body}}`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from airgen.corpus.readers.reader import Fields, PathReader, ReaderSettings, drop, to_document
from airgen.errors import CorpusError
from airgen.records import Document, Dropped
from airgen.settings.base import FILE

__all__ = ["CsvReader", "ParquetReader"]

_BATCH = 1024


class ParquetReader(PathReader):
    """Rows of Parquet files, in the order of files, then rows; only the columns of `fields` are read."""

    class Settings(ReaderSettings):
        """`path`: a file, glob or folder; `where`: a condition on the columns, in DuckDB's SQL."""

        path: Annotated[str, FILE]
        fields: Fields = Fields()
        where: str = ""

    suffixes: tuple[str, ...] = (".parquet",)

    def table(self) -> str:
        """DuckDB's table function for these files; `?` is the file."""
        return "read_parquet(?)"

    def read_file(self, path: Path) -> Iterator[Document | Dropped]:
        """One document for each row."""
        import duckdb

        fields = self.settings.fields
        texts = [fields.text] if isinstance(fields.text, str) else fields.text
        # DuckDB would read a file name with glob characters as a glob.
        name = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path))
        with duckdb.connect(config={"threads": 1, "preserve_insertion_order": True}) as database:
            try:
                # A corpus's YAML can come from somebody else, so its condition can read this folder only.
                quoted = str(path.parent).replace("'", "''")
                database.execute(f"SET allowed_directories = ['{quoted}']")
                database.execute("SET enable_external_access = false")
                known = {
                    row[0] for row in database.execute(f"DESCRIBE SELECT * FROM {self.table()}", [name]).fetchall()
                }
                roots = {column.split(".")[0] if column not in known else column for column in texts}
                if not roots & known:
                    raise CorpusError(
                        f"{path}: no column {', '.join(map(repr, texts))} (it has {', '.join(sorted(known))}); "
                        "set reader.fields.text"
                    )
                names = [column for column in (fields.id, fields.title) if column]
                wanted = sorted(
                    {column if column in known else column.split(".")[0] for column in names} & known | roots & known
                )
                columns = ", ".join('"' + column.replace('"', '""') + '"' for column in wanted)
                condition = f" WHERE {self.settings.where}" if self.settings.where else ""
                database.execute(f"SELECT {columns} FROM {self.table()}{condition}", [name])
                number = 0
                while rows := database.fetchmany(_BATCH):
                    for values in rows:
                        row = dict(zip(wanted, values, strict=True))
                        yield self._document(row, path.name, number)
                        number += 1
            except duckdb.Error as error:
                raise CorpusError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error

    def _document(self, row: dict[str, Any], source: str, number: int) -> Document | Dropped:
        position = f"row {number}"
        size = max((len(value) for value in row.values() if isinstance(value, str)), default=0)
        if size > self.settings.max_bytes:
            return drop(
                "too large", detail=f"more than {self.settings.max_bytes} characters", source=source, position=position
            )
        return to_document(row, self.settings.fields, self.place, source, position)


class CsvReader(ParquetReader):
    """Rows of CSV or TSV files with a header line, plain or gzip. All columns are text."""

    class Settings(ParquetReader.Settings):
        """`delimiter`: null detects it."""

        delimiter: str | None = None

    suffixes = (".csv", ".tsv", ".csv.gz", ".tsv.gz")

    def table(self) -> str:
        """DuckDB's table function; values stay text, so that the id 007 keeps its zeros."""
        delimiter = getattr(self.settings, "delimiter", None)
        part = f", delim = '{delimiter}'".replace("\\t", "\t") if delimiter and "'" not in delimiter else ""
        limit = min(self.settings.max_bytes, 64 * 1024 * 1024)
        return f"read_csv(?, header = true, all_varchar = true, max_line_size = {limit}, parallel = false{part})"

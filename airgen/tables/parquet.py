"""Read all columns of a small Parquet table, such as a data frame of queries, labels or hits.

for row in parquet_rows(Path("qrels.parquet"), DatasetError): ...   # {"query-id": "q1", "corpus-id": "d7", "score": 1}
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airgen.errors import AirgenError
from airgen.storage.sql_connections import in_memory, without_globs

_BATCH_ROWS = 2048


def parquet_rows(path: Path, error: type[AirgenError]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file in order, with texts for columns of bytes.

    Raises `error` if the file cannot be read.
    """
    import duckdb

    try:
        with in_memory(files=[path], config={"threads": 1, "memory_limit": "1GB"}) as database:
            reply = database.execute("SELECT * FROM read_parquet(?, binary_as_string = true)", [without_globs(path)])
            names = [column[0] for column in reply.description or ()]
            while rows := reply.fetchmany(_BATCH_ROWS):
                yield from (dict(zip(names, row, strict=True)) for row in rows)
    except duckdb.Error as reason:
        raise error(f"{path}: not a readable Parquet file: {' '.join(str(reason).split())[:200]}") from reason

"""Numbered migrations (`schema/NNN_*.sql`), each in one transaction with its record."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from airgen.errors import StoreError

if TYPE_CHECKING:
    import duckdb

__all__ = ["migrate", "migrations", "outdated"]


def migrations() -> list[tuple[int, str]]:
    """(number, SQL) of each migration, in order."""
    files = [file for file in (resources.files("airgen.store") / "schema").iterdir() if file.name.endswith(".sql")]
    return sorted((int(file.name.partition("_")[0]), file.read_text(encoding="utf-8")) for file in files)


def migrate(connection: duckdb.DuckDBPyConnection, where: str) -> None:
    """Update a database to the current schema. Raises StoreError where a newer airgen wrote it."""
    connection.execute("CREATE TABLE IF NOT EXISTS migration (number BIGINT PRIMARY KEY)")
    done = {number for (number,) in connection.execute("SELECT number FROM migration").fetchall()}
    known = migrations()
    if done and max(done) > known[-1][0]:
        raise StoreError(
            f"{where} was written by a newer airgen (schema {max(done)}, this one knows {known[-1][0]}): "
            "upgrade airgen, or run in another work directory"
        )
    for number, sql in known:
        if number in done:
            continue
        connection.execute("BEGIN")
        try:
            connection.execute(sql)
            connection.execute("INSERT INTO migration VALUES (?)", [number])
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def outdated(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether an older airgen wrote the database, so that it must be migrated before it can be read."""
    if not connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'migration'").fetchall():
        return False
    (last,) = connection.execute("SELECT coalesce(max(number), 0) FROM migration").fetchall()[0]
    return int(last) < migrations()[-1][0]

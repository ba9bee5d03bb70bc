"""Numbered migrations (`schema/NNN_*.sql`), each in one transaction with its record; then the views, made anew."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from airgen.errors import StoreError

if TYPE_CHECKING:
    import duckdb

__all__ = ["migrate", "migrations", "views"]


def _read(folder: str) -> list[tuple[str, str]]:
    files = [file for file in (resources.files("airgen.store") / folder).iterdir() if file.name.endswith(".sql")]
    return sorted((file.name, file.read_text(encoding="utf-8")) for file in files)


def migrations() -> list[tuple[int, str]]:
    """(number, SQL) of each migration, in order."""
    return [(int(name.split("_", 1)[0]), sql) for name, sql in _read("schema")]


def views() -> list[str]:
    """The SQL of each view file, in order of their names."""
    return [sql for _, sql in _read("views")]


def migrate(connection: duckdb.DuckDBPyConnection, where: str) -> None:
    """Bring a database to the current schema. Raises StoreError where it was made by a newer airgen."""
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
    for sql in views():
        connection.execute(sql)

"""DuckDB connections that reach no network, and no file but those that they are for.

    with in_memory(files=[path]) as base:
        base.execute("SELECT * FROM read_parquet(?)", [str(path)])

DuckDB fetches extensions from the network by itself where a file or a query asks for one, and reads any file that a
query names. Neither is needed here, and a file or a condition may come from somebody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


Config = dict[str, str | bool | int | float | list[str]]

NO_EXTENSIONS: Config = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


def in_memory(
    *, files: Sequence[Path] = (), folders: Sequence[Path] = (), config: Config | None = None
) -> duckdb.DuckDBPyConnection:
    """An empty database in memory that can read and write these files, and what is in these folders."""
    import duckdb

    return locked_to(duckdb.connect(config={**NO_EXTENSIONS, **(config or {})}), files=files, folders=folders)


def locked_to(
    connection: duckdb.DuckDBPyConnection, *, files: Sequence[Path] = (), folders: Sequence[Path] = ()
) -> duckdb.DuckDBPyConnection:
    """The connection, which can reach its own file, these files and folders, and cannot be unlocked."""
    import duckdb

    for setting, paths in (("allowed_paths", files), ("allowed_directories", folders)):
        names = {name: None for path in paths for name in (str(path), without_globs(path))}  # DuckDB compares words
        quoted = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
        connection.execute(f"SET {setting} = [{quoted}]")
    with suppress(duckdb.InvalidInputException):  # in a notebook without ipywidgets there is none to switch off
        connection.execute("SET enable_progress_bar = false")  # it writes among what a command prints
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def without_globs(path: Path) -> str:
    """The path for a table function of DuckDB, which would read one with the characters `*?[` as a glob."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path))

"""DuckDB connections that cannot access the network or other files, and SQLite for streams of rows.

    with in_memory(files=[path]) as base:
        base.execute("SELECT * FROM read_parquet(?)", [str(path)])

    connection = connect(Path("work.duckdb"))     # a file; `explain` says in one line what is wrong with it

By default, DuckDB downloads the extensions that a file or query asks for, and reads any file that a query names. airgen
needs neither, and a file or condition may be untrusted.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from airgen.errors import AirgenError, CorpusError, StoreError, disk_error

if TYPE_CHECKING:
    import duckdb


Config = dict[str, str | bool | int | float | list[str]]

_MEMORY = "512MB"
_TORN = re.compile(r"byte position (\d+)")

NO_EXTENSIONS: Config = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


def in_memory(
    *, files: Sequence[Path] = (), folders: Sequence[Path] = (), config: Config | None = None
) -> duckdb.DuckDBPyConnection:
    """Open an empty in-memory database that can access only these files and folders."""
    import duckdb

    return locked_to(duckdb.connect(config={**NO_EXTENSIONS, **(config or {})}), files=files, folders=folders)


@functools.cache
def _shared() -> duckdb.DuckDBPyConnection:
    import duckdb

    return duckdb.connect(config=dict(NO_EXTENSIONS))


def in_shared_memory() -> duckdb.DuckDBPyConnection:
    """Open a connection to the process's own in-memory database, for statements and files that airgen alone names.

    A database takes 20 ms to open, and a connection to it .1 ms, but it is not restricted to certain files. Its
    temporary tables disappear with the connection.
    """
    return _shared().cursor()


def locked_to(
    connection: duckdb.DuckDBPyConnection, *, files: Sequence[Path] = (), folders: Sequence[Path] = ()
) -> duckdb.DuckDBPyConnection:
    """Permanently restrict a connection to its own file and these files and folders."""
    import duckdb

    for setting, paths in (("allowed_paths", files), ("allowed_directories", folders)):
        names = {name: None for path in paths for name in (str(path), without_globs(path))}  # DuckDB compares words
        quoted = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
        connection.execute(f"SET {setting} = [{quoted}]")
    with suppress(duckdb.InvalidInputException):  # in a notebook without ipywidgets, there is none to switch off
        connection.execute("SET enable_progress_bar = false")  # it would mix with the command's output
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def without_globs(path: Path) -> str:
    """Escape a path for DuckDB's table functions, which would treat `*?[` as a glob."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path))


def connect(path: Path, *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """Connect to a DuckDB file and nothing else; create the folder of a new file.

    Data larger than `_MEMORY` is spilled to `path`.tmp. Raises StoreError if the folder cannot be created, and
    duckdb.Error if the file cannot be opened.
    """
    import duckdb

    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise StoreError(f"{path}: DuckDB opens only paths in UTF-8: rename the folder") from None
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, StoreError) from error
    # Without the prefix, DuckDB would give an SQLite file to an extension, which may be installed. With it, DuckDB
    # would look for its temporary files in a folder of that name.
    config: Config = {"memory_limit": _MEMORY, "temp_directory": f"{path}.tmp", **NO_EXTENSIONS}
    return locked_to(duckdb.connect(f"duckdb:{path}", read_only=read_only, config=config))


def explain(path: Path, error: duckdb.Error) -> AirgenError:
    """Return DuckDB's error as one line that says what to do.

    DuckDB has no exception class for most causes. An operating system error is recognised by its text (`os.strerror`),
    and a lock by DuckDB's message. The path is removed first, because it could contain the same words.
    """
    import duckdb

    damage = (duckdb.IOException, duckdb.InternalException, duckdb.SerializationException, duckdb.FatalException)
    words = (str(error).splitlines() or [type(error).__name__])[0]
    ours = str(error).replace(str(path), "")
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EISDIR):
        if os.strerror(code) in ours:
            return disk_error(OSError(code, os.strerror(code), str(path)), StoreError)
    if isinstance(error, duckdb.IOException) and "Could not set lock on file" in ours:
        return StoreError(f"{path} is in use by another process: wait for it; `airgen show JOB` shows its progress")
    if isinstance(error, duckdb.OutOfMemoryException):
        return StoreError(f"{path}: not enough memory or temporary disk space ({words}): free some and run it again")
    if "WAL" in ours and (torn := _TORN.search(ours)):
        log = f"{path}.wal"
        return StoreError(
            f"{log} is damaged at byte {torn[1]}, as after a power failure: keep a copy of it, run `truncate -s "
            f"{torn[1]} {log}`, and run the same command again; only data written after that byte is lost"
        )
    if "can only read version" in ours:
        return StoreError(f"{path} was written by a newer DuckDB ({words}): upgrade airgen and duckdb")
    # A wrong checksum raises a plain `duckdb.Error`.
    if type(error) is duckdb.Error or isinstance(error, damage):
        return StoreError(
            f"{path} cannot be read as a work database ({words}): it may be damaged; move it away to start over"
        )
    return StoreError(f"{path}: {words}")


def temporary(schema: str, *, cache: int = 64) -> sqlite3.Connection:
    """Open a SQLite database with these tables, for rows that are looked up one at a time while others arrive.

    The database is an unnamed temporary file, which disappears with the process. Several threads may use it, but only
    one at a time.

    Args:
        schema: SQL that creates the tables.
        cache: Size of the in-memory cache in MiB.

    Raises:
        sqlite3.Error: The disk is full. Any later use of the database may raise it as well.
    """
    base = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    base.executescript(f"PRAGMA journal_mode = off; PRAGMA cache_size = -{cache << 10}; BEGIN; {schema}")
    return base


@contextmanager
def on_disk(schema: str, purpose: str) -> Iterator[sqlite3.Connection]:
    """Open a `temporary` database and close it at the end. Raises CorpusError if the disk is full."""
    try:
        with closing(temporary(schema)) as base:
            yield base
    except sqlite3.Error as error:
        raise CorpusError(
            f"{purpose}: a temporary file cannot be written ({error}): free disk space, or set TMPDIR"
        ) from error

"""The work database: one DuckDB file, insert-only tables, group commit.

    store = Store.open(Path("runs/python-reference/work.duckdb"))
    store.put(rows)                    # one transaction
    await store.commit(rows)           # shares a transaction with whoever else commits within 10 ms
    store.pending(Sample, "character", Character, fingerprint)

Rows whose key is already there are left as they are: a key names the work, and work is done once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from airgen.errors import StoreError
from airgen.records import TABLES, Answer
from airgen.store.migrate import migrate

__all__ = ["Store"]

T = TypeVar("T")

GROUP_SECONDS = 0.010  # a row waits at most this long for company
GROUP_ROWS = 32  # and a transaction takes at most this many commits

_SURROGATES = re.compile("[\ud800-\udfff]")


class Store:
    """Rows in and out of one work database. Reads and `put` may come from any thread."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self.path = path
        self._connection = connection
        self._write = threading.Lock()
        self._queue: list[tuple[Sequence[Any], asyncio.Future[None], asyncio.AbstractEventLoop]] = []
        self._wake = threading.Condition()
        self._closing = False
        self._writer: threading.Thread | None = None

    @classmethod
    def open(cls, path: Path, *, create: bool = True, read_only: bool = False) -> Store:
        """Open or make the database and bring it to the current schema.

        Raises StoreError where it is missing (with `create=False`), locked by another process, damaged, or newer.
        """
        if not path.exists():
            if not create or read_only:
                raise StoreError(f"{path}: no work database; run `airgen run` first")
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            connection = duckdb.connect(str(path), read_only=read_only)
            if not read_only:
                migrate(connection, str(path))
        except duckdb.Error as error:
            raise explain(path, error) from error
        return cls(path, connection)

    # -- writing ---------------------------------------------------------------------------------------------

    def put(self, rows: Iterable[Any]) -> None:
        """Insert rows of any types in one transaction. Raises ValueError for two different rows with one key."""
        rows = list(rows)
        if not rows:
            return
        by_table: dict[str, dict[str, Any]] = {}
        for row in rows:
            table = by_table.setdefault(TABLES[type(row)], {})
            if table.setdefault(row.key, row) != row:
                raise ValueError(f"two different rows of {TABLES[type(row)]} have the key {row.key}")
        with self._write:
            try:
                self._connection.execute("BEGIN")
                for name, unique in by_table.items():
                    self._insert(name, list(unique.values()))
                self._connection.execute("COMMIT")
            except duckdb.Error as error:
                self._rollback()
                raise explain(self.path, error) from error

    def _insert(self, table: str, rows: list[Any]) -> None:
        names = [field.name for field in dataclasses.fields(rows[0])]
        dicts = [{name: _clean(getattr(row, name)) for name in names} for row in rows]
        self._connection.execute(
            f"INSERT INTO {table} BY NAME SELECT unnest(?, recursive := true) ON CONFLICT DO NOTHING", [dicts]
        )

    def _rollback(self) -> None:
        try:
            self._connection.execute("ROLLBACK")
        except duckdb.Error:  # the failed statement may have ended the transaction by itself
            return

    async def commit(self, rows: Sequence[Any]) -> None:
        """Insert rows together with others that come within 10 ms; returns when they are on the disk."""
        if not rows:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._wake:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_groups, name="airgen-writer", daemon=True)
                self._writer.start()
            self._queue.append((rows, future, loop))
            self._wake.notify()
        await future

    def _write_groups(self) -> None:
        while True:
            with self._wake:
                while not self._queue and not self._closing:
                    self._wake.wait()
                if not self._queue:
                    return
                if len(self._queue) < GROUP_ROWS and not self._closing:
                    self._wake.wait_for(lambda: len(self._queue) >= GROUP_ROWS or self._closing, GROUP_SECONDS)
                group, self._queue = self._queue[:GROUP_ROWS], self._queue[GROUP_ROWS:]
            failure: BaseException | None = None
            try:
                self.put(row for rows, _, _ in group for row in rows)
            except (StoreError, ValueError, KeyError) as error:
                failure = error
            by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
            for _, future, loop in group:
                by_loop.setdefault(loop, []).append(future)
            for loop, futures in by_loop.items():
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_settle, futures, failure)

    def register(self, fingerprints: dict[str, str]) -> None:
        """Say which fingerprint of each stage is current; views read only rows of current fingerprints."""
        current = dict(self.query("SELECT stage, fingerprint FROM current_plan"))
        if current == fingerprints:
            return
        with self._write:
            try:
                (run,) = self._connection.execute("SELECT coalesce(max(run), 0) + 1 FROM plan").fetchall()[0]
                self._connection.execute(
                    "INSERT INTO plan BY NAME SELECT unnest(?, recursive := true)",
                    [[{"run": run, "stage": stage, "fingerprint": fp} for stage, fp in fingerprints.items()]],
                )
            except duckdb.Error as error:
                raise explain(self.path, error) from error

    def put_members(self, fingerprint: str, rows: Sequence[Any], first: int) -> None:
        """Insert passages and drops of one state of the corpus; `first` is the place of the first of them in it."""
        self.put(rows)
        members = {row.key: first + place for place, row in reversed(list(enumerate(rows)))}
        with self._write:
            try:
                self._connection.execute(
                    "INSERT INTO membership BY NAME SELECT unnest(?, recursive := true) ON CONFLICT DO NOTHING",
                    [[{"fingerprint": fingerprint, "key": key, "ordinal": place} for key, place in members.items()]],
                )
            except duckdb.Error as error:
                raise explain(self.path, error) from error

    def finish_corpus(self, fingerprint: str, passages: int, dropped: int, digest: str) -> None:
        """Say that this state of the corpus is complete."""
        with self._write:
            self._connection.execute(
                "INSERT INTO corpus VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                [fingerprint, passages, dropped, digest],
            )

    # -- reading ---------------------------------------------------------------------------------------------

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of any SQL, as tuples."""
        try:
            return self._connection.cursor().execute(sql, list(parameters)).fetchall()
        except duckdb.Error as error:
            raise explain(self.path, error) from error

    def rows(
        self,
        kind: type[T],
        source: str = "",
        where: str = "",
        parameters: Sequence[Any] = (),
        order: str = "",
    ) -> list[T]:
        """Rows of one type, from its table or from a view with (at least) the same columns."""
        names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
        columns = ", ".join(f't."{name}"' for name in names)
        sql = f"SELECT {columns} FROM {source or TABLES[kind]} t"
        if where:
            sql += f" WHERE {where}"
        if order:
            sql += f" ORDER BY {order}"
        return [kind(*values) for values in self.query(sql, parameters)]

    def answers(self, keys: Sequence[str]) -> dict[str, Answer]:
        """The raw answers that are already on the disk, by key."""
        if not keys:
            return {}
        found = self.rows(Answer, where="key IN (SELECT unnest(?))", parameters=[list(keys)])
        return {answer.key: answer for answer in found}

    def forget(self, answers: Sequence[str]) -> None:
        """Remove failed answers that the user wants to have asked again (`--retry-failed`)."""
        with self._write:
            self._connection.execute(
                "DELETE FROM answer WHERE error <> '' AND key IN (SELECT unnest(?))", [list(answers)]
            )

    def forget_failures(self) -> None:
        """Remove the skips that came of failed calls, so that their work is pending again (`--retry-failed`)."""
        with self._write:
            self._connection.execute("DELETE FROM skip WHERE starts_with(reason, 'llm: ')")

    def close(self) -> None:
        """Write what is queued, then close the file."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        if self._writer is not None:
            self._writer.join()
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _settle(futures: list[asyncio.Future[None]], failure: BaseException | None) -> None:
    for future in futures:
        if future.done():
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)


def _clean(value: Any) -> Any:
    """DuckDB takes UTF-8 without NUL: a lone surrogate, as truncated JSON escapes give, becomes U+FFFD."""
    if isinstance(value, str):
        if value.isascii() and "\x00" not in value:
            return value
        return _SURROGATES.sub("\ufffd", value).replace("\x00", "")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value


def explain(path: Path, error: duckdb.Error) -> StoreError:
    """DuckDB's error as one line that says what to do."""
    words = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "lock" in words.lower():
        return StoreError(f"{path} is in use by another process: wait for it, or look with `airgen status`")
    if "No space left" in words or "ENOSPC" in words:
        return StoreError(f"the disk that holds {path} is full: free some space and run the same command again")
    if isinstance(error, (duckdb.IOException, duckdb.InternalException, duckdb.SerializationException)):
        return StoreError(
            f"{path} cannot be read as a work database ({words}): it may be damaged; move it away to start anew"
        )
    return StoreError(f"{path}: {words}")

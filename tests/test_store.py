from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pytest

from airgen.errors import StoreError
from airgen.records import TABLES, Answer, Character, Dropped, Passage, Row, Sample, Skip
from airgen.store import Store
from airgen.store.migrate import migrations
from airgen.store.store import explain


def answer(key: str, **values: object) -> Answer:
    return replace(Answer(key, "query", "m", "default", "text"), **values)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "work.duckdb") as opened:
        yield opened


def test_every_row_type_has_a_table_with_its_columns(store: Store) -> None:
    for kind, table in TABLES.items():
        columns = {
            name
            for (name,) in store.query(
                "SELECT column_name FROM information_schema.columns WHERE table_name = ?", [table]
            )
        }
        assert columns == set(kind.__dataclass_fields__), table


def test_rows_come_back_as_they_went_in(store: Store) -> None:
    rows = [
        Character("k1", "p", "f", 0, "Ärztin \U0001f600", ["a", "b"]),
        Character("k2", "p", "f", 1, "", []),
    ]
    store.put(rows)
    assert store.rows(Character, order="t.key") == rows


def test_a_key_is_written_once(store: Store) -> None:
    store.put([answer("k", text="first")])
    store.put([answer("k", text="second")])
    assert store.answers(["k", "missing"]) == {"k": answer("k", text="first")}


def test_two_different_rows_with_one_key_are_refused_and_nothing_is_written(store: Store) -> None:
    with pytest.raises(ValueError, match="two different rows of answer have the key k"):
        store.put([answer("other"), answer("k", text="a"), answer("k", text="b")])
    assert store.query("SELECT count(*) FROM answer") == [(0,)]
    store.put([answer("k", text="a"), answer("k", text="a")])
    assert store.query("SELECT count(*) FROM answer") == [(1,)]


def test_text_that_duckdb_cannot_hold_is_made_whole(store: Store) -> None:
    store.put([answer("k", text="a\ud800b\x00c")])
    assert store.answers(["k"])["k"].text == "a\ufffdbc"


def test_group_commit_writes_all_and_returns_when_durable(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "w.duckdb")

    async def main() -> int:
        await asyncio.gather(*(store.commit([answer(f"k{i}")]) for i in range(500)))
        return int(store.query("SELECT count(*) FROM answer")[0][0])

    assert asyncio.run(main()) == 500
    store.close()
    with Store.open(tmp_path / "w.duckdb") as again:
        assert len(again.answers([f"k{i}" for i in range(500)])) == 500


def test_a_failed_commit_reaches_its_caller(store: Store) -> None:
    async def main() -> None:
        await store.commit([answer("k", text="a"), answer("k", text="b")])

    with pytest.raises(ValueError, match="two different rows"):
        asyncio.run(main())


@pytest.mark.parametrize("error", [MemoryError("no memory"), TypeError("a defect")])
def test_any_error_of_the_writer_reaches_its_caller_and_the_writer_goes_on(
    error: Exception, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = Store._insert

    def fail_once(self: Store, table: str, rows: list[object]) -> None:
        monkeypatch.setattr(Store, "_insert", insert)
        raise error

    async def main() -> None:
        future = asyncio.ensure_future(store.commit([answer("lost")]))
        await asyncio.wait([future], timeout=30)
        assert future.done() and type(future.exception()) is type(error)
        await asyncio.wait_for(store.commit([answer("kept")]), 30)

    monkeypatch.setattr(Store, "_insert", fail_once)
    asyncio.run(main())
    assert set(store.answers(["lost", "kept"])) == {"kept"}


@pytest.mark.parametrize(
    "work",
    [
        lambda store: store.put([answer("k")]),
        lambda store: store.forget(["k"]),
        lambda store: store.forget_failures(),
        lambda store: store.finish_corpus("f", 1, 0, "d"),
        lambda store: store.save_plan({"corpus": "c"}),
    ],
)
def test_what_cannot_be_written_is_said_with_the_file(work: Callable[[Store], object], tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    Store.open(path).close()
    with Store.open(path, read_only=True) as store, pytest.raises(StoreError, match=r"w\.duckdb: .*read-only"):
        work(store)


def test_a_block_is_not_a_lock() -> None:
    assert "may be damaged" in str(explain(Path("w.duckdb"), duckdb.IOException("cannot read block 7")))
    assert "in use" in str(explain(Path("w.duckdb"), duckdb.IOException("Could not set lock on file")))


def test_a_fingerprint_decides_what_is_read(store: Store) -> None:
    store.put_members("c1", [Passage("p", "doc", 7, "text"), Dropped("d", "x", "length", "too short")], 0)
    store.put([Sample("a", "p", "s1", 1), Sample("c", "o", "s1", 0), Sample("b", "p", "s2", 0)])
    assert [row.key for row in store.made(Sample, "s1")] == ["c", "a"]  # by ordinal
    assert [row.key for row in store.made(Sample, "s1", ["p", "x"])] == ["a"]
    assert [(row.id, row.ordinal) for row in store.passages("c1")] == [("doc", 0)]  # its place in this corpus
    assert store.passage_ids("c1") == {"p": "doc"} and store.passage_ids("c2") == {}
    assert [row.cleaner for row in store.dropped("c1")] == ["length"]


def test_a_kept_plan_is_found_by_what_is_known_of_it(store: Store) -> None:
    first, second = {"query": "q1", "recall": "r1"}, {"query": "q1", "recall": "r2"}
    for plan in (first, second, second):
        store.save_plan(plan)
    assert store.find_plan({"query": "q1"}) == second  # the newest
    assert store.find_plan({"recall": "r1"}) == first
    assert store.find_plan({"query": "q2"}) == {}
    assert store.query("SELECT count(DISTINCT run) FROM plan") == [(2,)]  # an equal plan is kept once


@dataclass(frozen=True, slots=True)
class KeyTerm(Row):
    """A row type that no schema knows."""

    term: str
    weights: list[float]
    note: str | None = None


def test_a_row_type_from_outside_gets_a_table_of_its_fields(store: Store) -> None:
    for _ in range(2):
        store.ensure_table(KeyTerm)
    rows = [KeyTerm("k", "p", "f", 0, "bees", [0.5, 1.0]), KeyTerm("l", "p", "f", 1, "wax", [], "rare")]
    store.put(rows)
    assert store.made(KeyTerm, "f") == rows
    assert store.query("SELECT term FROM key_term ORDER BY key") == [("bees",), ("wax",)]

    @dataclass(frozen=True)
    class Strange(Row):
        value: complex

    with pytest.raises(StoreError, match="Strange: a field of type complex has no column type"):
        store.ensure_table(Strange)


def test_an_older_database_is_brought_up_to_date_even_for_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE migration (number BIGINT PRIMARY KEY)")
        for number, sql in migrations()[:3]:
            connection.execute(sql)
            connection.execute("INSERT INTO migration VALUES (?)", [number])
        rows = [("llm: timeout", "query"), ("malformed: no JSON", "query"), ("none asked for", "hard_negative"),
                ("copies the document", "query"), ("2 of 3 found", "mined_negative")]  # fmt: skip
        for reason, stage in rows:
            connection.execute("INSERT INTO skip VALUES (?, 'p', 'f', 0, ?, ?, '')", [reason, stage, reason])
    with Store.open(path, read_only=True) as store:
        causes = {row.reason: row.cause for row in store.rows(Skip)}
    assert [causes[reason] for reason, _ in rows] == ["llm", "malformed", "settings", "check", "control"]


def test_failures_are_forgotten_on_request_only(store: Store) -> None:
    store.put([answer("bad", error="timeout"), answer("good")])
    store.put([Skip("s", "p", "f", 0, "query", "llm: timeout", "", "llm")])
    store.put([Skip("t", "p", "f", 0, "query", "wrong length")])
    store.forget(["bad", "good"])
    store.forget_failures()
    assert set(store.answers(["bad", "good"])) == {"good"}
    assert [row.key for row in store.rows(Skip)] == ["t"]


def test_a_database_in_use_says_so(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    with Store.open(path):
        code = f"from pathlib import Path; from airgen.store import Store; Store.open(Path({str(path)!r}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "is in use by another process" in done.stderr


def test_a_damaged_database_says_so(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    path.write_bytes(b"not a database" * 500)
    with pytest.raises(StoreError, match="may be damaged; move it away"):
        Store.open(path)


def test_a_newer_database_says_so(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    Store.open(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO migration VALUES (?)", [migrations()[-1][0] + 1])
    with pytest.raises(StoreError, match="written by a newer airgen"):
        Store.open(path)


def test_a_missing_database_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="run `airgen run` first"):
        Store.open(tmp_path / "w.duckdb", read_only=True)


def test_what_was_committed_survives_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    code = f"""
import asyncio
from pathlib import Path
from airgen.records import Answer
from airgen.store import Store

store = Store.open(Path({str(path)!r}))

async def main():
    number = 0
    while True:
        await store.commit([Answer(f"k{{number}}", "s", "m", "e", "t")])
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""
    last = -1
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = int(line)
            if last == 60:
                process.send_signal(signal.SIGKILL)
    assert last >= 60
    with Store.open(path) as store:
        assert set(store.answers([f"k{i}" for i in range(last + 1)])) == {f"k{i}" for i in range(last + 1)}


def test_a_database_of_another_kind_needs_no_extension(tmp_path: Path) -> None:
    """DuckDB would download what reads SQLite."""
    import sqlite3

    path = tmp_path / "work.duckdb"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    for read_only in (False, True):
        with pytest.raises(StoreError) as caught:
            Store.open(path, read_only=read_only)
        assert "download" not in str(caught.value.__cause__).lower()

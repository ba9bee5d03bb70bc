import asyncio
import contextlib
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path

import duckdb
import pytest
from child import finish, kill_at_line

from airgen.errors import StoreError
from airgen.storage.records import TABLES, Answer, Character, Dropped, Passage, Row, Sample, Skip, table_of
from airgen.storage.sql_connections import connect, explain
from airgen.storage.store import SCHEMA, Store


def answer(key: str, **values: object) -> Answer:
    return replace(Answer(key, "query", "m", "default", "text"), **values)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "work.duckdb") as opened:
        yield opened


def test_every_row_type_has_a_table_with_its_columns(store: Store) -> None:
    for kind in TABLES:
        found = store.query(f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table_of(kind)}'")
        assert {name for (name,) in found} == set(kind.__dataclass_fields__), kind


def test_rows_come_back_as_they_went_in(store: Store) -> None:
    rows = [
        Character("k1", "p", "f", 0, "Ärztin \U0001f600", ["a", "b"]),
        Character("k2", "p", "f", 1, "", []),
    ]
    store.put(rows)
    assert store.rows(Character, order="t.key") == rows


def test_a_key_is_written_once_and_keeps_no_other_row_of_its_transaction_from_the_disk(store: Store) -> None:
    character = Character("c", "p", "f", 0, "new", [])
    store.put([answer("k", text="first")])
    store.put([character, answer("before"), answer("k", text="second"), answer("after")])
    assert store.rows(Character) == [character] and store.answers(["k", "missing"]) == {"k": answer("k", text="first")}
    assert store.query("SELECT key, text FROM answer ORDER BY key") == [
        ("after", "text"), ("before", "text"), ("k", "first"),
    ]  # fmt: skip


def test_an_answer_is_found_whenever_it_came_and_new_requests_cost_no_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(tmp_path / "w.duckdb") as store:
        store.put([answer(f"old{number}") for number in range(50)])
    with Store.open(tmp_path / "w.duckdb") as store:
        assert set(store.answers([f"old{number}" for number in range(51)])) == {f"old{number}" for number in range(50)}
        assert store.answers(["new"]) == {}
        store.put([answer("new"), Sample("s", "p", "f", 0)])
        assert store.answers(["new", "other"]) == {"new": answer("new")}
        asked = list[str]()
        monkeypatch.setattr(store, "query", lambda sql, parameters=(): asked.append(sql) or [])
        for number in range(1000):
            store.answers([f"request {number}"])
        assert len(asked) < 20  # where the marks of two keys are the same


def test_two_different_rows_with_one_key_are_refused_and_nothing_is_written(store: Store) -> None:
    with pytest.raises(ValueError, match="two different rows of answer have the key k"):
        store.put([answer("other"), answer("k", text="a"), answer("k", text="b")])
    assert store.query("SELECT count(*) FROM answer") == [(0,)]
    store.put([answer("k", text="a"), answer("k", text="a")])
    assert store.query("SELECT count(*) FROM answer") == [(1,)]


def test_text_that_duckdb_cannot_hold_is_made_whole(store: Store) -> None:
    store.put([answer("k", text="a\ud800b\x00c"), Character("k", "p", "f", 0, "x", ["a\ud800", "b\x00"])])
    assert store.answers(["k"])["k"].text == "a\ufffdbc"
    assert store.rows(Character)[0].options == ["a\ufffd", "b"]


@pytest.mark.parametrize("error", [MemoryError("no memory"), TypeError("a defect")])
def test_any_error_of_the_writer_reaches_its_caller_and_the_writer_goes_on(
    error: Exception, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = Store._execute

    def fail_once(self: Store, *_: object) -> None:
        monkeypatch.setattr(Store, "_execute", execute)
        raise error

    async def main() -> None:
        future = asyncio.ensure_future(store.commit([answer("lost")]))
        await asyncio.wait([future], timeout=600)
        assert future.done() and type(future.exception()) is type(error)
        await asyncio.wait_for(store.commit([answer("kept")]), 30)

    monkeypatch.setattr(Store, "_execute", fail_once)
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


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (duckdb.IOException("Cannot open file: Read-only file system"), "is read-only"),
        (
            duckdb.TransactionException("Failed to commit: No space left on device"),
            "free some space",
        ),
        (duckdb.IOException("Could not write all bytes: Disk quota exceeded"), "free some space"),
        (duckdb.IOException("Cannot open file: Permission denied"), "change the permissions"),
        (duckdb.IOException("Could not read from file: Is a directory"), "in the way of the file"),
        (duckdb.IOException("cannot read block 7"), "damaged"),
        (duckdb.IOException("Could not set lock on file"), "in use"),
        (
            duckdb.Error("Corrupt database file: computed checksum 1 is not the stored checksum 2 in block"),
            "damaged",
        ),
        (duckdb.OutOfMemoryException("could not allocate block of size 256KB"), "not enough memory"),
        (duckdb.IOException("a database file with version number 9, but we can only read version 8"), "newer DuckDB"),
    ],
)
def test_errors_are_told_apart(error: duckdb.Error, words: str) -> None:
    """A folder may be called anything: its name says nothing about the error."""
    path = Path("/No space left on device/Could not set lock on file/Read-only file system/w.duckdb")
    said = str(explain(path, type(error)(f"{error} ({path})"))).replace(str(path), "")
    kinds = ["is read-only", "free some space", "change the permissions", "in the way of the file", "damaged",
             "not enough memory", "newer DuckDB", "in use"]  # fmt: skip
    assert [kind for kind in kinds if kind in said] == [words]


def test_a_flipped_byte_is_damage_and_not_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    with Store.open(path) as store:
        store.put([answer(f"k{number}", text=f"text {number}" * 50) for number in range(5_000)])
    data = bytearray(path.read_bytes())
    for place in range(20_000, len(data), 4096):
        data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match="may be damaged; move it away"), Store.open(path) as store:
        store.rows(Answer)


def test_a_file_of_sqlite_stays_as_it_is_and_nothing_is_fetched(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE passage (x)")
        connection.commit()
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"not a valid DuckDB database file.*move it away") as caught:
            Store.open(path, read_only=read_only)
        assert "download" not in str(caught.value.__cause__).lower()
    assert path.read_bytes() == before


def test_a_log_whose_end_is_zeros_gets_advice_that_works(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    code = f"""
import os
from pathlib import Path
from airgen.storage.records import Answer
from airgen.storage.store import Store

store = Store.open(Path({str(path)!r}))
for number in range(20):
    store.put([Answer(f"k{{number}}", "s", "m", "e", "t")])
os._exit(9)
"""
    assert finish(code).returncode == 9
    log = tmp_path / "w.duckdb.wal"
    log.write_bytes(log.read_bytes()[:-50] + bytes(50))
    with pytest.raises(StoreError, match="keep a copy of it") as found:
        Store.open(path)
    command = re.search("`(truncate -s [0-9]+ [^`]+)`", str(found.value))
    assert command is not None
    subprocess.run(command[1].split(), check=True)
    with Store.open(path) as store:
        assert len(store.answers([f"k{number}" for number in range(20)])) == 19


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(StoreError, match="a file is in the way of the folder"):
        Store.open(tmp_path / "runs" / "job" / "w.duckdb")


def test_a_full_and_a_read_only_disk(tmp_path: Path) -> None:
    """Real ones, in a file system of 4 MB that only the child sees."""
    code = """
import subprocess, sys
from pathlib import Path
from airgen.errors import StoreError
from airgen.storage.records import Answer
from airgen.storage.store import Store

folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=True)
Store.open(folder / "w.duckdb").close()
subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
for name in ("w", "new"):
    try:
        Store.open(folder / f"{name}.duckdb")
    except StoreError as error:
        print(error)
subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
store = Store.open(folder / "full.duckdb")
try:
    for turn in range(100):
        store.put([Answer(f"{turn} {number}", "s", "m", "e", f"{turn} {number} " * 200) for number in range(500)])
except StoreError as error:
    print(error)
"""
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody make a file system of their own")
    words = [*alone, sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    assert all("is read-only" in line for line in lines[:2])
    assert "No space left on device: free some space" in lines[2]


def test_a_fingerprint_decides_what_is_read(store: Store) -> None:
    store.put([Sample("a", "p", "s1", 1), Sample("c", "o", "s1", 0), Sample("b", "p", "s2", 0)])
    assert [row.key for row in store.rows_of(Sample, "s1")] == ["c", "a"]  # by ordinal
    assert [row.key for row in store.rows_of(Sample, "s1", ["p", "x"])] == ["a"]


def test_what_has_no_row_of_the_fingerprint_is_pending(store: Store) -> None:
    store.put([Character("k1", "b", "f", 0, "a nurse", []), Character("k2", "a", "other", 0, "a cook", [])])
    assert store.pending(Character, "f", ["c", "b", "a"]) == ["c", "a"]
    assert store.pending(Character, "f", []) == []


def test_a_kept_plan_is_found_by_what_is_known_of_it(store: Store) -> None:
    first, second = {"query": "q1", "recall": "r1"}, {"query": "q1", "recall": "r2"}
    assert store.find_plan(first) == {} == store.find_plan({})
    for plan in (first, second, second):
        store.save_plan(plan)
    for known in ({}, {"query": "q1"}, second):
        assert store.find_plan(known) == second  # the newest
    assert store.find_plan({"recall": "r1"}) == first
    assert store.find_plan({"query": "q2"}) == {} == store.find_plan({**first, "more": "m"})
    assert store.query("SELECT count(DISTINCT run) FROM plan") == [(2,)]  # an equal plan is kept once


def test_a_corpus_is_finished_once_and_its_members_have_their_first_place(store: Store) -> None:
    first, second = Passage("p", "doc", 7, "text"), Passage("q", "other", 9, "text")
    store.put_members("c1", [first, second, first], 5)
    store.put_members("c2", [second, first], 0)
    store.put_members("c2", [first], 9)
    assert [(row.id, row.ordinal) for row in store.passages("c1")] == [("doc", 5), ("other", 6)]
    assert [(row.id, row.ordinal) for row in store.passages("c2")] == [("other", 0), ("doc", 1)]
    for digest in ("d1", "d2"):
        store.finish_corpus("c1", 2, 1, digest)
    assert store.query("SELECT fingerprint, passages, dropped, digest FROM corpus") == [("c1", 2, 1, "d1")]


def test_passages_are_read_by_their_place_in_any_order(store: Store) -> None:
    rows = [Passage(f"k{i}", f"doc{i}", i, f"text {i}", f"title {i}") for i in range(6)]
    store.put_members("all", rows, 0)
    store.put_members("some", [rows[4], rows[1], rows[2]], 10)
    places, ordinals = store.places("all")
    assert ordinals.tolist() == [0, 1, 2, 3, 4, 5] and len(set(places.tolist())) == 6
    some, ordinals = store.places("some")
    assert some.tolist() == places[[4, 1, 2]].tolist() and ordinals.tolist() == [10, 11, 12]
    for chosen in ([2, 3, 4], [4, 1, 2], [5], [0, 2], [1, 0], [0, 1, 3], []):
        found = store.passages_at(places[chosen], "t.id, t.text")
        assert found == [(f"doc{i}", f"text {i}") for i in chosen]
    assert list(store.passages("some")) == [replace(rows[i], ordinal=10 + n) for n, i in enumerate((4, 1, 2))]
    assert [len(part) for part in store.places("none")] == [0, 0]
    assert list(store.passages("none")) == []
    many = [Passage(f"m{i}", f"many{i}", i, "text") for i in range(5000)]  # more than are read at a time
    store.put_members("forth", many, 0)
    store.put_members("back", many[::-2], 0)
    assert list(store.passages("forth")) == many
    assert list(store.passages("back")) == [replace(row, ordinal=place) for place, row in enumerate(many[::-2])]


def test_names_of_passages_and_counts_of_drops_belong_to_one_corpus(store: Store) -> None:
    rows = [Passage(f"k{i}", f"doc{i}", i, "text") for i in range(3)]
    drops = [Dropped("d1", "x", "length", "too short"), Dropped("d2", "y", "length", "too short"),
             Dropped("d3", "z", "length", "too long"), Dropped("d4", "w", "language", "too short")]  # fmt: skip
    store.put_members("c1", [*rows, *drops], 0)
    store.put_members("c2", [rows[0], drops[0]], 0)
    assert sorted(store.passage_names("c1")) == [("k0", "doc0"), ("k1", "doc1"), ("k2", "doc2")]
    assert sorted(store.passage_names("c1", ["k2", "k0", "k9"])) == [("k0", "doc0"), ("k2", "doc2")]
    assert list(store.passage_names("c2", ["k1"])) == [] == list(store.passage_names("c1", []))
    assert store.drops("c1") == {("length", "too short"): 2, ("length", "too long"): 1, ("language", "too short"): 1}
    assert store.drops("c2") == {("length", "too short"): 1} and store.drops("c3") == {}


def test_a_transaction_is_written_whole_or_not_at_all(store: Store) -> None:
    """The second row's ordinal is larger than its column holds."""
    with pytest.raises(StoreError, match=r"work\.duckdb"):
        store.put([answer("k"), Sample("s", "p", "f", 2**70)])
    assert store.query("SELECT (SELECT count(*) FROM answer), (SELECT count(*) FROM sample)") == [(0, 0)]
    store.put([answer("k"), Sample("s", "p", "f", 0)])
    assert store.query("SELECT (SELECT count(*) FROM answer), (SELECT count(*) FROM sample)") == [(1, 1)]


def test_wrong_sql_is_an_error_of_the_store_for_short_and_long_results(store: Store) -> None:
    for read in (store.query, lambda sql: list(store.stream(sql))):
        with pytest.raises(StoreError, match=r"work\.duckdb: .*no_such_table"):
            read("SELECT * FROM no_such_table")
    store.query("DROP TABLE membership")
    with pytest.raises(StoreError, match=r"work\.duckdb: .*membership"):
        store.places("c")
    numbers = store.stream("SELECT range FROM range(?) ORDER BY range", [5000])
    assert [number for (number,) in numbers] == list(range(5000))


def test_a_closed_store_is_closed(tmp_path: Path) -> None:
    with Store.open(tmp_path / "w.duckdb") as store:
        store.put([answer("k")])
    for use in (lambda: store.rows(Answer), lambda: store.put([answer("l")])):
        with pytest.raises(StoreError, match=r"w\.duckdb"):
            use()
    with duckdb.connect(str(tmp_path / "w.duckdb")) as connection:
        assert connection.execute("SELECT key FROM answer").fetchall() == [("k",)]


@pytest.mark.parametrize("size", [0, 3, 100, 4096, 4100, 12288])
def test_a_database_whose_creation_was_interrupted_is_made_again(size: int, tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    with contextlib.closing(connect(tmp_path / "empty.duckdb")):
        pass
    for beginning in ((tmp_path / "empty.duckdb").read_bytes()[:size], bytes(size)):
        path.write_bytes(beginning)
        with pytest.raises(StoreError, match="no work database; run `airgen run` first"):
            Store.open(path, read_only=True)
        with Store.open(path) as store:
            store.put([answer("k")])
            assert store.replaced
        with Store.open(path) as store:
            assert not store.replaced and list(store.answers(["k"])) == ["k"]


def test_what_may_hold_something_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    Store.open(path).close()
    whole = path.read_bytes()
    log = tmp_path / "w.duckdb.wal"
    for content, logged in (
        (bytes(len(whole)), b""),
        (b"notes of someone", b""),
        (whole[:4096], b"a log"),
        (b"", b"x"),
    ):
        path.write_bytes(content)
        log.write_bytes(logged)
        with pytest.raises(StoreError):
            Store.open(path)
        assert path.read_bytes() == content and log.read_bytes() == logged


def test_a_killed_creation_leaves_no_database_and_no_rubbish(tmp_path: Path) -> None:
    """The database appears under its name when it is finished; what a killed process left is removed by the next."""
    for left in ("w.duckdb.4194304.new", "w.duckdb.4194304.new.wal"):  # above the highest process id
        (tmp_path / left).write_bytes(b"DUCK")
    (tmp_path / "w.duckdb.backup.new").write_bytes(b"mine")
    Store.open(tmp_path / "w.duckdb").close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.duckdb", "w.duckdb.backup.new"]


@pytest.mark.parametrize("how", [{"create": False}, {"read_only": True}, {"create": False, "read_only": True}])
def test_who_must_not_create_a_database_does_not(how: dict[str, bool], tmp_path: Path) -> None:
    path = tmp_path / "folder" / "w.duckdb"
    with pytest.raises(StoreError, match="no work database; run `airgen run` first"):
        Store.open(path, **how)
    assert not path.parent.exists()
    Store.open(path).close()
    with Store.open(path, **how) as store:
        store.put([])
        assert store.rows(Answer) == [] and store.answers([]) == {}


@dataclass(frozen=True, slots=True)
class Everything(Row):
    """A field of each type that has a column."""

    text: str
    number: int
    share: float
    yes: bool
    number_or_none: int | None
    share_or_none: float | None
    text_or_none: str | None
    texts: list[str]
    shares: list[float]
    numbers: list[int]


def test_every_type_of_a_field_has_its_column(store: Store) -> None:
    store.ensure_table(Everything)
    rows = [
        Everything("k", "p", "f", 0, "a", 2**62, 0.1, True, 2**62, 0.1, "b", ["c"], [0.1], [2**62]),
        Everything("l", "p", "f", 1, "", -1, -0.5, False, None, None, None, [], [], []),
    ]
    store.put(rows)
    assert store.rows_of(Everything, "f") == rows
    assert [type(getattr(store.rows_of(Everything, "f")[0], name)) for name in ("number", "yes")] == [int, bool]


def test_a_row_type_from_outside_gets_a_table_of_its_fields(store: Store) -> None:
    """Without `from __future__ import annotations` a field's type is no text."""
    term = make_dataclass("KeyTerm", [("key", str), ("weight", float), ("terms", list[str])], frozen=True)
    assert store.rows(term) == []  # a job gained a stage, and has not run
    for _ in range(2):
        store.ensure_table(term)
    store.put([term("k", 0.5, ["a"])])
    assert store.rows(term) == [term("k", 0.5, ["a"])]
    assert store.query("SELECT weight FROM key_term") == [(0.5,)]

    @dataclass(frozen=True)
    class Strange(Row):
        value: complex

    with pytest.raises(StoreError, match="Strange: a field of type complex has no column type"):
        store.ensure_table(Strange)


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
        code = f"from pathlib import Path; from airgen.storage.store import Store; Store.open(Path({str(path)!r}))"
        done = finish(code)
    assert done.returncode != 0
    assert "is in use by another process" in done.stderr


OTHER_SCHEMA = f"has schema {{}}, and this airgen reads {SCHEMA}: use the"


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        *((f"UPDATE schema_number SET number = {one}", OTHER_SCHEMA.format(one)) for one in (SCHEMA - 1, SCHEMA + 1)),
        ("DROP TABLE schema_number", "is not a work database of this airgen: move it away"),
    ],
)
def test_a_database_of_another_schema_or_program_is_refused_and_stays(
    tmp_path: Path, statement: str, words: str, read_only: bool
) -> None:
    path = tmp_path / "w.duckdb"
    Store.open(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute(statement)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=rf"w\.duckdb {words}"):
        Store.open(path, read_only=read_only)
    assert path.read_bytes() == before


def test_a_database_whose_making_was_cut_off_is_made_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.duckdb"
    with monkeypatch.context() as patch:
        patch.setattr("airgen.storage.store._OTHER_TABLES", "CREATE TABLE half (x INT); CREATE TABLE half (x INT);")
        with pytest.raises(StoreError, match="half"):
            Store.open(path)
    with pytest.raises(StoreError, match="run `airgen run` first"):
        Store.open(path, read_only=True)
    with Store.open(path) as store:
        store.put([answer("k")])
        assert store.find_plan({}) == {}
        assert "half" not in {name for (name,) in store.query("SELECT table_name FROM duckdb_tables()")}


def test_what_was_committed_survives_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    code = f"""
import asyncio
from pathlib import Path
from airgen.storage.records import Answer
from airgen.storage.store import Store

store = Store.open(Path({str(path)!r}))

async def main():
    number = 0
    while True:
        await store.commit([Answer(f"k{{number}}", "s", "m", "e", "t")])
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""
    kill_at_line(61, code)
    with Store.open(path) as store:
        assert set(store.answers([f"k{i}" for i in range(61)])) == {f"k{i}" for i in range(61)}


def test_what_does_not_fit_in_memory_goes_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(tmp_path / "work.duckdb") as store:
        ((folder,),) = store.query("SELECT current_setting('temp_directory')")
        assert Path(folder).parent == tmp_path
    monkeypatch.setattr("airgen.storage.sql_connections._MEMORY", "60MB")
    with contextlib.closing(connect(tmp_path / "other.duckdb")) as base:
        base.execute("CREATE TEMP TABLE sorted AS SELECT md5(range::VARCHAR) m FROM range(1_000_000) ORDER BY m")
        assert base.execute("SELECT count(*) FROM sorted").fetchall() == [(1_000_000,)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_csv('{other}')",
        "COPY (SELECT 1) TO '{other}'",
        "ATTACH '{other}' AS other",
        "SET enable_external_access = true",
        "SET memory_limit = '1GB'",
        "INSTALL httpfs",
    ],
)
def test_a_work_database_reaches_no_other_file(tmp_path: Path, statement: str) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a\n1\n")
    with Store.open(tmp_path / "work.duckdb") as store:
        store.put([answer("k")])
        with pytest.raises(StoreError):
            store.query(statement.format(other=other))
        assert store.answers(["k"]) == {"k": answer("k")}
        for name in ("autoinstall_known_extensions", "autoload_known_extensions"):
            assert store.query(f"SELECT current_setting('{name}')") == [(False,)]
    assert other.read_text() == "a\n1\n"

"""The writer of the work database: which commits share a transaction, and who is told what became of them.

`GROUP_SECONDS` is long here where a test must not depend on how fast the machine is.
"""

import asyncio
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from simulation import in_a_loop

from airgen.errors import StoreError
from airgen.storage import store as module
from airgen.storage.records import Answer
from airgen.storage.store import Store

AGES = 600.0  # seconds; no test waits for them


def answers(*names: object) -> list[Answer]:
    return [Answer(f"k{name}", "query", "m", "default", "text") for name in names]


class Counting(Store):
    """Notes how many rows each transaction has; the first one waits until `go` is set."""

    sizes: list[int]
    go: threading.Event

    def put(self, rows: Iterable[Any]) -> None:
        rows = list(rows)
        self.sizes.append(len(rows))
        assert self.go.wait(60)
        super().put(rows)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Counting]:
    with Counting.open(tmp_path / "w.duckdb") as opened:
        assert isinstance(opened, Counting)
        opened.sizes, opened.go = [], threading.Event()
        opened.go.set()
        yield opened


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group waits for its 32 commits for ages."""
    monkeypatch.setattr(module, "GROUP_SECONDS", AGES)


def kept(store: Store) -> int:
    return int(store.query("SELECT count(*) FROM answer")[0][0])


@in_a_loop
async def test_what_waits_is_written_32_commits_at_a_time(store: Counting) -> None:
    store.go.clear()
    first = asyncio.ensure_future(store.commit(answers("first")))
    while not store.sizes:
        await asyncio.sleep(0)
    others = [asyncio.ensure_future(store.commit(answers(number))) for number in range(100)]
    await asyncio.sleep(0)  # all of them are in the queue
    store.go.set()
    await asyncio.gather(first, *others)
    assert store.sizes == [1, 32, 32, 32, 4]
    assert kept(store) == 101


@pytest.mark.usefixtures("patient")
@in_a_loop
async def test_a_full_group_does_not_wait_and_another_one_does(store: Counting) -> None:
    waiting = [asyncio.ensure_future(store.commit(answers(number))) for number in range(31)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    await store.commit(answers("last a", "last b"))
    await asyncio.gather(*waiting)
    assert store.sizes == [33]  # the rows of 32 commits


@pytest.mark.usefixtures("patient")
@in_a_loop
async def test_closing_writes_what_waits(store: Counting) -> None:
    waiting = [asyncio.ensure_future(store.commit(answers(number))) for number in range(3)]
    await asyncio.sleep(0)
    await asyncio.to_thread(store.close)
    await asyncio.gather(*waiting)
    assert store.sizes == [3]
    with Store.open(store.path) as again:
        assert kept(again) == 3


def writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "airgen-writer"]


@in_a_loop
async def test_one_writer_that_keeps_no_program_alive_and_ends_with_the_store(store: Counting) -> None:
    await store.commit([])
    assert store.sizes == [] and writers() == []
    await store.commit(answers(1))
    await store.commit(answers(2))
    (writer,) = writers()
    assert writer.daemon
    store.close()
    assert writers() == []


@pytest.mark.usefixtures("patient")
@in_a_loop
async def test_who_waits_no_more_does_not_keep_the_others_waiting(store: Counting) -> None:
    waiting = [asyncio.ensure_future(store.commit(answers(number))) for number in range(31)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(store.commit(answers("last")), *waiting[1:]), 60)
    assert waiting[0].cancelled()
    assert kept(store) == 32, "its rows are kept all the same"


@pytest.mark.usefixtures("patient")
def test_loops_share_a_group_and_each_is_told_but_one_that_has_ended(store: Counting) -> None:
    async def leave() -> None:
        asyncio.ensure_future(store.commit(answers("left")))  # noqa: RUF006
        await asyncio.sleep(0)

    async def many(first: int, last: int) -> None:
        await asyncio.wait_for(asyncio.gather(*(store.commit(answers(one)) for one in range(first, last))), 60)

    asyncio.run(leave())
    other = threading.Thread(target=lambda: asyncio.run(many(100, 115)))
    other.start()
    asyncio.run(many(0, 16))
    other.join()
    assert store.sizes == [32] and kept(store) == 32


@pytest.mark.usefixtures("patient")
@in_a_loop
async def test_a_group_that_cannot_be_written_fails_for_all_of_it_and_the_next_one_is_written(store: Counting) -> None:
    huge = [Answer("k-huge", "query", "m", "default", "text", prompt_tokens=2**70)]
    waiting = [store.commit(answers(number)) for number in range(31)]
    failures = await asyncio.wait_for(asyncio.gather(store.commit(huge), *waiting, return_exceptions=True), 60)
    assert {type(failure) for failure in failures} == {StoreError} and len(failures) == 32
    assert kept(store) == 0
    await asyncio.wait_for(asyncio.gather(*(store.commit(answers(number)) for number in range(32))), 60)
    assert kept(store) == 32

"""The two loops that run steps: what is pending, what is on the disk when they are stopped, and the order."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from airgen.errors import LlmError, Stopped
from airgen.llms.health import Health
from airgen.steps.lineage import R
from airgen.steps.loops import run_whole, walk, walk_each
from airgen.steps.progress import Display
from airgen.steps.step import Problem, RowBatch, Step, Whole, WholeStep, make_row, unless_read
from airgen.storage.records import Character, Judgment, Recall, Row, Scenario, Skip
from airgen.storage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "work.duckdb") as opened:
        yield opened


@dataclass(frozen=True)
class Topic:
    """A parent that is neither a lineage nor a pair."""

    key: str
    rows: tuple[Row, ...] = ()
    skips: Mapping[str, Skip] = field(default_factory=dict)

    def every(self, kind: type[R]) -> tuple[R, ...]:
        return tuple(row for row in self.rows if isinstance(row, kind))

    def parent_key(self, reads: Any) -> str:
        return self.key

    def extended(self, rows: Any) -> "Topic":
        skips = {row.stage: row for row in rows if isinstance(row, Skip)}
        return replace(self, rows=(*self.rows, *rows), skips={**self.skips, **skips})


TOOLS: Any = SimpleNamespace(plan={"character": "f1", "scenario": "f2"})


async def _character(topic: Topic, tools: Any) -> list[Row] | Problem:
    if topic.key.startswith("bad"):
        return Problem("is bad", topic.key)
    return [make_row(Character, "character", topic.key, tools, 0, f"reads {topic.key}", [])]


async def _scenario(topic: Topic, tools: Any) -> list[Row] | Problem:
    return [make_row(Scenario, "scenario", topic.every(Character)[0].key, tools, 0, "in a hurry", [])]


STEPS = [
    Step("character", (Row,), Character, 1, work=_character),
    Step("scenario", (Character,), Scenario, 1, work=_scenario),
]


def test_a_parent_goes_on_where_it_stopped_and_ends_at_a_skip(store: Store) -> None:
    async def go() -> None:
        good = await walk(Topic("bees"), STEPS, tools=TOOLS, store=store, health=Health())
        assert [type(row) for row in good.rows] == [Character, Scenario]
        again = await walk(good, STEPS, tools=TOOLS, store=store, health=Health())
        assert again is good  # nothing is pending
        bad = await walk(Topic("bad tides"), STEPS, tools=TOOLS, store=store, health=Health())
        assert bad.skips["character"].reason == "is bad" and not bad.every(Scenario)

    asyncio.run(go())
    assert len(store.rows(Character)) == len(store.rows(Scenario)) == len(store.rows(Skip)) == 1


def test_the_rows_of_one_parent_are_on_the_disk_before_its_next_step(store: Store) -> None:
    seen: list[int] = []

    async def look(topic: Topic, tools: Any) -> list[Row] | Problem:
        seen.append(len(store.rows(Character, "t.parent = ?", [topic.key])))
        return await _scenario(topic, tools)

    steps = [STEPS[0], replace(STEPS[1], work=look)]
    ended: list[str] = []

    async def go() -> None:
        topics = [Topic(f"topic {number}") for number in range(6)]
        await walk_each(
            topics,
            steps,
            tools=TOOLS,
            store=store,
            health=Health(),
            workers=3,
            ended=lambda topic: ended.append(topic.key),
        )

    asyncio.run(go())
    assert seen == [1] * 6 and sorted(ended) == [f"topic {number}" for number in range(6)]


def test_a_step_that_rejects_everything_stops_the_others(store: Store) -> None:
    ended: list[Topic] = []

    async def go() -> None:
        topics = [Topic(f"bad {number}") for number in range(500)]
        health = Health()
        await walk_each(topics, STEPS, tools=TOOLS, store=store, health=health, workers=4, ended=ended.append)

    with pytest.raises(LlmError, match="were rejected"):
        asyncio.run(go())
    assert 0 < len(store.rows(Skip)) == len(ended) + 1 < 100


@dataclass(frozen=True, kw_only=True)
class Names(Whole):
    names: tuple[str, ...] = ("a", "b", "c")

    @property
    def parents(self) -> tuple[str, ...]:
        return self.names


def _two_at_a_time(names: Names, model: Any) -> Iterator[RowBatch]:
    for first in range(0, len(names.pending), 2):
        some = names.pending[first : first + 2]
        yield RowBatch([Recall(f"{key}/{names.fingerprint}", key, names.fingerprint, 0, "m", [], []) for key in some])


RECALLS = WholeStep(
    "recall:1",
    (Judgment,),
    Recall,
    3,
    work=_two_at_a_time,
    parts=lambda names, model: {"model": model},
    label="recall",
    model=lambda names: "m",
)


def _names(store: Store, tmp_path: Path, **values: Any) -> Names:
    return Names(store=store, display=Display(tmp_path / "status.json", Console(quiet=True)), **values)


def test_a_whole_step_does_what_has_no_row_of_its_fingerprint(store: Store, tmp_path: Path) -> None:
    done = run_whole(RECALLS, _names(store, tmp_path, names=("a",)))
    assert done.plan == {"recall:1": RECALLS.fingerprint(done, "m")}
    more = run_whole(RECALLS, _names(store, tmp_path))
    assert [row.parent for row in store.rows(Recall, order="rowid")] == ["a", "b", "c"]
    assert more.plan == done.plan
    # The position after the colon is not part of the fingerprint; everything else is.
    same, other = replace(RECALLS, name="recall:0"), replace(RECALLS, version=4)
    assert same.fingerprint(more, "m") == RECALLS.fingerprint(more, "m") != RECALLS.fingerprint(more, "n")
    run_whole(other, more)
    assert len(store.rows(Recall)) == 6


def test_a_stopped_whole_step_keeps_its_batches_and_goes_on(store: Store, tmp_path: Path) -> None:
    names = _names(store, tmp_path)
    names.stopping.set()
    with pytest.raises(Stopped):
        run_whole(RECALLS, names)
    assert {row.parent for row in store.rows(Recall)} == {"a", "b"}
    run_whole(RECALLS, _names(store, tmp_path))
    assert {row.parent for row in store.rows(Recall)} == {"a", "b", "c"}


def test_a_bar_moves_within_a_batch_and_counts_only_what_is_on_the_disk(store: Store, tmp_path: Path) -> None:
    """Each parent is ten pieces; what a batch that fails had begun is taken back."""
    display = Display(tmp_path / "status.json", Console(quiet=True))
    seen: list[Any] = []

    def work(names: Names, model: Any) -> Iterator[RowBatch]:
        stage = display.state["stages"]["slow"]
        for key in names.pending:
            for part in (4, 7, 7):
                names.partly(part)
                seen.append((key, stage["done"], stage["total"]))
            if key == "c":
                raise LlmError("the model is gone")
            yield RowBatch([Recall(key, key, names.fingerprint, 0, "m", [], [])], done=10)

    slow = replace(RECALLS, work=work, label="slow", pieces=lambda names, keys: 10 * len(keys))
    with pytest.raises(LlmError):
        run_whole(slow, Names(store=store, display=display))
    assert seen == [("a", 4, 30), ("a", 7, 30), ("a", 7, 30), ("b", 14, 30), ("b", 17, 30), ("b", 17, 30),
                    ("c", 24, 30), ("c", 27, 30), ("c", 27, 30)]  # fmt: skip
    assert display.state["stages"]["slow"]["done"] == 20


def test_a_source_is_read_again_until_it_says_that_it_is_complete(store: Store, tmp_path: Path) -> None:
    read: list[str] = []
    ended = [False]

    def work(source: Whole, model: Any) -> Iterator[RowBatch]:
        read.append(source.fingerprint)
        yield RowBatch([Recall(f"r{len(read)}", "", source.fingerprint, 0, "m", [], [])], done=7, note="seven")
        if len(read) < 2:
            raise OSError("the disk is full")
        ended[0] = True

    source = WholeStep(
        "corpus", (), Recall, 1, label="corpus", work=work, pending=unless_read(lambda store, fp: ended[0])
    )
    whole = Whole(store=store, display=Display(tmp_path / "s.json", Console(quiet=True)), plan={"corpus": "known"})
    with pytest.raises(OSError, match="full"):
        run_whole(source, whole)
    for _ in range(2):
        assert run_whole(source, whole).plan == {"corpus": "known"}
    assert read == ["known"] * 2

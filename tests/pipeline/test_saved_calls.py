"""What dropping a query early saves, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from airgen.pipeline.generate import Accepted, Rejected
from airgen.pipeline.saved_calls import saved_calls
from airgen.pipeline.stage import Cause
from airgen.pipeline.stages import Lineage
from airgen.records import Answer, HardNegative, Passage, Rewrite, Sample, Skip
from airgen.store import Store


def answers(stage: str, count: int, prompt: int, completion: int) -> list[Answer]:
    return [
        Answer(f"{stage}{n}", stage, "m", "e", "", prompt_tokens=prompt, completion_tokens=completion, cost_usd=0.5)
        for n in range(count)
    ]


def rejected(*ends: tuple[str, Cause]) -> Accepted:
    lineage = Lineage(Passage("p", "d", 0, "text"), Sample("s", "p", "f", 0))
    return Accepted([], [Rejected(lineage, stage, "a reason", cause) for stage, cause in ends], 0, False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two queries rewritten by three calls, one of them given negatives by two calls; five judgments."""
    store = Store.open(tmp_path / "work.duckdb")
    store.put([
        Rewrite("r1", "q1", "f", 1, "x", "casual"), Rewrite("r2", "q1", "f", 2, "y", "casual"),
        Skip("k1", "q2", "f", 0, "rewrite", "copies the document"),
        Skip("k2", "q3", "f", 0, "rewrite", "no rewriting asked for", "", "settings"),
        HardNegative("h1", "r2", "f", 1, "n1", "t"), HardNegative("h2", "r2", "f", 2, "n2", "t"),
        HardNegative("h3", "q9", "f", 1, "d7", "", "", "mined"),
        *answers("rewrite", 3, 100, 10), *answers("judgment", 5, 50, 1), *answers("hard_negative", 2, 400, 300),
        *answers("query", 7, 9, 9),
    ])  # fmt: skip
    return store


def test_means_of_the_stages_that_were_not_reached(store: Store) -> None:
    found = saved_calls(
        store,
        rejected(
            ("query", "check"), ("query", "malformed"), ("query", "llm"), ("judgment", "check"), ("judgment", "llm"),
            ("duplicate", "check"), ("character", "malformed"),
        ),
    )  # fmt: skip
    assert found is not None
    assert found.dropped == {"query": 1, "judgment": 1, "duplicate": 1}
    # A rewrite took 3 / 2 calls a query, an own judgment 1, negatives 2 for one query: three queries got none.
    assert found.calls == 1.5 + 1 + 3 * 2
    assert found.prompt_tokens == 1.5 * 100 + 50 + 3 * 800
    assert found.completion_tokens == 1.5 * 10 + 1 + 3 * 600
    assert found.usd == pytest.approx(0.5 * found.calls)
    assert found.as_dict()["calls"] == 8.5


def test_nothing_is_said_before_a_query_had_its_negatives(tmp_path: Path) -> None:
    with Store.open(tmp_path / "work.duckdb") as store:
        store.put(answers("rewrite", 3, 100, 10))
        assert saved_calls(store, rejected(("duplicate", "check"))) is None

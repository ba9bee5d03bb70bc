from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen.pipeline.control.quality_control import mine
from airgen.records import Decision, HardNegative, Prelabel, Recall
from airgen.settings import Thresholds

IDS = [f"d{number:03}" for number in range(1, 201)]  # d001 is recalled first
TITLES = {id_: f"title of {id_}" for id_ in IDS}


def decision(id_: str, level: int | None, action: str = "ignore") -> Decision:
    return Decision(id_, "q", "f", 0, id_, action, "", level)


def mined(
    decisions: dict[str, Decision] | None = None, voted: tuple[str, ...] = (), recalled: list[str] = IDS, **changes: Any
) -> list[HardNegative]:
    """What is mined when one re-ranker puts `voted` on top, and nothing else within its thresholds."""
    order = [*voted, *(f"neg-{number}" for number in range(20 - len(voted))), *recalled]
    prelabels = [Prelabel("p", "q", "f", 0, "m", order, [float(-place) for place in range(len(order))])]
    given: dict[str, Any] = {"ranks": (10, 100), "count": 5, "relevant_from": 2, "thresholds": Thresholds()}
    return mine(
        Recall("r", "q", "f", 0, "m", recalled, [1.0] * len(recalled)), prelabels, decisions or {}, TITLES,
        fingerprint="fp", **{**given, **changes},
    )  # fmt: skip


def ids(rows: list[HardNegative]) -> list[str]:
    return [row.id for row in rows]


def test_the_window_begins_at_its_first_rank_and_ends_with_its_last() -> None:
    assert ids(mined()) == ["d010", "d011", "d012", "d013", "d014"]
    assert ids(mined(ranks=(99, 100))) == ["d099", "d100"]
    assert ids(mined(ranks=(1, 2))) == ["d001", "d002"]
    assert ids(mined(ranks=(300, 400))) == []


def test_a_passage_that_was_judged_not_relevant_is_taken_first_and_at_any_rank() -> None:
    found = {"d002": decision("d002", 1), "d150": decision("d150", 0), "d011": decision("d011", 1)}
    assert ids(mined(found)) == ["d002", "d011", "d150", "d010", "d012"]


def test_what_is_relevant_or_voted_for_or_made_up_is_never_taken() -> None:
    found = {
        "d010": decision("d010", 3, "add_positive"),
        "d011": decision("d011", 2, "keep_query"),
        "d012": decision("d012", 2),  # relevant, and dropped with its document
        "d013": decision("d013", None, "keep_negative"),
        "d001": decision("d001", 1, "add_positive"),  # by a combined judge, over the LLM's word
    }
    rows = mined(
        found, voted=("d014",), recalled=["neg-x", *IDS[:8], *IDS[9:]], ranks=(10, 17), count=9, never={"d015"}
    )
    # Rank 10 is d010, since neg-x came in front and d009 is not recalled.
    assert ids(rows) == ["d016", "d017"]


def test_the_levels_are_cut_where_the_pipeline_cuts_them() -> None:
    found = {"d001": decision("d001", 2)}
    assert ids(mined(found, count=1, relevant_from=3)) == ["d001"]
    assert ids(mined(found, count=1, relevant_from=2)) == ["d010"]


def test_rows_are_numbered_named_as_mined_and_carry_no_text() -> None:
    rows = mined(count=3)
    assert [(row.ordinal, row.origin, row.text, row.title) for row in rows] == [
        (1, "mined", "", "title of d010"), (2, "mined", "", "title of d011"), (3, "mined", "", "title of d012"),
    ]  # fmt: skip
    assert len({row.key for row in rows}) == 3
    assert {row.parent for row in rows} == {"q"}


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.dictionaries(st.sampled_from(IDS[:30]), st.integers(0, 3), max_size=10),
    st.sets(st.sampled_from(IDS[:30]), max_size=8),
    st.integers(0, 8),
)
def test_never_too_many_never_twice_never_relevant(levels: dict[str, int], voted: set[str], count: int) -> None:
    found = {id_: decision(id_, level) for id_, level in levels.items()}
    rows = mined(found, voted=tuple(sorted(voted)), count=count, ranks=(3, 25))
    assert len(rows) <= count and len(set(ids(rows))) == len(rows)
    for id_ in ids(rows):
        assert levels.get(id_, 0) < 2
        assert id_ in levels or (id_ not in voted and "d003" <= id_ <= "d025")
    fewer = mined(found, voted=tuple(sorted(voted)), count=max(0, count - 1), ranks=(3, 25))
    assert rows[: len(fewer)] == fewer  # one more keeps those there were


@pytest.mark.parametrize("thresholds", [Thresholds(), Thresholds(hard_negative=40, other=3)])
def test_a_vote_is_a_place_within_the_threshold_of_other_documents(thresholds: Thresholds) -> None:
    ranking = [Prelabel("p", "q", "f", 0, "m", IDS, [float(-place) for place in range(len(IDS))])]
    rows = mine(
        Recall("r", "q", "f", 0, "m", IDS, [1.0] * len(IDS)), ranking, {}, TITLES,
        ranks=(1, 100), count=1, relevant_from=2, thresholds=thresholds, fingerprint="fp",
    )  # fmt: skip
    assert ids(rows) == [IDS[thresholds.other]]

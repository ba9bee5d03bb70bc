"""Table 2 and mined negatives, by hand."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen.errors import ModelError
from airgen.keys import row_key
from airgen.pipeline.control.judge import Levels, Verdict, YesNo, level_of_probability
from airgen.pipeline.control.judgments import mine
from airgen.pipeline.control.recall import Unscored
from airgen.pipeline.control.table2 import Pair, decide, pairs_to_judge, votes
from airgen.prompts import PromptSet
from airgen.records import Answer, Decision, HardNegative, Judgment, Prelabel, Recall
from airgen.settings import Thresholds


def prelabel(scores: dict[str, float], place: int = 0) -> Prelabel:
    return Prelabel(f"k{place}", "q", "f", place, f"m{place}", list(scores), list(scores.values()))


def judged(**levels: int) -> dict[str, Judgment]:
    return {id_: Judgment(id_, "q", "f", 0, id_, level) for id_, level in levels.items()}


def ranking(ids: list[str], place: int = 0) -> Prelabel:
    """A re-ranker that ranks in the order given."""
    return prelabel({id_: float(-rank) for rank, id_ in enumerate(ids)}, place)


PROMPT = PromptSet().get("judge")


IDS = [f"d{number:02}" for number in range(40)]


def test_thresholds_are_ranks_and_inclusive() -> None:
    counts = votes([ranking(IDS)], Thresholds(), set())
    assert set(counts) == set(IDS[:10])
    counts = votes([ranking(IDS)], Thresholds(), {"d15", "d19", "d20"})
    assert set(counts) == {*IDS[:10], "d15", "d19"}  # rank 20 is in, rank 21 is out (A.3)


def test_ties_stand_in_the_order_of_the_recall() -> None:
    equal = prelabel(dict.fromkeys(IDS, 1.0))
    assert set(votes([equal], Thresholds(), set())) == set(IDS[:10])


@pytest.mark.parametrize(("rerankers", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_more_than_half_must_agree(rerankers: int, needed: int) -> None:
    for agreeing in range(rerankers + 1):
        prelabels = [ranking(["x", *IDS] if place < agreeing else [*IDS, "x"], place) for place in range(rerankers)]
        chosen = {pair.id for pair in pairs_to_judge("q", "none", [], prelabels, Thresholds())}
        assert ("x" in chosen) == (agreeing >= needed)


def test_the_positive_is_not_asked_twice_and_own_negatives_have_their_threshold() -> None:
    pairs = pairs_to_judge("q", "d00", ["d01", "d15"], [ranking(IDS)], Thresholds())
    assert Pair("q", "d01") in pairs
    assert Pair("q", "d15") in pairs  # within 20
    assert Pair("q", "d02") in pairs
    assert all(pair.id != "d00" for pair in pairs)
    assert all(pair.id != "d12" for pair in pairs)  # an ordinary document beyond 10


def actions(**arguments: object) -> dict[str, str]:
    given: dict[str, object] = {"query": "q", "positive": "pos", "negatives": [], "judgments": {}, "dropped": set(),
                                "relevant_from": 2, "fingerprint": "f"}  # fmt: skip
    rows = decide(**{**given, **arguments})  # type: ignore[arg-type]
    assert len({row.key for row in rows}) == len(rows)
    assert [row.ordinal for row in rows] == list(range(len(rows)))
    return {row.id: row.action for row in rows}


# Table 2, every case: (level of the positive, kind of document, its level or None) -> action.
@pytest.mark.parametrize(("own", "level"), list(product([0, 1], [None, 0, 1, 2, 3])))
def test_table_2_an_irrelevant_own_document_drops_the_query_with_all_its_labels(own: int, level: int | None) -> None:
    others = {} if level is None else {"neg": level, "doc": level}
    assert actions(negatives=["neg"], judgments=judged(pos=own, **others)) == {"pos": "drop_query"}


def test_table_2_an_unjudged_own_document_drops_the_query() -> None:
    assert actions() == {"pos": "drop_query"}


@pytest.mark.parametrize(
    ("level", "action"),
    [(None, "keep_negative"), *((level, "drop_negative" if level >= 2 else "keep_negative") for level in range(4))],
)
def test_table_2_generated_negatives(level: int | None, action: str) -> None:
    others = {} if level is None else {"neg": level}
    dropped = {"neg"} if level is not None and level >= 2 else set()
    found = actions(negatives=["neg"], judgments=judged(pos=3, **others), dropped=dropped)
    assert found == {"pos": "keep_query", "neg": action}


@pytest.mark.parametrize(("level", "action"), [(0, "ignore"), (1, "ignore"), (2, "add_positive"), (3, "add_positive")])
def test_table_2_other_documents(level: int, action: str) -> None:
    assert actions(judgments=judged(pos=3, doc=level)) == {"pos": "keep_query", "doc": action}


def test_a_negative_dropped_for_one_query_is_dropped_for_all_and_never_added() -> None:
    assert actions(negatives=["neg"], judgments=judged(pos=2), dropped={"neg"})["neg"] == "drop_negative"
    assert actions(judgments=judged(pos=2, neg=3), dropped={"neg"})["neg"] == "ignore"


def test_the_cut_between_levels_is_a_setting() -> None:
    assert actions(judgments=judged(pos=2, doc=2), relevant_from=3) == {"pos": "drop_query"}
    assert actions(judgments=judged(pos=1, doc=1), relevant_from=1) == {"pos": "keep_query", "doc": "add_positive"}


class Scorer:
    name = "scorer"

    def __init__(self, scores: list[float]) -> None:
        self.scores = scores

    def score(self, pairs: object) -> np.ndarray:
        return np.asarray(self.scores, np.float32)

    def describe(self) -> dict[str, object]:
        return {}


def prelabel_rows(scorer, recalls, queries, texts, ordinal, fp, name="", earlier=()):  # type: ignore[no-untyped-def]
    unscored = Unscored.of(recalls, queries, texts, name, earlier)
    return unscored.rows(scorer.score(unscored.pairs), scorer.name, ordinal, fp, name)


def test_scores_go_to_their_own_query() -> None:
    recalls = [Recall("r1", "q1", "f", 0, "m", ["a", "b"], [1, 0]), Recall("r2", "q2", "f", 0, "m", ["c"], [1])]
    rows = prelabel_rows(Scorer([0.5, 0.25, 2.0]), recalls, {"q1": "x", "q2": "y"}, str, 0, "fp")
    assert [(row.parent, row.ids, row.scores) for row in rows] == [
        ("q1", ["a", "b"], [0.5, 0.25]),
        ("q2", ["c"], [2.0]),
    ]


class Counting:
    """Scores a pair by its lengths, and notes what it was asked."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def score(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        self.asked += pairs
        return np.asarray([len(query) + len(text) / 100 for query, text in pairs], np.float32)

    def describe(self) -> dict[str, object]:
        return {}


def test_scores_are_taken_over_for_pairs_that_stayed_as_they_were() -> None:
    texts = {"a": "one", "b": "two two", "c": "three"}
    queries = {"q1": "x", "q2": "yy"}
    before = [Recall("r1", "q1", "f", 0, "m", ["a", "b"], [1, 0]), Recall("r2", "q2", "f", 0, "m", ["a"], [1])]
    first = prelabel_rows(Counting(), before, queries, texts.__getitem__, 0, "f1", "s")
    # The corpus grew by c, and b was edited: only what is new is asked, under the new row's own order.
    texts["b"] = "two, edited"
    after = [Recall("r3", "q1", "g", 0, "m", ["c", "b", "a"], [2, 1, 0]), Recall("r4", "q2", "g", 0, "m", ["a"], [1])]
    counting = Counting()
    second = prelabel_rows(counting, after, queries, texts.__getitem__, 0, "f2", "s", first)
    assert counting.asked == [("x", "three"), ("x", "two, edited")]
    whole = prelabel_rows(Counting(), after, queries, texts.__getitem__, 0, "f2", "s")
    assert second == whole
    # Another scorer's rows say nothing.
    other = Counting()
    prelabel_rows(other, after, queries, texts.__getitem__, 0, "f2", "another", first)
    assert len(other.asked) == 4


@pytest.mark.parametrize("scores", [[1.0], [1.0, float("nan")], [1.0, float("inf")], [1.0, 2.0, 3.0]])
def test_broken_rerankers_are_refused(scores: list[float]) -> None:
    recall = Recall("r", "q", "f", 0, "m", ["a", "b"], [1, 0])
    with pytest.raises(ModelError, match="re-ranker scorer"):
        prelabel_rows(Scorer(scores), [recall], {"q": "x"}, str, 0, "fp")


@pytest.mark.parametrize(
    ("text", "level"),
    [("2", 2), ("2.", 2), (" 3\n", 3), ("Relevance: 3", 3), ("- 0", 0), ("**1**", 1), ("2 (somewhat)", 2),
     ("3 out of 3", 3),
     ("4", None), ("", None), ("I cannot judge this", None), ("between 1 and 2", None),
     ("2.5", None), ("10", None)],
)  # fmt: skip
def test_levels_are_read_from_what_judges_write(text: str, level: int | None) -> None:
    found = Levels().read(answer(text), PROMPT, 0.5)
    assert (found.level if isinstance(found, Verdict) else None) == level


def answer(text: str, logprobs: str = "") -> Answer:
    return Answer("k", "judgment", "m", "e", text, logprobs=logprobs)


def probability(said: Answer) -> float | None:
    found = YesNo().read(said, PROMPT, 0.5)
    return found.probability if isinstance(found, Verdict) else None


def test_yes_and_no_are_summed_over_their_spellings() -> None:
    # e^-1 + e^-2 = .5032 for yes, e^-1.5 = .2231 for no: .5032 / .7263 = .6928
    spelled = '[[["Yes", -1.0], [" yes", -2.0], ["NO", -1.5], ["Maybe", -0.1]]]'
    assert probability(answer("Maybe", spelled)) == pytest.approx(0.69283, abs=1e-4)
    assert probability(answer("Yes, it does")) == 1.0
    assert probability(answer("no.")) == 0.0
    assert probability(answer("Perhaps")) is None


def test_levels_of_a_probability() -> None:
    cuts = [0.0, 0.19, 0.2, 0.39, 0.4, 0.69, 0.7, 1.0]
    assert [level_of_probability(value, 0.4) for value in cuts] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_every_decision_says_why_and_has_the_key_of_its_work() -> None:
    def reasons(**arguments: object) -> dict[str, str]:
        given: dict[str, object] = {"query": "q", "positive": "pos", "negatives": [], "judgments": judged(pos=2),
                                    "dropped": set(), "relevant_from": 2, "fingerprint": "f"}  # fmt: skip
        rows = decide(**{**given, **arguments})  # type: ignore[arg-type]
        assert [row.key for row in rows] == [row_key("decision", f"q/{row.id}", "f") for row in rows]
        return {row.id: row.reason for row in rows}

    assert reasons(judgments={}) == {"pos": "its document was not judged"}
    assert reasons(judgments=judged(pos=1)) == {"pos": "its document was judged 1"}
    every = reasons(
        negatives=["at", "under", "plain", "unseen", "gone"],
        judgments=judged(pos=3, at=2, under=1, plain=0, new=2, low=1, away=3),
        dropped={"at", "under", "gone", "away"},
    )
    assert every == {
        "pos": "its document was judged 3",
        "at": "judged 2",
        "under": "dropped for another query",
        "plain": "judged 0",
        "unseen": "not pre-labelled",
        "gone": "dropped for another query",
        "new": "judged 2",
        "low": "judged 1",
        "away": "dropped from the corpus",
    }


# -- mined negative ---------------------------------------------------------------------------------------------------


MINED = [f"d{number:03}" for number in range(1, 201)]  # d001 is recalled first


TITLES = {id_: f"title of {id_}" for id_ in MINED}


def decision(id_: str, level: int | None, action: str = "ignore") -> Decision:
    return Decision(id_, "q", "f", 0, id_, action, "", level)


def mined(
    decisions: dict[str, Decision] | None = None,
    voted: tuple[str, ...] = (),
    recalled: list[str] = MINED,
    **changes: Any,
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
        found,
        voted=("d014",),
        recalled=["neg-x", *MINED[:8], *MINED[9:]],
        ranks=(10, 17),
        count=9,
        never={"d015"},
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
    st.dictionaries(st.sampled_from(MINED[:30]), st.integers(0, 3), max_size=10),
    st.sets(st.sampled_from(MINED[:30]), max_size=8),
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
    ranking = [Prelabel("p", "q", "f", 0, "m", MINED, [float(-place) for place in range(len(MINED))])]
    rows = mine(
        Recall("r", "q", "f", 0, "m", MINED, [1.0] * len(MINED)), ranking, {}, TITLES,
        ranks=(1, 100), count=1, relevant_from=2, thresholds=thresholds, fingerprint="fp",
    )  # fmt: skip
    assert ids(rows) == [MINED[thresholds.other]]

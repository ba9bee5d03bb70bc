"""Table 2 and mined negatives, by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen.components.keys import row_key
from airgen.control.mined_negative import mine
from airgen.control.prelabel import Unscored
from airgen.control.table2 import Pair, decide, pairs_to_judge, votes
from airgen.errors import ModelError
from airgen.llms.prompts import PromptSet
from airgen.settings import Thresholds
from airgen.steps.judge import Levels, Verdict, YesNo, level_of_probability
from airgen.steps.kept_scores import KeptScores
from airgen.storage.records import Answer, Decision, HardNegative, Judgment, Prelabel, Recall

IDS = [f"d{number:02}" for number in range(40)]


def prelabel(scores: dict[str, float], place: int = 0) -> Prelabel:
    return Prelabel(f"k{place}", "q", "f", place, f"m{place}", list(scores), list(scores.values()))


def ranking(ids: list[str], place: int = 0) -> Prelabel:
    """A re-ranker that ranks in the order given."""
    return prelabel({id_: float(-rank) for rank, id_ in enumerate(ids)}, place)


@pytest.mark.parametrize(
    ("scores", "negatives", "voted"),
    [
        (ranking(IDS), set(), IDS[:10]),  # thresholds are ranks, and inclusive
        (ranking(IDS), {"d15", "d19", "d20"}, [*IDS[:10], "d15", "d19"]),  # rank 20 is in, rank 21 is out (A.3)
        (prelabel(dict.fromkeys(IDS, 1.0)), set(), IDS[:10]),  # ties keep the order of the recall
    ],
)
def test_who_votes_for_what(scores: Prelabel, negatives: set[str], voted: list[str]) -> None:
    assert votes([scores], Thresholds(), negatives) == dict.fromkeys(voted, 1)


@pytest.mark.parametrize(("rerankers", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_more_than_half_must_agree(rerankers: int, needed: int) -> None:
    for agreeing in range(rerankers + 1):
        prelabels = [ranking(["x", *IDS] if place < agreeing else [*IDS, "x"], place) for place in range(rerankers)]
        chosen = {pair.id for pair in pairs_to_judge("q", "none", [], prelabels, Thresholds())}
        assert ("x" in chosen) == (agreeing >= needed)


def test_the_positive_is_not_asked_twice_and_own_negatives_have_their_threshold() -> None:
    pairs = pairs_to_judge("q", "d00", ["d01", "d15"], [ranking(IDS)], Thresholds())
    assert pairs == [Pair("q", id_) for id_ in [*IDS[1:10], "d15"]]  # d15 within 20, an ordinary d12 beyond 10


def decided(
    levels: dict[str, int], negatives: str = "", dropped: str = "", cut: int = 2, positive: str | None = "pos"
) -> dict[str, tuple[str, str]]:
    """(action, reason) by document."""
    judged = {id_: Judgment(id_, "q", "f", 0, id_, level, level / 4, "judge") for id_, level in levels.items()}
    if "brought" in judged:
        judged["brought"] = Judgment("b", "q", "f", 0, "brought", 3, None, "labels of a.csv")
    rows = decide("q", positive, negatives.split(), judged, set(dropped.split()), cut, "f")
    assert [(row.key, row.parent, row.fingerprint, row.ordinal) for row in rows] == [
        (row_key("decision", f"q/{row.id}", "f"), "q", "f", place) for place, row in enumerate(rows)
    ]
    for row in rows:
        found = judged.get(row.id)
        assert (row.level, row.probability) == ((found.level, found.probability) if found else (None, None))
    return {row.id: (row.action, row.reason) for row in rows}


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("level", [None, 0, 1, 2, 3])
def test_table_2_an_irrelevant_own_document_drops_the_query_with_all_its_labels(own: int, level: int | None) -> None:
    others = {} if level is None else {"neg": level, "doc": level}
    assert decided({"pos": own, **others}, "neg") == {"pos": ("drop_query", f"its document was judged {own}")}


def test_table_2_in_one_world_with_every_reason() -> None:
    assert decided({}) == {"pos": ("drop_query", "its document was not judged")}
    levels = {"pos": 3, "at": 2, "under": 1, "plain": 0, "new": 2, "best": 3, "low": 1, "zero": 0, "away": 3}
    assert decided(levels, "at under plain unseen gone", "at under gone away") == {
        "pos": ("keep_query", "its document was judged 3"),
        "at": ("drop_negative", "judged 2"),
        "under": ("drop_negative", "dropped for another query"),  # and for all: a negative is in the corpus or not
        "plain": ("keep_negative", "judged 0"),
        "unseen": ("keep_negative", "not pre-labelled"),
        "gone": ("drop_negative", "dropped for another query"),
        "away": ("ignore", "dropped from the corpus"),
        "best": ("add_positive", "judged 3"),
        "low": ("ignore", "judged 1"),
        "new": ("add_positive", "judged 2"),
        "zero": ("ignore", "judged 0"),
    }
    assert list(decided(levels, "at"))[2:] == sorted(set(levels) - {"pos", "at"})  # in its own order


def test_the_cut_between_levels_is_a_setting() -> None:
    assert decided({"pos": 2, "doc": 2}, cut=3) == {"pos": ("drop_query", "its document was judged 2")}
    assert decided({"pos": 1, "doc": 1}, cut=1)["doc"] == ("add_positive", "judged 1")


def test_a_query_of_the_users_has_no_document() -> None:
    assert decided({"new": 2, "low": 1, "brought": 3}, positive=None) == {
        "brought": ("add_positive", "labels of a.csv: 3"),
        "low": ("add_negative", "judged 1"),
        "new": ("add_positive", "judged 2"),
    }


# -- pre-labels -------------------------------------------------------------------------------------------------------


def recalls(**ids: str) -> list[Recall]:
    return [Recall(f"r-{query}", query, "f", 0, "m", list(of), [0.0] * len(of)) for query, of in ids.items()]


def prelabelled(
    recalls: list[Recall],
    texts: dict[str, str],
    fp: str = "f",
    scorer: str = "s",
    earlier: Any = (),
    scores: Any = None,
) -> tuple[list[Prelabel], list[tuple[str, str]]]:
    """The rows, and the pairs that a re-ranker was asked about, which scores a pair by its lengths."""
    unscored = Unscored.of(recalls, {"q1": "x", "q2": "yy"}, texts.__getitem__, scorer, earlier)
    given = [len(query) + len(text) / 128 for query, text in unscored.pairs] if scores is None else scores
    return unscored.rows(np.asarray(given, np.float32), "m", 0, fp, scorer), unscored.pairs


def test_scores_go_to_their_own_query_and_are_taken_over_for_pairs_that_stayed() -> None:
    texts = {"a": "one", "b": "two two", "c": "three"}
    first, _ = prelabelled(recalls(q1="ab", q2="a"), texts)
    assert [(row.parent, row.ids, row.scores) for row in first] == [
        ("q1", ["a", "b"], [1.023438, 1.054688]), ("q2", ["a"], [2.023438]),
    ]  # fmt: skip
    # The corpus grew by c, and b was edited: only what is new is asked, under the new row's own order.
    texts["b"], after = "two, edited", recalls(q1="cba", q2="a")
    second, asked = prelabelled(after, texts, "g", earlier=first)
    assert asked == [("x", "three"), ("x", "two, edited")]
    assert second == prelabelled(after, texts, "g")[0]
    assert len(prelabelled(after, texts, "g", "another", first)[1]) == 4  # another scorer's rows say nothing


def test_scores_that_are_kept_are_not_asked_for_and_give_the_same_rows() -> None:
    texts = {"a": "one", "b": "two two"}
    kept = KeptScores(most=2)
    kept.keep(
        0, SimpleNamespace(alone=True), [("", "ab"), ("x", "one"), ("x", "two two")], np.float32([9, 1.0234376, 2])
    )
    kept.keep(0, SimpleNamespace(), [("yy", "one")], np.zeros(1, np.float32))
    assert kept.find(0, "", "ab") is None and kept.find(1, "x", "one") is None  # forgotten; another re-ranker
    find = lambda query, text: kept.find(0, query, text) if text == "one" else None  # noqa: E731
    unscored = Unscored.of(recalls(q1="ab", q2="a"), {"q1": "x", "q2": "yy"}, texts.__getitem__, kept=find)
    assert unscored.pairs == [("x", "two two"), ("yy", "one")] and unscored.size == 3
    rows = unscored.rows(np.asarray([1 + 7 / 128, 2 + 3 / 128], np.float32), "m", 0, "f", "s")
    assert rows == prelabelled(recalls(q1="ab", q2="a"), texts)[0]


@pytest.mark.parametrize("scores", [[1.0], [1.0, float("nan")], [1.0, float("inf")], [1.0, 2.0, 3.0]])
def test_broken_rerankers_are_refused(scores: list[float]) -> None:
    with pytest.raises(ModelError, match="re-ranker m"):
        prelabelled(recalls(q1="ab"), {"a": "", "b": "b"}, scores=scores)


# -- answers of judges ------------------------------------------------------------------------------------------------


def read(kind: Any, text: str, logprobs: str = "") -> Verdict | None:
    found = kind().read(Answer("k", "s", "m", "e", text, logprobs=logprobs), PromptSet().get("judge"), 0.5)
    return found if isinstance(found, Verdict) else None


@pytest.mark.parametrize(
    ("text", "level"),
    [("2", 2), ("2.", 2), (" 3\n", 3), ("Relevance: 3", 3), ("- 0", 0), ("**1**", 1), ("2 (somewhat)", 2),
     ("3 out of 3", 3),
     ("4", None), ("", None), ("I cannot judge this", None), ("between 1 and 2", None),
     ("2.5", None), ("10", None)],
)  # fmt: skip
def test_levels_are_read_from_what_judges_write(text: str, level: int | None) -> None:
    assert read(Levels, text) == (None if level is None else Verdict(level))


def test_yes_and_no_are_summed_over_their_spellings_and_cut_into_levels() -> None:
    # e^-1 + e^-2 = .5032 for yes, e^-1.5 = .2231 for no: .5032 / .7263 = .6928
    spelled = '[[["Yes", -1.0], [" yes", -2.0], ["NO", -1.5], ["Maybe", -0.1]]]'
    found = read(YesNo, "Maybe", spelled)
    assert found is not None and (found.level, found.probability) == (2, pytest.approx(0.69283, abs=1e-4))
    assert read(YesNo, "Yes, it does") == Verdict(3, 1.0) and read(YesNo, "no.") == Verdict(0, 0.0)
    assert read(YesNo, "Perhaps") is None
    cuts = [0.0, 0.19, 0.2, 0.39, 0.4, 0.69, 0.7, 1.0]
    assert [level_of_probability(value, 0.4) for value in cuts] == [0, 0, 1, 1, 2, 2, 3, 3]


# -- mined negatives --------------------------------------------------------------------------------------------------


MINED = [f"d{number:03}" for number in range(1, 201)]  # d001 is recalled first
TITLES = {id_: f"title of {id_}" for id_ in MINED}


def decision(id_: str, level: int | None, action: str = "ignore") -> Decision:
    return Decision(id_, "q", "f", 0, id_, action, "", level)


def mined(
    decisions: list[Decision] | None = None, voted: tuple[str, ...] = (), recalled: list[str] = MINED, **changes: Any
) -> list[HardNegative]:
    """What is mined when one re-ranker puts `voted` on top, and nothing else within its thresholds."""
    order = dict.fromkeys([*voted, *(f"neg-{number}" for number in range(20 - len(voted))), *recalled])
    given: dict[str, Any] = {"ranks": (10, 100), "count": 5, "relevant_from": 2, "thresholds": Thresholds()}
    return mine(
        Recall("r", "q", "f", 0, "m", recalled, [1.0] * len(recalled)),
        changes.pop("prelabels", [changes.pop("prelabel", ranking(list(order)))]),
        {row.id: row for row in decisions or ()}, TITLES, fingerprint="fp", **{**given, **changes},
    )  # fmt: skip


def ids(rows: list[HardNegative]) -> list[str]:
    return [row.id for row in rows]


def test_rows_are_numbered_named_as_mined_and_carry_no_text() -> None:
    rows = mined(count=3)
    assert [(row.parent, row.ordinal, row.id, row.origin, row.text, row.title) for row in rows] == [
        ("q", place, id_, "mined", "", f"title of {id_}") for place, id_ in enumerate(["d010", "d011", "d012"], 1)
    ]
    assert len({row.key for row in rows}) == 3


RELEVANT = [
    decision("d010", 3, "add_positive"),
    decision("d011", 2, "keep_query"),
    decision("d012", 2),  # relevant, and dropped with its document
    decision("d013", None, "keep_negative"),
    decision("d001", 1, "add_positive"),  # by another cut between levels
]
NOT_RELEVANT = [decision("d002", 1), decision("d150", 0), decision("d011", 1)]


@pytest.mark.parametrize(
    ("found", "given"),
    [
        ("d010 d011 d012 d013 d014", {}),
        ("d099 d100", {"ranks": (99, 100)}),  # the window has its first and its last rank
        ("d001 d002", {"ranks": (1, 2)}),
        ("", {"ranks": (300, 400)}),
        ("d002 d011 d150 d010 d012", {"decisions": NOT_RELEVANT}),  # judged ones first, at any rank
        # And of these, those that most re-rankers rank high.
        ("d150 d002 d011 d010 d012", {"decisions": NOT_RELEVANT, "prelabels": [ranking(["d150", *MINED[:149]])] * 2}),
        # Rank 10 is d010, since neg-x came in front and d009 is not recalled.
        ("d016 d017", {"decisions": RELEVANT, "voted": ("d014",), "recalled": ["neg-x", *MINED[:8], *MINED[9:]],
                       "ranks": (10, 17), "count": 9, "never": {"d015"}}),
        ("d001", {"decisions": [decision("d001", 2)], "count": 1, "relevant_from": 3}),
        ("d010", {"decisions": [decision("d001", 2)], "count": 1}),
        # A vote is a place within the threshold of other documents.
        ("d011", {"prelabel": ranking(MINED), "ranks": (1, 100), "count": 1}),
        ("d004", {"prelabel": ranking(MINED), "ranks": (1, 100), "count": 1,
                  "thresholds": Thresholds(hard_negative=40, other=3)}),
    ],
)  # fmt: skip
def test_what_is_mined(found: str, given: dict[str, Any]) -> None:
    assert ids(mined(**given)) == found.split()


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.dictionaries(st.sampled_from(MINED[:30]), st.integers(0, 3), max_size=10),
    st.sets(st.sampled_from(MINED[:30]), max_size=8),
    st.integers(0, 8),
)
def test_never_too_many_never_twice_never_relevant(levels: dict[str, int], voted: set[str], count: int) -> None:
    found = [decision(id_, level) for id_, level in levels.items()]
    rows, fewer = (
        mined(found, voted=tuple(sorted(voted)), count=max(0, some), ranks=(3, 25)) for some in (count, count - 1)
    )
    assert len(rows) <= count and len(set(ids(rows))) == len(rows)
    for id_ in ids(rows):
        assert levels.get(id_, 0) < 2
        assert id_ in levels or (id_ not in voted and "d003" <= id_ <= "d025")
    assert rows[: len(fewer)] == fewer  # one more keeps those there were

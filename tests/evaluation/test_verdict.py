"""The last line of a comparison: never fewer queries than there are, where more are what is missing."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from airgen.dataset.human_labels import CONFIRMED
from airgen.evaluation import verdict
from airgen.evaluation.significance import compare
from airgen.evaluation.verdict import Advice, advise, pair_sentence, verdict_of, whole_verdict


def said(*rows: list[float]) -> str:
    scores = np.array(rows)
    return verdict_of(compare(["one", "other", "third"][: len(rows)], scores), scores.shape[1], "raise `target`")


def test_few_queries_need_more_of_them() -> None:
    # A t-test asks for three queries of such a difference; no permutation of four can be certain of it.
    text = said([0.9, 1.0, 0.8, 0.9], [0.1, 0.2, 0.1, 0.0])
    assert text == (
        "4 queries are too few to rank systems (at least 25, better 50: raise `target`); 0 of 1 pairs of systems "
        "differ significantly; a few more (5 to 5) would separate one from other (raise `target`)"
    )


def test_what_else_it_says() -> None:
    draw = np.random.default_rng(3)
    base = draw.random(60)
    assert said(list(base), list(base + draw.normal(0.002, 0.1, 60))).startswith("0 of 1 pairs")
    assert "about " in said(list(base), list(base + draw.normal(0.01, 0.1, 60)))
    assert said(list(base), list(base - 0.3)) == (
        "60 queries are enough, if their labels are right: all pairs of systems differ significantly"
    )
    assert said([0.5, 0.5], [0.5, 0.5]).endswith("have equal scores")
    assert said([0.5, 0.5]) == "at least two systems are needed for a comparison"


def test_the_number_of_queries_has_an_interval_whose_end_is_in_words() -> None:
    draw = np.random.default_rng(8)
    base = draw.random(60)
    close = compare(["a", "b"], np.array([base, base + draw.normal(0.004, 0.1, 60)]))
    (pair,) = close.pairs
    assert (
        pair.needed_low and pair.queries_needed and pair.needed_low < pair.queries_needed and pair.needed_high is None
    )
    small, large = (verdict_of(close, 60, "raise `target`", passages) for passages in (pair.queries_needed - 1, 10**6))
    assert "more queries than this corpus has (at least " in small and f"{pair.queries_needed:,}" not in small
    alone = pair_sentence(pair, "nDCG@10", 60, "raise `target`", pair.queries_needed - 1)
    assert f"(at least {max(pair.needed_low, 61):,}) would separate" in alone and "queries queries" not in alone
    assert f"about {pair.queries_needed:,} (" in large and "to more than this corpus has)" in large
    far = compare(["a", "b"], np.array([base, base + draw.normal(0.1, 0.15, 60)])).pairs[0]
    assert far.needed_low and far.needed_high and far.queries_needed
    assert far.needed_low <= far.queries_needed <= far.needed_high < 200


def test_a_rank_says_the_same_as_the_pairs() -> None:
    """A system has as many places as systems that it does not differ from significantly, and its own."""
    draw = np.random.default_rng(4)
    base = draw.random(40)
    rows = [base + draw.normal(at * 0.02, 0.12, 40) for at in range(8)]
    found = compare([f"s{at}" for at in range(8)], np.array(rows))
    assert any(found.together) and not all(len(each) == 7 for each in found.together)
    assert [high - low for low, high in found.ranks] == [len(each) for each in found.together]
    for at, (low, high) in enumerate(found.ranks):
        assert low <= at + 1 <= high


@pytest.fixture
def advice(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what may be said about systems, given as {name: (mean gain over a base, facts)}."""
    draw = np.random.default_rng(1)

    def of(systems: dict[str, tuple[float, dict[str, Any]]], queries: int = 80) -> Advice:
        base = draw.random(queries) * 0.5
        rows = {name: base + gain + draw.normal(0, 0.05, queries) for name, (gain, _) in systems.items()}
        results: list[Any] = [
            SimpleNamespace(
                name=name,
                headline="nDCG@10",
                queries=queries,
                score=float(rows[name].mean()),
                made_labels=facts.get("made_labels", ()),
                notes=facts.get("notes", {}),
                means={"Judged@10": facts.get("judged", 1.0)},
            )
            for name, (_, facts) in systems.items()
        ]
        monkeypatch.setattr(
            verdict, "as_matrix", lambda chosen, _: ([], np.array([rows[each.name] for each in chosen]))
        )
        return advise(results, more="label more")

    return of


def test_two_systems_are_named_with_their_difference(advice: Any) -> None:
    better = advice({"current": (0.0, {}), "hybrid": (0.1, {})})
    assert better.sentence.startswith("hybrid is better than current on 80 queries: nDCG@10 +0.1")
    assert "(95 %: +0." in better.sentence and better.use == "hybrid" and better.open is None
    unclear = advice({"current": (0.0, {}), "hybrid": (0.002, {})})
    assert "cannot tell whether" in unclear.sentence and "queries would separate" in unclear.sentence
    assert not unclear.use and {unclear.open.first, unclear.open.second} == {"current", "hybrid"}
    few = advice({"current": (0.0, {}), "hybrid": (0.1, {})}, queries=12)
    assert few.sentence.startswith("12 queries are too few to rank systems") and not few.use


def test_a_system_that_made_the_labels_is_never_advised(advice: Any) -> None:
    """It does not enter the comparison of the others either, which is corrected for what was asked alone."""
    marked = {"made_labels": ("bm25",)}
    found = advice({"bm25": (0.3, marked), "current": (0.0, {}), "hybrid": (0.1, {})})
    assert found.use == "hybrid" and found.sentence.startswith("hybrid is better than current")
    assert "bm25 ranks first, but helped to make the labels (†): do not choose it" in found.sentence
    alone = advice({"bm25": (0.3, marked), "hybrid": (0.1, {})})
    assert not alone.use and "hybrid is the only one of 2 systems that can be chosen" in alone.sentence


def test_pages_are_not_compared_with_passages_and_unjudged_hits_are_said(advice: Any) -> None:
    pages = {"notes": {"pages_taken_as_sections": 9}}
    found = advice({"current": (0.0, pages), "hybrid": (0.1, pages), "bm25": (0.3, {})})
    assert found.use == "hybrid" and "hits of current and hybrid are pages: do not compare with bm25" in found.sentence
    holes = advice({"current": (0.0, {"judged": 0.24}), "hybrid": (0.1, {"judged": 0.3})})
    assert not holes.use and holes.unjudged == ("current", "hybrid")
    assert "at least 70% of the top ten hits of current and hybrid are unjudged" in holes.sentence


def test_a_failed_audit_stands_until_people_have_checked_the_new_labels() -> None:
    failed = {CONFIRMED: "0.40 (0.21–0.59), 20 of 41"}
    said = whole_verdict("a is better", None, ". Check again", failed)
    assert said.startswith("do not rely on these scores yet: before the labels last changed, people confirm 20 of 41")
    assert said.endswith("a is better. Check again")
    good = {CONFIRMED: "0.95 (0.90–0.99), 39 of 41"}
    assert not whole_verdict("a is better", good, "", failed).startswith("do not rely")

"""The last line of a comparison: never fewer queries than there are, where more are what is missing."""

import numpy as np

from airgen.evaluation.significance import compare
from airgen.evaluation.verdict import verdict_of


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

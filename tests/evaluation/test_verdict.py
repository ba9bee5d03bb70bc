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
        "0 of 1 pairs of systems are told apart by 4 queries; a few more would tell one from other (raise `target`)"
    )


def test_what_else_it_says() -> None:
    draw = np.random.default_rng(3)
    base = draw.random(60)
    assert said(list(base), list(base + draw.normal(0.002, 0.1, 60))).startswith("0 of 1 pairs")
    assert "about " in said(list(base), list(base + draw.normal(0.01, 0.1, 60)))
    assert said(list(base), list(base - 0.3)) == "60 queries are enough: every pair of these systems is told apart"
    assert said([0.5, 0.5], [0.5, 0.5]).endswith("have equal scores")
    assert said([0.5, 0.5]) == "one system is no comparison: name more"

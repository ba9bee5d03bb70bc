"""Telling queries without an answer: figures by hand, against pairs counted one by one, and in a whole evaluation."""

import json

import pytest
from beir_folder import write_beir
from hypothesis import given
from hypothesis import strategies as st

from airgen.evaluation import EvaluationOptions, SystemSettings, evaluate
from airgen.evaluation.breakdown import refusal
from airgen.evaluation.run import run_from_dict


def run_of(tops):
    return run_from_dict({key: {"p1": top, "p2": top - 1} for key, top in tops.items()})


def test_by_hand():
    run = run_of({"a": 5.0, "b": 3.0, "c": 2.0, "x": 3.0, "y": 1.0})
    found = refusal(run, ["a", "b", "c"], ["x", "y"])
    # Pairs: a above both, b ties with x and is above y, c is above y only.
    assert found["auroc"] == pytest.approx((2 + 1.5 + 1) / 6)
    # Nothing may be refused of three queries, so the lowest best score is the threshold.
    assert (found["threshold"], found["false_refusals"], found["false_hits"]) == (2.0, 0.0, 0.5)
    # DeLong: variances of the placements (1, .75, .5) and (.5, 1) over their numbers.
    error = (0.0625 / 3 + 0.125 / 2) ** 0.5
    assert found["auroc_low"] == pytest.approx(found["auroc"] - 1.96 * error)
    assert found["auroc_high"] == 1.0
    assert refusal(run, ["a"], []) == {}


def test_five_percent_may_be_refused_and_a_query_without_hits_is():
    tops = {f"a{at}": float(at) for at in range(40)}
    found = refusal(run_of({**tops, "x": 1.5}), tops, ["x"])
    assert (found["threshold"], found["false_refusals"], found["false_hits"]) == (2.0, 0.05, 0.0)
    # Queries without any hit are below every threshold: an empty answer is a refusal.
    empty = refusal(run_of({"a": 1.0}), ["a", "lost"], ["x"])
    assert (empty["false_refusals"], empty["false_hits"], empty["auroc"]) == (0.5, 0.0, 0.75)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_against_counting(asked, empty):
    tops = {f"a{at}": float(top) for at, top in enumerate(asked)} | {
        f"x{at}": float(top) for at, top in enumerate(empty)
    }
    found = refusal(run_of(tops), [f"a{at}" for at in range(len(asked))], [f"x{at}" for at in range(len(empty))])
    wins = sum((one > two) + (one == two) / 2 for one in asked for two in empty)
    assert found["auroc"] == pytest.approx(wins / len(asked) / len(empty))
    assert found["false_refusals"] == sum(one < found["threshold"] for one in asked) / len(asked) <= 0.05
    assert sum(one <= found["threshold"] for one in asked) / len(asked) > 0.05  # no higher threshold is allowed


def test_evaluate_searches_unanswered_queries_and_means_do_not_change(tmp_path):
    corpus = [{"_id": f"p{at}", "text": text} for at, text in enumerate(
        ["bees make honey in hives", "bridges carry trains over rivers", "glaciers grind valleys slowly"]
    )]  # fmt: skip
    asked = [
        {"_id": "q1", "text": "honey of bees", "metadata": {"split": "test", "answered": True}},
        {"_id": "q2", "text": "trains over bridges", "metadata": {"split": "test", "answered": True}},
    ]
    unasked = [
        {"_id": "x1", "text": "violin strings", "metadata": {"split": "test", "answered": False}},
        {"_id": "x2", "text": "valleys of the moon", "metadata": {"split": "test", "answered": False}},
        {"_id": "x3", "text": "honey", "metadata": {"split": "dev", "answered": False}},
    ]
    labels = {"test": [("q1", "p0", 1), ("q2", "p1", 1)]}
    plain = write_beir(tmp_path / "plain", corpus, asked, labels, name="plain")
    marked = write_beir(tmp_path / "marked", corpus, [*asked, *unasked], labels, name="marked")
    systems = [SystemSettings(name="bm25", kind="bm25")]
    (without,) = evaluate(plain, systems, tmp_path / "out", EvaluationOptions())
    (found,) = evaluate(marked, systems, tmp_path / "out", EvaluationOptions())
    assert without.refusal == {} and found.means == without.means
    assert (found.queries, found.unjudged, found.missing) == (2, 0, 0)
    assert (found.refusal["queries"], found.refusal["auroc"], found.refusal["false_hits"]) == (2, 1.0, 0.0)
    report = (tmp_path / "out" / "marked" / "test" / "report.md").read_text()
    assert "## Queries without an answer" in report
    assert "without an answer" not in (tmp_path / "out" / "plain" / "test" / "report.md").read_text()
    (again,) = evaluate(marked, systems, tmp_path / "out", EvaluationOptions())
    assert again.cached and again.refusal == found.refusal
    kept = json.loads((tmp_path / "out" / "marked" / "test" / "bm25.json").read_text())
    assert kept["refusal"]["queries"] == 2

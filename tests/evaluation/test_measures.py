"""Measures against trec_eval's own code (pytrec_eval), BEIR's own functions, and figures worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airgen.errors import UsageError
from airgen.evaluation.measures import AIR_BENCH, Measure, parse_measure, parse_measures, score
from airgen.evaluation.run import run_from_dict

# Ours -> trec_eval's.
ORACLE = {"nDCG": "ndcg", "AP": "map", "RR": "recip_rank", "Success@1": "success_1", "Success@10": "success_10"}
ORACLE |= {f"nDCG@{k}": f"ndcg_cut_{k}" for k in (1, 3, 10)} | {f"AP@{k}": f"map_cut_{k}" for k in (3, 10)}
ORACLE |= {f"P@{k}": f"P_{k}" for k in (1, 3, 10)} | {f"Recall@{k}": f"recall_{k}" for k in (1, 3, 10)}
IDS = [f"d{number}" for number in range(14)] + ["D", "é", "中", "𝔸", "z z"]


def trec_eval(run, qrels):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    names = {"ndcg_cut.1,3,10", "ndcg", "map", "map_cut.3,10", "recip_rank", "P.1,3,10", "recall.1,3,10"}
    # It crashes or hangs on a query without hits, and on one whose labels are all negative; both score zero.
    usable = {query: labels for query, labels in qrels.items() if max(labels.values()) >= 0}
    evaluator = pytrec_eval.RelevanceEvaluator(usable, names | {"success.1,10"})
    return evaluator.evaluate({query: hits for query, hits in run.items() if hits and query in usable})


def assert_equal_to_trec_eval(run, qrels):
    expected = trec_eval(run, qrels)
    scores = score(run_from_dict(run), qrels, parse_measures(" ".join(ORACLE)))
    for measure, values in zip(scores.measures, scores.values, strict=True):
        for query, value in zip(scores.query_ids, values, strict=True):
            wanted = expected.get(query, {}).get(ORACLE[str(measure)], 0.0)  # missing queries count as zero
            assert value == pytest.approx(wanted, abs=1e-6), (str(measure), query)


# Few distinct scores make ties; the last three differ as doubles and are equal as float32.
SCORES = st.sampled_from([1.0, 0.5, -2.0, 0.0, -0.0, 1e-30, 16777216.0, 16777217.0, 0.1, 0.10000000001])
RUNS = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3", "d3", "é"]), st.dictionaries(st.sampled_from(IDS), SCORES), min_size=1
)
QRELS = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3", "d3", "q9"]),
    st.dictionaries(st.sampled_from([*IDS, "unseen"]), st.integers(-1, 4), min_size=1),
    min_size=1,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RUNS, QRELS)
def test_equal_to_trec_eval_on_adversarial_runs(run, qrels):
    assert_equal_to_trec_eval(run, qrels)


def test_equal_to_trec_eval_on_large_random_runs():
    random = np.random.default_rng(7)
    ids = np.array([f"doc{number}" for number in range(3000)])
    run, qrels = {}, {}
    for number in range(60):
        depth = int(random.integers(1, 1000))
        hits = random.choice(ids, depth, replace=False).tolist()
        run[f"q{number}"] = dict(zip(hits, random.integers(0, 50, depth) / 7.0, strict=True))
        judged = random.choice(ids, 40, replace=False).tolist()
        qrels[f"q{number + 5}"] = dict(zip(judged, random.integers(-1, 4, 40).tolist(), strict=True))
    assert_equal_to_trec_eval(run, qrels)


def test_relevance_level_is_trec_evals():
    pytrec_eval = pytest.importorskip("pytrec_eval")
    qrels = {"q": {"a": 1, "b": 2, "c": 3, "d": 0}}
    run = {"q": {"a": 4.0, "b": 3.0, "x": 2.0, "c": 1.0}}
    expected = pytrec_eval.RelevanceEvaluator(qrels, {"map", "recip_rank"}, relevance_level=2).evaluate(run)["q"]
    means = score(run_from_dict(run), qrels, "AP(rel=2) RR(rel=2) P(rel=2)@4").means()
    assert means["AP(rel=2)"] == pytest.approx(expected["map"], abs=1e-6)
    assert means["RR(rel=2)"] == pytest.approx(expected["recip_rank"], abs=1e-6)
    assert means["P(rel=2)@4"] == 0.5


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["q1", "q2", "q3"]), st.permutations([f"d{number}" for number in range(12)]), min_size=1
    ),
    st.dictionaries(
        st.sampled_from(["q1", "q2", "q3"]),
        st.dictionaries(st.sampled_from([f"d{number}" for number in range(12)]), st.integers(1, 2), min_size=1),
        min_size=3,
    ),
)
def test_equal_to_beir_for_capped_recall_hole_and_mrr(orders, qrels):
    beir = pytest.importorskip("beir.retrieval.custom_metrics", reason="beir is not installed")
    run = {query: {hit: -float(rank) for rank, hit in enumerate(hits)} for query, hits in orders.items()}
    means = score(run_from_dict(run), qrels, "R_cap@1 R_cap@5 R_cap@20 Hole@1 Hole@5 Hole@20 RR@1 RR@5").means()
    expected = (
        beir.recall_cap(qrels, run, [1, 5, 20])
        | beir.hole(qrels, run, [1, 5, 20])
        | {name.replace("MRR", "RR"): value for name, value in beir.mrr(qrels, run, [1, 5]).items()}
    )
    for name, value in expected.items():
        assert means[name] == pytest.approx(value, abs=1e-5), name  # BEIR rounds to five digits


def test_worked_by_hand():
    qrels = {"q": {"a": 3, "b": 1, "c": 0, "d": 2}, "missing": {"a": 1}, "nothing": {"a": 0}, "empty": {"a": 1}}
    run = run_from_dict({"q": {"x": 9.0, "a": 8.0, "c": 7.0, "d": 6.0}, "nothing": {"a": 1.0}, "extra": {"a": 1.0},
                         "empty": {}})  # fmt: skip
    scores = score(run, qrels, "nDCG@3 AP RR P@4 Recall@4 R_cap@2 R_cap@4 Hole@4 Judged@4")
    by_name = {str(measure): row[0] for measure, row in zip(scores.measures, scores.values, strict=True)}
    ideal = 3 + 2 / math.log2(3) + 1 / 2
    assert by_name == pytest.approx(
        {"nDCG@3": (3 / math.log2(3)) / ideal, "AP": (1 / 2 + 2 / 4) / 3, "RR": 0.5, "P@4": 0.5, "Recall@4": 2 / 3,
         "R_cap@2": 0.5, "R_cap@4": 2 / 3, "Hole@4": 0.25, "Judged@4": 0.75}
    )  # fmt: skip
    assert (scores.missing, scores.unjudged, scores.without_relevant) == (2, 1, 1)
    assert scores.means()["RR"] == pytest.approx(0.5 / 4)  # the denominator is the qrels' four queries
    with pytest.raises(UsageError, match="AP@3 was not computed"):
        scores.of("AP@3")


SOFT = (0.25 + 0.75 / math.log2(3)) / (0.75 + 0.25 / math.log2(3))


@pytest.mark.parametrize(
    ("hits", "labels", "expected"),
    [
        ({"a": 1.0, "b": 1.0}, {"b": 1}, {"P@1": 1.0}),  # ties go to the larger id
        ({"c": 1.0, "b": 1.0 + 1e-12}, {"b": 1}, {"P@1": 0.0}),  # scores are float32
        ({"a": 2.0, "b": 1.0}, {"b": 1}, {"RR": 0.5}),
        ({"q": 2.0, "b": 1.0}, {"b": 1}, {"RR": 1.0}),  # the query's own id is left out, because this is asked for
        ({"a": 2.0, "b": 1.0}, {"a": 0.25, "b": 0.75}, {"nDCG@10": SOFT, "Recall@10": 1.0, "Recall(rel=0.5)@1": 0.0}),
    ],
)
def test_rules(hits, labels, expected):
    means = score(run_from_dict({"q": hits}), {"q": labels}, " ".join(expected), ignore_identical_ids=True).means()
    assert means == pytest.approx(expected)
    if "q" in hits:
        assert score(run_from_dict({"q": hits}), {"q": labels}, "RR").means() == {"RR": 0.5}


def test_nothing_to_score():
    with pytest.raises(UsageError, match="the qrels are empty"):
        score(run_from_dict({"q": {"a": 1.0}}), {}, "AP")
    scores = score(run_from_dict({}), {"q": {"a": 1}, "r": {"b": 1}}, "nDCG@10 Hole@5 RR")
    assert not scores.values.any() and scores.missing == 2


def test_many_blocks_give_the_same_as_one():
    # More than 2^22 (query, passage) cells are looked up in several blocks; this test has 40 x 140,000.
    wide = {f"q{number}": {f"d{number * 7919 % 140000}": 1.0, f"d{number}": 0.5} for number in range(40)}
    filler = {"filler": {f"d{number}": float(-number) for number in range(140000)}}
    qrels = {query: {next(iter(hits)): 2, "d3": 1} for query, hits in wide.items()}
    narrow = score(run_from_dict(wide), qrels, "nDCG@10 AP")
    broad = score(run_from_dict(wide | filler), qrels, "nDCG@10 AP")
    assert np.array_equal(narrow.values, broad.values)
    assert narrow.of("nDCG@10").min() > 0


@pytest.mark.parametrize(
    ("text", "measure"),
    [
        ("nDCG@10", Measure("nDCG", 10)),
        ("ndcg_cut@5", Measure("nDCG", 5)),
        ("MRR@10", Measure("RR", 10)),
        ("map", Measure("AP")),
        ("recip_rank", Measure("RR")),
        ("R@100", Measure("Recall", 100)),
        *((f"{name}@100", Measure("R_cap", 100)) for name in ("r_cap", "recall_cap", "rcap")),
        ("map_cut@3", Measure("AP", 3)),
        ("precision@3", Measure("P", 3)),
        ("Recall(rel=2)@10", Measure("Recall", 10, 2.0)),
    ],
)
def test_names_and_aliases(text, measure):
    assert parse_measure(text) == measure
    assert parse_measure(str(measure)) == measure


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("nDGC@10", "nDCG"),
        ("Recal@10", "Recall"),
        ("P", "P@10"),
        ("nDCG@0", "cutoff"),
        ("Hole(rel=1)@5", "no rel="),
        ("", "unknown"),
        ("nDCG@x", "unknown"),
    ],
)
def test_a_wrong_measure_says_what_was_meant(text, hint):
    with pytest.raises(UsageError, match=hint.replace("(", r"\(")):
        parse_measure(text)


def test_several_measures_each_once():
    assert len(AIR_BENCH) == 35 and {one.cutoff for one in AIR_BENCH} == {1, 3, 5, 10, 50, 100, 1000}
    assert [str(measure) for measure in parse_measures("nDCG@10, AP  nDCG@10")] == ["nDCG@10", "AP"]
    with pytest.raises(UsageError):
        parse_measures(" , ")

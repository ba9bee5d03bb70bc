"""The ranking by the labels against that by the sources alone: worked by hand, and where it is told."""

import json

import pytest
from beir_folder import write_beir

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError
from airgen.evaluation.run import run_from_dict, write_run
from airgen.evaluation.verdict import FEWEST
from airgen.studies.inspect.checks import CHECKS
from airgen.studies.inspect.inspect_dataset import inspect_dataset
from airgen.studies.label_sets import ALIKE, UNLIKE, label_sets, label_sets_of, sources_of

QUERIES = [f"q{place}" for place in range(FEWEST)]
LABELS = {key: {f"s-{key}": 1.0, f"x-{key}": 1.0, f"y-{key}": 1.0} for key in QUERIES}
# Each system's hits of each query: s is the source; x and y are what quality control added.
HITS = {"a": "snmkl", "b": "nsmxy", "c": "xysnm"}


def runs(**hits):
    return {
        name: run_from_dict({key: {f"{one}-{key}": 9.0 - at for at, one in enumerate(order)} for key in QUERIES})
        for name, order in hits.items()
    }


@pytest.fixture
def folder(tmp_path):
    """A generated dataset with its lineage."""
    passages = [{"_id": f"{one}-{key}", "text": f"text {one} {key}"} for one in "snmklxy" for key in QUERIES]
    queries = [{"_id": key, "text": f"question {key}"} for key in QUERIES]
    labels = [(key, id_, 1) for key, row in LABELS.items() for id_ in row]
    folder = write_beir(tmp_path / "made", passages, queries, {"test": labels})
    rows = [{"query": key, "positive": f"s-{key}", "source": f"inner-{key}"} for key in QUERIES]
    (folder / "private").mkdir()
    (folder / "private" / "lineage.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_opposite_rankings_by_hand(folder):
    found = label_sets(BeirDataset.open(folder), LABELS, runs(**HITS), "nDCG@10")
    # The source alone: a 1, b .63, c .5. With x and y: a .47, b .71 and c 1.
    assert (found.systems, found.queries, found.positives) == (3, 25, 3.0)
    assert (found.spearman.value, found.spearman.low, found.spearman.high) == pytest.approx((-1, -1, -1))
    assert found.differ and found.moved == ("a", 3.0, 1.0)
    assert "differently: Spearman -1.00 [-1.00, -1.00]" in found.sentence
    assert "a is number 3 by the labels and number 1 by the sources" in found.sentence


def test_the_same_rankings_are_no_warning(folder):
    found = label_sets(BeirDataset.open(folder), LABELS, runs(a="nmkls", b="nmsxk", c="sxynm"), "nDCG@10")
    assert found.spearman.value == pytest.approx(1) and not found.differ
    assert "alike" in found.sentence and "audit" not in found.sentence


@pytest.mark.parametrize(
    "case", ["two systems", "24 queries", "no lineage", "nothing added", "all alike", "other queries"]
)
def test_nothing_is_said_where_nothing_can_be_compared(folder, case):
    labels, hits = LABELS, dict(HITS)
    if case == "two systems":
        del hits["c"]
    if case == "24 queries":
        labels = {key: LABELS[key] for key in QUERIES[1:]}
    if case == "no lineage":
        (folder / "private" / "lineage.jsonl").unlink()
    if case == "nothing added":
        labels = {key: {f"s-{key}": 1.0, f"x-{key}": 0.0} for key in QUERIES}
    if case == "all alike":
        hits = dict.fromkeys("abc", "snmkl")
    if case == "other queries":
        labels = {"other": {"x-q0": 1.0}}
    assert label_sets(BeirDataset.open(folder), labels, runs(**hits), "nDCG@10") is None


def test_runs_are_not_read_for_a_dataset_without_sources(folder):
    (folder / "private" / "lineage.jsonl").unlink()
    assert label_sets_of(BeirDataset.open(folder), "test", [object()] * 3) is None


def test_queries_of_two_passages_have_two_sources(folder):
    path = folder / "private" / "lineage.jsonl"
    path.write_text(json.dumps({"query": "q0", "positive": "s-q0", "second": "n-q0"}) + "\n")
    assert sources_of(BeirDataset.open(folder)) == {"q0": {"s-q0": 1.0, "n-q0": 1.0}}


def test_a_broken_lineage_is_named(folder):
    (folder / "private" / "lineage.jsonl").write_text("{")
    with pytest.raises(DatasetError, match=r"lineage\.jsonl"):
        sources_of(BeirDataset.open(folder))


def test_inspect_calls_it_a_fault(folder, tmp_path):
    kept = tmp_path / "runs"
    kept.mkdir()
    for name, run in runs(**HITS).items():
        write_run(kept / f"{name}.run.gz", run, name)
    (one,) = [one for one in inspect_dataset(folder, out=tmp_path, results=kept).findings if one.name == "label sets"]
    assert (one.state, one.value) == ("bad", pytest.approx(-1))
    assert "number 3 by the labels" in one.detail
    assert (CHECKS["label sets"].doubtful_from, CHECKS["label sets"].fault_from) == (ALIKE, UNLIKE)
    (folder / "private" / "lineage.jsonl").unlink()
    (one,) = [one for one in inspect_dataset(folder, out=tmp_path, results=kept).findings if one.name == "label sets"]
    assert one.state == "unknown"

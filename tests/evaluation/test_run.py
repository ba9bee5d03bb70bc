"""Runs: ranking, TREC files there and back, and files that are wrong."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from child import finish
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airgen.errors import DatasetError
from airgen.evaluation.run import read_run, run_from_dict, run_from_hits, write_run
from airgen.retrievers.base import Hits

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
WORDS = st.text(st.characters(exclude_categories=("Z", "C")), min_size=1, max_size=4)
RESULTS = st.dictionaries(WORDS, st.dictionaries(WORDS, FLOATS, max_size=8), max_size=5)


def ranked(run):
    return {query: [passage for passage, _ in hits] for query, hits in run.ranked().items()}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RESULTS)
def test_ranking_is_score_then_id_both_descending(results):
    expected = {
        query: [key for key, _ in sorted(hits.items(), key=lambda hit: (hit[1], hit[0]), reverse=True)]
        for query, hits in results.items()
    }
    run = run_from_dict(results)
    assert ranked(run) == expected
    again = run.ranked()
    assert again.ranked() is again  # what is in order is left alone


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RESULTS.filter(lambda results: any(results.values())), st.sampled_from(["r.run", "r.run.gz"]))
def test_a_written_run_reads_back_with_the_same_float32(tmp_path_factory, results, name):
    path = tmp_path_factory.mktemp("runs") / name
    run = run_from_dict(results)
    write_run(path, run, "tag with spaces")
    back = read_run(path)
    kept = {query: {p: float(np.float32(s)) for p, s in hits.items()} for query, hits in results.items() if hits}
    assert {query: dict(hits) for query, hits in back.items()} == kept
    assert back.notes["unsorted_queries"] == 0
    first = path.read_bytes()
    write_run(path, back, "tag with spaces")
    assert path.read_bytes() == first


def test_ids_with_spaces_survive_and_tabs_are_refused(tmp_path):
    path = tmp_path / "r.run"
    write_run(path, run_from_dict({"a query": {"a passage": 1.0}}), "t")
    assert {query: dict(hits) for query, hits in read_run(path).items()} == {"a query": {"a passage": 1.0}}
    with pytest.raises(DatasetError, match="cannot be written to a run file"):
        write_run(path, run_from_dict({"q": {"a\tb": 1.0}}), "t")


def test_hits_become_a_run():
    hits = Hits(np.array([[2, 0, -1], [-1, -1, -1]], np.int32), np.array([[3.0, 1, -np.inf]] * 2, np.float32))
    run = run_from_hits(["q1", "q2"], ["z", "y", "a"], hits)
    assert dict(run.items()) == {"q1": [("a", 3.0), ("z", 1.0)], "q2": []}


@pytest.mark.parametrize(
    ("positions", "scores", "message"),
    [
        ([[5]], [[1.0]], "position 5 of a corpus of 2"),
        ([[0]], [[np.nan]], "finite"),
        ([[0]], [[np.inf]], "finite"),
        ([[1, 1]], [[2.0, 1.0]], "comes twice"),
    ],
)
def test_a_broken_retriever_is_caught(positions, scores, message):
    with pytest.raises(DatasetError, match=message):
        run_from_hits(["q"], ["a", "b"], Hits(np.array(positions, np.int32), np.array(scores, np.float32)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q Q0 d 1 x t\n", r"bad\.run:1: score 'x' is not a number"),
        ("q Q0 d 1 nan t\n", "not finite"),
        ("q Q0 d 1 -inf t\n", "not finite"),
        ("q Q0 d 1 1e300 t\n", "finite float32"),
        ("q Q0 d 1 0.5\n", r"bad\.run:1: 5 columns"),
        ("q Q0 d 1 2 t\nq Q0 d 2 1 t\n", r"bad\.run:2: passage 'd' comes twice for query 'q'"),
        ("\n", "empty"),
    ],
)
def test_a_wrong_file_names_the_line(tmp_path, text, message):
    path = tmp_path / "bad.run"
    path.write_text(text)
    with pytest.raises(DatasetError, match=message):
        read_run(path)


def test_files_that_are_not_there_or_not_text(tmp_path):
    with pytest.raises(DatasetError, match="no such file"):
        read_run(tmp_path / "none.run")
    (tmp_path / "b.run").write_bytes(b"q Q0 \xff 1 1 t\n")
    with pytest.raises(DatasetError, match="not UTF-8"):
        read_run(tmp_path / "b.run")
    (tmp_path / "b.run.gz").write_bytes(gzip.compress(b"q Q0 d 1 1 t\n")[:-9])
    with pytest.raises(DatasetError, match="cannot be read"):
        read_run(tmp_path / "b.run.gz")


def test_the_rank_column_is_not_believed_and_disorder_is_counted(tmp_path):
    path = tmp_path / "r.run"
    path.write_text("q Q0 a 1 -3 t\r\nq Q0 b 2 -1 t\r\nr Q0 a 1 2 t\r\nq Q0 c 3 -2 t\r\n")
    run = read_run(path)
    assert ranked(run) == {"q": ["b", "c", "a"], "r": ["a"]}
    assert run.notes == {"unsorted_queries": 1}


def test_identical_ids_leave_and_the_rest_keeps_its_scores():
    run = run_from_dict({"a": {"a": 3.0, "b": 2.0}, "c": {"a": 1.0}, "d": {"d": 1.0}}).without_identical_ids()
    assert dict(run.items()) == {"a": [("b", 2.0)], "c": [("a", 1.0)], "d": []}


def test_what_killed_processes_left_is_removed_and_what_runs_is_kept(tmp_path: Path) -> None:
    run = run_from_dict({"q": {"p": 1.0}})
    gone = int(finish("import os; print(os.getpid())").stdout)
    left, alive = tmp_path / f".a.run.gz.{gone}", tmp_path / f".a.run.gz.{os.getppid()}"
    other = tmp_path / f".b.run.gz.{gone}"
    for path in (left, alive, other):
        path.write_bytes(b"half")
    write_run(tmp_path / "a.run.gz", run, "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([alive.name, other.name, "a.run.gz"])

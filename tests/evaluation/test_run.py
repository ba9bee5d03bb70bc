"""Runs: ranking, TREC files there and back, large ones read by DuckDB, and files that are wrong."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from child import finish
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airgen.errors import DatasetError
from airgen.evaluation import run as runs
from airgen.evaluation.run import read_run, run_from_dict, run_from_hits, write_run
from airgen.retrievers.hits import Hits

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
WORDS = st.text(st.characters(exclude_categories=("Z", "C")), min_size=1, max_size=4)
RESULTS = st.dictionaries(WORDS, st.dictionaries(WORDS, FLOATS, max_size=8), max_size=5)


def ranked(run):
    return {query: [passage for passage, _ in hits] for query, hits in run.ranked().items()}


def hits_of(run):
    return {query: dict(hits) for query, hits in run.items()}


@settings(deadline=None)
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


@settings(deadline=None)
@given(RESULTS.filter(lambda results: any(results.values())), st.sampled_from(["r.run", "r.run.gz"]))
def test_a_written_run_reads_back_with_the_same_float32(tmp_path_factory, results, name):
    path = tmp_path_factory.mktemp("runs") / name
    write_run(path, run_from_dict(results), "tag with spaces")
    back = read_run(path)
    kept = {query: {p: float(np.float32(s)) for p, s in hits.items()} for query, hits in results.items() if hits}
    assert (hits_of(back), back.notes["unsorted_queries"]) == (kept, 0)
    first = path.read_bytes()
    write_run(path, back, "tag with spaces")
    assert path.read_bytes() == first


def test_ids_with_spaces_survive_and_tabs_are_refused(tmp_path):
    path = tmp_path / "r.run"
    write_run(path, run_from_dict({"a query": {"a passage": 1.0}}), "t")
    assert hits_of(read_run(path)) == {"a query": {"a passage": 1.0}}
    with pytest.raises(DatasetError, match="cannot be written to a run file"):
        write_run(path, run_from_dict({"q": {"a\tb": 1.0}}), "t")


def test_hits_become_a_run_and_passages_can_leave_it():
    hits = Hits(np.array([[2, 0, -1], [-1, -1, -1]], np.int32), np.array([[3.0, 1, -np.inf]] * 2, np.float32))
    run = run_from_hits(["q1", "q2"], ["z", "y", "a"], hits)
    assert dict(run.items()) == {"q1": [("a", 3.0), ("z", 1.0)], "q2": []}
    run = run_from_dict({"a": {"a": 3.0, "b": 2.0}, "c": {"a": 1.0}, "d": {"d": 1.0}})
    assert dict(run.without_identical_ids().items()) == {"a": [("b", 2.0)], "c": [("a", 1.0)], "d": []}


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
        (b"q Q0 d 1 x t\n", r"bad\.run:1: score 'x' is not a number"),
        (b"q Q0 d 1 nan t\n", "not finite"),
        (b"q Q0 d 1 -inf t\n", "not finite"),
        (b"q Q0 d 1 1e300 t\n", "finite float32"),
        (b"q Q0 d 1 0.5\n", r"bad\.run:1: 5 columns"),
        (b"q Q0 d 1 2 t\nq Q0 d 2 1 t\n", r"bad\.run:2: passage 'd' appears twice for query 'q'"),
        (b"\n", "empty"),
        (b"q Q0 \xff 1 1 t\n", "not UTF-8"),
        (None, "no such file"),
        (gzip.compress(b"q Q0 d 1 1 t\n", mtime=0)[:-9], "the gzip ends early"),
    ],
)
def test_a_wrong_file_names_the_line(tmp_path, text, message):
    path = tmp_path / ("bad.run.gz" if text and text[:1] == b"\x1f" else "bad.run")
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(DatasetError, match=message):
        read_run(path)


def test_the_rank_column_is_not_believed_and_disorder_is_counted(tmp_path):
    path = tmp_path / "r.run"
    path.write_text("q Q0 a 1 -3 t\r\nq Q0 b 2 -1 t\r\nr Q0 a 1 2 t\r\nq Q0 c 3 -2 t\r\n")
    run = read_run(path)
    assert ranked(run) == {"q": ["b", "c", "a"], "r": ["a"]}
    assert run.notes == {"unsorted_queries": 1}


def test_what_killed_processes_left_is_removed_and_what_runs_is_kept(tmp_path: Path) -> None:
    gone = int(finish("import os; print(os.getpid())").stdout)
    left, alive = tmp_path / f".a.run.gz.{gone}", tmp_path / f".a.run.gz.{os.getppid()}"
    other = tmp_path / f".b.run.gz.{gone}"
    for path in (left, alive, other):
        path.write_bytes(b"half")
    write_run(tmp_path / "a.run.gz", run_from_dict({"q": {"p": 1.0}}), "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([alive.name, other.name, "a.run.gz"])


KEYS = ["q1", "q2", "q10", "d", "doc-7", "é", "文", "a b", "x\u00a0", "\u2028", "\x85", "d\x1f", ""]
PLAIN = ["0", "-0", "+1", "12.5", ".5", "5.", "1e-3", "1E5", "0.1", "1e23", "4.9e-324", "0.30000000000000004", "1e39"]
ODD = ["1e400", "1_0", "nan", "inf", ".", "e5", "1e", "0x1", "\uff11", "1,5", "1.2.3", "123456789012345678901"]


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Mostly clean lines of one kind, so that both ways are taken."""
    clean, gap = draw(st.booleans()), draw(st.sampled_from([" ", "\t", "  ", "\u00a0"]))
    end, mark = draw(st.sampled_from(["\n", "\r\n", "\n\n", "\r", ""])), draw(st.sampled_from(["", "", "\ufeff"]))
    keys = st.sampled_from([one for one in KEYS if one.isalnum()] if clean else KEYS)
    numbers = st.floats(-1e6, 1e6).map(repr) if clean else st.sampled_from([*PLAIN, *ODD]) | st.floats().map(repr)
    lines = []
    for _ in range(draw(st.integers(0, 8))):
        cells = [draw(keys), "Q0", draw(keys), "1", draw(numbers), "tag"]
        if not clean and draw(st.integers(0, 9)) == 0:
            cells.append("more")
        lines.append(gap.join(cells) + (end if clean or draw(st.booleans()) else "\n"))
    return (mark + "".join(lines)).encode()


def read_as(path: Path, *, large: bool) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_DUCKDB_FROM_BYTES", 0 if large else 1 << 60)
        try:
            found = read_run(path)
        except DatasetError as error:
            return str(error)
    arrays = found.offsets, found.passages, found.scores.view(np.int32)
    assert [one.dtype for one in arrays] == [np.int64, np.int32, np.int32]
    return list(found.query_ids), list(found.passage_ids), *(one.tolist() for one in arrays), dict(found.notes)


@settings(deadline=None)
@given(files(), st.booleans())
@example(b"q1 Q0 a 1 1e39 t\n", False)
@example(b"q1 Q0 a 1 .5 t\nq2 Q0 a 1 .5 t\nq1 Q0 b 2 .7 t\nq1 Q0 a 3 .1 t\n", False)
def test_a_large_run_is_read_as_by_lines(tmp_path_factory: pytest.TempPathFactory, data: bytes, packed: bool) -> None:
    path = tmp_path_factory.mktemp("run") / ("a.run.gz" if packed else "a.run")
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    assert read_as(path, large=True) == read_as(path, large=False)


def test_a_large_clean_run_meets_duckdb_alone_and_a_bad_line_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, scores = tmp_path / "a.run", np.random.default_rng(0).random(60_000, dtype=np.float32).tolist()
    lines = [f"q{place % 7} Q0 doc{place} 1 {score:.9g} tag\n" for place, score in enumerate(scores)]
    path.write_text("".join(lines))
    slow = read_as(path, large=False)
    for bad, words in (
        ("q1 Q0 doc 1 high tag\n", "score 'high' is not a number"),
        ("q1 Q0 doc 1 0.5\n", "5 columns"),
        ("q0 Q0 doc0 1 0.5 tag\n", "passage 'doc0' appears twice for query 'q0'"),
    ):
        path.write_text("".join([*lines[:50_000], bad, *lines[50_000:]]))
        with pytest.raises(DatasetError, match=f"a.run:50001: .*{words}"):
            read_run(path)
    path.write_text("".join(lines))
    monkeypatch.setattr(runs, "numbered_lines", None)
    found = read_run(path)
    assert (list(found.query_ids), found.scores.view(np.int32).tolist()) == (slow[0], slow[4])  # type: ignore[index]

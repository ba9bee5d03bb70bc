"""Large files of columns: read fast, or by the parser that names the bad line, with one result."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airgen.dataset import beir, clean_columns
from airgen.dataset.beir import Qrels, read_qrels
from airgen.errors import DatasetError
from airgen.evaluation import run as runs
from airgen.evaluation.run import Run, read_run

KEYS = st.sampled_from(["q1", "q2", "q10", "d", "doc-7", "é", "文", "a b", "x\u00a0", "\u2028", "\x85", "d\x1f", ""])
PLAIN = ["0", "1", "3", "-0", "+1", "12.5", ".5", "5.", "1e-3", "1E5", "-2.25e+2", "0.1", "1e22", "1e23", "4.9e-324"]
LONG = ["0.30000000000000004", "9007199254740993", "123456789012345678901", "1e39", "1e400"]
ODD = ["1_0", "nan", "inf", ".", "-", "e5", "1e", "0x1", "\uff11", "\uff12.5", "1,5", "1.2.3"]
NUMBERS = st.sampled_from([*PLAIN, *LONG, *ODD])
GAPS = st.sampled_from([" ", "\t", "  ", "\u00a0"])
ENDS = st.sampled_from(["\n", "\r\n", "\n\n", "\r", ""])


@st.composite
def files(draw: st.DrawFn, columns: int) -> bytes:
    """Mostly clean lines of one kind, so that both ways are taken."""
    gap, end = draw(GAPS), draw(ENDS)
    mark = draw(st.sampled_from(["", "", "\ufeff"]))
    clean = draw(st.booleans())
    keys = st.sampled_from(["q1", "q2", "q10", "doc-7", "文"]) if clean else KEYS
    numbers = st.floats(-1e6, 1e6).map(repr) if clean else NUMBERS | st.floats().map(repr)
    lines = ["query-id\tcorpus-id\tscore"] if draw(st.booleans()) and columns < 6 else []
    for _ in range(draw(st.integers(0, 8))):
        cells = [draw(keys), draw(keys), draw(numbers)]
        if columns == 6:
            cells = [cells[0], "Q0", cells[1], "1", cells[2], "tag"]
        if columns == 4:
            cells.insert(1, "0")
        if not clean and draw(st.integers(0, 9)) == 0:
            cells.append("more")
        lines.append(gap.join(cells))
    return (mark + "".join(line + (end if clean or draw(st.booleans()) else "\n") for line in lines)).encode()


def result(read: object, path: Path, monkeypatch: pytest.MonkeyPatch, fast: bool) -> object:
    with monkeypatch.context() as patch:
        patch.setattr(clean_columns, "_FROM", 0 if fast else 1 << 60)
        try:
            found = read(path)  # type: ignore[operator]
        except DatasetError as error:
            return str(error)
    if isinstance(found, Qrels):
        return {query: list(of.items()) for query, of in found.labels.items()}, list(found.labels), found.repeated
    assert isinstance(found, Run)
    arrays = found.offsets, found.passages, found.scores.view(np.int32)
    assert [one.dtype for one in arrays] == [np.int64, np.int32, np.int32]
    return list(found.query_ids), list(found.passage_ids), *(one.tolist() for one in arrays), dict(found.notes)


@settings(max_examples=150, deadline=None)
@given(files(6), st.booleans())
@example(b"q1 Q0 a 1 1e39 t\n", False)
@example(b"q1 Q0 a 1 .5 t\nq2 Q0 a 1 .5 t\nq1 Q0 b 2 .7 t\nq1 Q0 a 3 .1 t\n", False)
def test_runs_are_read_as_by_the_parser(tmp_path_factory: pytest.TempPathFactory, data: bytes, packed: bool) -> None:
    path = tmp_path_factory.mktemp("run") / ("a.run.gz" if packed else "a.run")
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    with pytest.MonkeyPatch.context() as patch:
        assert result(read_run, path, patch, True) == result(read_run, path, patch, False)


@settings(max_examples=150, deadline=None)
@given(files(3) | files(4))
def test_labels_are_read_as_by_the_parser(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("qrels") / "test.tsv"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        assert result(read_qrels, path, patch, True) == result(read_qrels, path, patch, False)


def large(path: Path, lines: int = 60_000) -> list[str]:
    """A run larger than the bound from which the fast way is taken, queries interleaved."""
    draw = np.random.default_rng(0)
    scores = draw.random(lines, dtype=np.float32)
    made = [f"q{place % 7} Q0 doc{place} 1 {score:.9g} tag\n" for place, score in enumerate(scores.tolist())]
    path.write_text("".join(made))
    return made


def test_a_large_clean_run_never_meets_the_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large(tmp_path / "a.run")
    slow = result(read_run, tmp_path / "a.run", monkeypatch, False)
    monkeypatch.setattr(runs, "numbered_lines", None)
    found = read_run(tmp_path / "a.run")
    assert (list(found.query_ids), found.scores.view(np.int32).tolist()) == (slow[0], slow[4])  # type: ignore[index]


def test_large_labels_never_meet_the_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"q{place % 9}\td{place}\t{place % 3}\n" for place in range(100_000)]
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    monkeypatch.setattr(beir, "numbered_lines", None)
    found = read_qrels(tmp_path / "test.tsv")
    assert found.judged == 100_000
    assert found.labels["q5"]["d14"] == 2


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("q1 Q0 doc 1 high tag\n", "score 'high' is not a number"),
        ("q1 Q0 doc 1 0.5\n", "5 columns"),
        ("q0 Q0 doc0 1 0.5 tag\n", "passage 'doc0' comes twice for query 'q0'"),
    ],
)
def test_a_bad_line_of_a_large_run_is_named(tmp_path: Path, bad: str, words: str) -> None:
    lines = large(tmp_path / "a.run")
    lines.insert(50_000, bad)
    (tmp_path / "a.run").write_text("".join(lines))
    with pytest.raises(DatasetError, match=f"a.run:50001: .*{words}"):
        read_run(tmp_path / "a.run")

"""What a user reads while a job runs and after it, on a pipe and on a narrow terminal."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from beir_folder import write_beir
from command_line import call
from rich.console import Console

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError
from airgen.evaluation import load_systems, run_from_dict, write_run
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.experiment import trained_on
from airgen.pipeline import Job, RunResult
from airgen.pipeline.progress import Display
from airgen.pipeline.show import read_report, render_report, render_work

Run = Callable[..., RunResult]


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_says_count_rate_cost_and_time_left(tmp_path: Path) -> None:
    clock, out = Clock(), io.StringIO()
    display = Display(tmp_path / "status.json", Console(file=out, width=40), every=3600, clock=clock)
    display.bill = lambda: "12 calls, $0.0300"
    with display.stage("queries", 200, 20) as bar:
        clock.now += 30
        assert bar.line(display.bill()) == "queries          20 of 200 in 30 s, 0.0/min, 12 calls, $0.0300"
        bar.advance(60, "80 samples\x1b tried")
        clock.now += 90
        assert bar.line("") == "queries          80 of 200 in 2 min, 30.0/min, about 4 min left, 80 samples  tried"
        bar.advance(240)
        assert bar.line("").startswith("queries          320 of 200 in 2 min, 2.5/s, about 0 s left")
    assert out.getvalue() == "queries          320 of 200 in 120.0 s 80 samples  tried\n"
    with display.stage("corpus", None) as bar:
        clock.now += 7200
        bar.advance(72_000)
        assert bar.line("") == "corpus           72,000 in 2.0 h, 10.0/s"


def test_a_line_says_that_passages_are_encoded(tmp_path: Path) -> None:
    display = Display(tmp_path / "status.json", Console(file=io.StringIO()), every=3600, clock=Clock())
    with display.stage("recall", 8) as bar:
        bar.encoding("", 1200, 5000)
        assert bar.line() == "recall           0 of 8 in 0 s, 0.0/min, encoding 1,200 of 5,000 passages"
        bar.encoding("", 5000, 5000)
        assert bar.line() == "recall           0 of 8 in 0 s, 0.0/min"
        bar.encoding("bm25", 64, 70)
        assert bar.line().endswith(", bm25: encoding 64 of 70 passages")


def test_where_the_time_went(run: Run, folder: Path) -> None:
    run()
    job = Job(folder / "job.yaml", folder / "runs")
    report = read_report(job)
    lines = [re.split(" {2,}", line) for line in render_work(report).splitlines()]
    assert lines[0] == ["where the time went", "seconds", "calls", "read", "from cache", "written"]
    table = {line[0]: line[1:] for line in lines[1:]}
    by_stage = {row["stage"]: row for row in report["calls"]}
    query = by_stage["query"]
    read = query["prompt_tokens"] - query["cached_tokens"]
    figures = [query["calls"], read, query["cached_tokens"], query["completion_tokens"]]
    assert table["query"][1:] == [f"{figure:,}" for figure in figures] and read > 0
    assert set(by_stage) == {"character", "scenario", "query", "rewrite", "judgment", "hard_negative"}
    assert {"hard negative", "judgment"} < set(table) and not {"queries", "judgments"} & set(table)
    assert report["stages"]["recall"]["seconds"] >= 0 and len(table["recall"]) == 1  # quick steps too
    assert f"  recall           12 of 12 in {report['stages']['recall']['seconds']:,.0f} s" in render_report(report)


def test_lines_come_while_nothing_gets_done(tmp_path: Path) -> None:
    written = threading.Event()

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            if "$0.5" in text:
                written.set()
            return super().write(text)

    out = Out()
    display = Display(tmp_path / "status.json", Console(file=out), every=0.0)
    display.bill = lambda: "3 calls, $0.5000"
    with display.stage("queries", 8):
        assert written.wait(60)
    lines = out.getvalue().splitlines()
    assert lines[-1].startswith("queries          0 of 8 in ")
    assert "3 calls, $0.5000" in lines[0]
    before = out.getvalue()
    assert not [one for one in threading.enumerate() if "_beat" in one.name] and out.getvalue() == before


def test_a_run_on_a_pipe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "systems.yaml").write_text(
        "systems: [{name: a-system-with-a-long-name, kind: bm25}, {name: titles, kind: bm25, text_weight: 0.01}]\n"
    )
    job = folder / "job.yaml"
    job.write_text(job.read_text() + "evaluate: {systems: systems.yaml, split: all}\n")
    assert call("run", job, "--runs", folder / "quiet", "--quiet") == ""
    out = call("run", job, "--runs", folder / "runs", "--verbose")
    lines = out.splitlines()
    assert (
        lines[0] == "Funnel"
        and lines[1].split() == ["stage", "entered", "left", "why", "not"]
        and "│" not in out
        and "┃" not in out
    )
    # The systems best first, with intervals; what can be told of them; the bill; the paths.
    (head,) = [at for at, line in enumerate(lines) if line.split()[:3] == ["#", "system", "nDCG@10"]]
    assert "95 %" in lines[head] and "not told apart from #" in lines[head]
    rows = [line.replace("†", "").split() for line in lines[head + 1 : head + 3]]
    assert [row[0] for row in rows] == ["1", "2"] and float(rows[0][2]) >= float(rows[1][2])
    (last,) = [at for at, line in enumerate(lines) if line.startswith("Verdict: ")]
    assert f"airgen audit sample {job} 40" in lines[last] and last > head
    assert lines[last + 2].endswith(" MB") and " calls, " in lines[last + 2]
    assert [line.split("  ")[0].rpartition("/")[2] for line in lines[last + 3 :]] == [
        "dataset", "evaluation", "work.duckdb", "index.html"
    ]  # fmt: skip
    value = json.loads(call("run", job, "--runs", folder / "runs", "--quiet", "--json"))
    assert value["already_done"]


def test_lists_can_be_copied_from_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = call("show", "corpus")
    assert "…" not in "".join(line.split("  ")[0] for line in out.splitlines())
    assert any(line.startswith("hub-financial-news-ar ") for line in out.splitlines())
    assert any(line.startswith("multilingual-e5-small-q4 ") for line in call("show", "models").splitlines())


def test_measures_of_another_dataset_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "a.run", run_from_dict({"q1": {"x": 2.0}}), "a")
    (tmp_path / "other.tsv").write_text("PLAIN-2\tMED-1\t1\n")
    with pytest.raises(DatasetError, match=r"no query in common \(for example 'q1' and 'PLAIN-2'\)"):
        call("evaluate", "measures", tmp_path / "a.run", tmp_path / "other.tsv")


def test_a_model_that_knows_the_queries_is_named(folder: Path) -> None:
    dataset = write_beir(
        folder / "little", [{"_id": "p", "title": "", "text": "bees fly far"}], [{"_id": "q", "text": "bees"}],
        {"test": [("q", "p", 1)]},
    )  # fmt: skip
    (folder / "expanded").mkdir()
    weights = folder / "expanded"
    (folder / "s.yaml").write_text(
        f"systems: [{{name: mine, kind: bm25}}, {{name: theirs, kind: run, path: '{weights}'}}]\n"
    )
    task = DatasetSplit(BeirDataset.open(dataset), "test", "en")
    systems = load_systems(folder / "s.yaml")
    (weights / "card.json").write_text(json.dumps({"data": {"dataset": "little", "split": "test", "fold": "1/5"}}))
    (line,) = trained_on(task, systems, folder)
    assert "system theirs: path was trained on queries of little test" in line and "use another split" in line
    (weights / "held-out.tsv").write_text("")
    assert f"airgen evaluate measures RUN {weights / 'held-out.tsv'}" in trained_on(task, systems, folder)[0]
    for other in ({"dataset": "little", "split": "train"}, {"dataset": "else", "split": "test"}, 3):
        (weights / "card.json").write_text(json.dumps({"data": other}))
        assert trained_on(task, systems, folder) == []

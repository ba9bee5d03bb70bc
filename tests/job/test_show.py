"""What a user sees of a job: its status file, its last lines, and `airgen show`."""

import io
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beir_folder import write_beir
from command_line import call
from job_maker import LEXICAL, Run
from rich.console import Console

from airgen import api
from airgen.cli import main
from airgen.commands.options import dataset_of
from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError, LlmError, Stopped, UsageError
from airgen.evaluation import load_systems, run_from_dict, write_run
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.experiment import trained_on
from airgen.job import Job, RunResult
from airgen.job.show import find_job, life_study, read_job, read_report, status_study, work_table
from airgen.llms.base import Refused, Request
from airgen.steps import progress
from airgen.steps.progress import Display, read_status
from airgen.storage.records import Answer

JOB = LEXICAL


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["show", *words])
    said = capsys.readouterr()
    return int(stop.value.code or 0), said.out, said.err


@pytest.mark.parametrize(
    ("published", "shown"), [("doc-1", ["keep", "doc-1", "Bees"]), ("d7", ["keep", "d7", "doc-1", "Bees"])]
)
def test_a_label_has_its_id_once_unless_it_is_published_under_another(published: str, shown: list[str]) -> None:
    label = {"id": "doc-1", "published": published, "kind": "other", "title": "Bees", "votes": "2/3", "level": 3,
             "probability": None, "decision": "keep", "reason": ""}  # fmt: skip
    document = {"id": "doc-1", "title": "", "text": "Bees fly."}
    value = {"id": "q1", "outcome": "accepted", "document": document, "lines": [], "skips": {}, "labels": [label]}
    assert life_study(value).text().splitlines()[-1].split()[-len(shown) - 1 :] == ["3", *shown]


def test_show(done: Run, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done()
    pipeline, runs = str(folder / "job.yaml"), ("--runs", str(folder / "runs"))
    code, listed, _ = shown(capsys, pipeline, "--queries", *runs)
    ids = [line.split()[0] for line in listed.splitlines()]
    assert code == 0 and len(ids) >= 4
    code, by_pipeline, _ = shown(capsys, pipeline, ids[0], *runs)
    assert code == 0
    for part in ("document", "character", "scenario", "query", "votes", "level"):
        assert part in by_pipeline
    assert shown(capsys, ids[0], *runs)[:2] == (0, by_pipeline)  # an id is enough where only one job has it
    for job in ("job", str(folder / "runs" / "job")):  # the job's name, and its directory
        assert shown(capsys, job, "--queries", *runs)[:2] == (0, listed)
        assert shown(capsys, job, ids[0], *runs)[:2] == (0, by_pipeline)
    code, _, said = shown(capsys, "nothing", ids[0], *runs)
    assert code == 2 and "nothing: no pipeline, and no job of that name under" in said
    life = json.loads(shown(capsys, ids[0], "--json", *runs)[1])
    assert life["id"] == ids[0] and life["outcome"] == "accepted"
    code, _, said = shown(capsys, "qnobody", *runs)
    assert code == 2 and "no job has a query 'qnobody'" in said and "(job)" in said
    text = (folder / "job.yaml").read_text(encoding="utf-8")  # a job is shown with the target that it was run with
    (folder / "job.yaml").write_text(text.replace("target: 4", "target: 3"), encoding="utf-8")
    assert "accepted" in shown(capsys, ids[3], *runs)[1].splitlines()[0]
    code, _, said = shown(capsys, "q", *runs)  # every query begins so
    assert code == 2 and "queries begin with 'q'" in said


def test_a_job_lies_beside_its_pipeline_from_wherever_it_is_named(
    run: Callable[..., RunResult], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(until="corpus")
    work = folder / "runs" / "job"
    names: dict[Path, list[str | Path]] = {
        folder: ["job.yaml", "job", "runs/job"],
        folder.parent: [folder / "job.yaml", work],
    }
    for place, known in names.items():
        monkeypatch.chdir(place)
        for name in known:
            assert find_job(name).directory.resolve() == work.resolve()
            with pytest.raises(UsageError, match="this job has no dataset yet: run `airgen run "):
                dataset_of(name)
    assert read_job("quickstart").directory.parent == Path("runs")  # a shipped pipeline belongs to no folder
    assert read_job(folder / "job.yaml", Path("other")).directory.parent == Path("other")
    # A command that wants a dataset takes its job; a folder, and what is neither, is itself.
    (work / "dataset").mkdir()
    monkeypatch.chdir(folder)
    assert {dataset_of(name).resolve() for name in names[folder]} == {work / "dataset"}
    assert [dataset_of(name) for name in (work / "dataset", "nowhere")] == [work / "dataset", Path("nowhere")]
    with pytest.raises(DatasetError, match=r"runs/job/dataset: .*corpus"):
        api.study_inspect("job")


# -- status file ------------------------------------------------------------------------------------------------------


FAULTY = {"{backend: scripted,": "{backend: scripted, faults: {empty: 0.1},"}


@pytest.fixture
def seen(folder: Path, model_says: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The status file at each call of the model, which refuses the third query."""
    found: list[dict[str, Any]] = []
    queries = [0]

    def read(request: Request) -> None:
        queries[0] += request.stage == "query"
        if request.stage == "query" and queries[0] == 3:
            raise Refused("too long", "the server's words")
        if (status := read_status(folder / "runs" / "job" / "status.json")) is not None:
            found.append(status)

    model_says(read)
    monkeypatch.setattr(progress, "STATUS_SECONDS", 0.0)
    return found


def test_it_says_what_a_running_job_does(run: Run, folder: Path, seen: list[dict[str, Any]]) -> None:
    result = run("runs", FAULTY)
    middle, end = seen[len(seen) // 2], read_status(result.directory / "status.json")
    assert end is not None
    assert middle["ended"] is None and middle["finished"] == "" and middle["began"] <= middle["updated"]
    assert middle["usage"]["query"]["calls"] >= 1 and middle["budget_usd"] is None
    assert end["usage"]["query"]["failures"] == {"too long": 1}
    assert 1 <= len(middle["recent"]) <= 20
    assert all(one["text"] and set(one) == {"text", "problem"} for one in middle["recent"])
    assert end["ended"] == {"how": "done", "why": ""} and end["finished"] == Job(folder / "job.yaml").identity
    # The counts are those of the funnel, where no sample was made beyond the target.
    steps = end["counts"]["candidates"]
    assert steps["character"]["seen"] >= steps["query"]["seen"] >= 4
    dropped = steps["query"]["seen"] - steps["rewrite"]["seen"]
    assert sum(steps["query"]["reasons"].values()) == dropped > 0
    made = steps["queries"]["seen"] - sum(steps["queries"]["reasons"].values())
    assert made >= 4
    assert end["counts"]["judgments"]["judgment"]["seen"] == end["stages"]["judgments"]["total"]
    (result.directory / "status.json").unlink()
    run("runs", FAULTY)  # counts what is on the disk
    again = read_status(result.directory / "status.json")
    assert again is not None and again["began"] > end["began"]
    assert again["counts"]["candidates"]["query"] == end["counts"]["candidates"]["query"]


def test_it_says_how_a_run_ended(run: Run, folder: Path) -> None:
    status = folder / "runs" / "job" / "status.json"
    with pytest.raises(LlmError):
        run("runs", {"{backend: scripted,": "{backend: scripted, faults: {empty: 1.0},"})
    found = read_status(status)
    assert found is not None and found["ended"]["how"] == "failed" and "were rejected" in found["ended"]["why"]
    display = Display(status, Console(quiet=True))
    with pytest.raises(Stopped), display.lasting(name="job"), display.lasting():
        raise Stopped("stopped by the user\x1b[2J: run the same command again to continue " + "x" * 5000)
    found = read_status(status)
    assert found is not None and found["ended"]["how"] == "stopped" and len(found["ended"]["why"]) == 500
    assert "\x1b" not in found["ended"]["why"]
    with pytest.raises(KeyboardInterrupt), Display(status, Console(quiet=True)).lasting():
        raise KeyboardInterrupt
    assert (read_status(status) or {})["ended"]["how"] == "stopped"


# -- output -----------------------------------------------------------------------------------------------------------


def test_a_line_says_count_rate_cost_and_time_left(tmp_path: Path) -> None:
    now, out = [100.0], io.StringIO()
    console = Console(file=out, width=40)
    display = Display(tmp_path / "status.json", console, every=3600, clock=lambda: now[0])
    display.bill = lambda: "12 calls, $0.0300"
    with display.stage("queries", 200, 20) as bar:
        now[0] += 30
        assert bar.line(display.bill()) == "queries          20 of 200 in 30 s, 0.0/min, 12 calls, $0.0300"
        bar.advance(60, "80 samples\x1b tried")
        now[0] += 90
        assert bar.line("") == "queries          80 of 200 in 2 min, 30.0/min, about 4 min left, 80 samples  tried"
        bar.advance(240)
        assert bar.line("").startswith("queries          320 of 200 in 2 min, 2.5/s, about 0 s left")
    assert out.getvalue() == "queries          320 of 200 in 120.0 s 80 samples  tried\n"
    with display.stage("corpus", None) as bar:
        now[0] += 7200
        bar.advance(72_000)
        assert bar.line("") == "corpus           72,000 in 2.0 h, 10.0/s"
    with display.stage("recall", 8) as bar:
        bar.encoding("", 1200, 5000)
        assert bar.line() == "recall           0 of 8 in 0 s, 0.0/min, encoding 1,200 of 5,000 passages"
        bar.encoding("", 5000, 5000)
        assert bar.line() == "recall           0 of 8 in 0 s, 0.0/min"
        bar.encoding("bm25", 64, 70)
        assert bar.line().endswith(", bm25: encoding 64 of 70 passages")


def test_lines_and_the_status_file_come_while_nothing_gets_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "HEART_SECONDS", 0.001)
    said, written, beats = threading.Event(), threading.Event(), [0]

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            if "$0.5" in text:
                said.set()
            return super().write(text)

    def figures() -> dict[str, Any]:
        beats[0] += 1
        if beats[0] > 3:
            written.set()
        return {"spent_usd": beats[0]}

    display = Display(tmp_path / "status.json", Console(file=(out := Out())), every=0.0)
    display.bill, display.figures = lambda: "3 calls, $0.5000", figures
    with display.stage("queries", 8):
        assert said.wait(60) and written.wait(60)
    assert json.loads((tmp_path / "status.json").read_text())["spent_usd"] > 3
    lines = out.getvalue().splitlines()
    assert lines[-1].startswith("queries          0 of 8 in ") and "3 calls, $0.5000" in lines[0]
    assert not [one for one in threading.enumerate() if "_beat" in one.name] and out.getvalue().splitlines() == lines


def test_where_the_time_went(done: Run, folder: Path) -> None:
    done()
    job = Job(folder / "job.yaml", folder / "runs")
    report = read_report(job)
    lines = [re.split(" {2,}", line) for line in work_table(report).text().splitlines()]
    assert lines[0] == ["where the time went", "seconds", "calls", "failed", "read", "from cache", "written", "cost"]
    table = {line[0]: line[1:] for line in lines[1:]}
    by_stage = {row["stage"]: row for row in report["calls"]}
    query = by_stage["query"]
    read = query["prompt_tokens"] - query["cached_tokens"]
    figures = [query["calls"], 0, read, query["cached_tokens"], query["completion_tokens"]]
    assert table["query"][1:] == [*(f"{figure:,}" for figure in figures), "$0.00"] and read > 0
    assert set(by_stage) == {"character", "scenario", "query", "rewrite", "judgment", "hard_negative"}
    assert {"hard negative", "judgment"} < set(table) and not {"queries", "judgments"} & set(table)
    assert report["stages"]["recall"]["seconds"] >= 0 and len(table["recall"]) == 1  # quick steps too
    steps = [line.split() for line in status_study(report).text().splitlines()]
    assert ["recall", "4", "of", "4", f"{report['stages']['recall']['seconds']:,.0f}"] in steps
    # Tokens that the server did not count are said.
    assert "usable" not in status_study(report).text()
    with job.open_store() as store:
        counts = {"prompt_tokens": 5, "completion_tokens": 1, "cost_usd": 0.25, "counted_here": True}
        store.put([Answer(key, "query", "m", "default", "x", **counts) for key in ("a", "b")])
    said = "2 answers came without usable token counts: airgen counted the tokens, and these answers cost at most $0.50"
    assert said in status_study(read_report(job)).text()


def test_a_run_on_a_pipe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "systems.yaml").write_text(
        "systems: [{name: a-system-with-a-long-name, kind: bm25}, {name: titles, kind: bm25, k1: 0}]\n"
    )
    job = folder / "job.yaml"
    job.write_text(
        job.read_text().replace("target: 4", "target: 6") + "evaluate: {systems: systems.yaml, split: all}\n"
    )
    assert call("run", job, "--runs", folder / "quiet", "--target", "2", "--quiet", "--no-report") == ""
    out = call("run", job, "--runs", folder / "runs", "--verbose")
    lines = out.splitlines()
    assert (
        lines[0] == "Funnel"
        and lines[1].split() == ["stage", "entered", "left", "why", "not"]
        and "│" not in out
        and "┃" not in out
    )
    # The best systems first, with intervals; the verdict; the cost; the paths.
    (head,) = [at for at, line in enumerate(lines) if line.split()[:3] == ["#", "system", "nDCG@10"]]
    assert "95 %" in lines[head] and "rank" in lines[head]
    rows = [line.replace("†", "").split() for line in lines[head + 1 : head + 3]]
    assert [row[0] for row in rows] == ["1", "2"] and float(rows[0][2]) >= float(rows[1][2])
    (last,) = [at for at, line in enumerate(lines) if line.startswith("Verdict: ")]
    assert f"airgen audit sample {job} 40" in lines[last] and last > head
    assert lines[last + 1 : last + 3] == ["", "Run"]
    assert lines[last + 3].endswith(" MB") and " calls, " in lines[last + 3]
    assert [line.split("  ")[0].rpartition("/")[2] for line in lines[last + 4 :]] == [
        "dataset", "evaluation", "work.duckdb", "index.html"
    ]  # fmt: skip
    for _ in range(2):  # a finished job stays finished when its systems are evaluated again
        again = call("run", job, "--runs", folder / "runs", "--quiet", "--json", "--no-report")
        assert json.loads(again)["already_done"]
    status = read_status(folder / "runs" / "job" / "status.json")
    assert status is not None and status["pipeline"] == str(job) and status["ended"]["how"] == "done"


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
    (line,) = trained_on(task, systems)
    assert "system theirs: path was trained on queries of little test" in line and "use another split" in line
    (weights / "held-out.tsv").write_text("")
    assert f"airgen evaluate measures RUN {weights / 'held-out.tsv'}" in trained_on(task, systems)[0]
    for other in ({"dataset": "little", "split": "train"}, {"dataset": "else", "split": "test"}, 3):
        (weights / "card.json").write_text(json.dumps({"data": other}))
        assert trained_on(task, systems) == []

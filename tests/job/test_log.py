"""`--log json`, what a status file keeps of earlier processes, and a job whose folder was moved or copied."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import call, invoke
from job_maker import LEXICAL, Run

from airgen.cli import main
from airgen.errors import StoreError, UsageError
from airgen.job import Job
from airgen.job.job import owner_of
from airgen.job.preflight import preflight
from airgen.job.show import read_job
from airgen.steps.progress import Display, read_status
from airgen.storage.records import Payment

JOB = LEXICAL
STAGE = ["event", "time", "stage", "done", "total", "seconds", "calls", "spent_usd", "note"]


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_each_line_is_json_with_the_same_keys(folder: Path) -> None:
    (folder / "job.yaml").write_text((folder / "job.yaml").read_text().replace("target: 4", "target: 2"))
    result = invoke("run", folder / "job.yaml", "--log", "json", "--no-report")
    lines = events(result.stderr)
    stages = [line for line in lines if line["event"] == "stage"]
    assert result.exit_code == 0 and all(list(line) == STAGE for line in stages)
    names = [line["stage"] for line in stages]
    assert {"corpus", "queries", "recall", "judgments"} <= set(names) and len(set(names)) == len(names)
    corpus = stages[names.index("corpus")]
    assert stages[-1]["calls"] > 0 and (corpus["done"], corpus["total"], corpus["calls"]) == (60, None, 0)
    end = lines[-1]
    assert list(end)[:5] == ["event", "time", "how", "code", "why"]
    assert (end["event"], end["how"], end["code"]) == ("end", "done", 0) and "dataset" in result.stdout
    assert {line["event"] for line in lines} <= {"stage", "note", "end"}


def test_an_error_is_the_last_event_and_nothing_else(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "small.jsonl").unlink()
    with pytest.raises(SystemExit) as ended:
        main(["run", str(folder / "job.yaml"), "--log", "json"])
    (end,) = events(capfd.readouterr().err)
    assert ended.value.code == 1 and (end["event"], end["how"], end["code"]) == ("end", "failed", 1)
    assert "small.jsonl" in end["why"]


def test_a_status_file_keeps_the_stages_of_earlier_processes(tmp_path: Path) -> None:
    times = iter([0.0, 5.0, 10.0, 12.0])
    for _ in range(2):
        display = Display(tmp_path / "status.json", log=lambda event: None, clock=lambda: next(times))
        with display.stage("recall", 3):
            pass
    Display(tmp_path / "status.json").write()  # a process that has nothing to do
    assert read_status(tmp_path / "status.json")["stages"]["recall"]["seconds"] == 7.0  # type: ignore[index]


def test_a_job_may_be_moved_and_copied(done: Run, folder: Path, tmp_path: Path) -> None:
    done()
    call("run", folder / "job.yaml", "--no-report")  # it now knows its location
    project = tmp_path / "project"
    project.mkdir()
    for name in ("job.yaml", "small.yaml", "small.jsonl", "runs"):
        (shutil.copytree if name == "runs" else shutil.copy)(folder / name, project / name)
    copied = Job(project / "job.yaml", project / "runs")
    assert preflight(copied) == [] and copied.finished()
    assert owner_of(project / "runs" / "job") == (project / "job.yaml").resolve()
    found = read_job(project / "runs" / "job")
    assert (found.path, found.directory.parent) == ((project / "job.yaml").resolve(), project / "runs")
    assert owner_of(folder / "runs" / "job") == (folder / "job.yaml").resolve()
    project.rename(tmp_path / "moved")
    assert "12" in call("show", tmp_path / "moved" / "runs" / "job")


def test_jobs_beside_each_other_share_embeddings(folder: Path) -> None:
    first = Job(folder / "job.yaml", folder / "runs")
    (folder / "other.yaml").write_text((folder / "job.yaml").read_text().replace("name: job", "name: other"))
    other = Job(folder / "other.yaml", folder / "runs")
    assert first.embeddings == other.embeddings and folder / "runs" in first.embeddings.parents
    (first.directory / "embeddings").mkdir(parents=True)  # of an earlier version
    assert first.embeddings == first.directory / "embeddings" != other.embeddings


def test_an_ablation_has_a_folder_of_its_own(done: Run, folder: Path) -> None:
    done()
    before = (folder / "runs/job/dataset/manifest.json").read_bytes()
    assert "dataset-without-control" in call("export", folder / "job.yaml", "--without", "control")
    assert (folder / "runs/job/dataset-without-control/manifest.json").is_file()
    assert (folder / "runs/job/dataset/manifest.json").read_bytes() == before
    with pytest.raises(UsageError, match="contrl"):
        call("export", folder / "job.yaml", "--without", "contrl")


def test_check_says_what_is_paid_and_what_is_left(done: Run, folder: Path) -> None:
    assert "paid so far" not in call("check", folder / "job.yaml")
    done()
    job = folder / "job.yaml"
    assert "for 4 of 4 queries" in (line := call("check", job).splitlines()[1]) and line.endswith("(0 calls)")
    with Job(job, folder / "runs").open_store() as store:
        (calls,) = store.query("SELECT count(*) FROM answer")[0]
        store.put([Payment("one", "query", 0.07)])
    line = call("check", job, "--target", 8).splitlines()[1]
    assert re.match(rf"paid so far: \$0\.070 for \d+ of 8 queries \({calls:,} calls\); left: about \$0\.00 ", line)
    found = json.loads(call("check", job, "--target", 8, "--json"))["standing"]
    assert found["paid_usd"] == 0.07 and 4 <= found["accepted"] < 8 and 0 < found["left_calls"] < 3 * calls
    # While it runs, no other process can open its database, but its status file can be read.
    status = {"stages": {"queries": {"done": 5}}, "usage": {"query": {"calls": 9}}, "spent_usd": 0.5}
    running = Job(job, folder / "runs", target=8)
    with (
        pytest.MonkeyPatch.context() as patch,
        running.open_store(),
    ):
        patch.setattr(Job, "open_store", lambda self, read_only=False: refuse())
        patch.setattr(Job, "running", True)
        patch.setattr("airgen.job.estimate.read_status", lambda path: status)
        assert "$0.50 for 5 of 8 queries (9 calls)" in call("check", job, "--target", 8).splitlines()[1]


def refuse() -> None:
    raise StoreError("another process has it open")

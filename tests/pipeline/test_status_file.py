"""What another process can read of a running job: the status file."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from airgen.errors import AirgenError, LlmError, Stopped
from airgen.llms.base import Refused, Reply, Request
from airgen.llms.scripted import ScriptedBackend
from airgen.pipeline import Job, RunResult, progress
from airgen.pipeline.progress import Display, read_status
from airgen.pipeline.summary import run_pipeline

Run = Callable[..., RunResult]
FAULTY = {"{backend: scripted,": "{backend: scripted, faults: {empty: 0.1},"}


@pytest.fixture
def seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The status file at each call of the model, which refuses the third query."""
    found: list[dict[str, Any]] = []
    send, queries = ScriptedBackend.send, [0]

    async def read(self: ScriptedBackend, request: Request) -> Reply:
        queries[0] += request.stage == "query"
        if request.stage == "query" and queries[0] == 3:
            raise Refused("too long", "the server's words")
        if (status := read_status(folder / "runs" / "job" / "status.json")) is not None:
            found.append(status)
        return await send(self, request)

    monkeypatch.setattr(ScriptedBackend, "send", read)
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
    assert steps["character"]["seen"] >= steps["query"]["seen"] >= 12
    dropped = steps["query"]["seen"] - steps["rewrite"]["seen"]
    assert sum(steps["query"]["reasons"].values()) == dropped > 0
    made = steps["queries"]["seen"] - sum(steps["queries"]["reasons"].values())
    assert made >= 12
    assert end["counts"]["judgments"]["judgment"]["seen"] == end["stages"]["judgments"]["total"]


def test_a_second_run_counts_what_is_on_the_disk(run: Run, folder: Path) -> None:
    result = run()
    first = read_status(result.directory / "status.json")
    (result.directory / "status.json").unlink()
    run()
    second = read_status(result.directory / "status.json")
    assert first is not None and second is not None
    assert second["counts"]["candidates"]["query"] == first["counts"]["candidates"]["query"]
    assert second["began"] > first["began"]


def test_it_says_how_a_run_ended(run: Run, folder: Path) -> None:
    status = folder / "runs" / "job" / "status.json"
    with pytest.raises(LlmError):
        run("runs", {"{backend: scripted,": "{backend: scripted, faults: {empty: 1.0},"})
    found = read_status(status)
    assert found is not None and found["ended"]["how"] == "failed" and "were rejected" in found["ended"]["why"]
    display = Display(status, Console(quiet=True))
    with pytest.raises(Stopped), display.lasting(name="job"), display.lasting():
        raise Stopped("stopped by the user\x1b[2J: run the same command to go on " + "x" * 5000)
    found = read_status(status)
    assert found is not None and found["ended"]["how"] == "stopped" and len(found["ended"]["why"]) == 500
    assert "\x1b" not in found["ended"]["why"]
    with pytest.raises(KeyboardInterrupt), Display(status, Console(quiet=True)).lasting():
        raise KeyboardInterrupt
    assert (read_status(status) or {})["ended"]["how"] == "stopped"


def test_a_finished_job_stays_finished_when_its_systems_are_evaluated_again(folder: Path) -> None:
    (folder / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}]\n")
    path = folder / "job.yaml"
    path.write_text(path.read_text() + "evaluate: {systems: systems.yaml, split: all}\n")
    done = [run_pipeline(path, runs=folder / "runs", console=Console(quiet=True)).already_done for _ in range(3)]
    assert done == [False, True, True]
    status = read_status(folder / "runs" / "job" / "status.json")
    assert status is not None and status["pipeline"] == str(path) and status["ended"]["how"] == "done"


def test_a_check_that_fails_leaves_nothing(folder: Path) -> None:
    path = folder / "job.yaml"
    path.write_text(path.read_text() + "evaluate: {systems: missing.yaml, split: all}\n")
    with pytest.raises(AirgenError):
        run_pipeline(path, runs=folder / "runs", console=Console(quiet=True))
    assert not (folder / "runs").exists()


def test_it_is_written_while_nothing_gets_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "HEART_SECONDS", 0.001)
    beats, enough = [0], threading.Event()

    def figures() -> dict[str, Any]:
        beats[0] += 1
        if beats[0] > 3:
            enough.set()
        return {"spent_usd": beats[0]}

    display = Display(tmp_path / "status.json", Console(quiet=True))
    display.figures = figures
    with display.stage("export", None):
        assert enough.wait(60)
    assert json.loads((tmp_path / "status.json").read_text())["spent_usd"] > 3

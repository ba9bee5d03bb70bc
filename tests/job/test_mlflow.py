"""`evaluate.mlflow`, with the real package and its store of files."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from job_maker import LEXICAL
from packages import package

from airgen.errors import SettingsError
from airgen.job import Job
from airgen.job.preflight import preflight
from airgen.job.run_job import run_pipeline
from airgen.settings import load_pipeline

mlflow = package("mlflow")
JOB = LEXICAL
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of its store of files, which is kept for tests
SYSTEMS = "systems: [{name: bm25, kind: bm25}, {name: flat, kind: bm25, k1: 0.1}]\n"


@pytest.fixture
def tracked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline whose scores go into a folder."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # releases of its later years ask for it
    (folder / "systems.yaml").write_text(SYSTEMS)
    job = folder / "job.yaml"
    text = job.read_text().replace("target: 4", "target: 6")
    job.write_text(f"{text}evaluate: {{systems: systems.yaml, split: all, mlflow: tracking}}\n")
    return job


def runs_of(folder: Path) -> list[Any]:
    client = mlflow.MlflowClient(tracking_uri=f"file:{folder / 'tracking'}")
    return list(client.search_runs([client.get_experiment_by_name("job").experiment_id]))


def test_scores_cost_and_artefacts_are_logged_once(tracked: Path) -> None:
    folder = tracked.parent
    result = run_pipeline(Job(tracked, folder / "runs"))
    assert result.failed == []
    by_name = {run.info.run_name: run for run in runs_of(folder)}
    assert set(by_name) == {"job 0.1", "bm25", "flat"}
    job, systems = by_name["job 0.1"], {row["system"]: row for row in result.scores}
    for name in ("bm25", "flat"):
        metrics = by_name[name].data.metrics
        assert metrics["nDCG_at_10"] == pytest.approx(systems[name]["nDCG@10"])
        assert [metrics["interval_low"], metrics["interval_high"]] == pytest.approx(systems[name]["interval"])
        assert by_name[name].data.tags["mlflow.parentRunId"] == job.info.run_id
    assert job.data.metrics["llm_calls"] > 0 and job.data.metrics["llm_usd"] == 0
    assert job.data.params["queries"] == "6" and job.data.params["dataset"] == result.manifest.digest  # type: ignore[union-attr]
    assert job.info.status == "FINISHED" and job.data.tags["airgen.verdict"] == result.verdict
    artefacts = {path.name for path in (folder / "tracking").rglob("artifacts/**/*") if path.is_file()}
    assert {"report.md", "manifest.json", "README.md", "pipeline.yaml"} == artefacts
    run_pipeline(Job(tracked, folder / "runs"))
    assert len(runs_of(folder)) == 3


def test_what_it_does_not_take_fails_the_run_in_one_line(tracked: Path) -> None:
    folder = tracked.parent
    (folder / "tracking").write_text("a file\n")
    result = run_pipeline(Job(tracked, folder / "runs"))
    (line,) = result.failed
    assert line.startswith("evaluate.mlflow: tracking: ") and "\n" not in line and len(result.scores) == 2


def test_a_password_in_the_address_and_a_missing_package_are_said(
    tracked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "airgen.job.preflight.missing_extras", lambda modules, feature: [f"{feature} needs {modules[0]}"]
    )
    assert "evaluate.mlflow needs mlflow" in preflight(Job(tracked, tracked.parent / "runs"))
    tracked.write_text(tracked.read_text().replace("mlflow: tracking", "mlflow: 'http://me:secret@host'"))
    with pytest.raises(SettingsError, match="MLFLOW_TRACKING_PASSWORD") as error:
        load_pipeline(tracked)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"])
def test_a_server_that_accepts_and_never_answers_costs_seconds_and_one_line(
    tracked: Path, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    monkeypatch.setattr("airgen.job.mlflow_log._ANSWER_SECONDS", 0.1)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        ended = threading.Event()

        def accept() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(start)
                ended.wait()

        thread = threading.Thread(target=accept)
        thread.start()
        tracked.write_text(tracked.read_text().replace("mlflow: tracking", f"mlflow: '{address}'"))
        result = run_pipeline(Job(tracked, tracked.parent / "runs"))
        ended.set()
        thread.join()
    (line,) = result.failed
    assert line == (f"evaluate.mlflow: {address}: no response within 0.1 s; run the same command again to log the run")
    assert len(result.scores) == 2

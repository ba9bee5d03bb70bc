"""Files that are damaged, odd or cannot be written: a job goes on, or ends in one line that says what to do."""

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import call
from dataset_maker import make_content
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from airgen.cli import main
from airgen.dataset.verify import damaged_file
from airgen.dataset.write import write_dataset
from airgen.pipeline import RunResult
from airgen.pipeline.progress import Display, read_status
from airgen.pipeline.show import render_life, render_report

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
STATUS = st.fixed_dictionaries(
    {},
    optional={
        "pid": JSON, "updated": JSON, "finished": JSON, "pipeline": JSON,
        "stages": JSON | st.dictionaries(
            st.text(max_size=3), JSON | st.fixed_dictionaries({}, optional={
                "done": JSON, "total": JSON | st.just(10**400), "rate": JSON, "note": JSON}), max_size=2),
    },
)  # fmt: skip


@given(STATUS | JSON)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_odd_status_file_is_shown_as_far_as_it_makes_sense(tmp_path: Path, value: object) -> None:
    (tmp_path / "status.json").write_text(json.dumps(value), encoding="utf-8", errors="surrogatepass")
    status = read_status(tmp_path / "status.json")
    assert (status is None) == (not isinstance(value, dict))
    if status is not None:
        for running in (False, True):
            assert render_report({"directory": "d", "finished": False, "running": running, "stages": status["stages"]})


def test_a_status_file_that_is_nested_too_deep(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text("[" * 100_000)
    assert read_status(tmp_path / "status.json") is None


def test_a_status_file_that_cannot_be_written_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    screen = io.StringIO()
    display = Display(tmp_path / "file" / "status.json", Console(file=screen, width=300))
    with display.stage("stage", 1) as bar:
        bar.advance()
    display.write(finished="x")
    assert screen.getvalue().count("the run goes on") == 1


def test_a_status_file_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    display = Display(tmp_path / "status.json", Console(file=screen, width=300))
    display.write(name="first")
    (tmp_path / "status.tmp").symlink_to("/dev/full")
    display.write(name="second")
    assert "No space left on device: free some space" in screen.getvalue()
    assert (read_status(tmp_path / "status.json") or {})["name"] == "first"
    display.write(name="third")
    assert (read_status(tmp_path / "status.json") or {})["name"] == "third"


@pytest.mark.parametrize("command", ["run", "show"])
def test_runs_is_a_file(folder: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "file").write_text("")
    with pytest.raises(SystemExit) as end:
        main([command, str(folder / "job.yaml"), "--runs", str(folder / "file")])
    assert end.value.code == 1
    error = capsys.readouterr().err
    assert "file" in error and len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["corpus.jsonl", "qrels/test.tsv", "manifest.json", "croissant.json"])
def test_a_damaged_dataset_is_no_dataset(tmp_path: Path, name: str) -> None:
    write_dataset(tmp_path / "d", make_content())
    assert damaged_file(tmp_path / "d") is None
    (tmp_path / "d" / "README.md").write_text("edited by hand")
    assert damaged_file(tmp_path / "d") is None
    data = (tmp_path / "d" / name).read_bytes()
    for damaged in (data[:-2], bytes([data[0] ^ 1]) + data[1:]):
        (tmp_path / "d" / name).write_bytes(damaged)
        assert damaged_file(tmp_path / "d") == name
    (tmp_path / "d" / name).unlink()
    assert damaged_file(tmp_path / "d") == name


def test_a_truncated_dataset_is_exported_again(run: Callable[..., RunResult], folder: Path) -> None:
    first = run()
    path = first.directory / "dataset" / "corpus.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    shown = call("show", folder / "job.yaml", "--runs", folder / "runs", "--json")
    assert json.loads(shown)["finished"] is False
    again = run()
    assert not again.already_done
    assert path.read_bytes() == whole
    assert run().already_done


def test_a_second_interrupt_ends_with_3_and_a_hint(folder: Path) -> None:
    """The first waits for the calls in flight, which take a minute; the second does not."""
    text = (folder / "job.yaml").read_text().replace("concurrency: 8", "concurrency: 8, latency: 60")
    (folder / "job.yaml").write_text(text)
    code = (
        "import sys, airgen.llms.scripted as scripted, airgen.llms.engine as engine\n"
        "from airgen.cli import main\n"
        "send, stop = scripted.ScriptedBackend.send, engine.Engine.stop\n"
        "async def sending(self, request):\n"
        "    print('sent', flush=True)\n"
        "    return await send(self, request)\n"
        "def stopping(self, *words):\n"
        "    stop(self, *words)\n"
        "    print('stopping', flush=True)\n"
        "scripted.ScriptedBackend.send, engine.Engine.stop = sending, stopping\n"
        "main(sys.argv[1:])\n"
    )
    words = [sys.executable, "-c", code, "run", str(folder / "job.yaml"), "--runs", str(folder / "runs")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "sent\n"
        process.send_signal(signal.SIGINT)
        while process.stdout.readline() == "sent\n":
            continue
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 3, said
    assert "stopped by the user; run the same command again to go on" in said
    assert "Traceback" not in said


def test_an_interrupt_that_another_thread_receives_is_heard(folder: Path) -> None:
    """The kernel may give a signal to any thread; the main one is waiting for calls that take ten minutes."""
    text = (folder / "job.yaml").read_text().replace("concurrency: 8", "concurrency: 8, latency: 600")
    (folder / "job.yaml").write_text(text)
    code = (
        "import os, signal, sys, threading, airgen.llms.scripted as scripted, airgen.llms.engine as engine\n"
        "from airgen.cli import main\n"
        "send, stop = scripted.ScriptedBackend.send, engine.Engine.stop\n"
        "def hit():\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGINT)\n"
        "async def sending(self, request):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return await send(self, request)\n"
        "def stopping(self, *words):\n"
        "    stop(self, *words)\n"
        "    threading.Timer(0.1, hit).start()\n"
        "scripted.ScriptedBackend.send, engine.Engine.stop = sending, stopping\n"
        "main(sys.argv[1:])\n"
    )
    words = [sys.executable, "-c", code, "run", str(folder / "job.yaml"), "--runs", str(folder / "runs")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 3, done.stderr
    assert "stopped by the user; run the same command again to go on" in done.stderr


def test_the_life_of_a_query_has_no_control_characters() -> None:
    value = {
        "id": "q", "outcome": "rejected: \x1b[2J", "document": {"id": "\u202e", "title": "\x9b", "text": "\x07\n\x00"},
        "skips": {"stage": "\x1b]0;t\x07"}, "lines": ["query \x1b[2J"],
        "hard_negatives": [{"origin": "mined", "id": "\x85", "title": "\u2066", "text": "\x7f"}],
    }  # fmt: skip
    assert all(char.isprintable() or char == "\n" for char in render_life(value))

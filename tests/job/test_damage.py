"""Files that are damaged, odd or cannot be written: a job goes on, or ends in one line that says what to do."""

import io
import json
import signal
from pathlib import Path

from child import finish, start
from command_line import call
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from job_maker import LEXICAL, Run
from rich.console import Console

from airgen.job.show import status_study
from airgen.steps.progress import Display, read_status

JOB = LEXICAL
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


@example("[" * 100_000)
@given((STATUS | JSON).map(json.dumps))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_odd_status_file_is_shown_as_far_as_it_makes_sense(tmp_path: Path, text: str) -> None:
    (tmp_path / "status.json").write_text(text, encoding="utf-8", errors="surrogatepass")
    status = read_status(tmp_path / "status.json")
    assert (status is None) == (not text.startswith("{"))
    if status is not None:
        for running in (False, True):
            assert status_study(
                {"directory": "d", "finished": False, "running": running, "stages": status["stages"]}
            ).text()


def test_a_status_file_that_cannot_be_written_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    screen = io.StringIO()
    nowhere = Display(tmp_path / "file" / "status.json", Console(file=screen, width=300))
    with nowhere.stage("stage", 1) as bar:
        bar.advance()
    nowhere.write(finished="x")
    assert screen.getvalue().count("the run continues") == 1
    display = Display(tmp_path / "status.json", Console(file=screen, width=300))
    display.write(name="first")
    (tmp_path / "status.tmp").symlink_to("/dev/full")
    display.write(name="second")
    assert "No space left on device: free some space" in screen.getvalue()
    assert (read_status(tmp_path / "status.json") or {})["name"] == "first"
    display.write(name="third")
    assert (read_status(tmp_path / "status.json") or {})["name"] == "third"


def test_a_truncated_dataset_is_exported_again(run: Run, done: Run, folder: Path) -> None:
    first = done()
    path = first.directory / "dataset" / "corpus.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    shown = call("show", folder / "job.yaml", "--runs", folder / "runs", "--json")
    assert json.loads(shown)["finished"] is False
    again = run()
    assert not again.already_done
    assert path.read_bytes() == whole
    assert run().already_done


WATCHED = """
import os, signal, sys, threading, airgen.llms.scripted as scripted, airgen.llms.engine as engine
from airgen.cli import main
send, stop = scripted.ScriptedBackend.send, engine.Engine.stop
def hit():
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
async def sending(self, request):
    exec(sys.argv[1])
    return await send(self, request)
def stopping(self, *words):
    stop(self, *words)
    exec(sys.argv[2])
scripted.ScriptedBackend.send, engine.Engine.stop = sending, stopping
main(sys.argv[3:])
"""


def slowed(folder: Path) -> tuple[object, ...]:
    """How to run the job of the folder, whose calls take ten minutes."""
    text = (folder / "job.yaml").read_text().replace("concurrency: 32", "concurrency: 8, latency: 600")
    (folder / "job.yaml").write_text(text)
    return "run", folder / "job.yaml", "--runs", folder / "runs"


def test_a_second_interrupt_ends_with_3_and_a_hint(folder: Path) -> None:
    """The first waits for the calls in flight; the second does not."""
    with start(WATCHED, "print('sent')", "print('stopping')", *slowed(folder)) as child:
        assert child.stdout.readline() == "sent\n"
        child.send_signal(signal.SIGINT)
        while child.stdout.readline() == "sent\n":
            continue
        child.send_signal(signal.SIGINT)
        said = child.stderr.read()
    assert child.returncode == 3, said
    assert "stopped by the user; run the same command again to continue" in said
    assert "Traceback" not in said


def test_an_interrupt_that_another_thread_receives_is_heard(folder: Path) -> None:
    """The kernel may give a signal to any thread; the main one is waiting for calls."""
    done = finish(WATCHED, "os.kill(os.getpid(), signal.SIGINT)", "threading.Timer(0.1, hit).start()", *slowed(folder))
    assert done.returncode == 3, done.stderr
    assert "stopped by the user; run the same command again to continue" in done.stderr

"""What ends a whole job from outside: SIGTERM, a full disk, a name that no server has, an answer without an end.

Each ends with the exit code and one line that say how to go on; and the job that goes on gives the bytes of a job that
was never disturbed.
"""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beir_folder import data_files
from child import finish
from job_maker import LEXICAL, Run
from simulation import engine_of, openai, simulate

from airgen.errors import Stopped
from airgen.job import RunResult
from airgen.llms.base import Message, Request
from airgen.storage.records import Answer
from airgen.storage.store import Store

JOB = LEXICAL
# The tenth call to the model is the moment at which the world changes.
AT_THE_TENTH = """
import os, resource, signal, sys
from airgen.cli import main
import airgen.llms.scripted as scripted
send, calls = scripted.ScriptedBackend.send, []
async def sending(self, request):
    calls.append(request)
    if len(calls) == 10:
        exec(sys.argv[1])
    return await send(self, request)
scripted.ScriptedBackend.send = sending
main(sys.argv[2:])
"""


@pytest.mark.parametrize(
    ("disturb", "code", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM)", 3, "stopped by the user: run the same command again to continue"),
        (
            "size = os.path.getsize(sys.argv[-1] + '/job/work.duckdb.wal') + 1; "
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))",
            1,
            "free some space and run the same command again",
        ),
    ],
    ids=["SIGTERM", "a full disk"],
)
def test_a_job_goes_on_to_the_same_bytes(
    disturb: str, code: int, words: str, folder: Path, run: Run, done: Run
) -> None:
    text = {"task: qa": "task: qa\nseed: 3\nexport: {secret: false}", "target: 4": "target: 6"}
    whole = data_files(done("undisturbed", text).directory / "dataset")
    ended = finish(AT_THE_TENTH, disturb, "run", folder / "job.yaml", "--runs", folder / "runs")
    assert ended.returncode == code, ended.stderr
    assert words in ended.stderr and "Traceback" not in ended.stderr
    assert not (folder / "runs" / "job" / "dataset").exists()
    assert data_files(run("runs", text).directory / "dataset") == whole


REQUEST = Request("m", (Message("user", "why?"),), {"max_tokens": 50}, stage="query")


def test_a_name_that_no_server_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends with the name, and what it could not ask is asked when the name is known."""

    def unknown(*words: object, **options: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with Store.open(tmp_path / "w.duckdb") as store:

        async def main() -> None:
            backend = openai("http://llm.example.invalid:8000/v1")
            async with engine_of(backend, store, retries=2) as engine:
                await engine.ask(REQUEST)

        with pytest.raises(Stopped, match=r"llm\.example\.invalid:8000: Name or service not known.*same command"):
            simulate(main)
        assert list(store.rows(Answer)) == []


def test_an_answer_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends a little for ever is given up after the time of an answer."""
    monkeypatch.setattr("airgen.llms.health.DOWN", 99)  # in this test, a single failed call does not mean a dead server

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"1\r\n \r\n")
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with Store.open(tmp_path / "w.duckdb") as store:
            backend = openai(f"http://127.0.0.1:{port}/v1")
            async with engine_of(backend, store, retries=0, timeout=0.5) as engine:
                await engine.ask(REQUEST)
            (row,) = store.rows(Answer)
        server.close()
        assert row.error == "timeout"

    asyncio.run(main())


# -- batch mode -------------------------------------------------------------------------------------------------------


LIVE = "{backend: scripted, concurrency: 32}"


def test_a_whole_job_in_batches_gives_the_dataset_of_live_calls(
    run: Callable[..., RunResult], folder: Path, loopback: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airgen.llms.batch.POLL_SECONDS", 0.05)
    server = loopback(scripted=True, batch_seconds=0.05)
    openai = f"backend: openai, model: m, base_url: '{server.base_url}', prices: {{m: {{input: 1, output: 2}}}}"
    live = run("live", {LIVE: f"{{{openai}, concurrency: 32}}"})
    calls = server.stats()["requests"]
    batch = run("batch", {LIVE: f"{{{openai}, mode: batch}}"})
    stats = server.stats()
    for name in ("queries.jsonl", "corpus.jsonl", "qrels/test.jsonl"):
        assert (batch.directory / "dataset" / name).read_bytes() == (live.directory / "dataset" / name).read_bytes()
    assert stats["batch_lines"] == stats["requests"] - calls  # nothing went out live
    assert stats["batches"] * 5 < stats["batch_lines"]  # a stage's calls of one wave share a file
    paid, halved = (sum(stage["usd"] for stage in result.usage.values()) for result in (live, batch))
    assert abs(halved / paid - 0.5) < 0.01
    again = run("batch", {LIVE: f"{{{openai}, mode: batch}}"})
    assert again.usage == {} and server.stats()["batch_lines"] == stats["batch_lines"]

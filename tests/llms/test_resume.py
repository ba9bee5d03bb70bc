"""Killed with SIGKILL half way: at most what was in flight, and one commit group, is asked twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airgen.llms.base import CallLimits, Message, Request
from airgen.llms.call_queue import Connection
from airgen.llms.engine import Engine
from airgen.llms.openai import OpenAIBackend
from airgen.store import Store

CONCURRENCY = 32


def requests(n: int) -> list[Request]:
    return [Request("m", (Message("user", f"number {i}"),), {"max_tokens": 64}, stage="query") for i in range(n)]


def job(base_url: str, path: str, n: int) -> list[str]:
    async def main() -> list[str]:
        with Store.open(Path(path)) as store:
            async with Engine(store, Connection(OpenAIBackend(base_url), CallLimits(CONCURRENCY))) as engine:
                answers = await asyncio.gather(*(engine.ask(request) for request in requests(n)))
                return [answer.text for answer in answers]

    return asyncio.run(main())


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("after", [1, 150, 450])
def test_killed_and_resumed(after: int, loopback: Callable[..., Any], tmp_path: Path) -> None:
    server, path = loopback(latency=0.02), tmp_path / "w.duckdb"
    child = subprocess.Popen(
        [sys.executable, __file__, server.base_url, str(path)], env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    while server.stats()["answered"] < after:
        assert child.poll() is None, "the job ended before it could be killed"
        time.sleep(0.001)  # not a wait for luck: the server's own count decides
    child.kill()
    child.wait()
    with Store.open(path) as store:
        (kept,) = store.query("SELECT count(*) FROM answer")[0]
    before = server.stats()["requests"]
    texts = job(server.base_url, str(path), 500)
    stats = server.stats()
    assert stats["requests"] - before == 500 - kept  # nothing that reached the disk is asked again
    assert stats["requests"] - 500 <= CONCURRENCY + 32
    assert len(set(texts)) == 500
    assert job(server.base_url, str(path), 500) == texts
    assert server.stats()["requests"] == stats["requests"]  # a finished job makes no call


if __name__ == "__main__":
    job(sys.argv[1], sys.argv[2], 500)

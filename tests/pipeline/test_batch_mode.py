"""A whole job through the Batch API, on a server that answers as the scripted model does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airgen.pipeline import RunResult

LIVE = "{backend: scripted, concurrency: 8}"


def test_a_whole_job_in_batches_gives_the_dataset_of_live_calls(
    run: Callable[..., RunResult], folder: Path, loopback: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airgen.llms.batch.POLL_SECONDS", 0.05)
    monkeypatch.setattr("airgen.llms.batch.GATHER_SECONDS", 0.05)
    server = loopback(scripted=True, batch_seconds=0.05)
    openai = f"backend: openai, model: m, base_url: '{server.base_url}', prices: {{m: {{input: 1, output: 2}}}}"
    live = run("live", {LIVE: f"{{{openai}, concurrency: 8}}"})
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

"""The need behind a query: asked once a query, without a document, and shown to every judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import call
from job_maker import PIPELINE, Run

from airgen.llms.base import Reply, Request
from airgen.llms.scripted import ScriptedBackend
from airgen.pipeline import Job
from airgen.pipeline.control.judge import with_need
from airgen.pipeline.estimate import estimate

JUDGE = "recall: {model: all-minilm-l6-v2-int8, top_k: 30}"
NEED = {JUDGE: f"{JUDGE}\n  judge: {{need: true}}", "target: 12": "target: 4"}


def test_every_judgment_knows_the_need_and_no_need_knows_a_document(
    run: Run, folder: Path, asked: list[Request]
) -> None:
    result = run(changes=NEED)
    needs = [request for request in asked if request.stage == "need"]
    judged = [request for request in asked if request.stage == "judgment"]
    assert needs and judged and len({request.key for request in needs}) == len(needs)  # once a query
    for request in needs:
        text = request.messages[-1].content
        assert "<character>" in text and "<scenario>" in text and "<document>" not in text and "Specimen" not in text
    assert all("What is sought: Facts about" in request.messages[0].content for request in judged)
    uses = json.loads((result.directory / "dataset" / "manifest.json").read_text())["provenance"]
    assert [use["prompt"] for use in uses if use["role"].startswith("need")] == ["need"]
    query = json.loads((result.directory / "dataset" / "queries.jsonl").read_text().splitlines()[0])["_id"]
    words = ("show", folder / "job.yaml", query, "--runs", folder / "runs")
    assert "need       Facts about" in call(*words) and json.loads(call(*words, "--json"))["need"]
    stages = {stage.stage: stage.calls for stage in estimate(Job(folder / "job.yaml", folder / "fresh")).stages}
    assert 4 <= stages["need"] < stages["judgment"]


def test_own_queries_have_a_need_without_anybody_who_asks(run: Run, folder: Path, asked: list[Request]) -> None:
    (folder / "own.txt").write_text("why do bridges need repair in winter\n")
    result = run(changes={**NEED, "target: 12": "queries: {file: own.txt}"})
    (need,) = [request for request in asked if request.stage == "need"]
    assert "<character>" not in need.messages[-1].content and "<scenario>" not in need.messages[-1].content
    assert "winter" in need.messages[-1].content and result.manifest is not None


def test_a_need_that_nobody_gives_leaves_the_query_alone(
    run: Run, asked: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    send = ScriptedBackend.send

    async def no_need(self: ScriptedBackend, request: Request) -> Reply:
        reply = await send(self, request)
        return Reply("I cannot say", prompt_tokens=1, completion_tokens=1) if request.stage == "need" else reply

    monkeypatch.setattr(ScriptedBackend, "send", no_need)
    result = run(changes=NEED)
    assert result.manifest is not None and result.manifest.statistics.splits
    assert not any("What is sought" in request.messages[0].content for request in asked if request.stage == "judgment")


def test_the_need_is_part_of_what_a_judgment_depends_on(folder: Path) -> None:
    def job(judge: str) -> Job:
        (folder / "job.yaml").write_text(PIPELINE.replace(JUDGE, f"{JUDGE}\n  judge: {judge}"))
        return Job(folder / "job.yaml", folder / "runs")

    plain, default, need = job("{kind: yes-no}"), job("{kind: yes-no, need: false}"), job("{kind: yes-no, need: true}")
    assert plain.fingerprints == default.fingerprints and plain.identity == default.identity
    changed = {stage for stage, fp in plain.fingerprints.items() if need.fingerprints[stage] != fp}
    assert changed == {"judgment"} and plain.identity != need.identity
    assert with_need("q", "") == "q"

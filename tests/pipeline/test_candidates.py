"""Several drafts of a query: which one is kept, what is asked, and what a stopped job asks again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airgen.llms.base import Reply, Request
from airgen.llms.scripted import ScriptedBackend
from airgen.pipeline import Job, RunResult
from airgen.pipeline.estimate import estimate
from airgen.pipeline.show import find_lineage, life
from airgen.records import Candidate, Query

Run = Callable[..., RunResult]
FIVE = {"target: 12": "target: 6\ngeneration: {candidates: 5, rewrites: 0, hard_negatives: [0, 0]}"}


def kept(folder: Path, runs: str = "runs") -> tuple[dict[str, list[Candidate]], dict[str, Query]]:
    """The drafts and the query of each scenario."""
    job = Job(folder / "job.yaml", folder / runs)
    with job.open_store(read_only=True) as store:
        fingerprint = job.fingerprints["query"]
        drafts: dict[str, list[Candidate]] = {}
        for row in store.made(Candidate, fingerprint):
            drafts.setdefault(row.parent, []).append(row)
        return drafts, {row.parent: row for row in store.made(Query, fingerprint)}


def test_the_draft_that_finds_its_source_best_becomes_the_query(run: Run, folder: Path, asked: list[Request]) -> None:
    result = run(changes=FIVE)
    drafts, queries = kept(folder)
    assert queries and set(queries) <= set(drafts)
    for parent, query in queries.items():
        rows = sorted(drafts[parent], key=lambda row: row.ordinal)
        assert [row.ordinal for row in rows] == [0, 1, 2, 3, 4]
        usable = [row for row in rows if not row.problem]
        best = max(row.score for row in usable)
        assert query.text == next(row.text for row in usable if row.score == best)
        assert all(-1 <= row.score <= 1 for row in usable)
    scores = {row.score for rows in drafts.values() for row in rows if not row.problem}
    assert len(scores) > 3  # drafts are told apart
    first = {request.key: request for request in asked if request.stage == "query" and len(request.messages) < 3}
    assert sorted({request.sample for request in first.values()}) == [0, 1, 2, 3, 4]
    job = Job(folder / "job.yaml", folder / "runs")
    with job.open_store(read_only=True) as store:
        accepted = job.accepted(store)
        lineage, _ = find_lineage(accepted, job.ids.query(accepted.lineages[0]), job.ids)
        shown = life(store, job, lineage, "")
    assert len(shown["query"]["drafts"]) == 5
    assert (result.directory / "dataset" / "manifest.json").is_file()


def test_a_stopped_job_asks_nothing_twice_and_more_drafts_ask_only_for_the_new_ones(
    run: Run, folder: Path, asked: list[Request]
) -> None:
    run("one", FIVE)
    before = len(asked)
    run("one", FIVE)
    assert len(asked) == before
    run("one", {"target: 12": FIVE["target: 12"].replace("candidates: 5", "candidates: 6")})
    old = {tuple(request.messages) for request in asked[:before] if request.stage == "query"}
    new = [request for request in asked[before:] if tuple(request.messages) in old]
    assert new and {request.sample for request in new} == {5}
    assert len({request.key for request in asked}) == len(asked)


def test_where_every_draft_is_refused_the_model_is_told_why(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, told = ScriptedBackend.send, []

    async def vague(self: ScriptedBackend, request: Request) -> Reply:
        if request.stage != "query":
            return await send(self, request)
        if any("cannot be used" in message.content for message in request.messages):
            told.append(request.key)
            return await send(self, request)
        return Reply(json.dumps({"query": "what does the document say"}), prompt_tokens=1, completion_tokens=1)

    monkeypatch.setattr(ScriptedBackend, "send", vague)
    run(changes=FIVE)
    drafts, queries = kept(folder)
    assert told and queries
    assert all(row.problem for rows in drafts.values() for row in rows)
    assert all(query.attempts > 1 for query in queries.values())


def test_the_bill_counts_every_draft(run: Run, folder: Path) -> None:
    text = (folder / "job.yaml").read_text()
    calls = {}
    for count in (1, 5):
        given = text.replace("target: 12", f"target: 12\ngeneration: {{candidates: {count}}}")
        (folder / f"bill-{count}.yaml").write_text(given)
        stages = estimate(Job(folder / f"bill-{count}.yaml", folder / "none")).stages
        calls[count] = next(stage.calls for stage in stages if stage.stage == "query")
    assert calls[5] == pytest.approx(5 * calls[1], abs=3)

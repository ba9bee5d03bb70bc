"""Several drafts of a query: which one is kept, what is asked, and what a stopped job asks again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airgen.errors import SettingsError
from airgen.llms.base import Reply, Request
from airgen.llms.scripted import ScriptedBackend
from airgen.pipeline import Job, RunResult
from airgen.pipeline.choice.query_features import FEATURES, Found, features
from airgen.pipeline.choice.weights import score, weights
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


def test_the_draft_of_the_greatest_score_becomes_the_query(run: Run, folder: Path, asked: list[Request]) -> None:
    result = run(changes=FIVE)
    drafts, queries = kept(folder)
    assert queries and set(queries) <= set(drafts)
    for parent, query in queries.items():
        rows = sorted(drafts[parent], key=lambda row: row.ordinal)
        assert [row.ordinal for row in rows] == [0, 1, 2, 3, 4]
        usable = [row for row in rows if not row.problem]
        best = max(row.score for row in usable)
        assert query.text == next(row.text for row in usable if row.score == best)
        assert all(row.score == score(row.features) and len(row.features) == len(FEATURES) for row in usable)
    scores = {row.score for rows in drafts.values() for row in rows if not row.problem}
    assert len(scores) > 3  # the features do tell drafts apart
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


def test_a_sample_without_a_promising_draft_gives_no_query(run: Run, folder: Path) -> None:
    run("all", FIVE)
    scores = sorted(max(row.score for row in rows) for rows in kept(folder, "all")[0].values())
    least = round(scores[len(scores) // 2] - 5e-7, 6)  # about half of them pass
    given = FIVE["target: 12"].replace("candidates: 5", f"candidates: 5, min_score: {least}")
    run("some", {"target: 12": given})
    drafts, queries = kept(folder, "some")
    for parent, rows in drafts.items():
        assert (parent in queries) == any(not row.problem and row.score >= least for row in rows)
    assert queries and len(queries) < len(drafts)


def test_a_single_draft_has_no_score(run: Run, folder: Path) -> None:
    with pytest.raises(SettingsError, match="min_score needs candidates above 1"):
        run(changes={"target: 12": "target: 6\ngeneration: {min_score: 0.5}"})


def test_the_bill_counts_every_draft(run: Run, folder: Path) -> None:
    text = (folder / "job.yaml").read_text()
    calls = {}
    for count in (1, 5):
        given = text.replace("target: 12", f"target: 12\ngeneration: {{candidates: {count}}}")
        (folder / f"bill-{count}.yaml").write_text(given)
        stages = estimate(Job(folder / f"bill-{count}.yaml", folder / "none")).stages
        calls[count] = next(stage.calls for stage in stages if stage.stage == "query")
    assert calls[5] == pytest.approx(5 * calls[1], abs=3)


def test_where_the_source_was_found() -> None:
    assert Found.of([4, 7, 2], [9.0, 6.0, 3.0], [4]) == Found(1, pytest.approx(1 / 3))
    assert Found.of([4, 7, 2], [9.0, 6.0, 3.0], [7]) == Found(2, pytest.approx(-0.5))
    assert Found.of([4, 7, 2], [9.0, 6.0, 3.0], [4, 7]) == Found(2, pytest.approx(0.5))  # both of a multi-hop query
    assert Found.of([4, -1], [9.0, float("-inf")], [4]) == Found(1, 1.0)
    assert Found.of([4, 7], [9.0, 6.0], [5]) == Found(0, -1.0)
    assert Found.of([4, 7], [9.0, 6.0], []) == Found(0, -1.0)
    assert [Found(rank, 0).score for rank in (0, 1, 2, 8)] == [0, 1, 0.5, 0.25]


def test_the_features_of_a_query_by_hand() -> None:
    frequencies = {"what": [], "bends the wing": [1, 10], "zeppelin": [0]}
    source = ("Bending", "The wing of an aircraft bends under load.")
    values = dict(
        zip(
            FEATURES,
            features(
                "bends the wing", source, ["bends the hull"], "en", Found(1, 0.5), Found(2, -0.1),
                frequencies.__getitem__, 100,
            ),
            strict=True,
        )
    )  # fmt: skip
    assert values["lexical_rank"] == 1 and values["dense_rank"] == 0.5
    assert values["lexical_margin"] == 0.5 and values["dense_margin"] == pytest.approx(-0.4)
    assert values["rare"] == pytest.approx(0.75) and values["rarest"] == 1  # in one and in ten of 100 passages
    assert values["known"] == 1 and values["borrowed"] == 1 and values["title"] == 1
    assert values["copied"] == pytest.approx(2 / 3) and values["words"] == pytest.approx(0.3)
    assert values["content"] == pytest.approx(2 / 3) and values["ends_open"] == 0
    assert values["peers"] == pytest.approx(0.5)
    open_ended = features("zeppelin", source, [], "en", Found(0, -1.0), None, frequencies.__getitem__, 100)
    assert dict(zip(FEATURES, open_ended, strict=True))["known"] == 0
    assert open_ended[FEATURES.index("dense_rank")] == 0  # as the lexical one, where there is no embedding model


@pytest.mark.parametrize(("query", "ends_open"), [("wing load of the", 1.0), ("load of wings in", 1.0), ("wing", 0.0)])
def test_a_query_that_breaks_off(query: str, ends_open: float) -> None:
    found = features(query, ("", "wing load"), [], "en", Found(1, 1.0), None, lambda text: [1], 10)
    assert found[FEATURES.index("ends_open")] == ends_open


def test_every_feature_has_a_weight() -> None:
    assert list(weights()) == [*FEATURES, "intercept"]

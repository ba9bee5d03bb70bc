"""Switches that change what a job's queries and labels are like: pools, saturated queries, the original queries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from rich.console import Console

from airgen.dataset.verify import verify
from airgen.errors import DatasetError
from airgen.pipeline import Job, RunResult
from airgen.pipeline.assemble import export_dataset
from airgen.pipeline.export_rules import share_on_top
from airgen.pipeline.progress import Display
from airgen.pipeline.run import run_job
from airgen.records import Decision, Prelabel, Recall

Run = Callable[..., RunResult]
RECALL = "recall: {model: all-minilm-l6-v2-int8, top_k: 30}"


def recalled(result: RunResult) -> dict[str, list[str]]:
    with duckdb.connect(str(result.directory / "work.duckdb"), read_only=True) as connection:
        return dict(connection.execute("SELECT parent, ids FROM recall").fetchall())


def test_pools_join_the_recall(run: Run) -> None:
    few = {RECALL: "recall: {model: all-minilm-l6-v2-int8, top_k: 5}"}
    alone = recalled(run("alone", few))
    pooled = recalled(run("pooled", {RECALL: f"{few[RECALL]}\n  pools: [bm25, {{kind: lsa, dim: 10}}]"}))
    assert alone.keys() == pooled.keys()
    for query, ids in pooled.items():
        assert set(alone[query]) <= set(ids)
        assert len(set(ids)) == len(ids) <= 15
    assert any(len(ids) > 5 for ids in pooled.values())
    only = "recall: {model: none, top_k: 5, pools_only: true}\n  pools: [bm25]"
    assert all(len(ids) == 5 for ids in recalled(run("only", {RECALL: only})).values())


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_saturated_queries_are_dropped_and_counted(run: Run, folder: Path) -> None:
    saturated = {"llm:": "export: {drop_saturated: 1.0, ids: original, secret: false}\nllm:"}
    result = run("dropped", saturated)
    assert result.manifest is not None
    (step,) = (one for one in result.manifest.funnel if one.stage == "queries with room")
    assert (step.entered, step.reasons) == (12, {"saturated": 12 - step.left})
    assert 0 < step.left < 12
    kept = {row["_id"] for row in rows(result.directory / "dataset" / "queries.jsonl")}
    assert len(kept) == step.left
    assert verify(result.directory / "dataset") == []
    job = Job(folder / "job.yaml", folder / "dropped")
    with job.open_store(read_only=True) as store:
        gone = [one for one in job.accepted(store).lineages if job.ids.query(one) not in kept]
    assert len(gone) == 12 - step.left
    # A job whose only source is one of those documents has no query left, and says so. The last one: BM25 weighs
    # words by the corpus, and where the negatives of the other queries are missing it finds the first one's negative.
    frame = frozenset({gone[-1].passage.id})
    with pytest.raises(DatasetError, match=r"all 1 queries are saturated: raise export\.drop_saturated"):
        job = Job(folder / "job.yaml", folder / "none", target=1, frame=frame)
        run_job(job, Display(folder / "none" / "status.json", Console(quiet=True)))


def test_share_on_top_by_hand() -> None:
    recall = Recall("r", "q", "f", 0, "m", ["a", "b"], [0.9, 0.1])
    votes = [Prelabel("p", "q", "f", place, "m", ["a", "b"], scores) for place, scores in enumerate([[1, 2], [2, 1]])]
    assert share_on_top(recall, votes, {"a"}) == pytest.approx(2 / 3)
    assert share_on_top(recall, votes, {"b"}) == pytest.approx(1 / 3)
    assert share_on_top(recall, votes, set()) == 0
    assert share_on_top(None, [], {"a"}) == 0


def test_without_rewriting_the_original_text_keeps_its_labels(run: Run, folder: Path) -> None:
    result = run()
    job = Job(folder / "job.yaml", folder / "runs")
    with job.open_store() as store:
        export_dataset(job, store, job.accepted(store), folder / "original", ["rewrite"])
        originals = {one.query.text for one in job.accepted(store).lineages if one.query}
        assert store.made(Decision, job.plan(store)["decision"])
    full = result.directory / "dataset"
    bare = folder / "original"
    rewritten, original = (rows(path / "queries.jsonl") for path in (full, bare))
    assert [row["_id"] for row in rewritten] == [row["_id"] for row in original]
    assert {row["text"] for row in original} == originals
    assert {row["text"] for row in rewritten} != originals
    labels = [{path.name: path.read_bytes() for path in (one / "qrels").iterdir()} for one in (full, bare)]
    assert labels[0] == labels[1] and "test.tsv" in labels[0]

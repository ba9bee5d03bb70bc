"""Switches that change what a job's queries and labels are like: pools, the original queries."""

from collections.abc import Callable
from pathlib import Path

import duckdb
from beir_folder import read_rows

from airgen.pipeline import Job, RunResult
from airgen.pipeline.assemble import export_dataset

Run = Callable[..., RunResult]
RECALL = "recall: {model: all-minilm-l6-v2-int8, top_k: 30}"


def recalled(result: RunResult) -> dict[str, list[str]]:
    with duckdb.connect(str(result.directory / "work.duckdb"), read_only=True) as connection:
        return dict(connection.execute("SELECT parent, ids FROM recall").fetchall())


def test_pools_join_the_recall(run: Run) -> None:
    few = {"target: 12": "target: 4"}
    recall = "recall: {model: all-minilm-l6-v2-int8, top_k: 5}"
    alone = recalled(run("alone", {**few, RECALL: recall}))
    pooled = recalled(run("pooled", {**few, RECALL: f"{recall}\n  pools: [bm25, {{kind: lsa, dim: 10}}]"}))
    assert alone.keys() == pooled.keys()
    for query, ids in pooled.items():
        assert set(alone[query]) <= set(ids)
        assert len(set(ids)) == len(ids) <= 15
    assert any(len(ids) > 5 for ids in pooled.values())
    only = "recall: {model: none, top_k: 5, pools_only: true}\n  pools: [bm25]"
    assert all(len(ids) == 5 for ids in recalled(run("only", {**few, RECALL: only})).values())


def test_without_rewriting_the_original_text_keeps_its_labels(done: Run, folder: Path) -> None:
    full, bare = done().directory / "dataset", folder / "original"
    job = Job(folder / "job.yaml", folder / "runs")
    with job.open_store() as store:
        export_dataset(job, store, job.accepted(store), bare, ["rewrite"])
        originals = {one.query.text for one in job.accepted(store).lineages if one.query}
    rewritten, original = (read_rows(path / "queries.jsonl") for path in (full, bare))
    assert [row["_id"] for row in rewritten] == [row["_id"] for row in original]
    assert {row["text"] for row in original} == originals != {row["text"] for row in rewritten}
    labels = [{path.name: path.read_bytes() for path in (one / "qrels").iterdir()} for one in (full, bare)]
    assert labels[0] == labels[1] and "test.tsv" in labels[0]

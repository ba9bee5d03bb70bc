"""Likeness to the source: cosines by hand, in a whole job, and where there is no source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from job_maker import folder, run

from airgen.pipeline import Job, RunResult
from airgen.pipeline.control.source_likeness import cosines
from airgen.records import Decision, Recall, SourceLikeness
from airgen.retrievers import load_embedder

__all__ = ["folder", "run"]

Run = Callable[..., RunResult]
JUDGE = {"top_k: 30}": "top_k: 300}\n  judge: {kind: rerankers, calibration: own.json}"}
SOURCELESS = {"weights": {"scores": 1.0}, "intercept": 1.0, "threshold": 0.5}


def write(folder: Path, source: float = 1.0, **changes: object) -> None:
    value = {"format": 1, "weights": {"source": source}, "intercept": 0.0, "threshold": 0.5, "judge": {},
             "sourceless": SOURCELESS, **changes}  # fmt: skip
    (folder / "own.json").write_text(json.dumps(value), encoding="utf-8")


def rows(result: RunResult) -> tuple[list[SourceLikeness], dict[str, Recall], list[Decision], dict[str, str]]:
    job = Job(result.directory.parents[1] / "job.yaml", result.directory.parent)
    with job.open_store(read_only=True) as store:
        plan = job.plan(store)
        texts = dict(store.query("SELECT id, title || ' ' || text FROM passage"))
        texts |= dict(store.query("SELECT id, title || ' ' || text FROM hard_negative"))
        recalls = {row.parent: row for row in store.made(Recall, plan["recall"])}
        likeness = store.made(SourceLikeness, plan["source_likeness"])
        return likeness, recalls, store.made(Decision, plan["decision"]), texts


def test_cosines_by_hand() -> None:
    vectors = np.array([[3.0, 4.0], [0.0, 0.0], [-1.0, 0.0]], np.float16)
    one = cosines(vectors, np.array([[2.0, 0.0]], np.float16))
    assert one.tolist() == pytest.approx([0.6, 0.0, -1.0])
    both = cosines(vectors, np.array([[2.0, 0.0], [0.0, 1.0]], np.float16))
    assert both.tolist() == pytest.approx([0.8, 0.0, 0.0])  # the nearest of two sources counts
    assert cosines(vectors[:1], vectors[:1]).tolist() == pytest.approx([1.0])


def test_a_job_weighs_likeness_by_the_recalls_own_vectors(run: Run, folder: Path) -> None:
    write(folder)
    result = run("runs", JUDGE)
    found, recalls, decisions, texts = rows(result)
    assert len(found) == 12
    embedder = load_embedder("all-minilm-l6-v2-int8")
    for row in found[:3]:
        assert row.ids == recalls[row.parent].ids and len(row.sources) == 1
        vectors = embedder.encode([texts[id_] for id_ in row.ids], "passage").astype(np.float64)
        source = embedder.encode([texts[row.sources[0]]], "passage").astype(np.float64)[0]
        expected = vectors @ source / np.linalg.norm(vectors, axis=1) / np.linalg.norm(source)
        assert row.scores == pytest.approx(expected.tolist(), abs=2e-3)  # rows on the disk are fp16
    added = {row.id: row.probability for row in decisions if row.action == "add_positive"}
    assert added and all(probability is not None and probability >= 0.5 for probability in added.values())
    uses = json.loads((result.directory / "dataset" / "manifest.json").read_text(encoding="utf-8"))["provenance"]
    assert {"likeness to the source of a query"} <= {use["role"] for use in uses}
    # Other weights are another decision: nothing is encoded or compared again.
    write(folder, -1.0)
    again = run("runs", JUDGE)
    turned = rows(again)
    assert turned[0] == found and not again.already_done
    fewer = {(row.parent, row.id) for row in turned[2] if row.action == "add_positive"}
    assert fewer.isdisjoint({(row.parent, row.id) for row in decisions if row.action == "add_positive"})


def test_negatives_that_were_written_are_decided_without_likeness(run: Run, folder: Path) -> None:
    """They are like the source on purpose, and would all be called relevant."""
    write(folder, 1000.0)
    decisions = rows(run("runs", JUDGE))[2]
    doubted: dict[str, set[bool]] = {"negative": set(), "other": set()}
    for row in decisions:
        if row.probability is not None and row.action != "keep_query":
            kind = "negative" if row.action.endswith("_negative") else "other"
            doubted[kind].add(1e-6 < row.probability < 1 - 1e-6)
    # A weight of 1,000 leaves hardly any doubt; the weights without likeness always do.
    assert doubted["negative"] == {True} and False in doubted["other"]


def test_a_calibration_without_likeness_measures_none(run: Run, folder: Path) -> None:
    write(folder, **SOURCELESS, sourceless=None)
    result = run("runs", JUDGE)
    job = Job(result.directory.parents[1] / "job.yaml", result.directory.parent)
    with job.open_store(read_only=True) as store:
        assert "source_likeness" not in job.plan(store)
        assert store.rows(SourceLikeness) == []


def test_without_a_recall_model_the_weights_without_likeness_decide(run: Run, folder: Path) -> None:
    """`airgen agree --leave-one-out` takes the recall model away, too."""
    judge = "top_k: 300, pools_only: true}\n  pools: [bm25]\n  judge: {kind: rerankers, calibration: own.json}"
    write(folder, 1000.0, notes={"fitted on": "nothing, by hand"})
    result = run("runs", {"top_k: 30}": judge})
    job = Job(folder / "job.yaml", folder / "runs")
    assert job.combination is not None and not job.combination.weighs_source
    assert (job.combination.weights, job.combination.notes) == ({"scores": 1.0}, {"fitted on": "nothing, by hand"})
    with job.open_store(read_only=True) as store:
        assert "source_likeness" not in job.plan(store)
        found = [row.probability for row in store.made(Decision, job.plan(store)["decision"])]
    assert any(one is not None and 0.01 < one < 0.99 for one in found)
    assert result.manifest is not None

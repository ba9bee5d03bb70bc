"""Mined hard negatives in a whole job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airgen.dataset.verify import verify
from airgen.errors import SettingsError
from airgen.pipeline import Job, RunResult
from airgen.pipeline.show import find_lineage, life, render_life

Run = Callable[..., RunResult]
MINED = {"target: 12": "target: 12\ngeneration: {negatives: mined, mined_ranks: [5, 25], hard_negatives: [3, 5]}"}


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def labels(dataset: Path) -> list[dict[str, Any]]:
    return [row for path in sorted((dataset / "qrels").glob("*.jsonl")) for row in rows(path)]


def data(dataset: Path) -> dict[str, bytes]:
    kept = ("corpus", "queries", "qrels", "private")
    paths = [path for path in dataset.rglob("*") if path.is_file()]
    named = {path.relative_to(dataset).as_posix(): path for path in paths}
    return {name: path.read_bytes() for name, path in named.items() if name.startswith(kept)}


def test_mined_negatives_are_passages_cost_nothing_and_are_shown(run: Run, folder: Path) -> None:
    result = run("runs", MINED)
    dataset = result.directory / "dataset"
    assert verify(dataset) == []
    assert "hard_negative" not in result.usage
    assert len(rows(dataset / "corpus.jsonl")) == 60  # nothing was added
    lineage = {row["query"]: row for row in rows(dataset / "private" / "lineage.jsonl")}
    zeros: dict[str, set[str]] = {}
    ones: dict[str, set[str]] = {}
    for row in labels(dataset):
        (ones if row["score"] else zeros).setdefault(row["query-id"], set()).add(row["corpus-id"])
    assert zeros.keys() <= ones.keys() == lineage.keys()
    for query, row in lineage.items():
        assert row["negatives"] == []
        assert set(row["mined"]) == zeros.get(query, set())
        assert len(row["mined"]) <= 5 and not ones[query] & set(row["mined"])
    assert sum(map(len, zeros.values())) >= 12
    assert result.manifest is not None
    (step,) = [step for step in result.manifest.funnel if step.stage == "queries with all mined negatives"]
    assert step.entered == 12 and step.entered - step.left == sum(step.reasons.values())
    job = Job(folder / "job.yaml", folder / "runs")
    one = next(row for row in lineage.values() if row["mined"])
    with job.open_store() as store:
        for without in ("control", "negatives"):
            job.export(store, job.accepted(store), folder / without, [without])
            assert all(row["score"] == 1 for row in labels(folder / without))
        value = life(store, job, *find_lineage(job.accepted(store), one["query"], job.ids))
    assert [row["origin"] for row in value["hard_negatives"]] == ["mined"] * len(one["mined"])
    assert sum(label["kind"] == "mined" for label in value["labels"]) == len(one["mined"])
    assert f"\nmined      {value['hard_negatives'][0]['id']}" in render_life(value)


def test_both_add_to_the_generated_ones_and_leave_them_as_they_are(run: Run) -> None:
    alone = run("alone")
    both = run("both", {"target: 12": "target: 12\ngeneration: {negatives: both, mined_ranks: [5, 25]}"})
    before, after = labels(alone.directory / "dataset"), labels(both.directory / "dataset")
    assert {tuple(row.items()) for row in before} < {tuple(row.items()) for row in after}
    assert len(rows(alone.directory / "dataset" / "corpus.jsonl")) == len(
        rows(both.directory / "dataset" / "corpus.jsonl")
    )


def test_neither_concurrency_nor_a_detour_changes_what_is_mined(run: Run) -> None:
    straight = data(run("straight", {**MINED, "concurrency: 8": "concurrency: 1"}).directory / "dataset")
    before = data(run("detour").directory / "dataset")
    detour = data(run("detour", MINED).directory / "dataset")
    assert detour == straight != before
    # And back: a pipeline that asks for generated ones reads no mined ones of an earlier plan.
    assert data(run("detour").directory / "dataset") == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target: 12": "target: 12\ngeneration: {negatives: mined, mined_ranks: [40, 90]}"}, "top_k"),
        ({"target: 12": "target: 12\ngeneration: {negatives: mined, mined_ranks: [9, 3]}"}, "first, last"),
        ({"target: 12": "target: 12\ngeneration: {negatives: fished}"}, "negatives"),
    ],
)
def test_settings_that_could_mine_nothing_are_refused(run: Run, changes: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        run("runs", changes)

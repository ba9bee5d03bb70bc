"""From a finished job to people's answers in the dataset's card."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from beir_folder import label_rows
from command_line import call

from airgen.dataset.verify import verify
from airgen.errors import DatasetError, StoreError
from airgen.pipeline import Job, RunResult
from airgen.quality.audit.label_audit import decided_items, score_labels
from airgen.quality.audit.sample import load_sample

Run = Callable[..., RunResult]


def test_a_sample_is_drawn_answered_and_scored_into_the_card(done: Run, folder: Path) -> None:
    with pytest.raises(StoreError, match="airgen run"):
        decided_items(Job(folder / "job.yaml", folder / "runs"))
    dataset = done().directory / "dataset"
    runs = ("--runs", folder / "runs")
    said = json.loads(call("audit", "sample", folder / "job.yaml", 20, *runs, "--json"))
    audit = folder / "runs" / "job" / "audit"
    assert said["folder"] == str(audit) and said["pairs"] == 20
    sample = load_sample(audit / "sample.json")
    # Items name documents and queries as the dataset does.
    labels = {(row["query-id"], row["corpus-id"]): row["score"] for row in label_rows(dataset)}
    for item in sample.items:
        if item.kind in ("positive", "added positive", "generated negative"):
            assert labels[item.query, item.document] == int(item.relevant)
        else:
            assert (item.query, item.document) not in labels
    assert sum(count for name, count in sample.populations.items() if name.startswith("positive")) == 12
    answers = {str(number): 3 if item.relevant else 0 for number, item in enumerate(sample.items, 1)}
    (folder / "answers.json").write_text(json.dumps({"key": sample.key, "answers": answers}), encoding="utf-8")
    before = {path.name: path.read_bytes() for path in dataset.glob("*.jsonl")}
    result = json.loads(call("audit", "score", folder / "job.yaml", folder / "answers.json", *runs, "--json"))
    assert result["overall"]["share"] == pytest.approx(1.0)
    assert verify(dataset) == []
    card = (dataset / "README.md").read_text(encoding="utf-8")
    assert "## Audit by people" in card and "No person has checked" not in card
    assert {path.name: path.read_bytes() for path in dataset.glob("*.jsonl")} == before
    assert "labels that people confirm" in call("audit", "score", folder / "job.yaml", folder / "answers.json", *runs)


def test_answers_to_decisions_that_changed_are_refused(run: Run, done: Run, folder: Path) -> None:
    done()
    call("audit", "sample", folder / "job.yaml", 20, "--runs", folder / "runs")
    audit = folder / "runs" / "job" / "audit"
    key = load_sample(audit / "sample.json").key
    (folder / "answers.json").write_text(json.dumps({"key": key, "answers": {"1": 3}}), encoding="utf-8")
    run("runs", {"top_k: 30}": "top_k: 30}\n  judge: {relevant_from: 1}"})
    with pytest.raises(DatasetError, match="decided otherwise since the sample was drawn"):
        score_labels(Job(folder / "job.yaml", folder / "runs"), [folder / "answers.json"], audit)

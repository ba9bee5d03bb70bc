"""A job whose decisions are a combined judge's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airgen.dataset.verify import verify
from airgen.errors import DatasetError, SettingsError
from airgen.pipeline import Job, RunResult
from airgen.prompts import PromptSet
from airgen.records import Decision

Run = Callable[..., RunResult]
JUDGE = {"top_k: 30}": "top_k: 30}\n  judge: {kind: yes-no, calibration: own.json}"}


def write(folder: Path, intercept: float, weights: dict[str, float] | None = None) -> None:
    prompt = PromptSet().get("small/judge_yes_no")
    identity = {"model": "scripted", "prompt": prompt.name, "fingerprint": prompt.fingerprint}
    if weights and "llm" not in weights:
        identity = {}
    value = {"format": 1, "weights": weights or {"llm": 1.0, "scores": 1.0, "votes": 1.0}, "intercept": intercept,
             "threshold": 0.5, "judge": identity, "notes": {"fitted on": "nothing, by hand"}}  # fmt: skip
    (folder / "own.json").write_text(json.dumps(value), encoding="utf-8")


def decisions(result: RunResult) -> list[tuple[str, int, float | None]]:
    folder = result.directory.parents[1]
    job = Job(folder / "job.yaml", result.directory.parent)
    with job.open_store(read_only=True) as store:
        rows = sorted(store.made(Decision, job.plan(store)["decision"]), key=lambda row: row.key)
    return [(row.action, row.level, row.probability) for row in rows]


def labels(result: RunResult, variant: str = "qrels") -> dict[tuple[str, str], float]:
    return {
        (row["query-id"], row["corpus-id"]): row["score"]
        for path in sorted((result.directory / "dataset" / variant).glob("*.jsonl"))
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
    }


def test_decisions_and_gains_are_the_combined_judges(run: Run, folder: Path) -> None:
    write(folder, 0.0)
    result = run("runs", JUDGE)
    rows = decisions(result)
    said = {probability for _, _, probability in rows if probability is not None}
    assert not said <= {0.1, 0.9}  # the scripted LLM knows only these two
    gains = labels(result, "qrels-soft")
    assert {round(gain, 6) for gain in gains.values()} <= {round(p, 6) for p in said} | {0.0, 1.0}
    card = (result.directory / "dataset" / "README.md").read_text(encoding="utf-8")
    assert "combined judge" in card and "probability of relevance from 0.50" in card and "nothing, by hand" in card
    # Other coefficients are another decision; nobody is asked anything.
    write(folder, -1.0)
    stricter = run("runs", JUDGE)
    assert not stricter.already_done
    assert sum(stage["calls"] for stage in stricter.usage.values()) == 0
    assert decisions(stricter) != rows
    assert labels(stricter).items() <= {**labels(result), **labels(stricter)}.items()


def test_a_query_may_fall_and_is_counted(run: Run, folder: Path) -> None:
    write(folder, -3.4)
    result = run("runs", JUDGE)
    assert result.manifest is not None
    actions = [action for action, _, _ in decisions(result)]
    fallen = actions.count("drop_query")
    assert 0 < fallen < 12
    dataset = result.directory / "dataset"
    assert verify(dataset) == []
    queries = (dataset / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(queries) == 12 - fallen
    (step,) = [step for step in result.manifest.funnel if step.stage == "queries"]
    assert (step.entered, step.left) == (12, 12 - fallen)
    assert sum(step.reasons.values()) == fallen
    # Negatives of a query that fell stay in the corpus, unlabelled.
    corpus = {json.loads(line)["_id"] for line in (dataset / "corpus.jsonl").read_text(encoding="utf-8").splitlines()}
    labelled = {document for (_, document), score in labels(result).items() if score == 0}
    assert len(corpus) - 60 > len(labelled)


def test_all_queries_fallen_is_one_clear_line(run: Run, folder: Path) -> None:
    write(folder, -100.0)
    # All of the corpus is recalled: of a document that is not, the LLM's word stands.
    everything = {"top_k: 30}": "top_k: 500}\n  judge: {kind: yes-no, calibration: own.json}"}
    with pytest.raises(DatasetError, match="no query was accepted"):
        run("runs", everything)


def test_another_judges_coefficients_are_refused_before_anything_is_asked(folder: Path) -> None:
    write(folder, 0.0)
    text = (folder / "job.yaml").read_text(encoding="utf-8")
    for judge in (
        "{kind: levels, calibration: own.json}",
        "{kind: yes-no, prompt: small/judge_yes_no_examples, calibration: own.json}",
    ):
        (folder / "other.yaml").write_text(
            text.replace("top_k: 30}", f"top_k: 30}}\n  judge: {judge}"), encoding="utf-8"
        )
        with pytest.raises(SettingsError, match=r"own\.json was fitted for the judge of model scripted"):
            Job(folder / "other.yaml", folder / "runs")


def test_the_rerankers_may_decide_alone(run: Run, folder: Path) -> None:
    write(folder, 1.0, {"scores": 1.0, "votes": 0.5})
    judge = "top_k: 300}\n  judge: {kind: rerankers, calibration: own.json}"
    result = run("runs", {"top_k: 30}": judge})
    assert result.manifest is not None and "judgment" not in result.usage
    rows = decisions(result)
    said = {probability for _, _, probability in rows if probability is not None}
    assert len(said) > 5  # nobody's Yes: weighed scores
    assert {action for action, _, _ in rows} >= {"keep_query", "add_positive"}
    card = (result.directory / "dataset" / "README.md").read_text(encoding="utf-8")
    assert "calibration own.json" in card and "probability of Yes" not in card
    # What was not recalled has no score, and nobody else's word stands for it.
    narrow = run("narrow", {"top_k: 30}": judge.replace("300", "30")})
    fallen = [level for action, level, _ in decisions(narrow) if action == "drop_query"]
    assert fallen and set(fallen) <= {0, 1}


def test_nobody_would_decide(run: Run, folder: Path) -> None:
    write(folder, 0.0)
    with pytest.raises(SettingsError, match="kind rerankers asks no LLM, so it needs a calibration"):
        run("runs", {"top_k: 30}": "top_k: 30}\n  judge: {kind: rerankers}"})
    with pytest.raises(SettingsError, match="another kind"):
        run("runs", {"top_k: 30}": "top_k: 30}\n  judge: {kind: rerankers, calibration: own.json}"})


def test_a_pipeline_may_cut_elsewhere_than_the_calibration(run: Run, folder: Path) -> None:
    write(folder, 1.0, {"scores": 1.0, "votes": 0.5})
    judge = "top_k: 300}\n  judge: {kind: rerankers, calibration: own.json}"
    kept = decisions(run("runs", {"top_k: 30}": judge}))
    fewer = decisions(run("runs", {"top_k: 30}": judge.replace("json}", "json, threshold: 0.8}")}))
    relevant = [[p for action, _, p in rows if action in ("keep_query", "add_positive")] for rows in (kept, fewer)]
    assert min(relevant[0]) < 0.8 <= min(relevant[1]) and len(relevant[1]) > 0

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


def test_a_profile_is_a_threshold_of_the_calibration(run: Run, folder: Path) -> None:
    write(folder, 1.0, {"scores": 1.0, "votes": 0.5})
    value = json.loads((folder / "own.json").read_text(encoding="utf-8"))
    (folder / "own.json").write_text(json.dumps({**value, "profiles": {"train": 0.8}}), encoding="utf-8")
    judge = "top_k: 300}\n  judge: {kind: rerankers, calibration: own.json}"
    by_name = decisions(run("runs", {"top_k: 30}": judge.replace("json}", "json, profile: train}")}))
    assert by_name == decisions(run("runs", {"top_k: 30}": judge.replace("json}", "json, threshold: 0.8}")}))
    for more, problem in (
        ("profile: trian", "own.json has no profile 'trian' .did you mean 'train'"),
        ("profile: train, threshold: 0.7", "`threshold` cannot be given beside it"),
    ):
        with pytest.raises(SettingsError, match=problem):
            run("runs", {"top_k: 30}": judge.replace("json}", f"json, {more}}}")})


def test_unsure_pairs_have_a_soft_gain_and_no_label(run: Run, folder: Path) -> None:
    write(folder, 0.0)
    plain = run("runs", JUDGE)
    before, gains = labels(plain), labels(plain, "qrels-soft")
    assert before.keys() == gains.keys()
    result = run("runs", {"top_k: 30}": JUDGE["top_k: 30}"].replace("json}", "json, unsure: [0.3, 0.7]}")})
    after, soft = labels(result), labels(result, "qrels-soft")
    unsure = soft.keys() - after.keys()
    assert unsure and {pair for pair, score in after.items() if score} <= before.keys()
    zeros = after.keys() - before.keys()  # what was judged not relevant is told from what was not judged
    assert zeros and all(after[pair] == 0 and soft[pair] < 0.3 for pair in zeros)
    assert all(0.3 <= soft[pair] < 0.7 for pair in unsure)
    own = {pair for pair in after if pair in soft and 0.3 <= soft[pair] < 0.7}
    queries = [query for query, _ in own]
    assert len(queries) == len(set(queries))  # a query's own document is decided by its level: nothing else is
    assert verify(result.directory / "dataset") == []
    assert result.manifest is not None and result.manifest.notes["unsure"] == [0.3, 0.7]
    (step,) = [step for step in result.manifest.funnel if step.stage == "judged pairs with a label"]
    assert step.entered - step.left == step.reasons["unsure"] >= len(unsure)
    # A negative that is unsure stays in the corpus.
    corpus = (result.directory / "dataset" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    assert {document for _, document in unsure} <= {json.loads(line)["_id"] for line in corpus}


def test_unsure_needs_a_probability(run: Run) -> None:
    for judge, problem in (
        ("{kind: levels, unsure: [0.2, 0.5]}", "gives levels and no probability"),
        ("{kind: yes-no, unsure: [0.5, 0.2]}", "the lower one first"),
        ("{kind: yes-no, unsure: [0.6, 0.8]}", "does not hold the threshold, 0.5"),
        ("{kind: rerankers, calibration: small, unsure: [0.5, 0.8]}", "does not hold the threshold, 0.4264"),
    ):
        with pytest.raises(SettingsError, match=problem):
            run("runs", {"top_k: 30}": f"top_k: 30}}\n  judge: {judge}"})

"""Weights of a hybrid: the grid, an honest gain, and the command."""

import json
from pathlib import Path

import numpy as np
import pytest
from beir_folder import write_beir
from command_line import call

from airgen.errors import UsageError
from airgen.evaluation.run import Run, run_from_dict, write_run
from airgen.evaluation.systems import load_systems
from airgen.studies.tune import Fusion, candidates, tune

QUERIES, PASSAGES = 60, 40


def world(good: float, bad: float, seed: int = 0) -> tuple[dict[str, Run], dict[str, dict[str, float]]]:
    """Two systems that score the one relevant passage of a query so many deviations higher than the others."""
    random = np.random.default_rng(seed)
    labels = {f"q{q}": {f"p{random.integers(PASSAGES)}": 1.0} for q in range(QUERIES)}
    runs = {}
    for name, strength in (("good", good), ("bad", bad)):
        rows = {}
        for query, relevant in labels.items():
            scores = {f"p{p}": float(random.normal()) for p in range(PASSAGES)}
            scores[next(iter(relevant))] += strength
            rows[query] = scores
        runs[name] = run_from_dict(rows)
    return runs, labels


def test_the_grid() -> None:
    two = candidates(2)
    assert two[0] == Fusion("rrf", "none", (0.5, 0.5)) and len(two) == len(set(two)) == 3 * 19
    three = candidates(3)
    assert len(three) == len(set(three)) and all(sum(one.weights) == pytest.approx(1) for one in three)
    assert Fusion("sum", "min-max", (0.3, 0.0, 0.7)) in three  # a system can be left out
    assert not any(sum(weight > 0 for weight in one.weights) < 2 for one in three)
    with pytest.raises(UsageError, match="two to four"):
        candidates(5)


def test_the_weights_follow_the_better_system() -> None:
    runs, labels = world(2.5, 0.5)
    found = tune(runs, labels)
    assert found.chosen.weights[0] > 0.6
    assert found.gain.low > 0 and found.held_out > found.equal
    assert found.singles["good"] > found.singles["bad"]
    assert tune(runs, labels) == found


def test_the_gain_is_not_that_of_the_queries_that_chose() -> None:
    # Two equally good systems: most of what the best weights seem to gain is chance.
    apparent, honest = [], []
    for seed in range(8):
        found = tune(*world(1.2, 1.2, seed))
        apparent.append(found.apparent - found.equal)
        honest.append(found.gain.value)
    assert min(apparent) >= 0 and np.mean(apparent) > 0.01
    assert np.mean(honest) < 0.5 * np.mean(apparent)


def test_too_few_queries() -> None:
    runs, labels = world(1, 1)
    with pytest.raises(UsageError, match="19 queries with a relevant passage"):
        tune(runs, {**dict(list(labels.items())[:19]), "q50": {"p1": 0.0}})


def test_the_command_gives_a_system_that_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs, labels = world(2.0, 1.0)
    corpus = [{"_id": f"p{p}", "title": "", "text": f"passage {p}"} for p in range(PASSAGES)]
    rows = [(query, id_, 1) for query, of in labels.items() for id_ in of]
    write_beir(tmp_path / "little", corpus, [{"_id": query, "text": query} for query in labels], {"dev": rows})
    folder = tmp_path / "results" / "little" / "dev"
    folder.mkdir(parents=True)
    for name, run in runs.items():
        write_run(folder / f"{name}.run.gz", run, name)
    text = call("evaluate", "tune", "little", "good", "bad")
    assert "over equal weights" in text and "tuned, on held-out queries" in text
    system = text.strip().splitlines()[-1]
    (tmp_path / "systems.yaml").write_text(
        f"systems:\n  - {{name: good, kind: bm25}}\n  - {{name: bad, kind: lsa}}\n{system}\n"
    )
    assert load_systems(tmp_path / "systems.yaml")[-1].settings["systems"] == ["good", "bad"]
    value = json.loads(call("evaluate", "tune", "little", "good", "bad", "--json"))
    assert value["system"]["weights"] == value["chosen"]["weights"]
    with pytest.raises(UsageError, match="test labels"):
        call("evaluate", "tune", "little", "good", "bad", "--split", "test")
    with pytest.raises(UsageError, match="cutoff"):
        call("evaluate", "tune", "little", "good", "bad", "--metric", "AP")

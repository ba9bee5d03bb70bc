"""`airgen study judge --simulate`: judges with errors by hand, and what they buy on small collections."""

import json
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
from beir_folder import write_beir

import airgen
from airgen.components.keys import rng
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.run import Run, run_from_dict
from airgen.studies.judge import simulate
from airgen.studies.judge.simulate import JUDGES, Judge, SimulationEvidence, as_labels, chance, judged_labels, simulated

BY_NAME = {judge.name: judge for judge in JUDGES}


def test_a_judge_errs_by_its_shares() -> None:
    some = Judge("some", missed=0.25, mistaken=0.5)
    assert [some.says(True, luck) for luck in (0.0, 0.24, 0.25, 0.99)] == [False, False, True, True]
    assert [some.says(False, luck) for luck in (0.0, 0.49, 0.5, 0.99)] == [True, True, False, False]
    lucks = np.array([chance(0, 0, "q", f"d{at}") for at in range(4000)])
    for judge in JUDGES:
        for relevant, share in ((True, judge.missed), (False, judge.mistaken)):
            wrong = np.mean([judge.says(relevant, luck) != relevant for luck in lucks.tolist()])
            assert wrong == pytest.approx(share, abs=0.025)


def test_who_errs_more_errs_on_the_same_pairs_too() -> None:
    pairs = [(chance(3, draw, f"q{at}", "d"), at % 2 == 0) for draw in range(5) for at in range(100)]
    wrong = [
        {at for at, (luck, relevant) in enumerate(pairs) if BY_NAME[name].says(relevant, luck) != relevant}
        for name in ("right", "10 % wrong", "20 % wrong", "30 % wrong")
    ]
    assert not wrong[0] and wrong[0] < wrong[1] < wrong[2] < wrong[3]


def test_labels_are_those_of_table_2() -> None:
    relevant = {"q1": {"a", "b", "far"}, "q2": {"c"}}
    seen = {"q1": ["b", "x", "a", "y"], "q2": ["x", "c"]}
    sources = {"q1": "far", "q2": "c"}  # a source counts even if it was not recalled, and is in no pair
    lucky: dict[tuple[str, str], float] = {("q1", "b"): 0.1, ("q1", "x"): 0.1, ("q2", "c"): 0.1}

    def luck(query: str, id_: str) -> float:
        return lucky.get((query, id_), 0.9)

    right = judged_labels(Judge("right"), seen, sources, relevant, luck)
    assert right == {"q1": {"far": 1.0, "b": 1.0, "a": 1.0}, "q2": {"c": 1.0}}
    strict = judged_labels(Judge("strict", missed=0.2), seen, sources, relevant, luck)
    assert strict == {"q1": {"far": 1.0, "a": 1.0}}  # b is missed, and the source of q2, whose query falls
    kept = judged_labels(Judge("strict", missed=0.2), seen, sources, relevant, luck, drop=False)
    assert kept == {**strict, "q2": {"c": 1.0}}
    generous = judged_labels(Judge("generous", mistaken=0.2), seen, sources, relevant, luck)
    assert generous == {"q1": {"far": 1.0, "b": 1.0, "x": 1.0, "a": 1.0}, "q2": {"c": 1.0}}


def ladder(queries: int = 8, systems: int = 5) -> SimulationEvidence:
    """Of each query two of ten passages are relevant; system n puts about n other ones before them."""
    ids = [f"d{at}" for at in range(10)]
    relevant = {f"q{at}": {"d0", "d1"} for at in range(queries)}
    runs: dict[str, Run] = {}
    for at in range(systems):
        hits = {}
        for place, query in enumerate(relevant):
            others = rng("ladder", at, query).sample(ids[2:], 8)
            before = at + place % 2
            order = [*others[:before], "d0", "d1", *others[before:]]
            hits[query] = {id_: -float(rank) for rank, id_ in enumerate(order)}
        runs[f"s{at}"] = run_from_dict(hits)
    seen = {"all": dict.fromkeys(relevant, ids), "votes": {query: ["d0", "d2"] for query in relevant}}
    return SimulationEvidence("ladder", relevant, seen, runs, 1.0, queries)


def test_systems_are_ranked_by_the_labels_of_each_judge() -> None:
    found = simulated(ladder(), draws=12, seed=0, done=lambda: None)
    rows = {row.judge: row for row in found.judges}
    right = rows["right"]
    assert (right.all.value, right.all.low, right.all.high, right.left) == (1.0, 1.0, 1.0, 1.0)
    means = [rows[name].all.value for name in ("right", "10 % wrong", "20 % wrong", "30 % wrong")]
    assert means == sorted(means, reverse=True) and means[0] > means[-1]
    assert all(row.all.low <= row.all.value <= row.all.high for row in found.judges)
    # The votes show one passage that is not relevant besides the relevant ones: less can go wrong.
    assert rows["generous"].votes.value > rows["generous"].all.value
    # Sources are dropped because of the judge's errors, not because of anything else that it sees.
    assert rows["generous"].left == 1.0 and rows["strict"].left == rows["20 % wrong"].left == pytest.approx(
        0.8, abs=0.06
    )
    assert found.pairs == {"all": 10, "votes": 2} and found.recalled == {"all": 1.0, "votes": 0.5}
    assert (found.positives, found.source.value) == (2.0, 1.0)


def test_a_draw_without_any_query_has_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "JUDGES", (Judge("blind", missed=1.0),))
    (row,) = simulated(ladder(), draws=3, seed=0, done=lambda: None).judges
    assert np.isnan([row.all.value, row.all.low, row.votes.value]).all() and row.left == 0.0
    assert simulate.agreement({}, as_labels({}), np.zeros(3)) is np.nan


PIPELINE = """
name: own
task: qa
corpus: none
target: 1
llm: {backend: scripted}
control:
  recall: {pools_only: true, top_k: 50}
  pools: [bm25]
  rerankers: [bm25, {kind: bm25, b: 0.1}]
  thresholds: {other: 2}
"""
SYSTEMS = """
systems:
  - {name: words, kind: bm25}
  - {name: flat, kind: bm25, k1: 0.0, b: 0.0}
  - {name: grams, kind: bm25, analyser: {ngram: 3}}
  - {name: likelihood, kind: query-likelihood, mu: 10}
"""
SUBJECTS = ("kettle", "lantern", "bridge", "violin", "glacier", "orchard", "tide", "beetle")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A collection of which every passage shares a word with every query, so that all are recalled; a pipeline."""
    corpus, queries, labels = [], [], []
    for at, subject in enumerate(SUBJECTS):
        queries.append({"_id": f"q{at}", "text": f"the {subject} in winter"})
        for place in range(4):
            words = ["winter", *["cold"] * place, subject if place < 3 else subject[:3], *["snow winter"] * (at % 3)]
            corpus.append({"_id": f"d{at}-{place}", "title": "", "text": " ".join(words)})
        labels += [(f"q{at}", f"d{at}-{place}", 2 - place) for place in range(3)]
    write_beir(tmp_path / "small", corpus, queries, {"test": labels})
    (tmp_path / "own.yaml").write_text(PIPELINE, encoding="utf-8")
    (tmp_path / "systems.yaml").write_text(SYSTEMS, encoding="utf-8")
    return tmp_path


def given(folder: Path, out: str = "work") -> list[object]:
    return ["--pipeline", folder / "own.yaml", "--systems", folder / "systems.yaml", "--out", folder / out]


def call(folder: Path, *words: object, out: str = "work") -> str:
    return command_line.call("study", "judge", "--simulate", folder / "small", *given(folder, out), *words)


def test_the_command(folder: Path) -> None:
    value = json.loads(call(folder, "--draws", 5, "--json"))
    (found,) = value["collections"]
    rows: dict[str, Any] = {row["judge"]: row for row in found["judges"]}
    assert (value["systems"], value["draws"], found["queries"], found["total"]) == (4, 5, 8, 8)
    assert found["recalled"]["all"] == 1.0 and found["pairs"]["all"] == 32  # it sees the whole corpus
    assert rows["right"]["all"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert found["positives"] == 2.0 and found["pairs"]["votes"] == 2.0  # label 0 is not relevant; two votes each
    report = (folder / "work" / "simulated.md").read_text(encoding="utf-8")
    assert call(folder, "--draws", 5) == report and "| right | " in report
    assert json.loads((folder / "work" / "simulated.json").read_text(encoding="utf-8")) == value
    # Nothing depends on what was there before; another seed draws other errors.
    call(folder, "--draws", 5, out="fresh")
    assert (folder / "fresh" / "simulated.json").read_bytes() == (folder / "work" / "simulated.json").read_bytes()
    assert json.loads(call(folder, "--draws", 5, "--seed", 1, "--json"))["collections"] != value["collections"]
    # Some of the queries are drawn; the labels may be cut higher.
    some = airgen.study_judge(
        collections=folder / "small", simulate=True, pipeline=folder / "own.yaml", systems=folder / "systems.yaml",
        out=folder / "work", queries=3, draws=1, relevant_from=["small=2"],
    )  # fmt: skip
    assert (some.collections[0].queries, some.collections[0].positives) == (3, 1.0)  # type: ignore[union-attr]
    assert "| 30 % wrong |" in some.study().markdown()


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [(["--simulate", "small", "--pairs", "9"], UsageError, "--pairs has no effect with --simulate"),
     (["votes", "small", "--draws", "9"], UsageError, "--draws has no effect without --simulate"),
     (["votes"], UsageError, "JUDGE and COLLECTION: give at least one"),
     (["--simulate"], UsageError, "COLLECTION: give at least one"),
     (["--simulate", "small", "small"], UsageError, "two collections are named 'small'"),
     (["--simulate", "small", "--relevant-from", "small=3"], DatasetError, "no passage is relevant to a query")],
)  # fmt: skip
def test_wrong_use(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], error: type[Exception], said: str
) -> None:
    monkeypatch.chdir(folder)
    if "--simulate" in words:
        words = [*words, *map(str, given(folder))]
    with pytest.raises(error, match=said):
        command_line.call("study", "judge", *words)

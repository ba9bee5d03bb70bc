"""Holes: found without a trace of the system, judged once, and scored again."""

import json

import pytest
from command_line import call

from airgen.errors import DatasetError, UsageError
from airgen.evaluation import run_from_dict, write_run
from airgen.quality.holes import Ledger, fill, find_holes, judged_in, moves

QRELS = {"q1": {"a": 1, "b": 0}, "q2": {"c": 1}}
LEXICAL = run_from_dict({"q1": {"a": 3.0, "b": 2.0}, "q2": {"c": 1.0}})
DENSE = run_from_dict({"q1": {"x": 3.0, "a": 2.0}, "q2": {"a": 2.0, "c": 1.0}, "extra": {"y": 1.0}})


def test_holes_are_per_query_and_in_an_order_that_tells_nothing():
    found = find_holes([LEXICAL, DENSE], QRELS, 2)
    assert set(found) == {("q1", "x"), ("q2", "a")}  # "a" is judged for q1 only
    assert find_holes([DENSE, LEXICAL], QRELS, 2) == found
    assert find_holes([DENSE], QRELS, 1) == found
    assert find_holes([LEXICAL], QRELS, 2) == []


def test_judging_the_holes_turns_the_ranking_by_hand():
    filled = fill(QRELS, {("q1", "x"): 1.0, ("q2", "a"): 1.0, ("q1", "a"): 0.0})
    assert filled["q1"] == {"a": 1, "b": 0, "x": 1.0}  # what was judged before stays
    changes = moves({"lexical": LEXICAL, "dense": DENSE}, QRELS, filled, "R@2", 2)
    assert [(change.system, change.rank_before, change.rank_after) for change in changes] == [
        ("dense", 1, 1),
        ("lexical", 1, 2),  # equal scores share a rank
    ]
    dense, lexical = changes
    assert (lexical.before, lexical.after) == (1.0, 0.5)
    assert (dense.before, dense.after) == (1.0, 1.0)
    assert (dense.holes_before, dense.holes_after, lexical.holes_before) == (0.5, 0.0, 0.0)


def test_the_ledger_asks_once_and_survives_a_torn_line(tmp_path):
    asked = []

    def ask(query, passage):
        asked.append((query, passage))
        return 1.0

    path = tmp_path / "judgments.jsonl"
    pairs = [("q1", "x"), ("q2", "a"), ("q3", "z")]
    queries, texts = ({pair[side]: pair[side] for pair in pairs} for side in (0, 1))
    judged_in(tmp_path, pairs[:2], queries, texts, ask=ask)
    path.write_bytes(path.read_bytes() + b'{"query-id": "q3", "corp')
    again = judged_in(tmp_path, pairs, queries, texts, ask=ask)
    assert asked == [("q1", "x"), ("q2", "a"), ("q3", "z")]
    assert len(Ledger(path).judged) == 3
    with pytest.raises(UsageError, match="must give a finite number"):
        again.add(("q", "p"), float("nan"))
    path.write_text("{}\n")
    with pytest.raises(DatasetError, match=r"judgments\.jsonl:1"):
        Ledger(path)


def run_command(arguments):
    return json.loads(call("audit", "holes", *arguments))


def test_the_command_counts_exports_and_judges(dataset, tmp_path, monkeypatch):
    path = tmp_path / "a.run"
    write_run(path, run_from_dict({"q1": {"p3": 3.0, "p1": 2.0}, "q2": {"ghost": 2.0, "p4": 1.0}}), "t")
    base = [dataset, "--run", path, "--out", tmp_path / "out", "--json"]
    counted = run_command(base)
    assert (counted["holes"], counted["judged"], counted["not_in_the_dataset"]) == (2, 0, 1)
    (row,) = [json.loads(line) for line in (tmp_path / "out" / "holes.jsonl").read_text().splitlines()]
    assert (row["query-id"], row["corpus-id"]) == ("q1", "p3")
    (tmp_path / "judge_of_holes.py").write_text("def judge(query, passage):\n    return int('eat' in passage)\n")
    monkeypatch.chdir(tmp_path)
    judged = run_command([*base, "--judge", "judge_of_holes:judge"])
    assert judged["judged"] == 1
    (system,) = judged["systems"]
    assert system["after"] > system["before"]  # p3 stands first, and turned out relevant
    with pytest.raises(UsageError, match="judge_of_holes"):
        run_command([*base, "--judge", "judge_of_holes:nothing"])


def test_the_command_judges_with_a_pipelines_llm(dataset, tmp_path):
    path, pipeline = tmp_path / "a.run", tmp_path / "pipeline.yaml"
    write_run(path, run_from_dict({"q1": {"p3": 3.0}, "q2": {"p1": 2.0}}), "t")
    pipeline.write_text(
        "name: x\ntask: qa\ncorpus: python-reference\ntarget: 1\nllm: {backend: scripted, model: scripted}\n"
    )
    base = [dataset, "--run", path, "--out", tmp_path / "out", "--json", "--pipeline", pipeline]
    first = run_command(base)
    assert (first["holes"], first["judged"]) == (2, 2)
    assert run_command(base) == first

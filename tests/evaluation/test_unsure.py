"""Pairs with a soft gain and no label: what they count, by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from airgen.dataset.beir import BeirDataset
from airgen.evaluation.breakdown import score_unsure, unsure_pairs
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.experiment import EvaluationOptions, evaluate
from airgen.evaluation.measures import parse_measures
from airgen.evaluation.run import run_from_dict
from airgen.evaluation.systems import load_systems

RUN = run_from_dict({"q": {"a": 3.0, "b": 2.0, "c": 1.0}, "r": {"x": 2.0, "y": 1.0}})
LABELS = {"q": {"b": 1.0, "c": 0.0}, "r": {"x": 1.0}}
MEASURES = parse_measures("nDCG@10 RR@10")


def test_without_leaves_out_pairs_and_keeps_the_rest() -> None:
    left = RUN.without({"q": ["a", "z"], "elsewhere": ["x"]})
    assert dict(left.items()) == {"q": [("b", 2.0), ("c", 1.0)], "r": [("x", 2.0), ("y", 1.0)]}
    assert dict(RUN.without({"q": ["a", "b", "c"]}).items())["q"] == []
    assert dict(RUN.only({"q": ["a", "z"], "elsewhere": ["x"]}).items()) == {"q": [("a", 3.0)], "r": []}


def test_lists_without_unsure_pairs() -> None:
    kept, _ = score_unsure(RUN, LABELS, {"q": {"a": 0.4}}, MEASURES, "not relevant")
    assert kept.of("RR@10").tolist() == [0.5, 1.0]
    left, intervals = score_unsure(RUN, LABELS, {"q": {"a": 0.4}}, MEASURES, "left out")
    judged, _ = score_unsure(RUN, {"q": {"c": 1.0}, "r": {"x": 1.0}}, {"q": {"a": 0.4}}, MEASURES, "judged only")
    assert judged.of("RR@10").tolist() == [1.0, 1.0]  # nobody judged b
    assert left.of("RR@10").tolist() == [1.0, 1.0] and intervals.tolist()[1] == [1.0, 1.0]


def test_drawn_labels_are_means_over_draws_and_widen_the_interval() -> None:
    sure, _ = score_unsure(RUN, LABELS, {"q": {"a": 1.0}}, MEASURES, "drawn")
    assert sure.of("nDCG@10").tolist() == [1.0, 1.0]
    never, _ = score_unsure(RUN, LABELS, {"q": {"a": 0.0}}, MEASURES, "drawn")
    assert never.of("RR@10").tolist() == [0.5, 1.0]
    some, wide = score_unsure(RUN, LABELS, {"q": {"a": 0.5}}, MEASURES, "drawn")
    value = float(some.of("RR@10")[0])
    assert 0.5 < value < 1.0 and math.isclose((value - 0.5) * 40, round((value - 0.5) * 40))  # a mean of 20 draws
    one_query = {"q": LABELS["q"]}
    _, narrow = score_unsure(RUN, one_query, {}, MEASURES, "drawn")
    _, doubt = score_unsure(RUN, one_query, {"q": {"a": 0.5}}, MEASURES, "drawn")
    assert np.ptp(narrow[1]) == 0 and doubt[1].tolist() == [0.5, 1.0]  # one query: all of the width is doubt
    assert wide[1][1] == 1.0


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    rows = [{"_id": id_, "title": "", "text": text} for id_, text in (("a", "red fox"), ("b", "red red fox den"))]
    for name, lines in (
        ("corpus.jsonl", rows), ("queries.jsonl", [{"_id": "q", "text": "red fox"}]),
    ):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in lines), encoding="utf-8")
    head = "query-id\tcorpus-id\tscore\n"
    for kind, lines in (("qrels", "q\tb\t1\n"), ("qrels-soft", "q\ta\t0.4\nq\tb\t0.9\n")):
        (folder / kind).mkdir()
        (folder / kind / "test.tsv").write_text(head + lines, encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps({"name": "notes", "notes": {"unsure": [0.2, 0.6]}}), "utf-8")
    return folder


def test_a_dataset_says_which_pairs_are_unsure(dataset: Path) -> None:
    assert unsure_pairs(DatasetSplit(BeirDataset.open(dataset), "test", "en")) == {"q": {"a": 0.4}}
    (dataset / "manifest.json").write_text('{"name": "notes"}', encoding="utf-8")
    assert unsure_pairs(DatasetSplit(BeirDataset.open(dataset), "test", "en")) == {}


def test_evaluate_leaves_them_out_and_scores_again(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}]\n", encoding="utf-8")
    systems, said = load_systems(tmp_path / "systems.yaml"), []
    for unsure in ("not relevant", "left out", "judged only", "drawn", "drawn"):
        options = EvaluationOptions(measures=["RR@10"], unsure=unsure, report=False)
        (found,) = evaluate(dataset, systems, tmp_path / "results", options, progress=said.append)
        assert found.rules.get("unsure_pairs", "not relevant") == unsure
        if unsure == "left out":
            assert found.means["RR@10"] == 1.0
    assert [line.split("(")[1] for line in said] == ["ran)", *["scored again)"] * 3, "kept)"]

"""Tables, charts and breakdowns: hostile names, hand-worked figures, and forms that other tools read."""

import itertools
import re
import xml.dom.minidom
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from airgen.evaluation import charts
from airgen.evaluation.breakdown import negatives_above
from airgen.evaluation.measures import judged_hits
from airgen.evaluation.result import single_latencies
from airgen.evaluation.run import run_from_dict
from airgen.evaluation.significance import compare
from airgen.evaluation.tables import places_text, rank_text, ranking_text

EVIL = "<script>alert(1)</script> {{ 7 * 7 }}\n\x1b[31m\u202e&\x00\ud800"
NAMES = [EVIL, EVIL + "!", "x" * 300, "نظام البحث", *(f"system {number:02d}" for number in range(22))]


def result(name: str, score: float, ms: float | None = 1.0, dataset: str = "d") -> Any:
    costs = SimpleNamespace(batch_ms=ms)
    return SimpleNamespace(
        name=name, dataset=dataset, split="test", headline="nDCG@10", score=score, costs=costs,
        mark="", notes={}, rules={},
        intervals={"nDCG@10": (score - 0.1, score + 0.1)},
    )  # fmt: skip


def svg_of(chart: Any, folder: Path) -> xml.dom.minidom.Document:
    """The drawn chart; it must be valid Vega-Lite, and the same bytes twice."""
    chart.to_dict()  # raises an error for what Vega-Lite's schema does not allow
    charts.save_svg(chart, folder / "one.svg")
    charts.save_svg(chart, folder / "two.svg")
    assert (folder / "one.svg").read_bytes() == (folder / "two.svg").read_bytes()
    return xml.dom.minidom.parse(str(folder / "one.svg"))


def texts_of(document: xml.dom.minidom.Document) -> list[str]:
    return [node.firstChild.data for node in document.getElementsByTagName("text") if node.firstChild]


def many() -> list[Any]:
    return [result(name, 0.3 + 0.02 * place, 1.5**place) for place, name in enumerate(NAMES)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: charts.latency_chart(many()),
        lambda: charts.scores_chart(many() + [result(name, 0.5, dataset=EVIL) for name in NAMES]),
        lambda: charts.heat_map(NAMES, np.eye(len(NAMES)), title=EVIL),
    ],
)
def test_26_systems_are_readable_whatever_their_names(make: Callable[[], Any], tmp_path: Path) -> None:
    document = svg_of(make(), tmp_path)
    assert not document.getElementsByTagName("script")
    texts = texts_of(document)
    assert {text for text in texts if text.startswith("<script>")} >= {"<script>alert(1)</script> {{ 7 * 7 }} [31m &"}
    assert any(text == "x" * 59 + "…" for text in texts)
    for name in NAMES[3:]:
        assert name in texts
    assert not any(re.search(r"[\x00-\x1f\u202e]", text) for text in texts)


def test_names_that_look_the_same_stay_apart() -> None:
    assert charts.chart_names(["a\n", "a", "b"]) == ["a", "a (2)", "b"]


def test_no_two_systems_share_a_row(tmp_path: Path) -> None:
    document = svg_of(charts.latency_chart(many()), tmp_path)
    heights = [
        float(re.findall(r"translate\([^,]*,([^)]*)\)", node.getAttribute("transform"))[0])
        for node in document.getElementsByTagName("text")
        if node.firstChild and node.firstChild.data.startswith("system ")
    ]
    assert len(heights) == 22
    assert all(other - one >= 14 for one, other in itertools.pairwise(sorted(heights)))


def rows_of(chart: Any) -> list[dict[str, Any]]:
    """The data of all panels, in order."""
    value = chart.to_dict()
    return [row for panel in value["concat"] for row in value["datasets"][panel["data"]["name"]]]


def test_scores_have_intervals_and_the_best_on_average_is_on_top() -> None:
    chart = charts.scores_chart([result("worse", 0.3), result("better", 0.6), result("better", 0.2, dataset="e")])
    assert [(row["system"], row["value"], row["low"], row["high"]) for row in rows_of(chart)] == [
        ("worse", 0.3, pytest.approx(0.2), pytest.approx(0.4)),
        ("better", 0.6, pytest.approx(0.5), pytest.approx(0.7)),
        ("better", 0.2, pytest.approx(0.1), pytest.approx(0.3)),
    ]
    (first, second) = chart.to_dict()["concat"]
    assert (first["title"]["text"], second["title"]["text"]) == ("d", "e")
    assert first["layer"][0]["encoding"]["y"]["scale"]["domain"] == ["better", "worse"]


def test_systems_that_no_other_beats_in_score_and_time_stand_out() -> None:
    systems = [
        result("slow", 0.9, 100.0),
        result("bad", 0.2, 50.0),
        result("fast", 0.5, 1.0),
        result("none", 0.1, None),
    ]
    rows = rows_of(charts.latency_chart(systems))
    assert [(row["system"], row["value"]) for row in rows[3:]] == [("slow", 100.0), ("fast", 1.0), ("bad", 50.0)]
    assert {row["system"]: row["group"].split()[0] for row in rows} == {"slow": "no", "fast": "no", "bad": "another"}


def test_nothing_and_undefined_values_are_drawn_as_such(tmp_path: Path) -> None:
    assert texts_of(svg_of(charts.latency_chart([result("a", 0.5, None)]), tmp_path))[0] == "nothing to show"
    texts = texts_of(svg_of(charts.heat_map(["a", "b"], np.array([[1.0, np.nan], [-0.5, 1.0]]), title="t"), tmp_path))
    assert [text for text in texts if "." in text] == ["1.00", "−0.50", "1.00"]


def test_the_ranking_in_a_terminal_has_no_control_characters() -> None:
    names = ["a\x1b[2J", "b\r"]
    made = {"made_labels": ("m\x1b[2J",), "mark": " †"}
    results = [SimpleNamespace(**(vars(result(name, 0.5)) | made), missing=0) for name in names]
    text = ranking_text(results, SimpleNamespace(names=names, ranks=[(1, 2)] * 2, together=[names[1:], names[:1]]))
    assert text.replace("\n", "").isprintable() and "1–2" in text
    assert "† made the labels itself, in part" in text and text.count("†") == 3


def test_ranks_and_places():
    base = np.random.default_rng(0).random(100)
    found = compare(["b", "a", "c"], np.stack([base, base + 0.5, base]))
    assert rank_text(found) == {"a": "1", "b": "2–3", "c": "2–3"}
    assert places_text(found) == {"a": "–", "b": "3", "c": "2"}
    names = [f"s{number}" for number in range(1, 8)]
    wide = SimpleNamespace(names=names, together=[["s7", "s2", "s3", "s4"], *[[]] * 5, ["s1"]])
    assert places_text(wide)["s1"] == "2–4, 7"


def test_the_query_that_warms_up_is_not_measured():
    asked: list[str] = []
    taken = single_latencies(asked.append, [f"q{number}" for number in range(10)], most=4)
    assert asked == ["q0", "q2", "q4", "q6", "q9"] and len(taken) == 4
    asked.clear()
    assert len(single_latencies(asked.append, ["only"])) == 1 and asked == ["only", "only"]
    assert single_latencies(asked.append, []) == []


def test_negatives_above_the_positive_by_hand():
    qrels = {
        "one": {"p": 1, "n": 0, "m": -1},  # both negatives above the positive
        "two": {"p": 2, "n": 0},  # negative below
        "three": {"p": 1},  # no negative: not counted
        "four": {"p": 1, "n": 0},  # positive not found, negative found: above
        "five": {"n": 0},  # no positive: not counted
    }
    run = run_from_dict(
        {
            "one": {"n": 3.0, "m": 2.0, "p": 1.0},
            "two": {"p": 2.0, "n": 1.0},
            "three": {"x": 2.0, "p": 1.0},
            "four": {"n": 1.0},
            "five": {"n": 1.0},
        }
    )
    assert negatives_above(judged_hits(run, qrels)) == {"queries": 3, "share": pytest.approx(2 / 3), "mean": 1.0}


def test_mteb_reads_its_form_of_a_result(dataset, tmp_path):
    results = pytest.importorskip("mteb.results", reason="mteb is not installed")
    from airgen.evaluation import evaluate
    from airgen.evaluation.systems import SystemSettings

    bm25 = SystemSettings.model_validate({"name": "bm25", "kind": "bm25"})
    (result,) = evaluate(dataset, [bm25], tmp_path / "out")
    assert '"eng-Latn"' in result.paths.mteb.read_text()
    read = results.TaskResult.model_validate_json(result.paths.mteb.read_text())
    assert read.scores["test"][0]["main_score"] == pytest.approx(result.score, abs=1e-5)

"""Tables, plots and breakdowns: hostile names, hand-worked figures, and forms that other tools read."""

from __future__ import annotations

import xml.dom.minidom
from types import SimpleNamespace

import numpy as np
import pytest

from airgen.evaluation import plots
from airgen.evaluation.breakdown import negatives_above
from airgen.evaluation.costs import single_latencies
from airgen.evaluation.measures import judged_hits
from airgen.evaluation.run import run_from_dict
from airgen.evaluation.significance import compare
from airgen.evaluation.tables import group_letters, safe, to_markdown

EVIL = "<script>alert(1)</script>|`x`\n\x1b[31m\u202e*b*"


def test_text_in_a_table_stays_text():
    cell = safe(EVIL)
    assert "<" not in cell and "\n" not in cell and "\x1b" not in cell and "\u202e" not in cell
    assert cell.count("|") == cell.count("\\|")
    assert to_markdown(["a", "b"], [[cell, "1"]]).count("\n") == 3


@pytest.mark.parametrize(
    "svg",
    [
        plots.scatter([EVIL, "b"], [0.1, 1000.0], [0.2, 0.9], x_label=EVIL, y_label="y", title=EVIL),
        plots.scatter([], [], [], x_label="x", y_label="y", title="t"),
        plots.bars([EVIL], ["a", EVIL], np.array([[0.5, np.nan]]), title=EVIL),
        plots.heat_map([EVIL, "b"], np.array([[1.0, np.nan], [-0.5, 1.0]]), title=EVIL),
    ],
)
def test_plots_are_well_formed_whatever_the_names(svg):
    document = xml.dom.minidom.parseString(svg)
    assert not document.getElementsByTagName("script")


def test_points_stand_where_they_belong():
    svg = plots.scatter(["slow", "fast"], [100.0, 1.0], [0.9, 0.3], x_label="x", y_label="y", title="t")
    circles = xml.dom.minidom.parseString(svg).getElementsByTagName("circle")
    points = sorted((float(c.getAttribute("cx")), -float(c.getAttribute("cy"))) for c in circles)
    assert points[0][1] < points[1][1]  # further right (slower) is further up (better) here


def test_no_name_stands_on_another_or_on_a_point():
    names = [f"system {number:02d}" for number in range(30)]
    svg = plots.scatter(names, [1.0] * 30, [0.5 + 0.001 * n for n in range(30)], x_label="", y_label="", title="")
    document = xml.dom.minidom.parseString(svg)
    boxes = []
    for label in document.getElementsByTagName("text"):
        if (words := (label.firstChild and label.firstChild.data) or "").startswith("system"):
            x, y = float(label.getAttribute("x")), float(label.getAttribute("y"))
            start = x if label.getAttribute("text-anchor") == "start" else x - 7 * len(words)
            boxes.append((start, start + 7 * len(words), y - 10, y + 2))
    assert len(boxes) == 30
    for place, (start, stop, top, bottom) in enumerate(boxes):
        assert start >= 0
        assert not any(start < b and stop > a and top < d and bottom > c for a, b, c, d in boxes[:place])
    points = [
        (float(c.getAttribute("cx")), float(c.getAttribute("cy"))) for c in document.getElementsByTagName("circle")
    ]
    assert not any(a < x < b and c < y < d for x, y in points for a, b, c, d in boxes)


@pytest.mark.parametrize(("low", "high"), [(0.472, 0.754), (0.0, 1.0), (0.5, 0.5), (0.3, 0.31), (0.649, 0.701)])
def test_ticks_are_round_and_hold_both_ends(low: float, high: float):
    ticks = plots._ticks(low, high)
    assert ticks[0] <= low + 1e-9 and ticks[-1] >= high - 1e-9
    assert 2 <= len(ticks) <= 13
    steps = np.diff(ticks)
    np.testing.assert_allclose(steps, steps[0])
    assert f"{steps[0]:.0e}"[0] in "125"


def test_more_systems_than_colours_get_a_row_each():
    names = [f"s{number}" for number in range(12)]
    values = np.linspace(0, 1, 24).reshape(2, 12)
    values[1, 3] = np.nan
    document = xml.dom.minidom.parseString(plots.bars(["one", "two"], names, values, title="t"))
    shown = [title.firstChild.data for title in document.getElementsByTagName("title")]
    assert len(shown) == 23 and "s0: 0.0000" in shown and "s11: 1.0000" in shown
    widths = [float(r.parentNode.getAttribute("width")) for r in document.getElementsByTagName("title")]
    assert widths == sorted(widths[:12]) + sorted(widths[12:])


def test_letters_of_groups():
    base = np.random.default_rng(0).random(100)
    found = compare(["a", "b", "c"], np.stack([base + 0.5, base, base]))
    assert group_letters(found) == {"a": "a", "b": "b", "c": "b"}


def test_no_two_groups_have_the_same_letter():
    groups = [(f"s{number}", f"s{number + 1}") for number in range(60)]
    found = group_letters(SimpleNamespace(groups=groups))
    assert found["s0"] == "a" and found["s26"] == "zA" and found["s60"] == "(60)"
    assert len({found[one][-1:] for one in ("s1", "s27", "s52")}) == 3


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

"""Tables, plots and breakdowns: hostile names, hand-worked figures, and forms that other tools read."""

from __future__ import annotations

import xml.dom.minidom

import numpy as np
import pytest

from airgen.evaluation import plots
from airgen.evaluation.breakdown import negatives_above
from airgen.evaluation.measures import judged_hits
from airgen.evaluation.run import run_from_dict
from airgen.evaluation.significance import compare
from airgen.evaluation.tables import _letters, safe, to_markdown

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


def test_letters_of_groups():
    base = np.random.default_rng(0).random(100)
    found = compare(["a", "b", "c"], np.stack([base + 0.5, base, base]))
    assert _letters(found) == {"a": "a", "b": "b", "c": "b"}


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

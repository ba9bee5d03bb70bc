"""Tables, charts and breakdowns: hostile names, hand-worked figures, and forms that other tools read."""

import re
import xml.dom.minidom
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import altair as alt
import numpy as np
import pytest

from airgen.display.study import Table
from airgen.evaluation import charts, evaluate
from airgen.evaluation.breakdown import negative_ranks, negatives_above
from airgen.evaluation.measures import judged_hits
from airgen.evaluation.result import Paths, single_latencies
from airgen.evaluation.result_tables import overview, places_text, rank_text, ranking_study
from airgen.evaluation.run import run_from_dict
from airgen.evaluation.significance import compare
from airgen.evaluation.systems import SystemSettings

EVIL = "<script>alert(1)</script> {{ 7 * 7 }}\n\x1b[31m\u202e&\x00\ud800"
NAMES = [EVIL, EVIL + "!", "x" * 300, "نظام البحث", *(f"system {number:02d}" for number in range(22))]


def texts_of(chart: Any, folder: Path) -> list[str]:
    """The texts of the drawn chart; it must be valid Vega-Lite, and the same bytes twice."""
    chart.to_dict()  # raises an error for what Vega-Lite's schema does not allow
    for name in ("one.svg", "two.svg"):
        charts.save_svg(chart, folder / name)
    assert (folder / "one.svg").read_bytes() == (folder / "two.svg").read_bytes()
    document = xml.dom.minidom.parse(str(folder / "one.svg"))
    assert not document.getElementsByTagName("script")
    return [node.firstChild.data for node in document.getElementsByTagName("text") if node.firstChild]


def test_26_systems_are_readable_whatever_their_names(tmp_path: Path) -> None:
    texts = texts_of(charts.heat_map(NAMES, np.eye(len(NAMES)), title=EVIL), tmp_path)
    assert {text for text in texts if text.startswith("<script>")} >= {"<script>alert(1)</script> {{ 7 * 7 }} [31m &"}
    assert any(text == "x" * 59 + "…" for text in texts) and set(texts) >= set(NAMES[3:])
    assert not any(re.search(r"[\x00-\x1f\u202e]", text) for text in texts)


def test_nothing_and_undefined_values_are_drawn_as_such(tmp_path: Path) -> None:
    nothing = charts.lines_chart([], [], alt.X(), alt.Y(), title="t", size=(9, 9))
    assert texts_of(nothing, tmp_path)[0] == "nothing to show"
    texts = texts_of(charts.heat_map(["a\n", "a"], np.array([[1.0, np.nan], [-0.5, 1.0]]), title="t"), tmp_path)
    assert [text for text in texts if "." in text] == ["1.00", "−0.50", "1.00"]
    assert {"a", "a (2)"} < set(texts)  # names that look the same stay apart


def test_the_overview_keeps_tasks_apart_as_tables_22_and_23_do() -> None:
    """Recall@10 of Long-Doc and nDCG@10 of QA are never averaged, also in a domain that has both."""
    scores = {
        ("book", "long-doc", "arxiv", "en"): {"a": 0.9, "b": 0.5},
        ("wiki", "qa", "wiki", "en"): {"a": 0.2, "b": 0.6, "english": 0.8},
        ("arxiv", "qa", "arxiv", "en"): {"a": 0.4, "b": 0.2, "english": 0.4},
        ("wiki_de", "qa", "wiki", "de"): {"a": 0.3, "b": 0.7},
    }
    results: list[Any] = [
        SimpleNamespace(
            name=name, dataset=dataset, split="test", score=score,
            about={"task": task, "domain": domain, "language": language},
            headline="Recall@10" if task == "long-doc" else "nDCG@10", answers={}, means={"AP@1000": score / 2},
            costs=SimpleNamespace(latency_p50_ms=12.34),
        )
        for (dataset, task, domain, language), row in scores.items() for name, score in row.items()
    ]  # fmt: skip
    study = overview(results)
    assert study.title == "Results (nDCG@10, Recall@10)"
    heading, qa, other_heading, long_doc = study.parts
    assert (heading, other_heading) == ("## QA, nDCG@10", "## Long-Doc, Recall@10")
    assert isinstance(qa, Table) and isinstance(long_doc, Table)
    titles = ["system", "mean", "domain arxiv", "domain wiki", "language de", "language en", "wiki", "arxiv", "wiki_de"]
    assert [column.title for column in qa.columns] == titles
    # Systems on all datasets come first, then those that ran in English only.
    assert [row[0] for row in qa.cells()] == ["b", "a", "english"]
    assert [column.value("b") for column in qa.columns[1:]] == pytest.approx([0.5, 0.2, 0.65, 0.7, 0.4, 0.6, 0.2, 0.7])
    assert [column.value("english") for column in qa.columns[1:4]] == [None, 0.4, None]
    assert [column.title for column in long_doc.columns] == ["system", "book"]
    assert "##" not in overview(results[:2]).markdown()
    results[0].answers = {"Answer@5": (0.43, 0.4, 0.5), "Answer@20": (0.629, 0.6, 0.7)}
    table = overview(results[:2]).parts[-1]
    assert isinstance(table, Table) and [column.title for column in table.columns] == [
        "dataset", "system", "Answer@5", "Answer@20", "AP@1000", "p50 ms",
    ]  # fmt: skip
    assert table.cells() == [
        ["book", "a", "0.430", "0.629", "0.4500", "12.3"], ["book", "b", "–", "–", "0.2500", "12.3"],
    ]  # fmt: skip


def test_the_ranking_in_a_terminal_has_no_control_characters() -> None:
    names = ["a\x1b[2J", "b\r"]
    results = [
        SimpleNamespace(
            name=name, headline="nDCG@10", score=0.5, costs=SimpleNamespace(batch_ms=1.0), mark=" †", notes={},
            rules={}, models=(), intervals={"nDCG@10": (0.4, 0.6)}, made_labels=("m\x1b[2J",), missing=0,
            cached=name == names[0], kept="2026-11-30 14:05", reads=(), dataset="d", split="test", about={},
            paths=Paths.of(Path("nowhere"), "system"),
        )
        for name in names
    ]  # fmt: skip
    comparison = SimpleNamespace(names=names, ranks=[(1, 2)] * 2, together=[names[1:], names[:1]])
    text = ranking_study(results, comparison).text()
    assert text.replace("\n", "").isprintable() and "1–2" in text
    assert "† helped to make the labels" in text and text.count("†") == 3
    assert text.count("(kept, 2026-11-30 14:05)") == 1


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
        {"one": {"n": 3.0, "m": 2.0, "p": 1.0}, "two": {"p": 2.0, "n": 1.0}, "three": {"x": 2.0, "p": 1.0},
         "four": {"n": 1.0}, "five": {"n": 1.0}}
    )  # fmt: skip
    assert negatives_above(judged_hits(run, qrels)) == {"queries": 3, "share": pytest.approx(2 / 3), "mean": 1.0}


@pytest.mark.parametrize(
    ("hits", "expected"),
    [
        ({"a": {"p": 5.0, "m": 4.0, "n": 3.0}}, {"pairs": 3, "first_ten": 2 / 3, "median": 3.0}),  # o is not found
        ({"a": {"p": 5.0, "n": 3.0}}, {"pairs": 3, "first_ten": 1 / 3}),  # most are not found
        ({"a": {f"x{at}": 20.0 - at for at in range(10)} | {"n": 3.0, "m": 2.0, "o": 1.0}},
         {"pairs": 3, "first_ten": 0.0, "median": 12.0}),
    ],
)  # fmt: skip
def test_ranks_of_negatives_by_hand(hits, expected):
    qrels = {"a": {"p": 1, "n": 0, "m": 0, "o": 0}}
    assert negative_ranks(judged_hits(run_from_dict(hits), qrels)) == pytest.approx(expected)


def test_without_negatives_there_are_no_ranks():
    assert negative_ranks(judged_hits(run_from_dict({"a": {"p": 1.0}}), {"a": {"p": 1}})) == {
        "pairs": 0,
        "first_ten": 0.0,
    }


def test_mteb_reads_its_form_of_a_result(dataset, tmp_path):
    results = pytest.importorskip("mteb.results", reason="mteb is not installed")
    (result,) = evaluate(dataset, [SystemSettings.model_validate({"name": "bm25", "kind": "bm25"})], tmp_path / "out")
    assert '"eng-Latn"' in result.paths.mteb.read_text()
    read = results.TaskResult.model_validate_json(result.paths.mteb.read_text())
    assert read.scores["test"][0]["main_score"] == pytest.approx(result.score, abs=1e-5)

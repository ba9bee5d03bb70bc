"""The report: nothing from outside breaks a table, nothing undefined becomes a number, equal values equal bytes."""

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airgen.evaluation.charts import save_svg
from airgen.quality.agreement.rankings import (
    LexicalOverlap,
    RankGain,
    Resamplings,
    Side,
    agree,
    circularity,
    correlate,
    rank_gains,
    resamplings,
    same_size_ceiling,
    saturation,
    split_half,
)
from airgen.quality.agreement.report import (
    AgreementReport,
    Competitor,
    LeaveOneOut,
    Variant,
    ranks_chart,
    resamplings_chart,
    scores_chart,
)
from airgen.quality.agreement.study import breadth_note

NAMES = ("bm25", "weak", "lsa", "mini|lm <b>")


def report(generated: np.ndarray | None = None) -> AgreementReport:
    random = np.random.default_rng(0)
    human = Side(NAMES, np.array([0.3, 0.1, 0.5, 0.4])[:, None] + 0.05 * random.random((4, 12)))
    made = Side(NAMES[::-1], (np.array([0.5, 0.3, 0.1, 0.6])[:, None] if generated is None else generated) * np.ones(7))
    gains = rank_gains(human, made, {"bm25": "lexical", "weak": "lexical"})
    return AgreementReport(
        collection="med`line", pipeline="agree-medline", sources="positives", measure="nDCG@10", human=human,
        generated=made, weakened=["weak"], families={"bm25": "lexical", "weak": "lexical"},
        variants=[Variant("complete", agree(human, made, {"weak"}, samples=20), 1.5)],
        reliability={"human": split_half(human), "generated": split_half(made)},
        ceiling=same_size_ceiling(human, 7), resamplings=resamplings(human, made.of(NAMES)),
        competitors=[Competitor("cranfield", correlate(human, human, samples=20))], gains=gains,
        saturation={"human": saturation(human), "generated": saturation(made)},
        overlap={"human": LexicalOverlap(12, 0.4, 0.1), "generated": LexicalOverlap(0, math.nan, math.nan)},
        circularity=circularity(gains, {"bm25": ("bm25",)}, samples=100),
        leave_one_out=[LeaveOneOut("bm25", ("bm25",), 3, 1, 2)],
        notes=["7 generated queries: a ranking by so few is mostly noise."],
    )  # fmt: skip


def svg_texts(path: Path) -> list[str]:
    return [element.text or "" for element in ET.parse(path).iter() if element.tag.endswith("}text")]


def test_the_figures_are_in_the_text() -> None:
    text = report().markdown()
    # Human ranks: lsa, mini|lm, bm25, weak; generated: bm25, mini|lm, lsa, weak. rho = 1 - 6 * 8 / 60.
    assert "| complete | 7 | 1.50 | 0.20 [" in text
    assert "| bm25 | lexical |" in text and "| 3 | 1 | +2 |" in text
    assert "| weak (weakened) |" in text
    assert "another collection's human ranking: cranfield (4 systems) | 1.00" in text
    assert "| bm25 | bm25 | 3 | 1 | 2 |" in text  # left out
    assert "> 7 generated queries" in text


def test_names_from_outside_break_nothing(tmp_path: Path) -> None:
    found = report()
    text = found.markdown()
    assert "<b>" not in text
    for block in text.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in rows}) <= 1
    found.write(tmp_path)
    for path in tmp_path.glob("*.svg"):
        ET.parse(path)  # well-formed
    assert all("mini|lm <b>" in svg_texts(tmp_path / name) for name in ("ranks.svg", "scores.svg"))


def test_undefined_is_null_and_said() -> None:
    flat = report(np.full((4, 1), 0.5))
    value = flat.as_dict()
    json.dumps(value, allow_nan=False)
    assert value["variants"][0]["agreement"]["all"]["spearman"] == {"value": None, "low": None, "high": None}
    assert value["lexical_overlap"]["generated"] == {"queries": 0, "mean": None, "whole": None}
    assert "| complete | 7 | 1.50 | undefined | undefined | undefined | undefined |" in flat.markdown()


def test_a_report_is_written_whole_and_the_same_twice(tmp_path: Path) -> None:
    report().write(tmp_path / "one")
    report().write(tmp_path / "two")
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["agreement.json", "agreement.md", "ranks.svg", "resamplings.svg", "scores.svg"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def rank_rows(gains: list[RankGain]) -> list[dict[str, Any]]:
    """The data of the lines and names of the chart."""
    datasets = ranks_chart(gains, title="t").to_dict()["datasets"].values()
    return next(rows for rows in datasets if "left" in rows[0])


@pytest.mark.parametrize("count", [1, 3, 30])
def test_ranks_have_two_labels_and_a_line_for_each_system(count: int, tmp_path: Path) -> None:
    names = tuple(f"s{place}" for place in range(count))
    side = Side(names, np.arange(count, dtype=float)[:, None])
    gains = rank_gains(side, side, dict(zip(names, names, strict=True)))
    save_svg(ranks_chart(gains, title="t"), tmp_path / "ranks.svg")
    assert svg_texts(tmp_path / "ranks.svg").count("s0") >= 2
    rows = rank_rows(gains)
    assert sorted(row["left"] for row in rows) == sorted(row["right"] for row in rows) == list(range(count))


def test_ties_get_a_row_each() -> None:
    side = Side(("a", "b", "c"), np.ones((3, 1)))
    rows = rank_rows(rank_gains(side, side, {}))
    assert [row["left"] for row in rows] == [0, 1, 2] and {row["human"] for row in rows} == {"2"}


def test_scores_of_both_sides_have_intervals() -> None:
    found = report()
    chart = scores_chart(found.human, found.generated, found.families, measure="nDCG@10", title="t").to_dict()
    human, generated = (chart["datasets"][panel["data"]["name"]] for panel in chart["concat"])
    assert all(row["low"] < row["value"] < row["high"] for row in human)
    assert {row["system"]: row["value"] for row in generated} == pytest.approx(
        dict(zip(found.generated.names, found.generated.means.tolist(), strict=True))
    )
    assert {row["group"] for row in human} == {"lexical", "other"}


def test_draws_that_rank_nothing_are_left_out_of_the_chart(tmp_path: Path) -> None:
    nothing = Resamplings(5, (math.nan, math.nan))
    save_svg(resamplings_chart(nothing, nothing, math.nan, title="t"), tmp_path / "none.svg")
    assert "nothing to show" in svg_texts(tmp_path / "none.svg")
    some = resamplings_chart(Resamplings(5, (0.5, math.nan, -0.2)), nothing, 0.4, title="t").to_dict()["datasets"]
    assert sorted(row["rho"] for rows in some.values() for row in rows) == [-0.2, 0.4, 0.5]


def test_sides_of_another_breadth_are_named() -> None:
    one = {"q1": {"a": 1.0, "b": 0.0}, "q2": {"c": 2.0, "d": 1.0}, "q3": {"e": 0.0}}  # 1.5 where there are any
    many = {"q1": dict.fromkeys("abcd", 1.0)}
    assert breadth_note(one, 1.5) == breadth_note(one, 3.0) == []
    (wide,) = breadth_note(one, 4.0)
    assert "Human queries have 1.5 relevant passages each, generated ones 4.0: a stricter cut" in wide
    assert "its document alone" not in wide  # at 1.5 a query
    assert "its document alone ranks best" in breadth_note({"q": {"a": 1.0, "b": 0.0}}, 4.0)[0]
    (narrow,) = breadth_note(many, 1.5)
    assert "a lower cut" in narrow
    assert breadth_note(one, 0.0) == breadth_note({}, 1.5) == []

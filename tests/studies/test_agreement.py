"""Two rankings compared, worked by hand; and the report, which nothing from outside breaks."""

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from airgen.errors import UsageError
from airgen.evaluation.charts import save_svg
from airgen.evaluation.systems import SystemSettings, in_order, label_makers, made_labels, model_or_kind, models_of
from airgen.settings.spec import read_spec
from airgen.studies.agree.rankings import (
    Resamplings,
    Side,
    agree,
    best_third,
    circularity,
    correlate,
    family_gains,
    ordered_pairs,
    rank_gains,
    resamplings,
    same_size_ceiling,
    split_half,
)
from airgen.studies.agree.report import AgreementReport, Variant, ranks_chart, resamplings_chart
from airgen.studies.agree.study import breadth_note
from airgen.studies.rank_correlation import spearman, spearman_p

NAMES = ("a", "b", "c", "d", "e")


def side(means: list[float], queries: int = 40, noise: float = 0.0, seed: int = 0) -> Side:
    """A side whose systems have about these means; the noise of a query is the same for no two systems."""
    random = np.random.default_rng(seed)
    scores = np.array(means)[:, None] + noise * random.standard_normal((len(means), queries))
    return Side(tuple(NAMES[: len(means)]), scores)


def test_a_correlation_by_hand_and_its_interval() -> None:
    # Ranks 1 2 3 4 5 against 2 1 3 4 5: rho = 1 - 6 * 2 / (5 * 24) = 0.9, tau = (9 - 1) / 10 = 0.8.
    means = [0.1, 0.2, 0.3, 0.4, 0.5]
    found = correlate(side(means), side([0.2, 0.1, 0.3, 0.4, 0.5]))
    assert (found.spearman.value, found.kendall.value) == pytest.approx((0.9, 0.8))
    assert found.p == pytest.approx(10 / 120)  # both orders, and the four neighbours of each
    assert (found.spearman.low, found.spearman.high) == pytest.approx((0.9, 0.9))  # no noise, so nothing moves
    human, few = side(means, noise=0.05), side(means, 8, noise=0.8, seed=1)
    wide, narrow = correlate(human, few).spearman, correlate(human, side(means, 4000, noise=0.8, seed=1)).spearman
    assert wide.high - wide.low > narrow.high - narrow.low
    assert correlate(human, few).spearman == wide


def test_pairs_that_people_separate() -> None:
    # Neither side separates d and e; the generated side puts a above b, while people see it the other way round.
    random = np.random.default_rng(0)
    noise = 0.02 * random.standard_normal((5, 60))
    noise[4] = -noise[3]
    human = Side(NAMES, np.array([0.1, 0.3, 0.5, 0.7, 0.7])[:, None] + noise)
    generated = Side(NAMES, np.array([0.3, 0.1, 0.5, 0.7, 0.7])[:, None] + noise)
    found = ordered_pairs(human, generated)
    assert (found.pairs, found.separated, found.same, found.contradicted) == (10, 9, 8, 1)
    constant = side([0.5, 0.5, 0.5])
    assert ordered_pairs(constant, constant).separated == 0


OPPOSITE = Side(NAMES[:3], np.array([[0.1, 0.3], [0.2, 0.2], [0.3, 0.1]]))
"""Two queries that rank three systems in opposite orders."""


def test_halves_of_the_queries() -> None:
    assert split_half(side([0.1, 0.2, 0.3, 0.4, 0.5])) == 1.0
    noise = Side(tuple(map(str, range(30))), np.random.default_rng(3).standard_normal((30, 50)))
    assert abs(split_half(noise)) < 0.3
    assert math.isnan(split_half(side([0.1, 0.2, 0.3], queries=1)))
    assert split_half(OPPOSITE) == pytest.approx(-1.0)
    # A draw that held queries of both sides would agree with itself.
    found = same_size_ceiling(OPPOSITE, 60)
    assert (found.queries, set(found.values)) == (1, {-1.0})
    sizes = [same_size_ceiling(side([0.1, 0.2, 0.3], 40), queries).queries for queries in (15, 25)]
    assert sizes == [15, 20]


def test_thirty_resamplings_take_the_papers_share_without_replacement() -> None:
    human, generated = side([0.1, 0.2, 0.3]), side([0.1, 0.2, 0.3], 6319)
    found = resamplings(human, generated, rounds=3)
    assert (found.queries, len(found.values), found.mean) == (2000, 3, 1.0)
    assert len(resamplings(human, side([0.1, 0.2, 0.3], 60)).values) == 30
    whole = side([0.3, 0.2, 0.1], 5, noise=0.5)
    all_of_them = resamplings(human, whole, queries=99)
    assert all_of_them.queries == 5
    assert all_of_them.mean_p == pytest.approx(spearman_p(human.means, whole.means))
    assert set(all_of_them.values) == {float(spearman(human.means, whole.means))}


def test_agreement_without_the_weakened_and_among_the_best_third() -> None:
    human, generated = side([0.1, 0.3, 0.2, 0.4, 0.5]), side([0.05, 0.2, 0.3, 0.4, 0.5])
    found = agree(human, Side(NAMES[::-1], generated.scores[::-1]), {"a"})  # systems in any order
    assert found.all.spearman.value == pytest.approx(0.9)
    assert found.strong is not None and found.strong.systems == 4
    assert found.strong.spearman.value == pytest.approx(0.8)  # 1 - 6 * 2 / (4 * 15)
    for weakened in (set[str](), {"a", "b", "c"}):
        assert agree(human, generated, weakened).strong is None
    names = tuple("abcdefghi")
    human = Side(names, np.tile(np.arange(9.0)[:, None], (1, 4)))
    # The generated side turns the best three round and has the rest right.
    generated = Side(names, np.tile(np.array([0, 1, 2, 3, 4, 5, 8, 7, 6.0])[:, None], (1, 4)))
    found = agree(human, generated)
    assert best_third(human) == ("g", "h", "i")
    assert found.top is not None and found.top.systems == 3
    assert found.top.spearman.value == pytest.approx(-1.0) and found.all.spearman.value > 0.9
    constant = agree(side([0.1, 0.2, 0.3]), side([0.5, 0.5, 0.5]))
    assert constant.top is None  # one system is no ranking
    assert math.isnan(constant.all.spearman.value) and math.isnan(constant.all.p)


@pytest.mark.parametrize(("count", "words"), [(1, "1 system.*at least 3"), (2, "2 system.*at least 3"),
                                              (4, "no scores of the system 'd'")])  # fmt: skip
def test_sides_that_cannot_be_compared(count: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        agree(side([0.1, 0.2, 0.3, 0.4][:count]), side([0.1, 0.2, 0.3][:count]))


HUMAN = Side(("bm25", "lsa", "minilm"), np.array([[0.2], [0.6], [0.4]]))
GENERATED = Side(("minilm", "bm25", "lsa"), np.array([[0.5], [0.9], [0.1]]))


def test_rank_gains_are_human_rank_minus_generated_rank() -> None:
    found = rank_gains(HUMAN, GENERATED, {"bm25": "lexical", "lsa": "latent"})
    assert [(one.system, one.family, one.human, one.generated, one.gain) for one in found] == [
        ("lsa", "latent", 1, 3, -2),
        ("minilm", "", 2, 2, 0),
        ("bm25", "lexical", 3, 1, 2),
    ]
    tied = Side(("x", "y", "z"), np.array([[0.5], [0.5], [0.1]]))
    assert [one.human for one in rank_gains(tied, tied, {})] == [1.5, 1.5, 3]
    gains = rank_gains(HUMAN, GENERATED, {"bm25": "lexical", "lsa": "other", "minilm": "other"})
    assert family_gains(gains) == {"lexical": (1, 2.0), "other": (2, -1.0)}


def test_circularity_compares_the_involved_with_the_others() -> None:
    names = ("a", "b", "c", "d")
    human, generated = (Side(names, np.array(means)[:, None]) for means in ([1.0, 2, 3, 4], [4.0, 3, 2, 1]))
    found = circularity(rank_gains(human, generated, {}), {"a": ("m",), "b": ("m", "n")})
    assert (found.gain, found.others) == (2.0, -2.0)  # a +3, b +1, c -1, d -3
    assert found.p == pytest.approx(1 / 6, abs=0.01)  # one of the six groups of two gains as much
    gains = rank_gains(HUMAN, GENERATED, {})
    nobody, everybody = circularity(gains, {}), circularity(gains, dict.fromkeys(HUMAN.names, ("m",)))
    assert math.isnan(nobody.gain) and math.isnan(nobody.p)
    assert math.isnan(everybody.others) and math.isnan(everybody.p)


def test_systems_are_made_of_what_their_parts_are_made_of_and_some_made_the_labels() -> None:
    made = [
        {"name": "bm25", "kind": "bm25"},
        {"name": "minilm", "kind": "dense"},
        {"name": "e5", "kind": "dense", "embedder": "e5-small"},
        {"name": "tokens", "kind": "late", "model": "all-minilm-l6-v2-int8"},
        {"name": "hybrid", "kind": "fuse", "systems": ["bm25", "e5"]},
        {"name": "reranked", "kind": "rerank", "first": "bm25", "reranker": "splade"},
    ]
    systems, minilm = in_order([SystemSettings.model_validate(one) for one in made]), "all-minilm-l6-v2-int8"
    assert models_of(systems) == {
        "bm25": {"bm25"}, "minilm": {minilm}, "e5": {"e5-small"}, "tokens": {minilm}, "hybrid": {"bm25", "e5-small"},
        "reranked": {"bm25", "splade-bert-tiny"},
    }  # fmt: skip
    provenance = [
        {"role": "query", "model": "e5-small"},  # it wrote queries, and no label
        {"role": "recall", "model": "lsa"},
        {"role": "re-ranker (pre-label)", "model": f"maxsim {minilm}"},
        {"role": "re-ranker (pre-label)", "model": "splade-bert-tiny"},
    ]
    expected = {"minilm": (minilm,), "tokens": (minilm,), "reranked": ("splade-bert-tiny",)}
    assert made_labels(systems, label_makers(provenance)) == expected
    assert made_labels(systems, label_makers([])) == {}
    maxsim, dense = read_spec("reranker", "maxsim"), read_spec("retriever", {"kind": "dense"})
    assert model_or_kind(maxsim) == model_or_kind(dense) == minilm
    assert model_or_kind(read_spec("embedder", {"kind": "http", "model": "x/y"})) == "x/y"


def report(generated: np.ndarray | None = None) -> AgreementReport:
    names = ("bm25", "weak", "lsa", "mini|lm <b>")
    random = np.random.default_rng(0)
    human = Side(names, np.array([0.3, 0.1, 0.5, 0.4])[:, None] + 0.05 * random.random((4, 12)))
    scores = np.array([0.6, 0.1, 0.3, 0.5])[:, None] if generated is None else generated
    made = Side(names, scores * np.ones(7))
    gains = rank_gains(human, made, {"bm25": "lexical", "weak": "lexical"})
    return AgreementReport(
        collection="med`line", pipeline="agree-medline", sources="positives", measure="nDCG@10", human=human,
        generated=made, weakened=["weak"], families={"bm25": "lexical", "weak": "lexical"},
        variants=[Variant("complete", agree(human, made, {"weak"}), 1.5)],
        reliability={"human": split_half(human), "generated": split_half(made)},
        ceiling=same_size_ceiling(human, 7), resamplings=resamplings(human, made),
        competitors={"cranfield": correlate(human, human)}, gains=gains,
        circularity=circularity(gains, {"bm25": ("bm25",)}),
        ablated={"no quality control": {"bm25": 0.4321, "lsa": 0.2}},
        notes=["7 generated queries: a ranking by so few is mostly noise."],
    )  # fmt: skip


def svg_texts(path: Path) -> list[str]:
    return [element.text or "" for element in ET.parse(path).iter() if element.tag.endswith("}text")]


def test_the_figures_are_in_the_text() -> None:
    text = report().markdown()
    # Human ranks: lsa, mini|lm, bm25, weak; generated: bm25, mini|lm, lsa, weak. rho = 1 - 6 * 8 / 60.
    assert "| complete | 7 | 1.50 | 0.20 [" in text
    assert "| bm25 | lexical | 0." in text and "| 3 | 1 | +2 |" in text
    assert "| weak (weakened) |" in text
    # The third column of the paper's Table 5.
    assert "| human | generated | no quality control | human rank |" in text and "| 0.6000 | 0.4321 | 3 | 1 |" in text
    assert "another collection's human ranking: cranfield (4 systems) | 1.00" in text
    assert "> 7 generated queries" in text
    flat = report(np.full((4, 1), 0.5))
    value = flat.as_dict()
    json.dumps(value, allow_nan=False)
    assert value["variants"][0]["agreement"]["all"]["spearman"] == {"value": None, "low": None, "high": None}
    assert "| complete | 7 | 1.50 | undefined | undefined | undefined | undefined |" in flat.markdown()


def test_a_report_is_written_whole_the_same_twice_and_names_from_outside_break_nothing(tmp_path: Path) -> None:
    for name in ("one", "two"):
        report().write(tmp_path / name)
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert sorted(files) == ["agreement.json", "agreement.md", "ranks.svg", "resamplings.svg"]
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    text = files["agreement.md"].decode()
    assert "<b>" not in text
    for block in text.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in rows}) <= 1
    assert "mini|lm <b>" in svg_texts(tmp_path / "one" / "ranks.svg")


@pytest.mark.parametrize(("count", "step"), [(1, 1.0), (3, 1.0), (30, 1.0), (3, 0.0)])
def test_ranks_have_two_labels_and_a_row_for_each_system_also_with_ties(
    count: int, step: float, tmp_path: Path
) -> None:
    one = Side(tuple(f"s{place}" for place in range(count)), step * np.arange(count, dtype=float)[:, None])
    chart = ranks_chart(rank_gains(one, one, {}), title="t")
    save_svg(chart, tmp_path / "ranks.svg")
    assert svg_texts(tmp_path / "ranks.svg").count("s0") >= 2
    rows = next(rows for rows in chart.to_dict()["datasets"].values() if "left" in rows[0])
    assert sorted(row["left"] for row in rows) == sorted(row["right"] for row in rows) == list(range(count))
    assert step or {row["human"] for row in rows} == {"2"}


def test_draws_that_rank_nothing_are_left_out_of_the_chart(tmp_path: Path) -> None:
    nothing = Resamplings(5, (math.nan, math.nan))
    save_svg(resamplings_chart(nothing, nothing, math.nan, title="t"), tmp_path / "none.svg")
    assert "nothing to show" in svg_texts(tmp_path / "none.svg")
    some = resamplings_chart(Resamplings(5, (0.5, math.nan, -0.2)), nothing, 0.4, title="t").to_dict()["datasets"]
    assert sorted(row["rho"] for rows in some.values() for row in rows) == [-0.2, 0.4, 0.5]


def test_sides_of_another_breadth_are_named() -> None:
    one = {"q1": {"a": 1.0, "b": 0.0}, "q2": {"c": 2.0, "d": 1.0}, "q3": {"e": 0.0}}  # 1.5 if there are any
    assert breadth_note(one, 1.5) == breadth_note(one, 3.0) == breadth_note(one, 0.0) == breadth_note({}, 1.5) == []
    (wide,) = breadth_note(one, 4.0)
    assert "Human queries have 1.5 relevant passages each, generated ones 4.0: a stricter cut" in wide
    assert "its document alone" not in wide  # at 1.5 a query
    assert "its document alone ranks best" in breadth_note({"q": {"a": 1.0, "b": 0.0}}, 4.0)[0]
    assert "a lower cut" in breadth_note({"q1": dict.fromkeys("abcd", 1.0)}, 1.5)[0]

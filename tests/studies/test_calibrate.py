"""How a judge agrees with people: pairs and figures by hand, and `airgen study judge` on small collections."""

import asyncio
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import command_line
import duckdb
import numpy as np
import pytest
from beir_folder import write_beir
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen import models
from airgen.components.keys import rng
from airgen.display.study import body
from airgen.errors import DatasetError, Stopped, UsageError
from airgen.llms.base import Reply, Request
from airgen.llms.scripted import ScriptedBackend
from airgen.storage.json_values import plain
from airgen.studies.judge.agreement import (
    CalibrationPair,
    Opinion,
    assess,
    assessments_table,
    auc,
    best_threshold,
    cross_decided,
    every_pair,
    expected_calibration_error,
    interval,
    kappa,
    noise_floor,
    select_pairs,
)


def collection(queries: int = 6) -> tuple[dict[str, dict[str, float]], dict[str, list[str]]]:
    """For each query a pool of 2 relevant, 1 judged and 5 unjudged passages."""
    labels = {f"q{n}": {f"r{n}a": 2.0, f"r{n}b": 1.0, f"n{n}": 0.0, f"far{n}": 3.0} for n in range(queries)}
    pools = {f"q{n}": [f"r{n}a", f"n{n}", f"r{n}b", *(f"u{n}{x}" for x in "abcde")] for n in range(queries)}
    return labels, pools


def kinds(pairs: list[CalibrationPair]) -> Counter[str]:
    return Counter(pair.kind for pair in pairs)


def test_half_of_the_pairs_are_relevant_and_every_query_gives_one_first() -> None:
    labels, pools = collection()
    every = every_pair(labels, pools)
    pairs = select_pairs(every, 12)
    assert kinds(pairs) == {"relevant": 6, "judged": 3, "unjudged": 3}
    assert len({pair.query for pair in pairs if pair.relevant}) == 6
    assert all(pair.id in pools[pair.query] for pair in pairs)  # never one that retrieval does not bring up
    # More of the same seed only adds pairs.
    assert set(pairs) < set(select_pairs(every, 20))
    assert select_pairs(every, 12, seed=1) != pairs
    # One side never outweighs the other.
    assert kinds(select_pairs(every, 1000)) == {"relevant": 12, "judged": 6, "unjudged": 6}
    few = {query: ids[:3] for query, ids in pools.items()}  # no unjudged one: the judged fill up as far as they go
    assert kinds(select_pairs(every_pair(labels, few), 1000)) == {"relevant": 6, "judged": 6}
    assert select_pairs(every_pair(labels, {"q0": ["u"]}), 10) == []
    # Labels may be cut higher or left out.
    higher = select_pairs(every_pair(labels, pools, relevant_from=2), 1000)
    assert kinds(higher) == {"relevant": 6, "judged": 3, "unjudged": 3}
    assert {pair.label for pair in higher if pair.relevant} == {2.0}
    without = select_pairs(every_pair(labels, pools, ignore=[0.0]), 1000)
    assert kinds(without) == {"relevant": 12, "unjudged": 12}


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=60))
def test_auc_counts_couples(rows: list[tuple[int, bool]]) -> None:
    scores, relevant = np.array([float(score) for score, _ in rows]), np.array([yes for _, yes in rows])
    couples = [(a, b) for a, good in rows for b, bad in rows if good and not bad]
    found = auc(scores, relevant)
    if not couples:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(np.mean([(a > b) + 0.5 * (a == b) for a, b in couples]))


def test_kappa_by_hand_and_by_a_library() -> None:
    decided = np.array([True] * 20 + [True] * 5 + [False] * 10 + [False] * 15)
    relevant = np.array([True] * 20 + [False] * 5 + [True] * 10 + [False] * 15)
    assert kappa(decided, relevant) == pytest.approx(0.4)  # the textbook's table of 20, 5, 10, 15
    metrics = pytest.importorskip("sklearn.metrics")
    assert kappa(decided, relevant) == pytest.approx(metrics.cohen_kappa_score(decided, relevant))
    assert kappa(np.ones(5, bool), np.ones(5, bool)) == 0.0


def test_calibration_error_by_hand() -> None:
    # Bin .1 to .2: states .15, half are relevant: .35 off, two pairs. Bin .9 to 1: states .95, all are: .05 off.
    probabilities = np.array([0.15, 0.15, 0.95, 1.0])
    relevant = np.array([True, False, True, True])
    assert expected_calibration_error(probabilities, relevant) == pytest.approx((2 * 0.35 + 2 * 0.025) / 4)
    assert expected_calibration_error(np.array([0.0, 1.0]), np.array([False, True])) == 0.0


def test_the_floor_is_what_chance_alone_shows() -> None:
    few = np.full(20, 0.5)
    # One bin of n fair coins: the mean distance of their share from .5 is about sqrt(1 / (2 pi n)).
    assert noise_floor(few) == noise_floor(few) == pytest.approx(math.sqrt(1 / (2 * math.pi * 20)), rel=0.1)
    assert noise_floor(np.full(20_000, 0.5), samples=50) < 0.005


def test_thresholds_are_picked_on_one_half_and_used_on_the_other() -> None:
    scores = np.array([0.1, 0.2, 0.3, 0.8, 0.9])
    relevant = np.array([False, False, False, True, True])
    assert best_threshold(scores, relevant) == pytest.approx(0.55)
    # Two queries on different scales: each is cut where the other's labels say, so both are cut wrongly.
    queries = ["a", "a", "b", "b"]
    decided = cross_decided(np.array([1.0, 2.0, 11.0, 12.0]), np.array([False, True, False, True]), queries)
    assert decided.tolist() == [False, False, True, True]
    own = cross_decided(np.array([1.0, 2.0]), np.array([False, True]), ["a", "a"])
    assert own.tolist() == [False, True]
    with pytest.raises(UsageError, match="there are no scores"):
        best_threshold(np.array([]), np.array([], bool))


def test_intervals_resample_queries_and_not_pairs() -> None:
    # Ten pairs of one query are one observation: the interval is as wide as two queries make it.
    values = np.array([0.0] * 10 + [1.0] * 10)
    found = interval(lambda at: float(values[at].mean()), ["a"] * 10 + ["b"] * 10)
    assert (found.value, found.low, found.high) == (0.5, 0.0, 1.0)
    assert interval(lambda at: float(values[at].mean()), ["a"] * 10 + ["b"] * 10) == found
    nothing = interval(lambda at: math.nan, ["a", "b"])
    assert math.isnan(nothing.low)


def pairs_of(kinds: str) -> list[CalibrationPair]:
    """One pair a letter: r, j or u; a query for every two."""
    names = {"r": ("relevant", 2.0), "j": ("judged", 0.0), "u": ("unjudged", None)}
    return [CalibrationPair(f"q{at // 2}", f"d{at}", *names[letter]) for at, letter in enumerate(kinds)]  # type: ignore[arg-type]


def test_an_assessment_by_hand() -> None:
    pairs = pairs_of("rjrururj")
    said = [0.9, 0.4, 0.8, 0.6, 0.7, 0.65, 0.3, 0.1]
    opinions = [Opinion(p, int(p * 3.99), p) for p in said]
    found = assess("toy", pairs, opinions, threshold=0.5)
    assert found.counts == {"relevant": 4, "judged": 2, "unjudged": 2}
    judged, unjudged = found.auc["judged"], found.auc["unjudged"]
    assert judged is not None and judged.value == pytest.approx(7 / 8)  # .3 is below .4
    assert unjudged is not None and unjudged.value == pytest.approx(6 / 8)  # .3 is below both
    # Decided from .5: yes no yes yes yes yes no no; right are 5 of 8, by chance 8 * .5.
    assert found.kappa.value == pytest.approx((5 / 8 - 1 / 2) / (1 / 2))
    assert found.confusion == {
        "0": {"level 0": 1, "level 1": 1},
        "2": {"level 1": 1, "level 2": 1, "level 3": 2},
        "unjudged": {"level 2": 2},
    }
    assert found.error == pytest.approx(
        expected_calibration_error(np.array(said), np.array([p.relevant for p in pairs]))
    )
    text = "\n\n".join(body(assessments_table([found])))
    assert "| toy | 4 + 2 + 2 | 0.88 (" in text and "| level 0 | level 1 |" in text


def test_refusals_are_counted_and_a_judge_that_only_refuses_has_no_figures() -> None:
    pairs = pairs_of("rurururu")
    some = assess("toy", pairs, [None, *[Opinion(float(p.relevant)) for p in pairs[1:]]])
    assert some.refused == 1 and some.counts["relevant"] == 3
    assert some.auc["judged"] is None and some.error is None
    assert some.confusion["2"] == {"relevant": 3}
    none = assess("toy", pairs, [None] * 8)
    assert none.refused == 8 and plain(none)["kappa"]["value"] is None
    assert "8 refused" in "\n\n".join(body(assessments_table([none])))


SUBJECTS = ("kettles", "lanterns", "bridges", "violins", "glaciers", "orchards", "tides", "beetles")
DEEDS = ("boil", "glow", "sway", "sing", "melt", "bloom", "rise", "crawl")


def write_collection(folder: Path, seed: int) -> None:
    """Eight queries; of each subject three passages answer and five only have its words."""
    random = rng("collection", seed)
    corpus, queries, labels = [], [], []
    for number, (subject, deed) in enumerate(zip(SUBJECTS, DEEDS, strict=True)):
        queries.append({"_id": f"q{number}", "text": f"when do {subject} {deed} in winter"})
        for place in range(8):
            text = f"In winter {subject} {deed} at dawn, as case {random.randrange(99)} shows."
            if place >= 3:
                other = random.choice(DEEDS)
                text = f"The trade in {subject} was taxed; they {other} no more since year {random.randrange(999)}."
            corpus.append({"_id": f"d{number}-{place}", "title": f"On {subject} {place}", "text": text})
        labels += [(f"q{number}", f"d{number}-{place}", 2 if place < 3 else 0) for place in range(4)]
    write_beir(folder, corpus, queries, {"test": labels})


PIPELINE = """
name: own
task: qa
corpus: none
target: 1
llm: {backend: scripted, concurrency: 4}
control:
  recall: {pools_only: true, top_k: 20}
  pools: [bm25]
  rerankers: [bm25, {kind: bm25, b: 0.1}]
  judge: {kind: yes-no}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two collections, `one` and `two`, and a pipeline."""
    for seed, name in enumerate(("one", "two")):
        write_collection(tmp_path / name, seed)
    (tmp_path / "own.yaml").write_text(PIPELINE, encoding="utf-8")
    return tmp_path


def call(folder: Path, judge: str, *words: object, collections: tuple[str, ...] = ("one", "two")) -> str:
    places = [folder / name for name in collections]
    given = ["--pipeline", folder / "own.yaml", "--out", folder / "work", "--pairs", 32, *words]
    return command_line.call("study", "judge", judge, *places, *given)


def table(folder: Path, judge: str, *words: object, **options: Any) -> list[dict[str, Any]]:
    """A row for each collection."""
    (rows,) = json.loads(call(folder, judge, "--json", *words, **options))["tables"].values()
    return list(rows)


def answers(folder: Path) -> int:
    with duckdb.connect(str(folder / "work" / "work.duckdb"), read_only=True) as connection:
        return int(connection.execute("SELECT count(*) FROM answer").fetchall()[0][0])


def test_a_yes_no_judge_is_asked_once_about_every_pair(folder: Path) -> None:
    value = json.loads(call(folder, "judge_yes_no", "--json"))
    (table,) = value["tables"].values()
    assert [row["collection"] for row in table] == ["one", "two"]
    for row in table:
        counts = row["counts"]
        assert counts["relevant"] == counts["judged"] + counts["unjudged"] == 16
        assert row["auc"]["all"]["low"] <= row["auc"]["all"]["value"] <= row["auc"]["all"]["high"]
        assert sum(sum(cells.values()) for cells in row["confusion"].values()) == 32
        assert row["error"] is not None and row["error_floor"] > 0
    assert answers(folder) == 64
    again = json.loads(call(folder, "judge_yes_no", "--json"))
    assert (again, answers(folder)) == (value, 64)
    report = (folder / "work" / "judge_yes_no.md").read_text(encoding="utf-8")
    assert "small/judge_yes_no, answered by scripted" in report and "human labels (rows)" in report
    assert json.loads((folder / "work" / "judge_yes_no.json").read_text(encoding="utf-8")) == value


def test_levels_panels_and_rerankers(folder: Path) -> None:
    (levels,) = table(folder, "judge", collections=("one",))
    assert levels["error"] is None  # Table 8's levels are no probabilities
    assert set().union(*levels["confusion"].values()) <= {"level 0", "level 1", "level 2", "level 3"}
    text = (folder / "own.yaml").read_text(encoding="utf-8")
    panel = "judge: {panel: [{kind: paper}, {kind: yes-no}]}"
    (folder / "own.yaml").write_text(text.replace("judge: {kind: yes-no}", panel), encoding="utf-8")
    before = answers(folder)
    call(folder, "pipeline", collections=("one",))
    assert answers(folder) == before + 32  # the levels were asked for already
    one, two = table(folder, "bm25", "--ignore", "one=0")
    assert two["auc"]["all"]["value"] > 0.8  # the made collection is easy for words
    assert one["counts"]["judged"] == 0 < two["counts"]["judged"] and one["auc"]["judged"] is None
    assert answers(folder) == before + 32


def test_the_votes_are_measured_with_a_drawn_source(folder: Path) -> None:
    rows = table(folder, "votes")
    assert [row["collection"] for row in rows] == ["one", "two"]
    for row in rows:
        # One of the three relevant passages of each query is its source, and in no pair.
        assert row["counts"]["relevant"] == 16 and row["threshold"] == 0.5
        assert row["auc"]["all"]["value"] > 0.8  # the made collection is easy for words
    # The pipeline's own judge, where its kind is `votes`, is the same; another seed draws other sources.
    text = (folder / "own.yaml").read_text(encoding="utf-8")
    (folder / "own.yaml").write_text(text.replace("{kind: yes-no}", "{kind: votes}"), encoding="utf-8")
    assert table(folder, "pipeline") == rows != table(folder, "votes", "--seed", 1)
    assert answers(folder) == 0


def test_a_stop_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = 0
    send = ScriptedBackend.send

    async def failing(self: ScriptedBackend, request: Request) -> Reply:
        nonlocal sent
        sent += 1
        if sent > 20:
            raise Stopped("stopped by the user: run the same command again to continue")
        await asyncio.sleep(0)
        return await send(self, request)

    monkeypatch.setattr(ScriptedBackend, "send", failing)
    with pytest.raises(Stopped):
        call(folder, "judge_yes_no", collections=("one",))
    kept = answers(folder)
    assert kept >= 16
    monkeypatch.undo()
    call(folder, "judge_yes_no", collections=("one",))
    assert answers(folder) == 32


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [(("bm25", "--relevant-from", "three=1"), UsageError, "no given collection has this name"),
     (("bm25", "--ignore", "one=none"), UsageError, "give NAME=LABEL"),
     (("query",), UsageError, "is not a judge prompt"),
     (("bm25", "--relevant-from", "one=3"), DatasetError, "contain no relevant passage")],
)  # fmt: skip
def test_wrong_use(folder: Path, words: tuple[str, ...], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call(folder, *words)


def test_a_collection_without_a_manifest_is_read_in_its_language(folder: Path) -> None:
    """German words of one stem match only where German is stemmed; all passages are recalled, by their meaning."""
    if not models.fetched("all-minilm-l6-v2-int8"):
        pytest.skip("airgen fetch tests")
    text = PIPELINE.replace("{pools_only: true, top_k: 20}\n  pools: [bm25]", "{model: all-minilm-l6-v2-int8}")
    (folder / "own.yaml").write_text(text, encoding="utf-8")
    forms = {"Geige": "Geigen", "Lampe": "Lampen", "Katze": "Katzen", "Wolke": "Wolken", "Blume": "Blumen"}
    corpus, queries, labels = [], [], []
    for number, (one, many) in enumerate(forms.items()):
        queries.append({"_id": f"q{number}", "text": f"wann ruhen {many}"})
        for place in range(4):
            text = f"Eine {one} ruhte, Fall {place}." if place < 2 else f"Ohne {one[:3]} wann ging man um {place} Uhr."
            corpus.append({"_id": f"d{number}-{place}", "title": "", "text": text})
        labels += [(f"q{number}", f"d{number}-{place}", 1) for place in range(2)]
    write_beir(folder / "german", corpus, queries, {"test": labels})

    def area(*words: str) -> float:
        return float(table(folder, "bm25", *words, collections=("german",))[0]["auc"]["all"]["value"])

    english = area()
    assert area("--language", "de") == 1.0 > english
    assert area() == english  # each language keeps its own recall

"""`airgen calibrate` on small collections of our own making, with the scripted model and real re-rankers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import command_line
import duckdb
import pytest
from beir_folder import write_beir

from airgen import models
from airgen.errors import DatasetError, SettingsError, Stopped, UsageError
from airgen.keys import rng
from airgen.llms.base import Reply, Request
from airgen.llms.scripted import ScriptedBackend

SUBJECTS = ("kettles", "lanterns", "bridges", "violins", "glaciers", "orchards", "tides", "beetles")
DEEDS = ("boil", "glow", "sway", "sing", "melt", "bloom", "rise", "crawl")


def write_collection(folder: Path, seed: int) -> None:
    """Eight queries; of each subject three passages answer and five only have its words."""
    random = rng("collection", seed)
    corpus, queries, labels = [], [], []
    for number, (subject, deed) in enumerate(zip(SUBJECTS, DEEDS, strict=True)):
        queries.append({"_id": f"q{number}", "text": f"when do {subject} {deed} in winter"})
        for place in range(8):
            id_ = f"d{number}-{place}"
            other = random.choice(DEEDS)
            text = (
                f"In winter {subject} {deed} at dawn, as case {random.randrange(99)} shows."
                if place < 3
                else f"The trade in {subject} was taxed; they {other} no more since year {random.randrange(999)}."
            )
            corpus.append({"_id": id_, "title": f"On {subject} {place}", "text": text})
            if place < 4:
                labels.append((f"q{number}", id_, 2 if place < 3 else 0))
    write_beir(folder, corpus, queries, {"test": labels})


PIPELINE = """
name: own
task: qa
corpus: none
target: 1
llm: {backend: scripted, concurrency: 4}
control:
  recall: {model: all-minilm-l6-v2-int8, top_k: 20}
  rerankers: [bm25, dense]
  judge: {kind: yes-no}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two collections, `one` and `two`, and a pipeline."""
    if not models.fetched("all-minilm-l6-v2-int8"):
        pytest.skip("airgen models fetch tests")
    for seed, name in enumerate(("one", "two")):
        write_collection(tmp_path / name, seed)
    (tmp_path / "own.yaml").write_text(PIPELINE, encoding="utf-8")
    return tmp_path


def call(folder: Path, judge: str, *words: object, collections: tuple[str, ...] = ("one", "two")) -> str:
    places = [folder / name for name in collections]
    given = ["--pipeline", folder / "own.yaml", "--out", folder / "work", "--pairs", 32, *words]
    return command_line.call("calibrate", judge, *places, *given)


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
    (levels,) = json.loads(call(folder, "judge", "--json", collections=("one",)))["tables"].values()
    assert levels[0]["error"] is None  # Table 8's levels are no probabilities
    assert set().union(*levels[0]["confusion"].values()) <= {"level 0", "level 1", "level 2", "level 3"}
    text = (folder / "own.yaml").read_text(encoding="utf-8")
    panel = "judge: {panel: [{kind: levels}, {kind: yes-no}]}"
    (folder / "own.yaml").write_text(text.replace("judge: {kind: yes-no}", panel), encoding="utf-8")
    before = answers(folder)
    call(folder, "pipeline", collections=("one",))
    assert answers(folder) == before + 32  # the levels were asked for already
    (bm25,) = json.loads(call(folder, "bm25", "--json", collections=("one",)))["tables"].values()
    assert bm25[0]["auc"]["all"]["value"] > 0.8  # the made collection is easy for words
    assert answers(folder) == before + 32


def test_the_combined_judge_is_tested_on_what_it_was_not_fitted_on(folder: Path) -> None:
    value = json.loads(call(folder, "combined", "--save", folder / "own.json", "--json"))
    whole, without, alone = value["tables"].values()
    assert [row["collection"] for row in whole] == ["one", "two"]
    assert whole[0]["auc"]["all"]["value"] > 0.8
    assert without[0]["auc"]["all"] != alone[0]["auc"]["all"]
    saved = json.loads((folder / "own.json").read_text(encoding="utf-8"))
    assert saved["judge"]["model"] == "scripted" and set(saved["weights"]) == {"llm", "scores", "votes"}
    assert "on one, when left out" in saved["notes"]
    # Its thresholds and weights come from the other collection: labels of this one cannot change them.
    labels = folder / "one" / "qrels" / "test.tsv"
    first = whole[0]["threshold"]
    labels.write_text(labels.read_text(encoding="utf-8").replace("\t2", "\t3"), encoding="utf-8")
    changed = json.loads(call(folder, "combined", "--json"))
    assert next(iter(changed["tables"].values()))[0]["threshold"] == first
    applied = json.loads(call(folder, "own.json", "--json"))
    assert applied["combination"]["weights"] == saved["weights"]
    with pytest.raises(SettingsError, match=r"own\.json was fitted for the judge of model scripted"):
        text = (folder / "own.yaml").read_text(encoding="utf-8")
        (folder / "own.yaml").write_text(text.replace("{kind: yes-no}", "{kind: levels}"), encoding="utf-8")
        call(folder, "own.json")


def test_rerankers_are_combined_without_asking_an_llm(folder: Path) -> None:
    value = json.loads(call(folder, "rerankers", "--save", folder / "free.json", "--json"))
    (table,) = value["tables"].values()
    assert table[0]["auc"]["all"]["value"] > 0.8
    saved = json.loads((folder / "free.json").read_text(encoding="utf-8"))
    assert (set(saved["weights"]), saved["judge"]) == ({"scores", "votes"}, {})
    call(folder, "free.json")
    assert answers(folder) == 0


def test_labels_are_cut_and_left_out_as_asked(folder: Path) -> None:
    value = json.loads(call(folder, "bm25", "--ignore", "one=0", "--json"))
    (table,) = value["tables"].values()
    assert table[0]["counts"]["judged"] == 0 < table[1]["counts"]["judged"]
    assert table[0]["auc"]["judged"] is None
    with pytest.raises(DatasetError, match="hold no relevant passage"):
        call(folder, "bm25", "--relevant-from", "one=3")


def test_a_stop_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = 0
    send = ScriptedBackend.send

    async def failing(self: ScriptedBackend, request: Request) -> Reply:
        nonlocal sent
        sent += 1
        if sent > 20:
            raise Stopped("stopped by the user: run the same command to go on")
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


def test_wrong_use(folder: Path) -> None:
    with pytest.raises(UsageError, match="name at least two"):
        call(folder, "combined", collections=("one",))
    with pytest.raises(UsageError, match="has that directory's name"):
        call(folder, "bm25", "--relevant-from", "three=1")
    with pytest.raises(UsageError, match="give NAME=LABEL"):
        call(folder, "bm25", "--ignore", "one=none")
    with pytest.raises(UsageError, match="only `combined` and `rerankers` have"):
        call(folder, "bm25", "--save", folder / "x.json")
    with pytest.raises(UsageError, match="does not judge"):
        call(folder, "query")
    with pytest.raises(SettingsError, match="No such file"):
        call(folder, "none.json")


def test_a_collection_without_a_manifest_is_read_in_its_language(folder: Path) -> None:
    """German words of one stem match only where German is stemmed."""
    forms = {"Geige": "Geigen", "Lampe": "Lampen", "Katze": "Katzen", "Wolke": "Wolken", "Blume": "Blumen"}
    corpus, queries, labels = [], [], []
    for number, (one, many) in enumerate(forms.items()):
        queries.append({"_id": f"q{number}", "text": f"wann ruhen {many}"})
        for place in range(4):
            text = f"Eine {one} ruhte, Fall {place}." if place < 2 else f"Ohne {one[:3]} wann ging man um {place} Uhr."
            corpus.append({"_id": f"d{number}-{place}", "title": "", "text": text})
            if place < 2:
                labels.append((f"q{number}", f"d{number}-{place}", 1))
    write_beir(folder / "german", corpus, queries, {"test": labels})

    def area(*words: str) -> float:
        found = json.loads(call(folder, "bm25", "--json", *words, collections=("german",)))
        return float(found["tables"]["By score"][0]["auc"]["all"]["value"])

    english = area()
    assert area("--language", "de") == 1.0 > english
    assert area() == english  # each language keeps its own recall


def test_likeness_to_a_source_is_fitted_beside_weights_without_it(folder: Path) -> None:
    value = json.loads(call(folder, "rerankers", "--source", "--save", folder / "like.json", "--json"))
    like, alone = value["tables"].values()
    assert list(value["tables"]) == ["Scores, votes and likeness", "Scores and votes alone"]
    # One of the three relevant passages of each query is its source, and in no pair.
    assert like[0]["counts"]["relevant"] == alone[0]["counts"]["relevant"] == 16
    assert like[0]["auc"]["all"]["value"] > 0.8
    saved = json.loads((folder / "like.json").read_text(encoding="utf-8"))
    assert set(saved["weights"]) == {"scores", "votes", "source"} and set(saved["profiles"]) == {"rank", "train"}
    assert saved["weights"]["source"] > 0  # of our making: the relevant passages say nearly the same
    assert set(saved["sourceless"]["weights"]) == {"scores", "votes"}
    # Another seed draws other sources, and nothing of the first is taken for theirs.
    other = json.loads(call(folder, "rerankers", "--source", "--seed", 1, "--json"))
    assert other["combination"]["weights"] != saved["weights"]
    assert json.loads(call(folder, "rerankers", "--source", "--json")) == value
    applied = json.loads(call(folder, "like.json", "--source", "--json"))
    assert applied["combination"]["sourceless"] == saved["sourceless"]
    with pytest.raises(UsageError, match="--source: only a combined judge"):
        call(folder, "bm25", "--source")


def test_every_recalled_pair_may_be_fitted_on(folder: Path) -> None:
    value = json.loads(call(folder, "rerankers", "--every-pair", "--json"))
    (table,) = value["tables"].values()
    counts = table[0]["counts"]
    assert sum(counts.values()) == 8 * 20 and counts["relevant"] == 24  # the top 20 of 8 queries
    sampled = json.loads(call(folder, "rerankers", "--json"))["combination"]
    assert value["combination"]["intercept"] < sampled["intercept"]  # most of what is recalled is not relevant
    with pytest.raises(UsageError, match="--every-pair: this judge would ask an LLM"):
        call(folder, "combined", "--every-pair")

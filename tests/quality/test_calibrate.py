"""`airgen study judge` on small collections of our own making, with the scripted model and real re-rankers."""

import asyncio
import json
from pathlib import Path
from typing import Any

import command_line
import duckdb
import pytest
from beir_folder import write_beir

from airgen import models
from airgen.errors import DatasetError, Stopped, UsageError
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
  recall: {model: all-minilm-l6-v2-int8, top_k: 20}
  rerankers: [bm25, dense]
  judge: {kind: yes-no}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two collections, `one` and `two`, and a pipeline."""
    if not models.fetched("all-minilm-l6-v2-int8"):
        pytest.skip("airgen fetch tests")
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
    panel = "judge: {panel: [{kind: levels}, {kind: yes-no}]}"
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
    every = table(folder, "votes", "--every-pair")
    assert sum(every[0]["counts"].values()) + every[0]["refused"] == 8 * 19  # the top 20 of 8 queries, without sources
    assert answers(folder) == 0


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


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [(("bm25", "--relevant-from", "three=1"), UsageError, "has that directory's name"),
     (("bm25", "--ignore", "one=none"), UsageError, "give NAME=LABEL"), (("query",), UsageError, "does not judge"),
     (("judge", "--every-pair"), UsageError, "--every-pair: this judge would ask an LLM"),
     (("bm25", "--relevant-from", "one=3"), DatasetError, "hold no relevant passage")],
)  # fmt: skip
def test_wrong_use(folder: Path, words: tuple[str, ...], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call(folder, *words)


def test_a_collection_without_a_manifest_is_read_in_its_language(folder: Path) -> None:
    """German words of one stem match only where German is stemmed."""
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

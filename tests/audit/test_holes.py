"""Holes of runs and submissions: found without a trace of the system, judged once, scored again, and kept."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from beir_folder import read_rows, write_rows
from command_line import call
from dataset_maker import INFO, make_content, no_flush
from job_maker import asked

from airgen.audit.holes import HoleLabel, Ledger, fill, find_holes, moves, read_submissions
from airgen.dataset.manifest import load_manifest
from airgen.dataset.secret import secret_of
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import BudgetSpent, DatasetError, UsageError
from airgen.evaluation import run_from_dict, write_run
from airgen.llms.base import Request
from airgen.publishing.scores import load_labels
from airgen.publishing.submission import NO_RERANKER, SystemHits, pack
from airgen.publishing.withhold import public_part

__all__ = ["asked", "no_flush"]

QRELS = {"q1": {"a": 1, "b": 0}, "q2": {"c": 1}}
LEXICAL = run_from_dict({"q1": {"a": 3.0, "b": 2.0}, "q2": {"c": 1.0}})
DENSE = run_from_dict({"q1": {"x": 3.0, "a": 2.0}, "q2": {"a": 2.0, "c": 1.0}, "extra": {"y": 1.0}})


def test_holes_are_per_query_in_an_order_that_tells_nothing_and_judging_them_turns_the_ranking() -> None:
    found = find_holes([LEXICAL, DENSE], QRELS, 2)
    assert set(found) == {("q1", "x"), ("q2", "a")}  # "a" is judged for q1 only
    assert found == find_holes([DENSE, LEXICAL], QRELS, 2) == find_holes([DENSE], QRELS, 1)
    assert find_holes([LEXICAL], QRELS, 2) == []
    filled = fill(QRELS, {("q1", "x"): 1.0, ("q2", "a"): 1.0, ("q1", "a"): 0.0})
    assert filled["q1"] == {"a": 1, "b": 0, "x": 1.0}  # what was judged before stays
    dense, lexical = moves({"lexical": LEXICAL, "dense": DENSE}, QRELS, filled, "R@2", 2)
    # Before, equal scores share a rank.
    assert (dense.system, dense.rank_before, dense.rank_after) == ("dense", 1, 1)
    assert (lexical.system, lexical.rank_before, lexical.rank_after) == ("lexical", 1, 2)
    assert [one.value for one in (lexical.before, lexical.after, dense.before, dense.after)] == [1, 0.5, 1, 1]
    assert (dense.holes_before, dense.holes_after, lexical.holes_before) == (0.5, 0.0, 0.0)


def test_moves_by_hand(home: Path) -> None:
    (labels,) = load_labels([home / "notes"])
    runs, _ = read_submissions([home / "submissions"], labels)
    before = {query: dict(judged) for query, judged in labels.qrels.items()}
    after = {query: {**judged, f"doc{int(query[2:]) + 5:03d}": 1.0} for query, judged in before.items()}
    best, finder = moves(runs, before, after, "RR@10", 2)
    # A passage that is not in the corpus comes first for q-00, so its relevant passages have ranks 4 and 2.
    assert (finder.before.value, finder.after.value) == pytest.approx(((1 / 4 + 3 / 3) / 4, (1 / 2 + 3) / 4))
    change = finder.change
    assert change.value == pytest.approx(finder.after.value - finder.before.value)
    assert 1 / 4 <= change.low <= change.value <= change.high == pytest.approx(2 / 3)
    assert finder.before.low <= finder.before.value <= finder.before.high
    assert (finder.rank_before, finder.rank_after, finder.ranks_after) == (2, 2, (1, 2))
    assert (best.rank_before, best.ranks_before, best.change.value) == (1, (1, 2), 0)  # four queries decide nothing
    assert best.change.low == -best.change.high < 0
    # Of the two best hits of q-00 one is judged after, of the others one of two.
    assert (finder.holes_before, finder.holes_after) == (1.0, 0.5)


def test_a_ledger_survives_a_torn_line_and_takes_finite_numbers(tmp_path: Path) -> None:
    path = tmp_path / "judgments.jsonl"
    Ledger(path).add(("q1", "x"), HoleLabel(1.0, 2, 0.5))
    path.write_bytes(path.read_bytes() + b'{"query-id": "q3", "corp')
    again = Ledger(path)
    again.add(("q3", "z"), HoleLabel(0.0))
    assert Ledger(path).judged == {("q1", "x"): HoleLabel(1.0, 2, 0.5), ("q3", "z"): HoleLabel(0.0)}
    with pytest.raises(UsageError, match="not a finite number"):
        again.add(("q", "p"), HoleLabel(float("nan")))
    path.write_text("{}\n")
    with pytest.raises(DatasetError, match=r"judgments\.jsonl:1"):
        Ledger(path)


def test_runs_are_counted_exported_and_judged_by_a_function_or_a_pipelines_llm(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[Request]
) -> None:
    path = tmp_path / "a.run"
    write_run(path, run_from_dict({"q1": {"p3": 3.0, "p1": 2.0}, "q2": {"ghost": 2.0, "p4": 1.0}}), "t")

    def holes(out: str, *words: object) -> dict[str, Any]:
        return dict(
            json.loads(call("audit", "holes", dataset, "--run", path, "--out", tmp_path / out, "--json", *words))
        )

    counted = holes("out")
    assert (counted["holes"], counted["judged"], counted["not_in_the_dataset"]) == (2, 0, 1)
    (row,) = read_rows(tmp_path / "out" / "holes.jsonl")
    assert (row["query-id"], row["corpus-id"]) == ("q1", "p3")
    (tmp_path / "judge_of_holes.py").write_text(
        "def judge(query, passage):\n    return int('eat' in passage)\nONE = 1\n"
    )
    monkeypatch.chdir(tmp_path)
    judged = holes("out", "--judge", "judge_of_holes:judge")
    assert judged["judged"] == 1
    (system,) = judged["systems"]
    assert system["after"]["value"] > system["before"]["value"]  # p3 comes first, and turned out to be relevant
    wrong = {
        "judge_of_holes:nothing": "judge_of_holes",
        "levels": "give module:function",
        "judge_of_holes:ONE": "is not",
    }
    for word, words in wrong.items():
        with pytest.raises(UsageError, match=words):
            holes("out", "--judge", word)
    Path("pipeline.yaml").write_text(
        "name: x\ntask: qa\ncorpus: python-reference\ntarget: 1\nllm: {backend: scripted, model: scripted}\n"
    )
    assert holes("llm", "--pipeline", "pipeline.yaml", "--estimate")["estimate"]["stages"][0]["calls"] == 1
    assert not asked
    first = holes("llm", "--pipeline", "pipeline.yaml")
    assert (first["voted"], first["judged"], len(asked)) == (1, 1, 1)
    assert holes("llm", "--pipeline", "pipeline.yaml")["systems"] == first["systems"] and len(asked) == 1


PIPELINE = """
name: pool
task: qa
corpus: python-reference
target: 1
llm: {backend: scripted, model: scripted, concurrency: 4, prices: {scripted: {input: 1000.0, output: 1000.0}}}
control: {recall: {model: all-minilm-l6-v2-int8}, rerankers: [bm25], thresholds: {hard_negative: 20, other: 4}}
"""
TEST = ("q-00", "q-01", "q-03", "q-04")
BASE = SystemHits("m", NO_RERANKER, INFO.version, "qa", "science", "en", INFO.name, "test", {})


def submit(folder: Path, name: str, hits: dict[str, dict[str, float]], **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    return pack([dataclasses.replace(BASE, model=name, hits=hits, **changes)], folder / f"{name}.zip")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A dataset, its pipeline, and two submissions: `known` finds what is labelled, `finder` what nobody judged."""
    write_dataset(tmp_path / "notes", make_content())
    (tmp_path / "pool.yaml").write_text(PIPELINE, encoding="utf-8")
    places = {query: int(query[2:]) for query in TEST}
    known = {query: {f"doc{at:03d}": 2.0, f"doc{at + 1:03d}": 1.0} for query, at in places.items()}
    finder = {
        query: {f"doc{at + 5:03d}": 3.0, f"doc{at + 6:03d}": 2.0, f"doc{at:03d}": 1.0} for query, at in places.items()
    }
    submit(tmp_path / "submissions", "known", known)
    submit(tmp_path / "submissions", "finder", {**finder, "q-00": {**finder["q-00"], "ghost": 9.0}})
    return tmp_path


def pool(home: Path, *words: object) -> dict[str, Any]:
    where = ("--submissions", home / "submissions", "--out", home / "out", "--json")
    return dict(json.loads(call("audit", "holes", home / "notes", *where, *words)))


def test_without_a_judge_people_label_what_submissions_found(home: Path) -> None:
    found = pool(home)
    assert (found["holes"], found["not_in_the_dataset"], found["judged"]) == (9, 1, 0)
    rows = [json.loads(line) for line in (home / "out" / "holes.jsonl").read_bytes().splitlines()]
    assert len(rows) == 8 and all("Passage" in row["text"] for row in rows)
    labelled = [{"query-id": row["query-id"], "corpus-id": row["corpus-id"], "score": 1} for row in rows]
    write_rows(home / "out" / "judgments.jsonl", labelled)
    found = pool(home, "--next-version", "26.12")
    assert (found["judged"], found["relevant"]) == (8, 8)
    best, other = found["systems"]
    assert (best["system"], best["rank_before"], best["rank_after"]) == (f"finder + {NO_RERANKER}", 2, 1)
    assert best["change"]["value"] > 0 > other["change"]["value"]


def test_the_pipelines_control_judges_and_the_next_version_scores_again(home: Path, asked: list[Request]) -> None:
    found = pool(home, "--pipeline", home / "pool.yaml", "--estimate")
    (stage,) = found["estimate"]["stages"]
    assert stage["usd"] > 0 and stage["calls"] == found["voted"] > found["judged"] == 0
    assert not asked
    with pytest.raises(BudgetSpent):
        pool(home, "--pipeline", home / "pool.yaml", "--budget", "0.5", "--next-version", "26.12")
    assert not (home / "out" / "dataset").exists()
    first = len(asked)
    pooled = ("--pipeline", home / "pool.yaml", "--budget", "100", "--next-version", "26.12")
    found = pool(home, *pooled)
    assert 0 < found["judged"] == found["voted"] < 8  # the re-ranker leaves some out
    assert len({request.key for request in asked}) == found["voted"]
    assert len(asked) <= found["voted"] + max(0, first - 1)
    texts = " ".join(message.content for request in asked for message in request.messages)
    assert "finder" not in texts and "known" not in texts
    before = len(asked)
    assert pool(home, *pooled)["systems"] == found["systems"]
    assert len(asked) == before  # nothing is asked twice

    old, new = home / "notes", home / "out" / "dataset"
    assert verify(new) == []
    for name in ("corpus.jsonl", "queries.jsonl", "private/lineage.jsonl", "private/secret.key", "qrels/dev.tsv"):
        assert (old / name).read_bytes() == (new / name).read_bytes()
    (earlier,), (labels,) = load_labels([old]), load_labels([new])
    for query, judged in earlier.qrels.items():
        assert judged.items() <= labels.qrels[query].items()
    assert sum(map(len, labels.qrels.values())) == sum(map(len, earlier.qrels.values())) + found["judged"]
    assert load_manifest(new).statistics.splits["test"].positives == 8 + found["relevant"]
    assert len((new / "qrels-graded" / "test.jsonl").read_bytes().splitlines()) == sum(map(len, labels.qrels.values()))

    # The submissions of the earlier version are scored again, by the labels of the next one.
    scores = home / "scores"
    for name in ("known", "finder"):
        for dataset in (old, new):
            call("publish", "score", home / "submissions" / f"{name}.zip", "--qrels", dataset, "--save", scores)
    board = {table["version"]: table for table in json.loads(call("publish", "leaderboard", scores, "--json"))}
    assert set(board) == {"26.11", "26.12"}
    assert board["26.12"]["rows"][0]["mean"] == pytest.approx(found["systems"][0]["after"]["value"], abs=1e-5)
    newer = submit(home / "other", "newer", {"q-00": {"doc000": 1.0}}, version="26.12")
    with pytest.raises(DatasetError, match=r"the results are for version '26\.12', but the labels for '26\.11'"):
        call("publish", "score", newer, "--qrels", old)

    # Both versions of the public part differ in version and mark alone.
    public = [home / "old", home / "new"]
    for source, out in zip((old, new), public, strict=True):
        public_part(source, out, ["test"])
    for path in (one for one in public[0].rglob("*") if one.is_file()):
        name = path.relative_to(public[0])
        if name.name not in ("manifest.json", "README.md", "croissant.json"):
            assert path.read_bytes() == (public[1] / name).read_bytes(), name
    one, two = (dataclasses.asdict(load_manifest(path)) for path in public)
    assert one["statistics"] == two["statistics"] and one["funnel"] == two["funnel"]
    secret = secret_of(old)
    assert secret is not None and secret.hex not in (public[1] / "manifest.json").read_text(encoding="utf-8")
    (extra,) = (value for value in two["notes"].values() if isinstance(value, dict))
    assert list(extra) == ["26.11"] and extra["26.11"] == one["notes"]["pair of parts"]


def test_bad_submissions_are_left_out_with_all_reasons(home: Path) -> None:
    (home / "submissions" / "broken.zip").write_bytes(b"no zip")
    submit(home / "submissions", "late", {"q-00": {"doc000": 1.0}}, version="25.01")
    submit(home / "submissions", "other", {"q-00": {"doc000": 1.0}}, dataset="another")
    submit(home / "submissions", "dev", {"q-02": {"doc000": 1.0}}, split="dev")
    (labels,) = load_labels([home / "notes"])
    runs, refused = read_submissions([home / "submissions"], labels)
    assert set(runs) == {f"known + {NO_RERANKER}", f"finder + {NO_RERANKER}"}
    reasons = {Path(file).name: why for file, why in refused.items()}
    assert set(reasons) == {"broken.zip", "late.zip"}
    assert reasons["late.zip"] == [
        "qa_science_en/weather-notes: the results are for version '25.01', but the labels for '26.11'"
    ]
    pack([dataclasses.replace(BASE, model="known", hits={"q-00": {"doc003": 1.0}})], home / "submissions" / "z.zip")
    for place, words in (
        ("submissions/late.zip", r"no submission has results .*\n- .*late\.zip: .*25\.01"),
        ("notes", "contains no submissions"),
        ("submissions", r"known\.zip and .*z\.zip are both submissions of known \+ NoReranker"),
    ):
        with pytest.raises(DatasetError, match=words):
            read_submissions([home / place], labels)


def test_wrong_words(home: Path) -> None:
    with pytest.raises(UsageError, match="--run or --submissions"):
        call("audit", "holes", home / "notes")
    with pytest.raises(DatasetError, match=r"version '26\.11' already exists"):
        pool(home, "--next-version", "26.11")
    (home / "pool.yaml").write_text(PIPELINE.replace("rerankers: [bm25],", "rerankers: [bm25], judge: {kind: votes},"))
    with pytest.raises(UsageError, match="not an LLM, which judging holes needs"):
        pool(home, "--pipeline", home / "pool.yaml")
    public_part(home / "notes", home / "public", ["test"])
    with pytest.raises(DatasetError, match="no labels of 'test'"):
        call("audit", "holes", home / "public", "--submissions", home / "submissions")

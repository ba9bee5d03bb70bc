"""Pooling from submissions: what nobody judged is judged once, and the next version scores old submissions again."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from dataset_maker import INFO, make_content, no_flush
from job_maker import asked

from airgen.dataset.manifest import load_manifest
from airgen.dataset.secret import secret_of
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import BudgetSpent, DatasetError, UsageError
from airgen.llms.base import Request
from airgen.publishing.scores import load_labels
from airgen.publishing.submission import NO_RERANKER, Results, pack
from airgen.publishing.withhold import public_part
from airgen.quality.holes import moves
from airgen.quality.pooling import read_submissions

__all__ = ["asked", "no_flush"]

PIPELINE = """
name: pool
task: qa
corpus: python-reference
target: 1
llm: {backend: scripted, model: scripted, concurrency: 4, prices: {scripted: {input: 1000.0, output: 1000.0}}}
control: {recall: {model: all-minilm-l6-v2-int8}, rerankers: [bm25], thresholds: {hard_negative: 20, other: 4}}
"""
TEST = ("q-00", "q-01", "q-03", "q-04")
BASE = Results("m", NO_RERANKER, INFO.version, "qa", "science", "en", INFO.name, "test", {})


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


def test_without_a_judge_people_can_label(home: Path) -> None:
    found = pool(home)
    assert (found["unjudged"], found["unknown"], found["judged"]) == (8, 1, 0)
    rows = [json.loads(line) for line in (home / "out" / "holes.jsonl").read_bytes().splitlines()]
    assert len(rows) == 8 and all("Passage" in row["text"] for row in rows)
    for row in rows:
        labelled = {"query-id": row["query-id"], "corpus-id": row["corpus-id"], "score": 1}
        with (home / "out" / "judgments.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(labelled) + "\n")
    found = pool(home, "--next-version", "26.12")
    assert (found["judged"], found["relevant"]) == (8, 8)
    best, other = found["moves"]
    assert (best["system"], best["rank_before"], best["rank_after"]) == (f"finder + {NO_RERANKER}", 2, 1)
    assert best["change_interval"][0] > 0 > other["change_interval"][1]
    assert best["before_interval"][0] <= best["before"] <= best["before_interval"][1]


def test_the_pipelines_control_judges_and_the_next_version_scores_again(home: Path, asked: list[Request]) -> None:
    found = pool(home, "--pipeline", home / "pool.yaml", "--next-version", "26.12")
    assert 0 < found["voted"] < found["unjudged"] == 8  # the re-ranker leaves some out
    assert found["judged"] == found["voted"] == found["estimate"]["stages"][0]["calls"]
    assert len({request.key for request in asked}) == found["voted"]
    texts = " ".join(message.content for request in asked for message in request.messages)
    assert "finder" not in texts and "known" not in texts
    before = len(asked)
    assert pool(home, "--pipeline", home / "pool.yaml", "--next-version", "26.12")["moves"] == found["moves"]
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
    graded = (new / "qrels-graded" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(graded) == sum(map(len, labels.qrels.values()))

    # The submissions of the earlier version are scored again, by the labels of the next one.
    scores = home / "scores"
    for name in ("known", "finder"):
        for dataset in (old, new):
            call("publish", "score", home / "submissions" / f"{name}.zip", "--qrels", dataset, "--save", scores)
    board = {table["version"]: table for table in json.loads(call("publish", "leaderboard", scores, "--json"))}
    assert set(board) == {"26.11", "26.12"}
    assert board["26.12"]["rows"][0]["mean"] == pytest.approx(found["moves"][0]["after"], abs=1e-5)
    with pytest.raises(DatasetError, match=r"results are of version '26\.12', the labels of '26\.11'"):
        newer = submit(home / "other", "newer", {"q-00": {"doc000": 1.0}}, version="26.12")
        call("publish", "score", newer, "--qrels", old)


def test_two_versions_of_the_public_part_differ_in_version_and_mark_alone(home: Path) -> None:
    pool(home, "--pipeline", home / "pool.yaml", "--next-version", "26.12")
    public = [home / "old", home / "new"]
    for source, out in zip((home / "notes", home / "out" / "dataset"), public, strict=True):
        public_part(source, out, ["test"])
    for path in (one for one in public[0].rglob("*") if one.is_file()):
        name = path.relative_to(public[0])
        if name.name not in ("manifest.json", "README.md", "croissant.json"):
            assert path.read_bytes() == (public[1] / name).read_bytes(), name
    one, two = (dataclasses.asdict(load_manifest(path)) for path in public)
    assert one["statistics"] == two["statistics"] and one["funnel"] == two["funnel"]
    secret = secret_of(home / "notes")
    assert secret is not None and secret.hex not in (public[1] / "manifest.json").read_text(encoding="utf-8")
    (extra,) = (value for value in two["notes"].values() if isinstance(value, dict))
    assert list(extra) == ["26.11"] and extra["26.11"] == one["notes"]["pair of parts"]


def test_the_estimate_asks_nothing_and_a_budget_stops(home: Path, asked: list[Request]) -> None:
    found = pool(home, "--pipeline", home / "pool.yaml", "--estimate")
    (stage,) = found["estimate"]["stages"]
    assert stage["usd"] > 0 and stage["calls"] == found["voted"] > found["judged"] == 0
    assert not asked
    with pytest.raises(BudgetSpent):
        pool(home, "--pipeline", home / "pool.yaml", "--budget", "0.5", "--next-version", "26.12")
    assert not (home / "out" / "dataset").exists()
    first = len(asked)
    assert pool(home, "--pipeline", home / "pool.yaml", "--budget", "100")["judged"] == found["voted"]
    assert len(asked) <= found["voted"] + max(0, first - 1)


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
    assert reasons["late.zip"] == ["qa_science_en/weather-notes: results are of version '25.01', the labels of '26.11'"]
    with pytest.raises(DatasetError, match=r"no submission has results .*\n- .*late\.zip: .*25\.01"):
        read_submissions([home / "submissions" / "late.zip"], labels)
    with pytest.raises(DatasetError, match=r"holds no submissions"):
        read_submissions([home / "notes"], labels)
    pack([dataclasses.replace(BASE, model="known", hits={"q-00": {"doc003": 1.0}})], home / "submissions" / "z.zip")
    with pytest.raises(DatasetError, match=r"known\.zip and .*z\.zip are both submissions of known \+ NoReranker"):
        read_submissions([home / "submissions"], labels)


def test_wrong_words(home: Path) -> None:
    with pytest.raises(UsageError, match="--run or --submissions"):
        call("audit", "holes", home / "notes")
    with pytest.raises(DatasetError, match=r"version '26\.11' is there already"):
        pool(home, "--next-version", "26.11")
    (home / "pool.yaml").write_text(PIPELINE.replace("rerankers: [bm25],", "rerankers: [bm25], judge: {kind: votes},"))
    with pytest.raises(UsageError, match="its judge is not an LLM"):
        pool(home, "--pipeline", home / "pool.yaml")
    public_part(home / "notes", home / "public", ["test"])
    with pytest.raises(DatasetError, match="no labels of 'test'"):
        call("audit", "holes", home / "public", "--submissions", home / "submissions")


def test_moves_by_hand(home: Path) -> None:
    (labels,) = load_labels([home / "notes"])
    runs, _ = read_submissions([home / "submissions"], labels)
    before = {query: dict(judged) for query, judged in labels.qrels.items()}
    after = {query: {**judged, f"doc{int(query[2:]) + 5:03d}": 1.0} for query, judged in before.items()}
    best, finder = moves(runs, before, after, "RR@10", 2)
    # A passage that is not in the corpus stands first for q-00, so its relevant ones have the ranks 4 and 2.
    assert (finder.before, finder.after) == (pytest.approx((1 / 4 + 3 / 3) / 4), pytest.approx((1 / 2 + 3) / 4))
    assert finder.change == pytest.approx(finder.after - finder.before)
    assert 1 / 4 <= finder.change_interval[0] <= finder.change <= finder.change_interval[1] == pytest.approx(2 / 3)
    assert (finder.rank_before, finder.rank_after, finder.ranks_after) == (2, 2, (1, 2))
    assert (best.rank_before, best.ranks_before, best.change, best.change_interval) == (1, (1, 1), 0, (0, 0))
    # Of the two best hits of q-00 one is judged after, of the others one of two.
    assert (finder.holes_before, finder.holes_after) == (1.0, 0.5)

"""The first page of a report: what a job did, what a dataset is, and what a browser shows of it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from job_maker import Run
from report_reader import read_report

from airgen.dataset.beir import BeirDataset
from airgen.dataset.manifest import load_manifest
from airgen.records import Judgment, Payment, Reservation
from airgen.report.report import make_report
from airgen.store import Store


def test_a_finished_job(done: Run, folder: Path, tmp_path: Path, browse: Any) -> None:
    with browse.aside():
        result = done()
    assert result.manifest is not None
    index = make_report([folder / "job.yaml"], tmp_path / "report", runs=folder / "runs")
    data = read_report(index)
    found = data["d0/overview"]
    assert found["funnel"] == json.loads((result.directory / "dataset" / "manifest.json").read_text())["funnel"]
    assert "so_far" not in found and found["facts"]["target"] == 12 and found["notes"] == []
    calls = {row["stage"]: row["calls"] for row in found["stages"]}
    usage = json.loads((result.directory / "status.json").read_text())["usage"]
    assert calls == {stage: one["calls"] for stage, one in usage.items()}
    for name in ("prompt_tokens", "completion_tokens"):
        assert sum(row[name] for row in found["stages"]) == sum(one[name] for one in usage.values()) > 0
    did = {one["role"]: one["did"] for one in found["models"]}
    assert did["query"].startswith(f"{calls['query']} calls, ")
    assert did["recall"] == "360 passages ranked for 12 queries"
    with Store.open(result.directory / "work.duckdb", read_only=True) as store:
        levels = Counter(row.level for row in store.rows(Judgment))
    assert dict(map(tuple, found["judged"])) == levels and found["relevant_from"] == 2
    queries = BeirDataset.open(result.directory / "dataset").queries()
    (types,) = [one for one in found["coverage"] if one["attribute"] == "type"]
    counts = Counter(str(query.metadata["type"]) for query in queries.values())
    assert {row["value"]: row["queries"] for row in types["values"] if row["queries"]} == counts
    assert {row["value"]: row["asked"] for row in types["values"]} == {"question": 0.6, "problem": 0.2, "claim": 0.2}
    splits = load_manifest(result.directory / "dataset").statistics.splits
    assert found["facts"]["splits"]["test"]["positives"] == splits["test"].positives

    page = browse(index)
    page.wait_for_selector("ol.funnel")
    steps = page.locator("ol.funnel li").all_inner_texts()
    assert len(steps) == len(found["funnel"])
    for text, step in zip(steps, found["funnel"], strict=True):
        assert step["stage"] in text and f"{step['entered']:,} → {step['left']:,}" in text
    total = page.locator("section:has(#h-costs) tbody tr").last.inner_text().split("\t")
    assert total[2] == f"{sum(calls.values()):,}"
    page.get_by_role("link", name="question", exact=True).click()
    page.wait_for_selector(".page-queries")
    assert "question" in page.url


def test_a_stopped_job(run: Run, folder: Path, tmp_path: Path) -> None:
    run(until="hard_negative")
    found = read_report(make_report([folder / "job.yaml"], tmp_path / "report", runs=folder / "runs"))["d0/overview"]
    assert found["so_far"] and [step["stage"] for step in found["funnel"]][:2] == ["corpus", "character"]
    assert found["funnel"][-1]["left"] == 12 and found["facts"].get("splits") is None
    assert sum(row["queries"] for row in found["coverage"][0]["values"]) == 12


def test_only_a_corpus(run: Run, folder: Path, tmp_path: Path, browse: Any) -> None:
    with browse.aside():
        run(until="corpus")
    index = make_report([folder / "job.yaml"], tmp_path / "report", runs=folder / "runs")
    found = read_report(index)["d0/overview"]
    assert found["funnel"] == found["coverage"] == found["stages"] == []
    page = browse(index)
    page.wait_for_selector("main h1")
    assert page.inner_text("main h1") == "job"


def test_money_and_a_damaged_work_database(done: Run, folder: Path, tmp_path: Path) -> None:
    """What was paid for attempts whose answer was not kept, and what a kill can have cost, is not left out."""
    result = done()
    with Store.open(result.directory / "work.duckdb") as store:
        store.put([Payment("one", "query", 0.25), Reservation("two", "an answer", "query", "m", "e", 0.5)])
    found = read_report(make_report([folder / "job.yaml"], tmp_path / "report", runs=folder / "runs"))["d0/overview"]
    assert found["money"] == {"spent": 0.75, "without_answer": 0.25, "lost": 0.5}
    (result.directory / "work.duckdb").write_bytes(b"no database")
    data = read_report(make_report([folder / "job.yaml"], tmp_path / "report", runs=folder / "runs"))
    assert "what the job did is not shown" in data["d0/overview"]["notes"][0]
    assert data["d0/overview"]["funnel"] and data["d0/overview"]["models"]


def test_the_systems_of_agree_are_shown(dataset: Path, tmp_path: Path) -> None:
    """Its results are not in the job's `evaluation`; without them nothing would lead to the rankings."""
    home = tmp_path / "job"
    home.mkdir()
    (home / "status.json").write_text("{}")
    dataset.rename(home / "dataset")
    (tmp_path / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}, {name: ql, kind: query-likelihood}]\n")
    call(
        "evaluate", home / "dataset", "--systems", tmp_path / "systems.yaml", "--out", home / "agreement" / "generated"
    )
    (about,) = read_report(make_report([home], tmp_path / "report"))["report"]["datasets"]
    assert about["systems"] == {"test": ["bm25", "ql"]} and "systems" in about["has"]


@pytest.mark.parametrize("words", ["{", "[]", '{"rank_gains": 3}', '{"rank_gains": [], "variants": []}'])
def test_a_damaged_agreement_is_left_out(dataset: Path, tmp_path: Path, words: str) -> None:
    home = tmp_path / "job"
    home.mkdir()
    (home / "status.json").write_text("{}")
    dataset.rename(home / "dataset")
    (home / "agreement").mkdir()
    (home / "agreement" / "agreement.json").write_text(words)
    assert read_report(make_report([home], tmp_path / "report"))["d0/overview"]["agreement"] is None

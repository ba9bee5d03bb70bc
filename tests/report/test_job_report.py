"""The report of a real job: finished, half way, running in another process, and without its pipeline."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from child import start
from command_line import call
from job_maker import CORPUS, PIPELINE, WORDS, make_corpus
from report_reader import cells, choices, lives, read_report

from airgen.dataset.beir import BeirDataset
from airgen.dataset.manifest import load_manifest
from airgen.errors import DatasetError, StoreError
from airgen.job import Job, RunResult
from airgen.job.export import OVERBILLED, export_dataset
from airgen.report.find_sources import find_sources
from airgen.report.report import make_report
from airgen.report.source import open_store
from airgen.storage.records import Judgment, Payment, Reservation
from airgen.storage.store import Store

Run = Callable[..., RunResult]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a finished job, made by the command with a target of its own; and what the command printed."""
    folder = tmp_path_factory.mktemp("job")
    make_corpus(folder / "small.jsonl", 60)
    (folder / "small.yaml").write_text(CORPUS, encoding="utf-8")
    systems = "systems: [{name: bm25, kind: bm25}, {name: flat, kind: bm25, k1: 0.2}]\n"
    (folder / "systems.yaml").write_text(systems, encoding="utf-8")
    text = PIPELINE + "evaluate: {systems: systems.yaml}\n"
    for old, new in {**WORDS, "target: 4": "target: 30"}.items():
        text = text.replace(old, new)
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    return folder, call("run", folder / "job.yaml", "--runs", folder / "runs", "--target", 12)


def test_a_finished_job(made: tuple[Path, str], browse: Any) -> None:
    folder, said = made
    page = folder / "runs" / "job" / "report" / "index.html"
    lines = said.splitlines()
    assert f"{page}  the report: open it in a browser" in lines
    assert lines[-1].startswith("target: 12 this time")  # the file says 30
    (source,), _ = find_sources([folder / "job.yaml"], runs=folder / "runs")
    job = source.job
    assert source.state == "finished" and job is not None and job.pipeline.target == 12  # not that of the YAML
    with open_store(job) as store:
        accepted = job.accepted(store)
    data = read_report(page)
    table, every = data["d0/queries"]["table"], lives(data)
    assert data["report"]["datasets"][0]["state"] == "finished"
    assert len(every) == len(accepted.lineages) + len(accepted.rejected)
    outcomes = Counter(choices(table, "outcome"))
    queries = [json.loads(line)["_id"] for line in (job.dataset / "queries.jsonl").read_text("utf-8").splitlines()]
    assert {key for key, life in every.items() if life["outcome"] == "kept"} == set(queries)
    assert outcomes["kept"] == len(queries) and all(life["why"] for life in every.values() if life["outcome"] != "kept")
    one = every[queries[0]]
    shown = json.loads(call("show", folder / "job.yaml", queries[0], "--runs", folder / "runs", "--json"))
    assert one["character"] == shown["character"] and one["rewrites"] == shown["rewrites"]
    assert {row["own_id"]: row["words"] for row in one["labels"]} == {
        row["id"]: row["words"] for row in shown["labels"]
    }
    judged = [row for life in every.values() for row in life["labels"] if row.get("recall")]
    assert judged and all("/3" in row["votes"] for row in judged)
    assert all(row["id"] in life["docs"] for life in every.values() for row in life["labels"])
    tested = [life for life in every.values() if life["split"] == "test" and life["outcome"] == "kept"]
    assert tested and all({one["name"] for one in life["ranked"]} == {"bm25", "flat"} for life in tested)
    assert all(row["label"] is not None for life in tested for row in life["labels"] if row["decision"] == "keep_query")

    seen = browse(page)
    seen.get_by_role("link", name="Queries", exact=True).click()
    seen.get_by_label("Outcome").select_option("dropped")
    assert f"{outcomes['dropped']} of {len(every)}" in seen.locator("h1").inner_text()
    assert "outcome=dropped" in seen.url
    seen.get_by_role("button", name="Clear").click()
    wanted = tested[0]
    seen.get_by_label("Search").fill(wanted["id"])
    rows = seen.locator("table.virtual td.main a")
    browse.until(seen, lambda: rows.count() == 1)
    rows.first.click()
    seen.get_by_role("heading", name="How it was made").wait_for()
    assert wanted["text"] in seen.locator("h1").inner_text()
    assert seen.get_by_role("table", name="Systems on this query").locator("tbody tr").count() == 2
    seen.get_by_role("link", name="← Queries").click()
    browse.until(seen, lambda: seen.get_by_label("Search").input_value() == wanted["id"])


def test_the_first_page_of_a_finished_job(made: tuple[Path, str], browse: Any) -> None:
    """What a job did, and what a browser shows of it."""
    home = made[0] / "runs" / "job"
    data = read_report(home / "report" / "index.html")
    found = data["d0/overview"]
    assert found["funnel"] == json.loads((home / "dataset" / "manifest.json").read_text())["funnel"]
    assert "so_far" not in found and found["facts"]["target"] == 12 and found["notes"] == []
    assert found["facts"]["generated"] and found["unchecked"]
    assert found["facts"]["kind"] == "Search in the passages of many documents, in English"
    steps = [row[0] for row in cells(found["tables"]["next"])]
    assert steps[0] == "Generate more queries: target 50"  # twelve are too few for anything else to help
    rows = cells(found["tables"]["funnel"])
    assert [row[:3] for row in rows] == [
        (step["stage"], f"{step['entered']:,}", f"{step['left']:,}") for step in found["funnel"]
    ]
    assert all(f"{count} {why}" in row[3] for row, step in zip(rows, found["funnel"], strict=True)
               for why, count in step["reasons"].items())  # fmt: skip
    calls = {row["stage"]: row["calls"] for row in found["stages"]}
    usage = json.loads((home / "status.json").read_text())["usage"]
    assert calls == {stage: one["calls"] for stage, one in usage.items()}
    for name in ("prompt_tokens", "completion_tokens"):
        assert sum(row[name] for row in found["stages"]) == sum(one[name] for one in usage.values()) > 0
    did = {one["role"]: one["did"] for one in found["models"]}
    assert did["query"].startswith(f"{calls['query']} calls, ")
    assert did["recall"] == "240 passages ranked for 12 queries"
    with Store.open(home / "work.duckdb", read_only=True) as store:
        levels = Counter(row.level for row in store.rows(Judgment))
    assert dict(map(tuple, found["judged"])) == levels and found["relevant_from"] == 2
    queries = BeirDataset.open(home / "dataset").queries()
    (types,) = [one for one in found["coverage"] if one["attribute"] == "type"]
    counts = Counter(str(query.metadata["type"]) for query in queries.values())
    assert {row["value"]: row["queries"] for row in types["values"] if row["queries"]} == counts
    assert {row["value"]: row["asked"] for row in types["values"]} == {"question": 0.6, "problem": 0.2, "claim": 0.2}
    splits = load_manifest(home / "dataset").statistics.splits
    assert found["facts"]["splits"]["test"]["positives"] == splits["test"].positives

    page = browse(home / "report" / "index.html")
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


def test_the_public_form_of_a_job(made: tuple[Path, str], tmp_path: Path) -> None:
    """Of a job's own rows nothing is public: neither how queries were made, nor what was dropped."""
    folder, _ = made
    whole = lives(read_report(folder / "runs" / "job" / "report" / "index.html"))
    page = make_report([folder / "job.yaml"], runs=folder / "runs", public=True)
    assert page == folder / "runs" / "job" / "report-public" / "index.html"
    text = json.dumps(data := read_report(page))
    for key, life in whole.items():
        if life["outcome"] == "kept":
            public = lives(data)[key]
            if life["split"] == "test":
                assert not public["labels"] and not public["docs"] and not public["ranked"]
            else:
                assert {row["id"] for row in public["labels"]} == {
                    row["id"] for row in life["labels"] if row["label"] is not None
                }
        else:
            assert key not in text
        assert life["character"]["chosen"] not in text
        for row in life["labels"]:
            assert "own_id" not in text and (not row["words"] or row["words"] not in text)


def test_a_job_that_was_stopped_and_one_that_runs(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work database of a running job is open, and DuckDB lets nobody else in: a copy is read, and made once."""
    run("runs", WORDS, until="hard_negative")
    data = read_report(make_report([folder / "job.yaml"], runs=folder / "runs"))
    table = data["d0/queries"]["table"]
    assert data["report"]["datasets"][0]["state"] == "stopped"
    outcomes = choices(table, "outcome")
    assert set(outcomes) <= {"pending", "dropped"} and outcomes.count("pending") == 4
    about = data["d0/overview"]
    assert about["so_far"] and [step["stage"] for step in about["funnel"]][:2] == ["corpus", "character"]
    assert about["funnel"][-1]["left"] == 4 and about["facts"].get("splits") is None
    assert sum(row["queries"] for row in about["coverage"][0]["values"]) == 4
    life = next(life for life in lives(data).values() if life["outcome"] == "pending")
    assert life["character"] and life["docs"][life["sources"][0]]["text"]
    held = (
        "import json, os, pathlib, time; from airgen.job import Job; job = Job(pathlib.Path('job.yaml'))\n"
        "with job.open_store() as store:\n"
        "    path = job.directory / 'status.json'; status = json.loads(path.read_text())\n"
        "    path.write_text(json.dumps({**status, 'pid': os.getpid(), 'updated': time.time(), 'ended': None}))\n"
        "    print('open'); time.sleep(3600)\n"
    )
    job = Job(folder / "job.yaml", folder / "runs")
    with start(held, cwd=folder) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match="in use by another process"):
            job.open_store(read_only=True)
        copied, copy = list[str](), shutil.copyfile
        monkeypatch.setattr(shutil, "copyfile", lambda a, b: (copied.append(str(b)), copy(a, b))[1])
        running = read_report(make_report([job]))
        other.kill()
    assert sum(path.endswith("work.duckdb") for path in copied) == 1
    assert running["report"]["datasets"][0]["state"] == "running"
    assert running["d0/queries"]["table"] == table


def test_a_work_directory_whose_pipeline_is_gone(made: tuple[Path, str], tmp_path: Path) -> None:
    directory = tmp_path / "runs" / "job"
    shutil.copytree(made[0] / "runs" / "job", directory)
    status = json.loads((directory / "status.json").read_text("utf-8"))
    (directory / "status.json").write_text(json.dumps({**status, "pipeline": str(tmp_path / "gone.yaml")}))
    data = read_report(make_report([directory]))
    (about,) = data["report"]["datasets"]
    assert about["state"] == "dataset" and "gone.yaml is missing" in about["notes"][0]
    assert about["systems"] == {"test": ["bm25", "flat"]}
    assert all(life["scenario"] for life in lives(data).values())  # from the private lineage
    shutil.rmtree(directory / "dataset")
    with pytest.raises(DatasetError, match="no finished dataset in it"):
        make_report([directory])


def test_a_run_does_not_fail_for_its_report(made: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = made
    report = folder / "runs" / "job" / "report"
    words = ("run", folder / "job.yaml", "--runs", folder / "runs", "--target", 12)
    kept = tmp_path / "kept"
    report.rename(kept)
    try:
        assert "report" not in call(*words, "--no-report") and not report.exists()
        report.mkdir()
        (report / "mine.txt").write_text("not to be deleted", encoding="utf-8")
        assert json.loads(call(*words, "--json"))["report"] is None
        assert (report / "mine.txt").is_file()
    finally:
        shutil.rmtree(report, ignore_errors=True)
        kept.rename(report)


def test_only_a_corpus(run: Run, folder: Path, tmp_path: Path, browse: Any) -> None:
    with pytest.raises(StoreError, match="has not been run yet"):
        make_report([folder / "job.yaml"], runs=folder / "runs")
    with browse.aside():
        run("runs", WORDS, until="corpus")
    index = make_report([folder / "job.yaml"], tmp_path / "report", runs=folder / "runs")
    found = read_report(index)["d0/overview"]
    assert found["funnel"] == found["coverage"] == found["stages"] == []
    page = browse(index)
    page.wait_for_selector("main h1")
    assert page.inner_text("main h1") == "job"


def test_money_and_a_damaged_work_database(done: Run, folder: Path, tmp_path: Path) -> None:
    """What was paid for attempts whose answer was not kept, and what a kill can have cost, is not left out."""
    result = done("runs", WORDS)
    with Store.open(result.directory / "work.duckdb") as store:
        store.put([Payment("one", "query", 0.25), Reservation("two", "an answer", "query", "m", "e", 0.5)])
        job = Job(folder / "job.yaml", folder / "runs")
        assert OVERBILLED not in export_dataset(job, store, job.accepted(store), tmp_path / "before").notes
        for key, maximum, billed in (("3", 0.1, 4.0), ("4", 0.2, 2.0), ("5", 0.5, 0.5)):
            store.put([Reservation(key, "an answer", "query", "m<b>", "e", maximum), Payment(key, "query", billed)])
        above = "2 calls of m<b> billed $6.00, but could cost at most $0.30"
        assert export_dataset(job, store, job.accepted(store), tmp_path / "after").notes[OVERBILLED] == above
    assert f"\n  {above}\n" in call("show", folder / "job.yaml", "--runs", folder / "runs")
    found = read_report(make_report([folder / "job.yaml"], tmp_path / "report", runs=folder / "runs"))["d0/overview"]
    assert found["money"] == {"spent": 7.25, "without_answer": 6.75, "lost": 0.5, "overbilled": [above]}
    (result.directory / "work.duckdb").write_bytes(b"no database")
    data = read_report(make_report([folder / "job.yaml"], tmp_path / "report", runs=folder / "runs"))
    assert "what the job did is not shown" in data["d0/overview"]["notes"][0]
    assert data["d0/overview"]["funnel"] and data["d0/overview"]["models"]


def test_the_systems_of_agree_are_shown(dataset: Path, tmp_path: Path) -> None:
    """Its results are not in the job's `evaluation`; without them nothing would lead to the rankings."""
    home = tmp_path / "job"
    (home / "agreement").mkdir(parents=True)
    (home / "status.json").write_text("{}")
    dataset.rename(home / "dataset")
    (tmp_path / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}, {name: ql, kind: query-likelihood}]\n")
    out = home / "agreement" / "generated"
    call("evaluate", home / "dataset", "--systems", tmp_path / "systems.yaml", "--out", out)
    (about,) = read_report(make_report([home], tmp_path / "report"))["report"]["datasets"]
    assert about["systems"] == {"test": ["bm25", "ql"]} and "systems" in about["has"]
    for damaged in ("{", "[]", '{"rank_gains": 3}', '{"rank_gains": [], "variants": []}'):
        (home / "agreement" / "agreement.json").write_text(damaged)
        assert read_report(make_report([home], tmp_path / "report"))["d0/overview"]["agreement"] is None

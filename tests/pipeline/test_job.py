import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from job_maker import Run, make_corpus
from rich.console import Console

from airgen.dataset.secret import Secret, write_secret
from airgen.dataset.verify import verify
from airgen.errors import BudgetSpent, DatasetError, LlmError, SettingsError, UsageError
from airgen.llms.scripted import ScriptedBackend
from airgen.pipeline import Job
from airgen.pipeline.assemble import export_dataset
from airgen.pipeline.progress import Display
from airgen.pipeline.run import run_job
from airgen.store import Store

DATA = ("corpus.jsonl", "queries.jsonl", "qrels/", "qrels-", "private/")


def data(directory: Path) -> dict[str, bytes]:
    """The data files of a dataset by path; the pipeline's own text apart, which a test may have changed."""
    paths = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    named = {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}
    return {name: content for name, content in named.items() if name.startswith(DATA)}


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def labels(directory: Path) -> list[dict[str, object]]:
    """All label rows, with their split."""
    files = sorted((directory / "qrels").glob("*.jsonl"))
    return [{**row, "split": file.stem} for file in files for row in rows(file)]


def test_a_whole_job(run: Run, folder: Path) -> None:
    result = run()
    assert result.manifest is not None
    dataset = result.directory / "dataset"
    assert verify(dataset) == []
    queries = rows(dataset / "queries.jsonl")
    assert len(queries) == 12
    qrels = labels(dataset)
    positives = {row["query-id"] for row in qrels if row["score"] == 1}
    assert positives == {query["_id"] for query in queries}
    negatives = [row for row in qrels if row["score"] == 0]
    assert 12 <= len(negatives) <= 12 * 7
    corpus = {row["_id"] for row in rows(dataset / "corpus.jsonl")}
    assert {row["corpus-id"] for row in qrels} <= corpus
    assert len(corpus) == 60 + len({row["corpus-id"] for row in negatives})
    stages = {step.stage: step for step in result.manifest.funnel}
    assert stages["corpus"].left == 60
    assert stages["queries"].left == 12
    for before, after in zip(["character", "scenario"], ["scenario", "query"], strict=True):
        assert stages[before].left == stages[after].entered


def test_a_finished_job_asks_nothing(run: Run) -> None:
    first = run()
    again = run()
    assert again.already_done
    with duckdb.connect(str(first.directory / "work.duckdb"), read_only=True) as connection:
        calls = connection.execute("SELECT count(*) FROM answer").fetchall()
    # Without its mark of being finished the job is walked through again, and still asks nothing.
    (first.directory / "status.json").unlink()
    before = data(first.directory / "dataset")
    third = run()
    assert not third.already_done
    assert sum(stage["calls"] for stage in third.usage.values()) == 0
    assert data(third.directory / "dataset") == before
    with duckdb.connect(str(first.directory / "work.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM answer").fetchall() == calls


def test_concurrency_changes_nothing(run: Run) -> None:
    many = run("many", {"concurrency: 8": "concurrency: 32, latency: 0.002"})
    one = run("one", {"concurrency: 8": "concurrency: 1"})
    assert data(many.directory / "dataset") == data(one.directory / "dataset")


def test_a_larger_target_keeps_the_first_queries_and_their_splits(run: Run) -> None:
    small = run("runs", {"target: 12": "target: 6"})
    few = {str(row["_id"]): row for row in rows(small.directory / "dataset" / "queries.jsonl")}
    splits = {row["query-id"]: row["split"] for row in labels(small.directory / "dataset")}
    large = run("runs")
    more = {str(row["_id"]): row for row in rows(large.directory / "dataset" / "queries.jsonl")}
    assert len(few) == 6 and len(more) == 12
    assert few.items() <= more.items()
    grown = {row["query-id"]: row["split"] for row in labels(large.directory / "dataset")}
    assert splits.items() <= grown.items()
    fresh = run("fresh")
    assert data(fresh.directory / "dataset") == data(large.directory / "dataset")


def test_an_edited_prompt_redoes_only_what_follows_it(run: Run, folder: Path) -> None:
    run()
    template = (Path(__file__).parents[2] / "prompts" / "rewrite.j2").read_text(encoding="utf-8")
    (folder / "prompts").mkdir()
    (folder / "prompts" / "rewrite.j2").write_text(template.replace("Rewrite the query.", "Rewrite it."), "utf-8")
    second = run(changes={"target: 12": "target: 6"})  # so few that no further document is needed
    assert second.usage.get("character", {"calls": 0})["calls"] == 0
    assert second.usage["rewrite"]["calls"] > 0
    assert "query" not in second.usage or second.usage["query"]["calls"] == 0


def test_a_new_document_leaves_paid_answers_of_the_old_ones(run: Run, folder: Path) -> None:
    run()
    extra = {"id": "doc-new", "title": "New", "text": "A document that was added later, on tides and lanterns alike."}
    with (folder / "small.jsonl").open("a", encoding="utf-8") as out:
        out.write(json.dumps(extra) + "\n")
    second = run()
    assert {row["title"] for row in rows(second.directory / "dataset" / "corpus.jsonl")} >= {"New"}
    asked = sum(second.usage.get(stage, {}).get("calls", 0) for stage in ("character", "scenario", "query", "rewrite"))
    assert asked <= 6  # at most for the new document itself


@pytest.mark.parametrize("after", [3, 40, 90])
def test_sigkill_and_resume_give_the_same_bytes(run: Run, folder: Path, after: int) -> None:
    whole = data(run("whole").directory / "dataset")
    slow = (folder / "job.yaml").read_text().replace("concurrency: 8", "concurrency: 8, latency: 0.02")
    (folder / "slow.yaml").write_text(slow)
    write_secret(folder / "killed" / "job" / "secret.key", Secret(bytes(range(32))))  # of all jobs in the tests
    code = (
        "import sys; from pathlib import Path; from rich.console import Console;"
        "from airgen.pipeline import Job, run_job;"
        "from airgen.pipeline.progress import Display;"
        f"job = Job(Path({str(folder / 'slow.yaml')!r}), Path({str(folder / 'killed')!r}));"
        "run_job(job, Display(job.directory / 'status.json', Console(quiet=True)))"
    )
    # The answers are counted by watching the child's own count, so the kill falls at a known point of the work.
    counting = (
        "import airgen.llms.scripted as s; send = s.ScriptedBackend.send\n"
        "async def counted(self, request):\n"
        "    print('call', flush=True)\n"
        "    return await send(self, request)\n"
        "s.ScriptedBackend.send = counted\n"
    )
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([sys.executable, "-c", counting + code], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        for number, _ in enumerate(process.stdout, 1):
            if number == after:
                process.send_signal(signal.SIGKILL)
                break
        process.stdout.read()
    assert process.returncode == -signal.SIGKILL
    with duckdb.connect(str(folder / "killed" / "job" / "work.duckdb"), read_only=True) as connection:
        (kept,) = connection.execute("SELECT count(*) FROM answer").fetchall()[0]
    assert kept >= after - 8 - 32  # what was in flight, and at most one group
    resumed = run("killed")
    assert data(resumed.directory / "dataset") == whole
    with duckdb.connect(str(resumed.directory / "work.duckdb"), read_only=True) as connection:
        (total,) = connection.execute("SELECT count(*) FROM answer").fetchall()[0]
    asked = sum(stage["calls"] for stage in resumed.usage.values())
    assert asked == total - kept  # nothing that reached the disk was asked again


def test_a_budget_stops_and_a_larger_one_goes_on(run: Run) -> None:
    price = "concurrency: 1, model: m, prices: {m: {input: 1000.0, output: 1000.0}}"
    # The scripted backend is free; priced, it stands for a paid one.
    with pytest.raises(BudgetSpent, match="raise the budget and run the same command"):
        run("paid", {"concurrency: 8": price}, budget_usd=2.0)
    done = run("paid", {"concurrency: 8": price}, budget_usd=1000.0)
    assert done.manifest is not None
    spent = sum(stage["usd"] for stage in done.usage.values())
    assert 0 < spent < 1000


def test_a_spent_corpus_says_so_and_keeps_what_there_is(run: Run) -> None:
    result = run("spent", {"target: 12": "target: 500"})
    assert result.manifest is not None
    found = sum(split.queries for split in result.manifest.statistics.splits.values())
    assert 12 < found < 500


@pytest.mark.parametrize("fault", ["refuse", "empty", "prose", "truncate", "language", "one_item"])
def test_faulty_answers_become_counted_skips(
    run: Run, folder: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_corpus(folder / "small.jsonl", 90)  # of 60 documents a quarter of faults leaves about 12 queries: too close
    # A quarter of all calls fails, so most samples are dropped, which would be taken for a broken model.
    monkeypatch.setattr("airgen.llms.health.FALSE_STOP", 1e-300)
    settings = f"concurrency: 8, faults: {{{fault}: 0.25}}"
    result = run("faulty", {"concurrency: 8": settings})
    assert result.manifest is not None
    assert sum(split.queries for split in result.manifest.statistics.splits.values()) == 12
    assert verify(result.directory / "dataset") == []
    for step in result.manifest.funnel[1:6]:
        if not step.stage.startswith("rewrite"):
            assert step.entered - step.left == sum(step.reasons.values())


def test_a_model_that_only_refuses_ends_in_one_clear_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = "concurrency: 8, faults: {prose: 1.0}"
    with pytest.raises(LlmError, match=r"character: 9 of 9 were rejected \(9 malformed\), and \d+ calls cost"):
        run("stopped", {"concurrency: 8": refusing})
    monkeypatch.setattr("airgen.llms.health.FALSE_STOP", 1e-300)
    with pytest.raises(DatasetError, match=r"no query was accepted"):
        run("refused", {"concurrency: 8": refusing})


def test_ablations_come_from_the_same_rows(run: Run, folder: Path) -> None:
    result = run()
    job = Job(folder / "job.yaml", folder / "runs")
    with job.open_store() as store:
        accepted = job.accepted(store)
        export_dataset(job, store, accepted, folder / "bare", ["correction"])
        export_dataset(job, store, accepted, folder / "all", ["control"])
        export_dataset(job, store, accepted, folder / "plain", ["negatives"])
    full = result.directory / "dataset"
    assert (folder / "bare" / "queries.jsonl").read_bytes() == (full / "queries.jsonl").read_bytes()
    bare = labels(folder / "bare")
    assert sum(row["score"] == 1 for row in bare) == 12  # one positive each: the source
    # Table 5's dataset without quality control has the candidates that were judged bad, too.
    judged = [one.lineage for one in accepted.rejected if one.stage == "judgment"]
    last = max(one.sample.key for one in accepted.lineages)
    bad = [one for one in judged if one.sample.key < last]
    assert bad
    queries = rows(folder / "all" / "queries.jsonl")
    assert len(queries) == 12 + len(bad)
    assert {row["text"] for row in queries} == {row["text"] for row in rows(full / "queries.jsonl")} | {
        one.final.text for one in bad
    }
    assert sum(row["score"] == 1 for row in labels(folder / "all")) == 12 + len(bad)
    assert rows(folder / "all" / "corpus.jsonl") == rows(folder / "bare" / "corpus.jsonl")
    plain = labels(folder / "plain")
    assert all(row["score"] == 1 for row in plain)
    assert len(rows(folder / "plain" / "corpus.jsonl")) == 60


def test_nothing_is_exported_before_quality_control(run: Run, folder: Path) -> None:
    """Neither of a job that stopped before it, nor with settings of it that have changed since."""

    def exported() -> None:
        job = Job(folder / "job.yaml", folder / "runs")
        with job.open_store() as store:
            export_dataset(job, store, job.accepted(store), job.dataset)

    run(until="rewrite")
    with pytest.raises(UsageError, match=r"job\.yaml: quality control has not run with these settings: run `airgen"):
        exported()
    before = data(run().directory / "dataset")
    text = (folder / "job.yaml").read_text(encoding="utf-8")
    (folder / "job.yaml").write_text(text.replace("top_k: 30", "top_k: 31"), encoding="utf-8")
    with pytest.raises(UsageError, match="quality control has not run"):
        exported()
    assert data(folder / "runs" / "job" / "dataset") == before
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    exported()
    assert data(folder / "runs" / "job" / "dataset") == before


def test_a_missing_corpus_or_key_is_said_before_anything_is_done(folder: Path) -> None:
    text = (folder / "job.yaml").read_text()
    (folder / "a.yaml").write_text(text.replace("small.yaml", "smal.yaml"))
    with pytest.raises(Exception, match="smal"):
        Job(folder / "a.yaml", folder / "runs")
    (folder / "b.yaml").write_text(
        text.replace("{backend: scripted, concurrency: 8}", "{model: m, api_key_env: NOT_SET_X}")
    )
    display = Display(folder / "status.json", Console(quiet=True))
    with pytest.raises(SettingsError, match="NOT_SET_X is not set"):
        run_job(Job(folder / "b.yaml", folder / "runs"), display)


def scored(work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many pairs each re-ranker is asked about meanwhile."""
    from airgen.retrievers.lexical.bm25 import BM25Reranker
    from airgen.retrievers.rerank import DenseReranker

    counts: dict[str, int] = {}
    for kind in (BM25Reranker, DenseReranker):

        def counting(self: Any, pairs: Any, kind: Any = kind, score: Any = kind.score) -> Any:
            counts[kind.__name__] = counts.get(kind.__name__, 0) + len(pairs)
            return score(self, pairs)

        monkeypatch.setattr(kind, "score", counting)
    work()
    monkeypatch.undo()
    return counts


def test_one_more_reranker_or_document_costs_only_itself(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = "[bm25, dense, all-minilm-l6-v2-int8]"
    run("runs", {three: "[dense]"})
    more = scored(lambda: run("runs", {three: "[bm25, dense]"}), monkeypatch)
    assert more == {"BM25Reranker": 12 * 30}  # the dense scores stand
    extra = {"id": "doc-new", "title": "Tides", "text": "A document that was added later, on tides and lanterns alike."}
    with (folder / "small.jsonl").open("a", encoding="utf-8") as out:
        out.write(json.dumps(extra) + "\n")
    grown = scored(lambda: run("runs", {three: "[bm25, dense]"}), monkeypatch)
    # Weights of words change with the corpus; a dense score of a pair does not. Asked about are at most the new
    # document itself and what a new sample brought.
    assert grown["BM25Reranker"] == 12 * 30
    assert grown.get("DenseReranker", 0) < 12 * 30 / 2
    narrower = {three: "[bm25, dense]\n  thresholds: {hard_negative: 10, other: 5}"}
    assert scored(lambda: run("runs", narrower), monkeypatch) == {}


@pytest.mark.parametrize("serial", [True, False])
def test_a_backend_of_one_call_at_a_time_gets_no_more_samples_than_are_missing(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, serial: bool
) -> None:
    monkeypatch.setattr(ScriptedBackend, "SERIAL", serial)
    result = run()
    assert result.manifest is not None
    with Store.open(folder / "runs" / "job" / "work.duckdb", read_only=True) as store:
        samples = store.query("SELECT count(*) FROM sample")[0][0]
    judged = next(step for step in result.manifest.funnel if step.stage == "judgment of the own document")
    rejected = sum(judged.reasons.values())
    assert samples == 12 + rejected if serial else samples >= 18

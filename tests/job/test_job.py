from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beir_folder import data_files, label_rows, read_rows, write_rows
from child import kill_at_line
from job_maker import COUNTED, LEXICAL, MODELS, Run, make_corpus, run_quietly

from airgen.dataset.secret import Secret, write_secret
from airgen.dataset.verify import verify
from airgen.errors import BudgetSpent, UsageError
from airgen.generation.generate import judged_away
from airgen.job import Job, RunResult
from airgen.job.export import export_dataset, exported_queries, moved_queries
from airgen.llms.scripted import ScriptedBackend
from airgen.storage.store import Store

JOB = LEXICAL
FEW = {"target: 4": "target: 6"}
MANY = {"target: 4": "target: 12"}


def answers(directory: Path) -> int:
    """How many answers are on the disk."""
    with Store.open(directory / "work.duckdb", read_only=True) as store:
        return int(store.query("SELECT count(*) FROM answer")[0][0])


def test_a_whole_job(run: Run, folder: Path) -> None:
    result = run(changes=MODELS)
    assert result.manifest is not None
    dataset = result.directory / "dataset"
    assert verify(dataset) == []
    queries = read_rows(dataset / "queries.jsonl")
    assert len(queries) == 4
    qrels = label_rows(dataset)
    positives = {row["query-id"] for row in qrels if row["score"] == 1}
    assert positives == {query["_id"] for query in queries}
    negatives = [row for row in qrels if row["score"] == 0]
    assert 4 <= len(negatives) <= 4 * 7
    corpus = {row["_id"] for row in read_rows(dataset / "corpus.jsonl")}
    assert {row["corpus-id"] for row in qrels} <= corpus
    assert len(corpus) == 60 + len({row["corpus-id"] for row in negatives})
    stages = {step.stage: step for step in result.manifest.funnel}
    assert stages["corpus"].left == 60
    assert stages["queries"].left == 4
    for before, after in zip(["character", "scenario"], ["scenario", "query"], strict=True):
        assert stages[before].left == stages[after].entered


def test_a_finished_job_asks_nothing(run: Run, done: Run) -> None:
    first = done()
    again = run()
    assert again.already_done
    calls = answers(first.directory)
    # Without its mark of being finished the job is walked through again, and still asks nothing.
    (first.directory / "status.json").unlink()
    before = data_files(first.directory / "dataset")
    third = run()
    assert not third.already_done
    assert sum(stage["calls"] for stage in third.usage.values()) == 0
    assert data_files(third.directory / "dataset") == before
    assert answers(first.directory) == calls


def test_a_larger_target_keeps_the_first_queries_and_their_splits(run: Run, done: Run) -> None:
    def queries_of(result: RunResult) -> dict[str, Any]:
        rows = {str(row["_id"]): row for row in read_rows(result.directory / "dataset" / "queries.jsonl")}
        for row in rows.values():
            del row["metadata"]["overlap_mean"]  # over all positives, and more queries bring more passages
        return rows

    small = run("runs", FEW)
    few = queries_of(small)
    splits = {row["query-id"]: row["split"] for row in label_rows(small.directory / "dataset")}
    large = run("runs", MANY)
    more = queries_of(large)
    assert len(few) == 6 and len(more) == 12
    assert few.items() <= more.items()
    grown = {row["query-id"]: row["split"] for row in label_rows(large.directory / "dataset")}
    assert splits.items() <= grown.items()
    fresh = done("fresh", MANY)
    assert data_files(fresh.directory / "dataset") == data_files(large.directory / "dataset")


def test_an_edited_prompt_redoes_only_what_follows_it(run: Run, done: Run, folder: Path) -> None:
    done()
    template = (Path(__file__).parents[2] / "prompts" / "rewrite.j2").read_text(encoding="utf-8")
    (folder / "prompts").mkdir()
    (folder / "prompts" / "rewrite.j2").write_text(template.replace("Rewrite the query.", "Rewrite it."), "utf-8")
    second = run(changes={"target: 4": "target: 2"})  # so few that no further document is needed
    assert second.usage.get("character", {"calls": 0})["calls"] == 0
    assert second.usage["rewrite"]["calls"] > 0
    assert "query" not in second.usage or second.usage["query"]["calls"] == 0


@pytest.mark.parametrize(
    "after", [pytest.param(3, marks=pytest.mark.nightly), 40, pytest.param(90, marks=pytest.mark.nightly)]
)
def test_sigkill_and_resume_give_the_same_bytes(run: Run, done: Run, folder: Path, after: int) -> None:
    whole = data_files(done("whole").directory / "dataset")
    slow = (folder / "job.yaml").read_text().replace("concurrency: 32", "concurrency: 32, latency: 0.02")
    (folder / "slow.yaml").write_text(slow)
    write_secret(folder / "killed" / "job" / "secret.key", Secret(bytes(range(32))))  # of all jobs in the tests
    kill_at_line(after, COUNTED, "run", folder / "slow.yaml", "--runs", folder / "killed", "--quiet")
    kept = answers(folder / "killed" / "job")
    assert kept >= after - 8 - 32  # what was in flight, and at most one group
    resumed = run("killed")
    assert data_files(resumed.directory / "dataset") == whole
    asked = sum(stage["calls"] for stage in resumed.usage.values())
    assert asked == answers(resumed.directory) - kept  # nothing that reached the disk was asked again


def test_a_budget_stops_and_a_larger_one_goes_on(run: Run) -> None:
    price = "concurrency: 8, model: m, prices: {m: {input: 1000.0, output: 1000.0}}"
    changes = {"target: 4": "target: 2", "concurrency: 32": price}
    # The scripted backend is free; with a price, it replaces a paid one.
    with pytest.raises(BudgetSpent, match="raise the budget and run the same command"):
        run("paid", changes, budget_usd=2.0)
    done = run("paid", changes, budget_usd=1000.0)
    assert done.manifest is not None
    spent = sum(stage["usd"] for stage in done.usage.values())
    assert 0 < spent < 1000


def test_a_spent_corpus_says_so_and_keeps_what_there_is(run: Run, folder: Path) -> None:
    make_corpus(folder / "small.jsonl", 15)
    result = run("spent", {"target: 4": "target: 100"})
    assert result.manifest is not None
    found = sum(split.queries for split in result.manifest.statistics.splits.values())
    assert 3 < found < 100


def test_faulty_answers_become_counted_skips(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_corpus(folder / "small.jsonl", 90)  # of 60 documents a quarter of faults leaves about 12 queries: too close
    # A quarter of all calls fails, so most samples are dropped, which would be taken for a broken model.
    monkeypatch.setattr("airgen.llms.health.FALSE_STOP", 1e-300)
    faults = ", ".join(f"{fault}: 0.04" for fault in ("refuse", "empty", "prose", "truncate", "language", "one_item"))
    result = run("faulty", {**MANY, "concurrency: 32": f"concurrency: 32, faults: {{{faults}}}"})
    assert result.manifest is not None
    assert sum(split.queries for split in result.manifest.statistics.splits.values()) == 12
    assert verify(result.directory / "dataset") == []
    for step in result.manifest.funnel[1:6]:
        if not step.stage.startswith("rewrite"):
            assert step.entered - step.left == sum(step.reasons.values())


def test_ablations_come_from_the_same_rows(done: Run, folder: Path) -> None:
    result = done()
    job = Job(folder / "job.yaml", folder / "runs")
    with job.open_store() as store:
        accepted = job.accepted(store)
        export_dataset(job, store, accepted, folder / "bare", ["correction"])
        export_dataset(job, store, accepted, folder / "all", ["control"])
        export_dataset(job, store, accepted, folder / "plain", ["negatives"])
    full = result.directory / "dataset"
    assert (folder / "bare" / "queries.jsonl").read_bytes() == (full / "queries.jsonl").read_bytes()
    bare = label_rows(folder / "bare")
    assert sum(row["score"] == 1 for row in bare) == 4  # one positive each: the source
    # Table 5's dataset without quality control has the candidates that were judged bad, too.
    judged = [one.lineage for one in accepted.rejected if one.stage == "judgment"]
    last = max(one.sample.key for one in accepted.lineages)
    bad = [one for one in judged if one.sample.key < last]
    assert bad
    queries = read_rows(folder / "all" / "queries.jsonl")
    assert len(queries) == 4 + len(bad)
    assert {row["text"] for row in queries} == {row["text"] for row in read_rows(full / "queries.jsonl")} | {
        one.final.text for one in bad
    }
    assert sum(row["score"] == 1 for row in label_rows(folder / "all")) == 4 + len(bad)
    assert read_rows(folder / "all" / "corpus.jsonl") == read_rows(folder / "bare" / "corpus.jsonl")
    plain = label_rows(folder / "plain")
    assert all(row["score"] == 1 for row in plain)
    assert len(read_rows(folder / "plain" / "corpus.jsonl")) == 60


def test_rejected_candidates_have_negatives_where_they_were_asked_for(run: Run, done: Run, folder: Path) -> None:
    """The paper's dataset without quality control has them (4.1); they are made after the job, too, and only they."""
    result = done()
    asked, before = answers(result.directory), data_files(result.directory / "dataset")
    run(changes={"control:": "generation: {negatives_of: all}\ncontrol:"})
    job = Job(folder / "job.yaml", folder / "runs")
    with job.open_store() as store:
        accepted = job.accepted(store)
        rejected = judged_away(accepted, 4)
        export_dataset(job, store, accepted, folder / "all", ["control"])
    after = data_files(result.directory / "dataset")
    assert {name for name in before if before[name] != after[name]} <= {"manifest.json", "pipeline.yaml", "README.md"}
    assert rejected and answers(result.directory) == asked + len(rejected)
    texts = {row["text"] for row in read_rows(folder / "all" / "queries.jsonl")}
    assert {one.final.text for one in rejected} <= texts
    written = {negative.text for one in [*accepted.lineages, *rejected] for negative in one.hard_negatives}
    assert all(one.hard_negatives for one in rejected)
    assert written <= {row["text"] for row in read_rows(folder / "all" / "corpus.jsonl")}
    judged = {row["query-id"] for row in label_rows(folder / "all") if row["score"] == 0}
    assert len(judged) == 4 + len(rejected)
    assert verify(folder / "all") == []


def test_nothing_is_exported_before_quality_control(run: Run, folder: Path) -> None:
    """Neither of a job that stopped before it, nor with settings of it that have changed since."""

    def exported() -> None:
        job = Job(folder / "job.yaml", folder / "runs")
        with job.open_store() as store:
            export_dataset(job, store, job.accepted(store), job.dataset)

    run(until="rewrite")
    with pytest.raises(UsageError, match=r"job\.yaml: quality control has not run with these settings: run `airgen"):
        exported()
    before = data_files(run().directory / "dataset")
    text = (folder / "job.yaml").read_text(encoding="utf-8")
    (folder / "job.yaml").write_text(text.replace("top_k: 20", "top_k: 21"), encoding="utf-8")
    with pytest.raises(UsageError, match="quality control has not run"):
        exported()
    assert data_files(folder / "runs" / "job" / "dataset") == before
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    exported()
    assert data_files(folder / "runs" / "job" / "dataset") == before


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
    few = {**FEW, **MODELS}
    two = {**few, three: "[bm25, dense]"}
    run("runs", {**few, three: "[dense]"})
    more = scored(lambda: run("runs", two), monkeypatch)
    assert more == {"BM25Reranker": 6 * 30}  # the dense scores remain
    extra = {"id": "doc-new", "title": "Tides", "text": "A document that was added later, on tides and lanterns alike."}
    write_rows(folder / "small.jsonl", [*read_rows(folder / "small.jsonl"), extra])
    grown = scored(lambda: run("runs", two), monkeypatch)
    # Weights of words change with the corpus; a dense score of a pair does not. Asked about are at most the new
    # document itself and what a new sample brought.
    assert grown["BM25Reranker"] == 6 * 30
    assert grown.get("DenseReranker", 0) < 6 * 30 / 2
    narrower = {**few, three: "[bm25, dense]\n  thresholds: {hard_negative: 10, other: 5}"}
    assert scored(lambda: run("runs", narrower), monkeypatch) == {}


def test_the_same_queries_from_other_settings_are_not_read_again(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {**FEW, **MODELS, "[bm25, dense, all-minilm-l6-v2-int8]": "[bm25, dense]"}

    def keys_and_texts() -> dict[str, str]:
        job = Job(folder / "job.yaml", folder / "runs")
        with job.open_store(read_only=True) as store:
            return {lineage.final.key: lineage.final.text for lineage in job.accepted(store).lineages}

    run("runs", few)
    before = keys_and_texts()
    again = {**few, "target: 6": "target: 6\ngeneration: {unasked: keep}"}
    counts = scored(lambda: run("runs", again), monkeypatch)
    after = keys_and_texts()
    assert sorted(after.values()) == sorted(before.values()) and not after.keys() & before.keys()
    assert counts == {}


def test_a_backend_of_one_call_at_a_time_gets_no_more_samples_than_are_missing(
    run: Run, done: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def samples(result: RunResult) -> tuple[int, int]:
        """How many were drawn, and how many of them came to nothing."""
        with Store.open(result.directory / "work.duckdb", read_only=True) as store:
            drawn = store.query("SELECT count(*) FROM sample")[0][0]
        assert result.manifest is not None
        names = [step.stage for step in result.manifest.funnel]
        end = names.index("judgment of the own document") + 1
        steps = [  # of a rewrite that is refused, the query as first written is kept
            step for step in result.manifest.funnel[names.index("character") : end] if "kept" not in step.stage
        ]
        return drawn, sum(count for step in steps for count in step.reasons.values())

    assert samples(done("many", MANY))[0] >= 18
    monkeypatch.setattr(ScriptedBackend, "SERIAL", True)
    drawn, rejected = samples(run(changes=MANY))
    assert drawn == 12 + rejected


def test_exact_splits_have_the_counts_that_are_asked_for(run: Run) -> None:
    exact = {"target: 4": "target: 12\nexport: {splits: {dev: 1, test: 4}, exact: true}"}

    def splits(result: RunResult) -> dict[str, str]:
        return {query: split for query, (split, _) in exported_queries(result.directory / "dataset").items()}

    before = splits(run(changes=exact))
    assert Counter(before.values()) == {"dev": 2, "test": 10}
    after = splits(run(changes={"target: 4": exact["target: 4"].replace("12", "13", 1)}))
    assert Counter(after.values()) == {"dev": 3, "test": 10}
    assert sum(before[query] != after[query] for query in before) <= 2  # of the last block, which has three queries now


def test_a_run_says_which_earlier_queries_moved() -> None:
    before = {"a": ("dev", True), "b": ("dev", True), "c": ("test", False), "d": ("test", True)}
    assert not [*moved_queries(before, before | {"e": ("dev", False)})]
    assert [
        *moved_queries(before, {"a": ("test", True), "b": ("dev", False), "c": ("test", True), "e": ("dev", False)})
    ] == [
        "query a moved from dev to test, so that the ratio is exact",
        "earlier queries that no longer have an answer (generation.unanswerable): b",
        "earlier queries that have an answer now (generation.unanswerable): c",
    ]


def test_a_run_is_measured_by_the_target_given_beside_the_file(folder: Path) -> None:
    few = run_quietly(Job(folder / "job.yaml", folder / "runs", target=3))
    assert few.manifest is not None and len(exported_queries(few.directory / "dataset")) == 3 and few.fewer == []
    many = run_quietly(Job(folder / "job.yaml", folder / "runs", target=500))
    (line,) = many.fewer
    assert " of the 500 queries asked for (the corpus gave " in line


@pytest.mark.parametrize("target", [0, -1, 10**30])
def test_a_target_given_beside_the_file_has_the_bounds_of_the_setting(target: int, folder: Path) -> None:
    with pytest.raises(UsageError, match="target: must be a number of queries, at least 1, not"):
        Job(folder / "job.yaml", folder / "runs", target=target)

"""`airgen study agree` on a made collection: the whole way with the scripted model, bad input, and going on."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from beir_folder import read_rows, write_beir
from command_line import call
from job_maker import FACTS, PLACES, TOPICS, make_corpus, run_quietly
from rich.console import Console

from airgen.errors import BudgetSpent, DatasetError, UsageError
from airgen.evaluation.systems import load_systems
from airgen.job import Job
from airgen.settings.base import find_yaml
from airgen.steps.progress import Display
from airgen.studies.agree.report import AgreementReport
from airgen.studies.agree.study import AgreementStudy, agree_job

SYSTEMS = """
systems:
  - {name: bm25, kind: bm25, family: lexical}
  - {name: bm25-raw, kind: bm25, family: lexical, analyser: {stem: false, stopwords: false}}
  - {name: dirichlet, kind: query-likelihood, family: lexical}
  - {name: rm3, kind: rm3, family: feedback}
  - {name: grams, kind: bm25, family: characters, weakened: true, analyser: {ngram: 2}}
"""

PIPELINE = """
name: try
task: qa
corpus: python-reference
target: 5
llm: {backend: scripted, concurrency: 8, model: m, prices: {m: {input: 1000.0, output: 1000.0}}}
generation: {hard_negatives: [1, 2], rewrites: 1}
control:
  recall: {pools_only: true, top_k: 20}
  pools: [bm25, rm3]
  rerankers: [bm25, {kind: bm25, k1: 2.0}]
  thresholds: {hard_negative: 5, other: 2}
  judge: {kind: yes-no, prompt: small/judge_yes_no}
export: {splits: {dev: 1, test: 1}}
"""


def make_collection(folder: Path) -> Path:
    """A corpus as a BEIR directory: a human query of each topic but the last, two positives each."""
    path = folder / "Made Up"
    make_corpus(folder / "small.jsonl", 30)
    rows = [json.loads(line) for line in (folder / "small.jsonl").read_text().splitlines()]
    corpus = [{"_id": row["id"], "title": row["title"], "text": row["text"]} for row in rows]
    queries = [
        {"_id": f"h{place}", "text": f"{topic} that {FACTS[place]} {PLACES[place % len(PLACES)]}"}
        for place, topic in enumerate(TOPICS[:-1])
    ]
    labels = [(f"h{place}", rows[place + 10 * turn]["id"], 1) for place in range(len(queries)) for turn in range(2)]
    write_beir(path, corpus, queries, {"test": labels})
    (folder / "agree.yaml").write_text(PIPELINE)
    (folder / "systems.yaml").write_text(SYSTEMS)
    return path


Go = Callable[..., AgreementReport]


def compare(
    folder: Path, runs: str = "runs", changes: dict[str, str] | None = None, systems: str = SYSTEMS, **options: Any
) -> AgreementReport:
    """Compare on the folder's made collection, after some replacements in the pipeline's or the systems' text."""
    text = PIPELINE
    for old, new in (changes or {}).items():
        assert old in text
        text = text.replace(old, new)
    (folder / "agree.yaml").write_text(text)
    (folder / "systems.yaml").write_text(systems)
    sources = options.pop("sources", "positives")
    job = agree_job(folder / "Made Up", Job(folder / "agree.yaml", folder / runs), sources=sources)
    display = Display(job.directory / "status.json", Console(quiet=True))
    study = AgreementStudy(job, folder / "Made Up", load_systems(folder / "systems.yaml"), display, **options)
    report = study.report()
    report.write(job.directory / "agreement")
    return report


@pytest.fixture
def go(tmp_path: Path) -> Go:
    make_collection(tmp_path)
    return partial(compare, tmp_path)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, AgreementReport]:
    """A folder in which a study is finished, and its report."""
    folder = tmp_path_factory.mktemp("full")
    make_collection(folder)
    return folder, compare(folder, **beside(folder))


def beside(folder: Path) -> dict[str, Any]:
    """Options: the collection's own ranking, which agrees with itself, and seven draws of three queries."""
    return {"beside": [folder / "Made Up"], "draws": 7, "drawn": 3}


def positives(collection: Path) -> set[str]:
    lines = (collection / "qrels" / "test.tsv").read_text().splitlines()[1:]
    return {line.split("\t")[1] for line in lines}


def sources_of(work: Path) -> dict[str, str]:
    """{source document: query} of a finished job."""
    rows = [json.loads(line) for line in (work / "dataset" / "private" / "lineage.jsonl").read_text().splitlines()]
    return {row["source"]: row["original"] for row in rows}


def test_the_whole_way(full: tuple[Path, AgreementReport]) -> None:
    folder, report = full
    work = folder / "runs" / "try-made-up"
    assert set(sources_of(work)) <= positives(folder / "Made Up")
    names = ["complete", "graded labels", "soft gains", "no quality control", "no correction of labels"]
    assert [one.name for one in report.variants] == [*names, "no hard negatives", "no rewriting"]
    variants = {one.name: one for one in report.variants}
    assert variants["no quality control"].agreement.queries >= 5  # with the candidates that were judged bad
    assert all(one.agreement.queries == 5 for one in report.variants if one.name != "no quality control")
    assert variants["no quality control"].positives == variants["no correction of labels"].positives == 1.0
    assert report.variants[0].positives >= 1.0
    assert report.human.queries == 9
    assert report.competitors["Made Up"].spearman.value == pytest.approx(1.0)
    assert (report.resamplings.queries, len(report.resamplings.values), report.resamplings.systems) == (3, 7, 5)
    assert "7 draws of 3 generated queries" in report.markdown() and "mean p" in report.markdown()
    assert report.circularity.involved == {
        "bm25": ("bm25",), "bm25-raw": ("bm25",), "rm3": ("rm3",), "grams": ("bm25",)
    }  # fmt: skip
    assert any("are among the systems under test" in note for note in report.notes)
    assert any("9 human queries" in note for note in report.notes)
    found = json.loads((work / "agreement" / "agreement.json").read_text())
    assert found["queries"] == {"human": 9, "generated": 5}
    assert {"no hard negatives", "no quality control"} <= found["scores"].keys()
    assert found["scores"]["no quality control"].keys() == found["scores"]["human"].keys()
    assert found["variants"][0]["agreement"]["strong"]["systems"] == 4
    for name in ("ranks.svg", "resamplings.svg"):
        assert (work / "agreement" / name).read_text().startswith("<svg")
    assert "| grams (weakened) |" in (work / "agreement" / "agreement.md").read_text()
    pages = {path.parents[2].name for path in work.rglob("report.md")}
    assert pages == {"generated"}  # none of the ablations, whose figures are in agreement.md


def test_the_papers_systems_ship_and_check_says_what_each_needs(full: tuple[Path, AgreementReport]) -> None:
    folder, collection = full[0], full[0] / "Made Up"
    seventeen = load_systems(find_yaml("pipelines", "systems-airbench-17"))
    assert len(seventeen) == 17 and not any(system.weakened for system in seventeen)
    assert {"repllama-v1-7b-lora-passage", "e5-mistral-7b-instruct", "bge-m3", "BM25"} < {one.name for one in seventeen}
    every = load_systems(find_yaml("pipelines", "systems-airbench"))  # Table 15, and Table 11's second instruction
    assert len(every) == 39 + 1 and not any(system.weakened for system in every)
    assert {one.name for one in seventeen} - {one.name for one in every} == {"jina-embeddings-v2-base-en"}
    files = ("--pipeline", folder / "agree.yaml", "--runs", folder / "runs", "--check")
    arguments = ("study", "agree", collection, *files)
    text = call(*arguments, "--systems", "systems-airbench-17", code=1)
    assert "embedder: base_url: the environment variable JINA_V2_URL is not set" in text
    assert re.search(
        r"e5-large-v2 +dense +intfloat/e5-large-v2 \(Hub, revision b322e090\) +sentence_transformers", text
    )
    assert "jinaai/jina-embeddings-v2-base-en (served at ${JINA_V2_URL})" in text
    value = json.loads(call(*arguments, "--systems", folder / "systems.yaml", "--json"))
    assert value["problems"] == [] and [one["name"] for one in value["systems"]][:2] == ["bm25", "bm25-raw"]


def test_the_command_again_costs_nothing_and_says_the_same(full: tuple[Path, AgreementReport]) -> None:
    folder, first = full
    work = folder / "runs" / "try-made-up"
    runs = sorted((folder / "runs").rglob("*.run.gz"))
    before = {path: path.stat().st_mtime_ns for path in runs}
    written = (work / "agreement" / "agreement.json").read_bytes()
    assert len(runs) == 6 * 5  # human, complete, and four ablations that change the corpus or the queries
    files = ["--pipeline", folder / "agree.yaml", "--systems", folder / "systems.yaml", "--runs", folder / "runs"]
    options = ["--beside", folder / "Made Up", "--draws", 7, "--drawn", 3]
    said = json.loads(call("study", "agree", folder / "Made Up", *files, *options, "--json"))
    assert {path: path.stat().st_mtime_ns for path in sorted((folder / "runs").rglob("*.run.gz"))} == before
    assert (work / "agreement" / "agreement.json").read_bytes() == written
    assert said == first.as_dict()
    with pytest.raises(UsageError, match=r"is the work of `airgen study agree`: its report is .*agreement\.md"):
        call("show", work)


def test_a_stopped_run_goes_on_to_the_same_report(go: Go, full: tuple[Path, AgreementReport], tmp_path: Path) -> None:
    with pytest.raises(BudgetSpent):
        go(budget_usd=2.0)
    assert not (tmp_path / "runs" / "try-made-up" / "agreement" / "agreement.json").exists()
    assert go(budget_usd=1000.0, **beside(tmp_path)).as_dict() == full[1].as_dict()


def test_another_sampling_frame_keeps_what_both_have(full: tuple[Path, AgreementReport], tmp_path: Path) -> None:
    collection = full[0] / "Made Up"
    job = agree_job(collection, Job(full[0] / "agree.yaml", tmp_path), sources="any")
    run_quietly(job)
    narrow, wide = sources_of(full[0] / "runs" / "try-made-up"), sources_of(job.directory)
    assert not set(wide) <= positives(collection)
    shared = set(narrow) & set(wide)
    assert shared
    assert {name: narrow[name] for name in shared} == {name: wide[name] for name in shared}


def test_what_is_refused_before_anything_is_asked(go: Go, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="1 system"):
        go(systems="systems:\n  - {name: only, kind: bm25}\n")
    assert not (tmp_path / "runs" / "try-made-up" / "work.duckdb").exists()
    with pytest.raises(UsageError, match="must be qa"):
        go(changes={"task: qa": "task: long-doc", "hard_negatives: [1, 2]": "hard_negatives: [0, 0]"})
    path = tmp_path / "Made Up" / "qrels" / "test.tsv"
    path.write_text(path.read_text().replace("\t1\n", "\t0\n"))
    with pytest.raises(DatasetError, match=r"no label of the split 'test' is above 0"):
        go()


def test_pools_join_the_recall(full: tuple[Path, AgreementReport], tmp_path: Path) -> None:
    """Until the judgments: pools of other retrievers beside those of the first one."""

    def recalled(pools: str) -> dict[str, list[str]]:
        text = PIPELINE.replace("[bm25, rm3]", pools).replace("top_k: 20", "top_k: 5")
        (tmp_path / "agree.yaml").write_text(text)
        job = agree_job(full[0] / "Made Up", Job(tmp_path / "agree.yaml", tmp_path / pools[1:5]))
        run_quietly(job, until="judgment")
        with duckdb.connect(str(job.directory / "work.duckdb"), read_only=True) as connection:
            return dict(connection.execute("SELECT parent, ids FROM recall").fetchall())

    alone, pooled = recalled("[bm25]"), recalled("[{kind: lsa, dim: 10}, bm25]")
    assert alone.keys() == pooled.keys() and all(len(ids) == 5 for ids in alone.values())
    for query, ids in pooled.items():
        assert set(alone[query]) <= set(ids)
        assert len(set(ids)) == len(ids) <= 10
    assert any(len(ids) > 5 for ids in pooled.values())


def test_without_rewriting_the_original_text_keeps_its_labels(full: tuple[Path, AgreementReport]) -> None:
    """The ablation without rewriting, which the study has exported."""
    work = full[0] / "runs" / "try-made-up"
    whole, bare = work / "dataset", work / "agreement" / "datasets" / "without-rewrite"
    originals = {row["original"] for row in read_rows(whole / "private" / "lineage.jsonl")}
    rewritten, original = (read_rows(path / "queries.jsonl") for path in (whole, bare))
    assert [row["_id"] for row in rewritten] == [row["_id"] for row in original]
    assert {row["text"] for row in original} == originals != {row["text"] for row in rewritten}
    labels = [{path.name: path.read_bytes() for path in (one / "qrels").iterdir()} for one in (whole, bare)]
    assert labels[0] == labels[1] and "test.tsv" in labels[0]

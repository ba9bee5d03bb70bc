"""The circle: publish, download, run systems without labels, submit, score with the private labels, leaderboard.

The first client is airgen's own commands, the second the searcher of air-benchmark's package.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from command_line import invoke
from dataset_maker import INFO, SECRET, make_content
from fake_hub import GOOD_TOKEN, FakeHub

from airgen.dataset.beir import BeirDataset
from airgen.dataset.layouts import export_layouts
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError
from airgen.job.job import JobSecret
from airgen.publishing.publish import plan, publish
from airgen.publishing.scores import load_labels, score_results
from airgen.publishing.submission import NO_RERANKER, RefusedSubmission, Submission, SystemHits, pack, results_of_run
from airgen.publishing.withhold import labels_part, public_part

constants = pytest.importorskip("huggingface_hub.constants")
REPO = "my-org/weather-notes"


def call(command: str, *arguments: object, fails: bool = False) -> str:
    """What a command prints; with `fails` the message of the error that it ends with."""
    result = invoke(*command.split(), *arguments)
    if fails:
        assert isinstance(result.exception, DatasetError)
        return str(result.exception)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


class Searcher:
    """A retriever of air-benchmark's protocol: documents by the number of words that they share with the query."""

    search_top_k = 1000

    def __str__(self) -> str:
        return "their-system"

    def __call__(self, corpus: dict[str, dict[str, str]], queries: dict[str, str], **_: Any) -> dict[str, Any]:
        words = {document: set(row["text"].lower().split()) for document, row in corpus.items()}
        return {
            query: {document: float(len(set(text.lower().split()) & of)) for document, of in words.items()}
            for query, text in queries.items()
        }


def test_the_whole_circle_with_two_clients(
    server: FakeHub, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    utils = pytest.importorskip("air_benchmark.evaluation_utils")
    from airgen.publishing.hub import Hub

    hub = Hub(endpoint=server.url, token=GOOD_TOKEN, sleep=lambda _: None)
    publish(plan(dataset, REPO, tmp_path / "work", private_qrels=["test"]), hub)
    data = server.download(REPO, tmp_path / "data" / "weather-notes")
    assert verify(data) == []
    (tmp_path / "systems.yaml").write_text("systems: [{name: my-bm25, kind: bm25}]\n", encoding="utf-8")

    # airgen as a client: there is nothing to score with, so the run is kept.
    arguments = ("evaluate", data, "--systems", tmp_path / "systems.yaml", "--out", tmp_path / "results")
    said = call(*arguments, "--split", "test")
    run = tmp_path / "results" / "weather-notes" / "test" / "my-bm25.run.gz"
    assert f"weather-notes: my-bm25: 4 queries (ran): {run}" in said
    assert "so there are no scores" in said
    assert "(kept)" in call(*arguments, "--split", "test")
    assert "nDCG@10" in call(*arguments, "--split", "dev")
    # The command that it prints is the one that goes on.
    command = next(line for line in said.splitlines() if line.startswith("  airgen publish submit")).split()
    monkeypatch.chdir(tmp_path)
    assert "qa/science/en_weather-notes_test.json: 4 queries" in call(*command[1:])

    # air-benchmark as a client, on the same published files.
    export_layouts({"": data}, "air-bench", tmp_path / "theirs")
    monkeypatch.chdir(tmp_path / "theirs")
    loader = utils.DataLoader(INFO.version, cache_dir=str(tmp_path / "fresh"))
    group = {"task_type": "qa", "domain": "science", "language": "en", "dataset_name": "weather-notes"}
    utils.Evaluator(loader)(**group, splits=["dev", "test"], search_results_save_dir="found", retriever=Searcher())
    monkeypatch.chdir(tmp_path)
    call("publish submit", "theirs/found/their-system/NoReranker", "--out", "theirs.zip")

    # The owner of the labels, who has the private repository.
    private = server.download("my-org/qrels-weather-notes", tmp_path / "private", GOOD_TOKEN)
    with pytest.raises(DatasetError, match="the labels of test are private"):
        BeirDataset.open(data).qrels("test")
    for name in ("my-bm25.zip", "theirs.zip"):
        assert "nDCG@10" in call("publish score", name, "--qrels", private, "--save", "scores")
    board = json.loads(call("publish leaderboard", "scores", "--json"))
    assert {row["model"] for row in board[0]["rows"]} == {"my-bm25", "their-system"}
    direct = score_results([results_of_run(data, run, model="x", reranker=NO_RERANKER, split="test")[0]],
                           load_labels([dataset]))  # fmt: skip
    means = {row["model"]: row["mean"] for row in board[0]["rows"]}
    margins = {row["model"]: row["margin"] for row in board[0]["rows"]}
    assert margins["my-bm25"] == pytest.approx(1.96 * direct.datasets[0].standard_errors["nDCG@10"], abs=1e-3)
    assert means["my-bm25"] == pytest.approx(direct.datasets[0].measures["nDCG@10"], abs=1e-5)
    page = (tmp_path / "scores" / "index.html").read_text(encoding="utf-8")
    assert "my-bm25" in page and "their-system" in page and SECRET not in page


def test_the_class_comes_from_the_record_of_the_run(
    server: FakeHub, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airgen.publishing.hub import Hub

    publish(plan(dataset, REPO, tmp_path / "w", private_qrels=["test"]), Hub(endpoint=server.url, token=GOOD_TOKEN))
    data = server.download(REPO, tmp_path / "data" / "weather-notes")
    (tmp_path / "systems.yaml").write_text(
        "systems:\n"
        "- {name: mine, kind: bm25}\n"
        "- {name: again, kind: rerank, first: mine, reranker: {kind: bm25, k1: 0.1}, top: 3}\n"
        "- {name: both, kind: fuse, systems: [mine, again]}\n"
    )
    monkeypatch.chdir(tmp_path)
    for split in ("test", "dev"):  # without labels, and with them
        call("evaluate", data, "--systems", "systems.yaml", "--split", split, "--out", "results")
    runs = tmp_path / "results" / "weather-notes"

    def submitted(run: Path, *words: str) -> tuple[str, str]:
        call("publish submit", "--dataset", data, "--run", run, "--split", run.parent.name, "--out", "s.zip", *words)
        (one,) = Submission(Path("s.zip")).read()
        assert isinstance(one, SystemHits)
        return one.model, one.reranker

    for split in ("test", "dev"):
        assert submitted(runs / split / "mine.run.gz") == ("mine", NO_RERANKER)
        assert submitted(runs / split / "again.run.gz") == ("bm25", "bm25")
        assert submitted(runs / split / "both.run.gz") == ("both", "bm25")
    again = runs / "test" / "again.run.gz"
    assert submitted(again, "--model", "BM25", "--reranker", "w") == ("BM25", "w")
    private = server.download("my-org/qrels-weather-notes", tmp_path / "private", GOOD_TOKEN)
    assert json.loads(call("publish score", "s.zip", "--qrels", private, "--json"))["class"] == "Reranking Only"

    def refused(run: Path, *words: str) -> str:
        submit = ("--dataset", data, "--run", run, "--split", "test", "--out", "s.zip", *words)
        return str(invoke("publish", "submit", *submit).exception)

    assert "was re-ranked by bm25, according to its record" in refused(again, "--reranker", NO_RERANKER)
    assert "was not re-ranked, according to its record" in refused(runs / "test" / "mine.run.gz", "--reranker", "w")
    # A run from elsewhere: only its owner knows.
    other = tmp_path / "test" / "other.run.gz"
    other.parent.mkdir()
    other.write_bytes(again.read_bytes())
    assert "no record beside it names its system" in refused(other)
    assert submitted(other, "--model", "m") == ("m", NO_RERANKER)


# -- bad input --------------------------------------------------------------------------------------------------------


BASE = SystemHits("m", NO_RERANKER, "26.11", "qa", "science", "en", "weather-notes", "test", {"q-00": {"doc000": 1.0}})


def test_a_refused_submission_says_all_reasons(dataset: Path, tmp_path: Path) -> None:
    law = dataclasses.replace(BASE, domain="law", version="24.05")
    pack([law, dataclasses.replace(BASE, version="24.05"), dataclasses.replace(BASE, split="dev", version="24.05")],
         tmp_path / "a.zip")  # fmt: skip
    with ZipFile(tmp_path / "a.zip", "a") as archive:
        hits = {"q-00": {"doc000": "high"}, "q-01": [1]}
        value = {"model_name": "m", "reranker_name": NO_RERANKER, "task_type": "qa", "domain": "web",
                 "language": "en", "dataset_name": "x", "split": "test", "search_results": hits}  # fmt: skip
        archive.writestr("qa/web/en_x_test.json", json.dumps(value))
    with pytest.raises(RefusedSubmission) as caught:
        score_results(Submission(tmp_path / "a.zip"), load_labels([dataset]))
    words = ("no labels for qa_law_en", "are for the split 'dev', but the labels for 'test'", "for version '24.05'",
             "benchmark_version is missing", "score is not a finite number", "hits of query 'q-01'")  # fmt: skip
    for word in words:
        assert sum(word in reason for reason in caught.value.reasons) == 1, word
    assert str(caught.value).startswith("refused for 6 reasons:\n- ")


def test_results_are_of_the_published_making_of_a_version(tmp_path: Path) -> None:
    """Labels of another making, a split that is not there, and a corpus that was edited after the download."""
    write_dataset(tmp_path / "one", make_content())
    write_dataset(tmp_path / "two", make_content(n_documents=13))
    public_part(tmp_path / "one", tmp_path / "public", ["test"])
    labels_part(tmp_path / "one", tmp_path / "labels", ["test"])
    (tmp_path / "a.run").write_text("q-00 Q0 doc000 1 2.0 x\n")

    def of_run(split: str) -> SystemHits:
        return results_of_run(tmp_path / "public", tmp_path / "a.run", model="m", reranker=NO_RERANKER, split=split)[0]

    results = of_run("test")
    (again,) = Submission(pack([results], tmp_path / "a.zip")).read()
    assert again == results and again.pair
    (tmp_path / "labels" / "private" / "secret.key").unlink()  # who lost the secret can score all the same
    for fine in ("one", "labels"):
        assert score_results([again], load_labels([tmp_path / fine])).datasets
    with pytest.raises(DatasetError, match="two different datasets, both named version"):
        score_results([again], load_labels([tmp_path / "two"]))
    with pytest.raises(DatasetError, match=r"no split 'tset' \(did you mean 'test'\?\)"):
        of_run("tset")
    corpus = (tmp_path / "public" / "corpus.jsonl").read_text(encoding="utf-8")
    (tmp_path / "public" / "corpus.jsonl").unlink()  # it is a hard link to the whole dataset's
    (tmp_path / "public" / "corpus.jsonl").write_text(corpus + "\n", encoding="utf-8")
    with pytest.raises(DatasetError, match=r"corpus\.jsonl was edited after it was published: download"):
        of_run("test")


def test_two_submissions_of_one_name(dataset: Path, tmp_path: Path) -> None:
    pack([BASE], tmp_path / "a.zip")
    pack([dataclasses.replace(BASE, hits={"q-01": {"doc001": 1.0}})], tmp_path / "b.zip")

    def score(name: str, *more: str, fails: bool = False) -> str:
        words = ("--qrels", dataset, "--save", tmp_path / "scores", *more)
        return call("publish score", tmp_path / name, *words, fails=fails)

    assert score("a.zip") == score("a.zip")  # the same again is fine
    problem = score("b.zip", fails=True)
    assert "another submission of m + NoReranker, version 26.11, was scored before" in problem
    score("b.zip", "--replace")


def test_a_lost_or_damaged_secret(dataset: Path, tmp_path: Path) -> None:
    """How a job finds its own again is in tests/job/test_ids.py."""
    (dataset / "private" / "secret.key").unlink()
    with pytest.raises(DatasetError, match=r"private/secret\.key: is in the manifest but not in the directory"):
        plan(dataset, REPO, tmp_path / "work", private_qrels=["test"])
    (tmp_path / "secret.key").write_text("0123\n")
    with pytest.raises(DatasetError, match="does not hold 64 hex digits") as caught:
        JobSecret(tmp_path).keep()
    assert "0123" not in str(caught.value)

"""What is checked before a job begins: its models, and its prompts on real documents."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from job_maker import LEXICAL
from refusals import refused
from rich.console import Console

from airgen.cli import main
from airgen.errors import ModelError, PromptError, SettingsError
from airgen.job import Job
from airgen.job.run_job import run_pipeline
from airgen.llms.base import Refused, Request
from airgen.llms.prompts import PromptSet
from airgen.storage.paths import data_dir

JOB = LEXICAL
Asked = list[Request]


RERANKERS = "rerankers: [bm25]"


def change(folder: Path, old: str, new: str) -> Path:
    path = folder / "job.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def command(*words: object) -> int:
    """The exit code of a command line."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return int(stop.value.code or 0)


def go(folder: Path, *, target: int | None = None, **options: object) -> object:
    job = Job(folder / "job.yaml", folder / "runs", target=target)
    return run_pipeline(job, console=Console(quiet=True), **options)  # type: ignore[arg-type]


def test_a_run_that_ends_earlier_needs_less(folder: Path, asked: Asked) -> None:
    change(folder, "{backend: scripted, concurrency: 32}", "{model: gpt-4o-mini, api_key_env: NOBODY_SET_THIS}")
    change(folder, RERANKERS, "rerankers: [./no/folder]")
    (folder / "systems.yaml").write_text("systems:\n- {name: a, kind: expanded, expansions: none.jsonl}\n")
    change(folder, "control:", "evaluate: {systems: systems.yaml}\ncontrol:")
    with pytest.raises(SettingsError) as caught:
        go(folder)
    text = str(caught.value)
    assert len(caught.value.problems) == 3
    assert "NOBODY_SET_THIS" in text and "control.rerankers.0: " in text and "systems.yaml: " in text
    with pytest.raises(SettingsError) as caught:
        go(folder, until="hard_negative")
    assert len(caught.value.problems) == 1 and "NOBODY_SET_THIS" in str(caught.value)
    change(folder, "gpt-4o-mini", "nobody-knows-it")
    with pytest.raises(SettingsError, match="a budget needs prices"):
        go(folder, budget_usd=1.0)
    assert not (folder / "runs").exists() and asked == []
    go(folder, until="corpus")
    assert (folder / "runs" / "job" / "work.duckdb").exists()
    change(folder, "{model: nobody-knows-it, api_key_env: NOBODY_SET_THIS}", "{backend: scripted, concurrency: 32}")
    go(folder, until="hard_negative", target=1)
    assert asked


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        (RERANKERS, "rerankers: [bm25, {kind: dense, embedder: {kind: onnx, model: ./broken}}]", "broken"),
        ("pools_only: true", "model: {kind: http, base_url: 'http://127.0.0.1:PORT/v1', model: m}", "PORT"),
        ("pools: [bm25]", "pools: [{kind: sparse, model: {kind: splade, model: ./broken}}]", "broken"),
        ("control:", "generation: {meaning: {model: {kind: onnx, model: ./broken}}}\ncontrol:", "broken"),
        ("control:", "evaluate: {systems: systems.yaml}\ncontrol:", "broken"),
    ],
    ids=["re-ranker", "recall", "pool", "meaning", "system"],
)
def test_every_model_works_once_before_the_first_call(
    folder: Path, asked: Asked, old: str, new: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airgen.net.http._LONGEST_WAIT_SECONDS", 0.0)
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text("{}")
    (folder / "systems.yaml").write_text(
        "systems:\n- {name: a, kind: bm25}\n"
        "- {name: b, kind: rerank, first: a, reranker: {kind: maxsim, model: {kind: onnx, model: ./broken}}}\n"
        "- {name: c, kind: fuse, systems: [a, b]}\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    change(folder, old, new.replace("PORT", port))
    with pytest.raises(ModelError, match=place.replace("PORT", port)):
        go(folder)
    assert asked == []


@pytest.mark.parametrize("runs", ["file", "file/below", "/proc/none/here"])
def test_a_folder_of_jobs_that_cannot_be_made_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], runs: str
) -> None:
    (folder / "file").write_text("")
    assert command("run", folder / "job.yaml", "--runs", folder / runs) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    for words in (["check"], ["show"], ["export", "--out", folder / "new"]):
        assert command(words[0], folder / "job.yaml", *words[1:], "--runs", folder / runs) == 1
        assert "Traceback" not in capsys.readouterr().err


def test_a_system_that_fails_leaves_the_others_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "systems.yaml").write_text(
        "systems:\n- {name: theirs, kind: run, path: their.run}\n- {name: a, kind: bm25}\n"
        "- {name: both, kind: fuse, systems: [a, theirs]}\n"
    )
    (folder / "their.run").write_text("q1 Q0 nowhere 1 1.0 t\n")
    change(folder, "control:", "evaluate: {systems: systems.yaml, split: all}\ncontrol:")
    words = ["run", folder / "job.yaml", "--runs", folder / "runs", "--target", 3, "--json", "--no-report"]
    assert command(*words) == 1
    out, err = capsys.readouterr()
    assert [row["system"] for row in json.loads(out)["scores"]] == ["a"]
    assert "airgen: systems.yaml: system theirs: " in err and "query in common" in err
    assert "airgen: systems.yaml: system both: it builds on the system theirs, which failed" in err
    words = ["evaluate", folder / "runs/job/dataset", "--systems", folder / "systems.yaml", "--split", "all"]
    assert command(*words, "--out", folder / "out") == 1
    out, err = capsys.readouterr()
    assert "nDCG@10" in out and "system theirs: their.run" in err
    assert "| a |" in (folder / "out" / "results.md").read_text()
    for path in (folder / "runs/job/dataset/qrels").glob("*.tsv"):
        path.write_text(path.read_text() + "half a line\n")
    assert command(*words, "--out", folder / "new") == 1
    _, err = capsys.readouterr()
    assert err.count("dataset: system theirs, a: ") == 1, err  # one damaged file is one line


def test_the_card_names_no_recall_model_that_never_ran(folder: Path) -> None:
    change(folder, "pools: [bm25]", "pools: [rm3]")
    go(folder, target=2)
    card = (folder / "runs" / "job" / "dataset" / "README.md").read_text()
    recalls = [line for line in card.splitlines() if line.startswith("| recall")]
    assert len(recalls) == 1 and "rm3" in recalls[0]


# -- try prompts ------------------------------------------------------------------------------------------------------


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """A pipeline of three documents that needs no model."""
    lines = [
        {"id": f"d{n}", "title": f"Honey {n}", "text": f"Bees number {n} collect nectar from orange flowers in spring."}
        for n in range(3)
    ]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "c.yaml").write_text(
        "name: c\nlanguage: en\ndomain: test\nlicence: CC0-1.0\nsource: made by the tests\n"
        "reader: {kind: jsonl, path: c.jsonl}\n"
        'clean: {min_tokens: 1, language: "off", boilerplate: "off", personal_data: "off", near_duplicates: null}\n'
    )
    (tmp_path / "p.yaml").write_text(
        "name: p\ntask: qa\ncorpus: c.yaml\ntarget: 3\nllm: {backend: scripted}\n"
        "generation: {lengths: {lt10: 1}, types: {question: 1}}\n"
    )
    return tmp_path / "p.yaml"


def call(*arguments: object) -> Any:
    return invoke("check", "prompts", *arguments, raises=True)


def test_two_versions_on_n_documents(pipeline: Path) -> None:
    edited = pipeline.parent / "mine" / "query.j2"
    edited.parent.mkdir()
    text = (data_dir("prompts") / "query.j2").read_text(encoding="utf-8")
    edited.write_text(text.replace("Length: {{ length }}.", "Length: at least 20 words."), encoding="utf-8")
    runs = pipeline.parent / "runs"
    value = json.loads(call(pipeline, "query", edited, "-n", 2, "--runs", runs, "--json").stdout)
    assert len(value["documents"]) == 2
    for row in value["documents"]:
        assert list(row["tried"]) == ["query", str(edited)]
        ours, theirs = row["tried"].values()
        assert ours["problem"] == "" and len(json.loads(ours["answer"])["query"].split()) == 8
        assert theirs["problem"] == "wrong length: it has 24 words, but must have fewer than 10 words"
    totals = value["totals"]
    assert totals["query"]["usable"] == 2 and totals[str(edited)]["usable"] == 0
    assert 0 < totals["query"]["borrowed"] < 1
    text = call(pipeline, "query", edited, "-n", 2, "--runs", runs).stdout
    assert "2 of 2" in text and "0 of 2" in text and "(wrong length" in text


def test_every_shipped_prompt_can_be_tried_and_answers_are_kept(
    pipeline: Path, model_says: Callable[..., None]
) -> None:
    names, words = PromptSet().names(), ("-n", 1, "--runs", pipeline.parent / "runs", "--json")
    first = call(pipeline, *names, *words).stdout
    value = json.loads(first)
    assert list(value["totals"]) == names
    judged = value["documents"][0]["tried"]["judge"]
    assert judged["answer"] in {"0", "1", "2", "3"} and judged["borrowed"] is None

    def refuse(request: Request) -> None:
        raise Refused("content_filter")

    model_says(refuse)
    assert call(pipeline, *names, *words).stdout == first
    assert "content_filter" in call(pipeline, "scenario", "-n", 2, *words[2:]).stdout


def test_an_answer_that_repeats_its_prompt_is_not_usable(pipeline: Path) -> None:
    parrot = pipeline.parent / "query_parrot.j2"
    text = (data_dir("prompts") / "query.j2").read_text(encoding="utf-8")
    # The scripted model fills its queries up with these words.
    parrot.write_text(
        text.replace("{{ length }}.", "at least 20 words. What is meant here and how one would go about it.")
    )
    value = json.loads(call(pipeline, parrot, "-n", 1, "--runs", pipeline.parent / "runs", "--json").stdout)
    (tried,) = value["documents"][0]["tried"].values()
    assert tried["problem"].startswith("repeats the instructions") and value["totals"][str(parrot)]["usable"] == 0


def test_a_prompt_that_there_is_not_is_named(pipeline: Path) -> None:
    with refused(PromptError, "unknown_name", "query"):
        call(pipeline, "qery", "--runs", pipeline.parent / "runs")
    with pytest.raises(PromptError, match="no prompt 'gone'"):
        call(pipeline, pipeline.parent / "gone.j2", "--runs", pipeline.parent / "runs")

"""Make a whole job on a small corpus, with the scripted model and real re-rankers."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from airgen import models
from airgen.components.keys import rng
from airgen.job import Job, RunResult
from airgen.job.run_job import run_job
from airgen.llms.base import Reply, Request
from airgen.llms.scripted import ScriptedBackend
from airgen.steps.progress import Display

TOPICS = ("bridges", "yeast", "glaciers", "violins", "tariffs", "beetles", "harbours", "lanterns", "orchards", "tides")
FACTS = ("are measured", "were described", "decline slowly", "need repair", "attract visitors", "differ in colour",
         "are older than thought", "grow in winter", "carry a heavy load", "were banned by decree")  # fmt: skip
PLACES = ("in northern valleys", "near the coast", "under dry conditions", "after long storage", "by careful hands",
          "at high pressure", "during the spring floods", "within three seasons")  # fmt: skip


def make_corpus(path: Path, passages: int) -> None:
    """Write a JSONL corpus of sentences about a few topics; equal calls write equal bytes."""
    with path.open("w", encoding="utf-8") as out:
        for number in range(passages):
            random = rng("corpus", number)
            topic = TOPICS[number % len(TOPICS)]
            sentences = [
                f"Specimen {number * 7 + place} of {topic} shows that {random.choice(TOPICS)} {random.choice(FACTS)} "
                f"{random.choice(PLACES)} whenever {random.choice(TOPICS)} {random.choice(FACTS)}."
                for place in range(4)
            ]
            row = {"id": f"doc-{number:03}", "title": f"{topic.title()} {number}", "text": " ".join(sentences)}
            out.write(json.dumps(row) + "\n")


CORPUS = """
name: small
language: en
domain: test
licence: CC0-1.0
source: made by the tests
reader: {kind: jsonl, path: small.jsonl}
clean: {min_tokens: 5, language: "off", boilerplate: "off", personal_data: "off", near_duplicates: null}
"""

PIPELINE = """
name: job
task: qa
corpus: small.yaml
target: 4
llm: {backend: scripted, concurrency: 32}
control:
  recall: {model: all-minilm-l6-v2-int8, top_k: 30}
  rerankers: [bm25, dense, all-minilm-l6-v2-int8]
"""


LEXICAL = (
    PIPELINE.partition("control:")[0]
    + """control:
  recall: {pools_only: true, top_k: 20}
  pools: [bm25]
  rerankers: [bm25]
"""
)
"""The same job without a model: a module of tests that is content with it says `JOB = LEXICAL`."""

MODELS = {LEXICAL.partition("control:")[2]: PIPELINE.partition("control:")[2]}
"""What makes of it the one with models."""

WORDS = {
    "{model: all-minilm-l6-v2-int8, top_k: 30}": "{pools_only: true, top_k: 20}\n  pools: [bm25]",
    "[bm25, dense, all-minilm-l6-v2-int8]": "[bm25, {kind: bm25, k1: 2.0}, {kind: bm25, b: 0.1}]",
}
"""Changes of the job: three voters, and no model."""


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Provide a folder with a corpus, its YAML and a pipeline."""
    text = getattr(request.module, "JOB", PIPELINE)
    if text == PIPELINE and not models.fetched("all-minilm-l6-v2-int8"):
        pytest.skip("airgen fetch tests")
    make_corpus(tmp_path / "small.jsonl", 60)
    (tmp_path / "small.yaml").write_text(CORPUS, encoding="utf-8")
    (tmp_path / "job.yaml").write_text(text, encoding="utf-8")
    return tmp_path


Run = Callable[..., RunResult]

JUDGE = {"top_k: 30}": "top_k: 300}\n  judge: {kind: votes}"}
ANSWERED = {**JUDGE, "[bm25, dense, all-minilm-l6-v2-int8]": "[bm25]"}
"""Votes label; by `ANSWERED`, a lexical re-ranker alone."""


@pytest.fixture
def distinct(folder: Path) -> None:
    """Make documents that share a third of their words with the next document, and none with others.

    The scripted model's queries are words of their document, which is then the first to be found, or its neighbour.
    """
    made = [
        "".join(chr(97 + (n * 31 + k * 7 + n // 26 * k) % 26) for k in range(7)) + chr(97 + n % 26) for n in range(2000)
    ]
    with (folder / "small.jsonl").open("w", encoding="utf-8") as out:
        for number in range(60):
            words = made[number * 20 : number * 20 + 30]
            row = {"id": f"doc-{number:03}", "title": words[0], "text": " ".join([*words, *words[:20]]) + "."}
            out.write(json.dumps(row) + "\n")


def changed(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Copy a pipeline's settings with changes at some paths: {"control.recall.top_k": 9}."""
    copy: dict[str, Any] = json.loads(json.dumps(values))
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = copy
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = value
    return copy


def job_of(path: Path, values: dict[str, Any], runs: Path) -> Job:
    """Write the settings to the path, and return their job."""
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return Job(path, runs)


def run_quietly(job: Job, **options: Any) -> RunResult:
    """Run a job without output."""
    return run_job(job, Display(job.directory / "status.json", Console(quiet=True)), **options)


@pytest.fixture
def configure(folder: Path) -> Callable[[dict[str, str]], Path]:
    """Write the folder's pipeline after some replacements in its text."""
    whole = (folder / "job.yaml").read_text(encoding="utf-8")

    def write(changes: dict[str, str]) -> Path:
        text = whole
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (folder / "job.yaml").write_text(text, encoding="utf-8")
        return folder / "job.yaml"

    return write


@pytest.fixture
def run(folder: Path, configure: Callable[[dict[str, str]], Path]) -> Run:
    """Run the folder's pipeline after some replacements in its text."""

    def go(runs: str = "runs", changes: dict[str, str] | None = None, **options: object) -> RunResult:
        return run_quietly(Job(configure(changes or {}), folder / runs), **options)

    return go


_DONE: dict[tuple[bytes, ...], tuple[Path, RunResult]] = {}


@pytest.fixture
def done(folder: Path, run: Run, configure: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """As `run`, for tests of what comes after it: equal jobs are run once in a process, and copied."""

    def go(runs: str = "runs", changes: dict[str, str] | None = None) -> RunResult:
        configure(changes or {})
        key = tuple((folder / name).read_bytes() for name in ("job.yaml", "small.yaml", "small.jsonl"))
        if key not in _DONE:
            result, kept = run(runs, changes), tmp_path_factory.mktemp("done") / "job"
            shutil.copytree(result.directory, kept)
            _DONE[key] = kept, result
        else:
            kept, result = _DONE[key]
            shutil.copytree(kept, folder / runs / kept.name)
            status = folder / runs / kept.name / "status.json"  # it names the pipeline that the job belongs to
            about = {"pipeline": str((folder / "job.yaml").resolve())}
            status.write_text(json.dumps({**json.loads(status.read_text("utf-8")), **about}), "utf-8")
        return dataclasses.replace(result, directory=folder / runs / kept.name)

    return go


COUNTED = """
import sys
from airgen.cli import main
import airgen.llms.scripted as scripted
send = scripted.ScriptedBackend.send
async def counted(self, request):
    print("call")
    return await send(self, request)
scripted.ScriptedBackend.send = counted
main(sys.argv[1:])
"""
"""`airgen WORDS`, with a line for each call of the model: a test kills it at a known point of the work."""


@pytest.fixture
def model_says(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Request], Reply | None]], None]:
    """Let a function answer for the scripted model; if it returns None, the model answers as usual."""

    def replace(answer: Callable[[Request], Reply | None]) -> None:
        send = ScriptedBackend.send

        async def sending(self: ScriptedBackend, request: Request) -> Reply:
            return answer(request) or await send(self, request)

        monkeypatch.setattr(ScriptedBackend, "send", sending)

    return replace


@pytest.fixture
def asked(model_says: Callable[..., None]) -> list[Request]:
    """Record the requests to the model, which answers as usual."""
    requests: list[Request] = []
    model_says(requests.append)  # which gives None
    return requests

"""Every field of a pipeline, changed one at a time: a job that goes on gives what a new job gives.

A field that is marked SPEED changes neither the job's identity nor the dataset. Any other field changes the identity,
so that the job is run again; and the rows that are already there are used exactly where they still hold.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from job_maker import CORPUS, make_corpus
from pydantic import BaseModel
from rich.console import Console

from airgen import models
from airgen.errors import AirgenError
from airgen.pipeline import Job
from airgen.pipeline.progress import Display
from airgen.settings import Pipeline
from airgen.settings.base import marked

BASE: dict[str, Any] = {
    "name": "job", "task": "qa", "corpus": "small.yaml", "target": 4,
    "llm": {"backend": "scripted"},
    "generation": {"max_overlap": 0.9, "negatives": "both", "mined_ranks": [3, 9], "hard_negatives": [1, 3]},
    "control": {"recall": {"model": "all-minilm-l6-v2-int8", "top_k": 12}, "rerankers": ["bm25", "dense"]},
}  # fmt: skip
# Another value for each field, by its path. A new field has to come in here.
CHANGES: dict[str, Any] = {
    "task": "long-doc", "corpus": "other.yaml", "language": "de", "domain": "law", "target": 6, "seed": 7,
    "llm.model": "other", "llm.endpoint": "elsewhere", "llm.temperature": 0.5, "llm.top_p": 0.5, "llm.max_tokens": 900,
    "llm.latency": 0.001, "llm.concurrency": 3, "llm.budget_usd": 9.0,
    "llm.requests_per_minute": 100_000, "llm.tokens_per_minute": 99_999_999, "llm.timeout_seconds": 60.0,
    "llm.min_accepted": 0.2, "llm.thinking_tokens": 1000, "llm.retries": 2, "llm.max_failures": 0.9,
    "llm.prices": {"scripted": {"input": 0, "output": 0}},
    "generation.lengths": {"lt10": 1, "10to20": 1}, "generation.types": {"question": 1},
    "generation.information": {"overall": 1}, "generation.styles": {"formal": 1, "casual": 1},
    "generation.characters": 2, "generation.scenarios": 2, "generation.rewrites": 0,
    "generation.rewrite_length": "keep",
    "generation.hard_negatives": [2, 2], "generation.negatives": "generated", "generation.mined_ranks": [2, 6],
    "generation.attempts": 1, "generation.max_copied_words": 2, "generation.max_overlap": 0.7,
    "generation.max_title_overlap": 0.4, "generation.query_from": "need",
    "generation.meaning": {"model": "all-minilm-l6-v2-int8", "min_cosine": 0.9},
    "generation.prompts": "small", "generation.prompt_language": "own", "generation.queries_per_passage": 2,
    "generation.stages": ["extra_stage:STAGE"],
    "generation.variants": {"character": "small/character"}, "generation.examples": "examples.txt",
    "generation.answers": True, "generation.multi_hop": 0.5, "generation.unanswerable": 0.5,
    "generation.query_language": "nl", "generation.candidates": 2, "generation.min_score": 0.9,
    "control.recall.model": {"kind": "onnx", "model": "all-minilm-l6-v2-int8", "max_length": 16},
    "control.recall.top_k": 9, "control.recall.pools_only": True, "control.pools": ["bm25"],
    "control.rerankers": ["bm25"], "control.thresholds.hard_negative": 2, "control.thresholds.other": 3,
    "control.judge.kind": "rubric", "control.judge.prompt": "small/judge_yes_no_examples",
    "control.judge.threshold": 0.95, "control.judge.temperature": 0.7,
    "control.judge.llm": {"backend": "scripted", "model": "judge"}, "control.judge.relevant_from": 3,
    "control.judge.panel": [{"kind": "levels"}, {"kind": "yes-no"}, {"kind": "levels", "temperature": 0.1}],
    "control.judge.calibration": "own.json", "control.judge.need": True,
    "control.judge.profile": "train", "control.judge.unsure": [0.05, 0.95],
    "export.secret": False, "export.splits": {"dev": 1, "test": 1},
    "export.licence": "CC0-1.0", "export.ids": "original",
    "export.version": "9.9", "export.drop_saturated": 1.0,
    "queries": {"file": "own.txt"}, "control.systems": "systems.yaml",
    "evaluate.systems": "systems.yaml", "evaluate.split": "dev",
    "compute.kind": "ray", "compute.address": "ray://head:10001", "compute.workers": 2, "compute.gpus_per_worker": 1.0,
    "compute.cpus_per_worker": 2, "compute.memory_gb_per_worker": 4.0, "compute.batch_seconds": 60.0,
}  # fmt: skip
# A field that has an effect only beside another: what goes with it, in both jobs.
WITH: dict[str, dict[str, Any]] = {
    # The scripted model cannot answer these: both jobs try all documents instead of stopping early.
    "control.judge.kind": {"llm.min_accepted": 0}, "generation.prompts": {"llm.min_accepted": 0},
    "control.recall.pools_only": {"control.pools": ["bm25"]},
    "generation.examples": {"generation.rewrites": 0}, "generation.min_score": {"generation.candidates": 2},
    "compute.address": {"compute.kind": "ray"}, "compute.gpus_per_worker": {"compute.kind": "ray"},
    "compute.memory_gb_per_worker": {"compute.kind": "ray"},
    "control.judge.prompt": {"control.judge.kind": "yes-no"},
    "control.judge.threshold": {"control.judge.kind": "yes-no"},
    "control.judge.calibration": {"control.judge.kind": "yes-no"},
    "control.judge.profile": {"control.judge.kind": "yes-no", "control.judge.calibration": "own.json"},
    "control.judge.unsure": {"control.judge.kind": "yes-no"},
    "task": {
        "generation.negatives": "generated", "generation.hard_negatives": [0, 0], "generation.types": {"question": 1},
    },
}  # fmt: skip
NOT_TRIED = {
    "name": "it names the work directory",
    "llm.faults": "a double's: it strikes requests that have no answer yet",
    "llm.backend": "other backends need a model or a key; tests/llms changes their fields",
}
STAGE = """
from airgen.keys import row_key
from airgen.pipeline.stage import Problem, Stage, skip
from airgen.records import Query, Row, Scenario

async def work(lineage, tools):
    return [skip("extra", lineage.one(Query).key, tools, Problem("nothing to say"))]

STAGE = Stage("extra", (Query,), Scenario, 1, work, lambda pipeline, prompts: {}, ends=False, after="query")
"""


def leaves(model: BaseModel, path: str = "") -> Iterator[tuple[str, bool]]:
    """The path of every field that is no settings model itself, and whether it is marked SPEED."""
    speed = {name for name, _ in marked(type(model), "speed")}
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", name in speed


FIELDS = dict(leaves(Pipeline.model_validate(BASE)))


def changed(values: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(values))
    *parents, last = path.split(".")
    place = copy
    for name in parents:
        place = place.setdefault(name, {})
    place[last] = value
    return dict(copy)


def test_every_field_is_changed_here() -> None:
    assert set(FIELDS) == {*CHANGES, *NOT_TRIED}
    for path, value in CHANGES.items():
        assert changed(BASE, path, value) != BASE, path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two corpora and what the changes name."""
    if not models.fetched("all-minilm-l6-v2-int8"):
        pytest.skip("airgen models fetch tests")
    folder = tmp_path_factory.mktemp("settings")
    make_corpus(folder / "small.jsonl", 24)
    (folder / "small.yaml").write_text(CORPUS + "long_doc: {merge: true}\n", encoding="utf-8")
    make_corpus(folder / "other.jsonl", 20)
    other = CORPUS.replace("name: small", "name: other").replace("small.jsonl", "other.jsonl")
    (folder / "other.yaml").write_text(other, encoding="utf-8")
    (folder / "extra_stage.py").write_text(STAGE, encoding="utf-8")
    (folder / "own.txt").write_text("why do yeast need repair\nbridges in northern valleys\n", encoding="utf-8")
    examples = [f"which {word} need repair?" for word in ("bells", "boats", "clocks", "roofs", "wells")]
    examples += [f"{word} prices" for word in ("tea", "salt", "rope", "wool", "tin", "oats")]
    (folder / "examples.txt").write_text("\n".join(examples), encoding="utf-8")
    (folder / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}]\n", encoding="utf-8")
    weights = {"format": 1, "weights": {"scores": 1.0, "votes": 1.0}, "intercept": 0.2, "threshold": 0.5, "judge": {}}
    weights["profiles"] = {"train": 0.9}
    (folder / "own.json").write_text(json.dumps(weights), encoding="utf-8")
    return folder


def data(home: Path, values: dict[str, Any], runs: Path) -> tuple[str, dict[str, Any] | str]:
    """The identity of a job, and its rows and funnel, or the error that it ends with."""
    path = home / "job.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    job = Job(path, runs)
    try:
        job.run(Display(job.directory / "status.json", Console(quiet=True)))
    except AirgenError as error:
        return job.identity, str(error)
    found: dict[str, Any] = dict(json.loads((job.dataset / "manifest.json").read_text(encoding="utf-8")))
    found = {
        name: found[name] for name in ("funnel", "statistics", "provenance", "splits", "labels_licence", "version")
    }
    for file in sorted(job.dataset.rglob("*")):
        name = file.relative_to(job.dataset).as_posix()
        if file.is_file() and name.startswith(("corpus", "queries", "qrels", "private")):
            found[name] = file.read_bytes()
    return job.identity, found


@pytest.fixture(scope="module")
def finished(home: Path) -> dict[str, Any]:
    """Jobs that are done, by their settings."""
    return {}


@pytest.mark.parametrize("path", sorted(CHANGES))
def test_a_job_that_goes_on_gives_what_a_new_one_gives(
    path: str, home: Path, finished: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(home))
    before = BASE
    for other, value in WITH.get(path, {}).items():
        before = changed(before, other, value)
    name = json.dumps(before)
    if name not in finished:
        runs = home / f"runs{len(finished)}"
        finished[name] = (runs, *data(home, before, runs))
    runs, identity, old = finished[name]
    after = changed(before, path, CHANGES[path])
    shutil.copytree(runs, tmp_path / "went-on")
    again, went_on = data(home, after, tmp_path / "went-on")
    _, new = data(home, after, tmp_path / "new")
    if path in ("corpus", "task"):  # other passages: the next version of the same dataset
        assert (went_on["version"], new["version"]) == ("0.2", "0.1")
        new = {**new, "version": "0.2"}
    assert went_on == new
    if FIELDS[path]:
        assert (again, new) == (identity, old)
    elif not path.startswith("evaluate."):
        assert again != identity

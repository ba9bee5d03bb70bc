"""Every field of a pipeline, changed one at a time: a job that goes on gives what a new job gives.

A field that is marked SPEED changes nothing. Any other field changes the job's identity, so that the job is run again,
and the fingerprint of the first stage that it matters to, so that this stage's rows are made again and no earlier ones.
That is compared for every field, without a run where the plan is known before it. The run itself is compared for each
field of quality control, for all of the export at once, and for one field of each stage of generation; with a new job
only for one field of each stage of quality control, and each night for all of them.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from job_maker import CORPUS, changed, job_of, make_corpus, run_quietly
from pydantic import BaseModel

from airgen import models
from airgen.errors import AirgenError
from airgen.job import Job
from airgen.settings import Pipeline
from airgen.settings.base import marked

SHORT = {"kind": "onnx", "model": "all-minilm-l6-v2-int8", "max_length": 32}
BASE: dict[str, Any] = {
    "name": "job", "task": "qa", "corpus": "small.yaml", "target": 4,
    "llm": {"backend": "scripted"},
    "generation": {"max_overlap": 0.9, "negatives": "both", "hard_negatives": [1, 3]},
    "control": {
        "recall": {"model": SHORT, "top_k": 18}, "rerankers": ["bm25", {"kind": "dense", "embedder": SHORT}],
    },
}  # fmt: skip
# Another value for each field, by its path, below the first stage whose rows are made again. A new field has to come in
# here. "speed": nothing changes. "dataset": the identity alone; what is exported differs.
CHANGES: dict[str, dict[str, Any]] = {
    "speed": {
        "llm.latency": 0.001, "llm.concurrency": 1, "llm.budget_usd": 9.0, "llm.requests_per_minute": 100_000,
        "llm.tokens_per_minute": 99_999_999, "llm.timeout_seconds": 60.0,
        "llm.prices": {"scripted": {"input": 0, "output": 0}},
        "compute.kind": "ray", "compute.address": "ray://head:10001", "compute.workers": 2,
        "compute.gpus_per_worker": 1.0, "compute.cpus_per_worker": 2,
        "evaluate.systems": "systems.yaml", "evaluate.split": "dev", "evaluate.mlflow": "sqlite:///tracking.db",
    },
    "corpus": {"task": "long-doc", "corpus": "other.yaml"},
    "sample": {"seed": 7, "export.secret": False, "generation.multi_hop": 0.5, "generation.stratify": "title"},
    "character": {
        "language": "de", "llm.model": "other", "llm.endpoint": "elsewhere", "llm.temperature": 0.5,
        "llm.max_tokens": 900, "llm.size": "small",
        "generation.characters": 2, "generation.prompts": "small", "generation.one_call": True,
        "generation.unasked": "keep",
        "generation.variants": {"character": "small/character"},
    },
    "scenario": {"generation.scenarios": 2, "generation.information": {"overall": 1}},
    "need": {"generation.method": "needs"},
    "query": {
        "generation.lengths": {"lt10": 1, "10to20": 1}, "generation.types": {"question": 1},
        "generation.rewrites": 0, "generation.max_copied_words": 2,
        "generation.examples": "examples.txt", "generation.query_language": "nl",
        "generation.candidates": 2,
    },
    "rewrite": {
        "generation.styles": {"formal": 1, "casual": 1},
        "generation.max_overlap": 0.7, "generation.max_title_overlap": 0.4,
        "generation.meaning": {"model": "all-minilm-l6-v2-int8", "min_cosine": 0.9},
    },
    "judgment": {
        "control.judge.kind": "rubric", "control.judge.prompt": "small/judge_yes_no_examples",
        "control.judge.threshold": 0.95, "control.judge.temperature": 0.7,
        "control.judge.examples": [{"query": "what do bees eat", "passage": "Bees feed on nectar.", "level": 3}],
        "control.judge.llm": {"backend": "scripted", "model": "judge"},
        "control.judge.panel": [{"kind": "levels"}, {"kind": "yes-no"}, {"kind": "levels", "temperature": 0.1}],
    },
    "reference_answer": {"generation.answers": True},
    "hard_negative": {"generation.hard_negatives": [2, 2]},
    "extra": {"generation.stages": ["extra_stage:STAGE"]},
    "own_query": {"queries": {"file": "own.txt"}},
    "recall": {
        "target": 6, "control.recall.model": {**SHORT, "max_length": 16},
        "control.recall.top_k": 14, "control.recall.pools_only": True, "control.pools": ["bm25"],
        "control.systems": "systems.yaml", "control.judge.relevant_from": 1,
    },
    "prelabel:1": {"control.rerankers": ["bm25"]},
    "decision": {
        "relevance": "subject",
        "control.thresholds.hard_negative": 2, "control.thresholds.other": 3, "control.most_others": 0,
    },
    "mined_negative": {"generation.negatives": "generated"},
    "dataset": {
        "domain": "law", "generation.queries_per_passage": 2, "generation.filters": ["title"],
        "generation.negatives_of": "all",
        "generation.unanswerable": 0.5, "generation.mistyped": 0.5,
        "export.splits": {"dev": 1, "test": 1}, "export.exact": True,
        "export.licence": "CC0-1.0", "export.ids": "original", "export.version": "9.9",
    },
    "wording": {  # like "dataset", but one at a time
        "generation.wording.plain": 0, "generation.wording.terms": 5, "generation.wording.lay": 5,
        "generation.wording.described": 5, "generation.wording.overlap": 0.1, "generation.wording.like": "examples.txt",
    },
}  # fmt: skip
VALUES = {path: value for fields in CHANGES.values() for path, value in fields.items()}
STAGES = {path: stage for stage, fields in CHANGES.items() for path in fields}
# What quality control and the export do is run for every field; of generation, a field for each stage, and those that
# have rows of their own. A job that goes on with another `export.secret` is refused (tests/job/test_ids.py).
ALONE = ("judgment", "recall", "prelabel:1", "decision", "mined_negative", "dataset", "wording")
CONTROL = [path for stage in ALONE[:-2] for path in CHANGES[stage]]
COMPARED = ["control.judge.kind", "target", "control.rerankers", "control.thresholds.other", "generation.negatives"]
COMPARED += ["task", "corpus", "generation.multi_hop", "generation.scenarios", "generation.rewrites"]
COMPARED += ["generation.candidates", "generation.answers", "queries"]
NIGHTLY = ["seed", "language", "generation.characters", "generation.examples", "generation.meaning"]
NIGHTLY += ["generation.hard_negatives", "generation.stages", *CHANGES["dataset"]]
NIGHTLY += [path for path in CONTROL if path not in COMPARED]
# A field that has an effect only beside another: what goes with it, in both jobs.
WITH: dict[str, dict[str, Any]] = {
    "control.recall.pools_only": {"control.pools": ["bm25"]},
    "generation.examples": {"generation.rewrites": 0},
    "generation.one_call": {"generation.prompts": "small"},
    **{
        f"generation.wording.{field}": {"generation.method": "needs"}
        for field in ("terms", "lay", "described", "overlap", "like")
    },
    "generation.wording.plain": {"generation.method": "needs", "generation.wording.lay": 1},
    "compute.address": {"compute.kind": "ray"}, "compute.gpus_per_worker": {"compute.kind": "ray"},
    "control.judge.prompt": {"control.judge.kind": "yes-no"},
    "control.judge.threshold": {"control.judge.kind": "yes-no"},
    "relevance": {"control.judge.kind": "votes", "control.recall.top_k": 100},
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
from airgen.components.keys import row_key
from airgen.steps.step import Problem, Step, skip
from airgen.storage.records import Query, Row, Scenario

async def work(lineage, tools):
    return [skip("extra", lineage.one(Query).key, tools, Problem("nothing to say"))]

STAGE = Step("extra", (Query,), Scenario, 1, work=work, ends=False, after="query")
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


def test_every_field_is_changed_here() -> None:
    assert set(FIELDS) == {*VALUES, *NOT_TRIED}
    for path, value in VALUES.items():
        assert changed(BASE, {path: value}) != BASE, path
    # The size changes no answer, but it decides what the pipeline does not say: prompts, lengths, judge.
    speed = {path for path, is_speed in FIELDS.items() if is_speed and path not in NOT_TRIED} - {"llm.size"}
    assert speed <= CHANGES["speed"].keys()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two corpora and what the changes name."""
    if not models.fetched("all-minilm-l6-v2-int8"):
        pytest.skip("airgen fetch tests")
    folder = tmp_path_factory.mktemp("settings")
    make_corpus(folder / "small.jsonl", 24)
    text = CORPUS.replace("path: small.jsonl", "path: small.jsonl, metadata: [title]")
    (folder / "small.yaml").write_text(text + "long_doc: {merge: true}\n", encoding="utf-8")
    make_corpus(folder / "other.jsonl", 20)
    other = CORPUS.replace("name: small", "name: other").replace("small.jsonl", "other.jsonl")
    (folder / "other.yaml").write_text(other, encoding="utf-8")
    (folder / "extra_stage.py").write_text(STAGE, encoding="utf-8")
    (folder / "own.txt").write_text("why do yeast need repair\nbridges in northern valleys\n", encoding="utf-8")
    examples = [f"which {word} need repair?" for word in ("bells", "boats", "clocks", "roofs", "wells")]
    examples += [f"{word} prices" for word in ("tea", "salt", "rope", "wool", "tin", "oats")]
    (folder / "examples.txt").write_text("\n".join(examples), encoding="utf-8")
    (folder / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}]\n", encoding="utf-8")
    return folder


@dataclass(frozen=True)
class Before:
    """A job that is done, and its folder when only its candidates were generated."""

    folder: Path
    identity: str
    plan: dict[str, str]
    data: dict[str, Any] | str


class World:
    """The folder with the corpora, and the jobs in it that are done, by their settings."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.known: dict[str, Before] = {}

    def job(self, values: dict[str, Any], runs: Path) -> Job:
        return job_of(self.home / "job.yaml", values, runs)

    def data(self, values: dict[str, Any], runs: Path) -> dict[str, Any] | str:
        """The rows and the funnel of a job that has run to its end, or the error that it ends with."""
        job = self.job(values, runs)
        try:
            run_quietly(job)
        except AirgenError as error:
            return str(error)
        found: dict[str, Any] = dict(json.loads((job.dataset / "manifest.json").read_text(encoding="utf-8")))
        found = {
            name: found[name] for name in ("funnel", "statistics", "provenance", "splits", "labels_licence", "version")
        }
        for file in sorted(job.dataset.rglob("*")):
            name = file.relative_to(job.dataset).as_posix()
            if file.is_file() and name.startswith(("corpus", "queries", "qrels", "private")):
                found[name] = file.read_bytes()
        return found

    def plan(self, values: dict[str, Any], runs: Path) -> dict[str, str]:
        """The fingerprints of a job that has run to its end."""
        job = self.job(values, runs)
        with job.open_store() as store:
            return dict(job.plan(store))

    def beside(self, path: str) -> dict[str, Any]:
        """The settings that a field is changed in."""
        return changed(BASE, WITH.get(path, {}))

    def before(self, path: str) -> tuple[dict[str, Any], Before]:
        """The settings that a field is changed in, and their finished job."""
        values = self.beside(path)
        name = json.dumps(values)
        if name not in self.known:
            folder = self.home / f"before{len(self.known)}"
            job = self.job(values, folder / "done")
            run_quietly(job, until="rewrite")
            shutil.copytree(folder / "done", folder / "generated")
            found = self.data(values, folder / "done")
            self.known[name] = Before(folder, job.identity, self.plan(values, folder / "done"), found)
        return values, self.known[name]


@pytest.fixture(scope="module")
def world(home: Path) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(home))
        yield World(home)


def first_changed(before: dict[str, str], after: dict[str, str]) -> str | None:
    """The first stage that is new, gone or has another fingerprint; a plan is in the order of the work."""
    names = {name for name in before | after if before.get(name) != after.get(name)} - {"control settings", "target"}
    known = [name for name in before if name in names]
    return next(iter(sorted(names - set(known)) or known), None)


@pytest.mark.parametrize("stage", [stage for stage in CHANGES if stage not in ALONE])
def test_a_field_changes_its_stage_and_those_after_it(stage: str, world: World) -> None:
    runs = world.before("target")[1].folder / "done"
    for path, value in CHANGES[stage].items():
        values = world.beside(path)
        before, after = world.job(values, runs), world.job(changed(values, {path: value}), runs)
        assert (before.identity == after.identity) == (stage == "speed"), path
        assert first_changed(before.fingerprints, after.fingerprints) == (None if stage == "speed" else stage), path


def test_what_is_for_speed_changes_no_dataset(world: World, tmp_path: Path) -> None:
    values, before = world.before("llm.concurrency")
    values = changed(values, {path: value for path, value in CHANGES["speed"].items() if path.startswith("llm.")})
    assert world.data(values, tmp_path) == before.data


def test_every_field_of_the_export_at_once(world: World, tmp_path: Path) -> None:
    values, before = world.before("domain")
    for path, value in CHANGES["dataset"].items():
        changed_alone = world.job(changed(BASE, {path: value}), tmp_path / "alone")
        assert changed_alone.identity != before.identity, path
        values = changed(values, {path: value})
    shutil.copytree(before.folder / "done", tmp_path / "went-on")
    shutil.copytree(before.folder / "generated", tmp_path / "new")
    assert world.data(values, tmp_path / "went-on") == world.data(values, tmp_path / "new")
    assert first_changed(before.plan, world.plan(values, tmp_path / "went-on")) is None


@pytest.mark.parametrize("path", CHANGES["wording"])
def test_another_wording_changes_the_dataset_alone(path: str, world: World, tmp_path: Path) -> None:
    values = world.beside(path)
    before, after = (world.job(each, tmp_path) for each in (values, changed(values, {path: VALUES[path]})))
    assert before.identity != after.identity and before.fingerprints == after.fingerprints


@pytest.mark.parametrize("path", [path for path in CONTROL if path not in COMPARED])
def test_a_field_of_control_makes_its_rows_again(path: str, world: World, tmp_path: Path) -> None:
    values, before = world.before(path)
    after = changed(values, {path: VALUES[path]})
    shutil.copytree(before.folder / "done", tmp_path / "runs")
    assert world.job(after, tmp_path / "runs").identity != before.identity
    if isinstance(world.data(after, tmp_path / "runs"), dict):
        assert first_changed(before.plan, world.plan(after, tmp_path / "runs")) == STAGES[path]


@pytest.mark.parametrize("path", [*COMPARED, *(pytest.param(path, marks=pytest.mark.nightly) for path in NIGHTLY)])
def test_a_job_that_goes_on_gives_what_a_new_one_gives(
    path: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path in ("control.judge.kind", "generation.prompts"):  # the scripted model cannot answer these
        monkeypatch.setattr("airgen.llms.health.FALSE_STOP", 1e-300)
    values, before = world.before(path)
    after = changed(values, {path: VALUES[path]})
    stage = STAGES[path]
    shutil.copytree(before.folder / "done", tmp_path / "went-on")
    if stage in ALONE and path not in ("control.judge.kind", "target"):  # the candidates are those of the job before
        shutil.copytree(before.folder / "generated", tmp_path / "new")
    assert world.job(after, tmp_path / "went-on").identity != before.identity
    went_on = world.data(after, tmp_path / "went-on")
    new = world.data(after, tmp_path / "new")
    if path in ("corpus", "task"):  # other passages: the next version of the same dataset
        assert isinstance(went_on, dict) and isinstance(new, dict)
        assert (went_on["version"], new["version"]) == ("0.2", "0.1")
        new = {**new, "version": "0.2"}
    assert went_on == new
    if stage in ALONE and isinstance(new, dict):
        found = first_changed(before.plan, world.plan(after, tmp_path / "went-on"))
        assert found == (None if stage == "dataset" else stage)

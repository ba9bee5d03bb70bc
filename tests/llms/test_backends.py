"""What a backend declares is all that the pipeline knows of it, for backends of the package and from outside."""

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest
from job_maker import CORPUS, PIPELINE, make_corpus
from refusals import refused
from rich.console import Console

from airgen.components.registry import names
from airgen.errors import LlmError, SettingsError
from airgen.job import Job
from airgen.job.estimate import estimate
from airgen.job.preflight import preflight
from airgen.job.run_job import run_job
from airgen.llms.base import CallLimits, Message, Request
from airgen.llms.openai import OpenAISettings
from airgen.settings import LlmSettings, Pipeline
from airgen.settings.base import marked, parse_yaml
from airgen.settings.llm import answer_parts
from airgen.steps.ask import connect, make_engine, workers_of
from airgen.steps.progress import Display
from airgen.storage.store import Store

OUTSIDE = '''
"""A backend from outside the package."""

from typing import Annotated

from airgen.llms.base import Backend, Reply, Request
from airgen.llms.scripted import ScriptedBackend
from airgen.settings.base import SPEED
from airgen.settings.llm import LlmSettings


class LoudSettings(LlmSettings):
    backend: str = "outside:LoudBackend"
    model: str = "loud"
    marks: str = "!"
    pause: Annotated[float, SPEED] = 0.0


class LoudBackend(Backend):
    Settings = LoudSettings

    @classmethod
    def make(cls, settings, *, folder, rules):
        backend = cls()
        backend.marks, backend.inner = settings.marks, ScriptedBackend(rules=rules)
        return backend

    @classmethod
    def missing(cls, settings):
        return [] if settings.marks else ["llm.marks: give at least one"]

    async def send(self, request: Request) -> Reply:
        reply = await self.inner.send(request)
        return Reply(reply.text.replace("?", self.marks), prompt_tokens=10, completion_tokens=2)
'''


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a backend in a module that airgen does not know."""
    (tmp_path / "outside.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    monkeypatch.delitem(importlib.sys.modules, "outside", raising=False)  # type: ignore[attr-defined]
    return "outside:LoudBackend"


def pipeline(llm: object, judge: object = None) -> Pipeline:
    value = {"name": "p", "task": "qa", "corpus": "c", "target": 1, "llm": llm, "control": {"judge": judge or {}}}
    return Pipeline.model_validate(value)


# -- settings -----------------------------------------------------------------------------------------------------

OTHER: dict[str, Any] = {  # another valid value of each field
    "model": "another", "endpoint": "another", "temperature": 0.5, "max_tokens": 7, "concurrency": 7,
    "budget_usd": 7.0, "requests_per_minute": 7, "tokens_per_minute": 7, "timeout_seconds": 7.0,

    "prices": {"m": {"input": 1.0, "output": 1.0}}, "base_url": "http://h/v1",
    "api_key_env": "K", "headers": {"X-Team": "a"}, "query": {"api-version": "1"}, "extra_body": {"x": 1},
    "reasoning_effort": "low",
    "mode": "batch", "size": "small", "version": "2", "place": "p.yaml:3",
    "threads": 7, "faults": {"prose": 0.5}, "latency": 7.0,
}  # fmt: skip


@pytest.mark.parametrize("backend", names("backend"))
def test_each_setting_changes_the_fingerprint_or_is_marked_as_about_speed(backend: str) -> None:
    llm = LlmSettings.model_validate({"backend": backend, "model": "m"})
    speed = {name for name, _ in marked(type(llm), "speed")}
    for name in type(llm).model_fields.keys() - {"backend"}:
        changed = LlmSettings.model_validate({"backend": backend, "model": "m", name: OTHER[name]})
        assert getattr(changed, name) != getattr(llm, name)
        assert (answer_parts(changed) == answer_parts(llm)) == (name in speed), name


def test_one_model_behind_two_backends_has_one_fingerprint() -> None:
    parts = {"model": "m", "endpoint": "default", "temperature": 1.0, "max_tokens": 1024}
    assert answer_parts(pipeline({"model": "m", "mode": "batch"}).llm) == parts
    assert answer_parts(pipeline({"backend": "embedded", "model": "m", "threads": 2}).llm) == parts
    scripted = pipeline({"backend": "scripted", "model": "m", "faults": {"prose": 0.1}, "latency": 1}).llm
    assert answer_parts(scripted) == {**parts, "backend": "scripted"}


@pytest.mark.parametrize(
    ("llm", "problems"),
    [
        ("{backend: openi, model: m}", ["llm.backend: unknown backend 'openi' (did you mean 'openai'?)"]),
        ("{backend: scripted, latncy: 1, threads: x}", ["(did you mean 'latency'?)", "llm.threads: unknown key"]),
        ("{model: m, base_ulr: x, concurrency: 0}", ["(did you mean 'base_url'?)", "llm.concurrency: input should be"]),
        ("{backend: embedded, base_url: 'http://h'}", ["llm.base_url: unknown key"]),
        ("{backend: 'no_such_module:X', model: m}", ["llm.backend: backend 'no_such_module:X' cannot be imported"]),
        ("{backend: 'json:JSONDecoder', model: m}", ["derive it from airgen.llms.base.Backend"]),
        ("{backend: null}", ["unknown backend 'None'"]),
        ("embedded", ["llm: input should be"]),
    ],
)
def test_every_wrong_key_is_said_with_the_line_and_the_closest_name(llm: str, problems: list[str]) -> None:
    text = f"name: p\ntask: qa\ncorpus: c\ntarget: 1\nllm: {llm}\n"
    with pytest.raises(SettingsError) as caught:
        parse_yaml(text, Pipeline, "p.yaml")
    assert len(caught.value.problems) == len(problems)
    for problem in problems:
        assert any(problem in line and line.startswith("p.yaml:5: ") for line in caught.value.problems), problem


# -- several LLMs in one job ---------------------------------------------------------------------------------------


def test_each_llm_has_its_own_limits_and_price(tmp_path: Path) -> None:
    own: dict[str, Any] = {"model": "gpt-4o-mini", "base_url": "http://a/v1", "timeout_seconds": 5, "concurrency": 3}
    own["prices"] = {"gpt-4o-mini": {"input": 0, "output": 0}}  # without it, a gateway on this machine is not free
    found = pipeline(own, {"llm": {"model": "gpt-4o-mini", "endpoint": "openai", "mode": "batch"}}).llms
    generator, labeler = (connect(llm, tmp_path, {}) for llm in found.values())
    assert generator.limits == CallLimits(3, timeout=5.0, retries=6)
    assert labeler.limits == CallLimits(50_000, adaptive=False, timeout=None, retries=6)
    assert workers_of(*found.values()) == 50_000
    assert generator.price is not None and generator.price.output == 0
    assert labeler.price is not None and labeler.price.output == 0.3


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        ({"base_url": "http://b/v1"}, "base_url"),
        ({"base_url": "http://a/v1", "mode": "batch"}, "mode"),
        ({"base_url": "http://a/v1", "timeout_seconds": 9}, "timeout_seconds"),
        ({"backend": "scripted"}, "backend, base_url"),
    ],
)
def test_two_settings_of_one_model_are_an_error_with_advice(judge: dict[str, Any], words: str) -> None:
    llm = {"model": "m", "base_url": "http://a/v1", "timeout_seconds": 5}
    with pytest.raises(ValueError, match=f"different values of {words}.*another name as `endpoint`"):
        pipeline(llm, {"llm": {"model": "m", **judge}})
    assert len(pipeline(llm, {"llm": {"model": "m", "endpoint": "other", **judge}}).llms) == 2


def test_a_limit_holds_for_all_who_ask_one_model_and_the_budget_for_the_job() -> None:
    (llm,) = pipeline({"model": "m", "timeout_seconds": 1}, {"llm": {"model": "m", "concurrency": 9}}).llms.values()
    assert (llm.timeout_seconds, llm.concurrency) == (1, 9)
    with pytest.raises(ValueError, match=r"one budget: give it in llm\.budget_usd"):
        pipeline({"model": "m"}, {"llm": {"model": "j", "budget_usd": 1}})


def test_only_what_can_change_the_dataset_makes_a_finished_job_unfinished(tmp_path: Path) -> None:
    def identity(llm: dict[str, Any], judge: dict[str, Any]) -> str:
        changed = pipeline({"model": "m", **llm}, {"llm": {"model": "j", **judge}})
        return Job(found.path, tmp_path / "runs", pipeline=changed.model_copy(update={"corpus": "small.yaml"})).identity

    found = job(tmp_path, "{backend: scripted}")
    before = identity({}, {})
    speed = {
        name: value for name, value in OTHER.items() if name in {one for one, _ in marked(OpenAISettings, "speed")}
    }
    del speed["size"]  # it decides what the pipeline does not say: prompts, lengths, judge
    for name, value in speed.items():
        assert identity({name: value}, {}) == before, name
        assert name == "budget_usd" or identity({}, {name: value}) == before, name
    others = [identity({"temperature": 0.5}, {}), identity({}, {"endpoint": "x"}), identity({}, {"model": "k"})]
    assert len({before, *others}) == 4


# -- from outside --------------------------------------------------------------------------------------------------


def job(folder: Path, llm: str) -> Job:
    make_corpus(folder / "small.jsonl", 10)
    (folder / "small.yaml").write_text(CORPUS, encoding="utf-8")
    text = PIPELINE.replace("{backend: scripted, concurrency: 32}", llm).replace("target: 4", "target: 2")
    assert llm in text
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    return Job(folder / "job.yaml", folder / "runs")


def run(job: Job) -> list[str]:
    run_job(job, Display(job.directory / "status.json", Console(quiet=True)), until="scenario")
    with job.open_store(read_only=True) as store:
        return [text for (text,) in store.query("SELECT text FROM answer WHERE model = 'loud' ORDER BY key")]


def test_a_backend_from_outside_is_checked_estimated_and_run(outside: str, tmp_path: Path) -> None:
    found = job(tmp_path, f"{{backend: '{outside}'}}")
    assert not [line for line in preflight(found) if line.startswith("llm")]
    assert estimate(found).usd == 0.0
    assert run(found)
    assert "llm.marks: give at least one" in preflight(job(tmp_path, f"{{backend: '{outside}', marks: ''}}"))
    with refused(SettingsError, "unknown_key", "marks"):
        job(tmp_path, f"{{backend: '{outside}', mraks: '!!'}}")


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("send", "raise KeyError('choices')"),
        ("send", "raise SystemExit(3)"),
        ("send", "import asyncio; raise ExceptionGroup('two', [ValueError('x' * 400)])"),
        ("make", "return settings.no_such_setting"),
        ("price", "raise RuntimeError('no price list')"),
    ],
)
def test_whatever_a_backend_raises_ends_the_job_in_one_line_that_names_its_place(
    outside: str, tmp_path: Path, method: str, body: str
) -> None:
    heads = {
        "send": "    async def send(self, request):",
        "make": "    @classmethod\n    def make(cls, settings, *, folder, rules):",
        "price": "    @classmethod\n    def price(cls, settings):",
    }
    (tmp_path / "outside.py").write_text(f"{OUTSIDE}\n{heads[method]}\n        {body}\n")
    found = job(tmp_path, f"{{backend: '{outside}'}}")
    with pytest.raises(LlmError) as caught:
        run(found)
    said = str(caught.value)
    assert said.startswith("outside:LoudBackend: ") and "outside.py:" in said
    assert "\n" not in said and len(said) < 500


def test_its_own_settings_change_the_answers_or_the_speed_as_it_says(outside: str, tmp_path: Path) -> None:
    def ask(**settings: object) -> tuple[str, dict[str, Any]]:
        found = pipeline({"backend": outside, **settings})
        request = Request("loud", (Message("user", "x"),), stage="query")

        async def main() -> str:
            with Store.open(tmp_path / "w.duckdb") as store:
                rules = {"query": lambda request: "why?"}
                async with make_engine(found, store, budget_usd=None, retry_failed=False, rules=rules) as engine:
                    return (await engine.ask(request)).text

        return asyncio.run(main()), answer_parts(found.llm)

    assert ask() == ask(pause=0.1)
    assert ask()[0] == "why!" and ask(marks="!!")[0] == "why!!"  # not the answer that is on the disk for "!"
    assert ask()[1] != ask(marks="!!")[1]

"""The probe: what it learns of a model, what it measures, and that it is paid for and remembered."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from http_double import Asked, answering
from job_maker import CORPUS, PIPELINE, make_corpus
from rich.console import Console
from simulation import simulate

from airgen import models
from airgen.errors import BudgetSpent, LlmError, SettingsError
from airgen.job import Job
from airgen.job.estimate import estimate
from airgen.job.preflight import probe_models
from airgen.job.run_job import run_pipeline
from airgen.llms.accepted_parameters import FIRST_ROOM
from airgen.llms.base import Request
from airgen.llms.chat import count_messages
from airgen.llms.probe import STAGE, ModelProfile, probe, read_profiles
from airgen.settings import LlmSettings
from airgen.storage.json_values import kept_of, plain
from airgen.storage.records import Answer
from airgen.text.token_counts import count_tokens


class Timed:
    """A model of known latency and speeds, which serves one call at a time or many."""

    def __init__(self, latency: float, read: float, write: float, many: bool) -> None:
        self.latency, self.read, self.write = latency, read, write
        self.turn = None if many else asyncio.Lock()
        self.asked: list[Request] = []

    async def ask(self, request: Request) -> Answer:
        self.asked.append(request)
        began = asyncio.get_running_loop().time()
        text = "2" if request.schema is None else json.dumps({"sentences": "bees " * 50, "query": "why?"})
        prompt, written = 2 * count_messages(request.messages), count_tokens(text)
        if self.turn:
            async with self.turn:
                await asyncio.sleep(self.latency + prompt * self.read + written * self.write)
        else:
            await asyncio.sleep(self.latency + prompt * self.read + written * self.write)
        seconds = asyncio.get_running_loop().time() - began
        return Answer("k", STAGE, "m", "default", text, "", "stop", prompt, 0, written, seconds=seconds)


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("speed", [(0.5, 0.0001, 0.01), (0.0, 0.04, 0.14), (2.0, 0.0, 0.0)])
def test_it_tells_latency_reading_and_writing_apart(speed: tuple[float, float, float], many: bool) -> None:
    async def main() -> ModelProfile:
        return await probe(Timed(*speed, many), LlmSettings.model_validate({"backend": "scripted", "model": "m"}))

    found = simulate(main)
    assert (found.latency, found.read, found.write) == pytest.approx(speed, abs=1e-4)
    assert found.tokens == pytest.approx(2.0) and found.thinking == 0 and found.problems == []
    alone = 100 * speed[0] + 1000 * speed[1] + 500 * speed[2]
    assert found.seconds(100, 1000, 500, 10) == pytest.approx(alone / (10 if many else 1), rel=0.01)
    assert found.seconds(3, 0, 0, 10) == pytest.approx(speed[0] if many else 3 * speed[0], rel=0.01, abs=1e-3)
    assert kept_of(ModelProfile, json.loads(json.dumps(plain(found)))) == found


@pytest.mark.parametrize("value", [{"tokens": "x"}, {"latency": -1.0}, {"read": 1e99}, {"known": []}])
def test_a_damaged_profile_is_none(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(value))):
        kept_of(ModelProfile, {**plain(ModelProfile()), **value})


# -- of a job ---------------------------------------------------------------------------------------------------------


def write(folder: Path, url: str, more: str = "", judge: str = "") -> Path:
    make_corpus(folder / "small.jsonl", 20)
    (folder / "small.yaml").write_text(CORPUS, encoding="utf-8")
    llm = f"{{model: m, base_url: '{url}', concurrency: 4, prices: {{m: {{input: 1, output: 10}}}}{more}}}"
    text = PIPELINE.replace("{backend: scripted, concurrency: 32}", llm)
    assert llm in text
    text = text.replace("[bm25, dense, all-minilm-l6-v2-int8]", "[bm25]").replace("all-minilm-l6-v2-int8", "bm25")
    (folder / "job.yaml").write_text(text + (f"  judge: {judge}\n" if judge else ""), encoding="utf-8")
    return folder / "job.yaml"


def probed(path: Path, **options: Any) -> tuple[Job, list[str]]:
    said: list[str] = []
    job = Job(path, path.parent / "runs")
    probe_models(job, said.append, **options)
    return job, said


def test_what_was_learnt_is_remembered_and_the_probe_is_paid_once(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(scripted=True, thinks=200, refuse=["temperature"], refuse_max_tokens=True)
    path = write(tmp_path, server.base_url, judge="{prompt: small/judge_yes_no, kind: yes-no}")
    before = Job(path, tmp_path / "runs")
    identity, fingerprints = before.identity, before.fingerprints
    job, said = probed(path)
    assert (job.identity, job.fingerprints) == (identity, fingerprints)
    asked = server.stats()["requests"]
    assert asked <= 7 + 3 and any("thinks about" in line for line in said)
    assert any("logprobs" in body for body in server.stats()["bodies"])  # the judge of this job wants them
    with job.open_store(read_only=True) as store:
        (paid,) = store.query("SELECT sum(usd) FROM payment")[0]
    assert 0 < paid < 0.05
    profile = next(iter(read_profiles(job.directory, job.pipeline.llms.values()).values()))
    assert profile.known["dropped"] == ["temperature"] and profile.known["room"] >= FIRST_ROOM
    probed(path)
    assert server.stats()["requests"] == asked
    found = estimate(job)
    plain = estimate(Job(path, tmp_path / "elsewhere"))
    assert found.seconds is not None and found.seconds > 0 and plain.seconds is None
    calls = sum(stage.calls for stage in found.stages)
    more = sum(stage.completion_tokens for stage in found.stages) - sum(one.completion_tokens for one in plain.stages)
    assert more == pytest.approx(calls * profile.thinking, rel=0.1) and profile.thinking > 100
    # another address or another effort is another model
    probed(write(tmp_path, server.base_url, more=", reasoning_effort: low"))
    assert server.stats()["requests"] > asked


def test_a_job_of_batches_is_probed_live(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(scripted=True, thinks=200)
    path = write(tmp_path, server.base_url, more=", mode: batch")

    async def notebook() -> None:
        probed(path)

    asyncio.run(notebook())  # if a loop is already running
    assert server.stats()["batch_lines"] == 0 and server.stats()["requests"] >= 6


def test_the_probe_stays_within_the_budget(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(scripted=True)
    with pytest.raises(BudgetSpent):
        probed(write(tmp_path, server.base_url), budget_usd=0.0)
    assert server.stats()["requests"] == 0


def test_a_run_on_a_model_that_takes_no_call_ends_at_the_probe(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(always="bad_parameter")
    path = write(tmp_path, server.base_url)
    with pytest.raises(LlmError, match=r"m at endpoint 'default' .*Unsupported value: 'thinking' is not supported"):
        run_pipeline(Job(path, tmp_path / "runs"), console=Console(quiet=True), until="hard_negative")
    assert server.stats()["requests"] <= 6
    server.set(always=None, scripted=True)  # mended: nothing that failed is in the way
    assert probed(path)[1]


def test_check_says_what_it_did_not_test_and_with_a_probe_how_long_it_takes(
    loopback: Callable[..., Any], tmp_path: Path
) -> None:
    server = loopback(scripted=True, latency=0.05)
    path = write(tmp_path, server.base_url)
    path.write_text(path.read_text().replace("model: bm25, top_k", "model: all-minilm-l6-v2-int8, top_k"))
    if not models.fetched("all-minilm-l6-v2-int8"):
        pytest.skip("airgen fetch tests")
    check = ["check", str(path), "--runs", str(tmp_path / "runs")]
    printed = call(*check)
    assert "not tested: whether m answers" in printed and "plus the LLM's own time" in printed.splitlines()[0]
    assert server.stats()["requests"] == 0
    printed = call(*check, "--probe", "--stages")
    assert "probe: m: " in printed and "of calls to models" in printed and "not tested" not in printed
    value = json.loads(call(*check, "--json"))
    assert value["seconds"] > 0 and value["untested"] == []


def test_check_finds_a_budget_without_prices(tmp_path: Path) -> None:
    path = write(tmp_path, "http://127.0.0.1:9/v1")
    path.write_text(path.read_text().replace(", prices: {m: {input: 1, output: 10}}", ""))
    printed = call("check", str(path), "--runs", str(tmp_path / "runs"), "--budget", "5", code=1)
    assert "a budget needs prices" in printed


def test_a_model_whose_json_cannot_be_used_is_a_problem(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(text="I would rather talk about bees.")
    check = ["check", str(write(tmp_path, server.base_url)), "--runs", str(tmp_path / "runs")]
    wanted = r"! m: its JSON cannot be used \(.*\): choose another model, or fix its server and probe again"
    for options in (["--probe"], []):  # the second time it is remembered
        printed = call(*check, *options, code=1)
        assert re.search(wanted, printed) and "nothing is missing" not in printed
    before = server.stats()["requests"]
    with pytest.raises(SettingsError, match=wanted.removeprefix("! ")):  # `run` stops for the same reason
        call("run", *check[1:])
    assert server.stats()["requests"] - before < 12
    server.set(text=None, scripted=True)  # mended: it is asked again
    call(*check, "--probe")
    assert "nothing is missing" in call(*check)


def test_another_server_under_the_same_name_is_asked_itself(loopback: Callable[..., Any], tmp_path: Path) -> None:
    """Answers are kept without the address, but those of the server before say nothing about this one."""
    before, now = loopback(scripted=True), loopback(scripted=True)
    probed(write(tmp_path, before.base_url))
    asked = before.stats()["requests"]
    probed(write(tmp_path, now.base_url))
    assert before.stats()["requests"] == asked == now.stats()["requests"] > 0


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        ("<!DOCTYPE html><title>Sign in</title>", "text/html", "a web page in place of JSON .a login page"),
        ('data: {"choices": []}\n\ndata: [DONE]\n', "text/event-stream", "a stream of events"),
    ],
)
def test_what_is_no_api_is_said_at_once(tmp_path: Path, content: str, kind: str, words: str) -> None:
    asked: list[Asked] = []

    def answer(request: Asked) -> tuple[int, str, dict[str, str]]:
        asked.append(request)
        return 200, content, {"Content-Type": kind}

    with answering(answer) as url, pytest.raises(LlmError, match=words):
        probed(write(tmp_path, f"{url}/v1"))
    assert len(asked) == 1

"""A stage that rejects everything stops the run, and one that works does not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from airgen.errors import LlmError
from airgen.llms.base import Refused, Reply, Request
from airgen.llms.health import Health
from airgen.llms.scripted import ScriptedBackend
from airgen.pipeline import RunResult
from airgen.pipeline.ask_each import ask_about
from airgen.pipeline.stage import Problem, Refusal
from airgen.settings import Pipeline

Run = Callable[..., RunResult]
MANY = {"target: 12": "target: 40", "concurrency: 8": "concurrency: 2"}


def pipeline() -> Pipeline:
    value = {"name": "p", "task": "qa", "corpus": "c", "target": 1, "llm": {"backend": "scripted"}}
    return Pipeline.model_validate(value)


@pytest.mark.parametrize(
    ("family", "cause", "fires"),
    [("default", "malformed", 9), ("default", "check", 28), ("small", "llm", 14), ("small", "check", 38)],
)
def test_how_much_evidence_it_wants(family: str, cause: str, fires: int) -> None:
    health = Health(family)
    for _ in range(fires - 1):
        health.saw("query", "malformed", cause=cause)
        health.check()
    health.saw("query", "malformed", "the answer is empty", cause)
    with pytest.raises(LlmError, match=rf"query: {fires} of {fires} were rejected \({fires} malformed\).*is empty"):
        health.check()


@pytest.mark.parametrize(("family", "share"), [("default", 0.5), ("small", 0.4)])
def test_a_stage_that_rejects_more_than_half_goes_on(family: str, share: float) -> None:
    """Acceptance a third below the usual one, 20,000 pieces of work: no stop."""
    random = Random(1)
    health = Health(family)
    for _ in range(20_000):
        health.saw("query", "" if random.random() < share else "too near")
        health.check()


def test_what_breaks_later_is_noticed_too() -> None:
    health = Health()
    for _ in range(10_000):
        health.saw("query")
    for _ in range(9):
        health.saw("query", "malformed", cause="malformed")
    with pytest.raises(LlmError, match="9 of 10009"):
        health.check()


@pytest.mark.parametrize("fault", ["empty", "truncate", "prose", "refuse"])
def test_a_model_without_a_usable_answer_stops_within_a_few_calls(fault: str, run: Run, asked: list[Request]) -> None:
    faulty = f"{{backend: scripted, faults: {{{fault}: 1.0}},"
    changes = {**MANY, "{backend: scripted,": faulty}
    with pytest.raises(LlmError, match=r"character: \d+ of \d+ were rejected .* calls cost \$0\.00") as caught:
        run(changes=changes)
    assert len(asked) <= 3 * 11
    if fault == "refuse":
        assert "content_filter" in str(caught.value)
    before = len(asked)
    with pytest.raises(LlmError, match="were rejected"):
        run(changes=changes)
    assert len(asked) == before, "a run that starts again spends nothing"


def test_answers_that_fail_every_check_stop_the_run(run: Run, asked: list[Request]) -> None:
    """Each query is in another language: 57 samples would have been asked about."""
    changes = {**MANY, "{backend: scripted,": "{backend: scripted, faults: {language: 1.0},"}
    with pytest.raises(LlmError, match="were rejected"):
        run(changes=changes)


def test_the_servers_words_are_in_the_message(run: Run, asked: list[Request], monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuses(self: ScriptedBackend, request: Request) -> Reply:
        raise Refused("http_400", "this model takes no schema")

    monkeypatch.setattr(ScriptedBackend, "send", refuses)
    with pytest.raises(LlmError, match=r"the first 4 calls \(http_400: this model takes no schema\)"):
        run(changes={"concurrency: 8": "concurrency: 1"})


def test_a_judge_that_cannot_be_read_stops_the_run(
    run: Run, asked: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers for the queries' own documents, and breaks when quality control begins."""
    run(until="hard_negative")
    send = ScriptedBackend.send

    async def broken(self: ScriptedBackend, request: Request) -> Reply:
        reply = await send(self, request)
        return Reply("who knows?", prompt_tokens=9, completion_tokens=3) if request.stage == "judgment" else reply

    monkeypatch.setattr(ScriptedBackend, "send", broken)
    with pytest.raises(LlmError, match=r"judgment: .* were rejected \(\d+ malformed"):
        run()


def test_other_questions_stop_too(tmp_path: Path) -> None:
    async def one(llm: object, item: int) -> Refusal:
        return Refusal(Problem("malformed", "not JSON", "malformed"))

    with pytest.raises(LlmError, match=r"answers: \d+ of \d+ were rejected"):
        ask_about(range(sys.maxsize)[:10_000], one, pipeline(), tmp_path / "answers.duckdb")

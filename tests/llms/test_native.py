"""Anthropic's and Google's own formats, through their packages, on airgen's connections."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulation import engine_of

from airgen.errors import AirgenError, LlmError
from airgen.llms.base import Message, Request, backend_class, parse_logprobs
from airgen.llms.prices import Price
from airgen.pipeline.engines import connect
from airgen.records import Answer
from airgen.settings import LlmSettings
from airgen.store import Store

CENT = Price(10_000.0, 10_000.0, 10_000.0)
KEY = "key-loopback-0123456789"
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
CHAT = (Message("system", "Judge."), Message("user", "first"), Message("assistant", "bad"), Message("user", "again"))
BACKENDS = ("anthropic", "gemini")
HEADER = {"anthropic": "X-Api-Key", "gemini": "X-Goog-Api-Key"}


@pytest.fixture(autouse=True)
def _packages_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anthropic")
    pytest.importorskip("google.genai")
    monkeypatch.setenv("NATIVE_KEY", KEY)


def run(
    backend: str, server: Any, folder: Path, asked: list[Request], *, more: dict[str, Any] | None = None, **options: Any
) -> tuple[list[Answer], float]:
    settings = LlmSettings.model_validate(
        {"backend": backend, "model": "m", "base_url": server.root, "api_key_env": "NATIVE_KEY", **(more or {})}
    )

    async def main() -> tuple[list[Answer], float]:
        with Store.open(folder / "w.duckdb") as store:
            connection = connect(settings, folder, {})
            async with engine_of(connection.backend, store, price=CENT, backoff=0.01, **options) as engine:
                return list(await asyncio.gather(*(engine.ask(one) for one in asked))), engine.spent_usd

    return asyncio.run(main())


def wanted(count: int, **params: Any) -> list[Request]:
    params = {"temperature": 0, "max_tokens": 50, **params}
    return [Request("m", (*CHAT[:3], Message("user", f"number {n}")), params, stage="query") for n in range(count)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_chat_with_a_schema_its_tokens_and_its_key(
    backend: str, loopback: Callable[..., Any], tmp_path: Path
) -> None:
    server = loopback(text='{"query": "why?"}', needs_headers={HEADER[backend]: KEY})
    request = Request("m", CHAT, {"temperature": 0, "max_tokens": 50, "stop": ["x"]}, SCHEMA)
    (answer,), spent = run(backend, server, tmp_path, [request])
    assert (answer.text, answer.finish_reason, answer.error) == ('{"query": "why?"}', "stop", "")
    prompt = sum(len(message.content) for message in CHAT) // 4
    assert (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens) == (prompt, prompt // 2, 10)
    assert spent == pytest.approx((prompt + 10) / 100)
    (body,) = server.stats()["bodies"]
    if backend == "anthropic":
        assert (body["system"], body["max_tokens"], body["stop_sequences"]) == ("Judge.", 50, ["x"])
        assert body["output_config"]["format"]["schema"]["additionalProperties"] is False
        assert [part["role"] for part in body["messages"]] == ["user", "assistant", "user"]
    else:
        assert body["generationConfig"]["maxOutputTokens"] == 50 and body["generationConfig"]["stopSequences"] == ["x"]
        assert body["generationConfig"]["responseJsonSchema"]["properties"] == SCHEMA["properties"]
        assert [part["role"] for part in body["contents"]] == ["user", "model", "user"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", ["hidden", "field"])
def test_thinking_gets_room_and_is_paid(backend: str, place: str, loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(text="2", thinks=300, thinks_in=place, refuse=["temperature"])
    answers, spent = run(backend, server, tmp_path, wanted(20, max_tokens=8), concurrency=2)
    assert {(one.text, one.error) for one in answers} == {("2", "")}
    assert server.stats()["requests"] <= 20 + 2 * 2 + 2
    assert spent > 20 * 310 / 100


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_of_200_calls_ends_the_same_whatever_goes_wrong(
    backend: str, loopback: Callable[..., Any], tmp_path: Path
) -> None:
    """The packages repeat nothing themselves: as many requests come as the engine has sent."""
    calm, _ = run(backend, loopback(), tmp_path / "calm", wanted(200), concurrency=16)
    faults = {"http_500": 0.1, "rate_limit_after": 0.02, "drop": 0.1, "http_503": 0.05}
    server = loopback(faults=faults, fault_attempts=2)
    rough, _ = run(backend, server, tmp_path / "rough", wanted(200), concurrency=16)
    assert [(one.text, one.error) for one in rough] == [(one.text, one.error) for one in calm]
    assert server.stats()["distinct"] == 200 and sum(server.stats()["statuses"].values()) <= server.stats()["requests"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("settings", "words"),
    [({"needs_headers": {"X-Other": "x"}}, "HTTP 401"), ({"model": "other"}, "HTTP 404.*does not exist")],
)
def test_what_will_never_work_stops_with_the_servers_words_and_without_the_key(
    backend: str, settings: dict[str, Any], words: str, loopback: Callable[..., Any], tmp_path: Path
) -> None:
    server = loopback(**settings)
    with pytest.raises(LlmError, match=words) as caught:
        run(backend, server, tmp_path, wanted(50), concurrency=4)
    assert server.stats()["requests"] <= 4 and KEY not in str(caught.value)
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("always", "error"),
    [("content_filter", {"refusal", "content_filter"}), ("html", {"bad_body"}), ("truncated", {"bad_body"})],
)
def test_what_is_no_answer_is_a_row(
    backend: str, always: str, error: set[str], loopback: Callable[..., Any], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("airgen.llms.call_queue.SET_ASIDE", 99)
    (answer,), spent = run(backend, loopback(always=always), tmp_path, wanted(1), retries=0)
    assert answer.error in error and spent > 0


def test_geminis_log_probabilities_and_what_the_user_adds(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(text="Yes")
    more = {"reasoning_effort": "LOW", "extra_body": {"labels": {"team": "a"}}}
    asked = wanted(1, logprobs=True, top_logprobs=2)
    (answer,), _ = run("gemini", server, tmp_path, asked, more=more)
    assert parse_logprobs(answer) == [[("Yes", -0.1), ("No", -2.4)]]
    (body,) = server.stats()["bodies"]
    assert body["labels"] == {"team": "a"} and body["generationConfig"]["thinkingConfig"] == {"thinking_level": "LOW"}


def test_anthropics_effort_and_what_the_user_adds(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(text="2")
    more = {"reasoning_effort": "low", "extra_body": {"thinking": {"type": "enabled", "budget_tokens": 1024}}}
    run("anthropic", server, tmp_path, wanted(1), more=more)
    (body,) = server.stats()["bodies"]
    assert body["output_config"] == {"effort": "low"} and body["thinking"]["budget_tokens"] == 1024


@pytest.mark.parametrize(("backend", "model"), [("anthropic", "claude-sonnet-4-5"), ("gemini", "gemini-2.5-flash")])
def test_their_prices_are_known_and_a_key_is_asked_for(
    backend: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LlmSettings.model_validate({"backend": backend, "model": model})
    price = backend_class(llm).price(llm)
    assert price is not None and 0 < price.cached < price.input < price.output and not price.assumed
    name = {"anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}[backend]
    monkeypatch.delenv(name, raising=False)
    assert backend_class(llm).missing(llm) == [f"llm.api_key_env: the environment variable {name} is not set"]
    with pytest.raises(AirgenError, match=name):
        connect(llm, Path(), {})


def test_the_packages_are_imported_only_when_they_are_used() -> None:
    code = (
        "import airgen.llms.anthropic, airgen.llms.gemini, sys; print({'anthropic', 'google.genai'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

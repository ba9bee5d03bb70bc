"""Settings of an endpoint: secrets, gateways, presets of makers."""

import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from http_double import Asked, answering
from simulation import ask_all, requests, send

from airgen.errors import AirgenError, LlmError, SettingsError
from airgen.llms.base import Message, Request, backend_class
from airgen.llms.openai import OpenAISettings
from airgen.settings import LlmSettings, Pipeline
from airgen.settings.base import parse_yaml
from airgen.settings.llm import looks_like_a_key, own_answer_settings
from airgen.steps.ask import connect

KEY = "0123456789abcdef0123456789abcdef"
REQUEST = Request("m", (Message("user", "why?"),), {"max_tokens": 9, "temperature": 0})


def settings_of(llm: str) -> LlmSettings:
    text = f"name: p\ntask: qa\ncorpus: c\ntarget: 1\nllm: {{model: m, {llm}}}\n"
    return parse_yaml(text, Pipeline, "p.yaml").llm


# The date is not quoted, as a user writes it: YAML reads it as a date.
AZURE = "query: {api-version: 2024-10-21}, headers: {api-key: '${THEIR_KEY}'}"


@pytest.mark.parametrize(
    ("llm", "wants", "refuses"),
    [
        ("api_key_env: THEIR_KEY", {"key": KEY}, {"key": "another"}),
        (AZURE, {"needs_query": {"api-version": "2024-10-21"}, "needs_headers": {"api-key": KEY}},
         {"needs_headers": {"api-key": "another"}}),
    ],
)  # fmt: skip
def test_a_key_is_sent_and_is_in_nothing_that_is_written_or_said(
    llm: str,
    wants: dict[str, Any],
    refuses: dict[str, Any],
    loopback: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The server's refusal repeats the headers that it got."""
    caplog.set_level(logging.DEBUG)
    said: list[str] = []

    def ask(server: Any) -> None:
        backend = connect(settings_of(f"base_url: '{server.base_url}', {llm}"), tmp_path, {}).backend
        ask_all(backend, tmp_path / "w.duckdb", requests(50), say=said.append)

    good, bad = loopback(faults={"drop": 0.2, "html": 0.2}, **wants), loopback(**refuses)
    for value in (None, "", "  ", "two\nlines", "k\xe9y"):
        monkeypatch.delenv("THEIR_KEY", raising=False)
        if value is not None:
            monkeypatch.setenv("THEIR_KEY", value)
        with pytest.raises(SettingsError, match="THEIR_KEY is not") as unset:
            ask(good)
        assert not (value or "").strip() or str(value) not in str(unset.value)
    monkeypatch.setenv("THEIR_KEY", KEY)
    ask(good)
    (tmp_path / "w.duckdb").rename(tmp_path / "kept.duckdb")
    with pytest.raises(LlmError, match=r"HTTP 401.*\[key\]") as caught:
        ask(bad)
    assert "no key was sent" not in str(caught.value)
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=False).format())
    texts = [shown, caplog.text, *said, *capfd.readouterr()]
    texts += [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(texts) > 4 and not [text[:200] for text in texts if KEY in text]


def test_what_the_user_adds_is_in_the_body_and_in_the_key(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(text="fine")
    llm = settings_of(
        f"base_url: '{server.base_url}', reasoning_effort: low, extra_body: {{chat_template_kwargs: {{a: 1}}}}"
    )
    assert send(connect(llm, tmp_path, {}).backend, REQUEST).text == "fine"
    changed = {"reasoning_effort": "low", "chat_template_kwargs": {"a": 1}}
    assert server.stats()["bodies"] == [{"model": "m", "max_tokens": 9, "temperature": 0, **changed}]
    assert own_answer_settings(llm) == {"reasoning_effort": "low", "extra_body": {"chat_template_kwargs": {"a": 1}}}
    assert own_answer_settings(settings_of("")) == {}


NAME, LOOKS, HOLDS = "must be the name of an environment variable", "looks like a key", "must not contain a user"


@pytest.mark.parametrize(
    ("llm", "words"),
    [
        *((f"api_key_env: {key}", NAME) for key in ("sk-proj-abc123", "gsk_abc123def456", "AIzaSyDabc123def456", KEY)),
        ("headers: {Authorization: Bearer abc123}", "contains a secret"),
        ("headers: {X-Team: sk-proj-abc123}", LOOKS),
        ("query: {key: abc123}", "contains a secret"),
        ("query: {team: sk-proj-abc123}", LOOKS),
        ("extra_body: {metadata: [sk-proj-abc123]}", LOOKS),
        *((f"base_url: 'https://{url}'", HOLDS) for url in ("me:abc123@h/v1", "abc123@h/v1", "h/v1#abc123")),
        ("base_url: 'https://h/v1?api-version=abc123'", r"put parameters into llm\.query"),
        ("base_url: ['https://me:abc123@h/v1', 'http://h']", "must be a single address.*a router"),
        ("base_url: 'localhost:8000/v1'", r"llm\.base_url: 'localhost:8000/v1' is not an http"),
        *((f"base_url: '{url}'", "is not an http") for url in ("ftp://x/v1", "", "http://")),
        ("extra_body: {max_tokens: 9, n: 3}", "must not contain max_tokens, n"),
        ("headers: {Host: h}", "cannot be set as a header"),
    ],
)
def test_what_is_refused_at_its_line_without_a_key_that_it_may_hold(llm: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        settings_of(llm)
    assert "abc123" not in str(caught.value) and KEY not in str(caught.value) and "p.yaml:5: llm" in str(caught.value)


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "AZURE_OPENAI_API_KEY_2", "MY_KEY", "hf_token", "key1", "SK_2024_KEY"]
)
def test_names_of_variables_are_no_keys(name: str) -> None:
    assert not looks_like_a_key(name)


@pytest.mark.parametrize(
    ("backend", "model", "variable", "url"),
    [
        ("anthropic", "claude-sonnet-4-5", "ANTHROPIC_API_KEY", "https://api.anthropic.com/v1"),
        ("gemini", "gemini-2.5-flash", "GEMINI_API_KEY", "https://generativelanguage.googleapis.com/v1beta/openai"),
    ],
)
def test_a_preset_has_an_address_a_key_a_price_and_its_parameters(
    backend: str,
    model: str,
    variable: str,
    url: str,
    loopback: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    llm = LlmSettings.model_validate({"backend": backend, "model": model})
    assert isinstance(llm, OpenAISettings) and llm.address == url
    price = backend_class(llm).price(llm)
    assert price is not None and 0 < price.cached < price.input < price.output and not price.assumed
    monkeypatch.delenv(variable, raising=False)
    assert backend_class(llm).missing(llm) == [f"llm.api_key_env: the environment variable {variable} is not set"]
    with pytest.raises(AirgenError, match=variable):
        connect(llm, Path(), {})
    monkeypatch.setenv(variable, KEY)
    server = loopback(text="2", needs_headers={"Authorization": f"Bearer {KEY}"}, refuse=["seed"])
    found = connect(llm.model_copy(update={"base_url": server.base_url}), tmp_path, {}).backend
    params = {"temperature": 0, "max_tokens": 9, "seed": 1, "logprobs": True, "top_logprobs": 5}
    assert send(found, Request(model, (Message("system", "Judge."), Message("user", "why?")), params)).text == "2"
    bodies = server.stats()["bodies"]
    if backend == "anthropic":  # known without a refused call
        assert bodies == [{"model": model, "temperature": 0, "max_tokens": 9}]
    else:
        assert len(bodies) == 2 and "seed" not in bodies[1] and bodies[1]["top_logprobs"] == 5


@pytest.mark.parametrize("page", ["<!DOCTYPE html><title>Sign in</title>", 'data: {"choices": []}\n\n'])
@pytest.mark.parametrize("good", [0, 1])
def test_a_job_ends_at_once_where_no_answer_ever_was_json(page: str, good: int, tmp_path: Path) -> None:
    """A server that has answered may send a page between two answers."""
    asked: list[Asked] = []

    def answer(request: Asked) -> tuple[int, Any]:
        asked.append(request)
        number = len(asked)
        if number <= good or (good and number > 12):
            return 200, {"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}
        return 200, page

    with answering(answer) as url:
        if good:
            answers, _ = ask_all(url, tmp_path / "w.duckdb", requests(40), concurrency=1)
            assert sum(one.text == "fine" for one in answers) > 30
        else:
            with pytest.raises(LlmError, match=r"in place of JSON|a stream of events"):
                ask_all(url, tmp_path / "w.duckdb", requests(40), concurrency=1)
            assert len(asked) == 6

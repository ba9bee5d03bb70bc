"""Gateways, presets of makers, and several servers of one model."""

import asyncio
import json
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from simulation import engine_of

from airgen.errors import AirgenError, LlmError, SettingsError
from airgen.llms.base import Message, Reply, Request, Retry, backend_class
from airgen.llms.openai import OpenAIBackend, OpenAISettings, Servers, prefix_of
from airgen.pipeline.ask import connect, make_engine
from airgen.settings import LlmSettings, Pipeline
from airgen.settings.base import parse_yaml
from airgen.settings.llm import looks_like_a_key, own_answer_settings
from airgen.store import Store

KEY = "0123456789abcdef0123456789abcdef"


REQUEST = Request("m", (Message("user", "why?"),), {"max_tokens": 9, "temperature": 0})


def pipeline(llm: str) -> Pipeline:
    return parse_yaml(f"name: p\ntask: qa\ncorpus: c\ntarget: 1\nllm: {llm}\n", Pipeline, "p.yaml")


def send(llm: str, folder: Path) -> Reply:
    async def main() -> Reply:
        backend = connect(pipeline(llm).llm, folder, {}).backend
        try:
            return await backend.send(REQUEST)
        finally:
            await backend.close()

    return asyncio.run(main())


def azure(url: str) -> str:
    return (
        f"{{model: m, base_url: '{url}', query: {{api-version: 2024-10-21}}, headers: {{api-key: '${{AZURE_KEY}}'}}}}"
    )


def test_an_azure_deployment(loopback: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The date is not quoted, as a user writes it: YAML reads it as a date."""
    server = loopback(text="fine", needs_query={"api-version": "2024-10-21"}, needs_headers={"api-key": KEY})
    llm = azure(server.base_url)
    monkeypatch.delenv("AZURE_KEY", raising=False)
    with pytest.raises(SettingsError, match="AZURE_KEY is not set"):
        send(llm, tmp_path)
    monkeypatch.setenv("AZURE_KEY", KEY)
    assert send(llm, tmp_path).text == "fine"
    with pytest.raises(LlmError, match="HTTP 404"):
        send(llm.replace("2024-10-21", "2023-01-01"), tmp_path)


def test_a_secret_of_a_header_is_in_nothing_that_is_written_or_said(
    loopback: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's error repeats all headers that it got."""
    monkeypatch.setenv("AZURE_KEY", KEY)
    server = loopback(needs_headers={"api-key": "another"})
    llm = azure(server.base_url)
    said: list[str] = []

    async def main() -> None:
        with Store.open(tmp_path / "w.duckdb") as store:
            async with make_engine(pipeline(llm), store, say=said.append) as engine:
                await engine.ask(REQUEST)

    with pytest.raises(LlmError, match=r"HTTP 401.*\[key\]") as caught:
        asyncio.run(main())
    assert KEY not in "".join([str(caught.value), *said])
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_what_the_user_adds_is_in_the_body_and_in_the_key(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(text="fine")
    own = "reasoning_effort: low, extra_body: {chat_template_kwargs: {a: 1}}"
    llm = f"{{model: m, base_url: '{server.base_url}', {own}}}"
    send(llm, tmp_path)
    (body,) = server.stats()["bodies"]
    assert body == {
        "model": "m", "max_tokens": 9, "temperature": 0, "reasoning_effort": "low", "chat_template_kwargs": {"a": 1},
    }  # fmt: skip
    changed = own_answer_settings(pipeline(llm).llm)
    assert changed == {"reasoning_effort": "low", "extra_body": {"chat_template_kwargs": {"a": 1}}}
    assert own_answer_settings(LlmSettings.model_validate({"model": "m"})) == {}


@pytest.mark.parametrize(
    ("llm", "words"),
    [
        ("{model: m, api_key_env: sk-proj-abc123}", "must be the name of an environment variable"),
        ("{model: m, api_key_env: gsk_abc123def456}", "must be the name of an environment variable"),
        ("{model: m, api_key_env: AIzaSyDabc123def456}", "must be the name of an environment variable"),
        (f"{{model: m, api_key_env: '{KEY}'}}", "must be the name of an environment variable"),
        ("{model: m, headers: {Authorization: Bearer abc123}}", "holds a secret"),
        ("{model: m, headers: {X-Team: sk-proj-abc123}}", "looks like a key"),
        ("{model: m, query: {key: abc123}}", "holds a secret"),
        ("{model: m, query: {team: sk-proj-abc123}}", "looks like a key"),
        ("{model: m, extra_body: {metadata: [sk-proj-abc123]}}", "looks like a key"),
    ],
)
def test_a_key_in_the_settings_is_refused_and_not_shown(llm: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        pipeline(llm)
    assert "abc123" not in str(caught.value) and KEY not in str(caught.value) and "p.yaml:5: llm." in str(caught.value)


@pytest.mark.parametrize(
    ("llm", "words"),
    [
        ("{model: m, base_url: 'localhost:8000/v1'}", r"llm\.base_url: 'localhost:8000/v1' is not an http"),
        ("{model: m, base_url: 'http://h/v1?api-version=1'}", r"put parameters into llm\.query"),
        ("{model: m, extra_body: {max_tokens: 9, n: 3}}", "must not hold max_tokens, n"),
        ("{model: m, headers: {Host: h}}", "cannot be set as a header"),
    ],
)
def test_settings_that_cannot_work(llm: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        pipeline(llm)


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "AZURE_OPENAI_API_KEY_2", "MY_KEY", "hf_token", "key1", "SK_2024_KEY"]
)
def test_names_of_variables_are_no_keys(name: str) -> None:
    assert not looks_like_a_key(name)


# -- presets ----------------------------------------------------------------------------------------------------------


PRESETS_KEY = "sk-loopback-0123456789"


PRESETS = pytest.mark.parametrize(
    ("backend", "model", "variable", "url"),
    [
        ("anthropic", "claude-sonnet-4-5", "ANTHROPIC_API_KEY", "https://api.anthropic.com/v1"),
        ("gemini", "gemini-2.5-flash", "GEMINI_API_KEY", "https://generativelanguage.googleapis.com/v1beta/openai"),
    ],
)


@PRESETS
def test_an_address_a_key_and_a_price(
    backend: str, model: str, variable: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LlmSettings.model_validate({"backend": backend, "model": model})
    price = backend_class(llm).price(llm)
    assert price is not None and 0 < price.cached < price.input < price.output and not price.assumed
    monkeypatch.delenv(variable, raising=False)
    assert backend_class(llm).missing(llm) == [f"llm.api_key_env: the environment variable {variable} is not set"]
    with pytest.raises(AirgenError, match=variable):
        connect(llm, Path(), {})
    monkeypatch.setenv(variable, PRESETS_KEY)
    assert connect(llm, Path(), {}).backend._servers.first.base_url == url  # type: ignore[attr-defined]


@PRESETS
def test_a_call(
    backend: str,
    model: str,
    variable: str,
    url: str,
    loopback: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = loopback(text="2", needs_headers={"Authorization": f"Bearer {PRESETS_KEY}"}, refuse=["seed"])
    monkeypatch.setenv(variable, PRESETS_KEY)
    llm = LlmSettings.model_validate({"backend": backend, "model": model, "base_url": server.base_url})
    params = {"temperature": 0, "max_tokens": 9, "seed": 1, "logprobs": True, "top_logprobs": 5}
    request = Request(model, (Message("system", "Judge."), Message("user", "why?")), params)

    async def main() -> Reply:
        found = connect(llm, tmp_path, {}).backend
        try:
            return await found.send(request)
        finally:
            await found.close()

    assert asyncio.run(main()).text == "2"
    bodies = server.stats()["bodies"]
    if backend == "anthropic":  # known without a refused call
        assert bodies == [{"model": model, "temperature": 0, "max_tokens": 9}]
    else:
        assert len(bodies) == 2 and "seed" not in bodies[1] and bodies[1]["top_logprobs"] == 5


# -- servers ----------------------------------------------------------------------------------------------------------


URLS = [f"http://gpu{number}:8000/v1" for number in range(4)]


def body(document: str, question: str = "") -> dict[str, Any]:
    text = f"<document>\n{document}\n</document>\n\n{question}"
    return {"messages": [{"role": "system", "content": "help"}, {"role": "user", "content": text}]}


def test_what_calls_on_one_document_share() -> None:
    assert prefix_of(body("bees", "one")) == prefix_of(body("bees", "two")) != prefix_of(body("wasps", "one"))
    assert prefix_of({"messages": [{"role": "user", "content": "x" * 9999}]}) == "x" * 512
    for odd in ({}, {"messages": []}, {"messages": [{"role": "system", "content": None}]}):
        assert prefix_of(odd) == ""


def test_documents_are_spread_and_stay_where_they_are() -> None:
    servers = Servers(URLS)

    def first(given: Servers, number: int) -> str:
        return given.order(body(f"document {number}", str(number)))[0].base_url

    before = {number: first(servers, number) for number in range(400)}
    assert min(Counter(before.values()).values()) > 60
    assert all(servers.order(body(f"document {number}", "x"))[0].base_url == url for number, url in before.items())
    fewer = Servers(URLS[:3])  # only the documents of the server that is gone move
    assert all(first(fewer, number) == url for number, url in before.items() if url != URLS[3])


def test_a_server_that_is_away_is_tried_again_later() -> None:
    now = [0.0]
    servers = Servers(URLS, clock=lambda: now[0])
    order = servers.order(body("bees"))
    servers._pass_over(order[0])
    assert servers.order(body("bees")) == [*order[1:], order[0]]
    now[0] = 31.0
    assert servers.order(body("bees")) == order


def asked(server: Any) -> int:
    with urllib.request.urlopen(f"{server.base_url.removesuffix('/v1')}/stats") as answer:
        return int(json.loads(answer.read())["statuses"].get("200", 0))


def test_a_server_that_dies_loses_no_call(loopback: Callable[..., Any], tmp_path: Path) -> None:
    dying, living = loopback(die_after=5), loopback()
    requests = [
        Request("m", (Message("user", f"<document>\n{place}\n</document>\n{call}"),), {"max_tokens": 64}, stage="query")
        for place in range(20)
        for call in range(3)
    ]

    async def main() -> list[Any]:
        backend = OpenAIBackend([dying.base_url, living.base_url])
        with Store.open(tmp_path / "work.duckdb") as store:
            async with engine_of(backend, store, backoff=0.01) as engine:
                return await asyncio.gather(*(engine.ask(request) for request in requests))

    found = asyncio.run(main())
    assert len(found) == 60 and not any(answer.error for answer in found)
    assert asked(living) == 55


def test_no_server_is_one_failure(loopback: Callable[..., Any]) -> None:
    async def main() -> None:
        backend = OpenAIBackend(["http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"])
        try:
            await backend.send(Request("m", (Message("user", "x"),), {"max_tokens": 4}))
        finally:
            await backend.close()

    with pytest.raises(Retry, match="connection"):
        asyncio.run(main())


def test_the_settings() -> None:
    def read(**settings: Any) -> OpenAISettings:
        return OpenAISettings.model_validate({"model": "m", **settings})

    local, far = "http://10.0.0.1:8000/v1", "https://api.example.com/v1"
    assert read(base_url=[local, far]).addresses == [local, far] and read(base_url=local).addresses == [local]
    assert OpenAIBackend.price(read(base_url=[local])) is not None
    assert OpenAIBackend.price(read(base_url=[local, far])) is None  # nobody knows what the second one costs
    assert OpenAIBackend.missing(read(base_url=[local, far])) == []
    for wrong, words in (
        ({"base_url": []}, "from 1 to 256 servers"),
        ({"base_url": [local, local]}, "each once"),
        ({"base_url": [local, far], "mode": "batch"}, "one server"),
        ({"base_url": [local, "ftp://x"]}, "is not an http"),
        ({"base_url": ["https://user:pass@x/v1"]}, "must not hold a user"),
    ):
        with pytest.raises(ValidationError, match=words) as caught:
            read(**wrong)
        assert "user:pass" not in str(caught.value.errors(include_input=False))

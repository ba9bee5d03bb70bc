"""Azure, gateways and vendors' own parameters: headers, query, extra members of the body; secrets stay secret."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airgen.errors import LlmError, SettingsError
from airgen.llms.base import Message, Reply, Request
from airgen.pipeline.engines import connect, make_engine
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

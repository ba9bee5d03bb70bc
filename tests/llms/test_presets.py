"""Anthropic and Gemini are the OpenAI-compatible backend with another address and another key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airgen.errors import AirgenError
from airgen.llms.base import Message, Reply, Request, backend_class
from airgen.pipeline.engines import connect
from airgen.settings import LlmSettings

KEY = "sk-loopback-0123456789"
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
    monkeypatch.setenv(variable, KEY)
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
    server = loopback(text="2", needs_headers={"Authorization": f"Bearer {KEY}"}, refuse=["seed"])
    monkeypatch.setenv(variable, KEY)
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

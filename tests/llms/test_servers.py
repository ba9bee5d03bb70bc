"""Several servers of one model: a document's calls go to one server, and another one takes over when it dies."""

from __future__ import annotations

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

from airgen.llms.base import Message, Request, Retry
from airgen.llms.openai import OpenAIBackend, OpenAISettings, Servers, prefix_of
from airgen.store import Store

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

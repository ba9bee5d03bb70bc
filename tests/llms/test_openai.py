"""The HTTP backend and the engine against the loopback server, with the real store."""

import asyncio
import errno
import json
import logging
import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulation import engine_of

from airgen.errors import LlmError, SettingsError, Stopped
from airgen.http import retry_after
from airgen.llms.base import Message, Refused, Reply, Request, Retry, parse_logprobs
from airgen.llms.engine import Engine
from airgen.llms.http import Endpoint, error_of, failure, server_limits
from airgen.llms.openai import OpenAIBackend
from airgen.records import Answer
from airgen.store import Store

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
KEY = "sk-loopback-0123456789"


def wanted(n: int, **more: Any) -> list[Request]:
    return [
        Request("m", (Message("user", f"number {i}"),), {"max_tokens": 64}, stage="query", **more) for i in range(n)
    ]


def send(base_url: str, request: Request, **options: Any) -> Reply:
    async def main() -> Reply:
        backend = OpenAIBackend(base_url, **options)
        try:
            return await backend.send(request)
        finally:
            await backend.close()

    return asyncio.run(main())


def run(base_url: str, path: Path, asked: list[Request], **options: Any) -> tuple[list[Answer], Engine]:
    async def main() -> tuple[list[Answer], Engine]:
        with Store.open(path) as store:
            async with engine_of(OpenAIBackend(base_url), store, backoff=0.01, **options) as engine:
                return await asyncio.gather(*(engine.ask(request) for request in asked)), engine

    return asyncio.run(main())


def test_an_answer_with_usage_cached_tokens_and_logprobs(loopback: Callable[..., Any]) -> None:
    request = Request("m", (Message("user", "x" * 400),), {"logprobs": True, "top_logprobs": 2, "max_tokens": 1})
    reply = send(loopback(text="Yes").base_url, request)
    assert (reply.text, reply.finish_reason) == ("Yes", "stop")
    assert (reply.prompt_tokens, reply.cached_tokens, reply.completion_tokens) == (100, 50, 10)
    assert reply.logprobs == [[("Yes", -0.1), ("No", -2.4)]]


def test_log_probabilities_survive_the_disk(loopback: Callable[..., Any], tmp_path: Path) -> None:
    request = Request("m", (Message("user", "x"),), {"logprobs": True, "top_logprobs": 2})
    (fresh,), _ = run(loopback().base_url, tmp_path / "w.duckdb", [request])
    with Store.open(tmp_path / "w.duckdb") as store:
        kept = store.answers([request.key])[request.key]
    assert parse_logprobs(kept) == parse_logprobs(fresh) == [[("Yes", -0.1), ("No", -2.4)]]


FAULTS = {
    "http_500": 0.05,
    "http_503": 0.05,
    "rate_limit": 0.01,
    "rate_limit_after": 0.01,
    "drop": 0.05,
    "drop_middle": 0.05,
    "slow_body": 0.05,
    "truncated": 0.05,
    "html": 0.05,
    "wrong_type": 0.05,
    "no_usage": 0.05,
    "no_choices": 0.05,
}


def test_a_job_of_500_calls_ends_the_same_whatever_goes_wrong(loopback: Callable[..., Any], tmp_path: Path) -> None:
    calm, _ = run(loopback().base_url, tmp_path / "calm.duckdb", wanted(500), concurrency=32)
    server = loopback(faults=FAULTS, fault_attempts=2)
    rough, engine = run(server.base_url, tmp_path / "rough.duckdb", wanted(500), concurrency=32)
    assert [(a.key, a.text, a.error) for a in rough] == [(a.key, a.text, a.error) for a in calm]
    with Store.open(tmp_path / "rough.duckdb") as store:
        assert store.query("SELECT count(*), count(DISTINCT key) FROM answer WHERE error = ''") == [(500, 500)]
        ((counted,),) = store.query("SELECT count(*) FROM answer WHERE counted_here")
        assert 0 < counted < 100  # those without usage
    seen = set(engine.usage()["query"].retries)
    assert {"http_500", "http_503", "rate_limit", "connection", "bad_body"} <= seen
    assert server.stats()["distinct"] == 500 and engine.usage()["query"].calls == 500


def test_refusals_and_lasting_failures_are_rows_with_their_reason(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(
        faults={"refusal": 0.1, "content_filter": 0.1, "bad_request": 0.1, "html": 0.1}, fault_attempts=100
    )
    answers, engine = run(server.base_url, tmp_path / "w.duckdb", wanted(100), retries=1)
    failures = engine.usage()["query"].failures
    assert set(failures) == {"refusal", "content_filter", "context_length", "bad_body"}
    assert sum(failures.values()) == sum(bool(answer.error) for answer in answers)
    asked = server.stats()["requests"]
    again, _ = run(server.base_url, tmp_path / "w.duckdb", wanted(100))
    assert server.stats()["requests"] == asked and again == answers


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"key": "right"}, "HTTP 401.*Incorrect API key"),
        ({"model": "other"}, "HTTP 404.*The model `m` does not exist"),
        ({"always": "quota"}, "HTTP 429.*exceeded your current quota"),
        ({"always": "redirect"}, "HTTP 307"),
    ],
)
def test_what_will_never_work_stops_within_a_few_calls_with_the_servers_words(
    settings: dict[str, Any], words: str, loopback: Callable[..., Any], tmp_path: Path
) -> None:
    server = loopback(latency=0.02, **settings)
    with pytest.raises(LlmError, match=words):
        run(server.base_url, tmp_path / "w.duckdb", wanted(1000))
    assert server.stats()["requests"] <= 16
    with Store.open(tmp_path / "w.duckdb") as store:
        assert store.query("SELECT count(*) FROM answer") == [(0,)]


def test_a_server_that_dies_half_way(loopback: Callable[..., Any], tmp_path: Path) -> None:
    first = loopback(latency=0.01, die_after=100)
    with pytest.raises(Stopped, match=r"does not answer .*same command"):
        run(first.base_url, tmp_path / "w.duckdb", wanted(300), retries=2)
    second = loopback()
    answers, engine = run(second.base_url, tmp_path / "w.duckdb", wanted(300))
    assert not any(answer.error for answer in answers)
    assert engine.usage()["query"].from_disk >= 100 - 16 - 32
    assert second.stats()["requests"] + engine.usage()["query"].from_disk == 300


def test_an_address_where_nobody_has_ever_answered_is_given_up_soon(tmp_path: Path) -> None:
    """After 3 tries, with two short pauses, and not after the 7 that a server gets which has answered before."""
    with pytest.raises(Stopped, match=r"no connection to 127\.0\.0\.1:9: Connection refused\) after 3 tries"):
        run("http://127.0.0.1:9/v1", tmp_path / "w.duckdb", wanted(1))


def test_a_schema_is_sent_closed_and_dropped_step_by_step_where_it_is_refused(loopback: Callable[..., Any]) -> None:
    request = Request("m", (Message("user", "JSON please"),), {"max_tokens": 9}, SCHEMA)
    for refused, tries in ([], 1), (["json_schema"], 2), (["json_schema", "json_object"], 3):
        server = loopback(refuse_schema=refused)
        assert json.loads(send(server.base_url, request).text)["query"]
        assert server.stats()["requests"] == tries


def test_a_model_that_wants_the_newer_name_of_max_tokens(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(refuse_max_tokens=True)
    answers, _ = run(server.base_url, tmp_path / "w.duckdb", wanted(50), concurrency=4)
    assert not any(answer.error for answer in answers)
    assert server.stats()["requests"] <= 54


def test_the_servers_headers_reach_the_engine(loopback: Callable[..., Any]) -> None:
    headers = {
        "x-ratelimit-limit-requests": "5000",
        "x-ratelimit-remaining-requests": "4999",
        "x-ratelimit-reset-requests": "12ms",
        "x-ratelimit-limit-tokens": "160000",
        "x-ratelimit-remaining-tokens": "159976",
        "x-ratelimit-reset-tokens": "1m2.5s",
    }
    limits = send(loopback(headers=headers).base_url, wanted(1)[0]).limits
    assert limits is not None
    assert (limits.requests, limits.requests_left, limits.requests_reset) == (5000, 4999, 0.012)
    assert (limits.tokens, limits.tokens_left, limits.tokens_reset) == (160000, 159976, 62.5)
    assert server_limits({"x-ratelimit-limit-requests": "many"}).requests is None  # type: ignore[union-attr]
    assert server_limits({}) is None


def test_missing_usage_is_estimated_so_that_a_budget_still_holds(loopback: Callable[..., Any]) -> None:
    reply = send(loopback(always="no_usage").base_url, Request("m", (Message("user", "word " * 200),)))
    assert 150 < reply.prompt_tokens < 300 and reply.completion_tokens > 0


# -- secrets ------------------------------------------------------------------------------------------------------


def test_the_key_is_in_nothing_that_a_run_writes(
    loopback: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    good = loopback(key=KEY, faults={"drop": 0.2, "html": 0.2})
    bad = loopback(key="another")  # its 401 echoes the header it was sent

    async def main(base_url: str) -> None:
        with Store.open(tmp_path / "w.duckdb") as store:
            backend = OpenAIBackend(base_url, "LOOPBACK_KEY")
            async with engine_of(backend, store, backoff=0.01) as engine:
                await asyncio.gather(*(engine.ask(request) for request in wanted(50)))

    asyncio.run(main(good.base_url))
    (tmp_path / "w.duckdb").rename(tmp_path / "kept.duckdb")
    with pytest.raises(LlmError) as caught:
        asyncio.run(main(bad.base_url))
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=False).format())
    assert "[key]" in str(caught.value)
    texts = [shown, caplog.text, *capfd.readouterr()]
    texts += [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(texts) > 4 and not [text[:200] for text in texts if KEY in text]


@pytest.mark.parametrize("value", [None, "", "  ", "two\nlines", "k\xe9y"])
def test_a_key_that_cannot_be_one(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("SOME_KEY", value)
    with pytest.raises(SettingsError, match="SOME_KEY") as caught:
        Endpoint(api_key_env="SOME_KEY")
    assert not value or not value.strip() or value.strip() not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x/v1", "", "http://", "https://me:secret@host/v1"])
def test_base_urls_that_cannot_be(url: str) -> None:
    with pytest.raises(SettingsError, match=r"llm\.base_url") as caught:
        Endpoint(url)
    assert "secret" not in str(caught.value)


# -- what answers mean --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "words", "kind", "reason"),
    [
        (429, "rate_limit_exceeded", "", Retry, "rate_limit"),
        (429, "insufficient_quota", "", LlmError, ""),
        (400, "invalid_api_key", "", LlmError, ""),
        (400, "context_length_exceeded", "", Refused, "context_length"),
        (400, "", "maximum context length is 8192", Refused, "context_length"),
        (400, "content_filter", "", Refused, "content_filter"),
        (400, "", "temperature", Refused, "http_400"),
        (413, "", "", Refused, "http_413"),
        (408, "", "", Retry, "http_408"),
        (500, "", "", Retry, "http_500"),
        (529, "", "", Retry, "http_529"),
        (402, "", "", LlmError, ""),
        (403, "", "", LlmError, ""),
    ],
)
def test_what_a_status_means(status: int, code: str, words: str, kind: type, reason: str) -> None:
    error = failure(status, words, code, {}, "m at host")
    assert type(error) is kind and getattr(error, "reason", "") == reason


def test_retry_after_in_every_form() -> None:
    assert retry_after({"Retry-After": "2"}) == 2
    assert retry_after({"retry-after-ms": "250", "Retry-After": "1"}) == 0.25
    assert retry_after({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert retry_after({"Retry-After": "1e99"}) is None
    assert retry_after({"Retry-After": "99999999"}) == 3600
    assert retry_after({"Retry-After": "soon"}) is None
    assert retry_after({}) is None


def test_errors_in_every_form() -> None:
    assert error_of(b'{"error": {"message": "no", "code": "c"}}') == ("no", "c")
    assert error_of(b'{"error": "no"}') == ("no", "")
    assert error_of(b'{"detail": "no"}')[0] == "no"
    assert error_of(b"<html><b>Bad  Gateway</b></html>")[0].split() == ["Bad", "Gateway"]
    assert error_of(b"\xff\xfe")[0]
    assert error_of(b"[" * 100_000)[0]


def test_a_refusal_says_what_the_user_has_probably_forgotten(
    loopback: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEIR_KEY", "sk-wrong-0123456789")
    locked, (request,) = loopback(key="right").base_url, wanted(1)
    with pytest.raises(LlmError, match=r"HTTP 401.*\(no key was sent: llm\.api_key_env names"):
        send(locked, request)
    with pytest.raises(LlmError) as wrong:
        send(locked, request, api_key_env="THEIR_KEY")
    assert "HTTP 401" in str(wrong.value) and "no key was sent" not in str(wrong.value)
    with pytest.raises(LlmError, match=r"HTTP 404.*\(llm\.base_url has no path, and most servers want /v1"):
        send(loopback().base_url.removesuffix("/v1"), request)
    with pytest.raises(LlmError) as other:
        send(loopback(model="other").base_url, request)
    assert "HTTP 404" in str(other.value) and "base_url" not in str(other.value)


def test_a_closed_port_is_named_in_plain_words() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(Retry) as found:
        send(f"http://127.0.0.1:{port}/v1", wanted(1)[0])
    assert found.value.detail == f"no connection to 127.0.0.1:{port}: {os.strerror(errno.ECONNREFUSED)}"

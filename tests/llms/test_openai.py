"""The HTTP backend and the engine against the loopback server, with the real store."""

import errno
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulation import ask_all, openai, requests, send

from airgen.errors import LlmError, Stopped
from airgen.llms.base import Message, Refused, Request, Retry, parse_logprobs
from airgen.llms.chat import chat_reply
from airgen.llms.endpoint import error_of, failure, server_limits
from airgen.net.http import retry_after
from airgen.storage.store import Store

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


def test_an_answer_with_usage_cached_tokens_and_logprobs_is_on_the_disk(
    loopback: Callable[..., Any], tmp_path: Path
) -> None:
    request = Request("m", (Message("user", "x" * 400),), {"logprobs": True, "top_logprobs": 2, "max_tokens": 1})
    (fresh,), _ = ask_all(loopback(text="Yes").base_url, tmp_path / "w.duckdb", [request])
    with Store.open(tmp_path / "w.duckdb") as store:
        (kept,) = store.answers([request.key]).values()
    assert kept == fresh and (kept.text, kept.finish_reason, kept.counted_here) == ("Yes", "stop", False)
    assert (kept.prompt_tokens, kept.cached_tokens, kept.completion_tokens) == (100, 50, 10)
    assert parse_logprobs(kept) == [[("Yes", -0.1), ("No", -2.4)]]
    reply = send(openai(loopback(always="no_usage").base_url), Request("m", (Message("user", "word " * 200),)))
    assert reply.estimated and 150 < reply.prompt_tokens < 300 and reply.completion_tokens > 0


FAULTS = {
    **dict.fromkeys(("http_500", "http_503", "drop", "drop_middle", "slow_body", "truncated", "html"), 0.05),
    **dict.fromkeys(("wrong_type", "no_usage", "no_choices"), 0.05), "rate_limit": 0.01, "rate_limit_after": 0.01,
}  # fmt: skip


def test_a_job_of_200_calls_ends_the_same_whatever_goes_wrong(loopback: Callable[..., Any], tmp_path: Path) -> None:
    calm, _ = ask_all(loopback().base_url, tmp_path / "calm.duckdb", requests(200), concurrency=32)
    server = loopback(faults=FAULTS, fault_attempts=2)
    rough, engine = ask_all(server.base_url, tmp_path / "rough.duckdb", requests(200), concurrency=32)
    assert [(a.key, a.text, a.error) for a in rough] == [(a.key, a.text, a.error) for a in calm]
    with Store.open(tmp_path / "rough.duckdb") as store:
        assert store.query("SELECT count(*), count(DISTINCT key) FROM answer WHERE error = ''") == [(200, 200)]
        ((counted,),) = store.query("SELECT count(*) FROM answer WHERE counted_here")
        assert 0 < counted < 40  # those without usage
    seen = set(engine.usage()["query"].retries)
    assert {"http_500", "http_503", "rate_limit", "connection", "bad_body"} <= seen
    assert server.stats()["distinct"] == 200 and engine.usage()["query"].calls == 200


def test_refusals_and_lasting_failures_are_rows_with_their_reason(loopback: Callable[..., Any], tmp_path: Path) -> None:
    faults = dict.fromkeys(("refusal", "content_filter", "bad_request", "html"), 0.1)
    server = loopback(faults=faults, fault_attempts=100)
    answers, engine = ask_all(server.base_url, tmp_path / "w.duckdb", requests(100), retries=1)
    failures = engine.usage()["query"].failures
    assert set(failures) == {"refusal", "content_filter", "context_length", "bad_body"}
    assert sum(failures.values()) == sum(bool(answer.error) for answer in answers)
    asked = server.stats()["requests"]
    again, _ = ask_all(server.base_url, tmp_path / "w.duckdb", requests(100))
    assert server.stats()["requests"] == asked and again == answers


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"key": "right"}, r"HTTP 401.*Incorrect API key.*\(no key was sent: llm\.api_key_env names"),
        ({"model": "other"}, r"HTTP 404.*The model `m` does not exist$"),
        ({"always": "quota"}, "HTTP 429.*exceeded your current quota"),
        ({"always": "redirect"}, "HTTP 307"),
    ],
)
def test_what_will_never_work_stops_within_a_few_calls_with_the_servers_words(
    settings: dict[str, Any], words: str, loopback: Callable[..., Any], tmp_path: Path
) -> None:
    server = loopback(latency=0.02, **settings)
    with pytest.raises(LlmError, match=words):
        ask_all(server.base_url, tmp_path / "w.duckdb", requests(200))
    assert server.stats()["requests"] <= 16
    with Store.open(tmp_path / "w.duckdb") as store:
        assert store.query("SELECT count(*) FROM answer") == [(0,)]


def test_an_address_without_a_path_is_a_probable_slip(loopback: Callable[..., Any]) -> None:
    with pytest.raises(LlmError, match=r"HTTP 404.*\(llm\.base_url has no path, and most servers need /v1"):
        send(openai(loopback().base_url.removesuffix("/v1")), requests(1)[0])


def test_a_server_that_dies_half_way(loopback: Callable[..., Any], tmp_path: Path) -> None:
    first = loopback(latency=0.01, die_after=100)
    with pytest.raises(Stopped, match=r"did not respond .*same command"):
        ask_all(first.base_url, tmp_path / "w.duckdb", requests(300), retries=2)
    second = loopback()
    answers, engine = ask_all(second.base_url, tmp_path / "w.duckdb", requests(300))
    assert not any(answer.error for answer in answers)
    assert engine.usage()["query"].from_disk >= 100 - 16 - 32
    assert second.stats()["requests"] + engine.usage()["query"].from_disk == 300


def test_an_address_where_nobody_has_ever_answered_is_given_up_soon(tmp_path: Path) -> None:
    """After 3 tries, with two short pauses, and not after the 7 that a server gets which has answered before."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = rf"after 3 tries \(connection: no connection to 127\.0\.0\.1:{port}: {os.strerror(errno.ECONNREFUSED)}\)"
    with pytest.raises(Stopped, match=words):
        ask_all(f"http://127.0.0.1:{port}/v1", tmp_path / "w.duckdb", requests(1))


def test_a_schema_is_sent_closed_and_dropped_step_by_step_where_it_is_refused(loopback: Callable[..., Any]) -> None:
    request = Request("m", (Message("user", "JSON please"),), {"max_tokens": 9}, SCHEMA)
    for refused, tries in ([], 1), (["json_schema"], 2), (["json_schema", "json_object"], 3):
        server = loopback(refuse_schema=refused)
        assert json.loads(send(openai(server.base_url), request).text)["query"]
        assert server.stats()["requests"] == tries


def test_the_servers_headers_reach_the_engine(loopback: Callable[..., Any]) -> None:
    headers = {
        "x-ratelimit-limit-requests": "5000",
        "x-ratelimit-remaining-requests": "4999",
        "x-ratelimit-reset-requests": "12ms",
        "x-ratelimit-limit-tokens": "160000",
        "x-ratelimit-remaining-tokens": "159976",
        "x-ratelimit-reset-tokens": "1m2.5s",
    }
    limits = send(openai(loopback(headers=headers).base_url), requests(1)[0]).limits
    assert limits == ((5000, 4999, 0.012), (160000, 159976, 62.5))
    assert server_limits({"x-ratelimit-limit-requests": "many"}) == ((None, None, None), (None, None, None))
    assert server_limits({}) is None


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
        (400, "json_validate_failed", "", Retry, "bad_output"),
        (422, "", "The generated JSON does not match the schema", Retry, "bad_output"),
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


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"detail": "Not Found"}, "Not Found"),
        ({"object": "error", "message": "The model does not exist.", "code": 404}, "The model does not exist."),
        ({"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}, "choices": None}, "insufficient"),
        ([{"error": {"code": 429, "message": "quota exceeded"}}], "quota exceeded"),
        ({"code": 500, "msg": "no such route", "success": False}, "no such route"),
        (
            {"choices": [{"message": {"content": ""}, "error": {"code": 502, "message": "upstream died"}}]},
            "upstream died",
        ),
        ({"model": "m", "message": {"role": "assistant", "content": "hello"}}, "choices"),
    ],
)
def test_what_a_body_without_an_answer_says_is_in_the_reason(body: Any, words: str) -> None:
    with pytest.raises(Retry, match=words) as error:
        chat_reply(body)
    assert "hello" not in error.value.detail


@pytest.mark.parametrize(
    "content",
    ["yes", ["yes"], ["y", {"text": "es"}], {"type": "text", "text": "yes"}, [{"text": {"value": "yes"}}],
     [{"type": "thinking", "text": "no?"}, {"type": "output_text", "text": "yes"}]],
)  # fmt: skip
def test_a_content_of_any_form_is_its_text(content: Any) -> None:
    assert chat_reply({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}).text == "yes"


def test_a_routers_error_says_what_its_provider_says() -> None:
    raw = {"raw": "the model is rate-limited upstream", "provider_name": "P"}
    body = {"error": {"message": "Provider returned error", "code": 429, "metadata": raw}}
    assert error_of(json.dumps(body).encode()) == (f"Provider returned error: {raw['raw']}", "429")

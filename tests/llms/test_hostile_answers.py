"""Answers of a server that means harm: whatever it sends, a call ends as an answer or a known error."""

import asyncio
import gzip
import json
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from simulation import engine_of, openai

from airgen.llms.base import Message, Request, parse_logprobs
from airgen.llms.chat import most_prompt_tokens
from airgen.llms.money import Price
from airgen.storage.records import Answer
from airgen.storage.store import Store

REQUEST = Request("m", (Message("user", "why?"),), {"max_tokens": 50, "logprobs": True}, stage="query")
CENT = Price(10_000.0, 10_000.0, 10_000.0)
KEY = "sk-loopback-0123456789"
GOOD: dict[str, Any] = {
    "choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 2},
}


def body(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def answered(content: bytes, path: Path, *, headers: str = "", key: str | None = None) -> tuple[Answer, float]:
    """The row that a raw HTTP answer leaves in the real store, and what the engine counts for it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                if line == b"\r\n":
                    await reader.readexactly(length)
                    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{headers}"
                    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
                    await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def main() -> tuple[Answer, float]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with Store.open(path / "w.duckdb") as store:
            backend = openai(f"http://127.0.0.1:{port}/v1", key)
            async with engine_of(backend, store, price=CENT, budget_usd=1e6, retries=0) as engine:
                await engine.ask(REQUEST)
                spent = engine.spent_usd
            server.close()
            (row,) = store.rows(Answer)
            return row, spent

    return asyncio.run(main())


RESERVED = (most_prompt_tokens(REQUEST) + 50) / 100


@pytest.mark.parametrize(
    "usage",
    [
        "none", [1], 5, None, {}, {"prompt_tokens": "9"}, {"prompt_tokens": 10**400, "completion_tokens": 1},
        {"prompt_tokens": 10**19, "completion_tokens": 10**60}, {"prompt_tokens": -5, "completion_tokens": -5},
        {"prompt_tokens": float("nan"), "completion_tokens": 1}, {"prompt_tokens": True, "completion_tokens": 1},
        {"prompt_tokens": 9, "completion_tokens": [1]}, {"prompt_tokens": 10**6, "completion_tokens": 1},
    ],
)  # fmt: skip
def test_an_answer_with_an_absurd_usage_is_kept_and_paid_by_its_reservation(usage: Any, tmp_path: Path) -> None:
    row, spent = answered(body(usage=usage), tmp_path)
    assert (row.text, row.error) == ("fine", "")
    assert row.cost_usd == spent == pytest.approx(RESERVED)


@pytest.mark.parametrize(
    ("changes", "headers"),
    [
        ({"usage": {**GOOD["usage"], "prompt_tokens_details": [1]}}, ""),
        ({"usage": {**GOOD["usage"], "prompt_tokens_details": {"cached_tokens": 10**30}}}, ""),
        ({"choices": [{**GOOD["choices"][0], "logprobs": {"content": 5}}]}, ""),
        ({"choices": [{**GOOD["choices"][0], "logprobs": {"content": [{"token": "a", "logprob": 10**400}]}}]}, ""),
        ({"choices": [{**GOOD["choices"][0], "logprobs": {"content": [{"token": "a", "logprob": float("nan")}]}}]}, ""),
        ({"choices": [{**GOOD["choices"][0], "finish_reason": ["stop"]}]}, ""),
        ({}, f"x-ratelimit-limit-tokens: {'9' * 5000}\r\nx-ratelimit-remaining-tokens: 0\r\n"),
        ({}, f"x-ratelimit-limit-requests: 5\r\nx-ratelimit-reset-requests: {'9' * 5000}\r\n"),
    ],
)  # fmt: skip
def test_an_answer_with_poison_beside_it_is_kept(changes: dict[str, Any], headers: str, tmp_path: Path) -> None:
    row, spent = answered(body(**changes), tmp_path, headers=headers)
    assert (row.text, row.error, parse_logprobs(row)) == ("fine", "", [])
    assert 0 < spent <= 0.13


@pytest.mark.parametrize(
    ("content", "error", "usd"),
    [
        (body(choices=[{"message": {"content": None, "refusal": "no"}}]), "refusal", 0.12),
        (body(choices=[{"message": {"content": ""}, "finish_reason": "content_filter"}]), "content_filter", 0.12),
        (body(choices=[]), "bad_body", 0.12),
        (body(choices=[{"message": {"content": 5}}]), "bad_body", 0.12),
        (body(choices={"0": 1}, usage=None), "bad_body", RESERVED),
        (b"<html>", "bad_body", RESERVED),
        (b"[" * 100_000, "bad_body", RESERVED),
        (b"1" * 5_000, "bad_body", RESERVED),
        (json.dumps({"error": {"code": 10**30, "message": ["x"]}}).encode(), "http_500", 0.0),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_a_row_and_paid(content: bytes, error: str, usd: float, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airgen.llms.health.DOWN", 99)  # in this test, a single failed call does not mean a dead server
        row, spent = answered(content, tmp_path)
    assert row.error == error and spent == pytest.approx(usd) and row.cost_usd == spent


# -- memory --------------------------------------------------------------------------------------------------------

BOMB = 80 << 20


def packed(form: str) -> bytes:
    """Zeros of `BOMB` bytes, compressed."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, {"gzip": 31, "deflate": 15, "raw": -15}[form])
    return b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(BOMB >> 20)) + squeeze.flush()


@pytest.mark.parametrize(("form", "coding"), [("gzip", "gzip"), ("deflate", "deflate"), ("raw", "deflate")])
def test_a_bomb_takes_the_memory_of_an_answer_and_is_a_row(form: str, coding: str, tmp_path: Path) -> None:
    bomb = packed(form)
    tracemalloc.start()
    row, spent = answered(bomb, tmp_path, headers=f"Content-Encoding: {coding}\r\n")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert row.error == "too_large" and "more than 16 MB" in row.text and spent == pytest.approx(RESERVED)
    assert peak < 4 * (16 << 20)


RAW = zlib.compressobj(wbits=-15)


@pytest.mark.parametrize(
    ("coding", "content", "text", "error"),
    [
        ("gzip", gzip.compress(body(), mtime=0), "fine", ""),
        ("deflate", zlib.compress(body()), "fine", ""),
        ("deflate", RAW.compress(body()) + RAW.flush(), "fine", ""),
        ("br", b"x", "", "bad_body"),
        ("gzip", b"no gzip", "", "bad_body"),
        ("gzip", gzip.compress(body(), mtime=0)[:-9], "", "bad_body"),
        ("identity", b" " * (17 << 20), "", "too_large"),
    ],
    ids=["gzip", "deflate", "raw", "unknown", "none", "cut", "large"],
)
def test_an_encoding_is_read_or_is_a_row(coding: str, content: bytes, text: str, error: str, tmp_path: Path) -> None:
    row, _ = answered(content, tmp_path, headers=f"Content-Encoding: {coding}\r\n")
    assert row.error == error and (error or row.text == text)


# -- secrets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choice",
    [
        {"message": {"content": f"your key is {KEY}!"}},
        {"message": {"content": None, "refusal": f"not with {KEY}"}},
        {"message": {"content": f"{KEY}"}, "finish_reason": "content_filter"},
        {"message": {"content": "fine"}, "finish_reason": KEY},
        {"message": {"content": "fine"}, "logprobs": {"content": [{"token": KEY, "logprob": -1}]}},
        {
            "message": {"content": "x"},
            "logprobs": {"content": [{"token": part, "logprob": 0} for part in (KEY[:9], KEY[9:])]},
        },
    ],
)  # fmt: skip
def test_a_key_that_the_server_echoes_is_not_stored(
    choice: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    row, _ = answered(body(choices=[choice]), tmp_path, key="LOOPBACK_KEY")
    assert KEY not in repr(row) and KEY[9:] not in repr(row)
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_word_that_a_server_of_ones_own_wants_as_a_key_is_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPBACK_KEY", "fine")
    assert answered(body(), tmp_path, key="LOOPBACK_KEY")[0].text == "fine"

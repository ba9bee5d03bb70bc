"""Replies from outside: a model's answers, and a Hub that says what it likes. Only an AirgenError may come out."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hostile import JSON, broken, few, quick, replaced
from http_double import Asked, answering
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import openai

from airgen.audit.answers import read_answers
from airgen.audit.holes import Ledger
from airgen.errors import AirgenError, LlmError
from airgen.llms.answers import parse_json
from airgen.llms.base import Message, Refused, Reply, Request, Retry
from airgen.llms.batch import BatchBackend
from airgen.llms.endpoint import Endpoint
from airgen.net.http import retry_after
from airgen.publishing.hub import Hub

SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1},
        "level": {"type": "integer", "minimum": 0, "maximum": 3},
        "documents": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
    },
    "required": ["query"],
}
GOOD = b'Sure!\n```json\n{"query": "why?", "level": 2, "documents": ["a", "b"],}\n```\nAnything else?'


PIECES = st.sampled_from(
    ["{", "}", "[", "]", '"', "'", ":", ",", "\\", "```json\n", "```", '"query"', "why?", " ", "\n", "//", "/*", "#",
     "1e999", "NaN", "\x00", "\ud800", "“", "<|im_end|>", "null", "-", "\\u0000"]
)  # fmt: skip


@settings(deadline=None)
@given(
    broken(GOOD, b'{"query": "why?"}').map(lambda content: content.decode("utf-8", "surrogateescape")[:20_000])
    | st.lists(PIECES, max_size=80).map("".join)
    | st.text(max_size=60)
)
def test_answers(text: str) -> None:
    try:
        with quick():
            value = parse_json(text, SCHEMA)
    except ValueError as error:
        assert "\n" not in str(error) and len(str(error)) < 500
    else:
        assert isinstance(value["query"], str) and value["query"]


PAYLOAD = {
    "choices": [
        {
            "message": {"role": "assistant", "content": "text", "refusal": None},
            "finish_reason": "stop",
            "logprobs": {
                "content": [{"token": "Yes", "logprob": -0.1, "top_logprobs": [{"token": "a", "logprob": 0}]}]
            },
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
}


HEADERS = st.dictionaries(
    st.sampled_from(
        [f"x-ratelimit-{what}-{unit}" for what in ("limit", "remaining", "reset") for unit in ("requests", "tokens")]
        + [f"anthropic-ratelimit-{unit}-{what}" for what in ("limit", "reset") for unit in ("requests", "tokens")]
        + ["Retry-After", "retry-after-ms", "x-ratelimit-reset", "Content-Type"]
    ),
    st.text(max_size=30)
    | st.integers().map(str)
    | st.floats().map(str)
    | st.sampled_from(["9" * 5000, "1e999", "5m", "٣", "1" * 11, "2026-11-26T00:00:00Z", "0001-01-01", "1m1m9d"]),
)
ABSURD = st.sampled_from([10**400, -1, 2**63, "9" * 5000, "\ud800", float("nan")])
REQUEST = Request("m", (Message("user", "why?"),), {"max_tokens": 50, "logprobs": True}, stage="query")


def storable(reply: Reply) -> None:
    assert isinstance(reply.text, str) and isinstance(reply.finish_reason, str)
    assert all(0 <= number < 2**31 for number in (reply.prompt_tokens, reply.cached_tokens, reply.completion_tokens))
    json.dumps(reply.logprobs, allow_nan=False)


@settings(deadline=None)
@given(replaced(PAYLOAD, JSON | ABSURD), HEADERS, st.integers(0, 5))
def test_chat_completions(payload: object, headers: dict[str, str], cut: int) -> None:
    content = json.dumps(payload).encode()
    content = content[: len(content) // 2] if cut == 0 else content
    try:
        with quick():
            reply = openai("http://127.0.0.1:1/v1")._reply(REQUEST, (200, headers, content))
    except (Retry, Refused, LlmError) as error:
        assert len(str(error)) < 1000
    else:
        storable(reply)
        for limit, left, _ in reply.limits or ():
            assert 0 <= (limit or 0) < 2**63 and 0 <= (left or 0) < 2**63
    after = retry_after(headers)
    assert after is None or 0 <= after <= 3600


LINE = {"custom_id": "k", "response": {"status_code": 200, "body": PAYLOAD}, "error": {"code": "batch_expired"}}


@settings(deadline=None)
@given(replaced(LINE, JSON | ABSURD), st.integers(0, 5))
def test_lines_of_a_batch(item: object, cut: int) -> None:
    line = json.dumps(item).encode()
    batch = BatchBackend(Endpoint("http://127.0.0.1:1/v1"), Path("no-such-folder"))
    key, outcome = batch._outcome(line[: len(line) // 2] if cut == 0 else line, True)
    assert isinstance(key, str) and isinstance(outcome, Reply | AirgenError)
    if isinstance(outcome, Reply):
        storable(outcome)


def hub_at(url: str) -> Hub:
    pytest.importorskip("huggingface_hub")
    return Hub(endpoint=url, token="hf_" + "g" * 34, sleep=lambda _: None)


@pytest.fixture(scope="module")
def liar() -> Iterator[SimpleNamespace]:
    """Answers every request of `hub()` with `body` and `status`."""
    found = SimpleNamespace(body=b"", status=200, hub=lambda: hub_at(found.url))
    with (
        pytest.MonkeyPatch.context() as patch,
        answering(lambda _: (found.status, found.body, {"Content-Type": "application/json"})) as found.url,
    ):
        patch.setattr("time.sleep", lambda _: None)  # the library's own pauses between attempts
        yield found


INFO = {"id": "o/n", "sha": "abc", "private": True, "siblings": [{"rfilename": "a"}], "tags": ["x"]}
REFS = {"branches": [{"name": "main", "ref": "refs/heads/main", "targetCommit": "abc"}], "converts": [],
        "tags": [{"name": "1", "ref": "refs/tags/1", "targetCommit": "abc"}]}  # fmt: skip
TREE = [{"type": "file", "path": "a", "size": 3, "oid": "1", "lfs": {"oid": "2", "size": 3, "pointerSize": 1}}]
CALLS: dict[str, tuple[Any, Any]] = {
    "head": (INFO, lambda hub: hub.head("o/n")),
    "tags": (REFS, lambda hub: hub.tags("o/n")),
    "files": (TREE, lambda hub: hub.files("o/n", "main")),
    "ensure": (INFO, lambda hub: hub.ensure("o/n", private=True)),
}


@pytest.mark.parametrize("call", CALLS)
@few
@given(data=st.data())
def test_hub_replies(call: str, data: st.DataObject, liar: Any) -> None:
    good, ask = CALLS[call]
    payload = data.draw(replaced(good) | JSON)
    raw = data.draw(st.sampled_from([json.dumps(payload).encode()]) | broken(json.dumps(good).encode()))
    liar.body, liar.status = raw, data.draw(st.sampled_from([200, 200, 200, 400, 404, 503]))
    try:
        found = ask(liar.hub())
    except AirgenError as error:
        assert "\n" not in str(error)
    else:
        if call in ("tags", "files"):
            assert all(isinstance(value, str) for pair in found.items() for value in pair)


@pytest.mark.parametrize(("call", "answer"), [
    ("tags", {**REFS, "tags": [{"name": [], "ref": "refs/tags/1", "targetCommit": "abc"}]}),
    ("tags", {**REFS, "tags": [{"name": "1", "ref": "refs/tags/1", "targetCommit": 5}]}),
    ("files", [{**TREE[0], "oid": ["1"], "lfs": None}]),
])  # fmt: skip
def test_a_hub_whose_names_are_no_strings(call: str, answer: Any, liar: Any) -> None:
    liar.body, liar.status = json.dumps(answer).encode(), 200
    with pytest.raises(AirgenError, match="an answer of another form than the Hub's"):
        CALLS[call][1](liar.hub())


def test_a_hub_whose_listing_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airgen.publishing.hub._MOST_FILES", 50)
    pages = list[int]()

    def listing(asked: Asked) -> tuple[int, object, dict[str, str]]:
        """Every page names a next one."""
        pages.append(int(asked.path.partition("page=")[2] or 0))
        row = {"type": "file", "path": f"f{pages[-1]}", "size": 3, "oid": "1"}
        link = f'<http://{asked.headers["Host"]}/next?page={pages[-1] + 1}>; rel="next"'
        return 200, [row] * 10, {"Link": link, "Content-Type": "application/json"}

    with answering(listing) as url, pytest.raises(AirgenError, match="o/n has more than 50 files"):
        hub_at(url).files("o/n", "main")
    assert len(pages) < 9


def test_a_hub_whose_word_for_private_is_unknown(liar: Any) -> None:
    hub = liar.hub()
    for word in ("false", "no", 1, [0], None):
        liar.body, liar.status = json.dumps({**INFO, "private": word}).encode(), 200
        with pytest.raises(AirgenError, match="o/n exists and is public"):
            hub.exists("o/n", private=True)
    liar.body = json.dumps(INFO).encode()
    assert hub.exists("o/n", private=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "[" * 100_000),
        ("a.json", '{"key": "k", "answers": {"\u00b2": 1}}'),
        ("a.json", json.dumps({"key": "k", "answers": {"9" * 5_000: 1}})),
        ("a.json", json.dumps({"key": "k", "answers": {"9" * 4_000: 1}})),
        ("a.json", json.dumps({"key": "k", "answers": {"1": "\x1b[31m" * 9_000}})),
        ("a.json", json.dumps({"key": "k", "answers": [1]})),
        ("a.csv", "number,level\n1," + "9" * 200_000 + "\n"),
        ("a.csv", "number,level\n\u00b2,1\n"),
        ("a.csv", "number\n1\n"),
    ],
)
def test_answers_to_an_audit(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(AirgenError) as refused:
        read_answers(tmp_path / name, "k", 1)
    assert len(str(refused.value)) < 1_000


def test_a_level_beyond_all_integers(tmp_path: Path) -> None:
    (tmp_path / "j.jsonl").write_text('{"query-id": "q", "corpus-id": "p", "score": 1, "level": 1e999}\n')
    with pytest.raises(AirgenError, match="not a judgment"):
        Ledger(tmp_path / "j.jsonl")

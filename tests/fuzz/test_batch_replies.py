"""The Batch API may answer anything: a request ends in an answer or in one line, and a paid answer stays."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile import JSON, few, replaced
from http_double import Asked, answering
from hypothesis import given
from hypothesis import strategies as st
from simulation import MemoryStore, engine_of

from airgen.errors import AirgenError
from airgen.llms.base import Message, Request
from airgen.llms.batch import BatchBackend
from airgen.llms.endpoint import Endpoint
from airgen.llms.money import Price

Outcome = Callable[[Callable[[Path], Any]], Any]
ASKED = [Request("m", (Message("user", text),), {"max_tokens": 9}, stage="query") for text in ("one", "two", "three")]


@pytest.fixture(autouse=True, scope="module")
def impatient() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airgen.llms.batch.POLL_SECONDS", 0.0)
        patch.setattr("airgen.llms.batch.MAX_TRIES", 2)
        patch.setattr("airgen.llms.batch.MAX_BATCH_SECONDS", 0.3)  # for a batch that never ends
        patch.setattr("airgen.llms.batch.MAX_PAGES", 20)
        yield


def completion(text: str) -> dict[str, Any]:
    message = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"choices": [message], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}


def good_line(key: str) -> dict[str, Any]:
    return {"custom_id": key, "response": {"status_code": 200, "body": completion(f"answer to {key}")}, "error": None}


class Server:
    """Answers as the Batch API does, but for what `replies` holds by the name of a step."""

    def __init__(self, **replies: Any) -> None:
        self.replies = replies
        self.submitted: list[str] = []

    def __call__(self, asked: Asked) -> tuple[Any, ...] | None:
        path, _, _ = asked.path.partition("?")
        if path == "/v1/files":
            lines = [part for part in asked.body.split(b"\n") if part.startswith(b'{"custom_id"')]
            self.submitted = [json.loads(line)["custom_id"] for line in lines]
            return self._reply("upload", {"id": "file-in"})
        if path == "/v1/batches":
            if asked.method == "GET":
                return self._reply("list", {"data": [], "has_more": False})
            return self._reply("create", {"id": "batch-0", "status": "in_progress"})
        if path == "/v1/batches/batch-0":
            return self._reply("wait", {"id": "batch-0", "status": "completed", "output_file_id": "file-out"})
        if path == "/v1/files/file-out/content":
            return self._reply("output", b"\n".join(json.dumps(good_line(key)).encode() for key in self.submitted))
        return self._reply("error", b"")

    def _reply(self, step: str, usual: Any) -> tuple[Any, ...] | None:
        reply = self.replies.get(step, usual)
        if callable(reply):
            reply = reply(self.submitted)
        return reply if reply is None or isinstance(reply, tuple) else (200, reply)


def run(server: Server, folder: Path) -> tuple[list[Any], MemoryStore]:
    store = MemoryStore()

    async def main(url: str) -> list[Any]:
        backend = BatchBackend(Endpoint(f"{url}/v1"), folder)
        options: dict[str, Any] = {"concurrency": 1000, "adaptive": False, "timeout": None, "backoff": 0.0}
        async with engine_of(backend, store, price=Price(1.0, 1.0, 1.0), retries=1, **options) as engine:
            return await asyncio.gather(*(engine.ask(request) for request in ASKED), return_exceptions=True)

    with answering(server) as url:
        return asyncio.run(main(url)), store


def check(found: list[Any]) -> None:
    for one in found:
        assert not isinstance(one, BaseException) or isinstance(one, AirgenError), one
        if isinstance(one, AirgenError):
            assert str(one) and "\n" not in str(one) and len(str(one)) < 3000


def test_it_works_as_it_is(tmp_path: Path) -> None:
    found, store = run(Server(), tmp_path)
    assert [answer.text for answer in found] == [f"answer to {answer.key}" for answer in found]
    assert store.spent == pytest.approx(3 * 8 / 1e6)


USUAL: dict[str, Any] = {
    "upload": {"id": "file-in", "object": "file"},
    "list": {"data": [{"id": "batch-9", "metadata": {"airgen": "another"}}], "has_more": False},
    "create": {"id": "batch-0", "status": "validating"},
    "wait": {"id": "batch-0", "status": "failed", "errors": {"data": [{"code": "bad", "message": "no"}]},
             "output_file_id": "file-out", "error_file_id": "file-error", "metadata": {"airgen": "x"}},
}  # fmt: skip


@few
@given(data=st.data(), step=st.sampled_from(sorted(USUAL)))
def test_any_reply_to_any_step_ends_in_one_line(data: st.DataObject, step: str, outcome: Outcome) -> None:
    reply = data.draw(replaced(USUAL[step]) | JSON)
    outcome(lambda folder: check(run(Server(**{step: (200, json.dumps(reply))}), folder)[0]))


LINES = st.lists(
    replaced(good_line("KEY")).map(json.dumps)
    | JSON.map(json.dumps)
    | st.sampled_from(["", "\xff", "{", "[" * 5000, '{"custom_id": 5}', json.dumps(good_line("KEY"))]),
    max_size=6,
)


@few
@given(lines=LINES, error_lines=LINES)
def test_any_lines_of_results_end_in_answers_or_one_line(
    lines: list[str], error_lines: list[str], outcome: Outcome
) -> None:
    def of(wanted: list[str]) -> Callable[[list[str]], bytes]:
        def content(submitted: list[str]) -> bytes:
            named = [line.replace("KEY", key) for line, key in zip(wanted, submitted * 3, strict=False)]
            return "\n".join(named).encode("utf-8", "replace")

        return content

    files = {"id": "batch-0", "status": "completed", "output_file_id": "file-out", "error_file_id": "file-error"}
    server = Server(wait=files, output=of(lines), error=of(error_lines))
    outcome(lambda folder: check(run(server, folder)[0]))


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("other_file", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        {"response": None, "error": {"code": "batch_expired", "message": "late"}},
        {"response": {"status_code": 500, "body": {"error": {"message": "boom"}}}, "error": None},
        {"response": {"status_code": 400, "body": {"error": {"message": "bad"}}}, "error": None},
        {"response": {"status_code": 200, "body": {"choices": []}}, "error": None},
    ],
)
def test_a_paid_answer_is_never_replaced_by_an_error(
    error: dict[str, Any], other_file: bool, before: bool, tmp_path: Path
) -> None:
    def lines(keys: list[str], good: bool) -> bytes:
        return b"".join(
            json.dumps(good_line(key) if good else {"custom_id": key, **error}).encode() + b"\n" for key in keys
        )

    files = {"id": "batch-0", "status": "expired", "output_file_id": "file-out", "error_file_id": "file-error"}
    first, second = (False, True) if before else (True, False)
    if other_file:
        server = Server(wait=files, output=lambda keys: lines(keys, first), error=lambda keys: lines(keys, second))
    else:
        server = Server(wait=files, output=lambda keys: lines(keys, first) + lines(keys, second))
    found, store = run(server, tmp_path)
    assert [answer.text for answer in found] == [f"answer to {answer.key}" for answer in found]
    assert store.spent == pytest.approx(3 * 8 / 1e6)


@pytest.mark.parametrize(
    ("replies", "words"),
    [
        ({"upload": {"object": "file"}}, "an id has an unexpected form"),
        ({"upload": {"id": "../../admin"}}, "an id has an unexpected form"),
        ({"create": {"id": ["a"]}}, "an id has an unexpected form"),
        ({"wait": {"status": ["x"]}}, "the status of a batch has an unexpected form"),
        ({"wait": {"status": "failed", "errors": "no"}}, "refuses the batch: no"),
        ({"wait": {"status": "failed", "errors": [7]}}, "refuses the batch: 7"),
        ({"list": {"data": ["a", "b"]}}, "the list of batches has an unexpected form"),
        ({"list": {"data": [{"id": "b"}], "has_more": True}}, "a page that repeats an earlier one"),
        (
            {"wait": (404, {"error": {"message": "no such batch"}})},
            r"no such batch \(run the same command.*delete .*json",
        ),
        ({"output": (404, "gone")}, r"gone \(run the same command.*delete .*json"),
        ({"upload": (400, {"error": {"message": "no files here"}})}, "refuses the batch .*no files here"),
        ({"create": []}, "what /batches answers has an unexpected form"),
    ],
)
def test_what_is_wrong_and_what_to_do_is_said_in_one_line(replies: dict[str, Any], words: str, tmp_path: Path) -> None:
    found, store = run(Server(**replies), tmp_path)
    check(found)
    for one in found:
        assert isinstance(one, AirgenError)
        with pytest.raises(AirgenError, match=words):
            raise one
    assert not store.rows


def test_an_endless_list_is_left(tmp_path: Path) -> None:
    pages = iter(range(10_000))
    server = Server(list=lambda _: {"data": [{"id": f"b{next(pages)}"}], "has_more": True})
    check(found := run(server, tmp_path)[0])
    assert "20 pages and no end" in str(found[0]) and next(pages) == 20

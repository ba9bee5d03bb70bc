"""The Batch API against the loopback server: nothing is submitted twice, only what expired is sent again."""

import asyncio
import json
import logging
import traceback
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulation import MemoryStore, engine_of, requests

from airgen.errors import BudgetSpent, LlmError, Stopped, StoreError
from airgen.llms.base import Message, Request
from airgen.llms.batch import BatchBackend
from airgen.llms.batch_file import BatchFile
from airgen.llms.endpoint import Endpoint
from airgen.llms.engine import Engine
from airgen.llms.money import Price
from airgen.llms.openai import OpenAISettings
from airgen.steps.ask import connect
from airgen.storage.records import Answer


def run(base_url: str, folder: Path, store: MemoryStore, n: int, *access: Any) -> list[Answer]:
    async def main() -> list[Answer]:
        backend = BatchBackend(Endpoint(base_url, *access), folder)
        price = Price(1.0, 1.0, 1.0).halved()
        async with engine_of(
            backend, store, concurrency=50_000, adaptive=False, timeout=3600, backoff=0.01, price=price
        ) as engine:
            return await asyncio.gather(*(engine.ask(request) for request in requests(n)))

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airgen.llms.batch.POLL_SECONDS", 0.02)


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the program handles it."""


def test_one_stage_is_one_batch_and_costs_half(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server, store = loopback(), MemoryStore()
    answers = run(server.base_url, tmp_path, store, 300)
    assert len({answer.text for answer in answers}) == 300 and not any(answer.error for answer in answers)
    assert answers[0].cost_usd == (answers[0].prompt_tokens + answers[0].completion_tokens) * 0.5 / 1e6
    assert (server.stats()["batches"], server.stats()["batch_lines"]) == (1, 300)
    assert not BatchFile.unfinished(tmp_path)


def test_files_are_split_where_they_are_full(
    loopback: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback()
    monkeypatch.setattr("airgen.llms.batch.BATCH_REQUESTS", 10)
    assert len(run(server.base_url, tmp_path, MemoryStore(), 25)) == 25
    assert (server.stats()["batches"], server.stats()["batch_lines"]) == (3, 25)


TOKENS = "Enqueued token limit reached for m in organization o. Limit: {most:,} enqueued tokens. Try again later."


@pytest.mark.parametrize(
    ("unit", "most", "code", "words"),
    [
        ("tokens", 1200, "token_limit_exceeded", TOKENS),
        ("tokens", 1200, "token_limit_exceeded", "This is too much."),
        ("requests", 8, "too_many_tasks", "The number of tasks in the batch must be less than or equal to {most}."),
        ("requests", 8, "too_many_tasks", "There are too many tasks."),
    ],
)
def test_a_batch_that_is_too_large_is_divided_and_the_limit_is_kept(
    unit: str, most: int, code: str, words: str, loopback: Callable[..., Any], tmp_path: Path
) -> None:
    """The server takes one batch at a time, so any two at once would fail."""
    server = loopback(batch_most=[unit, most, code, words.format(most=most)], batch_seconds=0.03)
    answers = run(server.base_url, tmp_path, MemoryStore(), 40)
    assert len({answer.text for answer in answers}) == 40 and not any(answer.error for answer in answers)
    assert server.stats()["answered_twice"] == 0 and not BatchFile.unfinished(tmp_path)
    before = lines(server)[1]
    run(server.base_url, tmp_path, MemoryStore(), 40)
    assert lines(server)[1] - before == 40  # the next process begins with batches that fit


def test_a_single_request_that_is_too_large_stops(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(batch_most=["tokens", 1, "token_limit_exceeded", "Too large."])
    with pytest.raises(LlmError, match=r"refuses a batch of 1 requests \(Too large\.\)"):
        run(server.base_url, tmp_path, MemoryStore(), 4)


def test_only_what_expired_is_submitted_again(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server = loopback(batch_expire=10)  # every tenth, the first time
    answers = run(server.base_url, tmp_path, MemoryStore(), 100)
    assert not any(answer.error for answer in answers)
    assert (server.stats()["batches"], server.stats()["batch_lines"]) == (2, 110)
    assert server.stats()["answered_twice"] == 0


def ask(root: Path, url: str, texts: list[str], model: str = "m", **settings: Any) -> dict[str, str]:
    """Ask one LLM of a job with nothing on the disk but its batches, and end as a process does; answers by key."""
    value = {"backend": "openai", "model": model, "base_url": url, "mode": "batch"}
    connection = connect(OpenAISettings.model_validate({**value, **settings}), root, {})
    endpoint = settings.get("endpoint", "default")
    wanted = [
        Request(model, (Message("user", text),), {"max_tokens": 64}, endpoint=endpoint, stage="query") for text in texts
    ]

    async def main() -> list[Answer]:
        async with Engine(MemoryStore(), {(wanted[0].endpoint, model): connection}) as engine:
            return await asyncio.gather(*(engine.ask(request) for request in wanted))

    return {answer.key: answer.text for answer in asyncio.run(main())}


def killed_at(step: str, moment: str, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Do the work, which dies before a step, or after it and before it is noted."""
    real = getattr(BatchBackend, step)

    async def dying(self: BatchBackend, *arguments: Any) -> Any:
        if moment == "after":
            patch.setattr(BatchFile, "note", die)
            await real(self, *arguments)
        raise Killed

    def die(self: BatchFile, **changes: str) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(BatchBackend, step, dying)
        with pytest.raises(Killed):
            work()


STEPS = pytest.mark.parametrize("step", ["_upload", "_create", "_wait", "_fetch"])
JUDGED, WRITTEN = [f"judge {i}" for i in range(7)], [f"write {i}" for i in range(5)]


def lines(server: Any) -> tuple[int, int]:
    stats = server.stats()
    return stats["batches"], stats["batch_lines"]


@STEPS
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_between_any_two_steps(
    step: str, moment: str, loopback: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process goes on: nothing is paid twice, and no prompt reaches a server that it was not written for."""
    generator, judge = loopback(), loopback(batch_seconds=0.05)
    killed_at(step, moment, monkeypatch, lambda: ask(tmp_path, judge.base_url, JUDGED, endpoint="judge"))
    ask(tmp_path, generator.base_url, WRITTEN)
    assert lines(generator) == (1, 5)
    ask(tmp_path, judge.base_url, JUDGED, "another judge")
    assert len(set(ask(tmp_path, judge.base_url, JUDGED, endpoint="judge").values())) == 7
    assert (lines(generator), lines(judge)) == ((1, 5), (2, 14))


@STEPS
def test_an_answer_to_old_settings_is_not_one_to_new_ones(
    step: str, loopback: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback()
    old, new = ({"extra_body": {"guided": which}} for which in ("OLD", "NEW"))
    killed_at(step, "after", monkeypatch, lambda: ask(tmp_path, server.base_url, JUDGED, **old))
    before = lines(server)[0]
    keys = ask(tmp_path, server.base_url, JUDGED, **new).keys()
    assert lines(server)[0] == before + 1
    old_keys = ask(tmp_path, server.base_url, JUDGED, **old).keys()
    by_key = {body["custom_id"]: body["guided"] for body in server.stats()["bodies"]}
    assert by_key == {**dict.fromkeys(old_keys, "OLD"), **dict.fromkeys(keys, "NEW")} and len(by_key) == 14


@pytest.mark.parametrize("step", ["_upload", "_create"])
def test_requests_that_nobody_wants_any_more_are_not_submitted(
    step: str, loopback: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback()
    killed_at(step, "before", monkeypatch, lambda: ask(tmp_path, server.base_url, JUDGED))
    ask(tmp_path, server.base_url, WRITTEN)
    assert lines(server) == (1, 5)
    assert not [batch for folder in tmp_path.iterdir() for batch in BatchFile.unfinished(folder)]


def test_another_address_with_a_batch_under_way_is_refused(
    loopback: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, other = loopback(), loopback()
    killed_at("_wait", "before", monkeypatch, lambda: ask(tmp_path, server.base_url, JUDGED))
    with pytest.raises(LlmError, match=r"is at .*, and llm.base_url is .*: set it back"):
        ask(tmp_path, other.base_url, JUDGED)
    assert lines(other) == (0, 0)
    ask(tmp_path, server.base_url, JUDGED)
    assert lines(server) == (1, 7)


def test_answers_that_were_fetched_and_not_asked_for_are_not_lost(loopback: Callable[..., Any], tmp_path: Path) -> None:
    """Killed after the submission; the next process asks for a part first, a third one for the rest."""
    server, store = loopback(), MemoryStore()
    first = run(server.base_url, tmp_path / "a", store, 20)
    for state in (tmp_path / "a").glob("airgen-*.json"):  # as if the process had died before it noted the end
        state.write_text(json.dumps(json.loads(state.read_text()) | {"state": "submitted"}))
    fresh = MemoryStore()
    assert [answer.text for answer in run(server.base_url, tmp_path / "a", fresh, 5)] == [a.text for a in first[:5]]
    assert len(BatchFile.unfinished(tmp_path / "a")) == 1
    again = run(server.base_url, tmp_path / "a", fresh, 20)
    assert [answer.text for answer in again] == [answer.text for answer in first]
    assert server.stats()["batches"] == 1


def test_the_key_is_sent_and_shown_to_nobody(
    loopback: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = "sk-loopback-0123456789"
    access = {"Authorization": f"Bearer {key}"}, [key]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    caplog.set_level(logging.DEBUG)
    assert len(run(loopback(key=key).base_url, tmp_path / "a", MemoryStore(), 3, *access)) == 3
    with pytest.raises(LlmError, match=r"HTTP 401.*Bearer \[key\]") as caught:
        run(loopback(key="another").base_url, tmp_path / "b", MemoryStore(), 3, *access)
    shown = "".join(traceback.TracebackException.from_exception(caught.value).format())
    files = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text[:200] for text in (shown, caplog.text, *files) if key in text]


def test_a_state_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "airgen-0.json").write_text("{")
    with pytest.raises(StoreError, match=r"airgen-0\.json"):
        BatchFile.unfinished(tmp_path)


def test_a_bomb_of_results_is_not_inflated(
    loopback: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airgen.llms.batch.MAX_TRIES", 2)
    server = loopback(batch_bomb=24)
    tracemalloc.start()
    with pytest.raises(LlmError, match=r"does not answer \(bad_body.*Content-Encoding 'gzip'"):
        run(server.base_url, tmp_path, MemoryStore(), 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_an_answer_that_is_too_large_is_one_request_and_a_file_that_is_stops(
    loopback: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(batch_long=33)
    tracemalloc.start()
    answers = run(server.base_url, tmp_path / "a", MemoryStore(), 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sorted(answer.error or "" for answer in answers) == ["", "", "too_large"] and peak < 40 << 20
    monkeypatch.setattr("airgen.llms.endpoint.LARGEST_FILE", 1 << 20)
    with pytest.raises(LlmError, match="sends an answer of more than 1 MB"):
        run(server.base_url, tmp_path / "b", MemoryStore(), 3)
    monkeypatch.setattr("airgen.llms.endpoint.LARGEST_ANSWER", 16)
    with pytest.raises(LlmError, match="sends an answer of more than 0 MB"):
        run(server.base_url, tmp_path / "c", MemoryStore(), 3)


def test_a_connection_that_breaks_within_the_results_is_tried_again(
    loopback: Callable[..., Any], tmp_path: Path
) -> None:
    answers = run(loopback(batch_breaks=2).base_url, tmp_path, MemoryStore(), 3)
    assert not any(answer.error for answer in answers) and all(answer.text for answer in answers)


# -- leaving ----------------------------------------------------------------------------------------------------------


def stopped_while(step: str, url: str, folder: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stop the engine, as Ctrl-C does, once a batch has come to a step; what the user is told."""
    said: list[str] = []
    reached = asyncio.Event()
    real = getattr(BatchBackend, step)

    async def telling(self: BatchBackend, *arguments: Any) -> Any:
        reached.set()
        return await real(self, *arguments)

    async def main() -> None:
        backend = BatchBackend(Endpoint(url), folder)
        price = Price(1.0, 1.0, 1.0)
        options: dict[str, Any] = {"concurrency": 50_000, "adaptive": False, "timeout": None, "price": price}
        async with engine_of(backend, store, say=said.append, **options) as engine:
            asks = [asyncio.ensure_future(engine.ask(request)) for request in requests(5)]
            await reached.wait()
            engine.stop()
            for outcome in await asyncio.gather(*asks, return_exceptions=True):
                assert isinstance(outcome, Stopped) and "run the same command" in str(outcome)
        assert not engine.busy

    with monkeypatch.context() as patch:
        patch.setattr(BatchBackend, step, telling)
        asyncio.run(main())
    return said


@pytest.mark.parametrize("step", ["_upload", "_create", "_wait", "_fetch"])
def test_a_stop_leaves_the_batch_and_the_next_run_pays_once(
    step: str, loopback: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, store = loopback(batch_seconds=1000 if step != "_fetch" else 0), MemoryStore()
    said = stopped_while(step, server.base_url, tmp_path, store, monkeypatch)
    assert not store.rows and len(store.reservations) == 5
    if step in ("_wait", "_fetch"):
        assert len(said) == 1 and said[0].startswith("batch airgen-") and "5 requests continues at 127.0.0.1" in said[0]
    else:
        assert not said
    server.set(batch_seconds=0)
    answers = run(server.base_url, tmp_path, MemoryStore(), 5)
    assert all(answer.text for answer in answers) and server.stats()["answered_twice"] == 0
    assert lines(server) == (1, 5)


@pytest.mark.parametrize(("usd", "batches"), [(0.0002, 0), (0.02, 1), (None, 1)])
def test_a_budget_for_one_of_many_requests_sends_no_batch(
    loopback: Callable[..., Any], tmp_path: Path, usd: float | None, batches: int
) -> None:
    """A batch takes up to a day, so that a budget is not used up by batches of one request."""
    server = loopback()

    async def main() -> None:
        backend = BatchBackend(Endpoint(server.base_url), tmp_path)
        options: dict[str, Any] = {"concurrency": 50_000, "adaptive": False, "timeout": None}
        price = Price(1.0, 1.0, 1.0)
        async with engine_of(backend, MemoryStore(), price=price, budget_usd=usd, **options) as engine:
            await asyncio.gather(*(engine.ask(request) for request in requests(30)))

    if batches:
        asyncio.run(main())
    else:
        with pytest.raises(BudgetSpent, match=r"allows a batch of 1 of 30 requests, which can take a day: raise the"):
            asyncio.run(main())
    assert server.stats()["batches"] == batches


def test_a_stop_before_anything_was_submitted_costs_nothing(loopback: Callable[..., Any], tmp_path: Path) -> None:
    server, store, said = loopback(), MemoryStore(), list[str]()

    async def main() -> None:
        backend = BatchBackend(Endpoint(server.base_url), tmp_path)
        options: dict[str, Any] = {"concurrency": 50_000, "adaptive": False, "timeout": None}
        async with engine_of(backend, store, say=said.append, price=Price(1.0, 1.0, 1.0), **options) as engine:
            collected = asyncio.Event()
            backend.collected = collected.set  # in place of the engine, which would close the batch
            ask = asyncio.ensure_future(engine.ask(requests(1)[0]))
            await collected.wait()
            engine.stop()
            with pytest.raises(Stopped):
                await ask

    asyncio.run(main())
    assert (lines(server), said, store.spent) == ((0, 0), [], 0.0) and not BatchFile.unfinished(tmp_path)

"""A batch is closed on an event: when no further request can come. Time is simulated, so a batch that is never closed
is a deadlock, and one that is closed early is one batch too many."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from simulation import MemoryStore, Simulated, engine_of, failing, requests, simulated

from airgen.errors import AirgenError, BudgetSpent, Stopped
from airgen.llms.askers import together
from airgen.llms.base import Backend, CallLimits, Message, Reply, Request, Retry
from airgen.llms.call_queue import Connection
from airgen.llms.engine import Engine
from airgen.llms.money import Price
from airgen.steps.ask import ask_each


class Batches(Backend):
    """Keeps requests until it is told to send them; `sizes` of its batches. A batch takes an hour."""

    COLLECTS = True

    def __init__(self, behave: Callable[[Request, int], str | None] = lambda request, attempt: None) -> None:
        self.sizes: list[int] = []
        self._kept: list[tuple[Request, asyncio.Future[Reply]]] = []
        self._out: set[asyncio.Future[Reply]] = set()
        self._attempts: dict[str, int] = {}
        self._behave = behave

    @property
    def waiting(self) -> int:
        return len(self._kept) + len(self._out)

    async def send(self, request: Request) -> Reply:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._kept.append((request, future))
        self.collected()
        return await future

    def send_collected(self) -> None:
        batch, self._kept = self._kept, []
        if batch:
            self.sizes.append(len(batch))
            self._out |= {future for _, future in batch}
            asyncio.get_running_loop().call_later(3600.0, self._end, batch)

    def leave(self) -> list[str]:
        for _, future in self._kept:
            future.set_exception(Stopped("left"))
        self._kept = []
        return []

    def _end(self, batch: list[tuple[Request, asyncio.Future[Reply]]]) -> None:
        for request, future in batch:
            self._out.discard(future)
            attempt = self._attempts[request.key] = self._attempts.get(request.key, 0) + 1
            try:
                text = self._behave(request, attempt) or request.messages[-1].content
                future.set_result(Reply(text, prompt_tokens=10, completion_tokens=10))
            except AirgenError as error:
                future.set_exception(error)


def batch_engine(backend: Backend, **options: Any) -> Engine:
    return engine_of(backend, MemoryStore(), concurrency=1000, adaptive=False, timeout=None, **options)


def request(text: str, endpoint: str = "default") -> Request:
    return Request("m", (Message("user", text),), {"max_tokens": 10}, endpoint=endpoint)


@simulated
async def test_each_step_of_all_items_is_one_batch_however_slow_some_of_them_are() -> None:
    backend, slow = Batches(), random.Random(3)

    async with batch_engine(backend) as engine:

        async def work(item: int) -> None:
            for step in range(3):
                await asyncio.sleep(slow.choice([0, 0.001, 5, 300]))  # a commit, a search, a slow disk
                await engine.ask(request(f"{item} {step}"))
            await asyncio.sleep(slow.random())

        await ask_each(range(50), work, 1000)
    assert backend.sizes == [50, 50, 50]


@simulated
async def test_work_that_ends_or_fails_to_need_a_call_is_not_waited_for() -> None:
    backend = Batches()

    async with batch_engine(backend) as engine:

        async def work(item: int) -> None:
            await asyncio.sleep(item)
            for step in range(item % 3):
                await engine.ask(request(f"{item} {step}"))

        await ask_each(range(9), work, 1000)
    assert backend.sizes == [6, 3]


@simulated
async def test_fewer_workers_than_items_and_nested_work() -> None:
    backend = Batches()

    async with batch_engine(backend) as engine:

        async def draft(item: int, place: int) -> str:
            await asyncio.sleep(place * 7)
            return (await engine.ask(request(f"{item}/{place}"))).text

        async def work(item: int) -> None:
            drafts = await together(*(draft(item, place) for place in range(3)))
            assert drafts == [f"{item}/{place}" for place in range(3)]
            await asyncio.sleep(1)
            await engine.ask(request(f"{item} judged"))

        await ask_each(range(20), work, 10)
    assert backend.sizes == [30, 10, 30, 10]


@simulated
async def test_one_request_of_two_items_and_one_that_is_on_the_disk() -> None:
    backend, store = Batches(), MemoryStore()
    for wave in range(2):
        engine = engine_of(backend, store, concurrency=1000, adaptive=False, timeout=None)
        async with engine:

            async def work(item: int, engine: Engine = engine, wave: int = wave) -> None:
                await engine.ask(request(f"shared {item % 2}"))
                await engine.ask(request(f"own {item} {wave}"))

            await ask_each(range(6), work, 1000)
    assert backend.sizes == [2, 6, 6]


@simulated
async def test_what_failed_is_awaited_before_the_next_batch_is_closed() -> None:
    backend = Batches(failing(Retry("batch_expired"), lambda number, attempt: number % 10 == 0 and attempt == 1))
    async with batch_engine(backend, backoff=60) as engine:
        await asyncio.gather(*(engine.ask(one) for one in requests(100)))
    assert backend.sizes == [100, 10]


@simulated
async def test_a_live_call_may_lead_to_a_request_for_the_batch() -> None:
    backend, live = Batches(), Simulated(latency=40.0, slots=2)
    llms = {
        ("default", "m"): Connection(backend, CallLimits(1000, adaptive=False, timeout=None)),
        ("judge", "m"): Connection(live, CallLimits(3, adaptive=False)),
    }
    async with Engine(MemoryStore(), llms, say=lambda line: None) as engine:

        async def work(item: int) -> None:
            if item % 2:
                await engine.ask(request(f"live {item}", "judge"))
            await engine.ask(request(f"{item}"))

        await ask_each(range(12), work, 1000)
    assert backend.sizes == [12]


@simulated
async def test_a_budget_that_holds_calls_back_closes_the_batch() -> None:
    """Each call reserves more than it costs: what fits is one batch, and what that leaves is the next one."""
    backend = Batches()
    price = Price(0.0, 0.0, 1.0)
    async with batch_engine(backend, price=price, budget_usd=400e-6) as engine:
        answers = await asyncio.gather(*(engine.ask(one) for one in requests(30)), return_exceptions=True)
    assert backend.sizes[0] == 4 and sum(backend.sizes) == len(
        [one for one in answers if not isinstance(one, Exception)]
    )
    assert all(isinstance(one, BudgetSpent) for one in answers if isinstance(one, Exception)) and len(backend.sizes) > 1
    assert min(backend.sizes) > 1  # a batch takes up to a day, so that the rest is not spent one request at a time


@simulated
async def test_work_that_is_cancelled_or_fails_leaves_nobody_waiting() -> None:
    backend = Batches()
    async with batch_engine(backend) as engine:

        async def work(item: int) -> None:
            if item == 3:
                await asyncio.sleep(10)
                raise KeyError("at fault")
            await engine.ask(request(f"{item}"))

        with pytest.raises(KeyError):
            await ask_each(range(5), work, 1000)
        assert backend.sizes == []  # the fifth could still have asked
        await ask_each([7, 8], work, 1000)
    assert backend.sizes == [6]

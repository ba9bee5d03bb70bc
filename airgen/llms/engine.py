"""The engine: answers on disk first, then budget, limits, the backend, retries, and the answer on disk at last.

    async with Engine(backend, store, concurrency=64, budget_usd=5.0, price=price) as llm:
        answers = await asyncio.gather(*(llm.ask(request) for request in requests))

Calls start in the order they were asked, so calls that share a document stay adjacent and prefix caches serve
them. Identical requests are sent once. What is paid for is on the disk before anyone sees it. A spent budget, a
dead server and an endpoint that refuses for good each stop new calls at once; those in flight finish and are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from airgen.errors import AirgenError, LlmError, SettingsError, Stopped
from airgen.llms.base import AnswerStore, Backend, Request
from airgen.llms.budget import Budget
from airgen.llms.call_queue import GROUP, Backlog, Call, Lane, Retries
from airgen.llms.prices import FREE, Price, unknown_price
from airgen.llms.rate_limits import Gate, Pace
from airgen.llms.usage import Usage
from airgen.records import Answer

__all__ = ["Engine"]

LOOKUP_SECONDS = 0.002  # requests asked within this time are looked up on the disk together
LOOKUP_CALLS = 256  # at most so many: the first of many thousands should be on the wire while the others are looked up
GRACE = 20  # calls before a fraction of failures can stop the run


class Engine:
    """See the module. All methods belong to one event loop.

    concurrency: the most calls in flight to one endpoint and model; the engine adapts below it where `adaptive`.
    budget_usd, spent_usd: what the job may cost in all, and what it has cost before this process.
    price: model -> Price, or None where unknown (with a budget, that is a SettingsError at the model's first call).
    requests_per_minute, tokens_per_minute: the account's limits, where known; else headers and refusals teach.
    max_failures: stop after so many failed calls (1 and more), or such a fraction of the calls made (below 1).
    retry_failed: ask again what is on the disk as a failure.
    max_retries: attempts after the first, for 5xx, time-outs and dropped connections; `timeout`: seconds for one.
    """

    def __init__(
        self,
        backend: Backend,
        store: AnswerStore,
        *,
        concurrency: int = 16,
        adaptive: bool = True,
        budget_usd: float | None = None,
        spent_usd: float = 0.0,
        price: Callable[[str], Price | None] | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        max_failures: float | None = None,
        retry_failed: bool = False,
        max_retries: int = 5,
        timeout: float = 600.0,
        backoff: float = 0.5,
    ) -> None:
        self._backend, self._store = backend, store
        self._concurrency, self._adaptive = concurrency, adaptive
        self._budget = Budget(budget_usd, spent_usd)
        self._price = price or (lambda model: FREE)
        self._requests_per_minute, self._tokens_per_minute = requests_per_minute, tokens_per_minute
        self._max_failures, self._retry_failed = max_failures, retry_failed
        self._retries = Retries(failures=max_retries, timeout=timeout, backoff=backoff)
        self._usage, self._backlog = Usage(), Backlog()
        self._calls: dict[str, Call] = {}
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._unseen: list[Call] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking = False
        self._order = 0
        self._stopped: AirgenError | None = None

    # -- what the user of the engine sees ----------------------------------------------------------------------

    async def ask(self, request: Request) -> Answer:
        """The answer, from the disk or fresh; see `airgen.llms.base.Llm`."""
        key = request.key
        call = self._calls.get(key)
        if call is None:
            call = Call(request, key, self._order, asyncio.get_running_loop().create_future())
            self._order += 1
            self._calls[key] = call
            call.done.add_done_callback(lambda done: self._done(key, done))
            self._unseen.append(call)
            if not self._looking:
                self._looking = True
                self._spawn(self._look_up())
        call.waiters += 1
        try:
            return await asyncio.shield(call.done)
        finally:
            call.waiters -= 1

    def usage(self) -> Usage:
        """The live counters, by stage."""
        return self._usage

    @property
    def spent_usd(self) -> float:
        """What the job has cost, earlier processes included."""
        return self._budget.spent

    def limits(self) -> dict[str, dict[str, float | None]]:
        """For each `endpoint model`: how many calls may be in flight, and the requests a second that 429s taught."""
        return {
            " ".join(where): {"concurrency": lane.gate.limit, "rate": lane.pace.rate}
            for where, lane in self._lanes.items()
        }

    def stop(self, reason: str = "stopped by the user: run the same command to go on") -> None:
        """Send nothing more; calls in flight finish and are kept. Asking raises Stopped from now on."""
        self._halt(Stopped(reason))

    async def close(self) -> None:
        """Let the calls in flight finish, commit them, and release the backend."""
        self._halt(Stopped("the engine is closed"))
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._backend.close()

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- the disk ----------------------------------------------------------------------------------------------

    async def _look_up(self) -> None:
        """Look what was just asked for up on the disk, many in one query; put what is not there in line."""
        loop = asyncio.get_running_loop()
        try:
            while self._unseen:
                if len(self._unseen) < LOOKUP_CALLS:
                    await asyncio.sleep(LOOKUP_SECONDS)
                calls, self._unseen = self._unseen[:LOOKUP_CALLS], self._unseen[LOOKUP_CALLS:]
                try:
                    found = await loop.run_in_executor(None, self._read, [call.key for call in calls])
                except AirgenError as error:
                    self._halt(error)
                    found = {}
                for call in calls:
                    if answer := found.get(call.key):
                        self._usage[call.request.stage].from_disk += 1
                        _resolve(call, answer)
                    else:
                        lane = self._lane(call.request)
                        if self._stopped is not None:
                            _resolve(call, self._stopped)
                        else:
                            lane.join(call)
                self._pump()
        finally:
            self._looking = False

    def _read(self, keys: list[str]) -> dict[str, Answer]:
        found = self._store.answers(keys)
        if self._retry_failed and (failed := [key for key, answer in found.items() if answer.error]):
            self._store.forget(failed)
            for key in failed:
                del found[key]
        return found

    # -- the line ----------------------------------------------------------------------------------------------

    def _lane(self, request: Request) -> Lane:
        where = (request.endpoint, request.model)
        if where not in self._lanes:
            price = self._price(request.model)
            if price is None and self._budget.limit is not None:
                self._halt(SettingsError([f"a budget needs prices: {unknown_price(request.model)}"]))
            now = asyncio.get_running_loop().time()
            self._lanes[where] = Lane(
                pace=Pace(now, self._requests_per_minute, self._tokens_per_minute),
                gate=Gate(self._concurrency, now, self._adaptive),
                price=price or FREE,
                budget=self._budget,
                backlog=self._backlog,
                usage=self._usage,
                retries=self._retries,
                start=lambda lane, call: self._spawn(self._run(lane, call)),
                stop=self._halt,
            )
        return self._lanes[where]

    async def _run(self, lane: Lane, call: Call) -> None:
        """One attempt, and the answers it brings: onto the disk, then to whoever waits."""
        finished = await lane.attempt(self._backend, call)
        now = asyncio.get_running_loop().time()
        for each, answer in finished:
            self._usage[each.request.stage].add(answer, now)
            if answer.error:
                self._check_failures()
        self._backlog.unsaved += len(finished)
        self._pump()
        if not finished:
            return
        outcome: AirgenError | None = None
        try:
            await self._store.commit([answer for _, answer in finished])
        except AirgenError as error:
            outcome = error
            self._halt(error)
        full = self._backlog.unsaved > GROUP
        self._backlog.unsaved -= len(finished)
        for each, answer in finished:
            _resolve(each, outcome or answer)
        if full:  # the line may have waited for the disk
            self._pump()

    def _pump(self) -> None:
        """Every lane may move: the budget is shared, so room on one is room for another."""
        if self._stopped is not None:
            self._halt(self._stopped)
            return
        for lane in self._lanes.values():
            if lane:
                lane.pump()

    def _halt(self, error: AirgenError) -> None:
        """Nothing more is sent; whoever has no call on the wire is told why. The first reason stays."""
        self._stopped = self._stopped or error
        for lane in self._lanes.values():
            for call in lane.empty():
                _resolve(call, self._stopped)

    def _check_failures(self) -> None:
        if self._max_failures is None:
            return
        failures, calls = self._usage.failures, self._usage.calls
        total = sum(failures.values())
        if self._max_failures >= 1:
            reached = total >= self._max_failures
        else:
            reached = calls >= GRACE and total > self._max_failures * calls
        if reached:
            reasons = ", ".join(f"{reason} {count}" for reason, count in failures.most_common())
            self._halt(
                LlmError(
                    f"{total} of {calls} calls failed ({reasons}), max_failures is {self._max_failures:g}: "
                    "see `airgen status`; `airgen run --retry-failed` asks them again"
                )
            )

    # -- tasks -------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        """A defect in a backend, the store or here must leave nobody waiting for ever: it is passed on to all."""
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._halt(Stopped("an internal error stopped the engine"))
        for call in list(self._calls.values()):
            if not call.done.done():
                call.done.set_exception(error)

    def _done(self, key: str, done: asyncio.Future[Answer]) -> None:
        self._calls.pop(key, None)
        if not done.cancelled():
            done.exception()  # seen: whoever asked may have gone away


def _resolve(call: Call, outcome: Answer | AirgenError) -> None:
    if call.done.done():
        return
    if isinstance(outcome, Answer):
        call.done.set_result(outcome)
    else:
        call.done.set_exception(outcome)

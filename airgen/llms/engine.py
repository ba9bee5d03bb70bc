"""The engine: answers on disk first, then budget, limits, the backend, retries, and the answer on disk at last.

    async with Engine(backend, store, concurrency=64, budget_usd=5.0, price=price) as llm:
        answers = await asyncio.gather(*(llm.ask(request) for request in requests))

Calls start in the order they were asked, so calls that share a document stay adjacent and prefix caches serve
them. Identical requests are sent once. What is paid for is on the disk before anyone sees it. A spent budget, a
dead server and an endpoint that refuses for good each stop new calls at once; those in flight finish and are kept.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from airgen.errors import AirgenError, BudgetSpent, LlmError, SettingsError, Stopped
from airgen.keys import rng
from airgen.llms.base import AnswerStore, Backend, Refused, Reply, Request, Retry
from airgen.llms.limits import Gate, Pace
from airgen.llms.prices import FREE, Price, unknown_price
from airgen.llms.tokens import upper_bound
from airgen.llms.usage import Usage
from airgen.records import Answer

__all__ = ["Engine"]

LOOKUP_SECONDS = 0.002  # requests asked within this time are looked up on the disk together
DEFAULT_OUTPUT = 4096  # tokens reserved for an answer whose request names no maximum
GRACE = 20  # calls before a fraction of failures can stop the run
SUSPECTS = 3  # calls that ran out of retries with no success between them: the endpoint is down
ENDPOINT_FAULTS = {"connection", "rate_limit"}  # never a single request's own failure

_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(slots=True)
class _Call:
    """One request on its way: everyone who asked for it waits on `done`."""

    request: Request
    key: str
    order: int
    done: asyncio.Future[Answer]
    waiters: int = 1
    attempts: int = 0
    refusals: int = 0
    began: float = 0.0
    reserved: float = 0.0
    tokens: float = 0.0


@dataclass(slots=True)
class _Lane:
    """The line to one model at one endpoint: who stands in it, and how fast it may move."""

    pace: Pace
    gate: Gate
    price: Price
    line: list[tuple[int, _Call]] = field(default_factory=list)
    in_flight: int = 0
    timer: asyncio.TimerHandle | None = None
    resting: dict[int, tuple[asyncio.TimerHandle, _Call]] = field(default_factory=dict)
    suspects: list[tuple[_Call, Retry]] = field(default_factory=list)


class Engine:
    """See the module. All methods belong to one event loop.

    concurrency: the most calls in flight to one endpoint and model; the engine adapts below it.
    budget_usd, spent_usd: what the job may cost in all, and what it has cost before this process.
    price: model -> Price, or None where unknown (an unknown price with a budget is a SettingsError at the first
        call). requests_per_minute, tokens_per_minute: the account's limits, where known.
    max_failures: stop after so many failed calls (1 and more), or such a fraction of the calls made (below 1).
    retry_failed: ask again what is on the disk as a failure. max_retries: attempts after the first, for 5xx,
        time-outs and dropped connections. timeout: seconds for one attempt.
    """

    def __init__(
        self,
        backend: Backend,
        store: AnswerStore,
        *,
        concurrency: int = 16,
        budget_usd: float | None = None,
        spent_usd: float = 0.0,
        price: Callable[[str], Price | None] | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        max_failures: float | None = None,
        retry_failed: bool = False,
        max_retries: int = 5,
        max_refusals: int = 30,
        timeout: float = 600.0,
        backoff: float = 0.5,
    ) -> None:
        self._backend, self._store = backend, store
        self._concurrency = concurrency
        self._budget, self._spent, self._reserved = budget_usd, spent_usd, 0.0
        self._price = price or (lambda model: FREE)
        self._requests_per_minute, self._tokens_per_minute = requests_per_minute, tokens_per_minute
        self._max_failures, self._retry_failed = max_failures, retry_failed
        self._max_retries, self._max_refusals = max_retries, max_refusals
        self._timeout, self._backoff = timeout, backoff
        self._usage = Usage()
        self._calls: dict[str, _Call] = {}
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._unseen: list[_Call] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking = False
        self._order = 0
        self._stop: AirgenError | None = None
        self._random = rng("jitter")

    # -- what the user of the engine sees ----------------------------------------------------------------------

    async def ask(self, request: Request) -> Answer:
        """The answer, from the disk or fresh; see `airgen.llms.base.Llm`."""
        key = request.key
        call = self._calls.get(key)
        if call is None:
            loop = asyncio.get_running_loop()
            call = _Call(request, key, self._order, loop.create_future())
            self._order += 1
            self._calls[key] = call
            self._unseen.append(call)
            if not self._looking:
                self._looking = True
                self._spawn(self._look_up(), self._crashed)
        else:
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
        return self._spent

    def stop(self, reason: str = "stopped by the user: run the same command to go on") -> None:
        """Send nothing more; calls in flight finish and are kept. Asking raises Stopped from now on."""
        self._halt(Stopped(reason))

    async def close(self) -> None:
        """Let the calls in flight finish, commit them, and release the backend."""
        if self._stop is None:
            self._stop = Stopped("the engine is closed")
        for lane in self._lanes.values():
            if lane.timer:
                lane.timer.cancel()
            self._reject(lane)
        while self._tasks:
            await asyncio.gather(*self._tasks)
        await self._backend.close()

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- the disk ----------------------------------------------------------------------------------------------

    async def _look_up(self) -> None:
        """Look all that was just asked for up on the disk, in one query; put what is not there in line."""
        loop = asyncio.get_running_loop()
        try:
            while self._unseen:
                await asyncio.sleep(LOOKUP_SECONDS)
                calls, self._unseen = self._unseen, []
                try:
                    found = await loop.run_in_executor(None, self._read, [call.key for call in calls])
                except AirgenError as error:
                    for call in calls:
                        self._finish(call, error)
                    continue
                lanes = set()
                for call in calls:
                    answer = found.get(call.key)
                    if answer is not None:
                        self._usage[call.request.stage].from_disk += 1
                        self._finish(call, answer)
                    elif self._stop is not None:
                        self._finish(call, self._stop)
                    else:
                        lanes.add(self._enqueue(call))
                for endpoint_and_model in lanes:
                    self._pump(self._lanes[endpoint_and_model])
        finally:
            self._looking = False

    def _read(self, keys: list[str]) -> dict[str, Answer]:
        found = self._store.answers(keys)
        if self._retry_failed and (failed := [key for key, answer in found.items() if answer.error]):
            self._store.forget(failed)
            for key in failed:
                del found[key]
        return found

    async def _keep(self, finished: list[tuple[_Call, Answer]]) -> None:
        """Commit answers, then hand them to whoever waits for them."""
        try:
            await self._store.commit([answer for _, answer in finished])
        except AirgenError as error:
            self._halt(error)
            for call, _ in finished:
                self._finish(call, error)
        else:
            for call, answer in finished:
                self._finish(call, answer)

    # -- the line ----------------------------------------------------------------------------------------------

    def _enqueue(self, call: _Call) -> tuple[str, str]:
        request = call.request
        where = (request.endpoint, request.model)
        lane = self._lanes.get(where)
        if lane is None:
            price = self._price(request.model)
            if price is None:
                if self._budget is not None:
                    self._stop = SettingsError([f"a budget needs prices: {unknown_price(request.model)}"])
                price = FREE
            now = asyncio.get_running_loop().time()
            pace = Pace(now, self._requests_per_minute, self._tokens_per_minute)
            lane = self._lanes[where] = _Lane(pace, Gate(self._concurrency, now), price)
        # What the call can cost at most: a token a byte, and the longest answer it allows.
        output = int(request.params.get("max_completion_tokens") or request.params.get("max_tokens") or DEFAULT_OUTPUT)
        prompt = upper_bound(request.messages)
        call.reserved = lane.price.usd(prompt, output)
        call.tokens = prompt / 4 + output  # as providers count a call against tokens a minute before it ran
        heapq.heappush(lane.line, (call.order, call))
        self._usage[request.stage].waiting += 1
        return where

    def _pump(self, lane: _Lane) -> None:
        """Start calls from the head of the line while concurrency, pace and budget allow."""
        if self._stop is not None:
            self._reject(lane)
            return
        loop = asyncio.get_running_loop()
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        while lane.line and lane.in_flight < int(lane.gate.limit):
            call = lane.line[0][1]
            if call.waiters <= 0:  # everyone who asked has gone away
                self._leave(lane)
                self._calls.pop(call.key, None)
                call.done.cancel()
                continue
            wait = lane.pace.wait(call.tokens, loop.time())
            if wait > 0:
                lane.timer = loop.call_later(wait, self._pump, lane)
                return
            if self._budget is not None and self._spent + self._reserved + call.reserved > self._budget:
                # What calls in flight reserved and do not use comes back: wait for them before giving up.
                if self._reserved <= 0:
                    self._halt(
                        BudgetSpent(
                            f"budget: ${self._spent:.4f} of ${self._budget:.2f} is spent and the next call could "
                            f"cost ${call.reserved:.4f}: raise the budget and run the same command to go on"
                        )
                    )
                return
            self._leave(lane)
            self._reserved += call.reserved
            lane.in_flight += 1
            lane.pace.take(call.tokens)
            self._usage[call.request.stage].in_flight += 1
            self._spawn(self._send(lane, call), self._crashed)

    def _leave(self, lane: _Lane) -> None:
        _, call = heapq.heappop(lane.line)
        self._usage[call.request.stage].waiting -= 1

    def _reject(self, lane: _Lane) -> None:
        """Tell everyone in line, resting or under suspicion that nothing more is sent."""
        assert self._stop is not None
        while lane.line:
            call = lane.line[0][1]
            self._leave(lane)
            self._finish(call, self._stop)
        for timer, call in lane.resting.values():
            timer.cancel()
            self._usage[call.request.stage].waiting -= 1
            self._finish(call, self._stop)
        lane.resting.clear()
        for call, _ in lane.suspects:
            self._finish(call, self._stop)
        lane.suspects.clear()

    def _halt(self, error: AirgenError) -> None:
        """Nothing more is sent; whoever waits without a call on the line is told why."""
        if self._stop is None:
            self._stop = error
        for lane in self._lanes.values():
            self._reject(lane)

    def _finish(self, call: _Call, outcome: Answer | AirgenError) -> None:
        self._calls.pop(call.key, None)
        if call.done.done():
            return
        if isinstance(outcome, Answer):
            call.done.set_result(outcome)
        else:
            call.done.set_exception(outcome)
            if call.waiters <= 0:
                call.done.exception()  # nobody is left to see it: not worth a warning

    def _spawn(self, work: Coroutine[Any, Any, None], landed: Callable[[asyncio.Task[None]], None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(landed)

    def _crashed(self, task: asyncio.Task[None]) -> None:
        """A defect in a backend, the store or here must not leave anybody waiting for ever: pass it on to all."""
        if task.cancelled() or task.exception() is None:
            return
        self._stop = self._stop or Stopped("an internal error stopped the engine")
        for call in list(self._calls.values()):
            if not call.done.done():
                call.done.set_exception(task.exception() or self._stop)
                if call.waiters <= 0:
                    call.done.exception()
        self._calls.clear()

    # -- one call ----------------------------------------------------------------------------------------------

    async def _send(self, lane: _Lane, call: _Call) -> None:
        """One attempt, and what follows from it."""
        request, stage = call.request, self._usage[call.request.stage]
        loop = asyncio.get_running_loop()
        sent = loop.time()
        call.began = call.began or sent
        call.attempts += 1
        outcome: Reply | AirgenError
        try:
            async with asyncio.timeout(self._timeout):
                outcome = await self._backend.send(request)
        except TimeoutError:
            outcome = Retry("timeout", detail=f"no answer within {self._timeout:g} s")
        except AirgenError as error:
            outcome = error
        now = loop.time()
        stage.in_flight -= 1
        lane.in_flight -= 1
        self._reserved = max(0.0, self._reserved - call.reserved) if self._in_flight else 0.0
        answer: Answer | None = None
        if isinstance(outcome, Reply):
            answer = self._answer(call, outcome, lane.price, now - call.began)
            self._spent += answer.cost_usd
            lane.pace.succeeded()
            lane.pace.settle(call.tokens, outcome.prompt_tokens + outcome.completion_tokens)
            lane.gate.succeeded(request.stage, sent, now, bool(lane.line))
            if outcome.limits:
                lane.pace.told(outcome.limits, lane.in_flight, now)
        elif isinstance(outcome, Retry):
            self._after_retry(lane, call, outcome, sent, now)
        elif isinstance(outcome, Refused):
            answer = self._failure(call, outcome, now - call.began)
        else:
            self._halt(outcome)
            self._finish(call, outcome)
        finished = [] if answer is None else [(call, answer)]
        finished += self._judge_suspects(lane, now, alive=answer is not None)
        for each, row in finished:
            self._usage[each.request.stage].add(row, now)
            self._check_failures(bool(row.error))
        for other in self._lanes.values():  # the budget is shared: room on one lane may let another move
            if other.line:
                self._pump(other)
        if finished:
            await self._keep(finished)

    @property
    def _in_flight(self) -> int:
        return sum(lane.in_flight for lane in self._lanes.values())

    def _after_retry(self, lane: _Lane, call: _Call, error: Retry, sent: float, now: float) -> None:
        """Let the call rest and stand in line again, or hold it as a suspect once its retries are used up."""
        limited = error.reason == "rate_limit"
        lane.gate.failed(sent, now)
        if limited:
            call.refusals += 1
            call.attempts -= 1
            lane.pace.refused(sent, now, error.after, self._random.random())
        if self._stop is not None:
            self._finish(call, self._stop)
            return
        # A time-out may have been paid for and is slow: it is repeated less often.
        allowed = min(2, self._max_retries) if error.reason == "timeout" else self._max_retries
        if call.attempts > allowed or call.refusals > self._max_refusals:
            lane.suspects.append((call, error))
            return
        stage = self._usage[call.request.stage]
        stage.retries[error.reason] += 1
        stage.waiting += 1
        if limited:  # the pace already holds the whole lane back
            heapq.heappush(lane.line, (call.order, call))
            return
        pause = min(30.0, self._backoff * 2 ** (call.attempts - 1)) * (0.5 + self._random.random())
        timer = asyncio.get_running_loop().call_later(max(pause, error.after or 0.0), self._again, lane, call)
        lane.resting[call.order] = (timer, call)

    def _again(self, lane: _Lane, call: _Call) -> None:
        del lane.resting[call.order]
        heapq.heappush(lane.line, (call.order, call))
        self._pump(lane)

    def _judge_suspects(self, lane: _Lane, now: float, alive: bool) -> list[tuple[_Call, Answer]]:
        """Whose fault it was that calls ran out of retries: their own (failure rows), or the endpoint's (a stop).

        An endpoint that answers others is `alive`. One that fails several calls in a row is down: no failure is
        recorded, so that the next run asks those calls again by itself.
        """
        if not lane.suspects:
            return []
        idle = not (lane.line or lane.in_flight or lane.resting)
        endpoint = any(error.reason in ENDPOINT_FAULTS for _, error in lane.suspects)
        if not alive and (len(lane.suspects) >= SUSPECTS or (idle and endpoint)):
            call, error = lane.suspects[-1]
            self._halt(
                Stopped(
                    f"{call.request.model} at endpoint {call.request.endpoint!r} does not answer ({error}) after "
                    f"{call.attempts + call.refusals} tries: run the same command to go on once it does"
                )
            )
            return []
        if not alive and not idle:
            return []
        failed = [(call, self._failure(call, error, now - call.began)) for call, error in lane.suspects]
        lane.suspects.clear()
        return failed

    def _check_failures(self, failed: bool) -> None:
        if not failed or self._max_failures is None or self._stop is not None:
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

    def _answer(self, call: _Call, reply: Reply, price: Price, seconds: float) -> Answer:
        request = call.request
        logprobs = ""
        if reply.logprobs:
            logprobs = json.dumps([[list(pair) for pair in token] for token in reply.logprobs], ensure_ascii=True)
        return Answer(
            key=call.key,
            stage=request.stage,
            model=request.model,
            endpoint=request.endpoint,
            # As it will come back from the disk, so that a resumed run sees what this one sees.
            text=_storable(reply.text),
            finish_reason=reply.finish_reason,
            prompt_tokens=reply.prompt_tokens,
            cached_tokens=reply.cached_tokens,
            completion_tokens=reply.completion_tokens,
            cost_usd=price.usd(reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens),
            seconds=seconds,
            logprobs=logprobs,
        )

    def _failure(self, call: _Call, error: Retry | Refused, seconds: float) -> Answer:
        """The row of a failed call: the reason, and in place of a text what the server said."""
        request = call.request
        return Answer(
            key=call.key,
            stage=request.stage,
            model=request.model,
            endpoint=request.endpoint,
            text=_storable(error.detail[:500]),
            error=_storable(error.reason),
            seconds=seconds,
        )


def _storable(text: str) -> str:
    """The text as it comes back from the disk: without NUL, lone surrogates replaced."""
    return text if text.isascii() and "\x00" not in text else _SURROGATES.sub("\ufffd", text).replace("\x00", "")

"""The line to one model at one endpoint: who stands in it, how fast it moves, what happens to what comes back.

A call leaves the line in the order in which it was asked, runs one attempt, and then is answered, has failed
for good (an `Answer` with `error`), rests and returns to its old place, or is held as a suspect: it ran out of
retries, and whether that was its own fault or the endpoint's shows in what happens to the others.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import Callable
from dataclasses import dataclass

from airgen.errors import AirgenError, Stopped
from airgen.keys import rng
from airgen.llms.base import Backend, Refused, Reply, Request, Retry
from airgen.llms.budget import Budget
from airgen.llms.prices import Price
from airgen.llms.rate_limits import Gate, Pace
from airgen.llms.tokens import upper_bound
from airgen.llms.usage import Usage
from airgen.records import Answer, storable

__all__ = ["GROUP", "Backlog", "Call", "Lane", "Retries"]

DEFAULT_OUTPUT = 4096  # tokens reserved for an answer whose request names no maximum
GROUP = 32  # answers that may wait for their commit beside the calls in flight: what a kill can lose
SUSPECTS = 3  # calls that ran out of retries with no success between them: the endpoint is down
ENDPOINT_FAULTS = {"connection", "rate_limit"}  # never a single request's own failure


@dataclass(slots=True)
class Call:
    """One request on its way: everyone who asked for it waits on `done`; `order` is its place in line."""

    request: Request
    key: str
    order: int
    done: asyncio.Future[Answer]
    waiters: int = 0
    attempts: int = 0
    refusals: int = 0
    began: float = 0.0
    reserved: float = 0.0
    tokens: float = 0.0
    number: int = 0


@dataclass(slots=True)
class Backlog:
    """Answers that have come and are not on the disk yet, over all lanes."""

    unsaved: int = 0


@dataclass(frozen=True, slots=True)
class Retries:
    """How patient to be: `failures` repeats after 5xx and dropped connections, `timeouts` after time-outs (they are
    slow and may have been paid for), `refusals` after 429s. `backoff` is the first pause in seconds, doubled each
    time; `timeout` ends an attempt, in seconds."""

    failures: int = 5
    timeouts: int = 2
    refusals: int = 30
    backoff: float = 0.5
    timeout: float = 600.0

    def allow(self, call: Call, error: Retry) -> bool:
        """Whether the call may be tried again."""
        allowed = min(self.timeouts, self.failures) if error.reason == "timeout" else self.failures
        return call.attempts <= allowed and call.refusals <= self.refusals


class Lane:
    """See the module. `start(lane, call)` is called for each call that may go; `stop(error)` ends the whole engine."""

    def __init__(
        self,
        *,
        pace: Pace,
        gate: Gate,
        price: Price,
        budget: Budget,
        backlog: Backlog,
        usage: Usage,
        retries: Retries,
        start: Callable[[Lane, Call], None],
        stop: Callable[[AirgenError], None],
    ) -> None:
        self.pace, self.gate = pace, gate
        self._price, self._budget, self._backlog, self._usage, self._retries = price, budget, backlog, usage, retries
        self._start, self._stop = start, stop
        self._line: list[tuple[int, Call]] = []
        self._resting: dict[int, tuple[asyncio.TimerHandle, Call]] = {}
        self._suspects: list[tuple[Call, Retry]] = []
        self._in_flight = 0
        self._failing = 0  # failures in a row
        self._timer: asyncio.TimerHandle | None = None
        self._random = rng("jitter")
        self._now = asyncio.get_running_loop().time

    def __bool__(self) -> bool:
        return bool(self._line)

    def join(self, call: Call) -> None:
        """Put a new call in line."""
        request = call.request
        output = request.params.get("max_completion_tokens") or request.params.get("max_tokens") or DEFAULT_OUTPUT
        prompt = upper_bound(request.messages)
        # The most it can cost: a token a byte, and the longest answer it allows.
        call.reserved = self._price.usd(prompt, int(output))
        # As providers count a call against tokens a minute before it ran.
        call.tokens = prompt / 4 + int(output)
        self._usage[request.stage].waiting += 1
        heapq.heappush(self._line, (call.order, call))

    def pump(self) -> None:
        """Start calls from the head of the line while concurrency, pace and budget allow."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._line and self._room():
            call = self._line[0][1]
            if call.waiters <= 0:  # everyone who asked has gone away
                self._leave()
                call.done.cancel()
                continue
            if (wait := self.pace.wait(call.tokens, self._now())) > 0:
                self._timer = asyncio.get_running_loop().call_later(wait, self.pump)
                return
            try:
                if not self._budget.reserve(call.reserved):
                    return
            except AirgenError as error:
                self._stop(error)
                return
            self._leave()
            self._in_flight += 1
            call.number = self.pace.take(call.tokens)
            self._usage[call.request.stage].in_flight += 1
            self._start(self, call)

    def empty(self) -> list[Call]:
        """Take everyone out who has no call on the wire, for good."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        out = []
        while self._line:
            out.append(self._leave())
        for timer, call in self._resting.values():
            timer.cancel()
            self._usage[call.request.stage].waiting -= 1
            out.append(call)
        self._resting.clear()
        out += [call for call, _ in self._suspects]
        self._suspects.clear()
        return out

    async def attempt(self, backend: Backend, call: Call) -> list[tuple[Call, Answer]]:
        """Send a call once. Returns what is finished by that: often the call, sometimes none or several."""
        sent = self._now()
        call.began = call.began or sent
        call.attempts += 1
        outcome: Reply | AirgenError
        try:
            async with asyncio.timeout(self._retries.timeout):
                outcome = await backend.send(call.request)
        except TimeoutError:
            outcome = Retry("timeout", detail=f"no answer within {self._retries.timeout:g} s")
        except AirgenError as error:
            outcome = error
        finally:
            self._in_flight -= 1
            self._usage[call.request.stage].in_flight -= 1
        now = self._now()
        finished: list[tuple[Call, Answer]] = []
        if isinstance(outcome, Reply):
            answer = self._answer(call, outcome, now - call.began)
            finished.append((call, answer))
            self._failing = 0
            self._budget.settle(call.reserved, answer.cost_usd)
            self.pace.settle(call.tokens, outcome.prompt_tokens + outcome.completion_tokens)
            self.gate.succeeded(call.request.stage, sent, now, bool(self._line))
            if outcome.limits:
                self.pace.told(outcome.limits, call.number, now)
        else:
            self._budget.settle(call.reserved, 0.0)
            if isinstance(outcome, Retry):
                self._failing += outcome.reason != "rate_limit"
                self._failed(call, outcome, sent, now)
            elif isinstance(outcome, Refused):
                finished.append((call, _failure(call, outcome, now)))
            else:
                self._suspects.append((call, Retry("stopped")))  # so that `empty` finds it
                self._stop(outcome)
        return finished + self._judge_suspects(now, alive=bool(finished))

    def _room(self) -> bool:
        """Whether one more may be sent. While nothing comes through, resting calls keep their places, so that a dead
        server is not asked everything; a few more than fit are tried, lest bad requests look like a dead server."""
        limit = int(self.gate.limit)
        stuck = self._failing >= SUSPECTS and self._in_flight + len(self._resting) >= max(limit, 3 * SUSPECTS)
        return self._in_flight + max(0, self._backlog.unsaved - GROUP) < limit and not stuck

    def _leave(self) -> Call:
        _, call = heapq.heappop(self._line)
        self._usage[call.request.stage].waiting -= 1
        return call

    def _failed(self, call: Call, error: Retry, sent: float, now: float) -> None:
        """Let the call return to the line, at once or rested, or hold it as a suspect."""
        limited = error.reason == "rate_limit"
        if limited:
            call.refusals += 1
            call.attempts -= 1
            self.pace.refused(call.number, sent, now, error.after, self._random.random())
        if not limited or self.pace.refusals > 1:  # a slower pace is the cure for a single refusal
            self.gate.failed(sent, now)
        if not self._retries.allow(call, error):
            self._suspects.append((call, error))
            return
        stage = self._usage[call.request.stage]
        stage.retries[error.reason] += 1
        stage.waiting += 1
        if limited:  # the pace already holds the whole lane back
            heapq.heappush(self._line, (call.order, call))
            return
        pause = min(30.0, self._retries.backoff * 2 ** (call.attempts - 1)) * (0.5 + self._random.random())
        timer = asyncio.get_running_loop().call_later(max(pause, error.after or 0.0), self._again, call)
        self._resting[call.order] = (timer, call)

    def _again(self, call: Call) -> None:
        del self._resting[call.order]
        heapq.heappush(self._line, (call.order, call))
        self.pump()

    def _judge_suspects(self, now: float, alive: bool) -> list[tuple[Call, Answer]]:
        """Whose fault it was that calls ran out of retries: their own (failure rows), or the endpoint's (a stop).

        An endpoint that answers others is `alive`. One that fails several calls in a row is down: no failure is
        recorded, so that the next run asks those calls again by itself.
        """
        if not self._suspects:
            return []
        idle = not (self._line or self._in_flight or self._resting)
        endpoint = any(error.reason in ENDPOINT_FAULTS for _, error in self._suspects)
        if not alive and (len(self._suspects) >= SUSPECTS or (idle and endpoint)):
            call, error = self._suspects[-1]
            self._stop(
                Stopped(
                    f"{call.request.model} at endpoint {call.request.endpoint!r} does not answer ({error}) after "
                    f"{call.attempts + call.refusals} tries: run the same command to go on once it does"
                )
            )
            return []
        if not alive and not idle:
            return []
        failed = [(call, _failure(call, error, now)) for call, error in self._suspects]
        self._suspects.clear()
        return failed

    def _answer(self, call: Call, reply: Reply, seconds: float) -> Answer:
        request = call.request
        logprobs = json.dumps([[list(pair) for pair in token] for token in reply.logprobs]) if reply.logprobs else ""
        return Answer(
            key=call.key,
            stage=request.stage,
            model=request.model,
            endpoint=request.endpoint,
            text=storable(reply.text),
            finish_reason=reply.finish_reason,
            prompt_tokens=reply.prompt_tokens,
            cached_tokens=reply.cached_tokens,
            completion_tokens=reply.completion_tokens,
            cost_usd=self._price.usd(reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens),
            seconds=seconds,
            logprobs=logprobs,
        )


def _failure(call: Call, error: Retry | Refused, now: float) -> Answer:
    """The row of a failed call: the reason, and in place of a text what the server said."""
    request = call.request
    return Answer(
        key=call.key,
        stage=request.stage,
        model=request.model,
        endpoint=request.endpoint,
        text=storable(error.detail[:500]),
        error=storable(error.reason),
        seconds=now - call.began,
    )

"""The queue of calls to one model at one endpoint: their order, their rate, and the handling of failures.

Calls start in the order in which they were requested. An attempt ends in one of four ways: with an answer; with a
permanent failure (an `Answer` with `error`); with a pause, after which the call returns to its old place in the queue;
or, after the last retry, with the call being set aside until the outcome of other calls shows whether this call or the
endpoint is at fault.
"""

import asyncio
import heapq
import json
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airgen.components.keys import rng
from airgen.errors import AirgenError, Stopped
from airgen.llms.accepted_parameters import most_output
from airgen.llms.base import Backend, CallFailed, CallLimits, Refused, Reply, Request, Retry, answer_key
from airgen.llms.chat import count_messages, most_prompt_tokens, with_usage
from airgen.llms.health import DOWN, Health
from airgen.llms.money import FREE, Budget, Price, StageUsage, Usage, cost
from airgen.llms.rate_limits import ConcurrencyLimit, RateLimit
from airgen.net.retrying import spread_pause
from airgen.storage.records import Answer, Payment, Reservation, storable

COMMIT_GROUP = 32  # answers that may wait for their commit, in addition to the calls in flight, which a kill can lose
PERHAPS_PAID = {"timeout", "bad_body"}  # failures that a server may bill, whatever the backend says
THINKING = "thinking"  # the model used up its tokens for reasoning, and gets more
MAX_ROOM_RAISES = 8
MAX_TIMEOUT_RETRIES = 2  # timeouts are slow, and may have been paid for
MAX_UNREACHED_RETRIES = 2  # while no server has ever answered: the address is probably wrong, and the user waits
MAX_REFUSAL_RETRIES = 30  # after HTTP 429
LONGEST_PAUSE = 30.0  # seconds, before a share of chance
SILENT_SECONDS = 10.0  # seconds without a call because of limits, after which the user is informed
MAX_HELD_SECONDS = 3600.0  # seconds without an answer because of limits, after which the run stops


@dataclass(frozen=True)
class Connection:
    """The connection to one LLM: its backend, its limits and its price (None if unknown).

    `settings` are the backend-specific settings that change an answer. They are part of the answer's key.
    """

    backend: Backend
    limits: CallLimits = field(default_factory=CallLimits)
    price: Price | None = FREE
    settings: Mapping[str, Any] = field(default_factory=dict)

    def key(self, request: Request) -> str:
        """Return the key of the answer to a request."""
        return answer_key(request, self.settings)


@dataclass(slots=True)
class Call:
    """A request. Each caller waits on a future in `waiters`.

    `order` is its place in the queue, and `stage` counts it.
    """

    request: Request
    key: str
    order: int
    stage: StageUsage
    waiters: list[asyncio.Future[Answer]] = field(default_factory=list)
    attempts: int = 0
    refusals: int = 0
    began: float = 0.0
    prompt: int = 0
    reserved: float = 0.0
    replaced: Sequence[str] = ()  # open reservations of a killed process, which this attempt's reservation replaces
    paid: float = 0.0
    tokens: float = 0.0
    number: int = 0


@dataclass(slots=True)
class Shared:
    """State shared by all queues of an engine. `unsaved` is the number of answers that are not on disk yet.

    `start(queue, call)` is called for each call that may start, and `drop(call)` for each call that has no waiting
    caller any longer. `stop(error)` stops the whole engine. `save(rows)` returns once the rows are on disk. `say(text)`
    shows the user a line. `waited()` is called when a queue's pause has ended. `payments` are saved next.
    """

    budget: Budget
    start: "Callable[[CallQueue, Call], None]"
    drop: Callable[[Call], object]
    stop: Callable[[AirgenError], None]
    save: Callable[[Sequence[Any]], Awaitable[None]]
    say: Callable[[str], None]
    waited: Callable[[], None] = lambda: None
    payments: list[Payment] = field(default_factory=list)
    unsaved: int = 0


_OWN_PROMPT_TOKENS = 1000  # tokens that a server may plausibly add to a prompt
_LONG_PROMPT = 4000  # bytes: shorter prompts fit into the context of any server
_LEAST_READ = 0.6  # share of a prompt's estimated tokens; tokenizers differ by less


class CallQueue:
    """The calls waiting for one model at one endpoint, and the limits under which they start."""

    def __init__(self, connection: Connection, shared: Shared) -> None:
        self._now = asyncio.get_running_loop().time
        self._connection, self._shared, limits = connection, shared, connection.limits
        self.rate = RateLimit(self._now(), limits.requests_per_minute, limits.tokens_per_minute)
        self.concurrency = ConcurrencyLimit(limits.concurrency, self._now(), limits.adaptive)
        self._limits, self._price = limits, connection.price or FREE
        self._queued: list[tuple[int, Call]] = []
        self._short = False  # whether the budget has no room for the next call while others are in flight
        self._paused: dict[int, tuple[asyncio.TimerHandle, Call]] = {}
        self._set_aside: list[tuple[Call, Retry]] = []
        self._in_flight = 0
        self._health = Health()
        self._timer: asyncio.TimerHandle | None = None
        self._reached = False  # whether the server has ever answered
        self._held_since: float | None = None  # the time since which limits have held calls back without an answer
        self._last_limit = ""  # the server's message
        self._say_again = 0.0
        self._named_usage = self._named_bill = False  # whether the user knows
        self._longest_read: float = _LONG_PROMPT  # bytes of the longest prompt that is known to fit
        self._random = rng("jitter")

    def add(self, call: Call) -> None:
        """Queue a new call."""
        call.prompt = most_prompt_tokens(call.request)
        self._queue(call)

    def _queue(self, call: Call) -> None:
        call.stage.waiting += 1
        heapq.heappush(self._queued, (call.order, call))

    def _size(self, call: Call) -> None:
        """Set the maximum cost of the next attempt: one token per byte, and the longest thinking and answer."""
        room = self._connection.backend.room(call.request)
        if room != call.request.room:
            call.request = replace(call.request, room=room)
        output = most_output(call.request) + room
        call.reserved = self._price.usd(call.prompt, output)
        # Providers use such an estimate to count a call against the tokens per minute before it runs.
        call.tokens = call.prompt / 4 + output

    def start_calls(self) -> None:
        """Start calls from the front of the queue while concurrency, rate and budget allow."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._queued and self._has_room():
            call = self._queued[0][1]
            if all(waiter.done() for waiter in call.waiters):  # they were cancelled
                self._shared.drop(self._take())
                continue
            self._size(call)
            if (wait := self.rate.wait(call.tokens, self._now())) > 0:
                self._wait(call, wait)
                return
            try:
                replaced = self._shared.budget.reserve(call.reserved, call.key)
            except AirgenError as error:
                self._shared.stop(error)
                return
            self._short = replaced is None
            if replaced is None:
                return
            self._take()
            call.replaced = replaced
            self._in_flight += 1
            call.number = self.rate.take(call.tokens)
            call.stage.in_flight += 1
            self._shared.start(self, call)

    @property
    def held(self) -> int:
        """Return how many calls wait until calls in flight leave enough of the budget."""
        return len(self._queued) if self._short else 0

    @property
    def rests(self) -> bool:
        """Return whether all open calls are waiting for a batch that the backend is collecting."""
        delayed = self._timer is not None or bool(self._paused)
        return not delayed and self._in_flight == self._connection.backend.waiting

    def empty(self) -> list[Call]:
        """Remove and return all calls that are not in flight."""
        removed = []
        while self._queued:
            removed.append(self._take())
        for timer, call in self._paused.values():
            timer.cancel()
            call.stage.waiting -= 1
            removed.append(call)
        self._paused.clear()
        removed += [call for call, _ in self._set_aside]
        self._set_aside.clear()
        return removed

    async def attempt(self, call: Call) -> list[tuple[Call, Answer]]:
        """Make one attempt at a call. Returns the calls that are now finished: often this one, sometimes none or
        several."""
        sent = self._now()
        call.began = call.began or sent
        call.attempts += 1
        outcome: Reply | AirgenError
        key = secrets.token_hex(16) if call.reserved or call.replaced else ""  # its own reservation
        try:
            if key:  # written to the disk first, so that a kill cannot hide that the call was sent
                request = call.request
                row = Reservation(
                    key,
                    answer=call.key,
                    stage=request.stage,
                    model=request.model,
                    endpoint=request.endpoint,
                    usd=call.reserved,
                )
                await self._shared.save([row, *(Payment(old, request.stage, 0.0) for old in call.replaced)])
                sent = self._now()
            async with asyncio.timeout(self._limits.timeout):
                outcome = await self._connection.backend.send(call.request)
        except TimeoutError:
            outcome = Retry("timeout", detail=f"no answer within {self._limits.timeout or 0:g} s", usage=Usage())
        except AirgenError as error:
            outcome = error
        finally:
            self._in_flight -= 1
            call.stage.in_flight -= 1
        now = self._now()
        outcome = self._believed(call, outcome)
        self._pay(call, key, outcome)
        finished: list[tuple[Call, Answer]] = []
        self._reached |= not (isinstance(outcome, Retry) and outcome.reason == "connection")
        if isinstance(outcome, Reply):
            finished.append((call, _answer(call, outcome, now)))
            self._check_read(call, outcome)
            self._health.failing = 0
            self._held_since = None
            self.rate.settle(call.tokens, outcome.prompt_tokens + outcome.completion_tokens)
            self.concurrency.succeeded(call.request.stage, sent, now, bool(self._queued))
            if outcome.limits:
                self.rate.apply(*outcome.limits, call.number, now)
        elif isinstance(outcome, Retry) and outcome.reason == THINKING and call.attempts <= MAX_ROOM_RAISES:
            self._health.failing = 0
            call.stage.retries[THINKING] += 1
            self._queue(call)  # at once with more tokens, because the server is working
        elif isinstance(outcome, Retry):
            self._health.failing += outcome.reason != "rate_limit"
            self._retry(call, outcome, sent, now)
        elif isinstance(outcome, Refused):
            finished.append((call, _answer(call, outcome, now)))
        else:
            self._set_aside.append((call, Retry("stopped")))  # so that `empty` finds it
            self._shared.stop(outcome)
        finished += self._decide(now, alive=bool(finished))
        for ended, answer in finished:
            ended.stage.add(answer, now)
            if stop := self._health.saw_call(answer):
                self._shared.stop(stop)
        return finished

    def _pay(self, call: Call, key: str, outcome: Reply | AirgenError) -> None:
        """Settle the reservation of an attempt with what the server bills for it."""
        usage = outcome.usage if isinstance(outcome, Reply | CallFailed) else None
        if usage is None and isinstance(outcome, Retry) and outcome.reason in PERHAPS_PAID:
            usage = Usage()
        paid = cost(self._price, usage, call.reserved)
        if usage is not None and call.reserved and paid > call.reserved * (1 + 1e-9):
            self._overbilled(call, usage)
        call.paid += paid
        call.stage.usd += paid
        self._shared.budget.settle(call.reserved, paid)
        if call.reserved:
            self._shared.payments.append(Payment(key, call.request.stage, paid))

    def _believed(self, call: Call, outcome: Reply | AirgenError) -> Reply | AirgenError:
        """Return the outcome, without a usage that cannot be true: airgen then counts the tokens itself."""
        usage = outcome.usage if isinstance(outcome, Reply | CallFailed) else None
        if usage is None:
            return outcome
        counts = usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
        wrong = usage.stated
        if min(counts) < 0:
            wrong = "{} prompt, {} cached and {} completion tokens".format(*counts)
        elif usage.prompt_tokens > call.prompt + _OWN_PROMPT_TOKENS:
            wrong = f"{usage.prompt_tokens:,} prompt tokens for a request of at most {call.prompt:,}"
        if not wrong:
            return outcome
        if not self._named_usage:
            self._named_usage = True
            self._shared.say(
                f"{call.request.model} reports a usage that cannot be true ({wrong}): airgen counts the tokens of such "
                "calls itself, and their maximum cost"
            )
        if isinstance(outcome, Reply):
            nothing = dict.fromkeys(("prompt_tokens", "cached_tokens", "completion_tokens", "thinking_tokens"), 0)
            return with_usage(call.request, replace(outcome, **nothing))  # type: ignore[arg-type]
        if isinstance(outcome, CallFailed):
            outcome.usage = Usage()
        return outcome

    def _check_read(self, call: Call, reply: Reply) -> None:
        """Say once that the server read far less than the prompt. Some cut a prompt to their context without an
        error, so that the model never sees the document, or the question after it."""
        if call.prompt <= self._longest_read or reply.estimated or not reply.prompt_tokens:
            return
        sent = count_messages(call.request.messages)
        if reply.prompt_tokens >= _LEAST_READ * sent:
            self._longest_read = call.prompt
            return
        self._longest_read = math.inf
        self._shared.say(
            f"{call.request.model} read {reply.prompt_tokens:,} tokens of a prompt of about {sent:,}: the server seems "
            "to cut prompts to its context; start it with a longer one (Ollama: OLLAMA_CONTEXT_LENGTH, llama.cpp: "
            "--ctx-size), because answers to half a prompt are kept as they are"
        )

    def _overbilled(self, call: Call, usage: Usage) -> None:
        """Say that the server billed more than a call could cost, and stop if a budget relies on it."""
        most = call.prompt + most_output(call.request) + call.request.room
        billed = usage.prompt_tokens + usage.completion_tokens
        cause = "it ignores max_tokens" if usage.completion_tokens > most - call.prompt else "its prompt was longer"
        line = f"{call.request.model} billed {billed:,} tokens for a call that could cost {most:,}: {cause}"
        if self._shared.budget.limit is not None:
            advice = "no budget can hold with such a server: use another one, or run without a budget"
            self._shared.stop(Stopped(f"{line}; {advice}"))
        elif not self._named_bill:
            self._named_bill = True
            self._shared.say(f"{line}; what it bills is counted in full")

    def _wait(self, call: Call, wait: float) -> None:
        """Try again after `wait` seconds, during which the limits allow no call. A long wait is reported to the
        user."""
        now = self._now()
        if self._held_since is None:
            self._held_since = now
        who = f"{call.request.model} at endpoint {call.request.endpoint!r}"
        reason = self._last_limit or "the limits of requests and tokens per minute"
        if now + wait - self._held_since > MAX_HELD_SECONDS:
            self._shared.stop(
                Stopped(
                    f"{who} would make the next call wait {_duration(wait)} ({reason}), after "
                    f"{_duration(now - self._held_since)} without an answer: run the same command again later"
                )
            )
            return
        if max(wait, now - self._held_since) >= SILENT_SECONDS and now >= self._say_again:
            self._say_again = now + max(60.0, wait)
            self._shared.say(
                f"{who}: the next call waits {_duration(wait)} ({reason}); Ctrl-C stops and keeps the answers so far"
            )
        self._timer = asyncio.get_running_loop().call_later(wait, self._end_wait)

    def _end_wait(self) -> None:
        self.start_calls()
        self._shared.waited()

    def _has_room(self) -> bool:
        """Return whether another call may be sent.

        While every call fails, paused calls count as in flight, so that a dead server does not get the whole queue.
        A few more than the limit are tried, because the first requests may be at fault themselves.
        """
        limit = int(self.concurrency.limit)
        failing = self._health.failing >= DOWN
        stuck = failing and self._in_flight + len(self._paused) >= max(limit, 3 * DOWN)
        return self._in_flight + max(0, self._shared.unsaved - COMMIT_GROUP) < limit and not stuck

    def _take(self) -> Call:
        _, call = heapq.heappop(self._queued)
        call.stage.waiting -= 1
        return call

    def _retry(self, call: Call, error: Retry, sent: float, now: float) -> None:
        """Queue the call again, at once or after a pause, or set it aside after its last retry."""
        limited = error.reason == "rate_limit"
        if limited:
            call.refusals += 1
            call.attempts -= 1
            self._last_limit = f"HTTP 429{f': {error.detail}' if error.detail else ''}"
            self.rate.refused(call.number, sent, now, after=error.after, jitter=self._random.random())
        if not limited or self.rate.refusals > 1:  # after a single refusal, a lower rate is enough
            self.concurrency.failed(sent, now)
        allowed = self._limits.retries
        if error.reason == "timeout":
            allowed = min(MAX_TIMEOUT_RETRIES, allowed)
        elif error.reason == "connection" and not self._reached:
            allowed = min(MAX_UNREACHED_RETRIES, allowed)
        if call.attempts > allowed or call.refusals > MAX_REFUSAL_RETRIES:
            self._set_aside.append((call, error))
            return
        call.stage.retries[error.reason] += 1
        if limited:  # the rate limit already delays the whole queue
            self._queue(call)
            return
        call.stage.waiting += 1
        pause = spread_pause(call.attempts, first=self._limits.backoff, longest=LONGEST_PAUSE)
        timer = asyncio.get_running_loop().call_later(max(pause, error.after or 0.0), self._end_pause, call)
        self._paused[call.order] = (timer, call)

    def _end_pause(self, call: Call) -> None:
        del self._paused[call.order]
        heapq.heappush(self._queued, (call.order, call))
        self._end_wait()

    def _decide(self, now: float, alive: bool) -> list[tuple[Call, Answer]]:
        """Save calls that were set aside as failures if the calls themselves are at fault.

        If the endpoint is at fault, the run stops without recording failures, so that the next run makes those calls
        again.
        """
        idle = not (self._queued or self._in_flight or self._paused)
        down = self._health.is_down([error for _, error in self._set_aside], alive=alive, idle=idle)
        if down:
            call, error = self._set_aside[-1]
            self._shared.stop(
                Stopped(
                    f"{call.request.model} at endpoint {call.request.endpoint!r} did not respond after "
                    f"{call.attempts + call.refusals} tries ({error}): run the same command again once it does"
                )
            )
        if down or down is None:
            return []
        failed = [(call, _answer(call, error, now)) for call, error in self._set_aside]
        self._set_aside.clear()
        return failed


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _answer(call: Call, outcome: Reply | CallFailed, now: float) -> Answer:
    """Return the row of a call. The row of a failure has the reason, and the server's message as its text."""
    answer = Answer(
        key=call.key,
        stage=call.request.stage,
        model=call.request.model,
        endpoint=call.request.endpoint,
        text=storable(outcome.detail[:500] if isinstance(outcome, CallFailed) else outcome.text),
        cost_usd=call.paid,
        seconds=now - call.began,
    )
    if isinstance(outcome, CallFailed):
        return replace(answer, error=storable(outcome.reason))
    return replace(
        answer,
        finish_reason=outcome.finish_reason,
        prompt_tokens=outcome.prompt_tokens,
        cached_tokens=outcome.cached_tokens,
        completion_tokens=outcome.completion_tokens,
        logprobs=json.dumps(outcome.logprobs) if outcome.logprobs else "",
        counted_here=outcome.estimated,
    )

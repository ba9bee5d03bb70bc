"""One queue by hand, at set times: each figure is exact."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from simulation import Simulated, failing, now, outcomes_of, requests, set_clock, simulated

from airgen.errors import AirgenError, LlmError, Stopped
from airgen.llms.base import Backend, CallLimits, Message, Refused, Reply, Request, Retry
from airgen.llms.call_queue import Call, CallQueue, Connection, Shared
from airgen.llms.chat import chat_reply, most_prompt_tokens, with_usage
from airgen.llms.money import FREE, Budget, Price, StageUsage, Usage
from airgen.storage.records import Answer, Payment, Reservation

CENT = Price(10_000.0, 10_000.0, 10_000.0)  # a cent a token
OUTCOMES = {"F": Retry("http_500"), "O": Reply("fine"), "T": Retry("thinking"), "R": Retry("rate_limit", 0.0)}


class Told(Backend):
    """Answers as it is told; `asked` counts how often the queue has looked at a call that could start."""

    def __init__(self, more: int = 0, latency: float = 0.0) -> None:
        self.more, self.latency, self.asked = more, latency, 0
        self.outcome: Reply | AirgenError = Reply("fine")
        self.sent: list[Request] = []

    def room(self, request: Request) -> int:
        self.asked += 1
        return self.more

    async def send(self, request: Request) -> Reply:
        self.sent.append(request)
        outcome = self.outcome
        await asyncio.sleep(self.latency)
        if isinstance(outcome, Reply):
            return outcome
        raise outcome


class Line:
    """A queue with so many calls, and what it did."""

    def __init__(
        self,
        calls: int,
        backend: Told | None = None,
        price: Price = FREE,
        budget: Budget | None = None,
        unsaved: int = 0,
        saving: float = 0.0,
        **limits: Any,
    ) -> None:
        set_clock(0.0)
        self.backend, self.saving = backend or Told(), saving
        self.started: list[Call] = []
        self.at: list[float] = []
        self.stops: list[AirgenError] = []
        self.said: list[str] = []
        self.saved: list[Any] = []
        self.stage = StageUsage()
        self.dropped: list[Call] = []
        shared = Shared(
            budget or Budget(), self._start, self.dropped.append, self.stops.append, self._save, self.said.append
        )
        shared.unsaved += unsaved
        self.shared = shared
        self.queue = CallQueue(Connection(self.backend, CallLimits(**limits), price), shared)
        self.calls = []
        for order, one in enumerate(requests(calls)):
            waiter = asyncio.get_running_loop().create_future()
            self.calls.append(Call(one, one.key, order, self.stage, [waiter]))
            self.queue.add(self.calls[-1])
        self.queue.start_calls()

    def _start(self, queue: CallQueue, call: Call) -> None:
        self.started.append(call)
        self.at.append(now())

    async def _save(self, rows: Sequence[Any]) -> None:
        await asyncio.sleep(self.saving)
        self.saved += rows

    async def attempt(self, outcome: Reply | AirgenError, call: Call | None = None) -> list[tuple[Call, Answer]]:
        """The last call that was started, or this one, ends so."""
        self.backend.outcome = outcome
        return await self.queue.attempt(call or self.started[-1])

    def look(self, *times: float) -> None:
        """At each of these times, the queue starts what it may."""
        for seconds in times:
            set_clock(seconds)
            self.queue.start_calls()


# -- what it costs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1000.0, None])
@simulated
async def test_a_bill_above_the_reservation_counts_in_full(limit: float | None) -> None:
    """With a budget it ends the job, since no reservation holds any longer; without one it is said once."""
    budget = Budget(limit)
    line = Line(3, price=CENT, budget=budget, concurrency=1, adaptive=False)
    most = round(line.started[0].reserved * 100)
    ((_, answer),) = await line.attempt(Reply("fine", prompt_tokens=10, completion_tokens=20 * most))
    assert answer.cost_usd == budget.spent == line.stage.usd == pytest.approx((10 + 20 * most) / 100)
    assert [payment.usd for payment in line.shared.payments] == [answer.cost_usd]
    said = line.said if limit is None else [str(stop) for stop in line.stops]
    assert len(said) == 1 and f"billed {10 + 20 * most:,} tokens for a call that could cost {most:,}" in said[0]
    line.look(1.0)
    if limit is None:
        await line.attempt(Reply("fine", prompt_tokens=10, completion_tokens=20 * most))
        assert len(line.said) == 1 and not line.stops


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply("fine", prompt_tokens=10**6, completion_tokens=5), "1,000,000 prompt tokens for a request of at most"),
        (Reply("fine", prompt_tokens=-3, completion_tokens=5), "-3 prompt"),
        (Reply("fine", prompt_tokens=3, completion_tokens=-5), "-5 completion"),
        (Retry("bad_body", usage=Usage(10**6, 0, 5)), "1,000,000 prompt tokens"),
        ("prompt_tokens -7", "prompt_tokens -7"),
    ],
)
@simulated
async def test_a_usage_that_cannot_be_true_is_named_and_replaced(reply: Reply | AirgenError | str, words: str) -> None:
    if isinstance(reply, str):
        choices = [{"message": {"content": "fine"}}]
        usage = {"prompt_tokens": -7, "completion_tokens": 1}
        reply = with_usage(requests(1)[0], chat_reply({"choices": choices, "usage": usage}))
    budget = Budget(1000.0)
    line = Line(2, price=CENT, budget=budget, concurrency=1, adaptive=False)
    reserved = line.started[0].reserved
    finished = await line.attempt(reply)
    assert budget.spent == pytest.approx(reserved) and not line.stops
    assert len(line.said) == 1 and words in line.said[0]
    for _, answer in finished:
        assert answer.counted_here and 0 < answer.prompt_tokens < 100 and answer.completion_tokens == 1


@pytest.mark.parametrize(("read", "said"), [(1_000, False), (700, False), (500, True), (0, False)])
@simulated
async def test_a_prompt_that_the_server_cuts_is_named_once(read: int, said: bool) -> None:
    """Tokenizers differ by less; 0 means that the server does not count."""
    line = Line(2, concurrency=1, adaptive=False)
    document = Message("user", "lamp " * 1_000)
    for start in (0.0, 1.0):
        line.look(start)
        call = line.started[-1]
        call.request, call.prompt = replace(call.request, messages=(document,)), 5_000
        await line.attempt(Reply("fine", prompt_tokens=read, completion_tokens=1))
    assert [f"read {read:,} tokens of a prompt of about 1,0" in text for text in line.said] == [True] * said
    assert not line.stops


# -- how many, and when ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unsaved", "started"), [(0, 2), (32, 2), (33, 1), (34, 0)])
@simulated
async def test_answers_that_wait_for_the_disk_count_beyond_a_group(unsaved: int, started: int) -> None:
    assert len(Line(5, concurrency=2, adaptive=False, unsaved=unsaved).started) == started


@pytest.mark.parametrize(
    ("at_once", "outcomes", "in_flight"),
    [
        (12, "", 12), (12, "FF", 12), (12, "FFF", 11), (12, "FFOFF", 12), (12, "FFOFFF", 11), (12, "FFTFF", 12),
        (12, "FFTFFF", 11), (12, "FFR", 12), (4, "FFFFF", 4), (4, "FFFFFF", 3), (4, "FFFFFFO", 4),
    ],
)  # fmt: skip
@simulated
async def test_while_every_call_fails_the_paused_ones_count(at_once: int, outcomes: str, in_flight: int) -> None:
    """After three failures in a row; a refusal for the rate is none, and a model that thinks is well."""
    line = Line(40, concurrency=at_once, adaptive=False, retries=99, backoff=1000.0)
    for place, letter in enumerate(outcomes):
        await line.attempt(OUTCOMES[letter], line.started[place])
        line.queue.start_calls()
    line.look(1.0, 1.1, 1.2)  # a refusal has made the rate lower, and pauses take 15 seconds or more
    assert line.stage.in_flight == in_flight


@pytest.mark.parametrize(
    ("outcomes", "limit"), [("", 16), ("F", 12), ("FF", 9), ("R", 16), ("RR", 12), ("ROR", 17), ("O", 17)]
)
@simulated
async def test_what_takes_a_quarter_of_the_concurrency(outcomes: str, limit: float) -> None:
    """A failure does, and a refusal only where no answer has come since the last one."""
    line = Line(60, concurrency=64, retries=9)
    for second, letter in enumerate(outcomes, start=1):
        set_clock(float(second))
        await line.attempt(OUTCOMES[letter], line.started[second - 1])
    assert line.queue.concurrency.limit == limit


@simulated
async def test_a_round_trip_begins_behind_the_commit_of_its_reservation() -> None:
    """Both fail; the second was sent after the first had failed, though its reservation was not: two cuts."""
    line = Line(9, Told(latency=0.1), CENT, saving=0.5, retries=9)
    first = asyncio.ensure_future(line.attempt(Retry("http_500"), line.started[0]))
    await asyncio.sleep(0.3)
    await asyncio.gather(first, line.attempt(Retry("http_500"), line.started[1]))
    assert line.queue.concurrency.limit == 16 * 0.75**2


@simulated
async def test_tokens_are_counted_as_a_quarter_of_the_bytes_and_all_that_may_be_written() -> None:
    line = Line(3, Told(more=7), tokens_per_minute=150 * 60)
    tokens = most_prompt_tokens(line.calls[0].request) / 4 + 100 + 7
    assert 75 < tokens < 150
    await asyncio.sleep(10)
    assert line.at == [0.0, pytest.approx((2 * tokens - 150) / 150), pytest.approx((3 * tokens - 150) / 150)]


@simulated
async def test_one_timer_waits_however_often_it_is_looked() -> None:
    line = Line(5, requests_per_minute=6)
    line.look(*[0.0] * 50)
    assert (line.backend.asked, line.at) == (52, [0.0])
    await asyncio.sleep(10.5)
    assert (line.backend.asked, line.at) == (54, [0.0, pytest.approx(10.0)])


@simulated
async def test_a_call_that_nobody_waits_for_is_not_sent_and_dropped() -> None:
    line = Line(2, concurrency=1)
    line.calls[1].waiters[0].cancel()
    await line.attempt(Reply("fine"))
    line.queue.start_calls()
    assert (line.dropped, line.started, line.stage.waiting) == ([line.calls[1]], [line.calls[0]], 0)


# -- messages to the user -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a_minute", "looks", "answer", "said"),
    [
        (6, (), None, [0]),  # a wait of 10 seconds, then each minute
        (6.01, (), None, []),
        (6, (59.9, 60.0, 61.0), None, [0, 60]),
        (0.5, (60.0, 119.0, 120.0), None, [0, 120]),  # or at the end of a longer one
        (12, (9.9, 10.0), None, [10]),  # short waits, and no answer for ten seconds
        (12, (9.0, 12.0, 18.0, 22.0), 11.0, [22]),  # since the last answer
    ],
)
@simulated
async def test_a_wait_is_said_when_it_is_long(
    a_minute: float, looks: Sequence[float], answer: float | None, said: list[float]
) -> None:
    line = Line(20, requests_per_minute=a_minute)
    words = {0.0: len(line.said)}
    for seconds in looks:
        if answer is not None and seconds > answer:
            set_clock(answer)
            await line.attempt(Reply("fine"))
            answer = None
        line.look(seconds)
        words[seconds] = len(line.said) - sum(words.values())
    assert [seconds for seconds, count in words.items() for _ in range(count)] == said


WHO = "m at endpoint 'default'"
WHY = "(the limits of requests and tokens per minute)"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (12, "12 s"), (119, "119 s"), (120, "2 min"), (3600, "60 min"), (7199, "120 min"), (7200, "2 h"),
        (172_799, "48 h"), (172_801, "2 days"),
    ],
)  # fmt: skip
@simulated
async def test_the_words_of_a_wait_and_of_one_that_is_too_long(seconds: int, words: str) -> None:
    line = Line(2, requests_per_minute=60 / seconds)
    if seconds <= 3600:
        assert line.said == [f"{WHO}: the next call waits {words} {WHY}; Ctrl-C stops and keeps the answers so far"]
        assert not line.stops
        return
    assert [str(stop) for stop in line.stops] == [
        f"{WHO} would make the next call wait {words} {WHY}, after 0 s without an answer: run the same command "
        "again later"
    ]


@pytest.mark.parametrize(
    ("looks", "answer", "stops"), [((3480.0,), None, 0), ((3480.5,), None, 1), ((3000.0, 3480.5), 3000.0, 0)]
)
@simulated
async def test_after_an_hour_of_waits_without_an_answer_the_run_stops(
    looks: Sequence[float], answer: float | None, stops: int
) -> None:
    line = Line(20, requests_per_minute=0.5)
    for seconds in looks:
        if seconds == answer:
            await line.attempt(Reply("fine"))
        line.look(seconds)
    assert len(line.stops) == stops


# -- again, and for how long ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backoff", "after"), [(0.1, None), (4.0, None), (4.0, 21.0)])
@simulated
async def test_pauses_double_up_to_half_a_minute_with_a_random_share(backoff: float, after: float | None) -> None:
    backend = Simulated(behave=failing(Retry("http_500", after)))
    found: list[float] = []
    plain = backend.send

    async def send(request: Request) -> Reply:
        found.append(now())
        return await plain(request)

    backend.send = send  # type: ignore[method-assign]
    (answer,), engine = await outcomes_of(backend, 1, backoff=backoff)
    assert len(found) == 6 and found[0] == pytest.approx(0.002, abs=1e-6)  # the time of the look-up
    shares = set()
    for number, (sent, again) in enumerate(pairwise(found)):
        pause, whole = again - sent - 0.05, min(30.0, backoff * 2**number)
        assert max(0.5 * whole, after or 0.0) - 1e-5 <= pause <= max(1.5 * whole, after or 0.0) + 1e-5
        shares.add(round(pause / whole, 6))
    assert len(shares) == 5 or after
    assert answer.seconds == pytest.approx(found[-1] + 0.05 - found[0])
    assert engine.usage()["query"].retries == {"http_500": 5}


GONE = f"{WHO} did not respond after {{1}} tries ({{0}}): run the same command again once it does"


@pytest.mark.parametrize(
    ("reasons", "retries", "sends", "end"),
    [
        (["connection"], 5, 3, GONE.format("connection", 3)),  # the address is probably wrong
        (["connection"], 1, 2, GONE.format("connection", 2)),
        (["http_500", "connection"], 5, 6, GONE.format("connection", 6)),  # somebody is there
        (["timeout"], 5, 3, "timeout"),
        (["timeout"], 1, 2, "timeout"),
        (["bad_body"], 5, 6, "bad_body"),
        (["thinking"], 5, 9, "thinking"),
        (["rate_limit"], 5, 31, GONE.format("rate_limit", 31)),
    ],
)
@simulated
async def test_how_often_a_call_is_tried(reasons: list[str], retries: int, sends: int, end: str) -> None:
    def behave(request: Request, attempt: int) -> None:
        raise Retry(reasons[min(attempt, len(reasons)) - 1], 0.0)

    backend = Simulated(latency=0.0, behave=behave)
    (outcome,), engine = await outcomes_of(backend, 1, retries=retries, backoff=0.01)
    usage = engine.usage()["query"]
    assert (len(backend.sent), str(outcome) if isinstance(outcome, Stopped) else outcome.error) == (sends, end)
    assert (usage.retries.total(), usage.in_flight, usage.waiting) == (sends - 1, 0, 0)
    assert reasons != ["thinking"] or now() < 0.1, "with more room at once, without a pause"


@simulated
async def test_calls_out_of_retries_wait_for_what_becomes_of_others() -> None:
    line = Line(2, retries=0)
    first, second = line.started
    assert await line.attempt(Retry("connection"), first) == []
    (well, _), (late, row) = await line.attempt(Reply("fine"), second)
    assert (well, late, row.error, line.stops) == (second, first, "connection", [])
    line = Line(3, retries=0)
    for number, call in enumerate(line.started):
        assert await line.attempt(Retry("http_500", detail=f"number {number}"), call) == []
    assert [str(stop) for stop in line.stops] == [GONE.format("http_500: number 2", 1)]


@simulated
async def test_all_calls_that_are_not_in_flight_are_removed_once() -> None:
    broken: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: broken.append(context))
    line = Line(5, concurrency=3, adaptive=False, retries=1, backoff=1.0)
    aside, paused = line.started[:2]
    await line.attempt(Retry("http_500"), aside)
    await asyncio.sleep(2)
    assert await line.attempt(Retry("http_500"), aside) == [] == await line.attempt(Retry("http_500"), paused)
    assert line.stage.waiting == 3  # a paused one, and two queued ones
    assert {call.order for call in line.queue.empty()} == {aside.order, paused.order, 3, 4}
    assert (line.queue.empty(), line.stage.waiting) == ([], 0)
    await asyncio.sleep(200)
    assert len(line.started) == 3 + 1 and not broken


# -- what is kept and paid ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "tokens"),
    [
        (Reply("fine", prompt_tokens=10, completion_tokens=5), 15),
        (Refused("refusal"), 0),
        (Refused("refusal", usage=Usage(10, 0, 4)), 14),
        (Retry("http_500"), 0),
        (Retry("connection"), 0),
        (Retry("timeout"), None),  # whatever it can have cost
        (Retry("bad_body"), None),
        (Retry("bad_body", usage=Usage(10, 0, 3)), 13),
        (LlmError("HTTP 401"), 0),
    ],
)
@simulated
async def test_an_attempt_is_reserved_on_the_disk_and_then_paid(outcome: Any, tokens: int | None) -> None:
    (request,) = requests(1)
    left = Reservation("old", request.key, "query", "m", "default", 2.0)
    line = Line(1, Told(more=7), CENT, Budget(100.0, 3.0, {request.key: [left]}))
    (call,), reserved = line.started, (most_prompt_tokens(request) + 100 + 7) / 100
    seen: list[Any] = []
    line.backend.send = lambda request, plain=line.backend.send: seen.append(line.saved[:]) or plain(request)  # type: ignore[method-assign, misc]
    await line.attempt(outcome)
    paid = reserved if tokens is None else tokens / 100
    own, old = line.saved
    assert seen == [line.saved] and line.backend.sent[0].room == 7
    assert own == Reservation(own.key, call.key, "query", "m", "default", pytest.approx(reserved))
    assert old == Payment("old", "query", 0.0)
    assert line.shared.payments == [Payment(own.key, "query", pytest.approx(paid))]
    assert (line.stage.usd, call.paid) == (pytest.approx(paid), pytest.approx(paid))
    assert line.shared.budget.spent == pytest.approx(1.0 + paid)  # 3 less what the killed process left open


@simulated
async def test_a_call_without_an_answer_in_time_is_paid_in_full() -> None:
    line = Line(1, Told(latency=100), CENT, timeout=10, retries=0)
    ((call, row),) = await line.attempt(Reply("too late"))
    assert (row.error, row.text, now()) == ("timeout", "no answer within 10 s", pytest.approx(10.0))
    assert row.cost_usd == call.reserved == line.stage.usd > 1


@simulated
async def test_the_row_of_a_call() -> None:
    line = Line(3, Told(latency=2.5))
    one, two, three = line.started
    ((_, row),) = await line.attempt(Reply("a\0b", "stop", 9, 4, 3, [[("a", -0.5)]], estimated=True), one)
    where, took = ("query", "m", "default"), pytest.approx(2.5)
    alternatives = json.dumps([[["a", -0.5]]])
    assert row == Answer(one.key, *where, "ab", "", "stop", 9, 4, 3, 0.0, took, alternatives, True)
    ((_, row),) = await line.attempt(Reply("fine", "length", 9), two)
    assert row == Answer(two.key, *where, "fine", "", "length", 9, seconds=took)
    ((_, row),) = await line.attempt(Refused("no\0", "x" * 501), three)
    assert row == Answer(three.key, *where, "x" * 500, "no", seconds=took)

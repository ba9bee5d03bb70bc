"""RateLimit and concurrency against simulated servers."""

from typing import Any

import pytest
from simulation import Simulated, failing, now, outcomes_of, requests, simulated

from airgen.errors import Stopped
from airgen.llms.base import Allowance, Reply, Request, Retry
from airgen.llms.rate_limits import ConcurrencyLimit, RateLimit, TokenBucket


class Few(Simulated):
    """Refuses more than 16 calls at a time."""

    async def send(self, request: Request) -> Reply:
        if self.in_flight >= 16:
            self.refused += 1
            raise Retry("rate_limit")
        return await super().send(request)


class Telling(Simulated):
    """Has `limits` in its headers; without any, 300 requests, then five a second."""

    limits: tuple[Allowance, Allowance] | None = None

    async def send(self, request: Request) -> Reply:
        left = max(0, 300 - len(self.sent) - 1)
        text = (await super().send(request)).text
        limits = self.limits or (Allowance(300, left, 30.0), Allowance())
        return Reply(text, prompt_tokens=900, completion_tokens=9, limits=limits)


BUCKET = {"rate": 100, "burst": 100}


@pytest.mark.parametrize(
    ("calls", "at_once", "server", "limits", "least", "most"),
    [
        # nothing limits: the line is full but for the ramp, and a commit group
        (2000, 64, lambda: Simulated(latency=0.05), {}, 0, 2000 / 64 * 0.05 + 0.3),
        (1500, 256, lambda: Simulated(latency=0.05), {}, 0, 1500 / 256 * 0.05 + 0.3),
        # 85 % of what a bucket of 100 a second allows; the ideal is 9 s, for it begins full
        *((1000, 64, lambda after=after: Simulated(**BUCKET, retry_after=after), {}, 0, 9 * 1.15)
          for after in (None, 0.2, 1.0)),
        (1000, 256, lambda: Simulated(rate=20, burst=20, latency=2.0), {}, 0, (980 / 20 + 2) * 1.15),
        (1000, 64, lambda: Few(latency=1.0), {}, 0, 1000 / 16 * 1.15),
        # the pipeline's own limits: ten at once, then ten a second; by the 110 tokens that a call really uses
        (100, 64, lambda: Simulated(latency=0.01), {"requests_per_minute": 600}, 9.0, 9.5),
        (200, 64, lambda: Simulated(latency=0.01), {"tokens_per_minute": 60 * 1100}, 17, 22),
        (400, 64, lambda: Telling(latency=0.01), {}, 15, 30),
    ],
)  # fmt: skip
@simulated
async def test_the_line_is_as_full_as_the_limits_allow_with_a_tenth_wasted(
    calls: int, at_once: int, server: Any, limits: dict[str, int], least: float, most: float
) -> None:
    backend = server()
    answers, _ = await outcomes_of(backend, calls, concurrency=at_once, **limits)
    assert {answer.error for answer in answers} == {""}
    assert least <= now() < most and backend.refused <= 100
    assert backend.rate or limits or isinstance(backend, Few | Telling) or backend.most == at_once


@pytest.mark.parametrize("slots", [8, 32])
@simulated
async def test_a_server_that_queues_in_silence_is_not_overrun(slots: int) -> None:
    """One second a call: what stands in the server's queue in the end is a few times what it serves at once."""
    _, engine = await outcomes_of(Simulated(latency=1.0, slots=slots), slots * 60, concurrency=512)
    limit = engine.limits()["default m"]["concurrency"]
    assert now() < 60 * 1.1 and limit is not None and slots <= limit <= 5 * slots


def test_a_bucket_by_hand() -> None:
    bucket = TokenBucket(rate=2.0, size=4.0, now=0.0)
    assert bucket.wait(4, now=0.0) == 0
    bucket.level -= 4
    assert bucket.wait(1, now=0.0) == 0.5
    assert bucket.wait(3, now=1.0) == 0.5
    assert bucket.wait(100, now=2.0) == 0  # more than it holds goes when it is full
    assert bucket.wait(1, now=100.0) == 0 and bucket.level == 4


def test_the_calls_between_two_refusals_give_the_refill_rate() -> None:
    pace = RateLimit(now=0.0)
    for _ in range(50):
        pace.take(0)
    pace.refused(50, sent=1.0, now=1.1, after=None, jitter=0.5)
    for _ in range(70):
        pace.take(0)
    pace.refused(40, sent=0.9, now=1.2, after=None, jitter=0.5)  # was in flight with the first: teaches nothing
    before = pace.rate
    assert before == pytest.approx(49 / 1.0 * 0.7, rel=0.01)
    pace.refused(120, sent=3.0, now=3.1, after=None, jitter=0.5)
    assert pace.rate == pytest.approx(69 / 2.0 * 0.99, rel=0.01)


def test_a_refusals_retry_after_is_obeyed_by_all() -> None:
    pace = RateLimit(now=0.0)
    pace.take(0)
    pace.refused(1, sent=0.0, now=0.1, after=7.0, jitter=0.5)
    assert pace.wait(0, now=0.1) == pytest.approx(7.0, abs=0.01)


def test_a_gate_cuts_once_for_what_was_in_flight_together() -> None:
    gate = ConcurrencyLimit(64, now=0.0)
    gate.failed(sent=0.0, now=1.0)
    gate.failed(sent=0.5, now=1.1)
    assert gate.limit == 12
    gate.failed(sent=1.2, now=1.3)
    assert gate.limit == 9


# -- limits that a server only pretends to have ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_requests", "of_tokens"),
    [
        ((), (1, 0)),
        ((), (1, 0, 1e12)),
        ((100, 0, 1e12), ()),
        ((10**15, 1, 1e300), ()),
        ((1, 10**15, 0.0), ()),
    ],
)
@simulated
async def test_absurd_headers_are_said_and_end_in_a_stop_within_an_hour(of_requests: Any, of_tokens: Any) -> None:
    said: list[str] = []
    backend = Telling()
    backend.limits = Allowance(*of_requests), Allowance(*of_tokens)
    found, _ = await outcomes_of(backend, 12, concurrency=1, say=said.append)
    stops = [one for one in found if isinstance(one, Stopped)]
    assert now() < 2 * 3600 + 600
    assert all("wait" in str(one) and "run the same command" in str(one) for one in stops)
    assert not stops or len(stops) < 12
    assert len(said) <= 130


@simulated
async def test_a_wait_is_said_with_its_reason_and_bounded() -> None:
    said: list[str] = []
    hour = failing(Retry("rate_limit", 3000.0, "tokens of the day are used up"), lambda number, attempt: attempt == 1)
    (answer,), _ = await outcomes_of(Simulated(behave=hour), requests(1), concurrency=1, say=said.append)
    assert answer.text and 3000 <= now() < 3100
    assert len(said) == 1 and "50 min (HTTP 429: tokens of the day are used up)" in said[0]


@pytest.mark.parametrize("after", [None, 3600.0])
@simulated
async def test_a_server_that_only_refuses_is_said_and_left_within_two_hours(after: float | None) -> None:
    said: list[str] = []
    never = Simulated(behave=failing(Retry("rate_limit", after, "slow down")))
    found, _ = await outcomes_of(never, 20, concurrency=4, say=said.append)
    assert all(isinstance(one, Stopped) and "slow down" in str(one) for one in found)
    assert now() < 2 * 3600
    assert said and "slow down" in said[0] and len(said) < 130

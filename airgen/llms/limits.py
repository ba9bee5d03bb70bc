"""How fast and how many at once: pace and concurrency of one endpoint and model, learned from what it answers.

    pace.wait(tokens=900) -> 0.0             may a call of about 900 tokens start now, or in how many seconds?
    gate.limit -> 41.3                       how many calls may be in flight

Both are plain arithmetic over a clock that the caller passes in, so tests run them on a simulated one.
"""

from __future__ import annotations

import math

from airgen.llms.base import ServerLimits

__all__ = ["Bucket", "Gate", "Pace"]


class Bucket:
    """A token bucket: `rate` units a second, holding at most `size`."""

    def __init__(self, rate: float, size: float, now: float) -> None:
        self.rate, self.size, self.level, self._at = rate, size, size, now

    def fill(self, now: float) -> None:
        """Bring the level up to date."""
        self.level = min(self.size, self.level + (now - self._at) * self.rate)
        self._at = now

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` is there; more than the bucket holds waits for a full one and then goes into debt."""
        self.fill(now)
        lacking = min(amount, self.size) - self.level
        return 0.0 if lacking <= 1e-9 else lacking / self.rate


class Pace:
    """When the next call may start.

    Three limits, the tightest counts: what the pipeline says (`requests`, `tokens` a minute), what the server's
    headers say, and what refusals (HTTP 429) teach. A server's own bucket is empty at every refusal, so the calls
    that succeeded between two refusals, over the time between them, are its exact refill rate.
    """

    GROWTH = 1.01  # a second, once the rate was measured: probes for a limit that was raised
    PROBE = 1.25  # a second, while only an upper bound is known

    def __init__(self, now: float, requests: float | None = None, tokens: float | None = None) -> None:
        self._requests = Bucket(requests / 60, max(1.0, requests / 60), now) if requests else None
        self._tokens = Bucket(tokens / 60, max(1.0, tokens / 60), now) if tokens else None
        self._own_requests, self._own_tokens = requests, tokens
        self._learned: Bucket | None = None
        self._measured = False
        self._learned_at = self._since = now
        self._good = 0
        self._refusals = 0
        self._paused_until = -math.inf

    @property
    def rate(self) -> float | None:
        """Requests a second that refusals taught, or None."""
        return self._learned.rate if self._learned else None

    def wait(self, tokens: float, now: float) -> float:
        """Seconds until a call of about so many tokens may start."""
        if self._learned is not None:
            growth = self.GROWTH if self._measured else self.PROBE
            self._learned.fill(now)
            self._learned.rate *= growth ** (now - self._learned_at)
            self._learned_at = now
        waits = [bucket.wait(1, now) for bucket in (self._requests, self._learned) if bucket]
        if self._tokens:
            waits.append(self._tokens.wait(tokens, now))
        return max(0.0, self._paused_until - now, *waits)

    def take(self, tokens: float) -> None:
        """A call of about so many tokens starts."""
        for bucket in (self._requests, self._learned):
            if bucket:
                bucket.level -= 1
        if self._tokens:
            self._tokens.level -= tokens

    def settle(self, estimated: float, used: float) -> None:
        """What the call really used is known."""
        if self._tokens:
            self._tokens.level = min(self._tokens.size, self._tokens.level + estimated - used)

    def succeeded(self) -> None:
        """A call was answered."""
        self._good += 1
        self._refusals = 0

    def refused(self, sent: float, now: float, after: float | None, jitter: float) -> None:
        """A call that was sent at `sent` came back with "too many requests".

        `after` is the server's Retry-After in seconds, `jitter` a number from 0 to 1.
        """
        if after is not None:
            self._paused_until = max(self._paused_until, now + after)
        if sent <= self._since and self._refusals:
            return  # it left before the last refusal was known: nothing new
        self._refusals += 1
        if after is None:
            pause = min(30.0, 0.2 * 2 ** (self._refusals - 1)) * (0.5 + jitter)
            self._paused_until = max(self._paused_until, now + pause)
        elapsed = max(now - self._since, 1e-3)
        if self._good:
            rate = self._good / elapsed
            self._measured = self._learned is not None
            rate *= 0.98 if self._measured else 0.7
        else:
            rate = (self._learned.rate if self._learned else 2.0) / 2
        self._learned = Bucket(max(rate, 1e-3), 1.0, now)
        self._learned.level = 0.0
        self._learned_at = self._since = now
        self._good = 0

    def told(self, limits: ServerLimits, in_flight: int, now: float) -> None:
        """Take over what the server's headers say, unless the pipeline's own limit is tighter."""
        said = (limits.requests, limits.requests_left, limits.requests_reset)
        self._requests = _told(self._requests, self._own_requests, said, in_flight, now)
        said = (limits.tokens, limits.tokens_left, limits.tokens_reset)
        self._tokens = _told(self._tokens, self._own_tokens, said, 0, now)


def _told(
    bucket: Bucket | None,
    own: float | None,
    said: tuple[int | None, int | None, float | None],
    in_flight: int,
    now: float,
) -> Bucket | None:
    """The bucket that a server's limit makes: a minute's worth, or a longer period's where its reset says so.

    `said` is the limit, what is left of it, and the seconds until it is whole again.
    """
    limit, left, reset = said
    if not limit or limit <= 0 or left is None:
        return bucket
    rate = limit / 60
    if reset is not None and reset > 60 and left < limit:
        rate = (limit - left) / reset
    if own is not None and own / 60 <= rate:
        return bucket
    if bucket is None or bucket.rate != rate or bucket.size != float(limit):
        bucket = Bucket(rate, float(limit), now)
    bucket.fill(now)
    bucket.level = min(bucket.level, float(left - in_flight))
    return bucket


class Gate:
    """How many calls may be in flight: additive increase, multiplicative decrease.

    Starts at `START` and doubles each round trip while that pays. A refusal, a time-out or a 5xx takes a quarter
    away, once a round trip. A server that queues instead of refusing shows in its latency: where a round's mean is
    `SLOW` times the best one seen for its stages, more calls must have brought more answers a second than the
    next lower level did; if not, the limit steps down.
    """

    START = 16
    SLOW = 1.5
    GAIN = 1.10

    def __init__(self, ceiling: int, now: float) -> None:
        self.ceiling = max(1, ceiling)
        self.limit = float(min(self.ceiling, self.START))
        self._doubling = True
        self._cut_at = -math.inf
        self._best: dict[str, float] = {}
        self._levels: dict[int, float] = {}
        self._round(now)

    def _round(self, now: float) -> None:
        self._began, self._done, self._ratio, self._full = now, 0, 0.0, True
        self._sums: dict[str, tuple[int, float]] = {}

    def succeeded(self, stage: str, sent: float, now: float, waiting: bool) -> None:
        """A call was answered; `waiting` says whether others stand in line, so that the limit is what bounds."""
        count, total = self._sums.get(stage, (0, 0.0))
        self._sums[stage] = (count + 1, total + now - sent)
        self._done += 1
        self._full &= waiting
        if waiting and self._doubling:
            self.limit = min(self.ceiling, self.limit + 1)
        if self._done >= max(8, self.limit) and sent >= self._began:
            self._end_of_round(now)

    def failed(self, sent: float, now: float) -> None:
        """A refusal, a time-out or a 5xx: less, once for all calls that were in flight together."""
        if sent <= self._cut_at:
            return
        self._cut_at, self._doubling = now, False
        self.limit = max(1.0, self.limit * 0.75)
        self._round(now)

    def _end_of_round(self, now: float) -> None:
        slow = 0.0
        for stage, (count, total) in self._sums.items():
            mean = total / count
            best = min(mean, self._best.get(stage, math.inf) * 1.01)  # creeps up, so that one lucky round is forgotten
            self._best[stage] = best
            slow += count / self._done * (mean / max(best, 1e-9))
        if self._full:
            rate = self._done / max(now - self._began, 1e-9)
            level = round(2 * math.log2(max(1.0, self.limit)))
            self._levels[level] = rate if level not in self._levels else 0.5 * (self._levels[level] + rate)
            lower = max((known for known in self._levels if known < level), default=None)
            pays = lower is not None and rate >= self.GAIN * self._levels[lower]
            if slow > self.SLOW and not pays and self.limit > 1:
                self._doubling = False
                self.limit = max(1.0, self.limit / math.sqrt(2))
            elif not self._doubling:
                self.limit = min(self.ceiling, self.limit + 1)
        self._round(now)

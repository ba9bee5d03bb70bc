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
    headers say, and what refusals (HTTP 429) teach. A server's own bucket is empty whenever it refuses, so the
    calls that it let through between two refusals, over the time between them, are its exact refill rate. In the
    absence of refusals the learned rate grows, slowly at first and then faster, to find a limit that was raised.
    """

    GROWTH = 0.05  # share of the rate after one second, four times that after two

    def __init__(self, now: float, requests: float | None = None, tokens: float | None = None) -> None:
        self._requests = Bucket(requests / 60, max(1.0, requests / 60), now) if requests else None
        self._tokens = Bucket(tokens / 60, max(1.0, tokens / 60), now) if tokens else None
        self._own_requests, self._own_tokens = requests, tokens
        self._learned: Bucket | None = None
        self._base = 0.0  # the learned rate before its growth since `_cut_at`
        self._cut_at = -math.inf
        self._paused_until = -math.inf
        self._sent = 0  # calls ever started
        # The last refusal that taught something: the number and time of its call, and refusals since.
        self._mark, self._mark_at, self._refused = 0, now, 0
        self._in_a_row = 0

    @property
    def refusals(self) -> int:
        """Refusals in a row that no answer came between."""
        return self._in_a_row

    @property
    def rate(self) -> float | None:
        """Requests a second that refusals taught, or None."""
        return self._learned.rate if self._learned else None

    def wait(self, tokens: float, now: float) -> float:
        """Seconds until a call of about so many tokens may start."""
        waits = [0.0, self._paused_until - now]
        if self._learned is not None:
            self._learned.fill(now)
            self._learned.rate = self._base * (1 + self.GROWTH * (now - self._cut_at) ** 2)
            waits.append(self._learned.wait(1, now))
        if self._requests:
            waits.append(self._requests.wait(1, now))
        if self._tokens:
            waits.append(self._tokens.wait(tokens, now))
        return max(waits)

    def take(self, tokens: float) -> int:
        """A call of about so many tokens starts; its number, for `refused`."""
        for bucket in (self._requests, self._learned):
            if bucket:
                bucket.level -= 1
        if self._tokens:
            self._tokens.level -= tokens
        self._sent += 1
        return self._sent

    def settle(self, estimated: float, used: float) -> None:
        """What an answered call really used is known."""
        self._in_a_row = 0
        if self._tokens:
            self._tokens.level = min(self._tokens.size, self._tokens.level + estimated - used)

    def refused(self, number: int, sent: float, now: float, after: float | None, jitter: float) -> None:
        """Call `number`, sent at `sent`, came back with "too many requests".

        `after` is the server's Retry-After in seconds, `jitter` a number from 0 to 1.
        """
        if after is not None:
            self._paused_until = max(self._paused_until, now + after)
        if number > self._mark:
            self._refused += 1
        if sent <= self._cut_at:
            return  # it left before the last refusal was known: nothing new
        self._in_a_row += 1
        if after is None and self._in_a_row > 1:  # nothing came through since the last one
            pause = min(30.0, 0.1 * 2**self._in_a_row) * (0.5 + jitter)
            self._paused_until = max(self._paused_until, now + pause)
        passed, elapsed = number - self._mark - self._refused, max(sent - self._mark_at, 1e-3)
        if self._learned is None:
            self._base = max(passed, 1) / elapsed * 0.7  # a full bucket and more: an upper bound
        elif passed >= 5:
            measured = passed / elapsed
            # A server whose bucket holds little lost refill while we were slow: up to a tenth above what was measured.
            self._base = max(measured * 0.99, min(measured * 1.1, self._learned.rate * 0.95))
        else:
            self._base = self._learned.rate * 0.7
        self._learned = Bucket(max(self._base, 1e-3), 1.0, now)
        self._learned.level = 0.0
        self._cut_at = now
        self._mark, self._mark_at, self._refused = number, sent, 0

    def told(self, limits: ServerLimits, number: int, now: float) -> None:
        """Take over what the headers of call `number` say, unless the pipeline's own limit is tighter."""
        later = self._sent - number  # calls that the server may not have counted when it wrote them
        said = (limits.requests, limits.requests_left, limits.requests_reset)
        self._requests = _told(self._requests, self._own_requests, said, later, now)
        said = (limits.tokens, limits.tokens_left, limits.tokens_reset)
        self._tokens = _told(self._tokens, self._own_tokens, said, 0, now)


def _told(
    bucket: Bucket | None,
    own: float | None,
    said: tuple[int | None, int | None, float | None],
    later: int,
    now: float,
) -> Bucket | None:
    """The bucket that a server's limit makes: a minute's worth, or a longer period's where its reset says so.

    `said` is the limit, what is left of it, and the seconds until it is whole again; `later` what was used since.
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
    bucket.level = min(bucket.level, float(left - later))
    return bucket


class Gate:
    """How many calls may be in flight: additive increase, multiplicative decrease.

    Starts at `START` and doubles each round trip while that pays. A refusal, a time-out or a 5xx takes a quarter
    away, once a round trip. A server that queues instead of refusing shows in its latency: where a round's mean is
    `SLOW` times the best one seen for its stages, more calls must have brought more answers a second than the
    next lower level did (by `GAIN`); if not, the limit steps down.
    """

    START = 16
    SLOW = 2.0
    QUICK = 0.25  # seconds: below, a mean latency tells more of this machine's load than of a server's queue
    FLOOR = 4.0  # latency alone never takes the limit below
    GAIN = 1.10

    def __init__(self, ceiling: int, now: float, adaptive: bool = True) -> None:
        self.ceiling, self._adaptive = max(1, ceiling), adaptive
        self.limit = float(min(self.ceiling, self.START) if adaptive else self.ceiling)
        self._doubling = True
        self._cut_at = -math.inf
        self._best: dict[str, float] = {}
        self._levels: dict[int, float] = {}
        self._round(now)

    def _round(self, now: float) -> None:
        self._began, self._done, self._full, self._target = now, 0, True, max(8.0, self.limit)
        self._sums: dict[str, tuple[int, float]] = {}

    def succeeded(self, stage: str, sent: float, now: float, waiting: bool) -> None:
        """A call was answered; `waiting` says whether others stand in line, so that the limit is what bounds."""
        if not self._adaptive:
            return
        count, total = self._sums.get(stage, (0, 0.0))
        self._sums[stage] = (count + 1, total + now - sent)
        self._done += 1
        self._full &= waiting
        if waiting and self._doubling:
            self.limit = min(self.ceiling, self.limit + 1, 2 * self._target)
        if self._done >= self._target and sent >= self._began:
            self._end_of_round(now)

    def failed(self, sent: float, now: float) -> None:
        """A refusal, a time-out or a 5xx: less, once for all calls that were in flight together."""
        if sent <= self._cut_at or not self._adaptive:
            return
        self._cut_at, self._doubling = now, False
        self.limit = max(1.0, self.limit * 0.75)
        self._round(now)

    def _end_of_round(self, now: float) -> None:
        mean = slow = 0.0
        for stage, (count, total) in self._sums.items():
            own = total / count
            best = min(own, self._best.get(stage, math.inf) * 1.002)  # creeps up, so that one lucky round is forgotten
            self._best[stage] = best
            mean += total / self._done
            slow += count / self._done * (own / max(best, 1e-9))
        if self._full:
            rate = self._done / max(now - self._began, 1e-9)
            level = round(2 * math.log2(max(1.0, self.limit)))
            self._levels[level] = rate if level not in self._levels else 0.5 * (self._levels[level] + rate)
            lower = max((known for known in self._levels if known < level), default=None)
            pays = lower is not None and rate >= self.GAIN * self._levels[lower]
            if slow > self.SLOW and mean > self.QUICK and not pays and self.limit > self.FLOOR:
                self._doubling = False
                self.limit = max(self.FLOOR, self.limit / math.sqrt(2))
            elif not self._doubling:
                self.limit = min(self.ceiling, self.limit + 1)
        self._round(now)

"""Limits on the rate and concurrency of calls to one model, learnt from its responses.

    rate.wait(tokens=900) -> 0.0             seconds until a call of about 900 tokens may start
    concurrency.limit -> 41.3                how many calls may be in flight

Both compute with a time that the caller passes in, so tests can simulate the clock.
"""

import math

from airgen.llms.base import Allowance


class TokenBucket:
    """A token bucket that refills at `rate` units per second and holds at most `size`."""

    def __init__(self, rate: float, size: float, now: float) -> None:
        self.rate, self.size, self.level, self._at = rate, size, size, now

    def fill(self, now: float) -> None:
        """Bring the level up to date."""
        self.level = min(self.size, self.level + (now - self._at) * self.rate)
        self._at = now

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` is available.

        An amount above `size` waits for a full bucket, whose level then becomes negative.
        """
        self.fill(now)
        lacking = min(amount, self.size) - self.level
        return 0.0 if lacking <= 1e-9 else lacking / self.rate


class RateLimit:
    """Determines when the next call may start.

    The strictest of three limits applies: the pipeline's (`requests` and `tokens` per minute), the limit in the
    server's headers, and the rate learnt from refusals (HTTP 429). A server refuses when its own bucket is empty, so
    the number of calls it accepted between two refusals, divided by the time between them, is its refill rate. Without
    refusals, the learnt rate grows, slowly at first and then faster, to detect a raised limit.
    """

    GROWTH = 0.05  # growth of the rate after one second; after two, four times that

    def __init__(self, now: float, requests: float | None = None, tokens: float | None = None) -> None:
        self._requests = TokenBucket(requests / 60, max(1.0, requests / 60), now) if requests else None
        self._tokens = TokenBucket(tokens / 60, max(1.0, tokens / 60), now) if tokens else None
        self._own_requests, self._own_tokens = requests, tokens
        self._learned: TokenBucket | None = None
        self._base = 0.0  # the learned rate before its growth since `_cut_at`
        self._cut_at = -math.inf
        self._paused_until = -math.inf
        self._sent = 0  # calls started so far
        # The last refusal that was used: the number and time of its call, and the number of refusals since.
        self._mark, self._mark_at, self._refused = 0, now, 0
        self._in_a_row = 0

    @property
    def refusals(self) -> int:
        """Return the number of refusals since the last answer."""
        return self._in_a_row

    @property
    def rate(self) -> float | None:
        """Return the requests per second learnt from refusals, or None."""
        return self._learned.rate if self._learned else None

    def wait(self, tokens: float, now: float) -> float:
        """Return the seconds until a call with about this many tokens may start."""
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
        """Count the start of a call with about this many tokens, and return its number for `refused`."""
        for bucket in (self._requests, self._learned):
            if bucket:
                bucket.level -= 1
        if self._tokens:
            self._tokens.level -= tokens
        self._sent += 1
        return self._sent

    def settle(self, estimated: float, used: float) -> None:
        """Replace the estimated tokens of an answered call with those it used."""
        self._in_a_row = 0
        if self._tokens:
            self._tokens.level = min(self._tokens.size, self._tokens.level + estimated - used)

    def refused(self, number: int, sent: float, now: float, after: float | None, jitter: float) -> None:
        """Record that call `number`, sent at `sent`, was refused with "too many requests".

        `after` is the server's Retry-After in seconds, and `jitter` a number from 0 to 1.
        """
        if after is not None:
            self._paused_until = max(self._paused_until, now + after)
        if number > self._mark:
            self._refused += 1
        if sent <= self._cut_at:
            return  # it was sent before the last refusal was known, so it adds no information
        self._in_a_row += 1
        if after is None and self._in_a_row > 1:  # no answer since the last refusal
            pause = min(30.0, 0.1 * 2**self._in_a_row) * (0.5 + jitter)
            self._paused_until = max(self._paused_until, now + pause)
        passed, elapsed = number - self._mark - self._refused, max(sent - self._mark_at, 1e-3)
        if self._learned is None:
            self._base = max(passed, 1) / elapsed * 0.7  # includes a full bucket, so it is an upper bound
        elif passed >= 5:
            measured = passed / elapsed
            # A small bucket overflows while we are slow, so rates up to a tenth above the measured rate are tried.
            self._base = max(measured * 0.99, min(measured * 1.1, self._learned.rate * 0.95))
        else:
            self._base = self._learned.rate * 0.7
        self._learned = TokenBucket(max(self._base, 1e-3), 1.0, now)
        self._learned.level = 0.0
        self._cut_at = now
        self._mark, self._mark_at, self._refused = number, sent, 0

    def apply(self, requests: Allowance, tokens: Allowance, number: int, now: float) -> None:
        """Adopt the limits in the response headers of call `number`, unless the pipeline's limits are stricter."""
        later = self._sent - number  # calls that the server may not have counted when it wrote the headers
        self._requests = _adopted(self._requests, self._own_requests, requests, later=later, now=now)
        self._tokens = _adopted(self._tokens, self._own_tokens, tokens, later=0, now=now)


def _adopted(
    bucket: TokenBucket | None, own: float | None, allowed: Allowance, later: int, now: float
) -> TokenBucket | None:
    """Return the bucket for a server's limit per minute, or for a longer period if its reset takes longer.

    `later` is what was used after the server sent the limit.
    """
    limit, left, reset = allowed
    if not limit or limit <= 0 or left is None:
        return bucket
    rate = limit / 60
    if reset is not None and reset > 60 and left < limit:
        rate = (limit - left) / reset
    if own is not None and own / 60 <= rate:
        return bucket
    if bucket is None or bucket.rate != rate or bucket.size != float(limit):
        bucket = TokenBucket(rate, float(limit), now)
    bucket.fill(now)
    bucket.level = min(bucket.level, float(left - later))
    return bucket


class ConcurrencyLimit:
    """Limits the number of calls in flight by additive increase and multiplicative decrease.

    The limit starts at `START` and doubles with each round trip while throughput grows. A refusal, a timeout or a 5xx
    error reduces it by a quarter, at most once per round trip. A server that queues requests instead of refusing them
    becomes slow: if the mean latency of a round is `SLOW` times the best, and throughput is less than `GAIN` times that
    of the next lower level, the limit is reduced.
    """

    START = 16
    SLOW = 2.0
    QUICK = 0.25  # seconds: a lower mean latency depends more on this machine's load than on a server's queue
    FLOOR = 4.0  # latency alone never reduces the limit below this
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
        """Count an answered call.

        Args:
            waiting: Whether other calls are queued, that is, whether this limit delays them.
        """
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
        """Reduce the limit after a refusal, a timeout or a 5xx error, once for all calls that were in flight
        together."""
        if sent <= self._cut_at or not self._adaptive:
            return
        self._cut_at, self._doubling = now, False
        self.limit = max(1.0, self.limit * 0.75)
        self._round(now)

    def _end_of_round(self, now: float) -> None:
        mean = slow = 0.0
        for stage, (count, total) in self._sums.items():
            own = total / count
            best = min(own, self._best.get(stage, math.inf) * 1.002)  # it grows, so that a lucky round is forgotten
            self._best[stage] = best
            mean += total / self._done
            slow += count / self._done * (own / max(best, 1e-9))
        if self._full:
            rate = self._done / max(now - self._began, 1e-9)
            level = round(2 * math.log2(max(1.0, self.limit)))
            self._levels[level] = rate if level not in self._levels else 0.5 * (self._levels[level] + rate)
            lower = max((known for known in self._levels if known < level), default=None)
            gains = lower is not None and rate >= self.GAIN * self._levels[lower]
            if slow > self.SLOW and mean > self.QUICK and not gains and self.limit > self.FLOOR:
                self._doubling = False
                self.limit = max(self.FLOOR, self.limit / math.sqrt(2))
            elif not self._doubling:
                self.limit = min(self.ceiling, self.limit + 1)
        self._round(now)

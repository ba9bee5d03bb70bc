"""Counters of the engine by stage, for progress bars, `airgen status` and the bill."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from airgen.records import Answer

_WINDOW = 30.0  # seconds over which a rate is measured


@dataclass(slots=True)
class StageUsage:
    """The calls of one stage. Tokens and money are those of this process, not of answers from the disk.

    calls: finished calls, failures included. from_disk: requests answered without a call. failures: calls that ended
    without an answer, by reason. retries: repeated attempts, by reason. cached_tokens are part of prompt_tokens.
    usd: US dollars of all attempts, whatever came of them. in_flight, waiting: calls being sent, calls queued.
    """

    calls: int = 0
    from_disk: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    in_flight: int = 0
    waiting: int = 0
    _finished: deque[float] = field(default_factory=lambda: deque(maxlen=4096))

    def add(self, answer: Answer, now: float) -> None:
        """Count a finished call."""
        self.calls += 1
        self.prompt_tokens += answer.prompt_tokens
        self.cached_tokens += answer.cached_tokens
        self.completion_tokens += answer.completion_tokens
        if answer.error:
            self.failures[answer.error] += 1
        self._finished.append(now)

    def rate(self, now: float) -> float:
        """Finished calls a second over the last half minute; 0 before the second call."""
        while self._finished and self._finished[0] < now - _WINDOW:
            self._finished.popleft()
        if len(self._finished) < 2:
            return 0.0
        return (len(self._finished) - 1) / max(now - self._finished[0], 1e-9)

    def as_dict(self, now: float) -> dict[str, Any]:
        """Plain values, for the status file and `--json`."""
        return {
            "calls": self.calls,
            "from_disk": self.from_disk,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "usd": round(self.usd, 6),
            "failures": dict(sorted(self.failures.copy().items())),
            "retries": dict(sorted(self.retries.copy().items())),
            "in_flight": self.in_flight,
            "waiting": self.waiting,
            "rate": round(self.rate(now), 3),
        }

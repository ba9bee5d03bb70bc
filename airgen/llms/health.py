"""Decide whether a model, its endpoint or a prompt is so bad that the run must stop, and say why.

    health = Health("default", cost)
    health.saw("query")                                                # a piece of work that passed
    health.saw("query", "malformed", "the answer is empty", "malformed")
    health.check()                                                     # raises LlmError where the evidence is enough

A queue asks it about calls: `saw_call` and `is_down`. The pipeline asks it about what comes of them, by stage. The
evidence is counted in one way: a sequential test of the share of successes compares the planned share with a hopeless
one by the sum of log likelihood ratios, which never falls below 0 (Page's CUSUM of Wald's sequential probability ratio
test; Page, Continuous inspection schemes, Biometrika 1954). At the planned share, the mean number of pieces of work
until a false stop is at least 1 / `FALSE_STOP` (Lorden, Annals of Mathematical Statistics 1971).
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from airgen.errors import LlmError
from airgen.llms.base import Retry
from airgen.records import Answer

WHOLE = ("answers", "queries")  # names of what all calls of a database were for
FALSE_STOP = 1e-5
HOPELESS = 0.05  # a share of usable or accepted work from which nothing comes
# The shares that a job plans with. Of checks half of what is usual (see `estimate.ACCEPTED`), because a strict pipeline
# may reject most of its queries and still be what its author wants.
USABLE = {"default": 0.75, "small": 0.6}
ACCEPTED = {"default": 0.375, "small": 0.3}
CALLS = (0.75, 0.25)  # planned and hopeless share of calls with an answer: more than half must have one
FIRST_CALLS = 4  # of a stage: where the server takes none of them (HTTP 4xx), it will take no other
DOWN = 3  # calls without retries left, and no success between them: the endpoint is down
ENDPOINT_FAULTS = {"connection", "rate_limit"}  # failures that are never the fault of a single request
_REASONS = 20


class _Test:
    """One sequential test: is the share of successes `planned` or more, or `hopeless`?"""

    def __init__(self, planned: float, hopeless: float) -> None:
        self._good = math.log(hopeless / planned)
        self._bad = math.log((1 - hopeless) / (1 - planned))
        self._sum = 0.0

    def saw(self, good: bool) -> bool:
        """Count one piece of work; True if there is enough evidence for the hopeless share."""
        self._sum = max(0.0, self._sum + (self._good if good else self._bad))
        return self._sum >= -math.log(FALSE_STOP)


@dataclass
class _Watched:
    """One stage, or one model's calls: its tests, what was counted, and whether a test has decided."""

    tests: Sequence[_Test]
    seen: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    last: str = ""
    broken: bool = False

    def count(self, reason: str, detail: str) -> None:
        self.seen += 1
        if reason:
            self.reasons[reason] += 1
            self.last = " ".join(detail.split())[:300] or self.last

    def most(self) -> str:
        return ", ".join(f"{count} {reason}" for reason, count in self.reasons.most_common(5))


class Health:
    """The evidence about calls and work.

    Args:
        family: Family of the prompts.
        cost: Returns the cost of a stage so far, in words; of all stages for "".
    """

    def __init__(self, family: str = "default", cost: Callable[[str], str] = lambda stage: "nothing is known") -> None:
        self._planned, self._cost = (USABLE[family], ACCEPTED[family]), cost
        self._work: dict[str, _Watched] = {}
        self._calls = _Watched([_Test(*CALLS)])
        self._refused = Counter[str]()  # by stage: calls that the server would not take
        self._works: set[str] = set()  # stages of which a call was answered
        self.failing = 0  # attempts without an answer in a row

    # -- work ----------------------------------------------------------------------------------------------------

    def saw(self, name: str, reason: str = "", detail: str = "", cause: str = "check") -> None:
        """Count a finished piece of work of a stage (the first word of `name`), accepted or rejected for a `reason`.

        Args:
            cause: Llm or malformed, where no answer came that could be read; check, where it was rejected. What the
                settings or quality control reject is counted and is no evidence.
        """
        if name not in self._work:
            self._work[name] = _Watched([_Test(planned, HOPELESS) for planned in self._planned])
        watched = self._work[name]
        watched.count(reason, detail)
        if not reason or cause in ("llm", "malformed", "check"):
            usable, accepted = watched.tests
            decided = [usable.saw(not reason or cause == "check"), accepted.saw(not reason)]
            watched.broken = any(decided)

    def counts(self) -> dict[str, dict[str, Any]]:
        """Return what was seen of each stage: {stage: {seen, dropped, reasons: {the most frequent: count}}}."""
        summary = {}
        for name, watched in list(self._work.items()):
            reasons = watched.reasons.copy()
            most = {text[:200]: count for text, count in reasons.most_common(_REASONS)}
            summary[name] = {"seen": watched.seen, "dropped": reasons.total(), "reasons": most}
        return summary

    def check(self) -> None:
        """Raise LlmError if a stage rejects everything, with the reasons, the cost, and what to do."""
        for name, watched in self._work.items():
            if watched.broken:
                raise LlmError(
                    f"{name}: {watched.reasons.total()} of {watched.seen} were rejected ({watched.most()}), and "
                    f"{self._cost('' if name in WHOLE else name.partition(' ')[0])}: stopped, because that is far from "
                    f"the plan{f'; the last one: {watched.last[:200]}' if watched.last else ''}. Change the prompt or "
                    "the model, or repeat failed calls with --retry-failed"
                )

    # -- calls ---------------------------------------------------------------------------------------------------

    def saw_call(self, answer: Answer) -> LlmError | None:
        """Count a finished call. Returns why its model is asked nothing more, or None."""
        stage = answer.stage
        self._calls.count(answer.error, answer.text if answer.error else "")
        broken = self._calls.tests[0].saw(not answer.error)
        if not answer.error:
            self._works.add(stage)
            return None
        who, words = f"{answer.model} at endpoint {answer.endpoint!r}", self._calls.last or "no reason given"
        if answer.error.startswith("http_4") and stage not in self._works:
            self._refused[stage] += 1
            if self._refused[stage] >= FIRST_CALLS:
                return LlmError(
                    f"{stage}: {who} refused the first {FIRST_CALLS} calls ({answer.error}: {words}): stopped, because "
                    "it would refuse the others. Change `llm` or the prompt; --retry-failed asks the refused ones again"
                )
        if not broken:
            return None
        return LlmError(
            f"{self._calls.reasons.total()} of {self._calls.seen} calls to {who} failed ({self._calls.most()}; the "
            f"last one: {words}): stopped; see `airgen show`; `airgen run --retry-failed` asks them again"
        )

    def is_down(self, errors: Sequence[Retry], *, alive: bool, idle: bool) -> bool | None:
        """Return whether the endpoint, and not each call, is at fault for calls that failed after all retries.

        Args:
            errors: Last error of each call.
            alive: Whether the endpoint answers other calls.
            idle: Whether there are no other calls.

        Returns:
            True after several failures in a row; None if other calls must be seen first.
        """
        if alive:
            return False
        endpoint = any(error.reason in ENDPOINT_FAULTS for error in errors)
        if len(errors) >= DOWN or (idle and endpoint):
            return True
        return False if idle else None

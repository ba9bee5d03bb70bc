"""Detect whether a model, its endpoint or a prompt is so bad that the run must stop, and explain why.

    health = Health("default", cost)
    health.record("query")                                                # a piece of work that passed
    health.record("query", "malformed", "the answer is empty", "malformed")
    health.check()                                                     # raises LlmError where the evidence is enough

A queue uses it to assess calls (`saw_call`, `is_down`), and the pipeline to assess their results by stage. Both use the
same test: a sequential test compares the planned success rate with a hopeless one by the sum of log-likelihood ratios,
which never falls below 0 (Page's CUSUM of Wald's sequential probability ratio test; Page, Continuous inspection
schemes, Biometrika 1954). At the planned success rate, the mean number of items until a false stop is at least 1 /
`FALSE_STOP` (Lorden, Annals of Mathematical Statistics 1971).
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from airgen.errors import LlmError
from airgen.llms.base import Retry
from airgen.storage.records import Answer

WHOLE = ("answers", "queries")  # what each call in the database was for
FALSE_STOP = 1e-5
HOPELESS = 0.05  # a share of usable or accepted work that leads to nothing
# The shares that a job expects. For checks, half of the usual share (see `estimate.ACCEPTED`), because a strict
# pipeline may reject most of its queries and still be what its author wants.
USABLE = {"default": 0.75, "small": 0.6}
ACCEPTED = {"default": 0.375, "small": 0.3}
CALLS = (0.75, 0.25)  # expected and hopeless share of calls with an answer: more than half must have one
FIRST_CALLS = 4  # refused calls of a stage: if the server accepts none of them (HTTP 4xx), it will accept no other
DOWN = 3  # calls without retries left and without a success between them: the endpoint is down
ENDPOINT_FAULTS = {"connection", "rate_limit"}  # failures that a single request never causes
_REASONS = 20


class _Test:
    """A sequential test of whether the success rate is at least `planned`, or `hopeless`."""

    def __init__(self, planned: float, hopeless: float) -> None:
        self._good = math.log(hopeless / planned)
        self._bad = math.log((1 - hopeless) / (1 - planned))
        self._sum = 0.0

    def record(self, good: bool) -> bool:
        """Count one item. Returns True if there is enough evidence for the hopeless rate."""
        self._sum = max(0.0, self._sum + (self._good if good else self._bad))
        return self._sum >= -math.log(FALSE_STOP)


@dataclass
class _Watched:
    """The tests and counts of one stage or of one model's calls, and whether a test has decided."""

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
    """The evidence about calls and their results.

    Args:
        family: Family of the prompts.
        cost: Function that describes the cost of a stage so far, or of all stages for "".
    """

    def __init__(self, family: str = "default", cost: Callable[[str], str] = lambda stage: "nothing is known") -> None:
        self._planned, self._cost = (USABLE[family], ACCEPTED[family]), cost
        self._work: dict[str, _Watched] = {}
        self._calls = _Watched([_Test(*CALLS)])
        self._refused = Counter[str]()  # by stage, calls that the server refused
        self._works: set[str] = set()  # stages with at least one answered call
        self.failing = 0  # consecutive attempts without an answer

    # -- work ----------------------------------------------------------------------------------------------------

    def record(self, name: str, reason: str = "", detail: str = "", cause: str = "check") -> None:
        """Count a finished item of a stage (the first word of `name`), accepted or rejected for a `reason`.

        Args:
            cause: `llm` or `malformed` if there was no readable answer, `check` if it was rejected. Rejections by
                settings or quality control are counted, but are not evidence.
        """
        if name not in self._work:
            self._work[name] = _Watched([_Test(planned, HOPELESS) for planned in self._planned])
        watched = self._work[name]
        watched.count(reason, detail)
        if not reason or cause in ("llm", "malformed", "check"):
            usable, accepted = watched.tests
            decided = [usable.record(not reason or cause == "check"), accepted.record(not reason)]
            watched.broken = any(decided)

    def counts(self) -> dict[str, dict[str, Any]]:
        """Return the counts of each stage: {stage: {seen, dropped, reasons: {most frequent reasons: count}}}."""
        summary = {}
        for name, watched in list(self._work.items()):
            reasons = watched.reasons.copy()
            most = {text[:200]: count for text, count in reasons.most_common(_REASONS)}
            summary[name] = {"seen": watched.seen, "dropped": reasons.total(), "reasons": most}
        return summary

    def check(self) -> None:
        """Raise LlmError, with the reasons, the cost and what to do, if a stage rejects everything."""
        for name, watched in self._work.items():
            if watched.broken:
                raise LlmError(
                    f"{name}: {watched.reasons.total()} of {watched.seen} were rejected ({watched.most()}), and "
                    f"{self._cost('' if name in WHOLE else name.partition(' ')[0])}: stopped, because that is far from "
                    f"the plan{f'; the last one: {watched.last[:200]}' if watched.last else ''}. Change the prompt or "
                    "the model, or retry failed calls with --retry-failed"
                )

    # -- calls ---------------------------------------------------------------------------------------------------

    def saw_call(self, answer: Answer) -> LlmError | None:
        """Count a finished call. Returns why its model should not be asked again, or None."""
        stage = answer.stage
        self._calls.count(answer.error, answer.text if answer.error else "")
        broken = self._calls.tests[0].record(not answer.error)
        if not answer.error:
            self._works.add(stage)
            return None
        who, words = f"{answer.model} at endpoint {answer.endpoint!r}", self._calls.last or "no reason given"
        if answer.error.startswith("http_4") and stage not in self._works:
            self._refused[stage] += 1
            if self._refused[stage] >= FIRST_CALLS:
                return LlmError(
                    f"{stage}: {who} refused the first {FIRST_CALLS} calls ({answer.error}: {words}): stopped, because "
                    "it would refuse the others. Change `llm` or the prompt; --retry-failed retries the refused calls"
                )
        if not broken:
            return None
        return LlmError(
            f"{self._calls.reasons.total()} of {self._calls.seen} calls to {who} failed ({self._calls.most()}; the "
            f"last one: {words}): stopped; see `airgen show`; `airgen run --retry-failed` retries them"
        )

    def is_down(self, errors: Sequence[Retry], *, alive: bool, idle: bool) -> bool | None:
        """Return whether the endpoint, rather than each call, is at fault for calls that failed after all retries.

        Args:
            errors: The last error of each call.
            alive: Whether the endpoint answers other calls.
            idle: Whether there are no other calls.

        Returns:
            True after several failures in a row, or None if other calls are needed to decide.
        """
        if alive:
            return False
        endpoint = any(error.reason in ENDPOINT_FAULTS for error in errors)
        if len(errors) >= DOWN or (idle and endpoint):
            return True
        return False if idle else None

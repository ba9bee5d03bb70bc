"""The breaker: a stage whose work is all rejected stops the run, by evidence and before the corpus is spent.

    breaker = Breaker(pipeline, store)
    breaker.saw("query")                                           # one piece of work that passed
    breaker.saw("query", "malformed", "the answer is empty", usable=False)
    breaker.check()                                                # raises LlmError where the evidence is enough

For each stage two sequential tests run: of the share of usable answers, and of the share of work that is accepted. Each
compares the planned share with a hopeless one (`llm.min_accepted`) by the sum of log likelihood ratios, which never
falls below 0 (Page's CUSUM of Wald's sequential probability ratio test; Page, Continuous inspection schemes, Biometrika
1954). Where work passes at the planned share, the mean number of pieces until a false stop is at least 1 / `FALSE_STOP`
(Lorden, Annals of Mathematical Statistics 1971).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from airgen.errors import LlmError
from airgen.pipeline.stage import Lineage, Refusal, Stage
from airgen.settings import Pipeline
from airgen.store import Store

WHOLE = ("answers", "queries")  # names of what all calls of a database were for
FALSE_STOP = 1e-5
_REASONS = 20
# The shares that a job plans with. Of checks half of what is usual (see `estimate.ACCEPTED`), because a strict pipeline
# may reject most of its queries and still be what its author wants.
USABLE = {"default": 0.75, "small": 0.6}
ACCEPTED = {"default": 0.375, "small": 0.3}


class _Test:
    """One sequential test: is the share of successes `planned` or more, or `hopeless`?"""

    def __init__(self, planned: float, hopeless: float) -> None:
        self._good = math.log(hopeless / planned)
        self._bad = math.log((1 - hopeless) / (1 - planned))
        self._sum = 0.0

    def saw(self, good: bool) -> bool:
        """Count one piece of work; True where the evidence for the hopeless share is enough."""
        self._sum = max(0.0, self._sum + (self._good if good else self._bad))
        return self._sum >= -math.log(FALSE_STOP)


@dataclass
class _Watched:
    """One stage: its tests, what was counted, and whether a test has decided."""

    tests: tuple[_Test, _Test]
    seen: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    last: str = ""
    broken: bool = False


class Breaker:
    """See the module. `store` knows what a stage has cost."""

    def __init__(self, pipeline: Pipeline, store: Store) -> None:
        self._family, self._hopeless = pipeline.generation.prompts, pipeline.llm.min_accepted
        self._store = store
        self._stages: dict[str, _Watched] = {}

    def saw(
        self, stage: str, reason: str = "", detail: str = "", *, usable: bool = True, intended: bool = False
    ) -> None:
        """One piece of a stage's work has ended: accepted, or rejected for a `reason`.

        usable: an answer came and could be read. intended: the settings or quality control rejected it, so it is
        counted and is no evidence.
        """
        if stage not in self._stages:
            planned = (USABLE[self._family], ACCEPTED[self._family])
            hopeless = self._hopeless or 1e-9  # 0 turns the tests off
            self._stages[stage] = _Watched((_Test(planned[0], hopeless), _Test(planned[1], hopeless)))
        found = self._stages[stage]
        found.seen += 1
        if reason:
            found.reasons[reason] += 1
            found.last = detail or found.last
        if self._hopeless and not intended:
            decided = [found.tests[0].saw(usable), found.tests[1].saw(not reason)]
            found.broken = any(decided)

    def counts(self) -> dict[str, dict[str, Any]]:
        """What was seen of each stage: {stage: {seen, dropped, reasons: {the most frequent: count}}}."""
        found = {}
        for name, one in list(self._stages.items()):
            reasons = one.reasons.copy()
            most = {text[:200]: count for text, count in reasons.most_common(_REASONS)}
            found[name] = {"seen": one.seen, "dropped": reasons.total(), "reasons": most}
        return found

    def saw_stage(self, lineage: Lineage, stage: Stage) -> None:
        """The outcome of a stage that a lineage has been through."""
        skip = lineage.skips.get(stage.name)
        if skip is None:
            self.saw(stage.name)
        else:
            intended = skip.cause not in ("llm", "malformed", "check")
            usable = skip.cause not in ("llm", "malformed")
            self.saw(stage.name, skip.reason, skip.detail, usable=usable, intended=intended)

    def saw_answer(self, stage: str, found: object) -> None:
        """A value, or the Refusal that stands for one."""
        if isinstance(found, Refusal):
            problem = found.problem
            detail = " ".join((problem.detail, found.answer))
            self.saw(stage, problem.reason, detail, usable=problem.cause not in ("llm", "malformed"))
        else:
            self.saw(stage)

    def watch(self, name: str, found: object) -> None:
        """Count an answer, and check. `name` begins with the stage, whose cost is said."""
        self.saw_answer(name, found)
        self.check()

    def check(self) -> None:
        """Raises LlmError where a stage rejects everything, with the reasons, the cost, and what to do."""
        for name, found in self._stages.items():
            if not found.broken:
                continue
            usd, calls = self._cost(name)
            reasons = ", ".join(f"{count} {reason}" for reason, count in found.reasons.most_common(5))
            last = " ".join(found.last.split())[:200]
            raise LlmError(
                f"{name}: {sum(found.reasons.values())} of {found.seen} were rejected ({reasons}), and {calls} calls "
                f"cost ${usd:.4f}: stopped, because that is far from the plan"
                + (f"; the last one: {last}" if last else "")
                + ". Change the prompt or the model, or repeat failed calls with --retry-failed; "
                "`llm.min_accepted: 0` lets the run go on"
            )

    def _cost(self, name: str) -> tuple[float, int]:
        """What a stage, or for other names the whole job, has cost in US dollars; and its answers on the disk."""
        where, values = ("", []) if name in WHOLE else ("WHERE stage = ?", [name.partition(" ")[0]])
        (usd,) = self._store.query(f"SELECT coalesce(sum(usd), 0) FROM payment {where}", values)[0]
        (calls,) = self._store.query(f"SELECT count(*) FROM answer {where}", values)[0]
        return float(usd), int(calls)

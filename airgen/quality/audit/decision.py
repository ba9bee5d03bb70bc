"""What people's answers say of systems: which of two is better, a corrected ranking, a judge that favours a family.

    (found,) = decide(pairs, order, labels, np.array([[1.0, -1.0]]), margin=0.1)
    found.verdict, found.low, found.high, found.more

Arithmetic only. Labels are in [0, 1] in drawn order, NaN where a person could not say.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from airgen.evaluation.significance import holm, rank_bounds
from airgen.quality.audit.difference import (
    ContrastEstimate,
    Pairs,
    critical_values,
    estimate,
    information,
    looks,
    spent,
)

Floats = NDArray[np.float64]
Verdict = Literal["first", "second", "equal", "open"]
_POWER = 0.8416  # the normal quantile of .8: a projected number of answers decides in four of five cases


@dataclass(frozen=True, slots=True)
class PairDecision:
    """What is known of one contrast, such as a difference of two systems, after `answers` answers.

    verdict: `first` or `second` is better, `equal` (the difference is smaller than the margin) or `open`. decided_at:
    after how many answers this was known, None if it is open. value: the estimate by all answers. low, high: what all
    looks together leave; 95 % hold. judge: the contrast by the judge alone. more: about how many answers more would
    decide (0 if decided). critical: how many standard errors the last look reaches.
    """

    verdict: Verdict
    value: float
    low: float
    high: float
    answers: int
    decided_at: int | None
    more: int
    judge: float
    margin: float
    critical: float

    @property
    def bound(self) -> float:
        """The systems differ by less than this, whichever is better."""
        return max(abs(self.low), abs(self.high))


def decide(
    pairs: Pairs, order: NDArray[np.int64], labels: Floats, contrasts: Floats, *, margin: float, alpha: float = 0.05
) -> list[PairDecision]:
    """One decision for each contrast. Each looks after every batch; what a look has decided stays.

    contrasts: float64 (decisions, contrasts of the pairs). All intervals hold at all looks together with 1 - alpha: the
    decisions share alpha evenly, and the looks of one spend its share. A pair that a person could not judge counts for
    both sides: the interval has room for either answer. Without a whole batch nothing is known but the judge's opinion.
    """
    total = len(pairs.probability)
    steps, told = looks(len(labels), total), information(pairs, total)
    allowed = np.array([spent(n, alpha / len(contrasts)) for n in steps])
    critical = critical_values(told[np.array(steps, dtype=np.int64) - 1], allowed).tolist()
    unclear = np.isnan(labels)
    judged = np.where(unclear, pairs.probability[order[: len(labels)]], labels)
    found = []
    for contrast in contrasts:
        towards = contrast @ pairs.weights[:, order[: len(labels)]]
        sides = [judged]
        if unclear.any():
            sides += [np.where(unclear, towards < 0, labels), np.where(unclear, towards > 0, labels)]
        judge = float(contrast @ pairs.weights @ pairs.probability)
        more = (looks(total, total) or [total])[0] - len(labels)
        one = PairDecision("open", judge, -math.inf, math.inf, 0, None, more, judge, margin, math.inf)
        for n, z in zip(steps, critical, strict=True):
            parts = [estimate(pairs, order, each[:n], contrast) for each in sides]
            value, error = float(parts[0].value[0]), float(parts[0].errors[0])
            low = max(one.low, min(float(part.value[0] - z * part.errors[0]) for part in parts))
            high = min(one.high, max(float(part.value[0] + z * part.errors[0]) for part in parts))
            if n == total:  # exact, up to what nobody could judge
                low, high = (bound(float(part.value[0]) for part in parts) for bound in (min, max))
            elif low > high:  # one look was wrong, which happens seldom: what was known before stays
                low, high = one.low, one.high
            verdict: Verdict = "first" if low > 0 else "second" if high < 0 else "open"
            if verdict == "open" and max(abs(low), abs(high)) < margin:
                verdict = "equal"
            at = one.decided_at
            if at is not None and (n < total or verdict in (one.verdict, "open")):
                verdict = one.verdict
            elif verdict != "open":
                at = n
            more = _more(told, n, value, error, z, margin) if at is None else 0
            one = PairDecision(verdict, min(max(value, low), high), low, high, n, at, more, judge, margin, z)
        found.append(one)
    return found


def _more(told: Floats, labels: int, value: float, error: float, critical: float, margin: float) -> int:
    """How many answers more decide, if the difference is what it seems: the variance falls as 1 / information."""
    later = np.arange(labels + 1, len(told) + 1)
    errors = error * np.sqrt(told[labels - 1] / told[labels:])
    errors[-1:] = 0.0  # all pairs answered
    better = abs(value) >= (critical + _POWER) * errors
    equal = abs(value) + critical * errors < margin
    enough = np.flatnonzero(better | equal)
    return int(later[enough[0]]) - labels if len(enough) else len(told) - labels


@dataclass(frozen=True, slots=True)
class CorrectedSystem:
    """One system: its mean DCG@10 by the judge, by people (`people` with `error`), and `score`, people's correction
    shrunk by its variance, with the interval of its rank by the labels."""

    name: str
    judge: float
    people: float
    error: float
    score: float
    low: int
    high: int


def corrected(names: Sequence[str], found: ContrastEstimate, judge: Floats, *, seed: int = 0) -> list[CorrectedSystem]:
    """The systems, best first by the shrunk score.

    found: each system's contrast with the mean of all. judge: each system's mean DCG@10 by the judge. A correction is
    believed as far as all corrections together exceed what chance would give (empirical Bayes with a cautious variance
    of the true corrections): few labels change nothing, many change everything. Rank intervals are of the unshrunk
    estimate, which has no bias.
    """
    count = len(names)
    change = found.value - found.judge
    # The mean of the sum of squares of noise alone, and 1.64 of its standard deviations.
    chance = float(np.trace(found.covariance) + 1.64 * math.sqrt(2 * float((found.covariance**2).sum())))
    trust = max(0.0, float(change @ change) - chance) / max(1, count - 1)
    shrunk = np.zeros(count)
    if math.isinf(found.information):
        shrunk = change
    elif trust > 0:
        shrunk = np.asarray(trust * np.linalg.solve(found.covariance + trust * np.eye(count), change), np.float64)
    score = judge + shrunk
    values, vectors = np.linalg.eigh(found.covariance)
    noise = np.random.default_rng(seed).normal(size=(4000, count)) @ (vectors * np.sqrt(np.maximum(values, 0))).T
    ranks = rank_bounds(found.value, found.value + noise)
    rows = [
        CorrectedSystem(
            names[at], float(judge[at]), float(judge[at] + change[at]), float(found.errors[at]), float(score[at]),
            int(ranks[at, 0]), int(ranks[at, 1]),
        )
        for at in range(count)
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row.score, row.name))


@dataclass(frozen=True, slots=True)
class Favour:
    """How much more than people the judge gives to a group of systems than to the others, in mean DCG@10.

    p: two-sided, after Holm's correction over the groups that were tested.
    """

    group: str
    systems: tuple[str, ...]
    value: float
    low: float
    high: float
    p: float


def favours(names: Sequence[str], groups: Mapping[str, Sequence[str]], found: ContrastEstimate) -> list[Favour]:
    """Does the judge favour a group? Groups with no system, or with all, are left out, and so is a second half."""
    rows = []
    tested: set[frozenset[str]] = set()
    for group, members in groups.items():
        inside = np.array([name in members for name in names])
        here = frozenset(name for name in names if name in members)
        if not inside.any() or inside.all() or here in tested:
            continue
        tested |= {here, frozenset(names) - here}
        contrast = np.where(inside, 1 / inside.sum(), -1 / (~inside).sum())
        one = found.contrast(contrast[None])
        value, error = float(one.judge[0] - one.value[0]), float(one.errors[0])
        exact = 0.0 if abs(value) > 1e-12 else 1.0
        p = math.erfc(abs(value) / error / math.sqrt(2)) if error > 0 else exact
        chosen = tuple(name for name in names if name in members)
        rows.append(Favour(group, chosen, value, value - 1.96 * error, value + 1.96 * error, p))
    return [replace(row, p=p) for row, p in zip(rows, holm([row.p for row in rows]).tolist(), strict=True)]

"""Estimate the difference between systems from a judge's probabilities and a few human answers, without file access.

    pairs = Pairs(weights, probability)                 # weights: what a relevant pair adds to each contrast
    order = draw_order(pairs, seed=0)                   # in which order people should answer
    found = estimate(pairs, order, labels)              # labels: of the first pairs in this order
    found.value, found.covariance

A contrast is linear in the labels: the difference of two systems' mean DCG@10 is the sum over all (query, document)
pairs of (difference of the rank weights) x (label). nDCG is not linear, because its ideal depends on unknown labels, so
no sample of labels estimates it without bias.

Pairs are drawn one by one without replacement. The probability of a pair is proportional to (size of its weight) x
sqrt(p (1 - p)), where a label is most informative (Neyman allocation). Each draw gives an unbiased estimate: the
judge's contrast, plus the residuals (label - p) of the pairs drawn so far, plus the new residual divided by its
probability (Des Raj 1956; with a judge's predictions: Angelopoulos et al., "Prediction-powered inference", 2023). The
estimates of all draws are uncorrelated, so the variance of their weighted mean can be estimated, and it can be
inspected while people answer. After each batch, the probabilities are recalibrated with the answers before it. This
introduces no bias, because a draw's estimate is unbiased for any probabilities fixed before the draw. The variance
includes eight pseudo-answers with maximum uncertainty; without them, the first intervals are too narrow if a judge is
wrong about a rare kind of document.

The module also draws conclusions about systems: which of two is better (`decide`), a corrected ranking (`corrected`),
and whether the judge favours a family (`favours`). Labels are in [0, 1] in drawn order, or NaN if a person could not
say.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from airgen.compute.exact_arithmetic import log2
from airgen.evaluation.significance import holm, rank_bounds

BATCH = 25
"""The number of answers between two looks."""

HORIZON = 200
"""Number of answers after which four fifths of the error probability are spent; the rest is for later answers."""

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
_LEAST_UNCERTAINTY = 0.1  # the judge's minimum uncertainty when pairs are drawn, because it can be wrong
# As uncertain as a coin toss, because a few real answers can miss a whole kind of error of the judge.
_PSEUDO_ANSWERS = 8


@dataclass(frozen=True)
class Pairs:
    """All pairs whose labels matter: weights float64 (contrasts, pairs), and probability float64 (pairs,) in [0, 1].

    Every pair has a non-zero weight in some contrast.
    """

    weights: Floats
    probability: Floats

    @cached_property
    def sizes(self) -> Floats:
        """Return the sizes to which the pairs' probabilities are proportional, float64 (pairs,), all positive."""
        p = np.clip(self.probability, _LEAST_UNCERTAINTY, 1 - _LEAST_UNCERTAINTY)
        root = np.sqrt((self.weights**2).mean(axis=0))
        return np.asarray(root * np.sqrt(p * (1 - p)), np.float64)

    @cached_property
    def expected_left(self) -> Floats:
        """Return the expected sum of the remaining sizes before each draw, float64 (pairs,).

        Drawing is like decay of atoms with rates `sizes`: after time t, sum(exp(-size t)) pairs with a total size of
        sum(size exp(-size t)) are left. The expectation is used so that weights derived from it are fixed before any
        draw.
        """
        sizes = self.sizes
        times = np.concatenate(([0.0], np.geomspace(1e-4 / sizes.max(), 30 / sizes.min(), 300)))
        drawn, left = np.empty(len(times)), np.empty(len(times))
        for at, time in enumerate(times.tolist()):
            stay = np.exp(-sizes * time)
            drawn[at], left[at] = len(sizes) - stay.sum(), sizes @ stay
        expected = np.interp(np.arange(len(sizes)), drawn, left)
        return np.asarray(np.maximum(expected, sizes.min()), np.float64)


@dataclass(frozen=True)
class ContrastEstimate:
    """An estimate from `labels` labelled pairs: value float64 (contrasts,) and covariance float64 (contrasts,
    contrasts).

    `information` is the expected information of the drawn pairs; the variance falls as 1 / information. `judge`
    contains the contrasts by the judge's original probabilities alone.
    """

    value: Floats
    covariance: Floats
    labels: int
    information: float
    judge: Floats

    @property
    def errors(self) -> Floats:
        """Return the standard errors, float64 (contrasts,)."""
        errors: Floats = np.sqrt(np.maximum(np.diag(self.covariance), 0))
        return errors

    def contrast(self, weights: Floats) -> "ContrastEstimate":
        """Return linear combinations of the contrasts, with weights (new contrasts, contrasts)."""
        covariance = weights @ self.covariance @ weights.T
        return replace(self, value=weights @ self.value, covariance=covariance, judge=weights @ self.judge)


def rank_weights(depth: int = 10) -> Floats:
    """Return the contribution of a relevant document to DCG at ranks 1 to `depth`, 1 / log2(rank + 1)."""
    weights: Floats = 1 / log2(np.arange(2, depth + 2))
    return weights


def draw_order(pairs: Pairs, *, seed: int) -> Places:
    """Return all pairs in drawn order. Each next pair is drawn from the rest with probability proportional to its
    size."""
    waiting = np.random.default_rng(seed).exponential(size=len(pairs.probability)) / pairs.sizes
    order: Places = np.argsort(waiting, kind="stable")
    return order


def looks(labels: int, total: int) -> list[int]:
    """Return the numbers of labels after which the result is inspected: whole batches, and all pairs.

    >>> looks(60, 1000), looks(60, 60)
    ([25, 50], [25, 50, 60])
    """
    whole = list(range(BATCH, labels + 1, BATCH))
    return [*whole, total] if labels == total and labels % BATCH else whole


def spent(labels: int, alpha: float = 0.05) -> float:
    """Return the error probability that may be spent up to a look: four fifths evenly up to the horizon, the remainder
    after it.
    """
    share = 0.8 * labels / HORIZON if labels <= HORIZON else 0.8 + 0.2 * (1 - HORIZON / labels)
    return alpha * share


def information(pairs: Pairs, count: int) -> Floats:
    """Return the expected information after 1 to `count` draws, float64 (count,).

    The variance of a draw's estimate is proportional to the square of the remaining sizes.
    """
    totals: Floats = np.cumsum(pairs.expected_left[:count] ** -2)
    return totals


def estimate(pairs: Pairs, order: Places, labels: Floats, contrast: Floats | None = None) -> ContrastEstimate:
    """Estimate the contrasts from the labels, in [0, 1], of the first pairs in the order. If all pairs are labelled,
    there is no error.

    At least two labels are needed. With `contrast`, float64 (contrasts of the pairs,), only this linear combination is
    estimated.
    """
    weights, probability, sizes = pairs.weights, pairs.probability, pairs.sizes
    if contrast is not None:
        weights = contrast[None] @ weights
    count, total = len(labels), len(probability)
    judge = weights @ probability
    drawn = order[:count]
    if count == total:
        exact = weights[:, drawn] @ labels
        return ContrastEstimate(
            value=exact, covariance=np.zeros((len(exact), len(exact))), labels=count, information=math.inf, judge=judge
        )
    left = sizes.sum() - np.concatenate(([0.0], np.cumsum(sizes[drawn])[:-1]))
    draws = np.empty((count, len(weights)))
    for first in range(0, count, BATCH):
        part = slice(first, min(first + BATCH, count))
        now = recalibrated(probability, probability[drawn[:first]], labels[:first])
        residuals = weights[:, drawn] * (labels - now[drawn])
        before = np.cumsum(residuals, axis=1) - residuals
        estimates = (weights @ now)[:, None] + before + residuals * (left / sizes[drawn])
        draws[part] = estimates[:, part].T
    deviation = pairs.expected_left[:count]
    share = deviation**-2.0
    value = share @ draws / share.sum()
    unlike = (draws - value) / deviation[:, None]
    seen = (unlike * share[:, None]).T @ unlike / share.sum() * count / (count - 1)
    coins = (weights * (0.25 / sizes)) @ weights.T / sizes.sum()
    covariance = ((count - 1) * seen + _PSEUDO_ANSWERS * coins) / (count - 1 + _PSEUDO_ANSWERS) / share.sum()
    return ContrastEstimate(
        value=value, covariance=covariance, labels=count, information=float(share.sum()), judge=judge
    )


def recalibrated(probability: Floats, known: Floats, labels: Floats) -> Floats:
    """Recalibrate probabilities by a + b logit(p), fitted to labelled pairs with probabilities `known`.

    This is a logistic regression by Newton's method, with a ridge penalty towards a = 0 and b = 1, so that few labels
    change little.
    """
    if not len(labels):
        return probability
    rows = np.stack([np.ones_like(known), _logit(known)], axis=1)
    ridge, centre = np.array([1.0, 4.0]), np.array([0.0, 1.0])
    coefficients = centre
    for _ in range(100):
        p = _sigmoid(rows @ coefficients)
        gradient = rows.T @ (p - labels) + ridge * (coefficients - centre)
        step = np.linalg.solve((rows * (p * (1 - p))[:, None]).T @ rows + np.diag(ridge), gradient)
        coefficients = coefficients - np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-10:
            break
    return _sigmoid(coefficients[0] + coefficients[1] * _logit(probability))


def _logit(p: Floats) -> Floats:
    p = np.clip(p, 0.005, 0.995)
    logits: Floats = np.log(p / (1 - p))
    return logits


def _sigmoid(x: Floats) -> Floats:
    probabilities: Floats = 1 / (1 + np.exp(-np.clip(x, -700, 700)))
    return probabilities


def critical_values(totals: Floats, allowed: Floats) -> Floats:
    """Return the number of standard errors for each look such that the total error probability of all looks is the last
    `allowed`.

    `totals` is the increasing information at each look, and `allowed` the increasing error probability that may be
    spent up to each look. Two-sided, by the recursion of Armitage, McPherson and Rowe (1969) with Lan-DeMets spending
    (1983).

    >>> critical_values(np.array([1.0]), np.array([0.05])).round(3).tolist()
    [1.96]
    """
    critical = np.empty(len(totals))
    places, masses, before = np.zeros(1), np.ones(1), 0.0
    for at, (level, step) in enumerate(zip(totals.tolist(), np.diff(allowed, prepend=0.0).tolist(), strict=True)):
        edge, deviation = math.sqrt(level), math.sqrt(level - before)
        grid = np.linspace(-6 * edge, 6 * edge, 801)
        width = grid[1] - grid[0]
        density = np.exp(-(((grid[:, None] - places) / deviation) ** 2) / 2) @ masses
        density /= deviation * math.sqrt(2 * math.pi)
        upper = np.cumsum(density[::-1])[::-1] * width - density * width / 2  # the mass above each position
        outside = 2 * upper[400:]  # both sides, from the middle outwards, decreasing
        reach = float(np.interp(-step, -outside, grid[400:]))
        critical[at] = reach / edge
        inside = np.abs(grid) <= reach
        places, masses, before = grid[inside], density[inside] * width, level
    return critical


Verdict = Literal["first", "second", "equal", "open"]
_POWER_QUANTILE = 0.8416  # normal quantile of .8: the projected answers are enough in four of five cases


@dataclass(frozen=True, slots=True)
class PairDecision:
    """The decision about one contrast, such as the difference of two systems, after `answers` answers.

    `verdict` is `first` or `second` (which is better), `equal` (the difference is smaller than the margin) or `open`.
    `decided_at` is the number of answers after which this was known, or None if it is open. `value` is the estimate
    from all answers. `low` and `high` are the 95% interval over all looks. `judge` is the contrast by the judge alone.
    `more` is the approximate number of further answers needed (0 if decided).
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

    @property
    def bound(self) -> float:
        """Return a bound on the difference between the systems, whichever is better."""
        return max(abs(self.low), abs(self.high))


def decide(
    pairs: Pairs, order: NDArray[np.int64], labels: Floats, contrasts: Floats, *, margin: float
) -> list[PairDecision]:
    """Return a decision for each contrast. The result is inspected after every batch, and a decision is final.

    `contrasts` is float64 (decisions, contrasts of the pairs). All intervals hold simultaneously at all looks with
    probability .95: decisions share the .05 evenly, and the looks of a decision spend its share. A pair that a person
    could not judge counts both ways: the interval allows for either answer. Before the first whole batch, only the
    judge's opinion is known.
    """
    total = len(pairs.probability)
    steps, totals = looks(len(labels), total), information(pairs, total)
    allowed = np.array([spent(n, 0.05 / len(contrasts)) for n in steps])
    critical = critical_values(totals[np.array(steps, dtype=np.int64) - 1], allowed).tolist()
    unclear = np.isnan(labels)
    judged = np.where(unclear, pairs.probability[order[: len(labels)]], labels)
    decisions = []
    for contrast in contrasts:
        towards = contrast @ pairs.weights[:, order[: len(labels)]]
        sides = [judged]
        if unclear.any():
            sides += [np.where(unclear, towards < 0, labels), np.where(unclear, towards > 0, labels)]
        judge = float(contrast @ pairs.weights @ pairs.probability)
        more = (looks(total, total) or [total])[0] - len(labels)
        decision = PairDecision(
            verdict="open",
            value=judge,
            low=-math.inf,
            high=math.inf,
            answers=0,
            decided_at=None,
            more=more,
            judge=judge,
            margin=margin,
        )
        for n, z in zip(steps, critical, strict=True):
            parts = [estimate(pairs, order, side[:n], contrast) for side in sides]
            value, error = float(parts[0].value[0]), float(parts[0].errors[0])
            low = max(decision.low, min(float(part.value[0] - z * part.errors[0]) for part in parts))
            high = min(decision.high, max(float(part.value[0] + z * part.errors[0]) for part in parts))
            if n == total:  # exact, apart from the pairs that people could not judge
                low, high = (bound(float(part.value[0]) for part in parts) for bound in (min, max))
            elif low > high:  # an interval of a look was wrong, which is rare; keep the interval of the looks before
                low, high = decision.low, decision.high
            verdict: Verdict = "first" if low > 0 else "second" if high < 0 else "open"
            if verdict == "open" and max(abs(low), abs(high)) < margin:
                verdict = "equal"
            at = decision.decided_at
            if at is not None and (n < total or verdict in (decision.verdict, "open")):
                verdict = decision.verdict
            elif verdict != "open":
                at = n
            more = _more(totals, n, value=value, error=error, critical=z, margin=margin) if at is None else 0
            decision = PairDecision(
                verdict=verdict,
                value=min(max(value, low), high),
                low=low,
                high=high,
                answers=n,
                decided_at=at,
                more=more,
                judge=judge,
                margin=margin,
            )
        decisions.append(decision)
    return decisions


def _more(totals: Floats, labels: int, value: float, error: float, critical: float, margin: float) -> int:
    """Estimate how many further answers would decide, if the difference is as estimated, since the variance falls as 1
    / information.
    """
    later = np.arange(labels + 1, len(totals) + 1)
    errors = error * np.sqrt(totals[labels - 1] / totals[labels:])
    errors[-1:] = 0.0  # all pairs answered
    better = abs(value) >= (critical + _POWER_QUANTILE) * errors
    equal = abs(value) + critical * errors < margin
    enough = np.flatnonzero(better | equal)
    return int(later[enough[0]]) - labels if len(enough) else len(totals) - labels


@dataclass(frozen=True, slots=True)
class CorrectedSystem:
    """A system's mean DCG@10 by the judge and by people (`people` with `error`), and `score`, people's correction
    shrunk by its variance, with the interval of its rank by the labels."""

    name: str
    judge: float
    people: float
    error: float
    score: float
    low: int
    high: int


def corrected(names: Sequence[str], contrasts: ContrastEstimate, judge: Floats) -> list[CorrectedSystem]:
    """Return the systems, sorted by the shrunk score, best first.

    A correction is shrunk according to how far all corrections together exceed chance (empirical Bayes with a
    conservative variance of the true corrections), so that a few labels change nothing and many change everything. Rank
    intervals are for the unshrunk estimate, which is unbiased.

    Args:
        names: The systems.
        contrasts: Each system's contrast with the mean of all systems.
        judge: Each system's mean DCG@10 by the judge.
    """
    count = len(names)
    change = contrasts.value - contrasts.judge
    # The mean of the sum of squares of pure noise, plus 1.64 of its standard deviations.
    chance = float(np.trace(contrasts.covariance) + 1.64 * math.sqrt(2 * float((contrasts.covariance**2).sum())))
    trust = max(0.0, float(change @ change) - chance) / max(1, count - 1)
    shrunk = np.zeros(count)
    if math.isinf(contrasts.information):
        shrunk = change
    elif trust > 0:
        shrunk = np.asarray(trust * np.linalg.solve(contrasts.covariance + trust * np.eye(count), change), np.float64)
    score = judge + shrunk
    values, vectors = np.linalg.eigh(contrasts.covariance)
    noise = np.random.default_rng(0).normal(size=(4000, count)) @ (vectors * np.sqrt(np.maximum(values, 0))).T
    ranks = rank_bounds(contrasts.value, contrasts.value + noise)
    rows = [
        CorrectedSystem(
            name=names[at],
            judge=float(judge[at]),
            people=float(judge[at] + change[at]),
            error=float(contrasts.errors[at]),
            score=float(score[at]),
            low=int(ranks[at, 0]),
            high=int(ranks[at, 1]),
        )
        for at in range(count)
    ]
    return sorted(rows, key=lambda row: (-row.score, row.name))


@dataclass(frozen=True, slots=True)
class Favour:
    """How much the judge favours a group of systems over the others compared with people, in mean DCG@10.

    `p` is two-sided, with Holm's correction over the tested groups.
    """

    group: str
    systems: tuple[str, ...]
    value: float
    low: float
    high: float
    p: float


def favours(names: Sequence[str], groups: Mapping[str, Sequence[str]], contrasts: ContrastEstimate) -> list[Favour]:
    """Test whether the judge favours a group.

    A group with no systems or all systems is left out, and so is the complement of a tested group.
    """
    rows = []
    tested: set[frozenset[str]] = set()
    for group, members in groups.items():
        inside = np.array([name in members for name in names])
        here = frozenset(name for name in names if name in members)
        if not inside.any() or inside.all() or here in tested:
            continue
        tested |= {here, frozenset(names) - here}
        contrast = np.where(inside, 1 / inside.sum(), -1 / (~inside).sum())
        difference = contrasts.contrast(contrast[None])
        value, error = float(difference.judge[0] - difference.value[0]), float(difference.errors[0])
        exact = 0.0 if abs(value) > 1e-12 else 1.0
        p = math.erfc(abs(value) / error / math.sqrt(2)) if error > 0 else exact
        chosen = tuple(name for name in names if name in members)
        rows.append(
            Favour(group=group, systems=chosen, value=value, low=value - 1.96 * error, high=value + 1.96 * error, p=p)
        )
    return [replace(row, p=p) for row, p in zip(rows, holm([row.p for row in rows]).tolist(), strict=True)]

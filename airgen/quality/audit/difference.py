"""The difference between systems from a judge's probabilities and a few people's answers: arithmetic, no files.

    pairs = Pairs(weights, probability)                 # weights: what a relevant pair adds to each contrast
    order = draw_order(pairs, seed=0)                   # in which order people should answer
    found = estimate(pairs, order, labels)              # labels: of the first pairs in this order
    found.value, found.covariance

A contrast is linear in the labels: the difference of two systems' mean DCG@10 is the sum, over all pairs of query and
document, of (gap of the rank weights) x (label). nDCG is not linear, because its ideal depends on labels that nobody
gave, so no sample of labels estimates it without bias.

Pairs are drawn one after another without replacement. The chance of a pair is proportional to (size of its weight) x
sqrt(p (1 - p)), which is where a label tells most (Neyman's allocation). Each draw gives an unbiased estimate: the
judge's contrast, plus the residuals (label - p) of the pairs drawn so far, plus the new residual divided by its chance
(Des Raj 1956; with a judge's predictions: Angelopoulos et al., "Prediction-powered inference", 2023). The estimates
of all draws are uncorrelated, so their weighted mean has a variance that can be estimated, and it can be looked at
while people answer. After each batch the probabilities are recalibrated by the answers before it. That changes nothing
in this: a draw's estimate is unbiased for any probabilities that were fixed before the draw. The variance counts eight
pseudo-answers that are as uncertain as a coin: without them the first intervals are too narrow where a judge is wrong
about a kind of document that few draws show.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from airgen.errors import UsageError
from airgen.exact import log2

BATCH = 25
"""How many answers are between two looks."""

HORIZON = 200
"""Answers after which four fifths of the error probability are spent; the last fifth is for all answers after."""

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
_FLOOR = 0.1  # a judge is never believed to be more certain than this when pairs are drawn: it can be wrong
_COINS = 8  # pseudo-answers as uncertain as a coin: few answers can miss what a judge is wrong about altogether


@dataclass(frozen=True)
class Pairs:
    """All pairs whose label matters: weights float64 (contrasts, pairs), probability float64 (pairs,) in [0, 1]."""

    weights: Floats
    probability: Floats

    def __post_init__(self) -> None:
        weights, probability = self.weights, self.probability
        if weights.ndim != 2 or weights.shape[1:] != probability.shape or not probability.size:
            raise UsageError(f"weights of shape {weights.shape} for {probability.shape} probabilities")
        if not (np.isfinite(weights).all() and (probability >= 0).all() and (probability <= 1).all()):
            raise UsageError("weights have to be finite and probabilities in [0, 1]")

    @cached_property
    def sizes(self) -> Floats:
        """What the chance of a pair is proportional to, float64 (pairs,), all above 0."""
        p = np.clip(self.probability, _FLOOR, 1 - _FLOOR)
        root = np.sqrt((self.weights**2).mean(axis=0))
        if not (root > 0).all():
            raise UsageError("a pair with weight 0 in every contrast: leave it out")
        return np.asarray(root * np.sqrt(p * (1 - p)), np.float64)

    @cached_property
    def expected_left(self) -> Floats:
        """Which sum of sizes is expected to be left before each draw, float64 (pairs,).

        Pairs leave like atoms that decay at rates `sizes`: after a time t, sum(exp(-size t)) pairs and sum(size
        exp(-size t)) of their size are left. Expected, so that weights made of it were fixed before a pair was drawn.
        """
        sizes = self.sizes
        times = np.concatenate(([0.0], np.geomspace(1e-4 / sizes.max(), 30 / sizes.min(), 300)))
        drawn, left = np.empty(len(times)), np.empty(len(times))
        for at, time in enumerate(times.tolist()):
            stay = np.exp(-sizes * time)
            drawn[at], left[at] = len(sizes) - stay.sum(), sizes @ stay
        found = np.interp(np.arange(len(sizes)), drawn, left)
        return np.asarray(np.maximum(found, sizes.min()), np.float64)


@dataclass(frozen=True)
class ContrastEstimate:
    """value float64 (contrasts,), covariance float64 (contrasts, contrasts), from `labels` labelled pairs.

    information: what the drawn pairs were expected to tell; the variance falls as 1 / information. judge: the
    contrasts by the judge's probabilities alone, as they were given.
    """

    value: Floats
    covariance: Floats
    labels: int
    information: float
    judge: Floats

    @property
    def errors(self) -> Floats:
        """Standard errors, float64 (contrasts,)."""
        errors: Floats = np.sqrt(np.maximum(np.diag(self.covariance), 0))
        return errors

    def contrast(self, weights: Floats) -> "ContrastEstimate":
        """A linear combination of the contrasts: weights (new contrasts, contrasts)."""
        covariance = weights @ self.covariance @ weights.T
        return replace(self, value=weights @ self.value, covariance=covariance, judge=weights @ self.judge)


def rank_weights(depth: int = 10) -> Floats:
    """What a relevant document adds to DCG at ranks 1 to `depth`: 1 / log2(rank + 1)."""
    weights: Floats = 1 / log2(np.arange(2, depth + 2))
    return weights


def draw_order(pairs: Pairs, *, seed: int) -> Places:
    """All pairs in drawn order: each next one with a chance proportional to its size among those that are left."""
    waiting = np.random.default_rng(seed).exponential(size=len(pairs.probability)) / pairs.sizes
    order: Places = np.argsort(waiting, kind="stable")
    return order


def looks(labels: int, total: int) -> list[int]:
    """After how many labels there was a look: whole batches, and all pairs.

    >>> looks(60, 1000), looks(60, 60)
    ([25, 50], [25, 50, 60])
    """
    whole = list(range(BATCH, labels + 1, BATCH))
    return [*whole, total] if labels == total and labels % BATCH else whole


def spent(labels: int, alpha: float = 0.05) -> float:
    """The error probability that may be spent up to a look: four fifths evenly up to the horizon, the rest after it."""
    share = 0.8 * labels / HORIZON if labels <= HORIZON else 0.8 + 0.2 * (1 - HORIZON / labels)
    return alpha * share


def information(pairs: Pairs, count: int) -> Floats:
    """Expected information after 1 to `count` draws, float64 (count,).

    The variance of a draw's estimate is like the square of the sizes that are left.
    """
    found: Floats = np.cumsum(pairs.expected_left[:count] ** -2)
    return found


def estimate(pairs: Pairs, order: Places, labels: Floats, contrast: Floats | None = None) -> ContrastEstimate:
    """The contrasts from the labels, in [0, 1], of the first pairs of the order. All pairs labelled: no error is left.

    contrast: float64 (contrasts of the pairs,), to estimate this linear combination of them only.
    Raises UsageError for no label or one label (unless that is all), and for labels outside [0, 1].
    """
    weights, probability, sizes = pairs.weights, pairs.probability, pairs.sizes
    if contrast is not None:
        weights = contrast[None] @ weights
    count, total = len(labels), len(probability)
    if not 1 < count <= total and count != total:
        raise UsageError(f"{count} labels for {total} pairs: two labels are needed at least")
    if not ((labels >= 0) & (labels <= 1)).all():
        raise UsageError("labels have to be between 0 and 1")
    judge = weights @ probability
    drawn = order[:count]
    if count == total:
        exact = weights[:, drawn] @ labels
        return ContrastEstimate(exact, np.zeros((len(exact), len(exact))), count, math.inf, judge)
    left = sizes.sum() - np.concatenate(([0.0], np.cumsum(sizes[drawn])[:-1]))
    draws = np.empty((count, len(weights)))
    for first in range(0, count, BATCH):
        part = slice(first, min(first + BATCH, count))
        now = recalibrated(probability, probability[drawn[:first]], labels[:first])
        residuals = weights[:, drawn] * (labels - now[drawn])
        before = np.cumsum(residuals, axis=1) - residuals
        found = (weights @ now)[:, None] + before + residuals * (left / sizes[drawn])
        draws[part] = found[:, part].T
    deviation = pairs.expected_left[:count]
    share = deviation**-2.0
    value = share @ draws / share.sum()
    unlike = (draws - value) / deviation[:, None]
    seen = (unlike * share[:, None]).T @ unlike / share.sum() * count / (count - 1)
    coins = (weights * (0.25 / sizes)) @ weights.T / sizes.sum()
    covariance = ((count - 1) * seen + _COINS * coins) / (count - 1 + _COINS) / share.sum()
    return ContrastEstimate(value, covariance, count, float(share.sum()), judge)


def recalibrated(probability: Floats, known: Floats, labels: Floats) -> Floats:
    """The probabilities after a + b logit(p), fitted to labelled pairs with probabilities `known`.

    A logistic regression by Newton's method. A ridge holds a at 0 and b at 1, so few labels change little.
    """
    if not len(labels):
        return probability
    rows = np.stack([np.ones_like(known), _logit(known)], axis=1)
    ridge, centre = np.array([1.0, 4.0]), np.array([0.0, 1.0])
    found = centre
    for _ in range(100):
        p = _sigmoid(rows @ found)
        gradient = rows.T @ (p - labels) + ridge * (found - centre)
        step = np.linalg.solve((rows * (p * (1 - p))[:, None]).T @ rows + np.diag(ridge), gradient)
        found = found - np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-10:
            break
    return _sigmoid(found[0] + found[1] * _logit(probability))


def _logit(p: Floats) -> Floats:
    p = np.clip(p, 0.005, 0.995)
    found: Floats = np.log(p / (1 - p))
    return found


def _sigmoid(x: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-np.clip(x, -700, 700)))
    return found


def critical_values(told: Floats, allowed: Floats) -> Floats:
    """How many standard errors a look needs, so that all looks together err with no more than the last `allowed`.

    told: information at each look, rising. allowed: error probability that may be spent up to each look, rising. Two
    sides, by the recursion of Armitage, McPherson and Rowe (1969) with the spending of Lan and DeMets (1983).

    >>> critical_values(np.array([1.0]), np.array([0.05])).round(3).tolist()
    [1.96]
    """
    found = np.empty(len(told))
    places, masses, before = np.zeros(1), np.ones(1), 0.0
    for at, (level, step) in enumerate(zip(told.tolist(), np.diff(allowed, prepend=0.0).tolist(), strict=True)):
        edge, deviation = math.sqrt(level), math.sqrt(level - before)
        grid = np.linspace(-6 * edge, 6 * edge, 801)
        width = grid[1] - grid[0]
        density = np.exp(-(((grid[:, None] - places) / deviation) ** 2) / 2) @ masses
        density /= deviation * math.sqrt(2 * math.pi)
        upper = np.cumsum(density[::-1])[::-1] * width - density * width / 2  # mass above each place
        outside = 2 * upper[400:]  # both sides, from the middle outwards, falling
        reach = float(np.interp(-step, -outside, grid[400:]))
        found[at] = reach / edge
        inside = np.abs(grid) <= reach
        places, masses, before = grid[inside], density[inside] * width, level
    return found

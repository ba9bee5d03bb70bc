"""How far a judge agrees with people: AUC, Cohen's kappa, calibration error, each with an interval.

    scores:   float64 (n,), higher is more relevant: a probability, a level, a re-ranker's score
    relevant: bool (n,), the human labels
    queries:  n names; intervals resample queries, because pairs of one query are not independent

A threshold is picked on one half of the queries and used on the other, both ways round, so that every pair is
decided by a threshold that has not seen it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airgen.errors import UsageError
from airgen.quality.judge.labelled_pairs import halves

__all__ = [
    "BINS",
    "Interval",
    "auc",
    "best_threshold",
    "cross_decided",
    "expected_calibration_error",
    "interval",
    "kappa",
    "noise_floor",
]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
BINS = 10  # of equal width, as in Guo et al. (2017)


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and its 95 % bootstrap interval over queries."""

    value: float
    low: float
    high: float


def auc(scores: Floats, relevant: Bools) -> float:
    """The share of (relevant, not relevant) couples that the scores order rightly; equal scores count half.

    NaN where one side is empty.

    >>> auc(np.array([0.9, 0.4, 0.4]), np.array([True, True, False]))
    0.75
    """
    positive, negative = int(relevant.sum()), int((~relevant).sum())
    if not positive or not negative:
        return float("nan")
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[place]  # the mean rank of equal scores
    return float((ranks[relevant].sum() - positive * (positive + 1) / 2) / (positive * negative))


def kappa(decided: Bools, relevant: Bools) -> float:
    """Cohen's kappa of two binary labellings; 0 where both are one and the same constant.

    >>> round(kappa(np.array([True, True, False, False]), np.array([True, False, False, False])), 3)
    0.5
    """
    observed = float((decided == relevant).mean())
    one, other = float(decided.mean()), float(relevant.mean())
    chance = one * other + (1 - one) * (1 - other)
    return (observed - chance) / (1 - chance) if chance < 1 else 0.0


def expected_calibration_error(probabilities: Floats, relevant: Bools, bins: int = BINS) -> float:
    """The mean distance between stated probability and share of relevant pairs, over bins weighted by their size."""
    place = np.minimum((probabilities * bins).astype(int), bins - 1)
    gaps = np.bincount(place, weights=relevant - probabilities, minlength=bins)
    return float(np.abs(gaps).sum() / len(probabilities))


def noise_floor(probabilities: Floats, samples: int = 1000, seed: int = 0) -> float:
    """The calibration error that a perfectly calibrated judge would show on so few pairs.

    Labels are drawn from the stated probabilities themselves; below this figure there is nothing to see.
    """
    random = np.random.default_rng(seed)
    drawn = random.random((samples, len(probabilities))) < probabilities
    return float(np.mean([expected_calibration_error(probabilities, labels) for labels in drawn]))


def best_threshold(scores: Floats, relevant: Bools) -> float:
    """The cut of greatest kappa, from which on a pair counts as relevant; midway between scores, the lowest of equals.

    Raises UsageError for no scores at all.
    """
    values = np.unique(scores)
    if not len(values):
        raise UsageError("a threshold is picked on scores, there are none")
    cuts = np.concatenate([values[:1], (values[1:] + values[:-1]) / 2])
    return float(max(cuts, key=lambda cut: (kappa(scores >= cut, relevant), -cut)))


def cross_decided(scores: Floats, relevant: Bools, queries: Sequence[str], seed: int = 0) -> Bools:
    """Each pair decided by the threshold of the other half of the queries; bool (n,).

    With a single query there is no other half: its own threshold is used.
    """
    half = np.array(halves(queries, seed))
    decided = np.zeros(len(scores), bool)
    for side in (0, 1):
        here, other = half == side, half != side
        cut = best_threshold(scores[other], relevant[other]) if other.any() else best_threshold(scores, relevant)
        decided[here] = scores[here] >= cut
    return decided


def interval(
    statistic: Callable[[NDArray[np.int64]], float], queries: Sequence[str], *, samples: int = 1000, seed: int = 0
) -> Interval:
    """A statistic of some pairs (given by their places) with its 95 % interval; queries are resampled whole.

    Resamples in which the statistic is not defined (NaN) are left out.
    """
    names, place = np.unique(np.array(queries), return_inverse=True)
    groups = [np.flatnonzero(place == at) for at in range(len(names))]
    random = np.random.default_rng(seed)
    found = [
        statistic(np.concatenate([groups[at] for at in random.integers(0, len(groups), len(groups))]))
        for _ in range(samples)
    ]
    known = np.array([value for value in found if not np.isnan(value)])
    low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (float("nan"), float("nan"))
    return Interval(statistic(np.arange(len(place))), float(low), float(high))

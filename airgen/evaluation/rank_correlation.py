"""Rank correlation: Spearman's rho and Kendall's tau-b, with p-values and intervals.

    found = rank_correlation(left, right)        # two means for each system, float64 (systems,)
    found.spearman, found.spearman_p             # 0.6, 0.0876 for the nine systems of the paper's section 4.2

There are two kinds of chance. Other *systems* would give another figure: `spearman_low` and `spearman_high` say how far
(Bonett and Wright, "Sample size requirements for estimating Pearson, Kendall and Spearman correlations", 2000). Other
*queries* would, too: whoever has scores by query resamples them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from airgen.errors import UsageError
from airgen.evaluation.significance import t_tail

__all__ = [
    "LEAST_SYSTEMS",
    "RankCorrelation",
    "average_ranks",
    "kendall",
    "kendall_p",
    "rank_correlation",
    "spearman",
    "spearman_p",
]

Matrix = NDArray[np.float64]
LEAST_SYSTEMS = 3  # a correlation of two systems is 1 or -1
_EXACT = 33  # systems up to which Kendall's p-value is counted, as in SciPy


@dataclass(frozen=True, slots=True)
class RankCorrelation:
    """Two rankings of `systems` systems. NaN where a side is constant, or where too few systems give no interval.

    p-values are two-sided: Spearman's by Student's t with n - 2 degrees of freedom, as in the paper; Kendall's counted
    over all orders where no two systems tie, else by the normal approximation. Intervals are 95 % over systems.
    """

    systems: int
    spearman: float
    spearman_p: float
    spearman_low: float
    spearman_high: float
    kendall: float
    kendall_p: float
    kendall_low: float
    kendall_high: float


def average_ranks(values: Matrix) -> Matrix:
    """Ranks along the last axis, 1 for the lowest; equal values share the mean of their ranks.

    Values are rounded to twelve digits first: means of the same numbers in another order must stay equal.

    >>> average_ranks(np.array([0.3, 0.1, 0.3])).tolist()
    [2.5, 1.0, 2.5]
    """
    values = np.round(values, 12)
    lower = (values[..., None, :] < values[..., :, None]).sum(axis=-1)
    equal = (values[..., None, :] == values[..., :, None]).sum(axis=-1)
    ranks: Matrix = lower + (equal + 1) / 2
    return ranks


def spearman(left: Matrix, right: Matrix) -> Matrix:
    """Spearman's rho of each row of `left` with that row of `right`: (..., systems) -> (...); NaN for constant rows."""
    one, other = average_ranks(left), average_ranks(right)
    return _cosine(one - one.mean(axis=-1, keepdims=True), other - other.mean(axis=-1, keepdims=True))


def kendall(left: Matrix, right: Matrix) -> Matrix:
    """Kendall's tau-b (with ties) of each row of `left` with that row of `right`; NaN for a constant row."""
    first, second = np.triu_indices(np.shape(left)[-1], 1)
    left, right = np.round(left, 12), np.round(right, 12)
    one = np.sign(left[..., first] - left[..., second])
    return _cosine(one, np.sign(right[..., first] - right[..., second]))


def _cosine(one: Matrix, other: Matrix) -> Matrix:
    scale = np.sqrt((one**2).sum(axis=-1) * (other**2).sum(axis=-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Matrix = (one * other).sum(axis=-1) / scale
    return found


def spearman_p(rho: float, systems: int) -> float:
    """Two-sided p-value by Student's t with n - 2 degrees of freedom, as in the paper's Table 5.

    For one and the same order, or the opposite one, t is infinite; two of all n! orders are that far apart.

    >>> round(spearman_p(0.6, 9), 4), round(spearman_p(1.0, 3), 4)
    (0.0876, 0.3333)
    """
    if math.isnan(rho) or systems < LEAST_SYSTEMS:
        return math.nan
    if abs(rho) > 1 - 1e-12:
        return 2 / math.factorial(min(systems, 100))
    return t_tail(rho * math.sqrt((systems - 2) / (1 - rho * rho)), systems - 2)


def kendall_p(left: Matrix, right: Matrix) -> float:
    """Two-sided p-value of tau-b between two rows, (systems,); NaN for a constant row."""
    left, right = np.round(left, 12), np.round(right, 12)
    count = len(left)
    first, second = np.triu_indices(count, 1)
    excess = float((np.sign(left[first] - left[second]) * np.sign(right[first] - right[second])).sum())
    tied = [np.unique(side, return_counts=True)[1].astype(float) for side in (left, right)]
    if count < LEAST_SYSTEMS or any(len(counts) == 1 for counts in tied):
        return math.nan
    if count <= _EXACT and all(len(counts) == count for counts in tied):
        pairs = count * (count - 1) // 2
        discordant = round((pairs - excess) / 2)
        orders = _orders_with_inversions(count)
        fewer = min(discordant, pairs - discordant)
        return min(1.0, float(2 * sum(orders[: fewer + 1]) / sum(orders)))
    ((x0, x1, x2), (y0, y1, y2)) = (
        [
            float((counts * (counts - 1)).sum()),
            float((counts * (counts - 1) * (counts - 2)).sum()),
            float((counts * (counts - 1) * (2 * counts + 5)).sum()),
        ]
        for counts in tied
    )
    pairs2 = count * (count - 1.0)
    variance = (pairs2 * (2 * count + 5) - x2 - y2) / 18 + x0 * y0 / (2 * pairs2)
    variance += x1 * y1 / (9 * pairs2 * (count - 2))
    return 2 * NormalDist().cdf(-abs(excess) / math.sqrt(variance))


def _orders_with_inversions(count: int) -> list[int]:
    """How many orders of `count` things have 0, 1, 2, ... pairs in the wrong order.

    >>> _orders_with_inversions(3)
    [1, 2, 2, 1]
    """
    found = [1]
    for size in range(2, count + 1):
        wider = [0] * (len(found) + size - 1)
        for shift in range(size):
            for place, orders in enumerate(found):
                wider[place + shift] += orders
        found = wider
    return found


def rank_correlation(left: Matrix | Sequence[float], right: Matrix | Sequence[float]) -> RankCorrelation:
    """All figures of two rows of means, (systems,). Raises UsageError for fewer than three systems."""
    one, other = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    count = len(one)
    if count < LEAST_SYSTEMS:
        raise UsageError(
            f"{count} system(s): a rank correlation needs at least {LEAST_SYSTEMS}, and says little below ten"
        )
    rho, tau = float(spearman(one, other)), float(kendall(one, other))
    errors = [math.sqrt((1 + rho * rho / 2) / (count - 3)) if count > 3 else math.nan]
    errors.append(math.sqrt(0.437 / (count - 4)) if count > 4 else math.nan)
    return RankCorrelation(
        count,
        *(rho, spearman_p(rho, count), *_over_systems(rho, errors[0])),
        *(tau, kendall_p(one, other), *_over_systems(tau, errors[1])),
    )


def _over_systems(value: float, error: float) -> tuple[float, float]:
    """The 95 % interval by Fisher's transformation; NaN where it is not defined, as for a perfect correlation."""
    if math.isnan(value) or math.isnan(error) or abs(value) > 1 - 1e-12:
        return math.nan, math.nan
    middle, reach = math.atanh(value), NormalDist().inv_cdf(0.975) * error
    return math.tanh(middle - reach), math.tanh(middle + reach)

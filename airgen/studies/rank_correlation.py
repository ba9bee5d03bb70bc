"""Rank correlation: Spearman's rho and Kendall's tau-b, with p-values and intervals.

    figures = rank_correlation(left, right)      # two means for each system, float64 (systems,)
    figures.spearman, figures.spearman_p         # 0.6, 0.0876 for the nine systems of the paper's section 4.2

There are two sources of randomness. Other *systems* would give another correlation: `spearman_low` and `spearman_high`
are the interval for this (Bonett and Wright, "Sample size requirements for estimating Pearson, Kendall and Spearman
correlations", 2000). So would other *queries*, which callers with scores per query resample.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from airgen.errors import UsageError
from airgen.evaluation.significance import t_tails

Matrix = NDArray[np.float64]
LEAST_SYSTEMS = 3  # the correlation of two systems is 1 or -1
_MOST_SYSTEMS_IN_EVERY_ORDER = 7  # up to which both p-values are counted over all orders (5,040), with any ties


@dataclass(frozen=True, slots=True)
class RankCorrelation:
    """The correlation of two rankings of `systems` systems. Values are NaN if a side is constant or there are too few
    systems.

    p-values are two-sided. For up to seven systems, they are exact, by enumeration of all orders. For more, Spearman's
    p-value uses Student's t with n - 2 degrees of freedom, as in the paper; Kendall's is exact if there are no ties,
    and otherwise uses the normal approximation. An approximation is never below the share of orders that agree as
    perfectly as possible. Intervals are 95% over systems.
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
    """Return ranks along the last axis, from 1 for the lowest value. Ties share the mean of their ranks.

    Values are first rounded to twelve digits, so that means of the same numbers in another order stay equal.

    >>> average_ranks(np.array([0.3, 0.1, 0.3])).tolist()
    [2.5, 1.0, 2.5]
    """
    values = np.round(values, 12)
    lower = (values[..., None, :] < values[..., :, None]).sum(axis=-1)
    equal = (values[..., None, :] == values[..., :, None]).sum(axis=-1)
    ranks: Matrix = lower + (equal + 1) / 2
    return ranks


def spearman(left: Matrix, right: Matrix) -> Matrix:
    """Compute Spearman's rho of each row of `left` with that row of `right`, (..., systems) -> (...), or NaN for
    constant rows."""
    left, right = average_ranks(left), average_ranks(right)
    return _cosine(left - left.mean(axis=-1, keepdims=True), right - right.mean(axis=-1, keepdims=True))


def kendall(left: Matrix, right: Matrix) -> Matrix:
    """Compute Kendall's tau-b (with ties) of each row of `left` with that row of `right`, or NaN for a constant row."""
    first, second = np.triu_indices(np.shape(left)[-1], 1)
    left, right = np.round(left, 12), np.round(right, 12)
    left_order = np.sign(left[..., first] - left[..., second])
    return _cosine(left_order, np.sign(right[..., first] - right[..., second]))


def _cosine(left: Matrix, right: Matrix) -> Matrix:
    scale = np.sqrt((left**2).sum(axis=-1) * (right**2).sum(axis=-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine: Matrix = (left * right).sum(axis=-1) / scale
    return cosine


def spearman_p(left: Matrix, right: Matrix) -> float:
    """Return the two-sided p-value of Spearman's rho of two rows, (systems,), or NaN for a constant row or fewer than
    three systems.

    >>> round(spearman_p(np.array([1, 1, 1, 1, 2]), np.array([1, 1, 1, 1, 2])), 4)
    0.2
    """
    left_ranks, right_ranks = (2 * average_ranks(side) - len(side) - 1 for side in (left, right))  # whole numbers
    count, least = len(left), _least_p(left, right)
    if math.isnan(least):
        return math.nan
    if count <= _MOST_SYSTEMS_IN_EVERY_ORDER:
        products = np.abs(left_ranks[_every_order(count)] @ right_ranks)  # whole numbers
        return float(np.mean(products >= abs(left_ranks @ right_ranks)))
    rho = float(spearman(left, right))
    if abs(rho) > 1 - 1e-12:
        return least
    return max(least, float(t_tails(rho * math.sqrt((count - 2) / (1 - rho * rho)), count - 2)))


def kendall_p(left: Matrix, right: Matrix) -> float:
    """Return the two-sided p-value of tau-b of two rows, (systems,), or NaN for a constant row or fewer than three
    systems."""
    left, right = np.round(left, 12), np.round(right, 12)
    count, least = len(left), _least_p(left, right)
    if math.isnan(least):
        return math.nan
    if count <= _MOST_SYSTEMS_IN_EVERY_ORDER:
        first, second = np.triu_indices(count, 1)
        above, every = np.sign(right[first] - right[second]), left[_every_order(count)]
        excess = np.sign(left[first] - left[second]) @ above
        return float(np.mean(np.abs(np.sign(every[:, first] - every[:, second]) @ above) >= abs(excess)))
    from scipy.stats import kendalltau  # two seconds

    return max(least, float(kendalltau(left, right).pvalue))


def _least_p(left: Matrix, right: Matrix) -> float:
    """Return the smallest p-value that two rows with these ties can have.

    It is one divided by the number of distinct orders of the side with more ties, or two divided by it if the opposite
    order is among them. NaN for a constant row or fewer than three systems.
    """
    sides = [np.unique(np.round(side, 12), return_counts=True)[1].tolist() for side in (left, right)]
    if len(left) < LEAST_SYSTEMS or any(len(counts) == 1 for counts in sides):
        return math.nan
    fewest = min(math.factorial(len(left)) // math.prod(map(math.factorial, counts)) for counts in sides)
    return (2 if any(counts == counts[::-1] for counts in sides) else 1) / fewest


@lru_cache(maxsize=_MOST_SYSTEMS_IN_EVERY_ORDER)
def _every_order(count: int) -> NDArray[np.int64]:
    return np.array(list(permutations(range(count))))


def rank_correlation(left: Matrix | Sequence[float], right: Matrix | Sequence[float]) -> RankCorrelation:
    """Return all figures for two rows of means, (systems,). Raises UsageError if there are fewer than three systems."""
    left, right = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    count = len(left)
    refuse_few(count)
    rho, tau = float(spearman(left, right)), float(kendall(left, right))
    errors = [math.sqrt((1 + rho * rho / 2) / (count - 3)) if count > 3 else math.nan]
    errors.append(math.sqrt(0.437 / (count - 4)) if count > 4 else math.nan)
    return RankCorrelation(
        count,
        *(rho, spearman_p(left, right), *_over_systems(rho, errors[0])),
        *(tau, kendall_p(left, right), *_over_systems(tau, errors[1])),
    )


def refuse_few(systems: int) -> None:
    """Raise UsageError if there are too few systems for a rank correlation."""
    if systems < LEAST_SYSTEMS:
        raise UsageError(
            f"{systems} system(s): a rank correlation needs at least {LEAST_SYSTEMS} systems, and is unreliable "
            f"below ten; add more systems"
        )


def _over_systems(value: float, error: float) -> tuple[float, float]:
    """Return the 95% interval by Fisher's transformation, or NaN if it is undefined, as for a perfect correlation."""
    if math.isnan(value) or math.isnan(error) or abs(value) > 1 - 1e-12:
        return math.nan, math.nan
    middle, reach = math.atanh(value), NormalDist().inv_cdf(0.975) * error
    return math.tanh(middle - reach), math.tanh(middle + reach)

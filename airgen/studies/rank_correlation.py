"""Rank correlation: Spearman's rho and Kendall's tau-b, with p-values and intervals.

    found = rank_correlation(left, right)        # two means for each system, float64 (systems,)
    found.spearman, found.spearman_p             # 0.6, 0.0876 for the nine systems of the paper's section 4.2

There are two kinds of chance. Other *systems* would give another figure: `spearman_low` and `spearman_high` say how far
(Bonett and Wright, "Sample size requirements for estimating Pearson, Kendall and Spearman correlations", 2000). Other
*queries* would, too: whoever has scores by query resamples them.
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
LEAST_SYSTEMS = 3  # a correlation of two systems is 1 or -1
_EVERY_ORDER = 7  # systems up to which both p-values are counted over all orders (5,040), with any ties


@dataclass(frozen=True, slots=True)
class RankCorrelation:
    """Two rankings of `systems` systems. NaN where a side is constant, or where too few systems give no interval.

    p-values are two-sided. Of up to seven systems they are counted over all orders. Of more, Spearman's is by Student's
    t with n - 2 degrees of freedom, as in the paper; Kendall's is counted where no two systems tie, else by the normal
    approximation. An approximation is never below the share of orders that agree as perfectly as these two can.
    Intervals are 95 % over systems.
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


def spearman_p(left: Matrix, right: Matrix) -> float:
    """Two-sided p-value of Spearman's rho between two rows, (systems,); NaN for a constant row or under three systems.

    >>> round(spearman_p(np.array([1, 1, 1, 1, 2]), np.array([1, 1, 1, 1, 2])), 4)
    0.2
    """
    one, other = (2 * average_ranks(side) - len(side) - 1 for side in (left, right))  # whole numbers
    count, least = len(left), _least_p(left, right)
    if math.isnan(least):
        return math.nan
    if count <= _EVERY_ORDER:
        return float(np.mean(np.abs(one[_every_order(count)] @ other) >= abs(one @ other)))  # whole numbers
    rho = float(spearman(left, right))
    if abs(rho) > 1 - 1e-12:
        return least
    return max(least, float(t_tails(rho * math.sqrt((count - 2) / (1 - rho * rho)), count - 2)))


def kendall_p(left: Matrix, right: Matrix) -> float:
    """Two-sided p-value of tau-b between two rows, (systems,); NaN for a constant row or under three systems."""
    left, right = np.round(left, 12), np.round(right, 12)
    count, least = len(left), _least_p(left, right)
    if math.isnan(least):
        return math.nan
    if count <= _EVERY_ORDER:
        first, second = np.triu_indices(count, 1)
        above, every = np.sign(right[first] - right[second]), left[_every_order(count)]
        excess = np.sign(left[first] - left[second]) @ above
        return float(np.mean(np.abs(np.sign(every[:, first] - every[:, second]) @ above) >= abs(excess)))
    from scipy.stats import kendalltau  # two seconds

    return max(least, float(kendalltau(left, right).pvalue))


def _least_p(left: Matrix, right: Matrix) -> float:
    """No p-value of two rows with these ties is smaller: one over the orders that can be told apart on the more tied
    side, or two, where the opposite order is there as well. NaN for a constant row or under three systems.
    """
    sides = [np.unique(np.round(side, 12), return_counts=True)[1].tolist() for side in (left, right)]
    if len(left) < LEAST_SYSTEMS or any(len(counts) == 1 for counts in sides):
        return math.nan
    fewest = min(math.factorial(len(left)) // math.prod(map(math.factorial, counts)) for counts in sides)
    return (2 if any(counts == counts[::-1] for counts in sides) else 1) / fewest


@lru_cache(maxsize=_EVERY_ORDER)
def _every_order(count: int) -> NDArray[np.int64]:
    return np.array(list(permutations(range(count))))


def rank_correlation(left: Matrix | Sequence[float], right: Matrix | Sequence[float]) -> RankCorrelation:
    """All figures of two rows of means, (systems,). Raises UsageError for fewer than three systems."""
    one, other = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    count = len(one)
    refuse_few(count)
    rho, tau = float(spearman(one, other)), float(kendall(one, other))
    errors = [math.sqrt((1 + rho * rho / 2) / (count - 3)) if count > 3 else math.nan]
    errors.append(math.sqrt(0.437 / (count - 4)) if count > 4 else math.nan)
    return RankCorrelation(
        count,
        *(rho, spearman_p(one, other), *_over_systems(rho, errors[0])),
        *(tau, kendall_p(one, other), *_over_systems(tau, errors[1])),
    )


def refuse_few(systems: int) -> None:
    """Raise UsageError for fewer systems than a rank correlation needs."""
    if systems < LEAST_SYSTEMS:
        raise UsageError(
            f"{systems} system(s): a rank correlation needs at least {LEAST_SYSTEMS}, and says little below ten; "
            "name more systems"
        )


def _over_systems(value: float, error: float) -> tuple[float, float]:
    """The 95 % interval by Fisher's transformation; NaN where it is not defined, as for a perfect correlation."""
    if math.isnan(value) or math.isnan(error) or abs(value) > 1 - 1e-12:
        return math.nan, math.nan
    middle, reach = math.atanh(value), NormalDist().inv_cdf(0.975) * error
    return math.tanh(middle - reach), math.tanh(middle + reach)

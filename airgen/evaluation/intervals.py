"""Bootstrap intervals over queries for means of scores, and of differences of scores.

    bootstrap_interval(scores)                           # scores (systems, queries) -> (systems, 2)
    bootstrap_interval(new - old, span=DIFFERENCES)

Resampling is seeded and its sums are exact, so equal scores give equal intervals on any machine.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from airgen.compute.exact_arithmetic import summable
from airgen.errors import UsageError

Matrix = NDArray[np.float64]
Span = tuple[float, float]
SCORES: Span = (0.0, 1.0)
"""The smallest and the largest score of a query."""

DIFFERENCES: Span = (-1.0, 1.0)
"""The smallest and the largest difference of two scores."""

EQUAL = 1e-9  # scores that differ by less are equal
RESAMPLED_CELLS = 4_000_000  # resampled cells held at once: 32 MB
SAMPLES = 2000  # resampled means of an interval


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and its 95% interval, or NaN if there is none."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, drawn: Matrix, scores: Matrix | None = None, *, span: Span = SCORES) -> "Interval":
        """Return the range of the middle 95% of the resampled values, ignoring NaN.

        Args:
            value: The observed value.
            drawn: Resampled values.
            scores: The scores, float64 (queries,), if the value is their mean. The range is then corrected as in
                `bootstrap_interval`.
            span: The smallest and the largest possible score.
        """
        known = drawn[~np.isnan(drawn)]
        if math.isnan(value) or not len(known):
            return cls(float(value), math.nan, math.nan)
        if scores is not None:
            rows = as_rows(scores)
            sums = summable(rows, rows.shape[1]).sum(axis=1)
            ends = corrected(known[None] * rows.shape[1], sums, rows, 0.95, span)
            return cls(float(value), *ends[0].tolist())
        return cls(float(value), *np.quantile(known, [0.025, 0.975]).tolist())


def bootstrap_interval(
    scores: Matrix, *, level: float = 0.95, samples: int = SAMPLES, seed: int = 0, span: Span = SCORES
) -> Matrix:
    """Compute intervals for the means over queries: scores (systems, queries) -> (systems, 2).

    Queries are resampled jointly for all rows. The percentiles of the resampled means are too narrow for few queries,
    and biased for skewed scores with many zeros and ones. They are therefore corrected for bias and skewness (BCa;
    Efron 1987), with levels adjusted to Student's t and the divisor n - 1 (Hesterberg 2015). benchmarks/intervals.py
    reports the coverage of the 95% intervals with 5 to 200 queries for seven kinds of scores.

    If all scores of a row are equal, resampling shows nothing. The interval is then Wilson's (1927) for a share of
    which no case was seen: at most z^2 / (n + z^2) of all queries have another score, which is anywhere in `span`.
    """
    scores = as_rows(scores)
    sums = resampled_sums(scores, samples=samples, seed=seed)
    return corrected(sums, summable(scores, scores.shape[1]).sum(axis=1), scores, level, span)


def resampled_means(scores: Matrix, *, samples: int = SAMPLES, seed: int = 0) -> Matrix:
    """Average over queries drawn with replacement, the same ones for all rows: (systems, queries) -> (samples,
    systems)."""
    scores = as_rows(scores)
    means: Matrix = np.ascontiguousarray(resampled_sums(scores, samples=samples, seed=seed).T) / scores.shape[1]
    return means


def resampled_sums(scores: Matrix, *, samples: int = SAMPLES, seed: int = 0) -> Matrix:
    """Add up exactly over queries drawn with replacement, the same ones for all rows: (systems, queries) -> (systems,
    samples).

    The difference of two rows is exactly what resampling the differences of two systems would give.
    """
    total = scores.shape[1]
    exact = summable(scores, total)
    random = np.random.default_rng(seed)
    sums = np.empty((len(scores), samples))
    step = max(1, RESAMPLED_CELLS // total)
    for first in range(0, samples, step):
        rows = min(step, samples - first)
        drawn = random.integers(0, total, (rows, total)) + np.arange(rows)[:, None] * total
        counts = np.bincount(drawn.ravel(), minlength=rows * total).reshape(rows, total)
        sums[:, first : first + rows] = exact @ counts.T.astype(np.float64)
    return sums


def corrected(sums: Matrix, observed: Matrix, scores: Matrix, level: float, span: Span) -> Matrix:
    """Correct the percentiles of resampled sums; see `bootstrap_interval`.

    Args:
        sums: Resampled sums, float64 (systems, samples).
        observed: Sums of the scores, float64 (systems,), as exact as the resampled ones.
        scores: Scores, float64 (systems, queries).
        level: Level of the intervals.
        span: The smallest and the largest possible score.

    Returns:
        Intervals of the means, float64 (systems, 2).
    """
    from scipy.special import ndtr, ndtri, stdtrit

    total, samples = scores.shape[1], sums.shape[1]
    constant = np.ptp(scores, axis=1) < EQUAL
    if total < 2:
        return unseen(scores[:, 0], total, level, span)
    below, equal = (sums < observed[:, None]).mean(axis=1), (sums == observed[:, None]).mean(axis=1)
    share = np.clip(below + equal / 2, 1 / samples, 1 - 1 / samples)
    centred = scores - scores.mean(axis=1, keepdims=True)
    squares = centred * centred
    spread = squares.sum(axis=1) ** 1.5
    skewed = spread > 1e-18
    third = np.einsum("ij,ij->i", squares, centred)
    acceleration = np.where(skewed, third / (6 * np.where(skewed, spread, 1.0)), 0.0)
    bias = ndtri(share)
    outer = math.sqrt(total / (total - 1)) * stdtrit(total - 1, (1 - level) / 2)
    levels = []
    for z in (outer, -outer):
        shrink = 1 - acceleration * (bias + z)
        levels.append(ndtr(bias + (bias + z) / np.where(shrink > 0.1, shrink, 0.1)))
    places = np.round(np.stack(levels, axis=1), 9) * (samples - 1)  # the last digits differ between machines
    ordered = np.sort(sums, axis=1)
    left = np.floor(places).astype(np.int64)
    right = np.minimum(left + 1, samples - 1)
    low, high = (np.take_along_axis(ordered, at, axis=1) for at in (left, right))
    intervals: Matrix = (low + (high - low) * (places - left)) / total
    intervals[constant] = unseen(scores[constant, 0], total, level, span)
    return intervals


def unseen(values: Matrix, queries: int, level: float, span: Span) -> Matrix:
    """Return the intervals of means if all queries have the same score: values (systems,) -> (systems, 2)."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = z * z / (queries + z * z)
    least, most = np.minimum(values, span[0]), np.maximum(values, span[1])
    return np.stack([values - share * (values - least), values + share * (most - values)], axis=1)


def as_rows(scores: Matrix) -> Matrix:
    """Return scores as float64 (systems, queries). Raises UsageError if there is no query."""
    scores = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise UsageError(f"scores of shape {scores.shape}, but (systems, queries) with at least one query is needed")
    return scores

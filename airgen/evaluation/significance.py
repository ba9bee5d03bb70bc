"""Statistical significance: intervals for scores and ranks, paired tests, and the number of queries needed.

    scores: float64 (systems, queries); a column is one query, so all comparisons are paired
    compare(["bm25", "dense"], scores).ranks                             # [(1, 1), (2, 2)]: they differ
    against_baseline("new", new, old, measure="nDCG@10").verdict         # worse, better, "not worse" or unsure

Resampling is seeded, so equal scores give equal intervals and p-values on any machine. The p-values of all pairs are
corrected by Holm's method (1979): among all pairs of twenty equal systems, nine would differ at .05 by chance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from airgen.errors import UsageError
from airgen.exact_arithmetic import summable

Matrix = NDArray[np.float64]
_RESAMPLED_CELLS = 4_000_000  # resampled cells held at once: 32 MB
ALPHA = 0.05  # significance level, after Holm's correction if there are several tests
_CERTAIN_EFFECT = 1e9  # the effect size if the difference is the same for every query
_SIGN_PATTERNS = 10_000  # random sign patterns of Fisher's test


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and its 95% interval, or NaN if there is none."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, drawn: Matrix, scores: Matrix | None = None) -> "Interval":
        """Return the range of the middle 95% of the resampled values, ignoring NaN.

        Args:
            value: The observed value.
            drawn: Resampled values.
            scores: The scores, float64 (queries,), if the value is their mean. The range is then corrected as in
                `bootstrap_interval`.
        """
        known = drawn[~np.isnan(drawn)]
        if math.isnan(value) or not len(known):
            return cls(float(value), math.nan, math.nan)
        if scores is not None:
            return cls(float(value), *_corrected(known[:, None], _matrix(scores), 0.95)[0].tolist())
        return cls(float(value), *np.quantile(known, [0.025, 0.975]).tolist())


@dataclass(frozen=True, slots=True)
class SystemPair:
    """A comparison of system `first` with `second`: the difference of means, p-values before and after Holm's
    correction, and the effect size.

    Attributes:
        effect: Cohen's d of the paired differences.
        queries_needed: Number of queries that a t-test needs to detect this difference with a power of .8, or None for
            equal scores.
        needed_low, needed_high: Its 95% interval by bootstrap over queries, without an upper end if the difference may
            have the other sign.
    """

    first: str
    second: str
    difference: float
    fisher: float
    t: float
    fisher_holm: float
    t_holm: float
    effect: float
    queries_needed: int | None
    needed_low: int | None = None
    needed_high: int | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of all pairs, and the ranking at `alpha`. `names`, `means`, `ranks` and `together` are best first.

    Attributes:
        together: For each system, the systems that do not differ from it significantly (Fisher's test with Holm's
            correction over all pairs).
        ranks: The possible ranks of each system according to these tests: below all systems that are significantly
            better, and above all that are significantly worse.
    """

    names: list[str]
    means: list[float]
    pairs: list[SystemPair]
    ranks: list[tuple[int, int]]
    together: list[list[str]]
    alpha: float
    samples: int


def bootstrap_interval(scores: Matrix, *, level: float = 0.95, samples: int = 2000, seed: int = 0) -> Matrix:
    """Compute intervals for the means over queries: scores (systems, queries) -> (systems, 2).

    Queries are resampled jointly for all rows. A single query gives an interval of width zero.

    The percentiles of the resampled means are too narrow for few queries, and biased for skewed scores with many zeros
    and ones. They are therefore corrected for bias and skewness (BCa; Efron 1987), with levels adjusted to Student's t
    and the divisor n - 1 (Hesterberg 2015). benchmarks/intervals.py reports the coverage of the 95% intervals with 20,
    50, 100 and 200 queries for five kinds of scores.
    """
    scores = _matrix(scores)
    return _corrected(resampled_means(scores, samples=samples, seed=seed), scores, level)


def _corrected(means: Matrix, scores: Matrix, level: float) -> Matrix:
    """Correct the percentiles of resampled means: (samples, systems) and scores (systems, queries) -> (systems, 2)."""
    from scipy.special import ndtr, ndtri, stdtrit

    total = scores.shape[1]
    exact = summable(scores, total)
    observed = exact.sum(axis=1) / total  # as exact as the resampled means, so equal systems remain equal
    if total < 2:
        return np.repeat(observed[:, None], 2, axis=1)
    below, equal = (means < observed).mean(axis=0), (means == observed).mean(axis=0)
    share = np.clip(below + equal / 2, 1 / len(means), 1 - 1 / len(means))
    centred = scores - scores.mean(axis=1, keepdims=True)
    spread = np.sum(centred**2, axis=1) ** 1.5
    skewed = spread > 1e-18
    acceleration = np.where(skewed, np.sum(centred**3, axis=1) / (6 * np.where(skewed, spread, 1.0)), 0.0)
    bias = ndtri(share)
    outer = math.sqrt(total / (total - 1)) * stdtrit(total - 1, (1 - level) / 2)
    levels = []
    for z in (outer, -outer):
        shrink = 1 - acceleration * (bias + z)
        levels.append(ndtr(bias + (bias + z) / np.where(shrink > 0.1, shrink, 0.1)))
    places = np.round(np.stack(levels), 9) * (len(means) - 1)  # the last digits differ from one machine to another
    ordered = np.sort(means, axis=0)
    left = np.floor(places).astype(np.int64)
    right = np.minimum(left + 1, len(means) - 1)
    low, high = (np.take_along_axis(ordered, at, axis=0) for at in (left, right))
    intervals: Matrix = (low + (high - low) * (places - left)).T
    return intervals


def resampled_means(scores: Matrix, *, samples: int = 2000, seed: int = 0) -> Matrix:
    """Average over queries drawn with replacement, the same ones for all rows: (systems, queries) -> (samples,
    systems)."""
    scores = _matrix(scores)
    total = scores.shape[1]
    scores = summable(scores, total)
    random = np.random.default_rng(seed)
    means = []
    step = max(1, _RESAMPLED_CELLS // total)
    for first in range(0, samples, step):
        rows = min(step, samples - first)
        drawn = random.integers(0, total, (rows, total)) + np.arange(rows)[:, None] * total
        counts = np.bincount(drawn.ravel(), minlength=rows * total).reshape(rows, total)
        means.append(counts.astype(np.float64) @ scores.T / total)  # exact sums
    resampled: Matrix = np.concatenate(means)
    return resampled


def rank_intervals(scores: Matrix, *, level: float = 0.95, samples: int = 2000, seed: int = 0) -> NDArray[np.int64]:
    """Compute inclusive intervals for the ranks, with 1 for the best mean: scores (systems, queries) -> int (systems,
    2).

    Each system is compared with all others. Those that differ significantly limit its rank. With probability `level`,
    no pair is wrongly called different, however close the systems are. The critical value is the quantile of the
    largest studentised difference over the resampled means, with step-down (Romano and Wolf 2005; Mogstad, Romano,
    Shaikh and Wilhelm, "Inference for Ranks", 2024). Student's t-test must agree, which matters for fewer than ten
    queries. Plain percentiles of resampled ranks are not used, because they contain the true ranks of close systems far
    too rarely (benchmarks/rank_intervals.py).
    """
    scores = _matrix(scores)
    resampled = resampled_means(scores, samples=samples, seed=seed)
    agree = np.array([t_test(row - scores) <= 1 - level for row in scores])
    return rank_bounds(scores.mean(axis=1), resampled, agree, level=level)


def rank_bounds(
    means: Matrix, resampled: Matrix, can_differ: NDArray[np.bool_] | None = None, *, level: float = 0.95
) -> NDArray[np.int64]:
    """Compute rank intervals for any means, (systems,), with resampled values around them, (samples, systems).

    `can_differ`, bool (systems, systems), restricts the pairs that may differ significantly.
    """
    count = len(means)
    bounds = np.empty((count, 2), dtype=np.int64)
    for row in range(count):
        differences = means[row] - means
        drawn = resampled[:, [row]] - resampled
        errors = drawn.std(axis=0)
        constant = errors < 1e-12  # equal systems, or a difference that is the same for each query
        errors[constant] = 1.0
        size = np.where(constant, np.where(np.abs(differences) > 1e-12, np.inf, 0.0), np.abs(differences) / errors)
        if can_differ is not None:
            size[~can_differ[row]] = 0.0
        noise = np.where(constant, 0.0, np.abs(drawn - differences) / errors)
        open_ = np.arange(count) != row
        while open_.any():
            significant = open_ & (size > np.quantile(noise[:, open_].max(axis=1), level))
            if not significant.any():
                break
            open_ &= ~significant
        # The row itself is not open, but its difference is 0.
        better, worse = ~open_ & (differences < 0), ~open_ & (differences > 0)
        bounds[row] = 1 + np.count_nonzero(better), count - np.count_nonzero(worse)
    return bounds


def fisher_test(differences: Matrix, *, samples: int = _SIGN_PATTERNS, seed: int = 0) -> Matrix:
    """Run a two-sided paired randomisation test: differences (pairs, queries) -> p (pairs,).

    Under the null hypothesis, the sign of each query's difference is random. All sign patterns are tried if there are
    at most `samples` of them; otherwise, `samples` random patterns are tried, and p = (1 + hits) / (1 + n).
    """
    differences = _matrix(differences)
    total = differences.shape[1]
    differences = summable(differences, total)  # then equal sums are equal
    observed = np.abs(differences.sum(axis=1))
    hits = np.zeros(len(differences))
    exact = total <= 20 and 2**total <= samples
    count = 2**total if exact else samples
    random = np.random.default_rng(seed)
    step = max(1, _RESAMPLED_CELLS // total)
    for first in range(0, count, step):
        rows = min(step, count - first)
        if exact:
            bits = (np.arange(first, first + rows)[:, None] >> np.arange(total)) & 1
        else:
            bits = random.integers(0, 2, (rows, total), dtype=np.int8)
        signs = 1.0 - 2.0 * bits
        hits += np.count_nonzero(np.abs(signs @ differences.T) >= observed, axis=0)
    return hits / count if exact else (1 + hits) / (1 + count)


def t_test(differences: Matrix) -> Matrix:
    """Run a two-sided paired t-test: differences (pairs, queries) -> p (pairs,), 1 for equal pairs."""
    differences = _matrix(differences)
    total = differences.shape[1]
    if total < 2:
        return np.ones(len(differences))
    with np.errstate(invalid="ignore", divide="ignore"):
        t = differences.mean(axis=1) / (differences.std(axis=1, ddof=1) / math.sqrt(total))
    p: Matrix = np.where(np.isnan(t), 1.0, t_tails(t, total - 1))
    return p


def t_tails(t: Matrix | float, freedom: int) -> Matrix:
    """Compute P(|T| > |t|) for Student's t distribution, rounded because the last bits depend on the machine."""
    from scipy.special import stdtr  # a third of a second

    tails: Matrix = np.round(2 * stdtr(freedom, -np.abs(t)), 12)
    return tails


def sign_test(better: int, worse: int) -> float:
    """Return the exact two-sided p-value of wins and losses under equal probabilities, or 1 if there are none.

    >>> sign_test(8, 1)
    0.0390625
    """
    n = better + worse
    tail = sum(math.comb(n, k) for k in range(min(better, worse) + 1))
    return min(1.0, math.ldexp(tail, 1 - n))


def holm(p: Sequence[float] | Matrix) -> Matrix:
    """Correct p-values for multiple tests by Holm's method. They never decrease, and never exceed 1. NaN does not count
    as a test."""
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")[: np.count_nonzero(~np.isnan(values))]  # NaN is sorted last
    stepped = np.maximum.accumulate(values[order] * np.arange(len(order), 0, -1))
    corrected = np.full_like(values, math.nan)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def queries_needed(difference: float, deviation: float) -> int | None:
    """Return the number of queries that a two-sided paired t-test needs to detect `difference` with a power of .8.

    `deviation` is the standard deviation of the differences. Uses the normal approximation with Guenther's correction
    for t (+ z^2 / 2). Returns None if the difference is 0.
    """
    if difference == 0:
        return None
    z = NormalDist().inv_cdf(1 - ALPHA / 2)
    needed = ((z + NormalDist().inv_cdf(0.8)) * deviation / difference) ** 2 + z * z / 2
    return max(2, math.ceil(needed))


def _needed_between(differences: Matrix, *, samples: int = 500, seed: int = 0) -> list[tuple[int | None, int | None]]:
    """Return the 95% interval of `queries_needed` for each row of differences, float64 (pairs, queries)."""
    draws = resampled_means(differences, samples=samples, seed=seed)
    squares = resampled_means(differences * differences, samples=samples, seed=seed)  # of the same draws
    deviations = np.sqrt(np.maximum(squares - draws * draws, 0.0))
    signs = np.sign(differences.mean(axis=1))
    effects = np.divide(draws, deviations, out=np.sign(draws) * _CERTAIN_EFFECT, where=deviations > 0) * signs
    intervals: list[tuple[int | None, int | None]] = []
    for sign, (least, most) in zip(
        signs, np.quantile(effects, [0.025, 0.975], axis=0, method="nearest").T, strict=True
    ):
        low, high = (queries_needed(float(end), 1.0) if sign and end > 0 else None for end in (most, least))
        intervals.append((low, high))
    return intervals


def compare(names: Sequence[str], scores: Matrix, *, samples: int | None = None, seed: int = 0) -> Comparison:
    """Compare every pair of systems by Fisher's test with Holm's correction, and derive the intervals of the ranks.

    Args:
        names: The name of each system.
        scores: Scores, float64 (systems, queries).
        samples: Number of sign patterns for Fisher's test. Default: 10,000 or, for more than 250 pairs, as many as make
            the smallest possible corrected p-value half of alpha. With fewer, no pair could be significant.
        seed: Seed of the sign patterns and the bootstrap.

    Raises:
        UsageError: The number of names differs from the number of systems.
    """
    scores = _matrix(scores)
    if len(names) != len(scores):
        raise UsageError(f"{len(names)} names for {len(scores)} rows of scores")
    order = sorted(range(len(names)), key=lambda row: (-scores[row].mean(), names[row]))
    ranked, scores = [names[row] for row in order], scores[order]
    means = [float(row.mean()) for row in scores]
    left, right = np.triu_indices(len(ranked), 1)
    samples = samples or max(_SIGN_PATTERNS, math.ceil(2 * len(left) / ALPHA))
    if not len(left):
        return Comparison(
            names=ranked,
            means=means,
            pairs=[],
            ranks=[(1, 1)] * len(ranked),
            together=[[] for _ in ranked],
            alpha=ALPHA,
            samples=samples,
        )
    differences = scores[left] - scores[right]
    fisher, t = fisher_test(differences, samples=samples, seed=seed), t_test(differences)
    between = _needed_between(differences, seed=seed)
    deviations = differences.std(axis=1, ddof=1) if scores.shape[1] > 1 else np.zeros(len(left))
    tests = np.array([differences.mean(axis=1), deviations, fisher, t, holm(fisher), holm(t)])
    pairs = []
    for first, second, (difference, deviation, *p), (low, high) in zip(
        left.tolist(), right.tolist(), tests.T.tolist(), between, strict=True
    ):
        pairs.append(
            SystemPair(
                first=ranked[first],
                second=ranked[second],
                difference=difference,
                fisher=p[0],
                t=p[1],
                fisher_holm=p[2],
                t_holm=p[3],
                effect=difference / deviation if deviation else 0.0,
                queries_needed=queries_needed(difference, deviation),
                needed_low=low,
                needed_high=high,
            )
        )
    alike = np.zeros((len(ranked), len(ranked)), np.bool_)
    alike[left, right] = alike[right, left] = tests[4] > ALPHA
    together = [[ranked[place] for place in np.flatnonzero(row)] for row in alike]
    difference = np.subtract.outer(np.array(means), np.array(means))
    better, worse = (~alike & (difference < 0)).sum(axis=1), (~alike & (difference > 0)).sum(axis=1)
    intervals = list(zip((better + 1).tolist(), (len(ranked) - worse).tolist(), strict=True))
    return Comparison(
        names=ranked,
        means=means,
        pairs=pairs,
        ranks=intervals,
        together=together,
        alpha=ALPHA,
        samples=samples,
    )


def _matrix(scores: Matrix) -> Matrix:
    scores = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise UsageError(f"scores of shape {scores.shape}, but (systems, queries) with at least one query is needed")
    return scores


@dataclass(frozen=True, slots=True)
class AgainstBaseline:
    """The difference between a run's mean and the baseline's, with its bootstrap interval over queries.

    `verdict` is `worse` if the whole interval is below -margin, `better` if it is above 0, `not worse` if it is above
    -margin, and otherwise `unsure`, because there are too few queries.
    """

    run: str
    measure: str
    difference: float
    low: float
    high: float
    margin: float
    verdict: Literal["worse", "better", "not worse", "unsure"]


def against_baseline(
    run: str,
    scores: NDArray[np.float64],
    baseline: NDArray[np.float64],
    *,
    measure: str,
    margin: float = 0.0,
    level: float = 0.95,
) -> AgainstBaseline:
    """Compare scores per query, float64 (queries,), for the same queries in the same order.

    Raises UsageError if the queries differ or the margin is negative.
    """
    if scores.shape != baseline.shape:
        raise UsageError(f"{run}: {scores.size} queries, but {baseline.size} of the baseline")
    if not margin >= 0:
        raise UsageError(f"a margin of {margin} is not possible: it must be 0 or more (how much worse a run may be)")
    difference = scores - baseline
    ((low, high),) = bootstrap_interval(difference[None], level=level, samples=10_000).tolist()
    verdict: Literal["worse", "better", "not worse", "unsure"] = "unsure"
    if low == high == 0:  # the same scores for every query
        verdict = "not worse"
    elif high < -margin:
        verdict = "worse"
    elif low > 0:
        verdict = "better"
    elif low >= -margin and margin:
        verdict = "not worse"
    return AgainstBaseline(
        run=run,
        measure=measure,
        difference=float(difference.mean()),
        low=low,
        high=high,
        margin=margin,
        verdict=verdict,
    )

"""Which of two systems is better: one decision for gates, verdicts, rank intervals and comparisons.

    scores: float64 (systems, queries); a column is one query, so all comparisons are paired
    compare(["bm25", "dense"], scores).pairs[0].verdict                  # better, worse or "cannot tell"
    compare(["bm25", "dense"], scores).ranks                             # [(1, 1), (2, 2)]: they differ
    against_baseline("new", new, old, measure="nDCG@10").verdict         # the same for a run and its baseline

`decide` is the decision. A randomisation test decides, which keeps its level for any number of queries, and the
bootstrap interval describes. Where they disagree, or where fewer than six queries differ, the answer is "cannot tell".
Resampling is seeded, so equal scores give equal answers on any machine. The p-values of all pairs of a table are
corrected by Holm's method (1979): among all pairs of twenty equal systems, nine would differ at .05 by chance. A pair
that is compared alone is not corrected.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from airgen.compute.exact_arithmetic import summable
from airgen.display.study import Shown
from airgen.errors import UsageError
from airgen.evaluation.intervals import (
    DIFFERENCES,
    EQUAL,
    RESAMPLED_CELLS,
    SAMPLES,
    Matrix,
    as_rows,
    bootstrap_interval,
    corrected,
    resampled_sums,
)

__all__ = [
    "ALPHA",
    "LEAST_DIFFERING",
    "AgainstBaseline",
    "Comparison",
    "SystemPair",
    "Verdict",
    "against_baseline",
    "bootstrap_interval",
    "compare",
    "decide",
    "decide_alone",
    "fisher_test",
    "holm",
    "queries_needed",
    "rank_bounds",
    "rank_intervals",
    "sign_test",
    "t_tails",
    "t_test",
]

ALPHA = 0.05  # significance level, after Holm's correction if there are several tests
LEAST_DIFFERING = 6  # queries that must differ: with five, even the most extreme p-value is .0625
_SIGN_PATTERNS = 10_000  # random sign patterns of Fisher's test
_CACHED_CELLS = 1_000_000  # sums of pairs held at once: 8 MB, which a processor's cache holds
_MOST_SIGNS = 13  # differing queries for which all sign patterns are tried: 2^13 < 10,000

Verdict = Literal["better", "worse", "cannot tell"]
_OPPOSITE: dict[Verdict, Verdict] = {"better": "worse", "worse": "better", "cannot tell": "cannot tell"}


@dataclass(frozen=True, slots=True)
class SystemPair:
    """A comparison of system `first` with `second`.

    Attributes:
        difference: The mean of `first` minus that of `second`.
        low, high: Its 95% bootstrap interval.
        differing: Number of queries with different scores.
        fisher, t: P-values of Fisher's randomisation test and the t-test for this pair alone.
        fisher_holm, t_holm: The same after Holm's correction for all pairs of the table.
        effect: Cohen's d of the paired differences; 0 if the difference is the same for every query.
        queries_needed: Number of queries that a t-test needs to detect this difference with a power of .8, or None for
            equal scores.
        needed_low, needed_high: Its 95% interval, without an upper end if the difference may have the other sign.
        verdict: Whether `first` is better or worse, as one of all pairs of the table (see `decide`).
        alone: The same if this pair is all that was asked for.
    """

    first: str
    second: str
    difference: float
    low: float
    high: float
    differing: int
    fisher: float
    t: float
    fisher_holm: float
    t_holm: float
    effect: float
    queries_needed: int | None
    verdict: Verdict
    alone: Verdict
    needed_low: int | None = None
    needed_high: int | None = None

    def seen_from(self, system: str) -> "SystemPair":
        """Return the same comparison with `system` as the first of the two."""
        if system == self.first:
            return self
        return replace(
            self,
            first=self.second,
            second=self.first,
            difference=-self.difference,
            low=-self.high,
            high=-self.low,
            effect=-self.effect,
            verdict=_OPPOSITE[self.verdict],
            alone=_OPPOSITE[self.alone],
        )


@dataclass(frozen=True, slots=True)
class Comparison(Shown):
    """The comparison of all pairs, and the ranking at `alpha`. `names`, `means`, `ranks` and `together` are best first.

    Attributes:
        together: For each system, the systems that it cannot be told apart from.
        ranks: The possible ranks of each system: below all systems that are better, and above all that are worse.
    """

    names: list[str]
    means: list[float]
    pairs: list[SystemPair]
    ranks: list[tuple[int, int]]
    together: list[list[str]]
    alpha: float
    samples: int

    def pair(self, first: str, second: str) -> SystemPair:
        """Return the pair of two systems, in any order. Raises UsageError if it is not compared."""
        for pair in self.pairs:
            if {pair.first, pair.second} == {first, second}:
                return pair
        raise UsageError(f"{first} and {second} are not compared")


def decide(
    p: Matrix | float,
    low: Matrix | float,
    high: Matrix | float,
    differing: Matrix | int,
    *,
    alpha: float = ALPHA,
) -> list[Verdict]:
    """Decide for each pair of systems whether the first is better or worse than the second.

    It is only called different if the test rejects equality, the interval excludes 0, and at least six queries differ.
    benchmarks/false_alarms.py reports how often equal systems are called different.

    Args:
        p: P-values of `fisher_test`, corrected for all comparisons that were asked for, (pairs,).
        low, high: Ends of the intervals of the differences, (pairs,).
        differing: Number of queries with different scores, (pairs,).
        alpha: Significance level.
    """
    rejects = (np.atleast_1d(p) <= alpha) & (np.atleast_1d(differing) >= LEAST_DIFFERING)
    better, worse = rejects & (np.atleast_1d(low) > 0), rejects & (np.atleast_1d(high) < 0)
    return ["better" if up else "worse" if down else "cannot tell" for up, down in zip(better, worse, strict=True)]


def rank_intervals(scores: Matrix, *, seed: int = 0) -> NDArray[np.int64]:
    """Compute inclusive intervals for the ranks, with 1 for the best mean: scores (systems, queries) -> int (systems,
    2). They are the `ranks` of `compare`, in the order of the rows."""
    rows = as_rows(scores)
    names = [str(row) for row in range(len(rows))]
    compared = compare(names, rows, seed=seed)
    by_name = dict(zip(compared.names, compared.ranks, strict=True))
    return np.array([by_name[name] for name in names], dtype=np.int64)


def rank_bounds(means: Matrix, resampled: Matrix, *, level: float = 0.95) -> NDArray[np.int64]:
    """Compute rank intervals for figures without scores by query: any means, (systems,), with resampled values around
    them, (samples, systems).

    Each system is compared with all others. Those that differ significantly limit its rank. With probability `level`,
    no pair is wrongly called different, however close the systems are. The critical value is the quantile of the
    largest studentised difference over the resampled means, with step-down (Romano and Wolf 2005; Mogstad, Romano,
    Shaikh and Wilhelm, "Inference for Ranks", 2024).
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


def fisher_test(differences: Matrix, *, seed: int = 0) -> Matrix:
    """Run a two-sided paired randomisation test: differences (pairs, queries) -> p (pairs,).

    Under the null hypothesis, the sign of each query's difference is random. The p-value is exact if at most 13 queries
    differ, by trying all sign patterns, and if all differences have the same size, by the binomial distribution.
    Otherwise, 10,000 random patterns are tried, and p = (1 + hits) / (1 + n). Without a hit, Hoeffding's bound (1963)
    is used if it is smaller, because the correction for many pairs needs p-values below 1 / 10,001. It is never below
    2^(1 - n) for n queries that differ.
    """
    differences = as_rows(differences)
    exact = summable(differences, differences.shape[1])
    exact[np.abs(exact) < EQUAL] = 0.0
    return _p_values(exact, _sign_sums(differences, seed))


def _sign_sums(rows: Matrix, seed: int) -> Matrix:
    """Add up exactly with random signs, the same ones for all rows: (rows, queries) -> (rows, sign patterns).

    The difference of two rows is exactly what the differences of two systems would give.
    """
    total = rows.shape[1]
    exact, random = summable(rows, total), np.random.default_rng(seed)
    sums = np.empty((len(rows), _SIGN_PATTERNS))
    step = max(1, RESAMPLED_CELLS // total)
    for first in range(0, _SIGN_PATTERNS, step):
        count = min(step, _SIGN_PATTERNS - first)
        signs = 1.0 - 2.0 * random.integers(0, 2, (count, total), dtype=np.int8)
        sums[:, first : first + count] = exact @ signs.T
    return sums


def _p_values(differences: Matrix, drawn: Matrix) -> Matrix:
    """Return the p-values of `fisher_test`: differences on a summable grid, (pairs, queries), and their sums with
    random signs, (pairs, sign patterns)."""
    from scipy.special import bdtr

    observed = np.abs(differences.sum(axis=1))
    sizes = np.abs(differences)
    most = sizes.max(axis=1)
    differing = np.count_nonzero(sizes, axis=1)
    reached = observed * (1 - EQUAL)  # scores are rounded one by one, so equal differences may not be quite equal
    hits = np.count_nonzero(np.abs(drawn) >= reached[:, None], axis=1)
    p = (1 + hits) / (1 + drawn.shape[1])
    squares = np.einsum("ij,ij->i", differences, differences)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.round(2 * np.exp(-observed * observed / (2 * squares)), 12)
    p = np.where(hits == 0, np.minimum(p, bound), p)
    alike = (
        np.count_nonzero(sizes >= most[:, None] * (1 - EQUAL), axis=1) == differing
    )  # all differences have the same size
    wins = np.count_nonzero(differences > 0, axis=1)
    binomial = np.round(2 * bdtr(np.minimum(wins, differing - wins), differing, 0.5), 12)
    p = np.where(alike & (differing > 0), np.minimum(1.0, binomial), p)
    few = np.flatnonzero(~alike & (differing <= _MOST_SIGNS))
    patterns = 1.0 - 2.0 * ((np.arange(2 ** (_MOST_SIGNS - 1)) >> np.arange(_MOST_SIGNS)[:, None]) & 1)
    for first in range(0, len(few), step := RESAMPLED_CELLS // patterns.shape[1]):
        rows = differences[few[first : first + step]]
        places = np.argsort(rows == 0, axis=1, kind="stable")[:, :_MOST_SIGNS]  # the differing queries first
        chosen = np.zeros((len(rows), _MOST_SIGNS))
        chosen[:, : places.shape[1]] = np.take_along_axis(rows, places, axis=1)
        sums = np.abs(chosen @ patterns)  # the last sign is +: a pattern and its opposite are equally extreme
        p[few[first : first + step]] = (sums >= reached[few[first : first + step], None]).mean(axis=1)
    lowest = np.ldexp(1.0, 1 - np.minimum(differing, 1000))
    values: Matrix = np.where(differing > 0, np.maximum(p, lowest), 1.0)
    return values


def t_test(differences: Matrix) -> Matrix:
    """Run a two-sided paired t-test: differences (pairs, queries) -> p (pairs,), 1 for equal pairs.

    p is never below 2^(1 - n) for n queries that differ: equal differences of two queries prove little.
    """
    differences = as_rows(differences)
    total = differences.shape[1]
    if total < 2:
        return np.ones(len(differences))
    with np.errstate(invalid="ignore", divide="ignore"):
        t = differences.mean(axis=1) / (differences.std(axis=1, ddof=1) / math.sqrt(total))
    lowest = np.ldexp(1.0, 1 - np.minimum(np.count_nonzero(differences, axis=1), 1000))
    p: Matrix = np.where(np.isnan(t), 1.0, np.maximum(t_tails(t, total - 1), lowest))
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


def _needed_between(effect: float, error: float) -> tuple[int | None, int | None]:
    """Return the 95% interval of `queries_needed` for an effect size with this standard error."""
    if not effect:
        return None, None  # equal scores, or the same difference for every query
    z = NormalDist().inv_cdf(1 - ALPHA / 2)
    low, high = (
        (queries_needed(end, 1.0) if end > 0 else None) for end in (abs(effect) + z * error, abs(effect) - z * error)
    )
    return low, high


def _effect_error(differences: Matrix) -> Matrix:
    """Return the standard errors of the effect sizes, (pairs,), by the delta method with skewness and kurtosis."""
    total = differences.shape[1]
    mean = differences.mean(axis=1)
    centred = differences - mean[:, None]
    squares = centred * centred
    variance = squares.mean(axis=1)
    safe = np.where(variance > 0, variance, 1.0)
    effect, skew = mean / np.sqrt(safe), np.einsum("ij,ij->i", squares, centred) / total / safe**1.5
    kurtosis = np.einsum("ij,ij->i", squares, squares) / total / safe**2
    spread = np.maximum(1 - effect * skew + effect * effect * (kurtosis - 1) / 4, 0.0)
    error: Matrix = np.where(variance > 0, np.sqrt(spread / total), 0.0)
    return error


def _deviation(differences: Matrix) -> Matrix:
    """Return the standard deviations of the differences, (pairs,): 0 for one query."""
    if differences.shape[1] < 2:
        return np.zeros(len(differences))
    deviation: Matrix = differences.std(axis=1, ddof=1)
    return np.where(deviation < EQUAL, 0.0, deviation)


def compare(names: Sequence[str], scores: Matrix, *, seed: int = 0) -> Comparison:
    """Compare every pair of systems (see `decide`), and derive the intervals of the ranks.

    Time and memory grow with the square of the number of systems, and in proportion to the number of queries.

    Args:
        names: The name of each system.
        scores: Scores, float64 (systems, queries).
        seed: Seed of the sign patterns and the bootstrap.

    Raises:
        UsageError: The number of names differs from the number of systems.
    """
    scores = as_rows(scores)
    if len(names) != len(scores):
        raise UsageError(f"{len(names)} names for {len(scores)} rows of scores")
    order = sorted(range(len(names)), key=lambda row: (-scores[row].mean(), names[row]))
    ranked, scores = [names[row] for row in order], scores[order]
    means = [float(row.mean()) for row in scores]
    left, right = np.triu_indices(len(ranked), 1)
    blocks = list(_examined(scores, left, right, seed))
    pairs: list[SystemPair] = []
    alike = np.zeros((len(ranked), len(ranked)), np.bool_)
    if blocks:
        figures = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
        fisher_holm, t_holm = holm(figures["fisher"]), holm(figures["t"])
        ends = figures["low"], figures["high"], figures["differing"]
        verdicts, alone = decide(fisher_holm, *ends), decide(figures["fisher"], *ends)
        alike[left, right] = alike[right, left] = np.array(verdicts) == "cannot tell"
        columns = {name: values.tolist() for name, values in figures.items()}
        for at, (first, second) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
            difference, deviation = columns["difference"][at], columns["deviation"][at]
            effect = difference / deviation if deviation else 0.0
            low, high = _needed_between(effect, columns["error"][at])
            pairs.append(
                SystemPair(
                    first=ranked[first],
                    second=ranked[second],
                    difference=difference,
                    low=columns["low"][at],
                    high=columns["high"][at],
                    differing=columns["differing"][at],
                    fisher=columns["fisher"][at],
                    t=columns["t"][at],
                    fisher_holm=float(fisher_holm[at]),
                    t_holm=float(t_holm[at]),
                    effect=effect,
                    queries_needed=queries_needed(difference, deviation),
                    verdict=verdicts[at],
                    alone=alone[at],
                    needed_low=low,
                    needed_high=high,
                )
            )
    apart = ~alike & ~np.eye(len(ranked), dtype=np.bool_)
    places = np.arange(len(ranked))
    better, worse = (apart & (places < places[:, None])).sum(axis=1), (apart & (places > places[:, None])).sum(axis=1)
    return Comparison(
        names=ranked,
        means=means,
        pairs=pairs,
        ranks=list(zip((better + 1).tolist(), (len(ranked) - worse).tolist(), strict=True)),
        together=[[ranked[place] for place in np.flatnonzero(row)] for row in alike],
        alpha=ALPHA,
        samples=_SIGN_PATTERNS,
    )


def _examined(
    scores: Matrix, left: NDArray[np.int64], right: NDArray[np.int64], seed: int, level: float = 0.95
) -> Iterator[dict[str, NDArray[np.float64]]]:
    """Yield the figures of all pairs in blocks of bounded size: scores (systems, queries), and the two systems of each
    pair.

    Sums with random signs and resampled sums are made once for each system. Those of a pair are their differences.
    """
    total, samples = scores.shape[1], _samples(level)
    exact = summable(scores, total)
    flipped, resampled = _sign_sums(scores, seed), resampled_sums(scores, samples=samples, seed=seed)
    step = max(1, _CACHED_CELLS // max(total, samples, _SIGN_PATTERNS))
    for first in range(0, len(left), step):
        one, other = left[first : first + step], right[first : first + step]
        differences = exact[one] - exact[other]
        differences[np.abs(differences) < EQUAL] = 0.0
        sums = differences.sum(axis=1)
        ends = corrected(resampled[one] - resampled[other], sums, differences, level, DIFFERENCES)
        yield {
            "difference": sums / total,
            "deviation": _deviation(differences),
            "low": ends[:, 0],
            "high": ends[:, 1],
            "differing": np.count_nonzero(differences, axis=1),
            "fisher": _p_values(differences, flipped[one] - flipped[other]),
            "t": t_test(differences),
            "error": _effect_error(differences),
        }


def decide_alone(differences: Matrix, *, level: float = 0.95) -> tuple[dict[str, Matrix], list[Verdict]]:
    """Decide comparisons that are each asked alone (see `decide`): differences (pairs, queries).

    Returns:
        The figures of each pair, (pairs,), by name, and the verdicts.
    """
    rows = np.concatenate([as_rows(differences), np.zeros((1, differences.shape[-1]))])
    places = np.arange(len(rows) - 1)
    blocks = list(_examined(rows, places, np.full_like(places, len(places)), 0, level))
    figures = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    ends = figures["fisher"], figures["low"], figures["high"], figures["differing"]
    return figures, decide(*ends, alpha=1 - level)


def _samples(level: float) -> int:
    """Return the number of resampled means for an interval, of which 50 are beyond each end."""
    return min(20 * SAMPLES, math.ceil(SAMPLES * round(ALPHA / (1 - level), 6)))


@dataclass(frozen=True, slots=True)
class AgainstBaseline:
    """The difference between a run's mean and the baseline's, with its bootstrap interval over queries.

    `verdict` is `worse` if the run is worse by more than the margin, `better` if it is better, `not worse` if it is
    better than the baseline less the margin or has the same score for every query, and otherwise `cannot tell`.
    """

    run: str
    measure: str
    difference: float
    low: float
    high: float
    p: float
    differing: int
    queries: int
    margin: float
    verdict: Verdict | Literal["not worse"]


def against_baseline(
    run: str,
    scores: NDArray[np.float64],
    baseline: NDArray[np.float64],
    *,
    measure: str,
    margin: float = 0.0,
    level: float = 0.95,
) -> AgainstBaseline:
    """Compare scores per query, float64 (queries,), for the same queries in the same order (see `decide`).

    Raises UsageError if the queries differ or the margin is negative.
    """
    if scores.shape != baseline.shape:
        raise UsageError(f"{run}: {scores.size} queries, but {baseline.size} of the baseline")
    if not margin >= 0:
        raise UsageError(f"a margin of {margin} is not possible: it must be 0 or more (how much worse a run may be)")

    differences = (scores - baseline)[None]
    figures, (answer,) = decide_alone(differences, level=level)
    below = decide_alone(differences + margin, level=level)[1][0] if margin else answer  # than the lowest that will do
    verdict: Verdict | Literal["not worse"] = "worse" if below == "worse" else "cannot tell"
    if answer == "better":
        verdict = "better"
    elif not figures["differing"].any() or (margin and below == "better"):
        verdict = "not worse"
    return AgainstBaseline(
        run=run,
        measure=measure,
        difference=figures["difference"].item(),
        low=figures["low"].item(),
        high=figures["high"].item(),
        p=figures["fisher"].item(),
        differing=int(figures["differing"].item()),
        queries=scores.size,
        margin=margin,
        verdict=verdict,
    )

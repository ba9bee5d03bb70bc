"""Compare how two sets of queries rank the same systems: a generated benchmark and human labels (paper 4.1, RQ1).

    human = Side(names, scores)                  # float64 (systems, queries): a row a system, a column a query
    agreement = agree(human, generated, weakened={"lsa-10"})
    agreement.all.spearman                       # Interval(value=0.82, low=0.61, high=0.91)

Intervals resample the queries of each side independently. Noise only lowers a rank correlation, so an interval need not
be centred on its value. If all systems have the same score on a side, the correlation is NaN. Other functions explain
why two rankings differ: over-rated systems and circularity.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airgen.errors import UsageError
from airgen.evaluation.intervals import Interval, resampled_means
from airgen.evaluation.significance import compare
from airgen.studies.rank_correlation import LEAST_SYSTEMS, average_ranks, kendall, refuse_few, spearman, spearman_p

Matrix = NDArray[np.float64]
PAPER_SHARE = 2000 / 6319  # the paper draws 2,000 of its 6,319 queries at a time (section 4.1)


@dataclass(frozen=True)
class Side:
    """Scores of systems per query on one set of queries: names, and float64 (systems, queries)."""

    names: tuple[str, ...]
    scores: Matrix

    @property
    def means(self) -> Matrix:
        """Return the mean score of each system, float64 (systems,)."""
        means: Matrix = self.scores.mean(axis=1)
        return means

    @property
    def by_name(self) -> dict[str, float]:
        """Return Return {system: mean score}."""
        return dict(zip(self.names, self.means.tolist(), strict=True))

    @property
    def queries(self) -> int:
        """Return the number of queries."""
        return int(self.scores.shape[1])

    def of(self, names: Sequence[str]) -> "Side":
        """Return the same queries with these systems in this order. Raises UsageError if a system has no scores."""
        missing = [name for name in names if name not in self.names]
        if missing:
            raise UsageError(f"one side has no scores of the system {missing[0]!r}: evaluate the same systems on both")
        return Side(tuple(names), self.scores[[self.names.index(name) for name in names]])


@dataclass(frozen=True, slots=True)
class Correlation:
    """The correlation of two rankings of `systems` systems: Spearman's rho and Kendall's tau-b with 95% intervals, and
    rho's p-value."""

    systems: int
    spearman: Interval
    kendall: Interval
    p: float


@dataclass(frozen=True, slots=True)
class SystemsPair:
    """Two systems on two sides, of which `first` is better on the old side: differences of means, p-values (Fisher's
    test with Holm's correction), and whether the systems can be told apart."""

    first: str
    second: str
    old_difference: float
    old_p: float
    new_difference: float
    new_p: float
    old_apart: bool
    new_apart: bool

    @property
    def significant(self) -> str:
        """Return on which sides the difference is significant (.05): both, old, new or neither."""
        return {(1, 1): "both", (1, 0): "old", (0, 1): "new"}.get((self.old_apart, self.new_apart), "neither")


def pairs_of(old: Side, new: Side) -> list[SystemsPair]:
    """Return every pair of systems on both sides. Differences are rounded, so that equal means stay equal."""
    later = {frozenset((pair.first, pair.second)): pair for pair in compare(new.names, new.scores).pairs}
    pairs = []
    for before in compare(old.names, old.scores).pairs:
        after = later[frozenset((before.first, before.second))]
        sign = 1 if after.first == before.first else -1
        pairs.append(
            SystemsPair(
                first=before.first,
                second=before.second,
                old_difference=round(before.difference, 12),
                old_p=before.fisher_holm,
                new_difference=round(sign * after.difference, 12),
                new_p=after.fisher_holm,
                old_apart=before.verdict != "cannot tell",
                new_apart=after.verdict != "cannot tell",
            )
        )
    return pairs


@dataclass(frozen=True, slots=True)
class OrderedPairs:
    """Counts of system pairs.

    `pairs` is the number of all pairs. `separated` pairs differ significantly on the human side (Fisher's test with
    Holm's correction, .05). `same` are separated pairs in the same order on the generated side. `contradicted` are
    separated pairs that differ significantly in the opposite order on the generated side.
    """

    pairs: int
    separated: int
    same: int
    contradicted: int


@dataclass(frozen=True, slots=True)
class Resamplings:
    """Spearman correlations of `systems` systems over repeated draws of `queries` queries, one per draw.

    `mean_p` is the mean p-value of the draws, as in the paper's Figure 3, or NaN if undefined.
    """

    queries: int
    values: tuple[float, ...]
    systems: int = 0
    mean_p: float = math.nan

    @property
    def mean(self) -> float:
        """Return the mean of the draws."""
        return float(np.mean(self.values))


@dataclass(frozen=True, slots=True)
class RankAgreement:
    """The agreement of one generated side with the human side.

    `strong` excludes the systems that were weakened on purpose. `top` covers the best third of all systems in the human
    ranking, which a benchmark needs to distinguish. They are None if fewer than three systems are left.
    """

    queries: int
    all: Correlation
    strong: Correlation | None
    top: Correlation | None
    pairs: OrderedPairs


def correlate(human: Side, generated: Side, drawn: Sequence[Matrix] | None = None) -> Correlation:
    """Compute the rank correlation of the systems' means, with intervals over the queries of both sides.

    `drawn` contains resampled means of both sides, float64 (samples, systems), if the sides are not resampled
    independently. Raises UsageError if there are fewer than three systems.
    """
    refuse_few(len(human.names))
    if drawn is None:
        drawn = [resampled_means(side.scores, seed=at) for at, side in enumerate((human, generated))]
    rho, tau = spearman(human.means, generated.means), kendall(human.means, generated.means)
    return Correlation(
        len(human.names),
        Interval.of(float(rho), spearman(drawn[0], drawn[1])),
        Interval.of(float(tau), kendall(drawn[0], drawn[1])),
        spearman_p(human.means, generated.means),
    )


def ordered_pairs(human: Side, generated: Side) -> OrderedPairs:
    """Count how the generated side orders the pairs that differ significantly on the human side."""
    pairs = pairs_of(human, generated)
    separated = [pair for pair in pairs if pair.significant in ("both", "old")]
    same = sum(pair.new_difference > 0 for pair in separated)
    against = sum(pair.new_difference < 0 and pair.significant == "both" for pair in separated)
    return OrderedPairs(len(pairs), len(separated), same, against)


def best_third(side: Side) -> tuple[str, ...]:
    """Return the best third of the systems by their means, rounded up, in order; none if there are fewer than three.

    >>> best_third(Side(tuple("abcdefg"), np.arange(7.0)[:, None]))
    ('e', 'f', 'g')
    """
    count = math.ceil(len(side.names) / 3)
    if count < LEAST_SYSTEMS:
        return ()
    best = set(np.argsort(-np.round(side.means, 12), kind="stable")[:count].tolist())
    return tuple(name for place, name in enumerate(side.names) if place in best)


def split_half(side: Side) -> float:
    """Compute the reliability: the mean Spearman correlation of the rankings by two random halves of the queries, or
    NaN for fewer than two queries.

    This is the reliability of half the queries. The Spearman-Brown formula, which estimates that of all queries, is not
    applied.
    """
    if side.queries < 2:
        return math.nan
    half, orders = side.queries // 2, _orders(side.queries)
    correlations = spearman(_means(side, orders, slice(half)), _means(side, orders, slice(half, 2 * half)))
    defined = correlations[~np.isnan(correlations)]
    return float(defined.mean()) if len(defined) else math.nan


def same_size_ceiling(human: Side, queries: int) -> Resamplings:
    """Return the agreement of human queries among themselves, by comparing the ranking by `queries` of them with that
    by all others.

    If there are fewer than twice as many, one half of them is compared with the other.
    """
    if human.queries < 2:
        return Resamplings(0, (math.nan,))
    size, orders = max(1, min(queries, human.queries // 2)), _orders(human.queries)
    correlations = spearman(_means(human, orders, slice(size)), _means(human, orders, slice(size, None)))
    return Resamplings(size, tuple(correlations.tolist()))


def resamplings(human: Side, generated: Side, *, queries: int | None = None, rounds: int = 30) -> Resamplings:
    """Compute the paper's Figure 3: the Spearman correlation with the human ranking for 30 random draws of generated
    queries.

    `queries` is the number of queries per draw, without replacement. Default: the paper's share (2,000 of 6,319).
    """
    size = queries or max(1, round(generated.queries * PAPER_SHARE))
    size = min(size, generated.queries)
    means = _means(generated, _orders(generated.queries, rounds), slice(size))
    values = spearman(np.broadcast_to(human.means, means.shape), means).tolist()
    mean_p = float(np.mean([spearman_p(human.means, row) for row in means]))
    return Resamplings(size, tuple(values), len(human.names), mean_p)


def agree(human: Side, generated: Side, weakened: Collection[str] = ()) -> RankAgreement:
    """Return all figures for one generated side. Raises UsageError if there are fewer than three systems."""
    generated = generated.of(human.names)

    def over(names: Sequence[str]) -> Correlation:
        return correlate(human.of(names), generated.of(names))

    names, best = [name for name in human.names if name not in weakened], best_third(human)
    strong = over(names) if LEAST_SYSTEMS <= len(names) < len(human.names) else None
    pairs = ordered_pairs(human, generated)
    return RankAgreement(
        queries=generated.queries, all=over(human.names), strong=strong, top=over(best) if best else None, pairs=pairs
    )


def _orders(total: int, rounds: int = 200) -> list[NDArray[np.int64]]:
    """Return random orders of the queries, which are the same on any machine."""
    random = np.random.default_rng(0)
    return [random.permutation(total) for _ in range(rounds)]


def _means(side: Side, orders: Sequence[NDArray[np.int64]], part: slice) -> Matrix:
    """Return the systems' means over this part of each query order, float64 (orders, systems)."""
    return np.array([side.scores[:, order[part]].mean(axis=1) for order in orders])


@dataclass(frozen=True, slots=True)
class RankGain:
    """A system's ranks on both sides, from 1 for the best, with shared ties. `gain` is the human rank minus the
    generated rank."""

    system: str
    family: str
    human: float
    generated: float

    @property
    def gain(self) -> float:
        """Return the gain, which is positive if the generated side ranks the system higher than people do."""
        return self.human - self.generated


@dataclass(frozen=True, slots=True)
class Circularity:
    """A comparison of systems that share a model with quality control with the others.

    `involved` is {system: shared models}. `gain` and `others` are the mean rank gains of the two groups. `p` is the
    share of random groups of the same size with at least as large a difference (one-sided), or NaN if a group is empty.
    """

    involved: Mapping[str, tuple[str, ...]]
    gain: float
    others: float
    p: float


def rank_gains(human: Side, generated: Side, families: Mapping[str, str]) -> list[RankGain]:
    """Return every system's ranks on both sides, best on the human side first."""
    ranks = [average_ranks(-side.means) for side in (human, generated.of(human.names))]
    gains = [
        RankGain(name, families.get(name, ""), float(human_rank), float(generated_rank))
        for name, human_rank, generated_rank in zip(human.names, *ranks, strict=True)
    ]
    return sorted(gains, key=lambda gain: (gain.human, gain.system))


def family_gains(gains: Iterable[RankGain]) -> dict[str, tuple[int, float]]:
    """Return {family: (systems, mean rank gain)}, most over-rated first."""
    members: dict[str, list[float]] = {}
    for gain in gains:
        members.setdefault(gain.family, []).append(gain.gain)
    means = {family: (len(values), float(np.mean(values))) for family, values in members.items()}
    return dict(sorted(means.items(), key=lambda item: (-item[1][1], item[0])))


def circularity(gains: Sequence[RankGain], involved: Mapping[str, tuple[str, ...]]) -> Circularity:
    """Test whether systems that share a model with quality control, {system: shared models}, rank higher."""
    values = np.array([gain.gain for gain in gains])
    inside = np.array([gain.system in involved for gain in gains], dtype=bool)
    gain, others = (float(group.mean()) if len(group) else math.nan for group in (values[inside], values[~inside]))
    if math.isnan(gain - others):
        return Circularity(involved, gain, others, math.nan)
    random = np.random.default_rng(0)
    shuffled = np.array([random.permutation(values) for _ in range(10_000)])
    count = int(inside.sum())
    drawn = shuffled[:, :count].mean(axis=1) - shuffled[:, count:].mean(axis=1)
    p = float((1 + (drawn >= gain - others - 1e-12).sum()) / (1 + len(drawn)))
    return Circularity(involved, gain, others, p)

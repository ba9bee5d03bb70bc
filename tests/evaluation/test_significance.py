"""Statistics against scipy, against hand-worked cases, and by their properties."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airgen.errors import UsageError
from airgen.evaluation.intervals import Interval, bootstrap_interval, resampled_means
from airgen.evaluation.significance import (
    against_baseline,
    compare,
    decide,
    fisher_test,
    holm,
    queries_needed,
    rank_bounds,
    rank_intervals,
    sign_test,
    t_test,
)


@pytest.mark.parametrize("size", [10, 57, 300, 5000])
@pytest.mark.parametrize("shift", [0.0, 0.02, 0.3])
def test_t_test_is_scipys(size, shift):
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(size)
    one, other = random.random(size), random.random(size) + shift
    assert t_test(one - other)[0] == pytest.approx(max(stats.ttest_rel(one, other).pvalue, 2.0 ** (1 - size)), rel=1e-9)


def test_no_p_value_is_below_what_the_number_of_differing_queries_allows():
    assert t_test(np.zeros((1, 8)))[0] == fisher_test(np.zeros((1, 8)))[0] == 1.0
    assert t_test(np.full((1, 8), 0.25))[0] == fisher_test(np.full((1, 8), 0.25))[0] == 2**-7
    assert t_test(np.array([[0.5]]))[0] == fisher_test(np.array([[0.5]]))[0] == 1.0  # one query proves nothing
    assert t_test(np.array([[0.5, 0.5]]))[0] == fisher_test(np.array([[0.5, 0.5]]))[0] == 0.5
    draw = np.random.default_rng(7)
    for differing in (1, 2, 5, 6, 13, 14, 30):
        row = np.zeros(100)
        row[:differing] = 1e-3 + draw.random(differing)
        assert fisher_test(row)[0] >= 2.0 ** (1 - differing) and t_test(row)[0] >= 2.0 ** (1 - differing)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=10))
def test_exact_fisher_is_the_full_enumeration(values):
    differences = np.array(values, dtype=float) / 8
    patterns = [np.dot(signs, differences) for signs in itertools.product([1, -1], repeat=len(values))]
    expected = np.mean([abs(total) >= abs(differences.sum()) - 1e-12 for total in patterns])
    assert fisher_test(differences)[0] == pytest.approx(expected)


def test_fisher_by_hand():
    # |1 - 2 + 3| = 2: extreme are all patterns with a sum of 2 or more in size, all but +-0 (1 + 2 - 3).
    differences = np.array([[1.0, 2.0, 3.0], [1.0, -2.0, 3.0]])
    assert fisher_test(differences).tolist() == [2 / 8, 6 / 8]
    unchanged = np.zeros((2, 400))  # queries without a difference count for nothing, wherever they are
    unchanged[:, [3, 250, 399]] = differences
    assert fisher_test(unchanged).tolist() == [2 / 8, 6 / 8]


def test_fisher_of_differences_of_one_size_is_the_sign_test():
    row = np.zeros(300)
    row[:25], row[25:37] = 0.1, -0.1
    assert fisher_test(row)[0] == pytest.approx(sign_test(25, 12), rel=1e-9)
    base = np.random.default_rng(0).random(300)  # the same differences of rounded scores
    assert fisher_test((base + row) - base)[0] == pytest.approx(sign_test(25, 12), rel=1e-9)


def test_sampled_fisher_is_near_the_exact_one_and_seeded():
    differences = np.random.default_rng(3).normal(0.15, 0.5, 14)  # one query more than all patterns are tried for
    patterns = 1.0 - 2.0 * ((np.arange(2**14)[:, None] >> np.arange(14)) & 1)
    exact = np.mean(np.abs(patterns @ differences) >= abs(differences.sum()) - 1e-12)
    sampled = fisher_test(differences)
    assert sampled[0] == pytest.approx(exact, abs=0.02) and sampled[0] != exact
    assert np.array_equal(sampled, fisher_test(differences))


def test_the_bound_of_a_tail_is_above_the_exact_tail():
    """Random patterns cannot show a p-value below 1e-4, which Holm needs for many pairs; the bound is never too low."""
    row = np.full(40, 0.1)
    row[:3] = -0.1
    row[0] *= 1.0001  # not of one size, so neither exact way applies
    assert sign_test(37, 3) < fisher_test(row)[0] < 1e-4


def test_a_decision_needs_the_test_the_interval_and_six_queries():
    assert decide(0.01, 0.1, 0.2, 6) == ["better"] and decide(0.01, -0.2, -0.1, 6) == ["worse"]
    assert decide(0.01, 0.1, 0.2, 5) == decide(0.06, 0.1, 0.2, 60) == decide(0.01, -0.1, 0.2, 60) == ["cannot tell"]
    assert decide(0.03, 0.1, 0.2, 60, alpha=0.02) == ["cannot tell"]


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("queries", [1, 3, 20, 100])
def test_equal_systems_are_rarely_called_different(queries, share):
    """benchmarks/false_alarms.py has more cells and more trials; .018 is three standard errors at .025."""
    draw = np.random.default_rng(queries)
    wrong = {"better": 0, "worse": 0, "cannot tell": 0, "not worse": 0}
    for _ in range(150):
        base = draw.random(queries)
        other = np.where(draw.random(queries) < share, draw.random(queries), base)
        wrong[against_baseline("new", base, other, measure="x").verdict] += 1
    assert max(wrong["better"], wrong["worse"]) <= 150 * 0.07
    if queries < 6:
        assert wrong["better"] == wrong["worse"] == 0


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]).shape == (0,)
    with pytest.raises(UsageError):
        compare(["a"], np.zeros((2, 3)))
    with pytest.raises(UsageError):
        bootstrap_interval(np.zeros((2, 0)))


def test_ranks_by_hand():
    base = np.random.default_rng(0).random(100)
    noise = np.random.default_rng(1).normal(0, 0.1, 100)
    # Rows in any order: the second is far above, the last two are one system.
    assert rank_intervals(np.stack([base, base + 0.5 + noise, base])).tolist() == [[2, 3], [1, 1], [2, 3]]
    assert rank_intervals(base[None]).tolist() == [[1, 1]]
    assert rank_bounds(np.full(2, 0.5), np.full((9, 2), 0.5)).tolist() == [[1, 2], [1, 2]]  # no noise, no difference
    assert rank_bounds(np.array([0.5, 0.6]), np.tile([0.5, 0.6], (9, 1))).tolist() == [[2, 2], [1, 1]]
    drawn = np.random.default_rng(2).normal(0, 0.1, (2000, 2))  # differences have a deviation of .14
    for gap, ranks in ((0.2, [[1, 2], [1, 2]]), (0.4, [[2, 2], [1, 1]])):
        assert rank_bounds(np.array([0.0, gap]), drawn + np.array([0.0, gap])).tolist() == ranks
    assert rank_intervals(np.stack([base, base + 0.5])).tolist() == [[2, 2], [1, 1]]  # a constant difference is certain
    assert rank_intervals(np.array([[0.1], [0.9]])).tolist() == [[1, 2], [1, 2]]  # one query proves nothing
    assert rank_intervals(np.array([[0.0, 0.1, 0.0], [0.9, 0.8, 0.1]])).tolist() == [[1, 2], [1, 2]]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.integers(2, 7), st.integers(1, 40))
def test_a_rank_interval_holds_the_observed_rank_and_moves_with_the_rows(seed, systems, queries):
    random = np.random.default_rng(seed)
    scores = np.round(random.random((systems, queries)) + random.random((systems, 1)), 1)
    found = rank_intervals(scores)
    means = scores.mean(axis=1)
    better = (means[None, :] > means[:, None] + 1e-12).sum(axis=1)
    worse = (means[None, :] < means[:, None] - 1e-12).sum(axis=1)
    assert np.all(found[:, 0] <= 1 + better) and np.all(found[:, 1] >= systems - worse)
    order = random.permutation(systems)
    assert np.array_equal(rank_intervals(scores[order]), found[order])


def test_rank_intervals_hold_the_true_rank_where_percentiles_do_not():
    # Twelve systems that differ by much less than the noise of 40 queries: the case in which percentiles fail.
    random = np.random.default_rng(4)
    truth = np.linspace(0.011, 0, 12)[:, None]  # true ranks 1 to 12
    held, percentiles = [], []
    for trial in range(60):
        scores = truth + random.normal(0.5, 0.3, 40) + random.normal(0, 0.2, (12, 40))
        found = rank_intervals(scores, seed=trial)
        held.append((found[:, 0] <= np.arange(1, 13)) & (np.arange(1, 13) <= found[:, 1]))
        means = resampled_means(scores, samples=300, seed=trial)
        ranks = 1 + (means[:, None, :] > means[:, :, None]).sum(axis=2)
        low, high = np.quantile(ranks, [0.025, 0.975], axis=0)
        percentiles.append((low <= np.arange(1, 13)) & (np.arange(1, 13) <= high))
    assert np.mean(held) >= 0.95
    assert np.mean(percentiles) < 0.9


def test_ranks_are_told_where_they_can_be():
    random = np.random.default_rng(5)
    scores = np.linspace(1, 0, 26)[:, None] + random.normal(0, 0.1, (26, 300))
    assert rank_intervals(scores).tolist() == [[place, place] for place in range(1, 27)]


def test_interval_covers_the_mean_at_its_level():
    random = np.random.default_rng(0)
    data = random.beta(2, 3, (200, 80))
    intervals = bootstrap_interval(data, samples=600)
    covered = np.mean((intervals[:, 0] <= 0.4) & (intervals[:, 1] >= 0.4))
    assert 0.9 <= covered <= 0.99
    width = np.mean(intervals[:, 1] - intervals[:, 0])
    assert width == pytest.approx(2 * 1.96 * np.sqrt(0.04 / 80), rel=0.05)  # beta(2, 3) has variance .04


def test_interval_of_draws():
    drawn = np.array([*range(1001), np.nan])
    assert Interval.of(7, drawn) == Interval(7, 25, 975)
    assert np.isnan([Interval.of(np.nan, drawn).low, Interval.of(1, drawn[-1:]).high]).all()


def test_interval_is_seeded():
    data = np.random.default_rng(1).random((2, 50))
    assert np.array_equal(bootstrap_interval(data), bootstrap_interval(data))
    assert not np.array_equal(bootstrap_interval(data), bootstrap_interval(data, seed=1))


def test_power_is_right_by_simulation():
    needed = queries_needed(0.05, 0.2)
    assert needed == 128  # ((1.95996 + 0.84162) * 4)^2 + 1.95996^2 / 2 = 127.5
    random = np.random.default_rng(5)
    significant = np.mean(t_test(random.normal(0.05, 0.2, (2000, needed))) < 0.05)
    assert significant == pytest.approx(0.8, abs=0.03)
    assert queries_needed(0.0, 0.2) is None and queries_needed(10.0, 0.2) == 2


def test_compare_tells_a_clear_winner_and_joins_equals():
    random = np.random.default_rng(2)
    base = random.random(200)
    scores = np.stack([base, base + 0.2, base + random.normal(0, 0.1, 200) * 0.01])
    found = compare(["low", "high", "same"], scores)
    assert found.names[0] == "high"
    assert found.ranks == [(1, 1), (2, 3), (2, 3)]
    assert found.together == [[], [found.names[2]], [found.names[1]]]
    alone = compare(["low"], scores[:1])
    assert (alone.names, alone.pairs, alone.ranks, alone.together) == (["low"], [], [(1, 1)], [[]])
    row = dict(zip(("low", "high", "same"), scores, strict=True))
    for pair in found.pairs:
        difference = row[pair.first] - row[pair.second]
        assert (pair.fisher, pair.t) == pytest.approx((fisher_test(difference)[0], t_test(difference)[0]), rel=1e-6)
        assert (pair.low, pair.high) == pytest.approx(bootstrap_interval(difference, span=(-1, 1))[0], abs=1e-9)
        alone = compare(["one", "other"], np.stack([row[pair.first], row[pair.second]])).pairs[0]
        assert (alone.fisher_holm, alone.verdict) == (pair.fisher, pair.alone)
        assert (alone.low, alone.high) == (pair.low, pair.high)
        if difference.std() > 1e-6:  # otherwise it is the same for every query
            assert pair.effect == pytest.approx(pair.difference / difference.std(ddof=1))
    assert [pair.fisher_holm for pair in found.pairs] == holm([pair.fisher for pair in found.pairs]).tolist()
    assert [pair.t_holm for pair in found.pairs] == holm([pair.t for pair in found.pairs]).tolist()
    pair = next(pair for pair in found.pairs if {pair.first, pair.second} == {"high", "low"})
    assert pair.difference == pytest.approx(0.2 if pair.first == "high" else -0.2)
    assert pair.fisher < 1e-40 and pair.verdict == ("better" if pair.first == "high" else "worse")


def test_compare_can_tell_many_systems_apart():
    """After Holm's correction for 780 pairs, 10,000 sign patterns alone could show no difference."""
    scores = np.arange(40)[:, None] / 40 + np.random.default_rng(3).normal(0, 0.02, (40, 60))
    found = compare([f"s{place}" for place in range(40)], scores)
    assert [pair.verdict for pair in found.pairs] == ["better"] * 780


def test_compare_rarely_finds_what_is_not_there():
    # Ten systems that differ by noise alone: Holm keeps the chance of any false difference near alpha.
    random = np.random.default_rng(11)
    false_alarms = 0
    for trial in range(40):
        found = compare([f"s{number}" for number in range(10)], random.random((10, 40)), seed=trial)
        false_alarms += any(len(beside) < 9 for beside in found.together)
    assert false_alarms <= 6


def skewed(random, trials, queries):
    """Scores as of easy queries: many ones, a few zeros, the rest between; and their mean."""
    place = random.random((trials, queries))
    scores = np.where(place < 0.1, 0.0, np.where(place < 0.8, 1.0, random.beta(2, 2, (trials, queries))))
    return scores, 0.7 + 0.2 * 0.5


@pytest.mark.parametrize("queries", [20, 50, 200])
def test_intervals_of_skewed_scores_hold_the_mean(queries):
    """Percentiles hold it too seldom; benchmarks/intervals.py has more kinds of scores and more trials."""
    random = np.random.default_rng(queries)
    held = {"corrected": 0, "percentiles": 0}
    for seed in range(12):  # 100 trials share the draws of their queries
        scores, mean = skewed(random, 100, queries)
        ways = {
            "corrected": bootstrap_interval(scores, samples=1000, seed=seed),
            "percentiles": np.quantile(resampled_means(scores, samples=1000, seed=seed), [0.025, 0.975], axis=0).T,
        }
        for way, ends in ways.items():
            held[way] += int(np.count_nonzero((ends[:, 0] <= mean) & (mean <= ends[:, 1])))
    share = {way: count / 1200 for way, count in held.items()}
    assert 0.925 <= share["corrected"] <= 0.985 and share["corrected"] > share["percentiles"]


def test_intervals_are_bca_from_wider_levels():
    stats = pytest.importorskip("scipy.stats")
    scores, _ = skewed(np.random.default_rng(1), 3, 30)
    tail = stats.norm.cdf(math.sqrt(30 / 29) * stats.t.ppf(0.025, 29))
    for row, ends in zip(scores, bootstrap_interval(scores, samples=20_000), strict=True):
        theirs = stats.bootstrap(
            (row,), np.mean, n_resamples=20_000, confidence_level=1 - 2 * tail, method="BCa", random_state=2
        ).confidence_interval
        assert ends == pytest.approx([theirs.low, theirs.high], abs=0.02)


def test_intervals_of_few_and_of_equal_scores():
    for scores in ([0.0, 1.0], [0.0, 0.0, 1.0], [1.0] * 19 + [0.0], [1e-300, 2e-300, 0.0]):
        ((low, high),) = bootstrap_interval(np.array([scores])).tolist()
        ends = [0.0, low, float(np.mean(scores)), high, 1.0]
        assert ends == pytest.approx(sorted(ends), abs=1e-12)
    row = np.random.default_rng(0).random(40)
    whole = Interval.of(row.mean(), resampled_means(row)[:, 0], row)
    assert [whole.low, whole.high] == pytest.approx(bootstrap_interval(row)[0].tolist(), rel=1e-12)


@pytest.mark.parametrize("queries", [1, 5, 20, 50])
def test_equal_scores_have_wilsons_interval(queries):
    """Of n queries that all score 1: the lower end of Wilson's interval of n of n, n / (n + z^2)."""
    z = 1.959963984540054
    ones, zeros, halves = bootstrap_interval(np.array([[1.0] * queries, [0.0] * queries, [0.5] * queries])).tolist()
    assert ones == pytest.approx([queries / (queries + z * z), 1.0])
    assert zeros == pytest.approx([0.0, z * z / (queries + z * z)])
    assert halves == pytest.approx([0.5 - zeros[1] / 2, 0.5 + zeros[1] / 2])
    ((low, high),) = bootstrap_interval(np.zeros(queries), span=(-1.0, 1.0)).tolist()
    assert (low, high) == pytest.approx((-zeros[1], zeros[1]))  # two systems that have been equal so far


@pytest.mark.parametrize("mean", [0.9, 0.97])
@pytest.mark.parametrize("queries", [5, 10, 20, 50])
def test_intervals_of_zeros_and_ones_hold_the_mean(queries, mean):
    draw = np.random.default_rng(queries)
    scores = (draw.random((400, queries)) < mean).astype(float)
    ends = bootstrap_interval(scores)
    assert np.mean((ends[:, 0] <= mean) & (mean <= ends[:, 1])) >= 0.9

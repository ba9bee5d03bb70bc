"""Statistics of two rankings: worked by hand, and against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from airgen.errors import UsageError
from airgen.evaluation.rank_correlation import average_ranks, kendall, spearman, spearman_p
from airgen.quality.agreement.rankings import (
    Side,
    agree,
    best_third,
    correlate,
    ordered_pairs,
    resamplings,
    same_size_ceiling,
    split_half,
)

stats = pytest.importorskip("scipy.stats")

NAMES = ("a", "b", "c", "d", "e")


def side(means: list[float], queries: int = 40, noise: float = 0.0, seed: int = 0) -> Side:
    """A side whose systems have about these means; the noise of a query is the same for no two systems."""
    random = np.random.default_rng(seed)
    scores = np.array(means)[:, None] + noise * random.standard_normal((len(means), queries))
    return Side(tuple(NAMES[: len(means)]), scores)


# Ties are common and decide tau-b, so values come from a coarse grid.
values = arrays.arrays(np.float64, 8, elements=st.integers(0, 5).map(lambda number: number / 5))


@given(values, values)
@settings(max_examples=150, deadline=None)
def test_both_coefficients_are_scipys_also_with_ties(left, right) -> None:
    if len(set(left)) == 1 or len(set(right)) == 1:
        assert math.isnan(spearman(left, right)) and math.isnan(kendall(left, right))
        return
    assert spearman(left, right) == pytest.approx(stats.spearmanr(left, right).statistic, abs=1e-12)
    assert kendall(left, right) == pytest.approx(stats.kendalltau(left, right).statistic, abs=1e-12)


@given(values)
@settings(max_examples=50, deadline=None)
def test_ranks_are_scipys(found) -> None:
    assert average_ranks(found).tolist() == stats.rankdata(found).tolist()


def test_the_papers_table_5() -> None:
    human = [48.0, 45.232, 45.119, 44.13, 44.122, 43.787, 43.104, 43.056, 42.553, 42.388, 42.253, 41.675, 39.887,
             39.565, 36.57, 33.637, 26.211]  # fmt: skip
    generated = [59.625, 55.26, 54.431, 52.581, 55.513, 59.015, 51.456, 51.438, 51.528, 54.292, 47.989, 48.102, 51.112,
                 54.404, 47.127, 42.107, 34.155]  # fmt: skip
    names = tuple(f"s{place}" for place in range(17))
    found = correlate(
        Side(names, np.array(human)[:, None]), Side(names, np.array(generated)[:, None]), samples=10
    )  # one query each: the means themselves
    assert found.spearman.value == pytest.approx(0.8211, abs=5e-5)
    assert found.p == pytest.approx(5e-5, abs=1e-5)
    assert (found.systems, found.spearman.low, found.spearman.high) == (17, found.spearman.value, found.spearman.value)


def test_a_correlation_worked_by_hand() -> None:
    # Ranks 1 2 3 4 5 against 2 1 3 4 5: rho = 1 - 6 * 2 / (5 * 24) = 0.9, tau = (9 - 1) / 10 = 0.8.
    found = correlate(side([0.1, 0.2, 0.3, 0.4, 0.5]), side([0.2, 0.1, 0.3, 0.4, 0.5]), samples=50)
    assert found.spearman.value == pytest.approx(0.9)
    assert found.kendall.value == pytest.approx(0.8)
    assert found.p == pytest.approx(10 / 120)  # both orders, and the four neighbours of each
    assert (found.spearman.low, found.spearman.high) == pytest.approx((0.9, 0.9))  # no noise, so nothing moves


def test_an_interval_widens_with_noise_and_is_the_same_every_time() -> None:
    human, few = side([0.1, 0.2, 0.3, 0.4, 0.5], noise=0.05), side([0.1, 0.2, 0.3, 0.4, 0.5], 8, noise=0.8, seed=1)
    many = side([0.1, 0.2, 0.3, 0.4, 0.5], 4000, noise=0.8, seed=1)
    wide, narrow = correlate(human, few).spearman, correlate(human, many).spearman
    assert wide.high - wide.low > narrow.high - narrow.low
    assert correlate(human, few).spearman == wide


def test_pairs_that_people_separate() -> None:
    # d and e are told apart by neither side; the generated side puts a above b, which people see the other way round.
    random = np.random.default_rng(0)
    noise = 0.02 * random.standard_normal((5, 60))
    noise[4] = -noise[3]
    human = Side(NAMES, np.array([0.1, 0.3, 0.5, 0.7, 0.7])[:, None] + noise)
    generated = Side(NAMES, np.array([0.3, 0.1, 0.5, 0.7, 0.7])[:, None] + noise)
    found = ordered_pairs(human, generated)
    assert (found.pairs, found.separated, found.same, found.contradicted) == (10, 9, 8, 1)
    assert found.share == pytest.approx(8 / 9)


def test_no_pair_is_separated_where_all_scores_are_one() -> None:
    constant = side([0.5, 0.5, 0.5])
    found = ordered_pairs(constant, constant)
    assert (found.separated, found.same) == (0, 0)
    assert math.isnan(found.share)


def test_split_half_of_a_clear_ranking_is_one_and_of_noise_about_zero() -> None:
    assert split_half(side([0.1, 0.2, 0.3, 0.4, 0.5])) == 1.0
    names = tuple(map(str, range(30)))
    noise = Side(names, np.random.default_rng(3).standard_normal((30, 50)))
    assert abs(split_half(noise)) < 0.3
    assert math.isnan(split_half(side([0.1, 0.2, 0.3], queries=1)))


def test_split_half_by_hand() -> None:
    # Two queries: halves of one query each, which rank three systems in opposite orders.
    scores = np.array([[0.1, 0.3], [0.2, 0.2], [0.3, 0.1]])
    assert split_half(Side(NAMES[:3], scores)) == pytest.approx(-1.0)


def test_the_same_size_ceiling_never_compares_a_query_with_itself() -> None:
    # Two groups of queries with opposite orders: a draw that held both sides' queries would agree with itself.
    scores = np.array([[0.1, 0.3], [0.2, 0.2], [0.3, 0.1]])
    found = same_size_ceiling(Side(NAMES[:3], scores), 60)
    assert found.queries == 1
    assert set(found.values) == {-1.0}
    assert same_size_ceiling(side([0.1, 0.2, 0.3], 40), 15).queries == 15
    assert same_size_ceiling(side([0.1, 0.2, 0.3], 40), 25).queries == 20


def test_thirty_resamplings_take_the_papers_share_without_replacement() -> None:
    human, generated = side([0.1, 0.2, 0.3]), side([0.1, 0.2, 0.3], 6319)
    found = resamplings(human, generated, rounds=3)
    assert (found.queries, len(found.values), found.mean) == (2000, 3, 1.0)
    assert len(resamplings(human, side([0.1, 0.2, 0.3], 60)).values) == 30
    whole = side([0.3, 0.2, 0.1], 5, noise=0.5)
    all_of_them = resamplings(human, whole, queries=99)
    assert all_of_them.queries == 5
    assert all_of_them.mean_p == pytest.approx(spearman_p(human.means, whole.means))
    assert set(all_of_them.values) == {float(spearman(human.means, whole.means))}


def test_agree_leaves_the_weakened_out_and_takes_systems_in_any_order() -> None:
    human = side([0.1, 0.3, 0.2, 0.4, 0.5])
    generated = side([0.05, 0.2, 0.3, 0.4, 0.5])
    shuffled = Side(NAMES[::-1], generated.scores[::-1])
    found = agree(human, shuffled, {"a"}, samples=20)
    assert found.all.spearman.value == pytest.approx(0.9)
    assert found.strong is not None
    assert found.strong.systems == 4
    assert found.strong.spearman.value == pytest.approx(0.8)  # 1 - 6 * 2 / (4 * 15)
    assert agree(human, generated, set(), samples=20).strong is None
    assert agree(human, generated, {"a", "b", "c"}, samples=20).strong is None


def test_agreement_among_the_best_third() -> None:
    names = tuple("abcdefghi")
    human = Side(names, np.tile(np.arange(9.0)[:, None], (1, 4)))
    # The generated side turns the best three round and has the rest right.
    generated = Side(names, np.tile(np.array([0, 1, 2, 3, 4, 5, 8, 7, 6.0])[:, None], (1, 4)))
    found = agree(human, generated, samples=20)
    assert best_third(human) == ("g", "h", "i")
    assert found.top is not None and found.top.systems == 3
    assert found.top.spearman.value == pytest.approx(-1.0) and found.all.spearman.value > 0.9
    assert agree(side([0.1, 0.2, 0.3]), side([0.1, 0.2, 0.3]), samples=20).top is None  # one system is no ranking


def test_constant_scores_are_undefined_not_zero() -> None:
    found = agree(side([0.1, 0.2, 0.3]), side([0.5, 0.5, 0.5]), samples=20)
    assert math.isnan(found.all.spearman.value) and math.isnan(found.all.p)


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_systems(count: int) -> None:
    few = side([0.1, 0.2][:count])
    with pytest.raises(UsageError, match=f"{count} system.*at least 3"):
        correlate(few, few)


def test_sides_must_hold_the_same_systems() -> None:
    with pytest.raises(UsageError, match="no scores of the system 'd'"):
        agree(side([0.1, 0.2, 0.3, 0.4]), side([0.1, 0.2, 0.3]))

"""The budget of a job, also over processes that were killed."""

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from child import start
from simulation import ask_all, requests

from airgen.errors import BudgetSpent, UsageError
from airgen.llms.money import Budget, Price, Usage, cost
from airgen.storage.records import Reservation
from airgen.storage.store import Store

CENT = Price(10_000.0, 10_000.0, 10_000.0)  # a cent a token


def left_open(key: str, usd: float) -> Reservation:
    return Reservation(key, "answer", "query", "scripted", "default", usd)


def test_without_a_limit_everything_fits_and_is_summed() -> None:
    budget = Budget()
    assert (budget.limit, budget.spent) == (None, 0.0)
    assert budget.reserve(1e9, "a") == [] and budget.spent == 0.0
    budget.settle(1e9, 2.5)
    assert budget.spent == 2.5


def test_the_limit_itself_may_be_reached_and_not_be_passed() -> None:
    for budget, call in ((Budget(0.5), 0.5), (Budget(10.0, 8.0), 2.0), (Budget(math.inf), 1e300)):
        assert budget.reserve(call, "a") == []
    with pytest.raises(BudgetSpent) as stopped:
        Budget(10.0, 8.0).reserve(2.0001, "a")
    assert str(stopped.value) == (
        "budget: $8.00 of $10.00 is spent and the next call could cost $2.00: "
        "raise the budget and run the same command again to continue"
    )


def test_a_budget_of_nothing_pays_for_what_is_free() -> None:
    budget = Budget(0.0)
    assert budget.reserve(0.0, "a") == []
    assert budget.reserve(0.01, "a") is None, "the free call is in flight"
    budget.settle(0.0, 0.0)
    with pytest.raises(BudgetSpent):
        budget.reserve(0.01, "a")


def test_calls_in_flight_are_counted_and_what_they_do_not_use_is_given_back() -> None:
    budget = Budget(10.0)
    assert budget.reserve(5.0, "a") == [] and budget.reserve(4.0, "a") == []
    assert budget.reserve(1.5, "a") is None, "9 are in flight; it may fit when they have ended"
    assert budget.reserve(1.0, "a") == []
    assert budget.spent == 0.0, "reserved is not spent"
    budget.settle(5.0, 1.0)  # 1 spent, 4 + 1 in flight: 4 are free
    assert budget.reserve(4.5, "a") is None
    assert budget.reserve(4.0, "a") == []
    budget.settle(4.0, 2.0)
    budget.settle(1.0, 0.0)
    assert budget.reserve(0.0, "a") == [] and budget.spent == 3.0  # two calls in flight still
    budget.settle(4.0, 4.0)
    assert budget.reserve(3.5, "a") is None, "the free call is in flight"
    assert budget.reserve(3.0, "a") == []
    budget.settle(0.0, 0.0), budget.settle(3.0, 0.0)
    with pytest.raises(BudgetSpent, match=r"\$7\.00 of \$10\.00 is spent and the next call could cost \$3\.50"):
        budget.reserve(3.5, "a")
    assert budget.reserve(3.0, "a") == []


def test_when_all_calls_have_ended_nothing_is_reserved_whatever_the_sums_of_floats_say() -> None:
    budget = Budget(10.0)
    amounts = (0.1, 0.2, 0.3)
    assert sum(amounts) - 0.1 - 0.2 - 0.3 > 0
    for amount in amounts:
        budget.reserve(amount, "a")
    for amount in amounts:
        budget.settle(amount, 0.0)
    assert budget.reserve(10.0, "a") == []


def test_what_is_reserved_is_never_below_zero() -> None:
    """A sum of floats a hair below 0 is no room for a call that does not fit."""
    hair = 0.7 + 0.1 - 0.7 - 0.1
    assert hair < 0
    budget = Budget(-hair / 4)
    budget.reserve(0.0, "a")
    budget.limit = 10.0
    budget.reserve(0.7, "a"), budget.reserve(0.1, "a")
    budget.settle(0.7, 0.0), budget.settle(0.1, 0.0)
    budget.limit = -hair / 4
    assert budget.reserve(-hair / 2, "a") is None


def test_a_new_call_replaces_the_open_reservations_of_its_answer() -> None:
    """A batch goes on when the process is killed, so its answer is not counted twice."""
    given = {"answer": [left_open("r1", 4.0), left_open("r2", 2.0)], "other": [left_open("r3", 1.0)]}
    budget = Budget(10.0, 8.0, given)
    with pytest.raises(BudgetSpent, match=r"\$8\.00 of"):
        budget.reserve(3.0, "another")
    with pytest.raises(BudgetSpent, match=r"\$2\.00 of"):
        budget.reserve(8.5, "answer")
    assert budget.spent == 8.0, "what was refused changes nothing"
    assert budget.reserve(6.0, "answer") == ["r1", "r2"]
    assert budget.spent == 2.0
    assert budget.reserve(1.0, "answer") == [] and budget.spent == 2.0, "they are replaced once"
    budget.settle(6.0, 1.0), budget.settle(1.0, 0.5)
    assert budget.spent == 3.5
    assert set(given) == {"answer", "other"}, "the caller's mapping stays as it is"


def test_more_open_reservations_than_spent_leave_nothing_spent() -> None:
    budget = Budget(10.0, 6.0, {"answer": [left_open("r", 6.0000001)]})
    assert budget.reserve(1.0, "answer") == ["r"]
    assert budget.spent == 0.0


@pytest.mark.parametrize("limit", [-1.0, -0.001, float("nan")])
def test_a_limit_that_is_no_amount(limit: float) -> None:
    with pytest.raises(UsageError, match=r"budget: .* is not an amount in US dollars: give 0 or more"):
        Budget(limit)


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        (Usage(10, 0, 5), 0.15),
        (Usage(1, 0, 0), 0.01),
        (Usage(10, 10**9, 5), 0.15),  # no more tokens are cached than there are
        (Usage(150, 0, 50), 2.0),
        (Usage(150, 0, 51), 2.01),  # more than was reserved, but it is what the server bills
        (None, 0.0),
        (Usage(), 2.0),
        (Usage(0, 0, 5), 2.0),
        (Usage(-1, 0, 5), 2.0),
        (Usage(5, 0, -1), 2.0),
        (Usage(5, -1, 1), 2.0),
    ],
)
def test_what_an_attempt_cost(usage: Usage | None, usd: float) -> None:
    assert cost(CENT, usage, 2.0) == pytest.approx(usd)


def test_fresh_cached_and_generated_tokens_have_their_prices() -> None:
    price = Price(input=3e6, cached=1e6, output=7e6)
    assert cost(price, Usage(10, 4, 2), 1000.0) == 6 * 3 + 4 * 1 + 2 * 7
    assert cost(price, Usage(10, 11, 2), 1000.0) == 10 * 1 + 2 * 7


# -- resume -----------------------------------------------------------------------------------------------------------


CONCURRENCY = 32


def job(base_url: str, path: str, n: int) -> list[str]:
    answers, _ = ask_all(base_url, Path(path), requests(n), concurrency=CONCURRENCY)
    return [answer.text for answer in answers]


CALLS = 200


@pytest.mark.parametrize("after", [1, 120])
def test_killed_and_resumed(after: int, loopback: Callable[..., Any], tmp_path: Path) -> None:
    server, path = loopback(latency=0.02), tmp_path / "w.duckdb"
    with start(Path(__file__).read_text(encoding="utf-8"), server.base_url, path) as child:
        while server.stats()["answered"] < after:
            assert child.returncode is None, "the job ended before it could be killed"
            time.sleep(0.001)  # not a wait for luck: the server's own count decides
        child.kill()
    with Store.open(path) as store:
        (kept,) = store.query("SELECT count(*) FROM answer")[0]
    before = server.stats()["requests"]
    texts = job(server.base_url, str(path), CALLS)
    stats = server.stats()
    assert stats["requests"] - before == CALLS - kept  # nothing that reached the disk is asked again
    assert stats["requests"] - CALLS <= CONCURRENCY + 32
    assert len(set(texts)) == CALLS
    assert job(server.base_url, str(path), CALLS) == texts
    assert server.stats()["requests"] == stats["requests"]  # a finished job makes no call


if __name__ == "__main__":
    job(sys.argv[1], sys.argv[2], CALLS)

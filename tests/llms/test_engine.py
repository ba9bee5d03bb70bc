"""The engine in simulated time: every figure is exact."""

import asyncio
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import MemoryStore, Simulated, engine_of, failing, now, outcomes_of, requests, simulated

from airgen.errors import AirgenError, BudgetSpent, LlmError, SettingsError, Stopped
from airgen.llms.base import CallLimits, Message, Refused, Reply, Request, Retry
from airgen.llms.call_queue import Connection
from airgen.llms.engine import Engine
from airgen.llms.money import Price

DOLLAR = Price(10_000.0, 10_000.0, 10_000.0)  # a cent a token


def number_of(request: Request) -> int:
    return int(request.messages[0].content.split()[1])


@simulated
async def test_answers_come_from_the_disk_the_second_time() -> None:
    store, first, second = MemoryStore(), Simulated(), Simulated()
    fresh, _ = await outcomes_of(first, 100, store)
    again, engine = await outcomes_of(second, 100, store)
    assert (engine.usage()["query"].from_disk, engine.usage()["query"].calls) == (100, 0)
    assert fresh == again
    assert len(first.sent) == 100 and second.sent == []
    assert first.closed and second.closed


@simulated
async def test_identical_requests_are_sent_once_while_they_are_on_the_way() -> None:
    backend = Simulated(latency=1)
    async with engine_of(backend, MemoryStore()) as engine:
        early = asyncio.gather(*(engine.ask(requests(1)[0]) for _ in range(50)))
        await asyncio.sleep(0.5)  # on the wire by now
        late = asyncio.gather(*(engine.ask(requests(1)[0]) for _ in range(50)))
        answers = [*await early, *await late]
    assert len(backend.sent) == 1 and len({id(answer) for answer in answers}) == 1


@simulated
async def test_an_answer_is_on_the_disk_before_anyone_sees_it() -> None:
    store = MemoryStore()
    async with engine_of(Simulated(), store) as engine:

        async def check(request: Request) -> None:
            answer = await engine.ask(request)
            assert store.rows[answer.key] is answer

        await asyncio.gather(*(check(request) for request in requests(200)))


@simulated
async def test_calls_start_in_the_order_they_were_asked_and_a_retried_one_keeps_its_place() -> None:
    stumble = failing(Retry("http_500"), lambda number, attempt: number == 3 and attempt == 1)
    backend = Simulated(latency=1, behave=stumble)
    await outcomes_of(backend, 10, concurrency=2, backoff=0.01)
    order = [number_of(request) for request in backend.sent]
    assert [number for i, number in enumerate(order) if number not in order[:i]] == list(range(10))
    assert order.index(5) > order.index(3) + 1 and order[:7].count(3) == 2


def test_a_stage_is_not_in_the_key_but_all_that_changes_the_answer_is() -> None:
    base = Request("m", (Message("user", "x"),), {"temperature": 1.0}, {"type": "object"}, stage="a")
    assert base.key == replace(base, stage="b", room=9).key
    others = [
        replace(base, model="n"),
        replace(base, messages=(Message("system", "x"),)),
        replace(base, messages=(Message("system", "s"), *base.messages)),
        replace(base, params={"temperature": 0.9}),
        replace(base, schema={"type": "array"}),
        replace(base, sample=1),
        replace(base, endpoint="other"),
    ]
    assert len({base.key, *(request.key for request in others)}) == 8


# -- failures -----------------------------------------------------------------------------------------------------


@simulated
async def test_a_refusal_is_a_row_and_asked_again_only_when_told_to() -> None:
    store = MemoryStore()
    (answer,), engine = await outcomes_of(Simulated(behave=failing(Refused("content_filter", "no"))), 1, store)
    assert (answer.error, answer.text) == ("content_filter", "no")
    assert engine.usage()["query"].failures == {"content_filter": 1}
    calm = Simulated()
    assert (await outcomes_of(calm, 1, store))[0] == [answer] and not calm.sent
    (healed,), _ = await outcomes_of(Simulated(), 1, store, retry_failed=True)
    assert healed.error == "" and store.rows[healed.key] == healed


@simulated
async def test_what_fails_while_others_succeed_is_its_own_fault() -> None:
    poisoned = failing(Retry("http_500", detail="boom"), lambda number, attempt: number in (3, 7, 8, 9))
    answers, _ = await outcomes_of(Simulated(behave=poisoned), 1000, concurrency=1)
    assert [place for place, answer in enumerate(answers) if answer.error] == [3, 7, 8, 9]


@simulated
async def test_a_dead_server_stops_the_run_records_no_failure_and_says_how_to_go_on() -> None:
    dies = failing(Retry("connection", detail="connection refused"), lambda number, attempt: now() > 2.0)
    store, backend = MemoryStore(), Simulated(behave=dies)
    outcomes, _ = await outcomes_of(backend, 1000, store, concurrency=8)
    stopped = [outcome for outcome in outcomes if isinstance(outcome, Stopped)]
    assert len(stopped) == 1000 - len(store.rows) > 0
    assert "connection refused" in str(stopped[0]) and "same command" in str(stopped[0])
    assert not [row for row in store.rows.values() if row.error]
    assert now() < 60 and len(backend.sent) < len(store.rows) + 8 * 7
    assert all(answer.text for answer in (await outcomes_of(Simulated(), 1000, store))[0])


@simulated
async def test_an_endpoint_that_refuses_for_good_stops_at_once() -> None:
    backend = Simulated(behave=failing(LlmError("HTTP 401: wrong key")))
    async with engine_of(backend, MemoryStore(), concurrency=64) as engine:
        outcomes = await asyncio.gather(*(engine.ask(one) for one in requests(500)), return_exceptions=True)
        assert {str(outcome) for outcome in outcomes} == {"HTTP 401: wrong key"}
        assert len(backend.sent) <= 16
        with pytest.raises(LlmError, match="wrong key"):
            await engine.ask(requests(1, stage="later", temperature=0)[0])


@simulated
async def test_a_model_that_answers_less_than_half_of_its_calls_stops_the_run_with_the_count_by_reason() -> None:
    backend = Simulated(behave=failing(Refused("refusal"), lambda number, attempt: number >= 100 and number % 4 > 0))
    outcomes, _ = await outcomes_of(backend, 500)
    stops = [outcome for outcome in outcomes if isinstance(outcome, LlmError)]
    assert stops and "calls to m at endpoint 'default' failed" in str(stops[0]) and "refusal" in str(stops[0])
    assert len(backend.sent) < 100 + 16 + 60


@simulated
async def test_a_defect_in_a_backend_reaches_whoever_waits() -> None:
    class Broken(Simulated):
        async def send(self, request: Request) -> Reply:
            raise ZeroDivisionError("a bug")

    outcomes, _ = await outcomes_of(Broken(), 20, concurrency=2)
    kinds = {type(outcome) for outcome in outcomes}
    assert LlmError in kinds and kinds <= {LlmError, Stopped}
    assert "ZeroDivisionError: a bug" in str(next(outcome for outcome in outcomes if type(outcome) is LlmError))


@simulated
async def test_stopping_lets_calls_in_flight_finish_and_keeps_them() -> None:
    store, backend = MemoryStore(), Simulated(latency=5)
    async with engine_of(backend, store, concurrency=10) as engine:
        task = asyncio.gather(*(engine.ask(one) for one in requests(100)), return_exceptions=True)
        await asyncio.sleep(1)
        engine.stop()
        outcomes = await task
    assert Counter(type(outcome).__name__ for outcome in outcomes) == {"Answer": 10, "Stopped": 90}
    assert len(store.rows) == len(backend.sent) == 10


@simulated
async def test_a_call_nobody_waits_for_any_more_is_not_sent_but_one_on_the_wire_is_kept() -> None:
    store, backend = MemoryStore(), Simulated(latency=5)
    async with engine_of(backend, store, concurrency=4) as engine:
        tasks = [asyncio.ensure_future(engine.ask(request)) for request in requests(10)]
        await asyncio.sleep(1)
        for task in tasks:
            task.cancel()
        await asyncio.sleep(20)
    assert len(backend.sent) == len(store.rows) == 4


@simulated
async def test_each_model_has_its_own_limits_and_failures() -> None:
    """Failures of one model are not hidden by answers of another."""
    quick, slow, broken = Simulated(latency=5), Simulated(latency=500), Simulated(behave=failing(Refused("refusal")))
    llms = {
        ("default", "m"): Connection(quick, CallLimits(concurrency=2, timeout=10)),
        ("default", "judge"): Connection(slow, CallLimits(concurrency=50, adaptive=False, timeout=1000)),
        ("second", "m"): Connection(broken),
    }
    async with Engine(MemoryStore(), llms) as engine:  # type: ignore[arg-type]
        judged = [replace(request, model="judge", stage="judgment") for request in requests(50)]
        refused = [replace(request, endpoint="second") for request in requests(100)]
        answers = await asyncio.gather(*(engine.ask(one) for one in [*requests(10), *judged, *refused[:9]]))
        assert [answer.error for answer in answers] == [""] * 60 + ["refusal"] * 9
        with pytest.raises(SettingsError, match=r"no LLM of this job is 'x' at endpoint 'default' \(known: 'm' at"):
            await engine.ask(replace(judged[0], model="x"))
        late = [*(replace(one, sample=1) for one in judged), *refused[9:]]
        outcomes = await asyncio.gather(*(engine.ask(one) for one in late), return_exceptions=True)
        assert any("calls to m at endpoint 'second'" in str(one) for one in outcomes if isinstance(one, LlmError))
    assert (quick.most, slow.most) == (2, 50) and quick.closed and slow.closed


# -- money --------------------------------------------------------------------------------------------------------


@simulated
async def test_a_budget_is_never_passed_and_nearly_used_up() -> None:
    """Each call reserves 100 tokens of output and about 20 of input, and uses 110: 1.10 dollars."""
    store = MemoryStore()
    outcomes, engine = await outcomes_of(Simulated(), 500, store, concurrency=8, budget_usd=50, price=DOLLAR)
    spent = [outcome for outcome in outcomes if isinstance(outcome, BudgetSpent)]
    assert engine.spent_usd == pytest.approx(sum(row.cost_usd for row in store.rows.values()))
    assert 45 < engine.spent_usd <= 50 and "raise the budget" in str(spent[0]) and len(spent) + len(store.rows) == 500
    more = {"budget_usd": 1000, "spent_usd": engine.spent_usd}
    answers, engine = await outcomes_of(Simulated(), 500, store, concurrency=8, price=DOLLAR, **more)
    assert all(answer.text for answer in answers) and engine.spent_usd == pytest.approx(550)


@simulated
async def test_a_budget_needs_prices() -> None:
    backend = Simulated()
    (stop,), _ = await outcomes_of(backend, 1, budget_usd=1, price=None)
    assert isinstance(stop, SettingsError) and "price unknown for model 'm'" in str(stop) and not backend.sent


@settings(max_examples=30, deadline=None)
@given(
    budget=st.floats(0, 60),
    concurrency=st.integers(1, 40),
    used=st.lists(st.integers(0, 100), min_size=1, max_size=40),
)
@simulated
async def test_property_no_budget_is_ever_passed(budget: float, concurrency: int, used: list[int]) -> None:
    class Varied(Simulated):
        async def send(self, request: Request) -> Reply:
            tokens = used[number_of(request) % len(used)]
            await asyncio.sleep(0.01 + tokens / 100)
            return Reply("x", prompt_tokens=9, completion_tokens=tokens)

    store = MemoryStore()
    outcomes, engine = await outcomes_of(Varied(), 60, store, concurrency=concurrency, budget_usd=budget, price=DOLLAR)
    assert engine.spent_usd <= budget + 1e-9
    assert sum(not isinstance(outcome, AirgenError) for outcome in outcomes) == len(store.rows)


# -- everything goes wrong ----------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), concurrency=st.integers(1, 100))
@simulated
async def test_property_every_request_ends_once_whatever_happens(seed: int, concurrency: int) -> None:
    """Faults strike first attempts at random: all rows are there, none twice, and the same as undisturbed."""

    def faulty(request: Request, attempt: int) -> None:
        if attempt <= 2 and Random(f"{seed}{request.key}{attempt}").random() < 0.3:
            raise Retry(Random(f"{seed}{request.key}").choice(["http_500", "rate_limit", "connection", "bad_body"]))
        if number_of(request) % 50 == 0:
            raise Refused("content_filter")

    store = MemoryStore()
    answers, engine = await outcomes_of(Simulated(behave=faulty), 120, store, concurrency=concurrency)
    usage = engine.usage()["query"]
    assert [answer.error for answer in answers] == ["content_filter" if i % 50 == 0 else "" for i in range(120)]
    assert len(store.rows) == 120
    assert (usage.in_flight, usage.waiting, usage.calls) == (0, 0, 120)

"""The engine in simulated time: every figure is exact."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import MemoryStore, Simulated, engine_of, now, requests, simulated

from airgen.errors import AirgenError, BudgetSpent, LlmError, SettingsError, Stopped
from airgen.llms.base import CallLimits, Message, Refused, Reply, Request, Retry
from airgen.llms.call_queue import Connection
from airgen.llms.engine import Engine
from airgen.llms.money import Price

DOLLAR = Price(10_000.0, 10_000.0, 10_000.0)  # a cent a token


async def ask_all(engine: Engine, wanted: list[Request]) -> list[object]:
    return await asyncio.gather(*(engine.ask(request) for request in wanted), return_exceptions=True)


@simulated
async def test_answers_come_from_the_disk_the_second_time() -> None:
    store, wanted = MemoryStore(), requests(100)
    first, second = Simulated(), Simulated()
    async with engine_of(first, store) as engine:
        fresh = await ask_all(engine, wanted)
    async with engine_of(second, store) as engine:
        again = await ask_all(engine, wanted)
        assert engine.usage()["query"].from_disk == 100
        assert engine.usage()["query"].calls == 0
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
    def stumble(request: Request, attempt: int) -> None:
        if request.messages[0].content == "number 3" and attempt == 1:
            raise Retry("http_500")

    backend = Simulated(latency=1, behave=stumble)
    async with engine_of(backend, MemoryStore(), concurrency=2, backoff=0.01) as engine:
        await ask_all(engine, requests(10))
    order = [int(request.messages[0].content.split()[1]) for request in backend.sent]
    assert [number for i, number in enumerate(order) if number not in order[:i]] == list(range(10))
    assert order.index(5) > order.index(3) + 1 and order[:7].count(3) == 2


def test_a_stage_is_not_in_the_key_but_all_that_changes_the_answer_is() -> None:
    base = Request("m", (Message("user", "x"),), {"temperature": 1.0}, {"type": "object"}, stage="a")
    assert base.key == Request("m", (Message("user", "x"),), {"temperature": 1.0}, {"type": "object"}, stage="b").key
    others = [
        Request("n", base.messages, base.params, base.schema),
        Request("m", (Message("system", "x"),), base.params, base.schema),
        Request("m", (Message("system", "s"), *base.messages), base.params, base.schema),
        Request("m", base.messages, {"temperature": 0.9}, base.schema),
        Request("m", base.messages, base.params, {"type": "array"}),
        Request("m", base.messages, base.params, base.schema, sample=1),
        Request("m", base.messages, base.params, base.schema, endpoint="other"),
    ]
    assert len({base.key, *(request.key for request in others)}) == 8


# -- failures -----------------------------------------------------------------------------------------------------


@simulated
async def test_a_refusal_is_a_row_and_asked_again_only_when_told_to() -> None:
    def refuse(request: Request, attempt: int) -> None:
        raise Refused("content_filter", "no")

    store = MemoryStore()
    async with engine_of(Simulated(behave=refuse), store) as engine:
        (answer,) = await ask_all(engine, requests(1))
        assert (answer.error, answer.text) == ("content_filter", "no")  # type: ignore[attr-defined]
        assert engine.usage()["query"].failures == {"content_filter": 1}
    calm = Simulated()
    async with engine_of(calm, store) as engine:
        assert await ask_all(engine, requests(1)) == [answer] and not calm.sent
    async with engine_of(Simulated(), store, retry_failed=True) as engine:
        (healed,) = await ask_all(engine, requests(1))
        assert healed.error == "" and store.rows[healed.key] == healed  # type: ignore[attr-defined]


@simulated
async def test_passing_failures_are_retried_and_counted() -> None:
    def flaky(request: Request, attempt: int) -> None:
        if attempt <= 2:
            raise Retry(["http_500", "connection"][attempt - 1])

    backend = Simulated(behave=flaky)
    async with engine_of(backend, MemoryStore()) as engine:
        answers = await ask_all(engine, requests(40))
        assert not [answer for answer in answers if getattr(answer, "error", "x")]
        assert engine.usage()["query"].retries == {"http_500": 40, "connection": 40}
        assert engine.usage()["query"].calls == 40


@simulated
async def test_what_fails_while_others_succeed_is_its_own_fault() -> None:
    def poisoned(request: Request, attempt: int) -> None:
        if request.messages[0].content in ("number 3", "number 7", "number 8", "number 9"):
            raise Retry("http_500", detail="boom")

    async with engine_of(Simulated(behave=poisoned), MemoryStore(), concurrency=1) as engine:
        answers = await ask_all(engine, requests(20))
    errors = [getattr(answer, "error", repr(answer)) for answer in answers]
    assert [i for i, error in enumerate(errors) if error] == [3, 7, 8, 9]


@simulated
async def test_a_dead_server_stops_the_run_records_no_failure_and_says_how_to_go_on() -> None:
    def dies(request: Request, attempt: int) -> None:
        if now() > 2.0:
            raise Retry("connection", detail="connection refused")

    store, backend = MemoryStore(), Simulated(behave=dies)
    async with engine_of(backend, store, concurrency=8) as engine:
        outcomes = await ask_all(engine, requests(1000))
        spent = now()
    stopped = [outcome for outcome in outcomes if isinstance(outcome, Stopped)]
    assert len(stopped) == 1000 - len(store.rows) > 0
    assert "connection refused" in str(stopped[0]) and "same command" in str(stopped[0])
    assert not [row for row in store.rows.values() if row.error]
    assert spent < 60 and len(backend.sent) < len(store.rows) + 8 * 7

    async with engine_of(Simulated(), store) as engine:
        assert all(answer.text for answer in await ask_all(engine, requests(1000)))  # type: ignore[attr-defined]


@simulated
async def test_a_single_request_that_times_out_is_repeated_twice_then_a_row() -> None:
    backend = Simulated(latency=100)
    async with engine_of(backend, MemoryStore(), timeout=10) as engine:
        (answer,) = await ask_all(engine, requests(1))
    assert answer.error == "timeout" and len(backend.sent) == 3  # type: ignore[attr-defined]


@simulated
async def test_an_endpoint_that_refuses_for_good_stops_at_once() -> None:
    def wrong_key(request: Request, attempt: int) -> None:
        raise LlmError("HTTP 401: wrong key")

    backend = Simulated(behave=wrong_key)
    async with engine_of(backend, MemoryStore(), concurrency=64) as engine:
        outcomes = await ask_all(engine, requests(5000))
        assert {str(outcome) for outcome in outcomes} == {"HTTP 401: wrong key"}
        assert len(backend.sent) <= 16
        with pytest.raises(LlmError, match="wrong key"):
            await engine.ask(requests(1, stage="later", temperature=0)[0])


@simulated
async def test_a_model_that_answers_less_than_half_of_its_calls_stops_the_run_with_the_count_by_reason() -> None:
    def refuse(request: Request, attempt: int) -> None:
        number = int(request.messages[0].content.split()[1])
        if number >= 100 and number % 4:
            raise Refused("refusal")

    backend = Simulated(behave=refuse)
    async with engine_of(backend, MemoryStore()) as engine:
        outcomes = await ask_all(engine, requests(500))
    stops = [outcome for outcome in outcomes if isinstance(outcome, LlmError)]
    assert stops and "calls to m at endpoint 'default' failed" in str(stops[0]) and "refusal" in str(stops[0])
    assert len(backend.sent) < 100 + 16 + 60


@simulated
async def test_a_defect_in_a_backend_reaches_whoever_waits() -> None:
    class Broken(Simulated):
        async def send(self, request: Request) -> Reply:
            raise ZeroDivisionError("a bug")

    async with engine_of(Broken(), MemoryStore(), concurrency=2) as engine:
        outcomes = await ask_all(engine, requests(20))
    assert {type(outcome) for outcome in outcomes} <= {ZeroDivisionError, Stopped}
    assert any(isinstance(outcome, ZeroDivisionError) for outcome in outcomes)


@simulated
async def test_stopping_lets_calls_in_flight_finish_and_keeps_them() -> None:
    store, backend = MemoryStore(), Simulated(latency=5)
    async with engine_of(backend, store, concurrency=10) as engine:
        task = asyncio.ensure_future(ask_all(engine, requests(100)))
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
    def refuse(request: Request, attempt: int) -> None:
        raise Refused("refusal")

    quick, slow, broken = Simulated(latency=5), Simulated(latency=500), Simulated(behave=refuse)
    llms = {
        ("default", "m"): Connection(quick, CallLimits(concurrency=2, timeout=10)),
        ("default", "judge"): Connection(slow, CallLimits(concurrency=50, adaptive=False, timeout=1000)),
        ("second", "m"): Connection(broken),
    }
    async with Engine(MemoryStore(), llms) as engine:
        judged = [replace(request, model="judge", stage="judgment") for request in requests(50)]
        refused = [replace(request, endpoint="second") for request in requests(9)]
        answers = await ask_all(engine, [*requests(10), *judged, *refused])
        with pytest.raises(SettingsError, match=r"no LLM of this job is 'x' at endpoint 'default' \(known: 'm' at"):
            await engine.ask(replace(judged[0], model="x"))
    assert [answer.error for answer in answers] == [""] * 60 + ["refusal"] * 9  # type: ignore[attr-defined]
    assert (quick.most, slow.most) == (2, 50) and quick.closed and slow.closed


@simulated
async def test_failures_of_one_model_are_not_hidden_by_answers_of_another() -> None:
    def refuse(request: Request, attempt: int) -> None:
        raise Refused("refusal")

    good, bad = Connection(Simulated()), Connection(Simulated(behave=refuse))
    async with Engine(MemoryStore(), {("default", "m"): good, ("default", "judge"): bad}) as engine:
        judged = [replace(request, model="judge") for request in requests(100)]
        outcomes = await ask_all(engine, [*requests(1000), *judged])
    assert any("calls to judge at" in str(one) for one in outcomes if isinstance(one, LlmError))


# -- money --------------------------------------------------------------------------------------------------------


@simulated
async def test_a_budget_is_never_passed_and_nearly_used_up() -> None:
    store = MemoryStore()
    # Each call reserves 100 tokens of output and about 20 of input, and uses 110: 1.10 dollars.
    async with engine_of(Simulated(), store, concurrency=8, budget_usd=50, price=DOLLAR) as engine:
        outcomes = await ask_all(engine, requests(500))
        assert engine.spent_usd == pytest.approx(sum(row.cost_usd for row in store.rows.values()))
        assert 45 < engine.spent_usd <= 50
    spent = [outcome for outcome in outcomes if isinstance(outcome, BudgetSpent)]
    assert len(spent) + len(store.rows) == 500 and "raise the budget" in str(spent[0])

    async with engine_of(
        Simulated(), store, concurrency=8, budget_usd=1000, spent_usd=engine.spent_usd, price=DOLLAR
    ) as engine:
        assert all(answer.text for answer in await ask_all(engine, requests(500)))  # type: ignore[attr-defined]
        assert engine.spent_usd == pytest.approx(550)


@simulated
async def test_a_budget_needs_prices() -> None:
    backend = Simulated()
    async with engine_of(backend, MemoryStore(), budget_usd=1, price=None) as engine:
        with pytest.raises(SettingsError, match="price unknown for model 'm'"):
            await engine.ask(requests(1)[0])
    assert not backend.sent


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
            i = int(request.messages[0].content.split()[1])
            await asyncio.sleep(0.01 + used[i % len(used)] / 100)
            return Reply("x", prompt_tokens=9, completion_tokens=used[i % len(used)])

    store = MemoryStore()
    async with engine_of(Varied(), store, concurrency=concurrency, budget_usd=budget, price=DOLLAR) as engine:
        outcomes = await ask_all(engine, requests(60))
        assert engine.spent_usd <= budget + 1e-9
    assert sum(not isinstance(outcome, AirgenError) for outcome in outcomes) == len(store.rows)


# -- everything goes wrong ----------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), concurrency=st.integers(1, 100))
@simulated
async def test_property_every_request_ends_once_whatever_happens(seed: int, concurrency: int) -> None:
    """Faults strike first attempts at random: all rows are there, none twice, and the same as undisturbed."""
    import random

    def faulty(request: Request, attempt: int) -> None:
        draw = random.Random(f"{seed}{request.key}{attempt}").random()
        if attempt <= 2 and draw < 0.3:
            raise Retry(
                random.Random(f"{seed}{request.key}").choice(["http_500", "rate_limit", "connection", "bad_body"])
            )
        if int(request.messages[0].content.split()[1]) % 50 == 0:
            raise Refused("content_filter")

    store = MemoryStore()
    async with engine_of(Simulated(behave=faulty), store, concurrency=concurrency) as engine:
        answers = await ask_all(engine, requests(300))
        usage = engine.usage()["query"]
    assert [answer.error for answer in answers] == ["content_filter" if i % 50 == 0 else "" for i in range(300)]  # type: ignore[attr-defined]
    assert len(store.rows) == 300
    assert (usage.in_flight, usage.waiting, usage.calls) == (0, 0, 300)

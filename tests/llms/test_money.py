"""Money: prices, usage and what a call costs."""

import asyncio
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import MemoryStore, Simulated, engine_of, outcomes_of, requests, simulate, simulated

from airgen.errors import BudgetSpent, SettingsError
from airgen.job.show import status_study
from airgen.llms.base import Backend, Message, Refused, Reply, Request, Retry
from airgen.llms.call_queue import Connection
from airgen.llms.chat import count_messages, most_prompt_tokens
from airgen.llms.engine import Engine
from airgen.llms.money import FREE, Budget, Price, Usage, price, unknown_price
from airgen.settings import Pipeline
from airgen.steps.ask import make_engine, money
from airgen.storage.records import Answer, Payment, Reservation
from airgen.storage.store import Store
from airgen.text.token_counts import count_tokens

CENT = Price(10_000.0, 10_000.0, 10_000.0)  # a cent a token


HISTORIES = 20_000 if os.environ.get("AIRGEN_FUZZ") else 200


class Mortal(MemoryStore):
    """A store whose process can be killed: what was not written then never is."""

    dead = False

    async def commit(self, rows: object) -> None:
        await asyncio.sleep(0)
        if self.dead:
            await asyncio.Event().wait()
        await super().commit(rows)  # type: ignore[arg-type]


class Greedy(Backend):
    """Bills what it likes within the reservation, and answers, refuses, breaks off or says nonsense about it.

    It keeps to one rule: a usage that a request can have is what it bills.
    """

    def __init__(self, random: Random) -> None:
        self.random, self.billed = random, 0.0

    async def send(self, request: Request) -> Reply:
        random = self.random
        prompt, output = most_prompt_tokens(request), int(request.params["max_tokens"]) + request.room
        honest = Usage(random.randint(1, prompt), 0, random.randint(0, output))
        kind = random.choice(["honest", "honest", "silent", "absurd", "negative", "refused", "mute", "bad", "hang",
                              "drop", "http_500", "rate_limit"])  # fmt: skip
        truth = honest.prompt_tokens + honest.completion_tokens
        if kind in ("silent", "absurd", "negative", "mute", "bad", "hang", "drop"):
            truth = random.choice([truth, prompt + output])
        self.billed += 0.0 if kind in ("http_500", "rate_limit") else truth / 100
        await asyncio.sleep(random.uniform(0, 0.2))
        if kind == "hang":
            await asyncio.sleep(1e6)
        if kind in ("refused", "mute"):
            raise Refused("refusal", usage=honest if kind == "refused" else Usage())
        if kind in ("http_500", "rate_limit"):
            raise Retry(kind)
        if kind in ("bad", "drop"):
            raise Retry({"bad": "bad_body", "drop": "connection"}[kind], usage=None if kind == "bad" else Usage())
        if kind == "absurd":
            return Reply("x", prompt_tokens=10**6, completion_tokens=10**6)
        if kind == "negative":
            return Reply("x", prompt_tokens=honest.prompt_tokens, completion_tokens=-(10**6))
        return Reply(
            "x",
            prompt_tokens=honest.prompt_tokens,
            completion_tokens=honest.completion_tokens,
            estimated=kind == "silent",
        )


class Thoughtful(Greedy):
    """Thinks as long as it may, on the bill, and often to no end; then it gets more room."""

    thinks = 0

    def room(self, request: Request) -> int:
        return self.thinks

    async def send(self, request: Request) -> Reply:
        reply = await super().send(request)
        if reply.usage.completion_tokens > self.random.uniform(0, 100) and self.thinks < 200:
            self.thinks = max(self.thinks, 2 * request.room, 25)
            raise Retry("thinking", usage=reply.usage)
        return reply


def history(seed: int, kind: type[Greedy]) -> tuple[float, float]:
    """Processes that are killed at random moments and start again; returns what was billed and the budget."""
    random = Random(seed)
    server, rows = kind(random), Mortal()
    budget, concurrency = random.uniform(0, 25), random.randint(1, 8)
    for kill in [*(random.uniform(0, 1.5) for _ in range(random.randint(0, 3))), None]:
        store = Mortal()
        store.rows, store.reservations, store.payments = rows.rows, rows.reservations, rows.payments

        async def main(store: Mortal = store, kill: float | None = kill) -> None:
            engine = engine_of(
                server, store, price=CENT, budget_usd=budget, spent_usd=store.spent, concurrency=concurrency,
                timeout=0.5, retries=2, backoff=0.01,
            )  # fmt: skip
            asked = asyncio.gather(*(engine.ask(one) for one in requests(20, max_tokens=50)), return_exceptions=True)
            await asyncio.wait({asyncio.ensure_future(asked)}, timeout=kill)
            store.dead = kill is not None
            if kill is None:
                await engine.close()

        simulate(main)
        assert store.spent >= server.billed - 1e-6, f"seed {seed}: billed more than is counted"
        rows = store
    return server.billed, budget


@pytest.mark.parametrize(("kind", "histories"), [(Greedy, HISTORIES), (Thoughtful, HISTORIES // 4)])
def test_property_no_server_no_thinking_and_no_kill_passes_a_budget(kind: type[Greedy], histories: int) -> None:
    """The sum billed never passes the budget: what was in flight at a kill is counted, too."""
    used = [history(seed, kind) for seed in range(histories)]
    assert all(billed <= budget + 1e-6 for billed, budget in used)
    assert sum(billed for billed, _ in used) > 0.3 * sum(min(budget, 14) for _, budget in used)  # and it is not idle


@simulated
async def test_every_attempt_is_paid_whatever_comes_of_it() -> None:
    """Six answers that are no answers and a refusal: before, none of them cost anything."""

    def behave(request: Request, attempt: int) -> str:
        if request.messages[0].content == "number 0":
            raise Retry("bad_body", usage=Usage(10, 0, 40))
        if request.messages[0].content == "number 1":
            raise Refused("refusal", usage=Usage(10, 0, 20))
        return "fine"

    store, free = MemoryStore(), MemoryStore()
    found, engine = await outcomes_of(Simulated(behave=behave), 3, store, budget_usd=100, price=CENT, retries=5)
    bad, refused, good = found
    assert (bad.error, bad.cost_usd) == ("bad_body", pytest.approx(6 * 0.5))
    assert (refused.error, refused.cost_usd) == ("refusal", pytest.approx(0.3))
    assert engine.spent_usd == pytest.approx(store.spent) == pytest.approx(3.3 + good.cost_usd)
    assert engine.usage()["query"].usd == pytest.approx(engine.spent_usd)
    assert len(store.payments) == len(store.reservations) == 8
    (answer,), _ = await outcomes_of(Simulated(), 1, free, budget_usd=0)
    assert answer.text and not free.reservations and not free.payments  # a free model writes no journal


@simulated
async def test_a_call_replaces_what_a_kill_left_open_of_its_answer() -> None:
    store, (request,) = MemoryStore(), requests(1)
    left = Reservation("r1", request.key, "query", "m", "default", 4.0)
    store.reservations["r1"] = left
    llms = {("default", "m"): Connection(Simulated(), price=CENT)}
    async with Engine(store, llms, budget=Budget(5.0, 4.0, {request.key: [left]})) as engine:  # type: ignore[arg-type]
        answer = await engine.ask(request)
    assert store.payments["r1"].usd == 0.0
    assert store.spent == pytest.approx(answer.cost_usd) == pytest.approx(engine.spent_usd) == pytest.approx(1.1)


# -- the real store ------------------------------------------------------------------------------------------------
def pipeline(**llm: object) -> Pipeline:
    settings = {"backend": "scripted", "prices": {"scripted": {"input": 1e4, "output": 1e4}}, **llm}
    return Pipeline.model_validate({"name": "p", "task": "qa", "corpus": "c", "target": 1, "llm": settings})


def open_reservation(usd: float) -> Reservation:
    return Reservation("r1", "answer", "query", "scripted", "default", usd)


def test_what_a_kill_left_open_counts_as_spent(tmp_path: Path) -> None:
    with Store.open(tmp_path / "w.duckdb") as store:
        store.put([open_reservation(4.5), Reservation("r2", "b", "query", "scripted", "default", 9.0)])
        store.put([Payment("r2", "query", 0.25)])
        assert money(store).paid == 0.25 and money(store).spent == 4.75

        async def main() -> None:
            async with make_engine(pipeline(), store, budget_usd=5) as engine:
                with pytest.raises(BudgetSpent, match=r"\$4\.75 of \$5\.00 is spent"):
                    await engine.ask(Request("scripted", requests(1)[0].messages, {"max_tokens": 100}))

        asyncio.run(main())


def test_the_journal_is_settled_with_the_answers(tmp_path: Path) -> None:
    with Store.open(tmp_path / "w.duckdb") as store:

        async def main() -> float:
            async with make_engine(pipeline(faults={"refuse": 0.3}), store, budget_usd=500) as engine:
                asked = [Request("scripted", one.messages, {"max_tokens": 90}, stage="s") for one in requests(20)]
                await asyncio.gather(*(engine.ask(one) for one in asked))
                return engine.spent_usd

        spent = asyncio.run(main())
        assert not money(store).open and money(store).paid == pytest.approx(spent)
        assert sum(row.cost_usd for row in store.rows(Answer)) == pytest.approx(spent)
        store.forget([row.key for row in store.rows(Answer)])
        assert money(store).spent == pytest.approx(spent), "what is asked again was paid all the same"


@pytest.mark.parametrize("url", ["http://localhost:4000/v1", "https://llm.example.com/v1"])
def test_a_budget_on_an_unknown_price_is_refused_with_advice(url: str, tmp_path: Path) -> None:
    llm = {"backend": "openai", "model": "alias-of-a-paid-model", "base_url": url, "prices": {}}
    with Store.open(tmp_path / "w.duckdb") as store:
        with pytest.raises(SettingsError, match=r"a budget needs prices: .*llm\.prices: \{'alias"):
            make_engine(pipeline(**llm), store, budget_usd=1)
        told = {**llm, "prices": {"alias-of-a-paid-model": {"input": 0, "output": 0}}}
        assert make_engine(pipeline(**told), store, budget_usd=1)
        assert make_engine(pipeline(**llm), store)


def test_status_says_what_stands_behind_no_answer() -> None:
    spent = {"spent_usd": 5.0, "without_answer_usd": 0.5, "lost_usd": 4.0, "lost_calls": 2, "counted_here": 0}
    lines = status_study(
        {"directory": "runs/p", "running": False, "finished": False, "stages": {}, "money": spent}
    ).text()
    assert "spent $5.00" in lines and "$0.50 for attempts whose answer was not kept" in lines
    assert "$4.00, the maximum cost of 2 calls in flight at a kill or crash" in lines


# -- prices -----------------------------------------------------------------------------------------------------------


LOCAL, MINI = "http://localhost:4000/v1", Price(0.15, 0.075, 0.6)


@pytest.mark.parametrize(
    ("model", "own", "url", "wanted"),
    [
        ("gpt-4o-mini", {}, "", MINI),
        ("gpt-4o-mini", {}, "https://api.openai.com/v1", MINI),
        ("gpt-4o-mini", {}, LOCAL, MINI),  # a gateway on this machine is not free unless that is said
        ("gpt-4o-mini", {"input": 0, "output": 0}, LOCAL, FREE),
        ("gpt-4o-mini", {"input": 1, "output": 2}, "", Price(1, 1, 2)),  # the pipeline's prices come first
        ("x", {"input": 1, "output": 2, "cached": 0}, LOCAL, Price(1, 0, 2)),
        ("no-such-model-at-all", {}, "", None),
        ("no-such-model-at-all", {}, "https://llm.example.com/v1", None),
        *(("Qwen/Qwen3-8B", {}, url, FREE) for url in (LOCAL, "http://127.0.0.1/v1", "http://10.1.2.3/v1",
                                                       "http://vllm:8000/v1", "http://gpu.internal/v1")),
    ],
)  # fmt: skip
def test_a_price(model: str, own: dict[str, float], url: str, wanted: Price | None) -> None:
    found = price(model, {model: own} if own else {}, url)
    assert found == wanted and (found is None or found.assumed == (model == "Qwen/Qwen3-8B"))
    assert Price(1.0, 0.5, 4.0).halved() == Price(0.5, 0.25, 2.0)


def test_an_unknown_price_is_said() -> None:
    assert "price unknown" in unknown_price("no-such-model-at-all") and "did you" not in unknown_price("no-such-model")
    assert "did you mean 'gpt-4o-mini'?" in unknown_price("gpt-4o-minni")


@pytest.mark.parametrize("wrong", [{"input": 1}, {"input": 1, "output": -1}, {"input": 1, "output": 1, "extra": 1}])
def test_an_override_that_is_no_price(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match=r"llm\.prices: x"):
        price("x", {"x": wrong})


@settings(deadline=None)
@given(st.text(max_size=300))
def test_property_no_text_has_more_tokens_than_are_reserved(text: str) -> None:
    request = Request("m", (Message("user", text),))
    assert 0 <= count_tokens(text) < count_messages(request.messages) <= most_prompt_tokens(request) - 64

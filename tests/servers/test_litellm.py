"""LiteLLM's proxy, in front of models that answer, refuse, and are busy: an endpoint like any other."""

import asyncio

import pytest
from real_servers import KEYS, started
from simulation import openai

from airgen.errors import AirgenError, Stopped
from airgen.llms import call_queue
from airgen.llms.base import CallLimits, Message, Request
from airgen.llms.call_queue import Connection
from airgen.llms.engine import Engine
from airgen.llms.money import FREE, Budget, Price
from airgen.storage.store import Store

pytestmark = pytest.mark.servers
CONFIG = """
model_list:
- {model_name: good, litellm_params: {model: openai/x, mock_response: "cats eat fish"}}
- {model_name: busy, litellm_params: {model: openai/x, mock_response: "litellm.RateLimitError"}}
- {model_name: broken, litellm_params: {model: openai/x, mock_response: "litellm.InternalServerError"}}
- {model_name: long, litellm_params: {model: openai/x, mock_response: "litellm.ContextWindowExceededError"}}
litellm_settings: {telemetry: false, num_retries: 0}
"""


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("litellm")
    (folder / "config.yaml").write_text(CONFIG)
    with started("litellm", folder) as url:
        yield url


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(call_queue, "MAX_HELD_SECONDS", 2.0)  # seconds that limits may hold up all calls; else an hour
    monkeypatch.setenv("PROXY_KEY", KEYS["litellm"])


def ask(url, model, folder, count=1, price=FREE, budget=None):
    """The answers, or the error that stopped the engine; and what the job has paid, in dollars."""

    async def all_calls():
        limits = CallLimits(concurrency=4, retries=1, backoff=0.05)
        with Store.open(folder / "work.duckdb") as store:
            backend = openai(f"{url}/v1", "PROXY_KEY")
            async with Engine(store, {("default", model): Connection(backend, limits, price)}, budget=budget) as engine:
                requests = [
                    Request(model, (Message("user", f"number {at}"),), {"max_tokens": 20}, stage="query")
                    for at in range(count)
                ]
                found = await asyncio.gather(*map(engine.ask, requests), return_exceptions=True)
                return found, sum(one.usd for one in engine.usage().values())

    return asyncio.run(all_calls())


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        ("good", "", "cats eat fish"),
        ("broken", "http_500", "mock internal server error"),
        ("long", "context_length", "mock context window exceeded"),
        ("unknown", "http_400", "Invalid model name passed in model=unknown"),
    ],
)
def test_its_answers_and_its_words_for_a_failure(proxy, tmp_path, model, error, words):
    ((found,), _) = ask(proxy, model, tmp_path)
    assert found.error == error
    assert words in found.text


def test_a_wrong_key(proxy, tmp_path, monkeypatch):
    monkeypatch.setenv("PROXY_KEY", "sk-a-wrong-key-of-somebody")
    ((found,), _) = ask(proxy, "good", tmp_path)
    assert (found.error, found.text) == ("http_400", "No connected db.")  # its words; a real 401 needs its database
    assert b"wrong-key" not in (tmp_path / "work.duckdb").read_bytes()


def test_a_limit_that_does_not_end_says_what_the_proxy_said(proxy, tmp_path):
    ((found,), _) = ask(proxy, "busy", tmp_path)
    assert isinstance(found, Stopped)
    assert "HTTP 429: litellm.RateLimitError: this is a mock rate limit error" in str(found)


def test_the_budget_holds_and_the_bill_is_that_of_the_tokens(proxy, tmp_path):
    """Each answer has 10 tokens read and 20 written, as the proxy counts: $0.05 at these prices."""
    price = Price(1000.0, 1000.0, 2000.0)
    found, paid = ask(proxy, "good", tmp_path, 40, price, Budget(1.0))
    answered = [one for one in found if not isinstance(one, AirgenError)]
    assert 5 < len(answered) < 20
    assert paid == pytest.approx(0.05 * len(answered))
    assert paid <= 1.0
    again, more = ask(proxy, "good", tmp_path, len(answered), price, Budget(1.0, paid))
    assert (sum(isinstance(one, AirgenError) for one in again), more) == (0, 0.0)

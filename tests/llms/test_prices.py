"""Prices, and the tokens that a budget reserves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen.errors import SettingsError
from airgen.llms.base import Message
from airgen.llms.chat import count_messages, upper_bound
from airgen.llms.money import FREE, Price, price, unknown_price
from airgen.text.tokens import count_tokens


def test_a_bill_by_hand() -> None:
    # 200 fresh at 1 $/M, 800 cached at 0.5, 100 generated at 4
    assert Price(1.0, 0.5, 4.0).usd(1000, 100, 800) == pytest.approx((200 * 1 + 800 * 0.5 + 100 * 4) / 1e6)
    assert Price(1.0, 0.5, 4.0).halved() == Price(0.5, 0.25, 2.0)


def test_published_prices() -> None:
    pytest.importorskip("genai_prices")
    assert price("gpt-4o-mini") == Price(0.15, 0.075, 0.6)
    assert price("gpt-4o-mini", base_url="https://api.openai.com/v1") == Price(0.15, 0.075, 0.6)


def test_an_unknown_price_is_said_and_never_guessed() -> None:
    pytest.importorskip("genai_prices")
    assert price("no-such-model-at-all") is None
    assert "price unknown" in unknown_price("no-such-model-at-all") and "did you" not in unknown_price("no-such-model")
    assert "did you mean 'gpt-4o-mini'?" in unknown_price("gpt-4o-minni")


def test_the_pipelines_prices_come_first() -> None:
    assert price("gpt-4o-mini", {"gpt-4o-mini": {"input": 1, "output": 2}}) == Price(1, 1, 2)
    assert price("x", {"x": {"input": 1, "output": 2, "cached": 0}}, "http://localhost/v1") == Price(1, 0, 2)


@pytest.mark.parametrize("wrong", [{"input": 1}, {"input": 1, "output": -1}, {"input": 1, "output": 1, "extra": 1}])
def test_an_override_that_is_no_price(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match=r"llm\.prices: x"):
        price("x", {"x": wrong})


@pytest.mark.parametrize(
    "url", ["http://localhost:8000/v1", "http://127.0.0.1/v1", "http://10.1.2.3/v1", "http://vllm:8000/v1"]
)
def test_ones_own_machine_is_free(url: str) -> None:
    assert price("Qwen/Qwen3-8B", base_url=url) == FREE


@settings(deadline=None)
@given(st.text(max_size=300))
def test_property_no_text_has_more_tokens_than_are_reserved(text: str) -> None:
    messages = [Message("user", text)]
    assert 0 <= count_tokens(text) <= upper_bound(messages)
    assert count_messages(messages) <= upper_bound(messages)

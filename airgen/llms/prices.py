"""What a call costs: prices by model from the maintained `genai-prices` data, or from the pipeline.

    price("gpt-4o-mini")                                   # Price(input=0.15, cached=0.075, output=0.6)
    price("my-finetune", {"my-finetune": {"input": 1, "output": 3}})
    price("Qwen/Qwen3-8B", base_url="http://localhost:8000/v1")     # FREE: one's own machine
    price("no-such-model")                                 # None: unknown is said, never guessed

The data ships inside the package: nothing is fetched, and equal versions give equal estimates.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from airgen.errors import SettingsError

__all__ = ["FREE", "Price", "price", "unknown_price"]


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars a million tokens: fresh prompt tokens, cached prompt tokens, generated tokens."""

    input: float
    cached: float
    output: float

    def usd(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> float:
        """The cost of one call; `cached_tokens` are among `prompt_tokens`."""
        fresh = max(0, prompt_tokens - cached_tokens)
        return (fresh * self.input + cached_tokens * self.cached + completion_tokens * self.output) / 1e6

    def halved(self) -> Price:
        """The price through the Batch API, which is half."""
        return Price(self.input / 2, self.cached / 2, self.output / 2)


FREE = Price(0.0, 0.0, 0.0)


def price(model: str, overrides: Mapping[str, Mapping[str, float]] | None = None, base_url: str = "") -> Price | None:
    """The price of a model, or None where nobody knows it.

    `overrides` is the pipeline's `llm.prices`: model -> {input, output, cached} in US dollars a million tokens;
    `cached` is the input's price where it is not given. A `base_url` on a loopback or private address is free.
    Raises SettingsError for an override that is not a price.
    """
    if overrides and model in overrides:
        return _override(model, overrides[model])
    if base_url and _own_machine(base_url):
        return FREE
    return _published(model, base_url)


def unknown_price(model: str) -> str:
    """The line that says so, and what to do."""
    return (
        f"price unknown for model {model!r}: write it in the pipeline as "
        f"llm.prices: {{{model!r}: {{input: 0.0, output: 0.0}}}} (US dollars a million tokens)"
    )


def _override(model: str, given: Mapping[str, float]) -> Price:
    extra = set(given) - {"input", "output", "cached"}
    if extra or not {"input", "output"} <= set(given):
        raise SettingsError([f"llm.prices: {model}: needs input and output, may have cached, and nothing else"])
    values = {name: float(value) for name, value in given.items()}
    if any(not 0 <= value < float("inf") for value in values.values()):
        raise SettingsError([f"llm.prices: {model}: prices are US dollars a million tokens, 0 or more"])
    return Price(values["input"], values.get("cached", values["input"]), values["output"])


def _own_machine(base_url: str) -> bool:
    import ipaddress

    host = urlsplit(base_url).hostname or ""
    if host == "localhost" or host.endswith((".local", ".internal", ".localhost")):
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host  # a bare name is a host of one's own network or compose file


@functools.lru_cache(maxsize=256)
def _published(model: str, base_url: str) -> Price | None:
    """The published price, from the marginal cost of a million tokens of each kind."""
    from genai_prices import Usage, calc_price

    def cost(**tokens: int) -> float:
        usage = Usage(**tokens)
        if base_url:  # a gateway's own price where it has one, else that of the model's maker
            try:
                return float(calc_price(usage, model_ref=model, provider_api_url=base_url).total_price)
            except LookupError:
                pass
        return float(calc_price(usage, model_ref=model).total_price)

    # 10,000 tokens, times 100: below every long-context tier.
    n = 10_000
    try:
        fresh = cost(input_tokens=n)
        return Price(
            input=round(fresh * 100, 6),
            cached=round(cost(input_tokens=n, cache_read_tokens=n) * 100, 6),
            output=round((cost(input_tokens=n, output_tokens=n) - fresh) * 100, 6),
        )
    except LookupError:
        return None

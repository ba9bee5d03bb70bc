"""What a call costs: the price of a model in the pipeline, or in the maintained data of `genai-prices`.

    price("gpt-4o-mini")                                   # Price(input=0.15, cached=0.075, output=0.6)
    price("my-finetune", {"my-finetune": {"input": 1, "output": 3}})
    price("Qwen/Qwen3-8B", base_url="http://localhost:8000/v1")     # free: the user's own machine
    price("gpt-4o-mini", base_url="http://localhost:4000/v1")       # 0.15 ...: a gateway on this machine is not free
    price("no-such-model")                                 # None: an unknown price is never guessed

The data is part of that package: nothing is downloaded, and equal versions give equal estimates.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from airgen.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars a million tokens: fresh prompt tokens, cached prompt tokens, generated tokens.

    assumed: nobody said this price. It follows from the address, which may be that of a gateway to a paid model: no
    budget can rest on it.
    """

    input: float
    cached: float
    output: float
    assumed: bool = field(default=False, compare=False)

    def usd(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> float:
        """The cost of one call; `cached_tokens` are among `prompt_tokens`."""
        fresh = max(0, prompt_tokens - cached_tokens)
        return (fresh * self.input + cached_tokens * self.cached + completion_tokens * self.output) / 1e6

    def halved(self) -> Price:
        """The price through the Batch API, which is half."""
        return Price(self.input / 2, self.cached / 2, self.output / 2)


FREE = Price(0.0, 0.0, 0.0)
_OWN_MACHINE = Price(0.0, 0.0, 0.0, assumed=True)


def price(model: str, overrides: Mapping[str, Mapping[str, float]] | None = None, base_url: str = "") -> Price | None:
    """The price of a model, or None where it is unknown.

    The pipeline's own prices (see `price_in`) come first. A model on a loopback or private address is assumed to be
    free, unless it has a published price: then the address is taken for that of a gateway.
    """
    if found := price_in(overrides or {}, model):
        return found
    if base_url and _own_machine(base_url):
        return _published(model, "") or _OWN_MACHINE
    return _published(model, base_url)


def price_in(overrides: Mapping[str, Mapping[str, float]], model: str) -> Price | None:
    """The model's price in the pipeline's `llm.prices`, or None where it is not there.

    `overrides` is model -> {input, output, cached}, in US dollars a million tokens. Without `cached`, cached tokens
    cost as much as others. Raises SettingsError for a wrong entry.
    """
    if model not in overrides:
        return None
    given = overrides[model]
    if not {"input", "output"} <= set(given) <= {"input", "output", "cached"}:
        raise SettingsError([f"llm.prices: {model}: needs input and output, may have cached, and nothing else"])
    values = {name: float(value) for name, value in given.items()}
    if any(not 0 <= value < float("inf") for value in values.values()):
        raise SettingsError([f"llm.prices: {model}: prices are US dollars a million tokens, 0 or more"])
    return Price(values["input"], values.get("cached", values["input"]), values["output"])


def unknown_price(model: str) -> str:
    """The message for a model whose price is unknown, with what to do."""
    return (
        f"price unknown for model {model!r}: write it in the pipeline as "
        f"llm.prices: {{{model!r}: {{input: 0.0, output: 0.0}}}} (US dollars a million tokens)"
    )


def _own_machine(base_url: str) -> bool:
    import ipaddress

    host = urlsplit(base_url).hostname or ""
    if host == "localhost" or host.endswith((".local", ".internal", ".localhost")):
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host  # a bare name is a host of the local network or of a compose file


@functools.lru_cache(maxsize=256)
def _published(model: str, base_url: str) -> Price | None:
    """The published price, from what one more token of each kind costs."""
    from genai_prices import Usage, calc_price

    def cost(**tokens: int) -> float:
        usage = Usage(**tokens)
        if base_url:  # the gateway's own price, else that of the model's maker
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

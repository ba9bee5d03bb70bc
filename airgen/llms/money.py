"""The cost of a call, the budget for all calls, and what each stage has cost so far.

    price("gpt-4o-mini")                                   # Price(input=0.15, cached=0.075, output=0.6)
    price("my-finetune", {"my-finetune": {"input": 1, "output": 3}})
    price("Qwen/Qwen3-8B", base_url="http://localhost:8000/v1")     # free: the user's own machine
    price("gpt-4o-mini", base_url="http://localhost:4000/v1")       # 0.15 ...: a gateway on this machine is not free
    price("no-such-model")                                 # None: an unknown price is never guessed

Prices come from the pipeline or from the `genai-prices` package, which includes its data: nothing is downloaded, and
the same version gives the same estimates. The budget reserves an amount before a call is sent, and replaces it with the
actual cost afterwards.
"""

import functools
import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import urlsplit

from airgen.components.registry import meant
from airgen.errors import BudgetSpent, SettingsError, UsageError
from airgen.safety.escaping import dollars
from airgen.storage.records import Answer, Reservation

_RATE_WINDOW_SECONDS = 30.0  # seconds over which a rate is measured


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens that a server bills. If `prompt_tokens` is 0, the usage is unknown, and the reserved amount is
    charged.

    `completion_tokens` include `thinking_tokens`. `stated` is what the server says instead if it cannot be true, for a
    message; the usage is then unknown.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    thinking_tokens: int = 0
    stated: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Price:
    """Prices in US dollars per million tokens: uncached prompt tokens, cached prompt tokens and generated tokens.

    Attributes:
        assumed: Whether the price is only inferred from the URL, which may belong to a gateway to a paid model, so that
            no budget can rely on it.
    """

    input: float
    cached: float
    output: float
    assumed: bool = field(default=False, compare=False)

    def usd(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> float:
        """Return the cost of one call. `prompt_tokens` include `cached_tokens`."""
        fresh = max(0, prompt_tokens - cached_tokens)
        return (fresh * self.input + cached_tokens * self.cached + completion_tokens * self.output) / 1e6

    def halved(self) -> "Price":
        """Return the price through the Batch API, which is half the usual price."""
        return replace(self, input=self.input / 2, cached=self.cached / 2, output=self.output / 2)


FREE = Price(0.0, 0.0, 0.0)
_OWN_MACHINE = Price(0.0, 0.0, 0.0, assumed=True)


def price(model: str, overrides: Mapping[str, Mapping[str, float]] | None = None, base_url: str = "") -> Price | None:
    """Return the price of a model, or None if it is unknown.

    Args:
        model: The model's name.
        overrides: The pipeline's own prices (see `price_in`), which take precedence.
        base_url: The endpoint. A model at a loopback or private address is assumed to be free, unless it has a
            published price, in which case the endpoint is assumed to be a gateway.
    """
    if override := price_in(overrides or {}, model):
        return override
    if base_url and _own_machine(base_url):
        return _published(model, "") or _OWN_MACHINE
    return _published(model, base_url)


def price_in(overrides: Mapping[str, Mapping[str, float]], model: str) -> Price | None:
    """Return the model's price in the pipeline's `llm.prices`, or None if it is not listed.

    Args:
        overrides: {model: {input, output, cached}} in US dollars per million tokens. Without `cached`, cached tokens
            cost as much as others.
        model: The model's name.

    Raises:
        SettingsError: An entry is invalid.
    """
    if model not in overrides:
        return None
    given = overrides[model]
    if not {"input", "output"} <= set(given) <= {"input", "output", "cached"}:
        raise SettingsError(
            [
                f"llm.prices: {model}: `input` and `output` are required, `cached` is optional, and "
                f"nothing "
                f"else "
                f"is "
                f"allowed"
            ]
        )
    values = {name: float(value) for name, value in given.items()}
    if any(not 0 <= value < float("inf") for value in values.values()):
        raise SettingsError([f"llm.prices: {model}: prices must be 0 or more (US dollars per million tokens)"])
    return Price(values["input"], values.get("cached", values["input"]), values["output"])


def priced_models() -> set[str]:
    """Return the names of all models with a published price."""
    from genai_prices.data import providers

    return {entry.id for provider in providers for entry in provider.models}


def unknown_price(model: str) -> str:
    """Return the message for a model whose price is unknown, with what to do and the closest known model name."""
    known = sorted(priced_models() - {model})
    return (
        f"price unknown for model {model!r}{meant(model, known, 0.8)}: write it in the pipeline "
        f"as llm.prices: {{{model!r}: {{input: 0.0, output: 0.0}}}} (US dollars per million tokens)"
    )


def _own_machine(base_url: str) -> bool:
    import ipaddress

    host = urlsplit(base_url).hostname or ""
    if host == "localhost" or host.endswith((".local", ".internal", ".localhost")):
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host  # a name without dots is a host in the local network or in a compose file


@functools.lru_cache(maxsize=256)
def _published(model: str, base_url: str) -> Price | None:
    """Return the published price, derived from the cost of one more token of each kind."""
    import genai_prices

    def cost(**tokens: int) -> float:
        usage = genai_prices.Usage(**tokens)
        if base_url:  # the gateway's own price, or else that of the model's maker
            try:
                return float(genai_prices.calc_price(usage, model_ref=model, provider_api_url=base_url).total_price)
            except LookupError:
                pass
        return float(genai_prices.calc_price(usage, model_ref=model).total_price)

    # 10,000 tokens, times 100, which is below every long-context tier.
    count = 10_000
    try:
        fresh = cost(input_tokens=count)
        return Price(
            input=round(fresh * 100, 6),
            cached=round(cost(input_tokens=count, cache_read_tokens=count) * 100, 6),
            output=round((cost(input_tokens=count, output_tokens=count) - fresh) * 100, 6),
        )
    except LookupError:
        return None


class Budget:
    """The budget of a job: its `limit` (US dollars, None for no limit) and what has been `spent`.

    `spent` includes the reservations that a killed process left open. `open` holds, by answer key, the reservations of
    calls that are still with the server; a new call for the same answer replaces them. Raises UsageError if the limit
    is negative or not a number.
    """

    def __init__(
        self,
        limit: float | None = None,
        spent: float = 0.0,
        open: Mapping[str, Sequence[Reservation]] | None = None,  # noqa: A002
    ) -> None:
        if limit is not None and not limit >= 0:
            raise UsageError(f"budget: {limit:g} is not an amount in US dollars: give 0 or more")
        self.limit, self.spent = limit, spent
        self._open = dict(open or {})
        self._reserved = 0.0
        self._calls = 0

    def reserve(self, amount: float, answer: str) -> list[str] | None:
        """Reserve the maximum cost of a call, or return None if it might exceed the limit while other calls are in
        flight.

        Returns the keys of the open reservations that this one replaces. A finished call frees what it did not use, so
        the caller should then try again. Raises BudgetSpent if no call is in flight and this one still does not fit.
        """
        replaced = self._open.get(answer, ())
        spent = self.spent - math.fsum(reservation.usd for reservation in replaced)
        if self.limit is not None and spent + self._reserved + amount > self.limit:
            if self._calls:
                return None
            raise BudgetSpent(
                f"budget: {dollars(spent)} of {dollars(self.limit)} is spent and the next call could cost "
                f"{dollars(amount)}: raise the budget and run the same command again to continue"
            )
        self._open.pop(answer, None)
        self.spent = max(0.0, spent)
        self._reserved += amount
        self._calls += 1
        return [reservation.key for reservation in replaced]

    def settle(self, reserved: float, paid: float) -> None:
        """Replace a finished call's reservation with its actual cost."""
        self.spent += paid
        self._calls -= 1
        self._reserved = max(0.0, self._reserved - reserved) if self._calls else 0.0  # without the error of float sums


def cost(price: Price, usage: Usage | None, reserved: float) -> float:
    """Return the cost of an attempt in US dollars.

    Args:
        price: The price of the model.
        usage: What the server bills. None if it bills nothing, because the request was not sent or the response is an
            error.
        reserved: The maximum cost of the attempt, which is assumed if the usage is missing. A usage above it counts in
            full, because it is what the server bills.
    """
    if usage is None:
        return 0.0
    if usage.prompt_tokens <= 0 or min(usage.completion_tokens, usage.cached_tokens) < 0:
        return reserved
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    return price.usd(usage.prompt_tokens, usage.completion_tokens, cached)


@dataclass(slots=True)
class StageUsage:
    """Statistics of the calls of one stage in this process. Tokens and cost exclude answers from disk.

    Attributes:
        calls: Finished calls, including failures.
        from_disk: Requests answered without a call.
        failures: Calls that ended without an answer, by reason.
        retries: Repeated attempts, by reason. `prompt_tokens` include `cached_tokens`.
        usd: Cost of all attempts in US dollars, whatever their outcome.
        in_flight, waiting: Number of calls in flight and of queued calls.
    """

    calls: int = 0
    from_disk: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    in_flight: int = 0
    waiting: int = 0
    _finished: deque[float] = field(default_factory=lambda: deque(maxlen=4096))

    def add(self, answer: Answer, now: float) -> None:
        """Count a finished call."""
        self.calls += 1
        self.prompt_tokens += answer.prompt_tokens
        self.cached_tokens += answer.cached_tokens
        self.completion_tokens += answer.completion_tokens
        if answer.error:
            self.failures[answer.error] += 1
        self._finished.append(now)

    def rate(self, now: float) -> float:
        """Return the number of finished calls per second in the last half minute, or 0 before the second call."""
        while self._finished and self._finished[0] < now - _RATE_WINDOW_SECONDS:
            self._finished.popleft()
        if len(self._finished) < 2:
            return 0.0
        return (len(self._finished) - 1) / max(now - self._finished[0], 1e-9)

    def as_dict(self, now: float) -> dict[str, Any]:
        """Return plain values, for the status file and `--json`."""
        names = [counter.name for counter in fields(self) if not counter.name.startswith("_")]
        counts = {name: getattr(self, name) for name in names}
        by_reason = {name: dict(sorted(counts[name].copy().items())) for name in ("failures", "retries")}
        return {**counts, **by_reason, "usd": round(self.usd, 6), "rate": round(self.rate(now), 3)}

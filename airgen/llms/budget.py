"""The budget: money is reserved before a call is sent and replaced by the real cost afterwards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from airgen.errors import BudgetSpent, UsageError
from airgen.llms.base import Usage
from airgen.llms.prices import Price
from airgen.records import Reservation


class Budget:
    """What a job may cost in all (`limit`, US dollars, None for no limit) and what it has cost (`spent`).

    `spent` includes the reservations that a killed process left open. `open` are those of them, by the answer's key,
    whose call is still with the server: a new call for the same answer replaces them. Raises UsageError for a limit
    that is below 0 or no number.
    """

    def __init__(
        self,
        limit: float | None = None,
        spent: float = 0.0,
        open: Mapping[str, Sequence[Reservation]] | None = None,  # noqa: A002
    ) -> None:
        if limit is not None and not limit >= 0:
            raise UsageError(f"budget: {limit:g} is not an amount of US dollars: give 0 or more")
        self.limit, self.spent = limit, spent
        self._open = dict(open or {})
        self._reserved = 0.0
        self._calls = 0

    def reserve(self, amount: float, answer: str) -> list[str] | None:
        """Reserve the most that a call can cost; None where that could exceed the limit while others are in flight.

        Returns the keys of the open reservations that this one replaces. A finished call frees what it did not use,
        so the caller tries again then. Raises BudgetSpent where no call is in flight and this one still does not fit.
        """
        replaced = self._open.get(answer, ())
        spent = self.spent - math.fsum(one.usd for one in replaced)
        if self.limit is not None and spent + self._reserved + amount > self.limit:
            if self._calls:
                return None
            raise BudgetSpent(
                f"budget: ${spent:.4f} of ${self.limit:.2f} is spent and the next call could cost "
                f"${amount:.4f}: raise the budget and run the same command to go on"
            )
        self._open.pop(answer, None)
        self.spent = max(0.0, spent)
        self._reserved += amount
        self._calls += 1
        return [one.key for one in replaced]

    def settle(self, reserved: float, paid: float) -> None:
        """Replace a finished call's reservation by what it cost."""
        self.spent += paid
        self._calls -= 1
        self._reserved = max(0.0, self._reserved - reserved) if self._calls else 0.0  # without the error of float sums


def cost(price: Price, usage: Usage | None, reserved: float) -> float:
    """What an attempt cost in US dollars: by its usage, or its reservation where usage is missing or says more.

    None is an attempt that the server does not bill: it was not sent, or the answer is an error.
    """
    if usage is None:
        return 0.0
    if usage.prompt_tokens <= 0 or min(usage.completion_tokens, usage.cached_tokens) < 0:
        return reserved
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    return min(reserved, price.usd(usage.prompt_tokens, usage.completion_tokens, cached))

"""The budget: money is reserved before a call is sent and replaced by the real cost afterwards."""

from __future__ import annotations

from airgen.errors import BudgetSpent

__all__ = ["Budget"]


class Budget:
    """What a job may cost in all (`limit`, US dollars, None for no limit) and what it has cost (`spent`)."""

    def __init__(self, limit: float | None = None, spent: float = 0.0) -> None:
        self.limit, self.spent = limit, spent
        self._reserved = 0.0
        self._calls = 0

    def reserve(self, amount: float) -> bool:
        """Reserve the most that a call can cost; False where that could exceed the limit while others are in flight.

        A finished call frees what it did not use, so the caller tries again then. Raises BudgetSpent where no call
        is in flight and this one still does not fit.
        """
        if self.limit is not None and self.spent + self._reserved + amount > self.limit:
            if self._calls:
                return False
            raise BudgetSpent(
                f"budget: ${self.spent:.4f} of ${self.limit:.2f} is spent and the next call could cost "
                f"${amount:.4f}: raise the budget and run the same command to go on"
            )
        self._reserved += amount
        self._calls += 1
        return True

    def settle(self, reserved: float, paid: float) -> None:
        """Replace a finished call's reservation by what it cost."""
        self.spent += paid
        self._calls -= 1
        self._reserved = max(0.0, self._reserved - reserved) if self._calls else 0.0  # without the error of float sums

"""Money: reserved before a call is sent, reconciled when its bill is known, never passed."""

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
        """Set aside the most that a call can cost; False where that could pass the limit while others are out.

        What calls in flight reserved and do not use comes back, so the caller tries again when one lands. Raises
        BudgetSpent where none is out and the call still does not fit.
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
        """A call is over: give back what was reserved, take what it cost."""
        self.spent += paid
        self._calls -= 1
        self._reserved = max(0.0, self._reserved - reserved) if self._calls else 0.0  # no drift of float sums

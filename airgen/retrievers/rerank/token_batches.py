"""Batches by token budget: short texts share a batch with many others, long ones with few, none with much padding."""

from __future__ import annotations

from collections.abc import Sequence


def token_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Places of `lengths` in batches whose padded size (count x longest) stays within `budget` tokens.

    Longest first, so that a too large batch fails at once; ties in the order given. A text longer than the budget
    is a batch of its own.

    >>> token_batches([5, 1, 1, 4, 1], 10)
    [[0, 3], [1, 2, 4]]
    """
    batches: list[list[int]] = []
    longest = 0
    for place in sorted(range(len(lengths)), key=lambda at: -lengths[at]):
        if not batches or (len(batches[-1]) + 1) * longest > budget:
            batches.append([])
            longest = max(lengths[place], 1)
        batches[-1].append(place)
    return batches

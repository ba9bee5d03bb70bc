"""The schedule of the learning rate."""

from __future__ import annotations

import math

from airgen.training.recipe import Recipe


def learning_rate_share(step: int, total: int, recipe: Recipe) -> float:
    """The learning rate of a step (from 0) as a share of the highest: a linear warm-up, then the recipe's schedule.

    >>> [round(learning_rate_share(step, 10, Recipe(warmup=0.2)), 3) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.125]
    """
    warm = round(total * recipe.warmup)
    if step < warm:
        return (step + 1) / warm
    done = (step - warm) / max(1, total - warm)
    if recipe.schedule == "linear":
        return 1 - done
    return 0.5 * (1 + math.cos(math.pi * done)) if recipe.schedule == "cosine" else 1.0

"""How likely a reader calls a draft good, by its features: a logistic regression, fitted on drafts that were read.

`weights.json` is written by benchmarks/choice.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources

__all__ = ["score", "weights"]


@lru_cache(maxsize=1)
def weights() -> Mapping[str, float]:
    """The weight of each feature, in their order, and `intercept`."""
    text = resources.files(__package__).joinpath("weights.json").read_text(encoding="utf-8")
    found: dict[str, float] = json.loads(text)["weights"]
    return found


def score(values: Sequence[float]) -> float:
    """The probability for a draft with these values of the features, 0 to 1."""
    *own, intercept = weights().values()
    z = intercept + sum(weight * value for weight, value in zip(own, values, strict=True))
    return round(1 / (1 + math.exp(-z)), 6)

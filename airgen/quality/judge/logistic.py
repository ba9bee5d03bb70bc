"""Logistic regression with a ridge, by Newton's method: a handful of features, a few thousand rows at most.

    weights = fit(features, relevant)                  # float64 (d + 1,), the last one the intercept
    probability = predict(weights, features)

Written out because it is twenty lines and fitting a judge should not need scikit-learn; a test holds it to that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airgen.errors import UsageError

__all__ = ["fit", "predict"]

Floats = NDArray[np.float64]
_STEPS = 100
_TOLERANCE = 1e-10


def fit(features: Floats, relevant: NDArray[np.bool_], *, ridge: float = 1.0, weights: Floats | None = None) -> Floats:
    """Coefficients that minimise the weighted log-loss plus ridge / 2 times their squares; not the intercept's.

    features: (n, d), on comparable scales. weights: (n,), 1 by default. Raises UsageError where all labels are equal:
    there is nothing to tell apart.
    """
    if relevant.all() or not relevant.any():
        raise UsageError("a judge is fitted on relevant and other pairs, there is only one kind")
    rows = np.hstack([features, np.ones((len(features), 1))])
    each = np.ones(len(rows)) if weights is None else weights
    penalty = np.full(rows.shape[1], ridge)
    penalty[-1] = 1e-9  # the intercept is free; so little keeps Newton's step solvable
    found = np.zeros(rows.shape[1])
    for _ in range(_STEPS):
        probability = predict(found, features)
        gradient = rows.T @ (each * (probability - relevant)) + penalty * found
        curvature = (rows * (each * probability * (1 - probability))[:, None]).T @ rows + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        found -= step
        if np.abs(step).max() < _TOLERANCE:
            break
    return found


def predict(weights: Floats, features: Floats) -> Floats:
    """Probabilities, (n,)."""
    z = features @ weights[:-1] + weights[-1]
    return np.asarray(1 / (1 + np.exp(-np.clip(z, -700, 700))), np.float64)

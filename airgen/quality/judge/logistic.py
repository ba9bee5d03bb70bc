"""Logistic regression with a ridge penalty, by Newton's method, for a few features and a few thousand rows.

    weights = fit(features, relevant)                  # float64 (d + 1,), the last one the intercept
    probability = predict(weights, features)

It is written out because it has twenty lines, and fitting a judge should not need scikit-learn. A test compares the
results with scikit-learn's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airgen.errors import UsageError

Floats = NDArray[np.float64]
_STEPS = 100
_TOLERANCE = 1e-10


def fit(features: Floats, relevant: NDArray[np.bool_], *, ridge: float = 1.0, weights: Floats | None = None) -> Floats:
    """The coefficients that minimise the weighted log-loss plus ridge / 2 times their squares (without the intercept).

    features: (n, d), on comparable scales. weights: (n,), 1 by default. Raises UsageError if all labels are equal.
    """
    if relevant.all() or not relevant.any():
        raise UsageError("a judge cannot be fitted: all pairs have the same label, relevant or not")
    rows = np.hstack([features, np.ones((len(features), 1))])
    each = np.ones(len(rows)) if weights is None else weights
    penalty = np.full(rows.shape[1], ridge)
    penalty[-1] = 1e-9  # nearly no penalty for the intercept; 0 could make Newton's step unsolvable
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

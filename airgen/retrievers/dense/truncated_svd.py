"""The strongest singular vectors of a sparse matrix, by random projection with power iterations (Halko, Martinsson and
Tropp 2011, algorithms 4.4 and 5.1).

It is written out because it has ten lines, and LSA should not need scikit-learn, whose results a test compares.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.registry import load_extra

__all__ = ["right_singular_vectors"]

_MORE = 10  # directions beside those that are asked for


def right_singular_vectors(matrix: Any, rank: int, seed: int) -> NDArray[np.float64]:
    """(rank, columns) of a scipy matrix (rows, columns), strongest first, each with an arbitrary sign.

    Raises MissingExtra without scipy.
    """
    linear = load_extra("scipy.linalg", "retriever 'lsa'")
    wide = matrix.shape[0] < matrix.shape[1]
    tall = matrix.T if wide else matrix
    basis = np.random.RandomState(seed).normal(size=(tall.shape[1], rank + _MORE))
    for _ in range(7 if rank < 0.1 * min(matrix.shape) else 4):
        # A triangular factor keeps the columns from growing alike, for less than an orthogonal one.
        basis, _ = linear.lu(tall @ basis, permute_l=True, check_finite=False)
        basis, _ = linear.lu(tall.T @ basis, permute_l=True, check_finite=False)
    basis, _ = linear.qr(tall @ basis, mode="economic", check_finite=False)
    left, _, right = linear.svd(basis.T @ tall, full_matrices=False)
    return np.asarray((basis @ left)[:, :rank].T if wide else right[:rank])

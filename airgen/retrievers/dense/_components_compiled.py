"""The strongest components of a sparse matrix, by loops for numba. Import this module only when they are needed, since
numba takes a third of a second to load.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.compute.exact_arithmetic import jit

Floats = NDArray[np.float64]

_EXTRA_DIRECTIONS = 10  # directions in addition to the requested ones
_DEPENDENT_SHARE = 1e-24  # the remaining share of a direction's squared length if it depends on those before it
_MOST_SWEEPS = 30  # maximum number of Jacobi's rotations; about ten are needed


def right_singular_vectors(matrix: Any, rank: int, seed: int) -> Floats:
    """Compute the strongest right singular vectors of a scipy matrix, (rank, columns), with arbitrary signs.

    If the matrix has a lower rank, the last rows are zero. Needs numba.
    """
    wide = matrix.shape[0] < matrix.shape[1]
    forward, backward = (matrix.T.tocsr(), matrix.tocsr()) if wide else (matrix.tocsr(), matrix.T.tocsr())
    size = forward.shape[1]
    basis = np.random.default_rng(seed).random((size, min(rank + _EXTRA_DIRECTIONS, size))) - 0.5
    _orthonormalise(basis)
    for _ in range(8 if rank < 0.1 * min(matrix.shape) else 5):
        basis = product(backward, product(forward, basis))
        _orthonormalise(basis)
    _orthonormalise(basis)  # a second pass removes rounding errors
    image = product(forward, basis)
    squares = _gram(image)
    turned = np.eye(len(squares))
    _diagonalise(squares, turned)
    strength = np.diagonal(squares)
    order = np.argsort(-strength, kind="stable")[:rank]
    turned = np.ascontiguousarray(turned[:, order])
    if not wide:
        return np.ascontiguousarray(_multiply(basis, turned).T)
    scaled = _multiply(image, turned)  # of length sqrt(strength)
    lengths = np.sqrt(np.maximum(strength[order], 0))
    nonzero = lengths > 1e-12 * lengths.max(initial=0)
    return np.ascontiguousarray(np.where(nonzero, scaled / np.where(nonzero, lengths, 1), 0).T)


def product(sparse: Any, dense: Floats) -> Floats:
    """Multiply a scipy CSR matrix by a dense matrix, in the order of the sparse entries."""
    result = np.zeros((sparse.shape[0], dense.shape[1]))
    _multiply_sparse(sparse.indptr, sparse.indices, sparse.data, dense=np.ascontiguousarray(dense), result=result)
    return result


@jit
def _multiply_sparse(starts: Any, columns: Any, values: Floats, dense: Floats, result: Floats) -> None:
    for row in range(len(starts) - 1):
        line = result[row]
        for place in range(starts[row], starts[row + 1]):
            value, other = values[place], dense[columns[place]]
            for column in range(len(line)):
                line[column] += value * other[column]


@jit
def _multiply(left: Floats, right: Floats) -> Floats:
    result = np.zeros((left.shape[0], right.shape[1]))
    for row in range(left.shape[0]):
        line = result[row]
        for place in range(left.shape[1]):
            value, other = left[row, place], right[place]
            for column in range(len(line)):
                line[column] += value * other[column]
    return result


@jit
def _gram(rows: Floats) -> Floats:
    """Compute the inner products of all columns, (columns, columns)."""
    width = rows.shape[1]
    gram = np.zeros((width, width))
    for row in range(rows.shape[0]):
        line = rows[row]
        for left in range(width):
            value, sums = line[left], gram[left]
            for right in range(left, width):
                sums[right] += value * line[right]
    for left in range(width):
        for right in range(left):
            gram[left, right] = gram[right, left]
    return gram


@jit
def _orthonormalise(rows: Floats) -> None:
    """Orthonormalise the columns with the Cholesky factor of their products. Dependent columns become zero."""
    factor = _gram(rows)
    width = len(factor)
    for pivot in range(width):
        remainder = factor[pivot, pivot]
        for above in range(pivot):
            remainder -= factor[above, pivot] * factor[above, pivot]
        if remainder <= _DEPENDENT_SHARE * factor[pivot, pivot] or remainder <= 0:
            factor[pivot, pivot:] = 0
            continue
        root = np.sqrt(remainder)
        for right in range(pivot + 1, width):
            total = factor[pivot, right]
            for above in range(pivot):
                total -= factor[above, pivot] * factor[above, right]
            factor[pivot, right] = total / root
        factor[pivot, pivot] = root
    for row in range(rows.shape[0]):
        line = rows[row]
        for pivot in range(width):
            if factor[pivot, pivot] == 0:
                line[pivot] = 0
                continue
            value = line[pivot] / factor[pivot, pivot]
            line[pivot] = value
            other = factor[pivot]
            for right in range(pivot + 1, width):
                line[right] -= value * other[right]


@jit
def _diagonalise(matrix: Floats, vectors: Floats) -> None:
    """Diagonalise a symmetric matrix by Jacobi rotations. The columns of `vectors` become its eigenvectors."""
    size = len(matrix)
    for _ in range(_MOST_SWEEPS):
        off_diagonal = total = 0.0
        for row in range(size):
            for column in range(size):
                square = matrix[row, column] * matrix[row, column]
                total += square
                if row != column:
                    off_diagonal += square
        if off_diagonal <= 1e-30 * total:
            return
        for p in range(size - 1):
            for q in range(p + 1, size):
                if matrix[p, q] == 0:
                    continue
                theta = (matrix[q, q] - matrix[p, p]) / (2 * matrix[p, q])
                t = 1 / (abs(theta) + np.sqrt(theta * theta + 1))
                if theta < 0:
                    t = -t
                c = 1 / np.sqrt(t * t + 1)
                s = t * c
                for k in range(size):
                    left, right = matrix[k, p], matrix[k, q]
                    matrix[k, p], matrix[k, q] = c * left - s * right, s * left + c * right
                for k in range(size):
                    left, right = matrix[p, k], matrix[q, k]
                    matrix[p, k], matrix[q, k] = c * left - s * right, s * left + c * right
                for k in range(size):
                    left, right = vectors[k, p], vectors[k, q]
                    vectors[k, p], vectors[k, q] = c * left - s * right, s * left + c * right

"""Compile a loop with numba if it is installed; otherwise callers use numpy.

    @jit
    def total(values): ...

A function is compiled at its first call and cached on disk.

Arithmetic with bit-identical results on every machine.

BLAS adds in an order that depends on the processor and the shapes, and the last bits of logarithms in numpy and the C
library depend on AVX-512 and fused operations. Values that decide something (a rank, a vote, a label, a draw) are
therefore computed with these functions, which apply IEEE elementary operations in a fixed order:

>>> inner_products(np.array([[1.0, 2.0]]), np.array([3.0, 4.0])).tolist()
[11.0]
"""

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def numba_is_installed() -> bool:
    """Return whether numba, which is in the `fast` extra, can be imported."""
    return importlib.util.find_spec("numba") is not None


LARGE = 20_000_000  # number of scores or products: a compiled loop takes about ten milliseconds, numpy a second


def worth_compiling(work: int, least: int = LARGE) -> bool:
    """Return whether a compiled loop saves time for this much work: numba is installed, and loaded or worth loading.

    Below `least`, loading takes longer than it saves. The result is bit-identical either way.
    """
    return (work >= least or "numba" in sys.modules) and numba_is_installed()


def jit(function: Callable[..., Any]) -> Any:
    """Compile a function that releases the interpreter lock; without numba, return the function itself.

    Fast-math is off, because sums must be rounded as in numpy to give equal scores.
    """
    return _compiled(function)


def jit_in_any_order(function: Callable[..., Any]) -> Any:
    """Compile like `jit`, but allow sums in any order. Use it only to select candidates, where the error is known."""
    return _compiled(function, fastmath={"reassoc", "contract"})


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    if not numba_is_installed():
        return function
    import numba

    try:
        return numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # no writable place for the cache
        return numba.njit(nogil=True, **options)(function)


_LN2_HIGH, _LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10  # their sum is ln 2; the first has 32 bits
_ROWS_AT_ONCE = 128  # products per block, so that the terms stay in the cache
_SERIES_TERMS = 12  # terms of the series for the largest argument; the next term is below 2**-60


def inner_products(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.float64]:
    """Compute the inner products of rows, (n, dim), with rows, (n, dim), or with one vector, (dim,); returns float64,
    (n,).

    The second half of the terms is added to the first half, repeatedly, until one term is left.
    """
    products = np.zeros(len(left))
    for first in range(0, len(left), _ROWS_AT_ONCE):
        block = slice(first, first + _ROWS_AT_ONCE)
        terms = left[block].astype(np.float64)
        terms *= right if right.ndim == 1 else right[block]
        width = terms.shape[1]
        while width > 1:
            half = (width + 1) // 2
            terms[:, : width - half] += terms[:, half:width]
            width = half
        products[block] = terms[:, :width].sum(axis=1)  # one column, or none
    return products


def summable(values: NDArray[Any], count: int) -> NDArray[np.float64]:
    """Round values to a grid on which any sum of `count` values is exact, and therefore the same in any order.

    For values of at most 1, the grid spacing is 2**-52 times the next power of two above `count`.
    """
    _, exponent = np.frexp(np.abs(values).max(initial=1.0))
    bits = 52 - int(exponent) - int(count).bit_length()
    return np.asarray(np.ldexp(np.rint(np.ldexp(np.asarray(values, np.float64), bits)), -bits))


def log(values: Any) -> NDArray[np.float64]:
    """Compute the natural logarithm of finite positive numbers, to within 5 units in the last place."""
    part, exponent = _parts(values)
    return exponent * _LN2_HIGH + (_twice_artanh((part - 1) / (part + 1)) + exponent * _LN2_LOW)


def log2(values: Any) -> NDArray[np.float64]:
    """Compute the logarithm to base 2 of finite positive numbers; exact for powers of two."""
    part, exponent = _parts(values)
    return exponent + _twice_artanh((part - 1) / (part + 1)) / (_LN2_HIGH + _LN2_LOW)


def log1p(values: Any) -> NDArray[np.float64]:
    """Compute ln(1 + x) for finite x above -1, without losing precision for small x."""
    x = np.asarray(values, np.float64)
    is_small = np.abs(x) < 0.25
    small = np.where(is_small, x, 0.0)
    return np.where(is_small, _twice_artanh(small / (2 + small)), log(1 + np.where(is_small, 0.0, x)))


def _parts(values: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return m and e such that x = m * 2**e and m is between sqrt(1/2) and sqrt(2)."""
    part, exponent = np.frexp(np.asarray(values, np.float64))
    low = part < 0.7071067811865476
    return np.where(low, 2 * part, part), exponent - low.astype(np.float64)


def _twice_artanh(z: NDArray[np.float64]) -> NDArray[np.float64]:
    square = z * z
    total = np.full_like(z, 1 / (2 * _SERIES_TERMS + 1))
    for term in range(_SERIES_TERMS - 1, 0, -1):
        total = total * square + 1 / (2 * term + 1)
    return 2 * z + 2 * z * (total * square)

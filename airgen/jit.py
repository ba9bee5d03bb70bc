"""Compile a loop with numba where it is installed; otherwise callers use numpy.

    @jit
    def total(values): ...

A function is compiled at its first call and cached on disk.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar, cast

__all__ = ["jit", "numba_is_installed"]

Function = TypeVar("Function", bound=Callable[..., Any])


def numba_is_installed() -> bool:
    """Whether the package numba (extra `fast`) can be imported."""
    return importlib.util.find_spec("numba") is not None


def jit(function: Function) -> Function:
    """The compiled function, which releases the interpreter lock; the function itself where numba is missing.

    Fast-math stays off, because sums must be rounded as in numpy to give equal scores.
    """
    if not numba_is_installed():
        return function
    import numba

    try:
        return cast(Function, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no writable place for the cache
        return cast(Function, numba.njit(nogil=True)(function))

"""Compile a loop with numba where it is installed; without it callers take their numpy way instead.

    @jit
    def total(values): ...

Nothing is compiled before the first call, and what was compiled is kept on disk.
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
    """The function compiled without Python objects or the interpreter lock; itself where numba is missing.

    Never with fast-math: sums must round as numpy's do, so that both ways give equal scores.
    """
    if not numba_is_installed():
        return function
    import numba

    try:
        return cast(Function, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no writable place for the cache
        return cast(Function, numba.njit(nogil=True)(function))

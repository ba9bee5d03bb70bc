"""Compile a loop with numba where it is installed; otherwise callers use numpy.

    @jit
    def total(values): ...

A function is compiled at its first call and cached on disk.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Set
from functools import partial
from typing import Any, TypeVar, overload

Function = TypeVar("Function", bound=Callable[..., Any])


def numba_is_installed() -> bool:
    """Whether the package numba (extra `fast`) can be imported."""
    return importlib.util.find_spec("numba") is not None


@overload
def jit(function: Function) -> Function: ...


@overload
def jit(*, rewrites: Set[str]) -> Callable[[Function], Function]: ...


def jit(function: Function | None = None, *, rewrites: Set[str] = frozenset()) -> Any:
    """The compiled function, which releases the interpreter lock; the function itself where numba is missing.

    Fast-math stays off, because sums must be rounded as in numpy to give equal scores. `rewrites` names LLVM's flags
    for a function that bears them: "contract" makes a product and a sum one operation, "reassoc" reorders sums.
    """
    if function is None:
        return partial(jit, rewrites=rewrites)
    if not numba_is_installed():
        return function
    import numba

    fastmath = set(rewrites) or False
    try:
        return numba.njit(nogil=True, cache=True, fastmath=fastmath)(function)
    except RuntimeError:  # no writable place for the cache
        return numba.njit(nogil=True, fastmath=fastmath)(function)

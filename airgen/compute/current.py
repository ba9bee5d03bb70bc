"""The computation that the steps of one run share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from airgen.compute.base import Compute, Here
from airgen.settings.compute import ComputeSettings

_CURRENT: ContextVar[Compute | None] = ContextVar("compute", default=None)


def open_compute(settings: ComputeSettings) -> Compute:
    """What the settings name; a context manager. Workers start at its first use."""
    if settings.kind == "ray":
        from airgen.compute.ray import RayWorkers

        return RayWorkers(settings)
    if settings.workers is None:
        return Here()
    from airgen.compute.pool import Processes

    return Processes(settings)


@contextmanager
def computing(settings: ComputeSettings) -> Iterator[Compute]:
    """Compute there all that is done inside it, by this thread and by those that get a copy of its context."""
    with open_compute(settings) as compute:
        token = _CURRENT.set(compute)
        try:
            yield compute
        finally:
            _CURRENT.reset(token)


def current() -> Compute:
    """Where work is to run here; this process where nothing else was said."""
    return _CURRENT.get() or Here()

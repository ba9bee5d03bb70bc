"""Where heavy work runs: this process, processes of this machine, or a Ray cluster, with the same results.

    work = Work("encode with minilm", here=model.encode, there=partial(make_encoder, "minilm"))
    with computing(ComputeSettings(kind="local", workers=8)):
        for key, vectors in current().map(work, enumerate(shards)):
            ...

A result depends on its item alone, not on the workers or their number. Items are taken when there is room for them, so
that few are in memory at a time. `pool` handles lost workers and runs processes on this machine; `ray` sends items to a
cluster. Rows in DuckDB remain the only checkpoint, and only the driver writes them.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import Any, Generic, Self, TypeVar

from airgen.settings.compute import ComputeSettings

In = TypeVar("In")
Out = TypeVar("Out")
Key = TypeVar("Key")


@dataclass(frozen=True)
class Work(Generic[In, Out]):
    """A function of one item.

    Attributes:
        name: What messages call it.
        here: Does the work in this process.
        there: Without arguments, and can be pickled; builds the same function in another process, which keeps it for
            all items. None: the work cannot be done elsewhere.
    """

    name: str
    here: Callable[[In], Out]
    there: Callable[[], Callable[[In], Out]] | None = None


class Compute:
    """Where work runs: this process, or elsewhere by a subclass. Usable by one thread at a time.

    As a context manager it ends its workers.
    """

    workers: int = 1
    gives_gpus: bool = False  # whether each worker has its own GPU

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""

    def map(
        self, work: Work[In, Out], items: Iterable[tuple[Key, In]], *, ordered: bool = True, least: int = 0
    ) -> Iterator[tuple[Key, Out]]:
        """Yield (key, result) of each (key, item).

        Args:
            work: What to do with an item.
            items: The keys and items.
            ordered: Keep the order of the items. False: yield results as they arrive.
            least: Fewer items than this are done in this process, without workers.

        Raises:
            AirgenError: The workers cannot do it. Errors of the work are raised as they are.
        """
        return ((key, work.here(item)) for key, item in items)

    def describe(self) -> dict[str, Any]:
        """Describe the setting and the work done, for the status of a job."""
        return {"kind": "local", "workers": self.workers}


# Read by OpenMP, OpenBLAS, MKL, torch and ONNX Runtime; numba and Rust's rayon have their own variables.
_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")


def cores() -> int:
    """Return how many cores this process may use: its CPU affinity, at most OMP_NUM_THREADS if that is set."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, min(available, int(limit))) if limit.isdecimal() else available


def thread_limits(threads: int) -> dict[str, str]:
    """Return the environment variables that limit a new process to this many threads."""
    return {**dict.fromkeys(_VARIABLES, str(threads)), "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"}


@contextmanager
def without_main() -> Iterator[None]:
    """Keep processes started inside from importing the user's script, which would run it a second time."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


_CURRENT: ContextVar[Compute | None] = ContextVar("compute", default=None)


def open_compute(settings: ComputeSettings) -> Compute:
    """Open what the settings name, as a context manager. Workers start at its first use."""
    if settings.kind == "ray":
        from airgen.compute.ray import RayWorkers

        return RayWorkers(settings)
    if settings.workers is None:
        return Compute()
    from airgen.compute.processes import Processes

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
    """Return where work runs here; this process unless set otherwise."""
    return _CURRENT.get() or Compute()

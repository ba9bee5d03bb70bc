"""What a system costs, as BEIR's Table 3: time a query, index size, memory, parameters, device.

Times are this machine's and this moment's; they stand apart from the scores and never enter a key.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Costs", "array_bytes", "described", "peak_bytes", "resident_bytes", "single_latencies"]

_MODELS = ("model", "_model", "embedder", "reranker", "_corpus")


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds, milliseconds and bytes; None where a thing cannot be known.

    latency: milliseconds of queries asked one by one (median, 95th percentile, how many were asked).
    batch_ms: milliseconds a query when all are asked at once; queries_per_second is its inverse.
    memory_bytes: growth of resident memory while indexing and searching. With `includes`, the times of those
    systems, which ran before, are part of the latencies.
    """

    index_seconds: float | None = None
    index_bytes: int | None = None
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    latency_queries: int = 0
    batch_ms: float | None = None
    queries_per_second: float | None = None
    memory_bytes: int | None = None
    parameters: int | None = None
    device: str | None = None
    threads: int | None = None
    includes: tuple[str, ...] = ()


def resident_bytes() -> int:
    """Resident memory of this process now; its maximum so far where the system does not say."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return peak_bytes() or 0


def peak_bytes() -> int | None:
    """The largest resident memory of this process so far; None where the operating system does not tell it."""
    try:
        import resource  # only on POSIX
    except ModuleNotFoundError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def single_latencies(
    search: Callable[[str], object], queries: Sequence[str], *, most: int = 50, seconds: float = 10.0
) -> list[float]:
    """Milliseconds of queries asked one by one, evenly drawn, after another that warms up; stops after `seconds`.

    The other is not measured, unless it is the only one: a re-ranker may keep what it encoded for it.
    """
    count = min(most + 1, len(queries))
    chosen = [queries[place] for place in np.linspace(0, len(queries) - 1, count).astype(int)]
    if not chosen:
        return []
    begun = time.perf_counter()
    search(chosen[0])
    taken = []
    for text in chosen[1:] or chosen:
        start = time.perf_counter()
        search(text)
        taken.append((time.perf_counter() - start) * 1000)
        if time.perf_counter() - begun > seconds:
            break
    return taken


def array_bytes(value: object, depth: int = 5) -> int | None:
    """Bytes of the arrays that a retriever keeps, models left out; None where there are none."""
    seen: set[int] = set()

    def walk(item: Any, left: int) -> int:
        if id(item) in seen or left < 0:
            return 0
        seen.add(id(item))
        if isinstance(item, np.ndarray):
            return int(item.nbytes)
        if isinstance(item, Mapping):
            return sum(walk(part, left - 1) for part in item.values()) if len(item) < 100 else 0
        if isinstance(item, list | tuple):
            return sum(walk(part, left - 1) for part in item) if len(item) < 100 else 0
        if type(item).__module__.startswith("airgen."):
            names = [*getattr(item, "__dict__", ()), *(getattr(type(item), "__slots__", ()) or ())]
            return sum(walk(getattr(item, name, None), left - 1) for name in names if name not in _MODELS)
        return 0

    return walk(value, depth) or None


def described(description: object, name: str) -> Any:
    """The first value under `name` in nested settings, or None: a wrapper tells what its model told it."""
    if isinstance(description, Mapping):
        if description.get(name) is not None:
            return description[name]
        parts = [described(value, name) for value in description.values()]
    elif isinstance(description, list | tuple):
        parts = [described(value, name) for value in description]
    else:
        return None
    return next((part for part in parts if part is not None), None)

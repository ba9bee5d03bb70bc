"""What a system costs, as BEIR's Table 3: time for a query, index size, memory, parameters, device.

Times belong to one machine and one moment. They are kept apart from the scores and never enter a key.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds, milliseconds and bytes; None where a figure cannot be known.

    latency: milliseconds of queries that were searched one by one (median, 95th percentile, number of queries).
    batch_ms: milliseconds for each query when all are searched at once; queries_per_second is its inverse.
    memory_bytes: growth of resident memory while indexing and searching. `includes`: systems that ran before, whose
    times are part of these.
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
    """Resident memory of this process now; its maximum so far where the operating system does not tell more."""
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
    """Milliseconds of queries that are searched one by one, evenly spread over all; stops after `seconds`.

    The first query warms up. It is not timed, unless it is the only query: a re-ranker may keep its encodings.
    """
    count = min(most + 1, len(queries))
    chosen = [queries[place] for place in np.linspace(0, len(queries) - 1, count).astype(int)]
    if not chosen:
        return []
    started = time.perf_counter()
    search(chosen[0])
    taken = []
    for text in chosen[1:] or chosen:
        start = time.perf_counter()
        search(text)
        taken.append((time.perf_counter() - start) * 1000)
        if time.perf_counter() - started > seconds:
            break
    return taken

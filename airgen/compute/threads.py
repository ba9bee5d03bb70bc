"""How many threads numeric work may take: n workers on one machine must not take n times its cores."""

from __future__ import annotations

import os

# What OpenMP, OpenBLAS, MKL, torch and ONNX Runtime read; numba and Rust's rayon have their own.
_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")


def cores() -> int:
    """Cores that this process may use: those of its affinity, at most OMP_NUM_THREADS where that is set."""
    every = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, min(every, int(limit))) if limit.isdecimal() else every


def thread_limits(threads: int) -> dict[str, str]:
    """The variables of the environment that keep a new process to so many threads."""
    return {**dict.fromkeys(_VARIABLES, str(threads)), "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"}

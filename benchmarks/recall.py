"""Exact dense recall at depth 1,000 against faiss IndexFlatIP, one thread each, alternating in one process.

    python benchmarks/recall.py                      200,000 passages of 384 dimensions, 1,000 queries
    python benchmarks/recall.py --passages 1000000   memory stays where it is

Prints the median of the paired ratios (faiss time / ours), by wall clock and by processor time (the machine may be
busy), whether the hits are equal, and the memory of each way.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airgen.retrievers.base import Hits
from airgen.retrievers.dense.exact_search import search

DIM = 384


def make(count: int, seed: int, path: Path | None = None) -> NDArray[np.float16]:
    """Random unit vectors; on disk where a path is given."""
    rng = np.random.default_rng(seed)
    rows: NDArray[np.float16] = (
        np.memmap(path, np.float16, "w+", shape=(count, DIM)) if path else np.empty((count, DIM), np.float16)
    )
    for first in range(0, count, 65536):
        some = rng.standard_normal((min(65536, count - first), DIM), dtype=np.float32)
        rows[first : first + len(some)] = some / np.linalg.norm(some, axis=1, keepdims=True)
    return rows


def timed(work: Callable[[], Hits]) -> tuple[float, float, Hits]:
    """Wall seconds, processor seconds, result."""
    wall, cpu = time.perf_counter(), time.process_time()
    hits = work()
    return time.perf_counter() - wall, time.process_time() - cpu, hits


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--passages", type=int, default=200_000)
    options.add_argument("--queries", type=int, default=1_000)
    options.add_argument("--k", type=int, default=1_000)
    options.add_argument("--runs", type=int, default=5)
    asked = options.parse_args()

    import faiss

    faiss.omp_set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = make(asked.passages, 0, Path(folder) / "rows.f16")
        queries = make(asked.queries, 1).astype(np.float32)
        index = faiss.IndexFlatIP(DIM)
        index.add(np.ascontiguousarray(rows, np.float32))

        def theirs() -> Hits:
            scores, positions = index.search(queries, asked.k)
            return Hits(positions.astype(np.int32), scores)

        def ours() -> Hits:
            return search(rows, queries, asked.k)

        search(rows[: 20_000_000 // asked.queries], queries, asked.k)  # compile
        walls, cpus = [], []
        for run in range(asked.runs):
            first, second = (theirs, ours) if run % 2 == 0 else (ours, theirs)
            one, two = timed(first), timed(second)
            (faiss_wall, faiss_cpu, wanted), (wall, cpu, found) = (one, two) if run % 2 == 0 else (two, one)
            walls.append(faiss_wall / wall)
            cpus.append(faiss_cpu / cpu)
            print(
                f"run {run + 1}: faiss {asked.queries / faiss_wall:.0f} queries/s, airgen {asked.queries / wall:.0f}; "
                f"ratio {walls[-1]:.2f} (wall) {cpus[-1]:.2f} (cpu)"
            )
        shared = np.mean(
            [len(np.intersect1d(a, b)) / asked.k for a, b in zip(wanted.positions, found.positions, strict=True)]
        )
        tracemalloc.start()
        search(rows, queries, asked.k, memory_bytes=64 << 20)
        peak = tracemalloc.get_traced_memory()[1]
        print(f"median ratio: {statistics.median(walls):.2f} (wall), {statistics.median(cpus):.2f} (cpu)")
        print(f"hits shared with faiss: {shared:.6f} (its rows are the same, its ties are not ordered)")
        print(
            f"memory: faiss {index.ntotal * DIM * 4 / 1e6:.0f} MB of rows; airgen {peak / 1e6:.0f} MB, 64 MiB allowed"
        )


if __name__ == "__main__":
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if any(os.environ.get(name) != value for name, value in threads.items()):
        # BLAS reads these when numpy is loaded, so a fresh process is needed.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **threads})
    main()

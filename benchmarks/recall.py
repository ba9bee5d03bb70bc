"""Compare exact dense search with faiss IndexFlatIP and numpy, alternating in one process with one thread each.

    python benchmarks/recall.py                      200,000 passages of 384 dimensions, 1,000 queries, k 10, 100, 1,000
    python benchmarks/recall.py --passages 1000000   memory does not grow
    python benchmarks/recall.py --torch              torch is loaded, as by a model, and may select

Prints the minimum, median and maximum of the paired ratios (their time / ours) by processor time (the machine may be
busy), the share of equal hits, and the memory use of each method. numpy uses blocks of products and argpartition.
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
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airgen.retrievers.dense.exact_search import search
from airgen.retrievers.hits import Hits

DIM = 384


def make(count: int, seed: int, path: Path | None = None) -> NDArray[np.float32]:
    """Make random unit vectors, on disk if a path is given."""
    rng = np.random.default_rng(seed)
    rows: NDArray[np.float32] = (
        np.memmap(path, np.float32, "w+", shape=(count, DIM)) if path else np.empty((count, DIM), np.float32)
    )
    for first in range(0, count, 65536):
        some = rng.standard_normal((min(65536, count - first), DIM), dtype=np.float32)
        rows[first : first + len(some)] = some / np.linalg.norm(some, axis=1, keepdims=True)
    return rows


def timed(work: Callable[[], Hits]) -> tuple[float, float, Hits]:
    """Return wall seconds, processor seconds and the result."""
    wall, cpu = time.perf_counter(), time.process_time()
    hits = work()
    return time.perf_counter() - wall, time.process_time() - cpu, hits


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--passages", type=int, default=200_000)
    options.add_argument("--queries", type=int, default=1_000)
    options.add_argument("--k", type=int, nargs="+", default=[10, 100, 1_000])
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--torch", action="store_true")
    options.add_argument("--no-numpy", action="store_true")
    asked = options.parse_args()

    import faiss

    if asked.torch:
        import torch

        torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = make(asked.passages, 0, Path(folder) / "rows.f32")
        queries = make(asked.queries, 1).astype(np.float32)
        index = faiss.IndexFlatIP(DIM)
        index.add(np.ascontiguousarray(rows, np.float32))

        def with_faiss(k: int) -> Hits:
            scores, positions = index.search(queries, k)
            return Hits(positions.astype(np.int32), scores)

        def with_numpy(k: int) -> Hits:
            whole = np.asarray(rows, np.float32)
            found = []
            for first in range(0, len(queries), 100):
                scores = queries[first : first + 100] @ whole.T
                best = np.argpartition(-scores, k, axis=1)[:, :k]
                order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
                found.append(np.take_along_axis(best, order, axis=1))
            return Hits(np.concatenate(found).astype(np.int32), np.empty(0, np.float32))

        search(rows, queries[:200], 1_000)  # compile
        for k in asked.k:
            ways = {"faiss": with_faiss, "numpy": with_numpy, "airgen": lambda k: search(rows, queries, k)}
            if asked.no_numpy:
                del ways["numpy"]
            ratios: dict[str, list[float]] = {name: [] for name in ways if name != "airgen"}
            for run in range(asked.runs):
                names = list(ways) if run % 2 else list(reversed(ways))
                taken = {name: timed(partial(ways[name], k)) for name in names}
                for name in ratios:
                    ratios[name].append(taken[name][1] / taken["airgen"][1])
            pairs = zip(taken["faiss"][2].positions, taken["airgen"][2].positions, strict=True)
            shared = np.mean([len(np.intersect1d(a, b)) / k for a, b in pairs])
            figures = "; ".join(
                f"{name} / airgen {min(some):.2f} {statistics.median(some):.2f} {max(some):.2f}"
                for name, some in ratios.items()
            )
            print(
                f"k {k}: {asked.queries / taken['airgen'][1]:.0f} queries/s; {figures}; {shared:.6f} of hits as faiss"
            )
        tracemalloc.start()
        search(rows, queries, max(asked.k))
        peak = tracemalloc.get_traced_memory()[1]
        print(f"memory: faiss {index.ntotal * DIM * 4 / 1e6:.0f} MB of rows; airgen {peak / 1e6:.0f} MB")


if __name__ == "__main__":
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if any(os.environ.get(name) != value for name, value in threads.items()):
        # BLAS reads these when numpy is loaded, so a fresh process is needed.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **threads})
    main()

"""Compare approximate indexes with exact search: ANN recall, bytes, build time and ms per query.

    python benchmarks/ann.py vectors                                 200,000 clustered vectors of 128 dimensions
    python benchmarks/ann.py vectors --passages 10000 100000 1000000 --bm25       how all of it grows, with BM25
    python benchmarks/ann.py vectors --passages 1000000 --only HNSW32 PQ64        these kinds of index alone
    python benchmarks/ann.py words --passages 10000 1000000                       BM25 alone
    python benchmarks/ann.py shards --passages 100000 --workers 2                 on Ray: the same hits?
    python benchmarks/ann.py collection FOLDER --embedder wordllama-256           a BEIR folder: real texts

Vectors are drawn around as many centres as the square root of their number, with the noise of half a centre; texts for
BM25 have words that follow Zipf's law. One thread; ms a query are processor time over all queries, given at once.
`recall` is the share of the ten nearest by exact search that are among the first ten. `shards` divides exact search and
each index among the workers of a Ray cluster on loopback, and compares every position and score with those of one
process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airgen.compute import computing
from airgen.dataset.beir import BeirDataset
from airgen.retrievers import Passages, load_embedder
from airgen.retrievers.dense.ann_index import AnnIndex, AnnSpec, build_ann, near_share, pairs
from airgen.retrievers.dense.exact_search import search, search_shards
from airgen.retrievers.hits import Hits
from airgen.settings.compute import ComputeSettings

K = 10


def kinds(count: int) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Return (name, factory string, search parameters) for this number of vectors."""
    lists = 1 << max(4, round(np.log2(4 * count**0.5)))
    yield "Flat", "Flat", {}
    for ef in (16, 64, 256):
        yield f"HNSW32, efSearch {ef}", "HNSW32", {"efSearch": ef}
    for probe in (1, 8, 32):
        yield f"IVF{lists}, nprobe {probe}", f"IVF{lists},Flat", {"nprobe": probe}
    yield "PQ32", "PQ32", {}
    for codes in (32, 64):
        yield f"IVF{lists},PQ{codes}, nprobe 32", f"IVF{lists},PQ{codes}", {"nprobe": 32}


def clustered(path: Path, count: int, dim: int, queries: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Write vectors to disk, and return queries from the same centres."""
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((max(4, int(count**0.5)), dim), dtype=np.float32)

    def some(size: int) -> NDArray[np.float32]:
        rows = centres[draw.integers(0, len(centres), size)]
        rows = rows + 0.5 * draw.standard_normal((size, dim), dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    rows = np.memmap(path, np.float32, "w+", shape=(count, dim))
    for first in range(0, count, 65_536):
        rows[first : first + 65_536] = some(min(65_536, count - first))
    rows.flush()
    return np.memmap(path, np.float32, "r", shape=(count, dim)), some(queries)


def timed(work: Callable[[], Hits]) -> tuple[float, Hits]:
    """Return the minimum processor time of three runs."""
    best, hits = float("inf"), Hits.none(0, K)
    for _ in range(3):
        start = time.process_time()
        hits = work()
        best = min(best, time.process_time() - start)
    return best, hits


def chosen(count: int, only: Sequence[str]) -> list[tuple[str, str, dict[str, float]]]:
    """Return the kinds of index whose names contain one of these words; all if there are no words."""
    return [kind for kind in kinds(count) if not only or any(word in kind[0] for word in only)]


def compare(
    rows: NDArray[np.float32], file: Path, queries: NDArray[np.float32], folder: Path, only: Sequence[str] = ()
) -> list[dict[str, object]]:
    """Return a row for exact search and for each index."""
    search(rows, queries, K)  # compiles
    seconds, exact = timed(lambda: search(rows, queries, K))
    table: list[dict[str, object]] = []

    def add(name: str, recall: float, size: int, build: float, seconds: float) -> None:
        row = {"index": name, "recall": recall, "MB": size / 1e6, "build s": build, "ms": 1000 * seconds / len(queries)}
        table.append(row)
        print(f"{name:28} {recall:7.4f} {size / 1e6:10.1f} MB {build:9.1f} s {row['ms']:9.3f} ms", flush=True)

    print(f"{len(rows):,} passages, {rows.shape[1]} dimensions, {len(queries)} queries")
    add("exact search", 1.0, rows.nbytes, 0.0, seconds)
    made: dict[str, tuple[Path, float]] = {}
    for name, factory, parameters in chosen(len(rows), only):
        spec = AnnSpec(factory, (), pairs(parameters))
        if factory not in made:
            place = folder / str(len(made))
            place.mkdir()
            start = time.process_time()
            build_ann(place, spec, rows, rows=None, file=(file, 0))
            made[factory] = place, time.process_time() - start
        place, build = made[factory]
        index = AnnIndex(place, spec)
        seconds, hits = timed(lambda index=index: index.search(queries, K))  # type: ignore[misc]
        add(name, near_share(exact.positions, hits), index.bytes, build, seconds)
    return table


def shards(
    rows: NDArray[np.float32], file: Path, queries: NDArray[np.float32], folder: Path, only: Sequence[str], workers: int
) -> list[dict[str, object]]:
    """One row for exact search and for each index in as many parts as workers: are the hits of both ways equal?"""
    import ray
    from ray.cluster_utils import Cluster

    os.environ |= {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    head = {"num_cpus": workers, "object_store_memory": 200_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    table: list[dict[str, object]] = []
    try:
        settings = ComputeSettings(kind="ray", workers=workers)

        def add(name: str, work: Callable[[], Hits]) -> None:
            start = time.perf_counter()
            here = work()
            between = time.perf_counter()
            with computing(settings):
                work()  # starts the workers
                middle = time.perf_counter()
                there = work()
                end = time.perf_counter()
            equal = np.array_equal(here.positions, there.positions) and np.array_equal(here.scores, there.scores)
            table.append({"index": name, "equal": equal, "here s": between - start, "workers s": end - middle})
            print(f"{name:28} equal {equal}; {between - start:.2f} s here, {end - middle:.2f} s on workers", flush=True)

        search(rows, queries, K)  # compiles
        add("exact search", lambda: search_shards(file, rows, queries, K))
        for number, (name, factory, parameters) in enumerate(chosen(len(rows), only)):
            spec = AnnSpec(factory, (), pairs(parameters), parts=workers)
            place = folder / str(number)
            place.mkdir()
            with computing(settings):
                build_ann(place, spec, rows, rows=None, file=(file, 0))
            add(name, partial(AnnIndex(place, spec).search, queries, K))
    finally:
        ray.shutdown()
        cluster.shutdown()
    return table


def bm25(count: int, queries: int) -> dict[str, object]:
    """Measure Measure BM25 over passages of 60 words that follow Zipf's law."""
    from airgen.retrievers.lexical.bm25 import BM25

    draw = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(50_000)])

    def texts(size: int, length: int) -> list[str]:
        ranks = np.minimum(draw.zipf(1.2, (size, length)), len(words)) - 1
        return [" ".join(row) for row in words[ranks]]

    print(f"{count:,} passages of 60 words, {queries} queries")
    passages = [text for first in range(0, count, 10_000) for text in texts(min(10_000, count - first), 60)]
    system = BM25()
    start = time.process_time()
    system.index(Passages([str(place) for place in range(count)], passages))
    build = time.process_time() - start
    asked = texts(queries, 6)
    system.search(asked[:1], K)
    seconds, _ = timed(lambda: system.search(asked, K))
    row = {"index": "BM25", "MB": (system.index_bytes or 0) / 1e6, "build s": build, "ms": 1000 * seconds / queries}
    print(f"{'BM25':28} {'':7} {row['MB']:10.1f} MB {build:9.1f} s {row['ms']:9.3f} ms", flush=True)
    return row


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=["vectors", "words", "shards", "collection"])
    options.add_argument("name", nargs="?", default="scifact")
    options.add_argument("--passages", type=int, nargs="+", default=[200_000])
    options.add_argument("--dim", type=int, default=128)
    options.add_argument("--queries", type=int, default=500)
    options.add_argument("--embedder", default="all-minilm-l6-v2-int8")
    options.add_argument("--bm25", action="store_true")
    options.add_argument("--only", nargs="+", default=[], help="words in the names of the indexes to measure")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--json", type=Path)
    asked = options.parse_args()
    found: dict[str, object] = {}
    if asked.what == "collection":
        dataset = BeirDataset.open(asked.name)
        corpus = Passages.of(dataset.passages(), "en")
        embedder = load_embedder(asked.embedder)
        with tempfile.TemporaryDirectory() as name:
            file = Path(name) / "rows.f32"
            embedder.encode(list(corpus.full_texts), "passage").astype(np.float32).tofile(file)
            rows = np.memmap(file, np.float32, "r").reshape(len(corpus), embedder.dim)
            queries = embedder.encode([query.text for query in dataset.queries("test").values()], "query")
            found[dataset.name] = compare(rows, file, queries, Path(name), asked.only)
    for count in asked.passages if asked.what != "collection" else ():
        with tempfile.TemporaryDirectory() as name:
            if asked.what != "words":
                file = Path(name) / "rows.f32"
                rows, queries = clustered(file, count, asked.dim, asked.queries)
            if asked.what == "vectors":
                found[str(count)] = compare(rows, file, queries, Path(name), asked.only)
            elif asked.what == "shards":
                found[f"{count} shards"] = shards(rows, file, queries, Path(name), asked.only, asked.workers)
            if asked.bm25 or asked.what == "words":
                found[f"{count} bm25"] = bm25(count, asked.queries)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if any(os.environ.get(name) != value for name, value in threads.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **threads})
    main()

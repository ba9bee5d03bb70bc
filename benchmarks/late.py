"""Compare compressed late interaction with exact MaxSim, and with fast-plaid if it is installed.

    python benchmarks/late.py quality WORK COLLECTION... [--passages 2000] [--plaid PYTHON] [--device cuda]
    python benchmarks/late.py made --passages 10000 [--plaid PYTHON]
    python benchmarks/late.py size --passages 30000 [--device cuda]
    python benchmarks/late.py large WORK scifact medline --passages 100000 --bits 2 --plaid PYTHON --library pylate

`quality`: nDCG@10, recall@100, and the share of the exact top 10 that is found, by bits, probes and candidates, over
the token vectors of all-minilm-l6-v2-int8, which are saved in WORK. Times are processor seconds with one thread.
`made`: the same with made vectors.
`--plaid` names the Python of an environment with fast-plaid (`python -m venv V; V/bin/pip install fast-plaid`), which
reads the same vectors. With --device a GPU scores (exact) or selects candidates (compressed), and times are seconds of
the clock. `size`: an index of made vectors with 128 dimensions: bytes a token, memory while it is searched, seconds.

`large`: windows of real passages' token vectors in their 96 first principal components, mixed with others of the same
cluster until there are enough passages. airgen and the other library build an index in processes of their own, and
search by turns; the vectors and indexes stay in WORK. Ranges are over `--rounds`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.beir import BeirDataset
from airgen.evaluation.measures import parse_measures, score
from airgen.evaluation.result import peak_bytes, resident_bytes
from airgen.evaluation.run import run_from_hits
from airgen.retrievers.dense.gpu_search import GpuLists, GpuTokens
from airgen.retrievers.dense.onnx_encoder import OnnxEncoder
from airgen.retrievers.hits import Hits
from airgen.retrievers.late.compressed_index import CompressedIndex, build_index
from airgen.retrievers.late.maxsim import maxsims
from airgen.retrievers.passages import Passages
from airgen.retrievers.top_k import top_k

DEPTH = 100
DIM, REAL, QUERIES = 96, 1000, 30  # of `large`: dimensions, passages of each collection, queries of all
EVERY = 1 << 30
SEARCHES = [(4, 256), (16, 256), (64, 256), (16, 1024), (EVERY, EVERY)]


def token_vectors(collection: Path, corpus: Passages, model: OnnxEncoder, work: Path) -> tuple[Any, NDArray[np.int64]]:
    """Return (all token vectors, start of each passage) in fp16, from WORK if available."""
    folder = work / collection.name
    if not (folder / "lengths.npy").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        lengths = []
        with (folder / "tokens.f16").open("wb") as file:
            for first in range(0, len(corpus), 64):
                for array in model.token_vectors(corpus.full_texts[first : first + 64], "passage"):
                    file.write(array.astype(np.float16).tobytes())
                    lengths.append(len(array))
        np.save(folder / "lengths.npy", lengths)
    starts = np.concatenate(([0], np.cumsum(np.load(folder / "lengths.npy"))))
    return np.memmap(folder / "tokens.f16", np.float16, "r").reshape(-1, model.dim), starts


def exact(tokens: Any, starts: NDArray[np.int64], queries: Sequence[Any], device: str = "cpu") -> Hits:
    """Compute Compute MaxSim with every passage."""
    scores = np.zeros((len(queries), len(starts) - 1), np.float32)
    if device != "cpu":
        there = GpuTokens(tokens[: starts[-1]], starts, device)
        for row, query in enumerate(queries):
            scores[row] = there.scores(query.astype(np.float16))
    for first in range(0, len(starts) - 1 if device == "cpu" else 0, 64):
        last = min(first + 64, len(starts) - 1)
        block = tokens[starts[first] : starts[last]].astype(np.float64)
        for row in range(0, len(queries), 16):  # as many at once as `LateInteraction`
            part = slice(row, row + 16)
            scores[part, first:last] = maxsims(queries[part], block, starts[first:last] - starts[first])
    hits = Hits.none(len(queries), DEPTH)
    for row, values in enumerate(scores):
        found, best = top_k(values, DEPTH)
        hits.positions[row, : len(found)], hits.scores[row, : len(found)] = found, best
    return hits


def clock_of(device: str) -> Callable[[], float]:
    """Return a clock: processor seconds, or wall-clock seconds with a GPU."""
    return time.process_time if device == "cpu" else time.perf_counter


def lists_of(index: CompressedIndex, device: str) -> GpuLists | None:
    """Return the passages of the cells on a GPU."""
    return None if device == "cpu" else GpuLists(index.list_starts, index.list_passages, len(index), device)


def quality(options: argparse.Namespace) -> None:
    """Print a table for each collection."""
    for collection in options.collections:
        dataset = BeirDataset.open(collection)
        model = OnnxEncoder()
        corpus = Passages.of(dataset.passages(), "en")
        if options.passages:
            ids, texts, titles = (part[: options.passages] for part in (corpus.ids, corpus.texts, corpus.titles))
            corpus = Passages(ids, texts, titles)
        tokens, starts = token_vectors(collection, corpus, model, options.work)
        starts = starts[: len(corpus) + 1]
        known, asked = {*corpus.ids}, dataset.queries()
        labels = {key: {p: v for p, v in row.items() if p in known} for key, row in dataset.qrels().labels.items()}
        labels = {key: row for key, row in labels.items() if key in asked and any(value > 0 for value in row.values())}
        halved = model.token_vectors([asked[key].text for key in labels], "query")
        queries = [array.astype(np.float16).astype(np.float32) for array in halved]
        compare(options, collection.name, corpus.ids, tokens, starts, queries, labels)


def made(options: argparse.Namespace) -> None:
    """Print the table for made vectors of 64 dimensions: 40 to 80 tokens a passage near 5,000 topics.

    A query has 16 tokens near those of one passage, which alone is relevant.
    """
    draw, dim = np.random.default_rng(0), 64
    topics = draw.standard_normal((5000, dim), dtype=np.float32)
    starts = np.concatenate(([0], np.cumsum(draw.integers(40, 81, options.passages or 10_000))))

    def near(rows: NDArray[np.float32], noise: float) -> NDArray[np.float32]:
        rows = rows + noise * draw.standard_normal(rows.shape, dtype=np.float32)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    tokens = near(topics[draw.integers(0, len(topics), starts[-1])], 0.5).astype(np.float16)
    ids = [str(place) for place in range(len(starts) - 1)]
    queries, labels = [], {}
    for number, place in enumerate(draw.integers(0, len(ids), 50)):
        chosen = draw.integers(starts[place], starts[place + 1], 16)
        queries.append(near(tokens[chosen].astype(np.float32), 0.15))
        labels[str(number)] = {ids[place]: 1.0}
    compare(options, "made vectors", ids, tokens, starts, queries, labels)


def compare(
    options: argparse.Namespace,
    title: str,
    ids: Sequence[str],
    tokens: Any,
    starts: NDArray[np.int64],
    queries: Sequence[NDArray[np.float32]],
    labels: dict[str, dict[str, float]],
) -> None:
    """Print a row for exact MaxSim, and one for each setting of the compressed index and of fast-plaid."""
    measures = parse_measures(["nDCG@10", "Recall@100"])

    def line(name: str, hits: Hits, seconds: float, wanted: Hits, size: float) -> None:
        run = run_from_hits(list(labels), ids, hits)
        ndcg, recall = score(run, labels, measures).means().values()
        pairs = zip(hits.positions[:, :10], wanted.positions[:, :10], strict=True)
        same = statistics.fmean(len({*one.tolist()} & {*two.tolist()}) / 10 for one, two in pairs)
        per_query = seconds * 1000 / len(labels)
        print(f"| {name} | {size:.0f} | {ndcg:.4f} | {recall:.4f} | {same:.3f} | {per_query:.0f} |", flush=True)

    print(f"\n{title}: {len(ids)} passages, {starts[-1]} tokens, {len(labels)} queries\n")
    print("| index | bytes a token | nDCG@10 | Recall@100 | of the exact top 10 | CPU ms a query |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    clock = clock_of(options.device)
    begun = clock()
    wanted = exact(tokens, starts, queries, options.device)
    line("exact", wanted, clock() - begun, wanted, tokens.shape[1] * 2)

    def encode(batches: Iterable[Sequence[str]]) -> Iterator[Any]:
        for batch in batches:
            yield [tokens[starts[int(p)] : starts[int(p) + 1]].astype(np.float32) for p in batch]

    built = []
    for bits in options.bits:
        with tempfile.TemporaryDirectory() as folder:
            begun = time.process_time()
            places = [str(place) for place in range(len(ids))]  # a text is its place: nothing is encoded
            build_index(Path(folder) / "index", places, encode, bits=bits, centroids=options.centroids)
            built.append(f"{bits} bits {time.process_time() - begun:.0f}")
            index = CompressedIndex.open(Path(folder) / "index")
            lists = lists_of(index, options.device)
            for probes, candidates in SEARCHES:
                begun = clock()
                hits = index.search(queries, DEPTH, probes=probes, candidates=candidates, lists=lists)
                taken = clock() - begun
                what = "all" if probes == EVERY else f"{probes} probes, {candidates} candidates"
                line(f"{bits} bits, {what}", hits, taken, wanted, index.bytes / starts[-1])
    print(f"\n{len(index.codec.centroids)} centroids. Building, processor seconds: {', '.join(built)}")
    if options.plaid:
        with tempfile.TemporaryDirectory() as temporary:
            shared = Path(temporary)
            np.save(shared / "tokens.npy", tokens[: starts[-1]])
            np.save(shared / "starts.npy", starts)
            np.save(shared / "queries.npy", np.concatenate(queries))
            np.save(shared / "query_starts.npy", np.concatenate(([0], np.cumsum([len(one) for one in queries]))))
            for bits in options.bits:
                script = Path(__file__).with_name("late_plaid.py")
                command = [options.plaid, str(script), str(shared), "--bits", str(bits), "--depth", str(DEPTH)]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                for path in sorted(shared.glob(f"plaid-{bits}-*.npz")):
                    found = np.load(path)
                    hits = Hits(found["positions"], found["scores"])
                    name = f"fast-plaid, {bits} bits, {found['probes']} probes, {found['candidates']} candidates"
                    line(name, hits, float(found["seconds"]), wanted, float(found["bytes"]) / starts[-1])
                print(f"building with fast-plaid, {bits} bits: {float(found['building']):.0f} processor seconds")


def size(options: argparse.Namespace) -> None:
    """Build and search an index of made vectors: 120 tokens a passage near 5,000 topics."""
    dim, length, draw = 128, 120, np.random.default_rng(0)
    topics = draw.standard_normal((5000, dim), dtype=np.float32)

    def made(seed: int, count: int) -> NDArray[np.float32]:
        mine = np.random.default_rng(seed)
        rows = topics[mine.integers(0, len(topics), count)] + mine.standard_normal((count, dim), dtype=np.float32)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    def encode(batches: Iterable[Sequence[str]]) -> Iterator[Any]:
        return ([made(int(text), length) for text in batch] if batch else None for batch in batches)

    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        texts = [str(place) for place in range(options.passages)]
        build_index(Path(folder) / "index", texts, encode, bits=options.bits[0], centroids=options.centroids)
        print(f"{options.passages} passages of {length} tokens, {options.bits[0]} bits")
        print(
            f"building {time.process_time() - begun:.0f} processor seconds, {(peak_bytes() or 0) / 1e9:.2f} GB at most"
        )
        before, opened = resident_bytes(), time.process_time()
        index = CompressedIndex.open(Path(folder) / "index")
        print(f"opening {time.process_time() - opened:.1f} processor seconds")
        tokens = options.passages * length
        each = index.bytes / tokens
        print(f"{len(index.codec.centroids)} centroids, {index.bytes / 1e9:.3f} GB, {each:.2f} bytes a token")
        clock, lists = clock_of(options.device), lists_of(index, options.device)
        queries = [made(10**9 + number, 32) for number in range(20)]
        begun = clock()
        index.search(queries, DEPTH, probes=16, candidates=1024, lists=lists)
        taken = (clock() - begun) * 1000 / len(queries)
        print(f"a query of 32 tokens: {taken:.0f} ms; memory grew by {(resident_bytes() - before) / 1e9:.2f} GB")


def make_large(options: argparse.Namespace, folder: Path) -> None:
    """Write the token vectors of passages and queries for `large`, and what exact MaxSim finds."""
    model, draw = OnnxEncoder(), np.random.default_rng(0)
    real, asked = list[NDArray[Any]](), list[NDArray[Any]]()
    for collection in options.collections:
        dataset = BeirDataset.open(collection)
        corpus = Passages.of(dataset.passages(), "en")
        corpus = Passages(corpus.ids[:REAL], corpus.texts[:REAL], corpus.titles[:REAL])
        tokens, starts = token_vectors(collection, corpus, model, options.work)
        real += [np.asarray(tokens[a:b], np.float32) for a, b in pairwise(starts)]
        texts = [query.text for query in dataset.queries().values()][: QUERIES // len(options.collections)]
        asked += model.token_vectors(texts, "query")
    drawn = np.concatenate(real)
    drawn = drawn[draw.choice(len(drawn), min(len(drawn), 100_000), replace=False)]
    axes = np.linalg.eigh(drawn.T @ drawn)[1][:, -DIM:].astype(np.float32)

    def reduced(rows: NDArray[Any]) -> NDArray[np.float32]:
        rows = rows @ axes if rows.shape[1] != DIM else rows
        return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6), np.float32)

    real, pool = [reduced(rows) for rows in real], reduced(drawn)
    centroids = pool[draw.choice(len(pool), 2000, replace=False)]
    of_pool = (pool @ centroids.T).argmax(axis=1)
    order, edges = np.argsort(of_pool, kind="stable"), np.searchsorted(np.sort(of_pool), np.arange(2001))
    lengths = draw.integers(40, 81, options.passages)
    with (folder / "tokens.f16").open("wb") as file:
        for length in lengths.tolist():
            parts = []
            for size in (length - length // 3, length // 3):  # a window of one passage, and a shorter one of another
                rows = real[draw.integers(len(real))]
                first = draw.integers(max(1, len(rows) - size + 1))
                parts.append(np.resize(rows[first : first + size], (size, DIM)))
            rows = np.concatenate(parts)
            cells = (rows @ centroids.T).argmax(axis=1)
            sizes = np.maximum(edges[cells + 1] - edges[cells], 1)
            others = pool[order[np.minimum(edges[cells] + draw.integers(sizes), len(pool) - 1)]]
            share = draw.uniform(0.1, 0.6, (length, 1))
            noise = draw.standard_normal(rows.shape) * 0.2 / np.sqrt(DIM)
            file.write(reduced((1 - share) * rows + share * others + noise).astype(np.float16).tobytes())
    starts = np.concatenate(([0], np.cumsum(lengths)))
    queries = [reduced(rows) for rows in asked]
    tokens = np.memmap(folder / "tokens.f16", np.float16, "r").reshape(-1, DIM)
    begun = time.process_time()
    np.save(folder / "exact.npy", exact(tokens, starts, queries).positions)
    print(f"exact MaxSim: {(time.process_time() - begun) * 1000 / len(queries):.0f} ms of CPU a query", flush=True)
    np.save(folder / "queries.npy", np.concatenate(queries))
    np.save(folder / "query_starts.npy", np.concatenate(([0], np.cumsum([len(one) for one in queries]))))
    np.save(folder / "starts.npy", starts)  # last: then all is written


def large(options: argparse.Namespace) -> None:
    """Build an index of many passages with each library, and search them by turns with one thread and two."""
    folder = options.work / f"large-{options.passages}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "starts.npy").is_file():
        making = multiprocessing.get_context("spawn").Process(target=make_large, args=(options, folder))
        making.start()  # in a process of its own: a child's peak of memory is at least its parent's
        making.join()
    wanted, bits = np.load(folder / "exact.npy"), str(options.bits[0])
    here, there = Path(__file__), Path(__file__).with_name("late_plaid.py")
    contenders = {"airgen": [sys.executable, str(here), "one", str(folder), "--bits", bits]}
    if options.plaid:
        words = [options.plaid, str(there), str(folder), "--bits", bits, "--library", options.library]
        contenders[options.library] = words
    for command in contenders.values():
        subprocess.run([*command, "--build"], check=True, env=os.environ | threads(2))
    print(f"\n{options.passages} passages, {np.load(folder / 'starts.npy')[-1]} tokens, {bits} bits")
    print("\n| threads | index | of the exact top 10 | of 100 | ms a query | CPU ms a query | peak MB |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    rows: dict[tuple[int, str], list[Any]] = {}
    for _, count, command in product(range(options.rounds), (1, 2), contenders.values()):
        subprocess.run(command, check=True, env=os.environ | threads(count))
        for path in sorted(folder.glob("found-*.npz")):
            rows.setdefault((count, path.stem.removeprefix("found-")), []).append(dict(np.load(path)))
            path.unlink()
    for (count, name), found in sorted(rows.items()):
        shares = []
        for top in (10, 100):
            both = zip(found[0]["positions"][:, :top].tolist(), wanted[:, :top].tolist(), strict=True)
            shares.append(statistics.fmean(len({*some} & {*best}) / top for some, best in both))
        cells = [f"{min(f[key] for f in found):.1f} to {max(f[key] for f in found):.1f}" for key in ("wall", "cpu")]
        peak = max(float(f["peak"]) for f in found)
        print(f"| {count} | {name} | {shares[0]:.3f} | {shares[1]:.3f} | {' | '.join(cells)} | {peak:.0f} |")


def threads(count: int) -> dict[str, str]:
    """Return the environment that limits the libraries' threads."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
    return dict.fromkeys(names, str(count))


def one(options: argparse.Namespace) -> None:
    """Build the index of a folder that `large` made, or search it, and write what is found."""
    folder, (bits,) = options.work, options.bits
    starts, place = np.load(folder / "starts.npy"), folder / f"airgen-{options.bits[0]}"
    if options.build:
        if not place.exists():
            tokens = np.memmap(folder / "tokens.f16", np.float16, "r").reshape(-1, DIM)

            def encode(batches: Iterable[Sequence[str]]) -> Iterator[Any]:
                for batch in batches:
                    yield [tokens[starts[int(p)] : starts[int(p) + 1]] for p in batch]

            begun, clock = time.process_time(), time.perf_counter()
            places = [str(number) for number in range(len(starts) - 1)]
            build_index(place, places, encode, bits=bits, centroids=options.centroids)
            index = CompressedIndex.open(place)
            print(
                f"airgen: {len(index.codec.centroids)} centroids, {time.process_time() - begun:.0f} s of CPU, "
                f"{time.perf_counter() - clock:.0f} s, {index.bytes / 1e6:.0f} MB, "
                f"peak {(peak_bytes() or 0) / 1e6:.0f} MB",
                flush=True,
            )
        return
    rows, edges = np.load(folder / "queries.npy"), np.load(folder / "query_starts.npy")
    queries, index = [rows[a:b] for a, b in pairwise(edges)], CompressedIndex.open(place)
    for probes, candidates in [(4, 256), (16, 256), (16, 1024), (32, 4096)]:
        begun, clock = time.process_time(), time.perf_counter()
        hits = index.search(queries, DEPTH, probes=probes, candidates=candidates)
        times = {"cpu": time.process_time() - begun, "wall": time.perf_counter() - clock}
        about = {key: value * 1000 / len(queries) for key, value in times.items()} | {"peak": (peak_bytes() or 0) / 1e6}
        np.savez(
            folder / f"found-airgen {probes:2} probes, {candidates:4} candidates", positions=hits.positions, **about
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=["quality", "made", "size", "large", "one"])
    options.add_argument("work", type=Path, nargs="?")
    options.add_argument("collections", type=Path, nargs="*")
    options.add_argument("--passages", type=int, default=0, help="only so many (quality: the first ones; 0: all)")
    options.add_argument("--bits", type=int, nargs="*", default=[1, 2, 4])
    options.add_argument("--centroids", type=int)
    options.add_argument("--device", default="cpu", help="a GPU that scores and selects: cuda")
    options.add_argument("--rounds", type=int, default=3, help="large: how often each searches")
    options.add_argument("--library", choices=["fast-plaid", "pylate"], default="fast-plaid", help="large: of --plaid")
    options.add_argument("--build", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--plaid", help="the Python of an environment with fast-plaid")
    asked = options.parse_args()
    {"quality": quality, "made": made, "size": size, "large": large, "one": one}[asked.what](asked)


if __name__ == "__main__":
    main()

"""Compare compressed late interaction with exact MaxSim, and with fast-plaid if it is installed.

    python benchmarks/late.py quality WORK COLLECTION... [--passages 2000] [--plaid PYTHON] [--device cuda]
    python benchmarks/late.py made --passages 10000 [--plaid PYTHON]
    python benchmarks/late.py size --passages 30000 [--device cuda]

`quality`: nDCG@10, recall@100, and the share of the exact top 10 that is found, by bits, probes and candidates, over
the token vectors of all-minilm-l6-v2-int8, which are saved in WORK. Times are processor seconds with one thread.
`made`: the same with made vectors.
`--plaid` names the Python of an environment with fast-plaid (`python -m venv V; V/bin/pip install fast-plaid`), which
reads the same vectors. With --device a GPU scores (exact) or selects candidates (compressed), and times are seconds of
the clock. `size`: an index of made vectors with 128 dimensions: bytes a token, memory while it is searched, seconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
        block = tokens[starts[first] : starts[last]].astype(np.float32)
        for row, query in enumerate(queries):
            scores[row, first:last] = maxsims([query], block, starts[first:last] - starts[first])[0]
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


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=["quality", "made", "size"])
    options.add_argument("work", type=Path, nargs="?")
    options.add_argument("collections", type=Path, nargs="*")
    options.add_argument("--passages", type=int, default=0, help="only so many (quality: the first ones; 0: all)")
    options.add_argument("--bits", type=int, nargs="*", default=[1, 2, 4])
    options.add_argument("--centroids", type=int)
    options.add_argument("--device", default="cpu", help="a GPU that scores and selects: cuda")
    options.add_argument("--plaid", help="the Python of an environment with fast-plaid")
    asked = options.parse_args()
    {"quality": quality, "made": made, "size": size}[asked.what](asked)


if __name__ == "__main__":
    main()

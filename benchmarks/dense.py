"""Compare dense retrieval with sentence-transformers, alternating in one process with one thread each.

    python benchmarks/dense.py        after airgen fetch tests
    python benchmarks/dense.py --passages 2000 --vectors 200000

Two tasks are compared: encoding and searching a corpus with realistic lengths, and searching many random vectors (with
`util.semantic_search`, which BEIR's evaluation also uses). Prints medians of the paired ratios (theirs / ours,
wall-clock and processor time), and the agreement of the hits.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from airgen.components.keys import rng
from airgen.models import path
from airgen.retrievers.dense.embedders import SentenceTransformersEmbedder
from airgen.retrievers.dense.exact_search import search
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.hits import Hits
from airgen.retrievers.passages import Passages

DIM, K = 384, 1000
WORDS = ["river", "engine", "treaty", "protein", "violin", "harbour", "index", "lantern", "tariff", "glacier", "query"]


def made_texts(count: int) -> list[str]:
    """Make texts of 10 to 300 words, with log-normal lengths like passages."""
    texts = []
    for number in range(count):
        random = rng("dense", number)
        length = min(300, max(10, int(random.lognormvariate(4.2, 0.7))))
        texts.append(" ".join(random.choice(WORDS) + str(random.randrange(50)) for _ in range(length)))
    return texts


def compare(name: str, ours: Callable[[], Hits], theirs: Callable[[], list[list[dict[str, Any]]]], runs: int) -> None:
    """Alternate both and print the ratios, and the share of equal hits in the top ten."""
    walls, cpus, same = [], [], 0.0
    for run in range(runs):
        taken: dict[str, tuple[float, float, Any]] = {}
        for who in ("ours", "theirs") if run % 2 else ("theirs", "ours"):
            wall, cpu = time.perf_counter(), time.process_time()
            result = (ours if who == "ours" else theirs)()
            taken[who] = (time.perf_counter() - wall, time.process_time() - cpu, result)
        walls.append(taken["theirs"][0] / taken["ours"][0])
        cpus.append(taken["theirs"][1] / taken["ours"][1])
        found, wanted = taken["ours"][2], taken["theirs"][2]
        same = statistics.fmean(
            len({int(one) for one in row[:10]} & {hit["corpus_id"] for hit in hits[:10]}) / 10
            for row, hits in zip(found.positions, wanted, strict=True)
        )
    print(
        f"{name:40} wall {statistics.median(walls):5.2f}  CPU {statistics.median(cpus):5.2f}  top 10 equal {same:.3f}"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--passages", type=int, default=600)
    options.add_argument("--vectors", type=int, default=100_000)
    options.add_argument("--queries", type=int, default=200)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--device", default="cpu", help="of the models, both in fp32; `make gpu` compares more")
    asked = options.parse_args()

    import torch
    from sentence_transformers import SentenceTransformer, util

    torch.set_num_threads(1)
    folder = str(path("all-minilm-l6-v2"))
    texts = made_texts(asked.passages)
    queries = [" ".join(text.split()[3:10]) for text in texts[: asked.queries]]
    corpus = Passages([str(number) for number in range(len(texts))], ["" for _ in texts], texts)
    model = SentenceTransformer(folder, device=asked.device)
    embedder = SentenceTransformersEmbedder(
        folder, max_length=model.max_seq_length, device=asked.device, dtype="fp32", batch_size=32
    )
    embedder.encode(texts[:1], "passage")  # load it

    def ours() -> Hits:
        dense = Dense(embedder)
        dense.index(corpus)
        return dense.search(queries, K)

    def theirs() -> list[list[dict[str, Any]]]:
        passages = model.encode(texts, convert_to_tensor=True, normalize_embeddings=True)
        asked_for = model.encode(queries, convert_to_tensor=True, normalize_embeddings=True)
        return util.semantic_search(asked_for, passages, top_k=K, score_function=util.dot_score)

    print(f"theirs / ours; {asked.passages} passages, {asked.vectors} vectors, {len(queries)} queries, k={K}")
    compare("encode and search", ours, theirs, asked.runs)

    draw = np.random.default_rng(0)
    rows = draw.standard_normal((asked.vectors, DIM), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    wanted = draw.standard_normal((asked.queries, DIM), dtype=np.float32)
    search(rows[:20_000], wanted, K)  # compile
    compare(
        "search alone",
        lambda: search(rows, wanted, K),
        lambda: util.semantic_search(torch.from_numpy(wanted), torch.from_numpy(rows), top_k=K),
        asked.runs,
    )


if __name__ == "__main__":
    main()

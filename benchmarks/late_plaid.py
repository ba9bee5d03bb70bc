"""Run fast-plaid on the vectors from `benchmarks/late.py`, in an environment with fast-plaid and without airgen.

V/bin/python benchmarks/late_plaid.py FOLDER --bits 2 --depth 100
"""

from __future__ import annotations

import argparse
import os
import time
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAYON_NUM_THREADS", "1")

import numpy as np

SEARCHES = [(8, 256), (8, 1024), (32, 1024)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--bits", type=int, default=4)
    options.add_argument("--depth", type=int, default=100)
    asked = options.parse_args()

    import torch
    from fast_plaid import search

    torch.set_num_threads(1)
    folder: Path = asked.folder
    tokens, starts = np.load(folder / "tokens.npy", mmap_mode="r"), np.load(folder / "starts.npy")
    passages = [torch.from_numpy(np.array(tokens[a:b], np.float32)) for a, b in pairwise(starts)]
    rows, edges = np.load(folder / "queries.npy"), np.load(folder / "query_starts.npy")
    queries = [torch.from_numpy(rows[a:b].copy()) for a, b in pairwise(edges)]
    place = folder / f"plaid-{asked.bits}"
    begun = time.process_time()
    index = search.FastPlaid(index=str(place), device="cpu")
    index.create(documents_embeddings=passages, nbits=asked.bits, start_from_scratch=0)
    building = time.process_time() - begun
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    for probes, candidates in SEARCHES:
        begun = time.process_time()
        found = index.search(
            queries, top_k=asked.depth, n_ivf_probe=probes, n_full_scores=candidates, show_progress=False, n_processes=1
        )
        seconds = time.process_time() - begun
        positions = np.full((len(queries), asked.depth), -1, np.int32)
        scores = np.full((len(queries), asked.depth), -np.inf, np.float32)
        for row, hits in enumerate(found):
            positions[row, : len(hits)] = [hit[0] for hit in hits]
            scores[row, : len(hits)] = [hit[1] for hit in hits]
        name = folder / f"plaid-{asked.bits}-{probes}-{candidates}.npz"
        about = {"probes": probes, "candidates": candidates, "seconds": seconds, "bytes": size, "building": building}
        np.savez(name, positions=positions, scores=scores, **about)


if __name__ == "__main__":
    main()

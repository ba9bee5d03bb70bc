"""Run fast-plaid or PyLate on the vectors from `benchmarks/late.py`, in an environment with it and without airgen.

V/bin/python benchmarks/late_plaid.py FOLDER --bits 2 --depth 100              on the vectors of `quality` and `made`
V/bin/python benchmarks/late_plaid.py FOLDER --bits 2 --library pylate         on those of `large`, after --build
"""

from __future__ import annotations

import argparse
import os
import resource
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
    options.add_argument("--library", choices=["fast-plaid", "pylate"], help="on the vectors of `large`")
    options.add_argument("--build", action="store_true", help="build the index of `large`")
    asked = options.parse_args()
    if asked.library:
        large(asked)
        return

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


def large(asked: argparse.Namespace) -> None:
    """Build an index of the vectors that `late.py large` made, or search it, and write what is found."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    folder, library = asked.folder, asked.library
    starts, place = np.load(folder / "starts.npy"), folder / f"{library}-{asked.bits}"
    begun, clock, exists = time.process_time(), time.perf_counter(), place.exists()
    if library == "pylate":
        from pylate import indexes

        index = indexes.PLAID(
            index_folder=str(place), nbits=asked.bits, device="cpu", show_progress=False,
            num_threads=int(os.environ["OMP_NUM_THREADS"]),
        )  # fmt: skip
    else:
        from fast_plaid import search

        index = search.FastPlaid(index=str(place), device="cpu")
    if asked.build:
        if not exists:
            tokens = np.memmap(folder / "tokens.f16", np.float16, "c").reshape(starts[-1], -1)
            passages = [torch.from_numpy(tokens[a:b]) for a, b in pairwise(starts)]
            if library == "pylate":
                index.add_documents([str(number) for number in range(len(passages))], passages)
            else:
                index.create(documents_embeddings=passages, nbits=asked.bits, start_from_scratch=0)
            size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
            print(
                f"{library}: {time.process_time() - begun:.0f} s of CPU, {time.perf_counter() - clock:.0f} s, "
                f"{size / 1e6:.0f} MB, peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB",
                flush=True,
            )
        return
    rows, edges = np.load(folder / "queries.npy"), np.load(folder / "query_starts.npy")
    queries = [torch.from_numpy(rows[a:b].copy()) for a, b in pairwise(edges)]
    for probes, candidates in [(8, 1024), (8, 4096), (8, 8192)]:  # PyLate uses the last
        options = {"n_ivf_probe": probes, "n_full_scores": candidates}
        begun, clock = time.process_time(), time.perf_counter()
        if library == "pylate":
            index._index.n_ivf_probe, index._index.n_full_scores = probes, candidates
            hits = [[int(hit["id"]) for hit in row] for row in index(queries, k=asked.depth)]
        else:
            found = index.search(queries, top_k=asked.depth, show_progress=False, n_processes=1, **options)
            hits = [[hit[0] for hit in row] for row in found]
        times = {"cpu": time.process_time() - begun, "wall": time.perf_counter() - clock}
        positions = np.full((len(queries), asked.depth), -1, np.int32)
        for row, places in zip(positions, hits, strict=True):
            row[: len(places)] = places
        about = {key: value * 1000 / len(queries) for key, value in times.items()}
        about["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        np.savez(folder / f"found-{library} {probes:2} probes, {candidates:4} candidates", positions=positions, **about)


if __name__ == "__main__":
    main()

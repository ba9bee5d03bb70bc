"""Compare sparse search with sentence-transformers' own, with SciPy's sparse product and with Qdrant.

    python benchmarks/sparse.py --passages 10000 100000       Qdrant if `make servers` fetched it

Vectors are made: 120 of 30,522 terms in a passage and 30 in a query, as frequent as the words of a language, with
weights like SPLADE's. Every contender gives the 100 best passages of each query. Times are processor seconds with one
thread, and those of Qdrant are of its server alone. Contenders take turns; the table has the median of the paired
ratios (theirs / ours) with their range, the time to build an index, and the share of the ten best that is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "makers"))

import numpy as np
import torch
from numpy.typing import NDArray
from real_servers import program, started
from scipy.sparse import csr_matrix
from sentence_transformers import util

from airgen.retrievers.sparse import SparseRow, impact_index
from airgen.safety.escaping import markdown_table

TERMS, K = 30_522, 100
Best = NDArray[np.int64]


def rows(count: int, terms: int, seed: int) -> list[SparseRow]:
    """Make sparse vectors whose terms are as frequent as words, with log-normal weights up to about 3."""
    draw = np.random.default_rng(seed)
    share = 1 / (np.arange(TERMS) + 50.0)
    cumulated = np.cumsum(share / share.sum())
    found = []
    for _ in range(count):
        chosen = np.unique(np.searchsorted(cumulated, draw.random(terms)).clip(max=TERMS - 1)).astype(np.int32)
        found.append((chosen, np.log1p(draw.lognormal(-0.5, 0.9, len(chosen))).astype(np.float32)))
    return found


def matrix(vectors: list[SparseRow]) -> csr_matrix:
    starts = np.concatenate(([0], np.cumsum([len(terms) for terms, _ in vectors])))
    terms, weights = (np.concatenate(parts) for parts in zip(*vectors, strict=True))
    return csr_matrix((weights, terms, starts), shape=(len(vectors), TERMS))


def of_scipy(passages: csr_matrix, queries: csr_matrix) -> Best:
    found = np.empty((queries.shape[0], K), np.int64)
    turned = passages.T.tocsr()
    for number in range(queries.shape[0]):
        scores = (queries[number] @ turned).toarray()[0]
        best = np.argpartition(scores, -K)[-K:]
        found[number] = best[np.argsort(-scores[best], kind="stable")]
    return found


def tensor(vectors: csr_matrix) -> Any:
    parts = vectors.tocoo()
    places = torch.from_numpy(np.vstack([parts.row, parts.col]).astype(np.int64))
    values = torch.from_numpy(parts.data)
    return torch.sparse_coo_tensor(places, values, vectors.shape, check_invariants=False).coalesce()


class Qdrant:
    """A collection of sparse vectors in a server on this machine."""

    def __init__(self, address: str, vectors: list[SparseRow]) -> None:
        self.address = address
        self._call("PUT", "/collections/made", {"sparse_vectors": {"text": {}}})
        for first in range(0, len(vectors), 1000):
            points = [
                {"id": first + place, "vector": {"text": self._value(row)}}
                for place, row in enumerate(vectors[first : first + 1000])
            ]
            self._call("PUT", "/collections/made/points?wait=true", {"points": points})

    def search(self, queries: list[SparseRow]) -> Best:
        searches = [{"query": self._value(row), "using": "text", "limit": K} for row in queries]
        value = self._call("POST", "/collections/made/points/query/batch", {"searches": searches})
        return np.array([[point["id"] for point in answer["points"]] for answer in value["result"]], np.int64)

    def _value(self, row: SparseRow) -> dict[str, list[float]]:
        return {"indices": row[0].tolist(), "values": row[1].tolist()}

    def _call(self, method: str, path: str, value: object) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.address + path, json.dumps(value).encode(), headers, method=method)
        with urllib.request.urlopen(request, timeout=600) as response:
            return json.load(response)


def servers_seconds() -> float:
    """Return the processor seconds of the programs that this process has started and that still run."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text("utf-8").split()
    fields = [Path(f"/proc/{child}/stat").read_text("utf-8").rpartition(")")[2].split() for child in children]
    return sum(int(row[11]) + int(row[12]) for row in fields) / os.sysconf("SC_CLK_TCK")


def measured(count: int, queries: int, turns: int, qdrant: str | None) -> Iterator[list[str]]:
    passages, asked = rows(count, 150, 1), rows(queries, 32, 2)
    built, start = {}, time.process_time()
    index = impact_index(passages)
    built["airgen"] = time.process_time() - start
    whole, few = matrix(passages), matrix(asked)
    start = time.process_time()
    tensors = tensor(whole), tensor(few)
    built["sentence-transformers"] = time.process_time() - start
    weighted = [dict(zip(terms.tolist(), weights.tolist(), strict=True)) for terms, weights in asked]
    size = len(index.starts) - 1
    weighted = [{term: weight for term, weight in row.items() if term < size} for row in weighted]

    def library() -> Best:
        hits = util.semantic_search(*reversed(tensors), top_k=K, score_function=util.dot_score)
        return np.array([[hit["corpus_id"] for hit in row] for row in hits], np.int64)

    contenders: dict[str, Callable[[], Best]] = {
        "airgen": lambda: index.search(weighted, K, threads=1, compiled=True).positions.astype(np.int64),
        "sentence-transformers": library,
        "SciPy": lambda: of_scipy(whole, few),
    }
    if qdrant:
        before = servers_seconds()
        server = Qdrant(qdrant, passages)
        built["Qdrant"] = servers_seconds() - before
        contenders["Qdrant"] = lambda: server.search(asked)
    contenders["airgen"]()  # compiles
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    found: dict[str, Best] = {}
    for turn in range(turns):
        for name in sorted(contenders, reverse=bool(turn % 2)):
            clock = servers_seconds if name == "Qdrant" else time.process_time
            start = clock()
            found[name] = contenders[name]()
            taken[name].append(clock() - start)
    for name, seconds in taken.items():
        ratios = [theirs / ours for theirs, ours in zip(seconds, taken["airgen"], strict=True)]
        pairs = zip(found[name][:, :10].tolist(), found["airgen"][:, :10].tolist(), strict=True)
        same = statistics.fmean(len({*theirs} & {*ours}) / 10 for theirs, ours in pairs)
        yield [
            f"{count:,}", name, f"{built[name]:.1f}" if name in built else "",
            f"{1000 * statistics.median(seconds) / queries:.2f}",
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", f"{same:.3f}",
        ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--without-qdrant", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    head = ["passages", "", "building, s", "ms a query", "theirs / ours (range)", "same in the ten best"]
    table = []
    for count in options.passages:
        with ExitStack() as stack:
            address = None
            if not options.without_qdrant:
                program("qdrant")
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                address = stack.enter_context(started("qdrant", folder))
            table += measured(count, options.queries, options.turns, address)
        print(markdown_table(head, table), flush=True)


if __name__ == "__main__":
    main()

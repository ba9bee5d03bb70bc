"""Print hashes of the hits of dense systems, and of the files of a small job with its evaluation, one per line.

python bits.py FOLDER        a folder of `job_maker`: FOLDER/job.yaml
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from airgen import models


def show(name: str, *parts: bytes) -> None:
    print(name, hashlib.sha256(b"\0".join(parts)).hexdigest()[:16])


def searches() -> None:
    """Run exact, sharded, late, LSA and lexical search, with one query and with several, and score vectors."""
    from airgen.compute import exact_arithmetic
    from airgen.evaluation.intervals import resampled_means
    from airgen.evaluation.significance import fisher_test
    from airgen.retrievers.dense import exact_search
    from airgen.retrievers.dense.exact_search import merged
    from airgen.retrievers.dense.lsa import LSA
    from airgen.retrievers.hits import Hits
    from airgen.retrievers.late.compressed_index import CompressedIndex, build_index
    from airgen.retrievers.late.maxsim import maxsims
    from airgen.retrievers.lexical.bm25 import BM25
    from airgen.retrievers.passages import Passages

    draw = np.random.default_rng(0)
    rows = draw.standard_normal((3000, 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[2000:] = rows[:1000]  # ties
    queries = rows[:40] + 0.02 * draw.standard_normal((40, 384)).astype(np.float32)
    for kind in (np.float16, np.float32):
        for name, few in (("all", queries), ("one", queries[7:8]), ("some", queries[:17])):
            hits = exact_search.search(rows.astype(kind), few, 100)
            at = {"all": slice(7, 8), "one": slice(0, 1), "some": slice(7, 8)}[name]
            show(f"exact {kind.__name__}", hits.positions[at].tobytes(), hits.scores[at].tobytes())
            show(f"exact {kind.__name__} {name}", hits.positions.tobytes(), hits.scores.tobytes())
    halves = [exact_search.search(part, queries, 100) for part in (rows[:1500], rows[1500:])]
    halves[1] = Hits(halves[1].positions + 1500, halves[1].scores)
    both = merged(*halves)
    show("exact float32 all", both.positions.tobytes(), both.scores.tobytes())

    words = [f"w{number}" for number in range(400)]
    texts = [" ".join(draw.choice(words, 25)) for _ in range(500)]
    texts += texts[:50]
    for system in (LSA(60), BM25()):
        system.index(Passages([str(number) for number in range(len(texts))], texts))
        found = system.search([text[:60] for text in texts[:30]], 100)
        show(system.name, found.positions.tobytes(), found.scores.tobytes())
        alone = system.search([texts[9][:60]], 100)
        show(f"{system.name} one", alone.positions.tobytes(), alone.scores.tobytes())

    tokens = [array[: 3 + number % 9] for number, array in enumerate(rows[:2400].reshape(200, 12, 384))]
    start = np.zeros(1, np.int64)
    halved = [array.astype(np.float16) for array in tokens]
    show("maxsim", *(maxsims([halved[0]], array, start).tobytes() for array in halved))

    def encode(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            yield [tokens[int(text)] for text in batch] or None

    with tempfile.TemporaryDirectory() as folder:
        build_index(Path(folder) / "late", [str(number) for number in range(200)], encode, bits=2)
        index = CompressedIndex.open(Path(folder) / "late")
        found = index.search(tokens[:20], 30, probes=4, candidates=60)
    show("compressed", found.positions.tobytes(), found.scores.tobytes())

    measured = np.round(draw.random((6, 90)), 3)
    show("bootstrap", resampled_means(measured).tobytes(), fisher_test(measured[1:] - measured[0]).tobytes())
    show(
        "logarithms",
        exact_arithmetic.log(1 + rows[0] ** 2).tobytes(),
        exact_arithmetic.log2(np.arange(1, 3000)).tobytes(),
    )


def job(folder: Path) -> None:
    """Return the files of a job with its evaluation, except those with times or the name of the machine."""
    from encode_once import encoding_once

    from airgen.api import run
    from airgen.dataset.secret import Secret
    from airgen.job import job as job_module

    job_module.new_secret = lambda: Secret(bytes(range(32)))  # type: ignore[assignment]
    with encoding_once():
        found = run(folder / "job.yaml", runs=folder / "runs", quiet=True, report=False)
    assert found is not None
    timed = ("report.md", "status.json")
    for path in sorted((folder / "runs").rglob("*")):
        name, data = path.relative_to(folder).as_posix(), path.read_bytes() if path.is_file() else b""
        if not data or path.suffix in (".duckdb", ".wal") or path.name in timed:
            continue
        if path.suffix == ".json":
            value = json.loads(data)
            value.pop("made_with" if path.name == "manifest.json" else "costs", None)
            data = json.dumps(value).encode()
        show(name, data)


if __name__ == "__main__":
    searches()
    if models.fetched("all-minilm-l6-v2-int8"):
        job(Path(sys.argv[1]))

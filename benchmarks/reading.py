"""Compare reading and scoring of runs and labels with pytrec_eval, alternating in one process.

    python benchmarks/reading.py                        1 million lines, 1,000 a query
    python benchmarks/reading.py --lines 10000000 --runs 3
    python benchmarks/reading.py --corpus 60000         a collection's passages and queries instead

Prints processor seconds, medians of the paired ratios, and the rate in MB/s. `by lines` is the parser that names bad
lines: large files meet it only where a line is not clean. `bytes` reads the file and counts its lines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytrec_eval

from airgen.dataset.beir import BeirDataset, read_qrels
from airgen.evaluation import run as runs
from airgen.evaluation.measures import parse_measures, score
from airgen.evaluation.run import read_run


def make(folder: Path, lines: int, hits: int) -> tuple[Path, Path]:
    """Write a run of random scores, best first, and labels for twenty passages per query."""
    draw = np.random.default_rng(0)
    run, qrels = folder / "a.run", folder / "test.tsv"
    with run.open("w") as ranked, qrels.open("w") as labels:
        labels.write("query-id\tcorpus-id\tscore\n")
        for query in range(lines // hits):
            found = draw.choice(200_000, hits, replace=False).tolist()
            scores = np.sort(draw.random(hits, dtype=np.float32))[::-1].tolist()
            rows = enumerate(zip(found, scores, strict=True), 1)
            ranked.write("".join(f"q{query} Q0 doc{one} {rank} {value:.9g} bm25\n" for rank, (one, value) in rows))
            labels.write("".join(f"q{query}\tdoc{one}\t{place % 3}\n" for place, one in enumerate(found[::50])))
    return run, qrels


def by_lines(path: Path) -> Any:
    """Run the line parser alone."""
    least, runs._DUCKDB_FROM_BYTES = runs._DUCKDB_FROM_BYTES, 1 << 60
    try:
        return read_run(path)
    finally:
        runs._DUCKDB_FROM_BYTES = least


def theirs(path: Path) -> Any:
    with path.open() as stream:
        return pytrec_eval.parse_run(stream)


def count_lines(path: Path) -> int:
    with path.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 22), b""))


def collection(folder: Path, count: int) -> None:
    """Write passages of 80 random words, and as many queries of 8 words with metadata."""
    draw = np.random.default_rng(0)
    words = ["".join(draw.choice(list("abcdefghilmnoprstuvé"), draw.integers(2, 11))) for _ in range(5000)]

    def text(length: int) -> str:
        return " ".join(words[number] for number in draw.integers(0, len(words), length))

    with (folder / "corpus.jsonl").open("w") as passages, (folder / "queries.jsonl").open("w") as queries:
        for number in range(count):
            row = {"_id": f"doc{number}", "title": text(4), "text": text(80)}
            passages.write(json.dumps(row, ensure_ascii=False) + "\n")
            asked = {"_id": f"q{number}", "text": text(8), "metadata": {"type": "question", "length": 8}}
            queries.write(json.dumps(asked, ensure_ascii=False) + "\n")
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("q0\tdoc0\t1\n")


def by_duckdb(path: Path) -> Any:
    """Read the rows as Python objects with given columns, so that nothing is detected."""
    import duckdb

    columns = "{'_id': 'VARCHAR', 'title': 'VARCHAR', 'text': 'VARCHAR'}"
    with duckdb.connect(config={"threads": 1}) as base:
        sql = f"SELECT * FROM read_json(?, format = 'newline_delimited', columns = {columns})"
        return base.execute(sql, [str(path)]).fetchall()


def by_json(path: Path) -> None:
    """Parse each line on its own, without keeping or checking anything."""
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            json.loads(line)


def read_collection(folder: Path, count: int, runs: int) -> None:
    collection(folder, count)
    dataset = BeirDataset.open(folder)
    corpus, queries = folder / "corpus.jsonl", folder / "queries.jsonl"
    ways: dict[str, tuple[Path, Callable[[], Any]]] = {
        "passages, airgen": (corpus, lambda: sum(1 for _ in dataset.passages())),
        "passages, json.loads of each line": (corpus, lambda: by_json(corpus)),
        "passages, DuckDB's read_json": (corpus, lambda: by_duckdb(corpus)),
        "queries, airgen": (queries, dataset.queries),
        "queries, json.loads of each line": (queries, lambda: by_json(queries)),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, (path, work) in ways.items():
            rates[name].append(path.stat().st_size / 1e6 / timed(work))
    for name, found in rates.items():
        print(f"{name:36} {statistics.median(found):5.0f} MB/s ({min(found):.0f} to {max(found):.0f})")


def timed(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--lines", type=int, default=1_000_000)
    options.add_argument("--hits", type=int, default=1_000)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--corpus", type=int)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.corpus:
            read_collection(Path(folder), asked.corpus, asked.runs)
            return
        run, qrels = make(Path(folder), asked.lines, asked.hits)
        size = run.stat().st_size / 1e6
        print(f"{asked.lines} lines, {size:.0f} MB")
        read_run(run)  # compile
        ways: dict[str, Callable[[], Any]] = {
            "airgen": lambda: read_run(run),
            "by lines": lambda: by_lines(run),
            "pytrec_eval": lambda: theirs(run),
            "bytes": lambda: count_lines(run),
            "airgen, with labels and scores": lambda: score(
                read_run(run), read_qrels(qrels).labels, parse_measures("nDCG@10 AP Recall@100")
            ),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(asked.runs):
            for name, work in ways.items():
                times[name].append(timed(work))
        for name, taken in times.items():
            ratio = statistics.median(other / ours for other, ours in zip(taken, times["airgen"], strict=True))
            middle = statistics.median(taken)
            print(f"{name:32} {middle:7.2f} s CPU {size / middle:7.0f} MB/s {ratio:7.2f} times airgen's time")


if __name__ == "__main__":
    main()

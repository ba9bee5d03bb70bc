"""Reading a run and labels, and scoring, beside pytrec_eval's own reading; in one process, alternating.

    python benchmarks/reading.py                        1 million lines, 1,000 a query
    python benchmarks/reading.py --lines 10000000 --runs 3

Prints processor seconds, medians of the paired ratios, and the rate in MB/s. `by lines` is the parser that names bad
lines: large files meet it only where a line is not clean. `bytes` reads the file and counts its lines.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytrec_eval

from airgen.dataset import clean_columns
from airgen.dataset.beir import read_qrels
from airgen.evaluation.measures import parse_measures, score
from airgen.evaluation.run import read_run


def make(folder: Path, lines: int, hits: int) -> tuple[Path, Path]:
    """A run of random scores, best first, and labels of twenty passages of each query."""
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
    """The parser of lines alone."""
    least, clean_columns._FROM = clean_columns._FROM, 1 << 60
    try:
        return read_run(path)
    finally:
        clean_columns._FROM = least


def theirs(path: Path) -> Any:
    with path.open() as stream:
        return pytrec_eval.parse_run(stream)


def count_lines(path: Path) -> int:
    with path.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 22), b""))


def timed(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--lines", type=int, default=1_000_000)
    options.add_argument("--hits", type=int, default=1_000)
    options.add_argument("--runs", type=int, default=5)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
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

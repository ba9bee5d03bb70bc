"""Measure the cost of each part of a benchmark at several corpus sizes, and how it grows.

    python benchmarks/scale.py                                      1,000, 10,000 and 100,000 passages
    python benchmarks/scale.py --passages 10000 100000 --queries 1000
    python benchmarks/scale.py --passages 1000 100000 1000000 --folder scale --json scale.json
    python benchmarks/scale.py --passages --json scale.json --project 10000000

The corpus, the encoder that costs nothing and the scripted LLM are those of `memory.py`, and the queries are as many at
all sizes. Works are the stages of the job (`recall` has the encoding in it, `export` all that comes after the stages),
evaluation of BM25 and of the encoder, and the report. Printed are processor seconds and the largest memory that no file
backs. `start` is what it takes until the first stage begins.

The growth from one size to the next is the exponent of n, after subtracting the cost at the smallest size. It is shown
next to the exponent of n log n, and marked if it is more than a tenth larger. Linux only.

`--project` calculates a larger size from the two largest sizes that were measured: in each work, each further passage
takes as much as one between these two, in one process on the same machine. `disk` is what the job's folder takes.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from memory import CORPUS, ENCODER, HASHED, LOOK, make_corpus, memory, pipeline, run

SYSTEMS = """
systems:
  - {name: bm25, kind: bm25}
  - {name: hashed, kind: dense, embedder: {kind: "hashed:Hashed"}}
"""
NOISE = 0.1  # of an exponent
LEAST = 1.0  # seconds: a work that costs less is not judged


def command(folder: Path, *words: str) -> float:
    """Run airgen in the folder, and return its maximum memory in MB."""
    highest = 0.0
    with subprocess.Popen([sys.executable, "-m", "airgen", *words], cwd=folder, stdout=subprocess.DEVNULL) as child:
        while child.poll() is None:
            highest = max(highest, memory(child.pid)[0])
            time.sleep(LOOK)
    if child.returncode:
        raise SystemExit(f"airgen {' '.join(words)} ended with {child.returncode}")
    return highest


def cost(work: Callable[[], float]) -> dict[str, float]:
    """Return the processor seconds of the processes that the work starts, and the MB that it reports."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    highest = work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": seconds, "own": highest}


def measure(folder: Path, passages: int, queries: int) -> dict[str, dict[str, float]]:
    """Return {work: cost} at one size."""
    folder.mkdir(parents=True)
    make_corpus(folder / "large.jsonl", passages)
    job = pipeline(HASHED).replace("target: 50", f"target: {queries}")
    files = {"large.yaml": CORPUS, "memory.yaml": job, "hashed.py": ENCODER, "systems.yaml": SYSTEMS}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    peaks, _, _ = run(folder, None)
    noted = [line.rsplit(" ", 1) for line in (folder / "cpu.txt").read_text().splitlines()]
    found = {"start": {"cpu": float(noted[0][1]), "own": peaks["start"]}}
    for (name, begin), (_, end) in pairwise(noted):
        found[name] = {"cpu": float(end) - float(begin), "own": peaks.get(name, 0.0)}
    size = sum(path.stat().st_size for path in (folder / "runs").rglob("*") if path.is_file())
    found["disk"] = {"cpu": 0.0, "own": size / (1 << 20)}
    for name, row in found.items():
        show(passages, name, row)

    def add(name: str, work: Callable[[], float]) -> None:
        found[name] = cost(work)
        show(passages, name, found[name])

    dataset = str(next((folder / "runs").glob("*/dataset")))
    add("evaluation", lambda: command(folder, "evaluate", dataset, "--systems", "systems.yaml", "--out", "results"))
    add("report", lambda: command(folder, "report", "results", "--out", "page"))
    return found


def show(passages: int, name: str, row: dict[str, float]) -> None:
    print(f"{passages:>9,} {name:<18} {row['cpu']:8.1f} s CPU {row['own']:7,.0f} MB", flush=True)


def growth(rows: dict[int, dict[str, dict[str, float]]]) -> list[str]:
    """Yield a line for each part with its exponents between sizes."""
    sizes = sorted(rows)
    lines = []
    for name in rows[sizes[0]]:
        start = rows[sizes[0]][name]["cpu"]
        for small, large in pairwise(sizes):
            low, high = rows[small][name]["cpu"] - start, rows[large][name]["cpu"] - start
            allowed = math.log(large * math.log(large) / (small * math.log(small))) / math.log(large / small)
            if small == sizes[0] or min(low, high) < LEAST:
                continue
            found = math.log(high / low) / math.log(large / small)
            mark = "  FASTER THAN n log n" if found > allowed + NOISE else ""
            lines.append(f"{name:<11} {small:>9,} to {large:>9,}: n^{found:.2f} (n log n is n^{allowed:.2f}){mark}")
    return lines


def projected(rows: dict[int, dict[str, dict[str, float]]], passages: int) -> list[str]:
    """Yield a line for each work: what a passage takes, and all of them."""
    small, large = sorted(rows)[-2:]
    lines, hours = [], 0.0
    for name, row in rows[large].items():
        each = {key: (row[key] - rows[small][name][key]) / (large - small) for key in ("cpu", "own")}
        total = {key: row[key] + max(0.0, each[key]) * (passages - large) for key in each}
        hours += total["cpu"] / 3600
        a_passage = f"{each['cpu'] * 1e6:8.0f} µs and {each['own'] * (1 << 20):6.0f} bytes a passage"
        all_of_it = f"{total['cpu'] / 3600:6.2f} h CPU {total['own'] / 1024:6.1f} GB"
        lines.append(f"{passages:>10,} {name:<18} {a_passage}: {all_of_it}")
    return [*lines, f"{passages:>10,} in all {hours:.1f} h CPU, from {small:,} and {large:,} passages"]


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--folder", type=Path, help="where to work, a new folder for each size; temporary by default")
    parser.add_argument("--json", type=Path, help="write the figures, beside those that the file has already")
    parser.add_argument("--project", type=int, help="a number of passages too large to be measured")
    asked = parser.parse_args()
    rows: dict[int, Any] = {}
    if asked.json and asked.json.exists():
        rows = {int(size): row for size, row in json.loads(asked.json.read_bytes()).items()}
    for passages in asked.passages:
        with tempfile.TemporaryDirectory() as temporary:
            rows[passages] = measure((asked.folder or Path(temporary)) / str(passages), passages, asked.queries)
        if asked.json:
            asked.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print("\n".join(growth(rows)))
    if asked.project:
        print("\n".join(projected(rows, asked.project)))


if __name__ == "__main__":
    main()

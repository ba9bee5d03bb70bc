"""Measure time and memory of tables, studies and readers as systems, queries, passages and lines grow.

    python benchmarks/growth.py                          # half an hour on two cores
    python benchmarks/growth.py --only score gate

Each size runs in a process of its own, and its files are made in another. CPU is in seconds, and memory is the peak of
the process in MB, of which the libraries take about 100. `exponent` is the growth of the CPU time since the size
before, without the time at the smallest size from the third size on: 1 is in proportion. A size that takes more than
`--limit` CPU seconds or 8 GB is left out, and so are larger ones.
"""

import argparse
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airgen.safety.escaping import markdown_table

MEMORY = 8 << 30
HITS = 20
WORDS = np.array([f"{first}{second}{third}" for first in "bdfgklmnprst" for second in "aeiou" for third in "lnrstvxz"])
DRAW = np.random.default_rng(0)


@dataclass(frozen=True)
class Work:
    """What is measured: `run(folder, *size)` after `make(folder, *size)`. `grown` is the size that grows."""

    grows: str
    sizes: Sequence[tuple[int, int]]
    run: Callable[[Path, int, int], Any]
    make: Callable[[Path, int, int], Any] | None = None
    grown: int = 1


def text(count: int) -> str:
    """Return a text of words that are as frequent as in natural language."""
    places = np.minimum(DRAW.zipf(1.3, count), len(WORDS) * 100) - 1
    return " ".join(WORDS[place % len(WORDS)] + "e" * (place // len(WORDS)) for place in places)


def make_dataset(folder: Path, passages: int, queries: int, words: int = 40) -> None:
    """Write a dataset with one positive and two negatives for each query."""
    from airgen.dataset.content import CorpusRow, DatasetContent, DatasetInfo, QrelRow, QueryRow
    from airgen.dataset.write import write_dataset

    info = DatasetInfo("made", "qa", "general", "en", "CC0-1.0", "CC0-1.0", "1", None, {"test": 1}, "made")
    corpus = [CorpusRow(f"p{number:07}", text(2), f"{text(words)}.") for number in range(passages)]
    asked = [
        QueryRow(f"q{number:07}", f"What is {text(5)}?", "test", {"type": "question"}) for number in range(queries)
    ]
    places = DRAW.integers(0, passages, (queries, 3))
    places[:, 1:] = (places[:, :1] + 1 + np.arange(2)) % passages
    labels = [
        QrelRow(row.id, f"p{place:07}", int(at == 0))
        for row, three in zip(asked, places, strict=True)
        for at, place in enumerate(three)
    ]
    write_dataset(folder / "data", DatasetContent(info, corpus, asked, labels))


def make_results(folder: Path, systems: int, queries: int, passages: int = 2000) -> None:
    """Write a dataset, and evaluate runs of random hits among which is the positive."""
    from airgen.dataset.beir import BeirDataset
    from airgen.evaluation import EvaluationOptions, evaluate
    from airgen.evaluation.systems import SystemSettings

    make_dataset(folder, passages, queries)
    labels = BeirDataset.open(folder / "data").qrels("test").labels
    ids = np.array([f"p{number:07}" for number in range(passages)])
    for system in range(systems):
        with (folder / f"{system}.run").open("w") as out:
            for query, row in labels.items():
                hits = dict.fromkeys([*DRAW.choice(ids, HITS - 1).tolist(), max(row, key=lambda key: row[key])])
                order = DRAW.permutation(len(hits)) + 1
                out.writelines(
                    f"{query} Q0 {hit} {rank} {-rank} made\n" for hit, rank in zip(hits, order.tolist(), strict=True)
                )
    every = [SystemSettings(name=f"s{system}", kind="run", path=f"{system}.run") for system in range(systems)]
    options = EvaluationOptions("test", top=HITS, folder=folder, report=False)
    evaluate(folder / "data", every, folder / "results", options)


def make_lines(folder: Path, _: int, lines: int) -> None:
    """Write a log of queries, of which each tenth repeats an earlier one."""
    make_tiny(folder, 0, 100)
    with (folder / "log.csv").open("w") as out:
        out.write("query\n")
        for number in range(lines):
            out.write(f"how {text(4)} {number % max(1, lines * 9 // 10)}\n")
    (folder / "job.yaml").write_text(
        (folder / "job.yaml").read_text().replace("target: 3\n", "queries: {file: log.csv}\n"), encoding="utf-8"
    )


def make_tiny(folder: Path, _: int, passages: int) -> None:
    """Write a job on a corpus of passages of about ten words."""
    with (folder / "small.jsonl").open("w") as out:
        for number in range(passages):
            out.write(json.dumps({"id": f"p{number}", "text": f"The {text(7)} of {number} is here."}) + "\n")
    (folder / "small.yaml").write_text(
        "{name: small, language: en, domain: test, licence: CC0-1.0, source: made, reader: {kind: jsonl, path: "
        'small.jsonl}, clean: {min_tokens: 3, language: "off", boilerplate: "off", personal_data: "off", '
        "near_duplicates: null}}\n",
        encoding="utf-8",
    )
    (folder / "job.yaml").write_text(
        "name: job\ntask: qa\ncorpus: small.yaml\ntarget: 3\nllm: {backend: scripted}\n"
        "control: {recall: {pools_only: true, top_k: 10}, pools: [bm25], rerankers: [bm25]}\n",
        encoding="utf-8",
    )


def run_job(folder: Path, until: str) -> None:
    """Run the job up to a stage."""
    from rich.console import Console

    from airgen.job import Job
    from airgen.job.run_job import run_job
    from airgen.steps.progress import Display

    job = Job(folder / "job.yaml", folder / "runs")
    run_job(job, Display(job.directory / "status.json", Console(quiet=True)), until=until)


def compare(_: Path, systems: int, queries: int) -> None:
    from airgen.evaluation.significance import compare

    compare([str(number) for number in range(systems)], DRAW.random((systems, queries)))


def rank_intervals(_: Path, systems: int, queries: int) -> None:
    from airgen.evaluation.significance import rank_intervals

    rank_intervals(DRAW.random((systems, queries)))


def gate(_: Path, __: int, queries: int) -> None:
    from airgen.evaluation.significance import against_baseline

    against_baseline("a", DRAW.random(queries), DRAW.random(queries), measure="x")


def score(_: Path, __: int, queries: int) -> None:
    from airgen.evaluation import run_from_dict, score

    run = run_from_dict({f"q{n}": {f"p{m}": float(-m) for m in range(100)} for n in range(queries)})
    score(run, {f"q{n}": {"p3": 1.0} for n in range(queries)}, "nDCG@10 Hole@10")


def correlate(_: Path, systems: int, __: int) -> None:
    from airgen.studies.rank_correlation import rank_correlation

    rank_correlation(DRAW.random(systems).tolist(), DRAW.random(systems).tolist())


def holes(_: Path, systems: int, queries: int) -> None:
    from airgen.audit.holes import fill, find_holes, moves
    from airgen.evaluation import run_from_dict

    qrels = {f"q{n}": {f"p{n % 500}": 1.0} for n in range(queries)}
    runs = {
        str(system): run_from_dict(
            {f"q{n}": {f"p{(n + m * (system + 1)) % 500}": float(-m) for m in range(HITS)} for n in range(queries)}
        )
        for system in range(systems)
    }
    pairs = find_holes(runs.values(), qrels, 10)
    moves(runs, qrels, fill(qrels, dict.fromkeys(pairs[::3], 1.0)), "nDCG@10", 10)


def diversity(folder: Path, *_: int) -> None:
    from airgen.dataset.beir import BeirDataset
    from airgen.studies.diversity.measure import profile_dataset

    profile_dataset(BeirDataset.open(folder / "data"), language="en")


def inspect(folder: Path, *_: int) -> None:
    from airgen.studies.inspect.inspect_dataset import inspect_dataset

    inspect_dataset(folder / "data", out=folder / "inspected", results=folder / "results", language="en")


def inspect_texts(folder: Path, *_: int) -> None:
    from airgen.dataset.beir import BeirDataset
    from airgen.evaluation.dataset_split import DatasetSplit
    from airgen.studies.inspect.measures import by_texts

    by_texts(DatasetSplit(BeirDataset.open(folder / "data"), "test", "en"))


def audit(folder: Path, *_: int) -> None:
    from airgen.audit.labels import draw_labels

    draw_labels(folder / "data", 100, folder / "audit")


def report(folder: Path, *_: int) -> None:
    from airgen.report.report import make_report

    make_report([folder / "data", folder / "results"], folder / "page")


SYSTEMS = [(10, 1000), (30, 1000), (100, 1000)]
QUERIES = [(10, 1000), (10, 3000), (10, 10_000)]
WORKS = {
    "compare, systems": Work(
        "systems (1,000 queries)", [(size, 1000) for size in (10, 50, 100, 200, 500)], compare, grown=0
    ),
    "compare, queries": Work("queries (2 systems)", [(2, 10**power) for power in (3, 4, 5)], compare),
    "rank intervals, systems": Work(
        "systems (1,000 queries)", [(size, 1000) for size in (10, 100, 500)], rank_intervals, grown=0
    ),
    "rank intervals, queries": Work("queries (10 systems)", [(10, 10**power) for power in (3, 4, 5)], rank_intervals),
    "gate": Work("queries", [(1, 10**power) for power in (3, 4, 5)], gate),
    "score": Work("queries (100 hits each)", [(1, 10**power) for power in (3, 4, 5)], score),
    "correlate": Work("systems", [(size, 1) for size in (100, 1000, 3000)], correlate, grown=0),
    "holes, systems": Work("systems (1,000 queries)", [(size, 1000) for size in (10, 50, 200)], holes, grown=0),
    "holes, queries": Work("queries (10 systems)", [(10, 10**power) for power in (3, 4, 5)], holes),
    "diversity": Work(
        "passages (a tenth as many queries)", [(10**power, 10 ** (power - 1)) for power in (4, 5, 6)], diversity,
        make_dataset, grown=0,
    ),
    "inspect, texts": Work(
        "passages (a tenth as many queries)", [(10**power, 10 ** (power - 1)) for power in (4, 5, 6)], inspect_texts,
        make_dataset, grown=0,
    ),
    "inspect, systems": Work("systems (1,000 queries)", SYSTEMS, inspect, make_results, grown=0),
    "inspect, queries": Work("queries (10 systems)", QUERIES, inspect, make_results),
    "audit": Work("queries (2,000 passages)", [(2000, 10**power) for power in (3, 4, 5)], audit, make_dataset),
    "report, systems": Work("systems (1,000 queries)", SYSTEMS, report, make_results, grown=0),
    "report, queries": Work("queries (10 systems)", QUERIES, report, make_results),
    "report, both": Work("queries (100 systems)", [(100, 1000), (100, 10_000)], report, make_results),
    "own log": Work(
        "lines", [(1, 10**power) for power in (4, 5, 6)], lambda folder, *_: run_job(folder, "queries"), make_lines
    ),
    "tiny passages": Work(
        "passages", [(1, 10**power) for power in (4, 5, 6)], lambda folder, *_: run_job(folder, "corpus"), make_tiny
    ),
}  # fmt: skip


def one(name: str, step: str, folder: Path, size: tuple[int, int], limit: int) -> None:
    """Make the files of a work, or run it and print its CPU seconds and peak of memory."""
    work = WORKS[name]
    if step == "make":
        assert work.make is not None
        work.make(folder, *size)
        return
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    work.run(folder, *size)
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(use.ru_utime + use.ru_stime for use in uses)
    print(seconds, max(use.ru_maxrss for use in uses) // 1024)


def measure(name: str, size: tuple[int, int], limit: int) -> tuple[float, str]:
    """Return the CPU seconds and the MB of a work at one size, or 0 and why it was left out."""
    with tempfile.TemporaryDirectory(prefix="airgen-growth-") as folder:
        for step in ["make"] * (WORKS[name].make is not None) + ["run"]:
            words = ["--limit", limit, "--one", name, step, folder, *size]
            command = [sys.executable, __file__, *map(str, words)]
            found = subprocess.run(command, capture_output=True, text=True, cwd=folder)
            if found.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
                return 0.0, f"left out: it takes more than {limit} s"
            if found.returncode:
                return 0.0, f"left out: {(found.stderr.strip().splitlines() or ['?'])[-1][:200]}"
    seconds, memory = found.stdout.split()[-2:]
    return float(seconds), memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(WORKS), metavar="NAME")
    parser.add_argument("--limit", type=int, default=240, help="most CPU seconds of a size")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        name, step, folder, *size = args.one
        one(name, step, Path(folder), (int(size[0]), int(size[1])), args.limit)
        return
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    rows = []
    for name in args.only:
        work, known = WORKS[name], list[tuple[int, float]]()
        for size in work.sizes:
            seconds, memory = measure(name, size, args.limit)
            many, exponent = size[work.grown], ""
            if seconds and known:
                start = known[0][1] if len(known) > 1 else 0.0
                before = known[-1][1] - start
                if before > 0.05 and seconds > start:
                    exponent = f"{math.log((seconds - start) / before) / math.log(many / known[-1][0]):.1f}"
            known += [(many, seconds)] if seconds else []
            rows.append([name, work.grows, f"{many:,}", f"{seconds:.1f}" if seconds else "", memory, exponent])
            print(*rows[-1], sep="  ", flush=True)
            if not seconds:
                break
    print(markdown_table(["work", "what grows", "size", "CPU s", "peak MB", "exponent"], rows))


if __name__ == "__main__":
    main()

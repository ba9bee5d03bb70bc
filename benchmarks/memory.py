"""Measure the peak memory of a whole job: corpus, candidates, quality control and export.

python benchmarks/memory.py --passages 100000
python benchmarks/memory.py --passages 300000 1000000 --folder memory --json memory.json
python benchmarks/memory.py --passages 1000000 --folder memory --phases control          after corpus and candidates
python benchmarks/memory.py --passages 300000 --model wordllama-256 --compute local ray:2

Quality control recalls with an encoder that costs nothing (vectors of 384 dimensions, made from a hash of the text) and
with BM25, which is also the re-ranker; the LLM is scripted. Passages are made of about 120 words that are distributed
as in a language (Zipf), 740 bytes. Each phase runs in its own process, which is inspected every 10 ms:

own      the largest resident memory that no file backs (RssAnon + RssShmem): what the machine must have
all      the largest resident memory (VmHWM), with mapped files, which the kernel drops when memory is short

Both are of the process that drives, and so are the CPU seconds. `--compute` runs the job by each of these ways, by Ray
on a cluster of two nodes on loopback; what workers take, compute.py measures.

A corpus that is already in the folder is read again. Equal numbers of passages give an equal digest of the dataset.
Only on Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import accumulate, product
from pathlib import Path
from typing import Any

from airgen.components.keys import rng

_SYLLABLES = [f"{first}{last}" for first in "bdfgklmnprst" for last in "aeiou"]
WORDS = [*_SYLLABLES, *(a + b + end for end in ("", "n") for a in _SYLLABLES for b in _SYLLABLES)]
WEIGHTS = list(accumulate(1 / rank for rank in range(1, len(WORDS) + 1)))
PHASES = {"corpus": "corpus", "candidates": "hard_negative", "control": "judgment", "export": None}
LOOK = 0.01  # seconds
HASHED = '{kind: "hashed:Hashed"}'

CORPUS = """
name: large
language: en
domain: test
licence: CC0-1.0
source: made by benchmarks/memory.py
reader: {kind: jsonl, path: large.jsonl}
clean:
  {min_tokens: 5, language: "off", boilerplate: "off", personal_data: "off", near_duplicates: null,
   offensive_share: null}
"""

PIPELINE = """
name: memory
task: qa
corpus: large.yaml
target: 50
llm: {backend: scripted, concurrency: 8}
control:
  recall: {model: MODEL, top_k: 1000}
  pools: [bm25]
  rerankers: [bm25]
export: {secret: false}
"""

ENCODER = '''
"""Vectors that cost nothing."""

import hashlib

import numpy as np

from airgen.retrievers.component import Component


class Hashed(Component):
    name, dim = "hashed", 384

    def encode(self, texts, kind):
        found = np.empty((len(texts), self.dim), np.float32)
        for row, text in zip(found, texts):
            row[:] = np.frombuffer(hashlib.shake_128(text.encode()).digest(self.dim), np.int8)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def describe(self):
        return {"model": "hashed"}
'''

RUN = """
import sys
import time
from pathlib import Path
from rich.console import Console
from airgen.compute import computing
from airgen.settings.compute import compute_settings
from airgen.job import Job
from airgen.job.run_job import run_job
from airgen.steps.progress import Display

class Said(Display):
    def stage(self, name, *rest):
        print(name, flush=True)
        note(name)
        return super().stage(name, *rest)

def note(name):  # for scale.py
    with (folder / "cpu.txt").open("a") as file:
        print(name, time.process_time(), file=file)

folder, until = Path(sys.argv[1]), sys.argv[2]
job = Job(folder / "memory.yaml", folder / "runs")
with computing(compute_settings(sys.argv[3])):
    done = run_job(job, Said(job.directory / "status.json", Console(quiet=True)), until=until or None)
note("end")
print("cpu", time.process_time(), flush=True)
print("digest", done.manifest.digest if done.manifest else "", flush=True)
"""


def make_corpus(path: Path, passages: int) -> None:
    """Write a corpus of `passages` passages; equal numbers give equal bytes."""
    with path.open("w", encoding="utf-8") as out:
        for number in range(passages):
            random = rng("memory", number)
            text = " ".join(random.choices(WORDS, cum_weights=WEIGHTS, k=150))
            out.write(json.dumps({"id": f"doc-{number:07}", "title": f"Title {number}", "text": text}) + "\n")


def memory(process: int) -> tuple[float, float]:
    """MB of a process now: of its own, and the largest of all so far; (0, 0) where it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except ProcessLookupError:
        return 0, 0
    found = {
        name: int(value.split()[0]) / 1024
        for name, _, value in (line.partition(":") for line in lines)
        if "kB" in value
    }
    return found.get("RssAnon", 0) + found.get("RssShmem", 0), found.get("VmHWM", 0)


def run(
    folder: Path, until: str | None, where: str = "local", costs: dict[str, float] | None = None
) -> tuple[dict[str, float], float, str]:
    """Run a job up to a stage: MB of its own by stage, MB of all, the digest. `costs` gets its CPU seconds."""
    words = [sys.executable, "-c", RUN, str(folder), until or "", where]
    peaks: dict[str, float] = {}
    highest, stage, digest, rest = 0.0, "start", "", b""
    with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)
        try:
            while child.poll() is None:
                *lines, rest = (rest + (child.stdout.read() or b"")).split(b"\n")
                for line in lines:
                    name, _, value = line.decode().partition(" ")
                    if name == "cpu" and costs is not None:
                        costs["driver_cpu"] = float(value)
                    elif name != "cpu":
                        stage, digest = ("end", value) if name == "digest" else (line.decode(), digest)
                own, every = memory(child.pid)
                peaks[stage], highest = max(peaks.get(stage, 0), own), max(highest, every)
                time.sleep(LOOK)
        except SystemExit:
            child.kill()
            print(f"  stopped in {stage}: own {peaks}, all {highest:,.0f} MB", flush=True)
            raise
        *lines, _ = (rest + (child.stdout.read() or b"")).split(b"\n")
        if costs is not None:
            costs.update(("driver_cpu", float(line[4:])) for line in lines if line.startswith(b"cpu "))
        digest = next((line.decode().partition(" ")[2] for line in lines if line.startswith(b"digest")), digest)
    if child.returncode:
        raise SystemExit(f"{until or 'export'} ended with {child.returncode}")
    return peaks, highest, digest


def measure(folder: Path, passages: int, phases: list[str], model: str, where: str) -> list[dict[str, Any]]:
    """Measure each phase, and return a row for each."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "large.jsonl").exists():
        make_corpus(folder / "large.part", passages)
        (folder / "large.part").rename(folder / "large.jsonl")
    for name, text in (("large.yaml", CORPUS), ("memory.yaml", pipeline(model)), ("hashed.py", ENCODER)):
        (folder / name).write_text(text, encoding="utf-8")
    size = (folder / "large.jsonl").stat().st_size / (1 << 20)
    print(f"{passages:,} passages, {size:,.0f} MB of JSONL", flush=True)
    rows = []
    for phase in phases:
        until = PHASES[phase]
        began = time.monotonic()
        costs: dict[str, float] = {}
        peaks, highest, digest = run(folder, until, where, costs)
        seconds = time.monotonic() - began
        stages = ", ".join(f"{stage} {peak:,.0f}" for stage, peak in peaks.items())
        own = max(peaks.values())
        print(
            f"  {where} {phase:<11} own {own:6,.0f} MB  all {highest:6,.0f} MB  {seconds:5.0f} s  CPU "
            f"{costs['driver_cpu']:.1f} s  ({stages}) {digest[:16]}",
            flush=True,
        )
        rows.append({"passages": passages, "phase": phase, "own": own, "all": highest, "seconds": seconds,
                     "stages": peaks, "digest": digest, "where": where, "model": model, **costs})  # fmt: skip
    return rows


def pipeline(model: str) -> str:
    """Write the pipeline with an embedder in its recall."""
    return PIPELINE.replace("MODEL", model)


@contextmanager
def cluster() -> Iterator[None]:
    """Start two local Ray nodes, which child processes use for `ray`."""
    from ray.cluster_utils import Cluster

    os.environ |= {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    node = {"num_cpus": 1, "object_store_memory": 80_000_000}
    found = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    found.add_node(**node)
    os.environ["RAY_ADDRESS"] = found.address
    try:
        yield
    finally:
        found.shutdown()


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="+", default=[100_000])
    parser.add_argument("--folder", type=Path, help="where to work, a folder for each size; temporary by default")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=list(PHASES), help="with --folder: some phases")
    parser.add_argument("--model", default=HASHED, help="the embedder of recall")
    parser.add_argument("--compute", nargs="+", default=["local"], help="where heavy work runs: local, local:2, ray:2")
    parser.add_argument("--json", type=Path, help="write the figures, beside those that the file has already")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    rows = json.loads(arguments.json.read_bytes()) if arguments.json and arguments.json.exists() else []
    by_ray = any(where.startswith("ray") for where in arguments.compute)
    with cluster() if by_ray else nullcontext():
        for passages, where in product(arguments.passages, arguments.compute):
            with tempfile.TemporaryDirectory() as temporary:
                name = str(passages) if where == "local" else f"{passages}-{where.replace(':', '-')}"
                folder = (arguments.folder or Path(temporary)) / name
                rows += measure(folder, passages, arguments.phases, arguments.model, where)
            if arguments.json:
                arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

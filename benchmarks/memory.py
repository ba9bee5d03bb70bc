"""Peak memory of a whole job: corpus, candidates, quality control with lexical recall and BM25 as re-ranker, export.

python benchmarks/memory.py --passages 100000
python benchmarks/memory.py --passages 300000 1000000 --folder memory

Each phase runs in a process of its own, whose largest resident memory is printed. A corpus that is already in the
folder is read again. Passages are made of about 120 words that are distributed as in a language (Zipf), 740 bytes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import accumulate
from pathlib import Path

from airgen.keys import rng

_SYLLABLES = [f"{first}{last}" for first in "bdfgklmnprst" for last in "aeiou"]
WORDS = [*_SYLLABLES, *(a + b + end for end in ("", "n") for a in _SYLLABLES for b in _SYLLABLES)]
WEIGHTS = list(accumulate(1 / rank for rank in range(1, len(WORDS) + 1)))
PHASES = ("corpus", "hard_negative", "judgment", "export")

CORPUS = """
name: large
language: en
domain: test
licence: CC0-1.0
source: made by benchmarks/memory.py
reader: {kind: jsonl, path: large.jsonl}
clean: {min_tokens: 5, language: "off", boilerplate: "off", personal_data: "off", near_duplicates: null}
"""

PIPELINE = """
name: memory
task: qa
corpus: large.yaml
target: 50
llm: {backend: scripted, concurrency: 8}
control:
  recall: {pools_only: true, top_k: 1000}
  pools: [bm25]
  rerankers: [bm25]
"""

RUN = """
import sys, time
from pathlib import Path
from rich.console import Console
from airgen.evaluation.costs import peak_bytes
from airgen.pipeline import Job
from airgen.pipeline.progress import Display

folder, until = Path(sys.argv[1]), sys.argv[2]
job = Job(folder / "memory.yaml", folder / "runs")
job.run(Display(job.directory / "status.json", Console(quiet=True)), until=None if until == "export" else until)
print(peak_bytes())
"""


def make_corpus(path: Path, passages: int) -> None:
    """Equal numbers give equal bytes."""
    with path.open("w", encoding="utf-8") as out:
        for number in range(passages):
            random = rng("memory", number)
            text = " ".join(random.choices(WORDS, cum_weights=WEIGHTS, k=150))
            out.write(json.dumps({"id": f"doc-{number:07}", "title": f"Title {number}", "text": text}) + "\n")


def measure(folder: Path, passages: int) -> None:
    """One line for each phase: peak memory in MB, and seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "large.jsonl").exists():
        make_corpus(folder / "large.jsonl", passages)
    (folder / "large.yaml").write_text(CORPUS, encoding="utf-8")
    (folder / "memory.yaml").write_text(PIPELINE, encoding="utf-8")
    size = (folder / "large.jsonl").stat().st_size / (1 << 20)
    print(f"{passages:,} passages, {size:,.0f} MB of JSONL", flush=True)
    for phase in PHASES:
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-c", RUN, str(folder), phase], stdout=subprocess.PIPE, check=True)
        seconds = time.monotonic() - began
        print(f"  {phase:<14} {int(done.stdout.split()[-1]) / (1 << 20):7,.0f} MB  {seconds:6.0f} s", flush=True)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="+", default=[100_000])
    parser.add_argument("--folder", type=Path, help="where to work, a folder for each size; temporary by default")
    arguments = parser.parse_args()
    for passages in arguments.passages:
        with tempfile.TemporaryDirectory() as temporary:
            measure((arguments.folder or Path(temporary)) / str(passages), passages)


if __name__ == "__main__":
    main()

"""Measure the gain from tuned hybrid weights, on the tuning queries and on held-out queries.

airgen evaluate COLLECTION... --systems pipelines/systems-offline.yaml --out results
python benchmarks/tune.py results COLLECTION... --systems bm25 minilm --target docs/notes/evaluation.md
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from airgen.audit.differing_systems import find_runs
from airgen.dataset.beir import BeirDataset
from airgen.evaluation.experiment import results_folder
from airgen.evaluation.intervals import Interval
from airgen.evaluation.run import read_run
from airgen.safety.escaping import markdown_table
from airgen.studies.tune import tune

START, END = "<!-- tuned weights: start -->", "<!-- tuned weights: end -->"


def row(collection: Path, results: Path, systems: Sequence[str], measure: str) -> list[str]:
    """Return the line of a collection."""
    dataset = BeirDataset.open(collection)
    runs = {
        name: read_run(path) for name, path in find_runs(results_folder(results, dataset.name, "test"), systems).items()
    }
    found = tune(runs, dataset.qrels("test").labels, measure=measure)
    chosen = f"{found.chosen.method} {' : '.join(f'{weight:g}' for weight in found.chosen.weights)}"
    return [
        dataset.name, str(found.queries), chosen, f"{found.equal:.4f}", f"{found.apparent - found.equal:+.4f}",
        _words(found.gain), _words(found.over_best), f"{found.stable:.0%}",
    ]  # fmt: skip


def _words(gain: Interval) -> str:
    return f"{gain.value:+.4f} ({gain.low:+.4f} to {gain.high:+.4f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("collections", type=Path, nargs="+")
    parser.add_argument("--systems", nargs="+", default=["bm25", "minilm"])
    parser.add_argument("--measure", default="nDCG@10")
    parser.add_argument("--target", type=Path, help="page whose table is replaced")
    options = parser.parse_args()
    heads = ["collection", "queries", "chosen", "equal weights", "seems to gain", "gains on held-out queries",
             "over the best system", "folds that agree"]  # fmt: skip
    rows = [row(one, options.results, options.systems, options.measure) for one in options.collections]
    table = markdown_table(heads, rows)
    print(table)
    if options.target is not None:
        text = options.target.read_text(encoding="utf-8")
        before, after = text.partition(START)[0], text.partition(END)[2]
        options.target.write_text(f"{before}{START}\n\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()

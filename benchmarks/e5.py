"""Reproduce E5's tables 5 (batch size), 7 (data filtering) and 8 (negatives) on a small scale.

    airgen train pairs python-docs postgresql-manual anarchist-faq --out data/pairs
    python benchmarks/e5.py --table 7 --pairs data/pairs --base splade-bert-tiny --on scifact --on cranfield --work e5
    python benchmarks/e5.py --table 5 ...      python benchmarks/e5.py --table 8 ...

Each row of a table is one training on the same pairs with one change, evaluated on the test queries of each collection:
nDCG@10 with its 95 % bootstrap interval over queries, and the difference from the first trained row with its interval.
Models are saved in --work, so that a stopped run can be resumed and tables share equal rows. --set changes the recipe
of all rows. --sample trains all rows on a random sample of the pairs.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
from trained import Collection, trained

from airgen.components.keys import rng
from airgen.evaluation.intervals import bootstrap_interval
from airgen.retrievers import load_embedder
from airgen.retrievers.dense.retriever import Dense
from airgen.training.kinds.encoder import PretrainRecipe
from airgen.training.mining.consistency import filter_pairs
from airgen.training.recipe import TrainingRequest


class Bench:
    """Trains and scores rows, and keeps both in the work folder."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.work, self.pairs, self.base = arguments.work, arguments.pairs, arguments.base
        self.changes: tuple[str, ...] = tuple(arguments.set)
        self.collections = [Collection(path) for path in arguments.on]
        self.max_length = arguments.eval_length

    def trained(self, name: str, pairs: Path, *changes: str) -> None:
        """Train the model of a row, unless it is finished."""
        trained("pretrain", pairs, self.base, self.work / name, (*self.changes, *changes))

    def per_query(self, model: str, collection: Collection) -> np.ndarray:
        """nDCG@10 of each test query."""
        kept = self.work / "scores" / f"{model.replace('/', '_')}-{collection.name}-{self.max_length}.npy"
        if kept.exists():
            return np.load(kept)
        place = self.work / model
        spec = str(place) if place.is_dir() else self.base
        pooled = {} if place.is_dir() else {"pooling": "mean", "query_prefix": "query: ", "passage_prefix": "passage: "}
        embedder = {"kind": "sentence-transformers", "model": spec, "max_length": self.max_length, **pooled}
        values = collection.scores(collection.index(Dense(load_embedder(embedder))))[0]
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.save(kept, values)
        return np.asarray(values)

    def table(self, title: str, rows: list[tuple[str, str]]) -> None:
        """Print Markdown with a row per (label, model); "" is the base before training."""
        names = [collection.name for collection in self.collections]
        print(f"\n{title}\n\n| | pairs | steps | minutes | dev | {' | '.join(names)} |\n|{'---|' * (5 + len(names))}")
        first = [self.per_query(rows[1][1], one) for one in self.collections]
        for label, model in rows:
            cells = []
            for place, collection in enumerate(self.collections):
                values = self.per_query(model or "untrained", collection)
                low, high = bootstrap_interval(values[None, :])[0]
                cell = f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"
                if model and model != rows[1][1]:
                    gap = values - first[place]
                    under, over = bootstrap_interval(gap[None, :])[0]
                    cell += f", {gap.mean():+.3f} [{under:+.3f}, {over:+.3f}]"
                cells.append(cell)
            about = ["", "", "", ""]
            if model:
                card = json.loads((self.work / model / "card.json").read_text(encoding="utf-8"))
                dev = card["figures"].get("nDCG@10", float("nan"))
                pairs = sum(1 for _ in (Path(self.pairs_of(model)) / "qrels" / "train.tsv").open()) - 1
                about = [f"{pairs:,}", f"{card['steps']:,}", f"{card['costs']['seconds'] / 60:.1f}", f"{dev:.3f}"]
            print(f"| {label} | {' | '.join([*about, *cells])} |", flush=True)

    def pairs_of(self, model: str) -> Path:
        """Return the training pairs of a row."""
        own = self.work / f"pairs-{model}"
        return own if own.is_dir() else self.pairs


def sample(source: Path, out: Path, count: int, seed: int) -> Path:
    """Write `count` random pairs from a directory of pairs, with all its passages."""
    if not (out / "manifest.json").exists():
        shutil.rmtree(out, ignore_errors=True)
        (out / "qrels").mkdir(parents=True)
        head, *rows = (source / "qrels" / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
        chosen = sorted(rng("sample", seed).sample(range(len(rows)), min(count, len(rows))))
        (out / "qrels" / "train.tsv").write_text(head + "".join(rows[place] for place in chosen), encoding="utf-8")
        for name in ("corpus.jsonl", "queries.jsonl", "manifest.json"):
            shutil.copyfile(source / name, out / name)
    return out


def table_5(bench: Bench, sizes: list[int], steps: int | None = None) -> None:
    """Vary the batch size with the same pairs and epochs, or with the same number of `steps`, so that larger batches
    see more pairs."""
    if steps is not None:
        rows = []
        for size in sizes:
            name, limit = f"steps-{steps}-batch-{size}", f"max_steps={steps}"
            bench.trained(name, bench.pairs, f"batch_size={size}", limit, "epochs=1000")
            rows.append((f"batch {size:,}, {steps:,} steps", name))
        bench.table("Table 5: batch size, equal steps", [("untrained", ""), *rows])
        return
    usual = (
        TrainingRequest(bench.pairs, bench.base, bench.work, changes=bench.changes).recipe_of(PretrainRecipe).batch_size
    )
    rows = []
    for size in sizes:
        name = "all" if size == usual else f"batch-{size}"  # the tables share that row
        bench.trained(name, bench.pairs, f"batch_size={size}")
        rows.append((f"batch {size:,}", name))
    bench.table("Table 5: batch size", [("untrained", ""), *rows])


def table_7(bench: Bench, k: int, pool: int) -> None:
    """Vary the filtering: all pairs, the kept pairs, and an equal number of random pairs."""
    bench.trained("all", bench.pairs)
    filtered = bench.work / "pairs-filtered"
    if not (filtered / "manifest.json").exists():
        first = {"kind": "sentence-transformers", "model": str(bench.work / "all"), "max_length": bench.max_length}
        found = filter_pairs(bench.pairs, filtered, load_embedder(first), k=k, pool=pool)
        print(f"the filter keeps {found.kept:,} of {found.pairs:,} pairs (top {k} of {found.pool:,}): {found.kinds}")
    kept = int(json.loads((filtered / "manifest.json").read_text(encoding="utf-8"))["pairs"])
    bench.trained("random", sample(bench.pairs, bench.work / "pairs-random", kept, 1))
    bench.trained("filtered", filtered)
    rows = [("all pairs", "all"), ("as many random ones", "random"), ("filtered", "filtered")]
    bench.table("Table 7: data filtering", [("untrained", ""), *rows])


def table_8(bench: Bench, queue: int, momenta: list[float]) -> None:
    """Vary the negatives: from the batch, also from earlier batches, and MoCo."""
    bench.trained("all", bench.pairs)
    bench.trained("pre-batch", bench.pairs, "extra_negatives=pre-batch", f"queue_size={queue}")
    rows = [("in batch", "all"), (f"+ pre-batch {queue:,}", "pre-batch")]
    for momentum in momenta:
        name = f"moco-{momentum}"
        changes = ("extra_negatives=moco", f"queue_size={queue}", f"momentum={momentum}")
        bench.trained(name, bench.pairs, *changes)
        rows.append((f"MoCo {queue:,}, momentum {momentum}", name))
    bench.table("Table 8: negatives", [("untrained", ""), *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=int, choices=(5, 7, 8), required=True)
    parser.add_argument("--pairs", type=Path, required=True, help="what `airgen train pairs` wrote")
    parser.add_argument("--on", type=Path, action="append", required=True, help="a test collection (repeatable)")
    parser.add_argument("--base", default="splade-bert-tiny")
    parser.add_argument("--work", type=Path, default=Path("e5"))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of the recipe, for all rows")
    parser.add_argument("--sample", type=int, metavar="N", help="train on N random pairs of --pairs; default: on all")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 256, 64], help="batch sizes of table 5")
    parser.add_argument("--steps", type=int, help="table 5 with as many steps for each size (E5: 20,000)")
    parser.add_argument("--k", type=int, default=2)
    parser.add_argument("--pool", type=int, default=1_000_000)
    parser.add_argument("--queue", type=int, default=8192, help="extra negatives of table 8")
    parser.add_argument("--momentum", type=float, nargs="+", default=[0.999], help="of MoCo in table 8, a row for each")
    parser.add_argument("--eval-length", type=int, default=256, help="tokens of a text when searching and filtering")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    if arguments.sample:
        arguments.pairs = sample(arguments.pairs, arguments.work / "pairs-sample", arguments.sample, 0)
    bench = Bench(arguments)
    match arguments.table:
        case 5:
            table_5(bench, arguments.sizes, arguments.steps)
        case 7:
            table_7(bench, arguments.k, arguments.pool)
        case _:
            table_8(bench, arguments.queue, arguments.momentum)


if __name__ == "__main__":
    main()

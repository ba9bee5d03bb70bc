"""Compare BEIR's trained families and E5's fine-tuning before and after training on a collection's own titles.

    python benchmarks/families.py WORK COLLECTION... [--base splade-bert-tiny] [--kinds colbert,splade,...]
    python benchmarks/families.py work scifact cranfield --kinds splade --set splade:epochs=2

A COLLECTION is a directory in BEIR format with human queries in its test split. Models are trained on mined pairs of a
title and its text, without labels, with BM25's hard negatives, and tested on the human queries. "Before" is the same
model after one step with a learning rate of 1e-12. Models are saved in WORK: finished models are not trained again, and
stopped training is resumed. Prints nDCG@10 with 95% bootstrap intervals over queries, differences with p-values of
Fisher's test (Holm over all systems of a collection), and minutes and memory of training.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from trained import Collection, mined_pairs, trained

from airgen.evaluation.intervals import bootstrap_interval
from airgen.evaluation.significance import compare
from airgen.retrievers import load_retriever
from airgen.safety.escaping import markdown_table, md

# Settings that train a model of two layers and 128 dimensions on a CPU in minutes.
SMALL: dict[str, tuple[str, ...]] = {
    "encoder": ("learning_rate=3e-4", "batch_size=128", "max_length=128", "hard_negatives=1"),
    "colbert": ("learning_rate=3e-4", "max_length=128"),
    "splade": ("learning_rate=1e-4", "max_length=128", "epochs=2"),
    "cross-encoder": ("learning_rate=1e-4", "max_length=192"),
    "deepct": ("learning_rate=1e-3",),
    "sparta": ("learning_rate=3e-4", "max_length=128", "epochs=2"),
}
BEFORE = ("encoder", "colbert", "splade")  # the others' heads are random before training
STILL = ("learning_rate=1e-12", "max_steps=1", "batch_size=2", "keep=last")


def scores(test: Collection, system: dict[str, Any], kept: Path) -> np.ndarray[Any, Any]:
    """Return scores as (measures, queries), saved next to the model."""
    if not kept.exists():
        np.save(kept, test.scores(test.index(load_retriever(system))))
    return np.asarray(np.load(kept))


def one(test: Collection, data: Path, arguments: argparse.Namespace) -> str:
    """Print the table of one collection."""
    work: Path = arguments.work
    bm25 = {"kind": "bm25"}
    found = {"BM25": (scores(test, bm25, work / f"{test.name}-bm25.npy"), "", "", "")}
    for kind in arguments.kinds:
        own = tuple(change.partition(":")[2] for change in arguments.set if change.startswith(f"{kind}:"))
        rows = [("before", f"{kind} before", STILL)] if kind in BEFORE else []
        for tag, label, changes in [*rows, ("after", kind, ())]:
            out = work / f"{test.name}-{kind}-{tag}"
            card = trained(kind, data, arguments.base, out, (*SMALL[kind], *own, *changes), device="cpu")
            system = {**card["system"]}
            if system["kind"] == "rerank":
                label += " over BM25's 100"
            cost = card["costs"]
            minutes, memory = f"{cost['seconds'] / 60:.1f}", f"{cost['memory_bytes'] / 1e9:.1f}"
            about = (f"{card['steps']:,}", minutes, memory) if tag == "after" else ("", "", "")
            found[label] = (scores(test, system, out / "scores.npy"), *about)
            print(test.name, label, found[label][0].mean(axis=1).round(4).tolist(), *about, flush=True)
    names = list(found)
    tests = compare(names, np.stack([found[name][0][0] for name in names]))
    lines = []
    for name, (values, *about) in found.items():
        low, high = bootstrap_interval(values[0])[0]
        cells = [md(name), f"{values[0].mean():.3f} ({low:.3f}–{high:.3f})", f"{values[1].mean():.3f}"]
        for other in ("BM25", f"{name} before"):
            pair = next((each for each in tests.pairs if {each.first, each.second} == {name, other}), None)
            gap = values[0] - found[other][0][0] if pair else None
            cells.append(f"{gap.mean():+.3f}, p {pair.fisher_holm:.4f}" if pair and gap is not None else "")
        lines.append([*cells, *about])
    header = ["system", "nDCG@10", "Recall@100", "against BM25", "against before", "steps", "minutes", "GB"]
    return f"{test.title()}\n{markdown_table(header, lines)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("collections", type=Path, nargs="+")
    parser.add_argument("--base", default="splade-bert-tiny")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(SMALL))
    parser.add_argument("--set", action="append", default=[], help="KIND:NAME=VALUE, a setting of a recipe")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    tables = []
    for path in arguments.collections:
        data = mined_pairs(path, arguments.work)
        if data is not None:
            tables.append(one(Collection(path), data, arguments))
    print("\n".join(tables))


if __name__ == "__main__":
    main()

"""BM25 query augmentation from many training queries: the paper's own configuration and the shipped recipe.

    airgen train pairs python-docs postgresql-manual data/scifact --kinds title,heading,question --out data/pairs
    python benchmarks/augment_pairs.py WORK data/scifact data/medline --pairs data/pairs --set batch_size=144

Every row is one training on the same mined pairs, without labels. It is tested on the human queries of each COLLECTION
and on held-out queries of the pairs (--held-out), which no row is trained on. "Weights alone" learns no added terms,
"terms alone" leaves the weights at 1, and "own terms alone" is the full model without its added terms. The last table
shows their value. Finished models in WORK are not trained again, and stopped training is resumed. --rows takes prefixes
of row names.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from augment import added, quality, slug
from trained import Collection, trained

from airgen.components.keys import rng
from airgen.evaluation.intervals import bootstrap_interval
from airgen.evaluation.significance import fisher_test
from airgen.retrievers.lexical.augment import Augmented
from airgen.retrievers.lexical.bm25 import BM25
from airgen.safety.escaping import markdown_table

SHIPPED = Path(__file__).resolve().parent.parent / "pipelines" / "train-augment.yaml"
SETUPS: dict[str, Path | None] = {"paper": None, "shipped": SHIPPED}
SWITCHES = {"full": (), "weights alone": ("augmentation=false",), "terms alone": ("weights=false",)}


def held_out(pairs: Path, out: Path, count: int) -> Path:
    """Copy `pairs`, with `count` random queries in the test split and the others in the train split."""
    if not (out / "manifest.json").exists():
        shutil.rmtree(out, ignore_errors=True)
        (out / "qrels").mkdir(parents=True)
        head, *rows = (pairs / "qrels" / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
        queries = sorted({row.split("\t")[0] for row in rows})
        chosen = set(rng("held out", 1).sample(queries, min(count, len(queries) // 2)))
        for split, inside in (("train", False), ("test", True)):
            own = [row for row in rows if (row.split("\t")[0] in chosen) == inside]
            (out / "qrels" / f"{split}.tsv").write_text(head + "".join(own), encoding="utf-8")
        for name in ("corpus.jsonl", "queries.jsonl", "manifest.json"):
            shutil.copyfile(pairs / name, out / name)
    return out


def worth(found: Mapping[str, Any]) -> str:
    """Return the difference in nDCG@10 between each full model and its weights alone, with intervals and p of Fisher's
    test."""
    rows = []
    for setup in SETUPS:
        for other in (f"{setup}, full, own terms alone", f"{setup}, weights alone"):
            if f"{setup}, full" not in found or other not in found:
                continue
            gap = found[f"{setup}, full"][0][0] - found[other][0][0]
            low, high = bootstrap_interval(gap)[0]
            p = fisher_test(gap[None, :])[0]
            rows.append([f"{setup}, full", other, f"{gap.mean():+.4f} ({low:+.3f}–{high:+.3f})", f"{p:.4f}"])
    return markdown_table(["", "against", "nDCG@10", "p"], rows)


def test(collection: Collection, models: Mapping[str, Path], base: str) -> None:
    """Print the tables of one collection."""
    found: dict[str, Any] = {
        "BM25, words": (collection.scores(collection.index(BM25())), None),
        "BM25, WordPiece": (collection.scores(collection.index(BM25(analyser={"wordpiece": base}))), None),
    }
    for name, folder in models.items():
        system = collection.index(Augmented(folder))
        found[name] = collection.scores(system), added(system, list(collection.queries.values()))
        if name.endswith(", full"):
            system.weights = lambda query, of=system.model: {  # type: ignore[method-assign]
                term.term: term.total for term in of(query) if term.in_query and term.total > 0
            }
            found[f"{name}, own terms alone"] = collection.scores(system), 0.0
    print(collection.title())
    print(quality(found), worth(found), sep="\n", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("collections", type=Path, nargs="*")
    parser.add_argument("--pairs", type=Path, required=True, help="what `airgen train pairs` wrote")
    parser.add_argument("--held-out", type=int, default=500, help="queries of the pairs that are tested on")
    parser.add_argument("--base", default="splade-bert-tiny")
    parser.add_argument("--set", action="append", default=[], help="a setting of all rows, NAME=VALUE")
    parser.add_argument("--rows", nargs="*", default=["paper", "shipped"], help="such as paper, or 'shipped, full'")
    options = parser.parse_args(arguments)
    pairs = held_out(options.pairs, options.work / "pairs", options.held_out)
    models = {}
    for setup, recipe in SETUPS.items():
        for switch, changes in SWITCHES.items():
            name = f"{setup}, {switch}"
            if name.startswith(tuple(options.rows)):
                out = options.work / slug(name.replace(",", ""))
                trained("augment", pairs, options.base, out, (*options.set, *changes), recipe=recipe, device="cpu")
                models[name] = out
    for path in (*options.collections, pairs):
        test(Collection(path), models, options.base)


if __name__ == "__main__":
    main()

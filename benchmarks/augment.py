"""BM25 query augmentation against both BM25 baselines: quality, latency, transfer, and the paper's ablation.

    python benchmarks/augment.py train   WORK COLLECTION... [--base all-minilm-l6-v2] [--ablate cranfield]
    python benchmarks/augment.py tables  WORK COLLECTION... [--ablate cranfield]
    python benchmarks/augment.py latency WORK COLLECTION... [--tile 40]

A COLLECTION is a directory in BEIR's layout with human queries in its test split. No model sees a query that it is
tested on: `pairs` trains on titles and their texts (mined, without any label), `folds` goes on from there on four
fifths of the test queries and is tested on the last, five times over, and `transfer` takes the model of one collection
to the others. Models are kept in WORK; what is finished is not done again, what was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from airgen.dataset.beir import BeirDataset
from airgen.evaluation import parse_measures, score
from airgen.evaluation.run import run_from_hits
from airgen.evaluation.significance import bootstrap_interval, compare
from airgen.retrievers import Corpus, Retriever
from airgen.retrievers.lexical.augment import Augmented
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.lexical.index import LexicalRetriever
from airgen.retrievers.lexical.inverted_index import InvertedIndex
from airgen.text.display import markdown_table, md
from airgen.training.data import read_corpus
from airgen.training.kinds.augment import train
from airgen.training.recipe import Fold, Request

FOLDS = 5
MEASURES = parse_measures("nDCG@10 Recall@100 Success@5 Success@20")
ABLATION = {
    "full setting": (),
    "without weighted L1": ("weighted_l1=false",),
    "without weight": ("weights=false",),
    "without BM25 scoring": ("scoring=bow",),
    "without BM25 scoring and weighted L1": ("scoring=bow", "weighted_l1=false"),
    "without augmentation": ("augmentation=false",),
}


def slug(text: str) -> str:
    return text.replace(" ", "-").lower()


def pairs(collection: Path, work: Path) -> Path | None:
    """Titles and texts of a collection; None where it has no titles."""
    out = work / "pairs" / collection.name
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "airgen", "train", "pairs", str(collection), "--out", str(out)]
        found = subprocess.run(
            [*command, "--kinds", "title,heading,question", "--json"], capture_output=True, text=True
        )
        if found.returncode:
            print(f"{collection.name}: no pairs: {found.stderr.strip()}")
            return None
        print(f"{collection.name}: pairs {found.stdout.strip()}", flush=True)
    return out


def fit(on: Path, base: str, out: Path, recipe: Path | None, changes: Sequence[str], fold: Fold | None = None) -> None:
    start = time.monotonic()
    split = "train" if fold is None else "test"
    trained = train(
        Request(on, base, out, recipe, tuple(changes), split=split, fold=fold, resume=True, quiet=True, device="cpu")
    )
    if trained.trained_now:
        looks = [(entry["step"], round(entry["nDCG@10"], 4), entry["added"]) for entry in trained.history]
        print(f"{out.name}: {time.monotonic() - start:.0f} s, {trained.stopped}, dev by step {looks}", flush=True)


def train_all(work: Path, collections: Sequence[Path], arguments: argparse.Namespace) -> None:
    for collection in collections:
        train_one(work, collection, f"{arguments.tag}{collection.name}", (), arguments)
        if collection.name == arguments.ablate:
            for row, changes in ABLATION.items():
                if changes:
                    train_one(work, collection, f"{arguments.tag}{collection.name}-{slug(row)}", changes, arguments)


def train_one(work: Path, collection: Path, name: str, switches: Sequence[str], arguments: argparse.Namespace) -> None:
    """NAME-pairs of titles and texts, and NAME-fold1 to 5 that go on from it over the human queries."""
    steps = arguments.steps.split(",")
    mined = pairs(collection, work)
    changes = (*arguments.set, *switches)
    if mined is not None and "pairs" in steps:
        fit(mined, arguments.base, work / f"{name}-pairs", arguments.recipe, changes)
    if "folds" in steps:
        start = work / f"{name}-pairs" if mined is not None else Path(arguments.start or arguments.base)
        for number in range(1, FOLDS + 1):
            own = (*changes, *arguments.set_folds)
            fit(collection, str(start), work / f"{name}-fold{number}", arguments.recipe, own, Fold(number, FOLDS))


class Test:
    """A collection's human queries, and per-query scores of systems on them."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        dataset = BeirDataset.open(path)
        self.corpus = read_corpus(path)
        texts = dataset.queries()
        self.labels = dataset.qrels("test").labels
        self.queries = {key: texts[key].text for key in self.labels if key in texts}

    def scores(self, retriever: Retriever, only: Sequence[str] | None = None) -> np.ndarray[Any, Any]:
        """(measures, queries) of the queries `only`, in their order."""
        keys = list(self.queries) if only is None else list(only)
        hits = retriever.search([self.queries[key] for key in keys], 1000)
        return score(
            run_from_hits(keys, self.corpus.ids, hits), {key: self.labels[key] for key in keys}, MEASURES
        ).values


def indexed(retriever: Any, corpus: Corpus) -> Any:
    retriever.index(corpus)
    return retriever


def added(system: Augmented, queries: Sequence[str]) -> float:
    """How many terms a query gains that are not its own (the paper's augmentation length)."""
    return statistics.mean(sum(not term.in_query for term in system.explain(query)) for query in queries)


def folds_scores(test: Test, work: Path, name: str) -> tuple[np.ndarray[Any, Any], float] | None:
    """Each query under the model that never saw it."""
    order, columns, lengths = list(test.queries), {}, []
    for number in range(1, FOLDS + 1):
        path = work / f"{name}-fold{number}"
        if not (path / "card.json").exists():
            return None
        held = [
            key for key in json.loads((path / "card.json").read_text())["data"]["held_out_query_ids"] if key in order
        ]
        system = indexed(Augmented(path), test.corpus)
        columns.update(zip(held, test.scores(system, held).T, strict=True))
        lengths.append(added(system, [test.queries[key] for key in held]))
    return np.array([columns[key] for key in order]).T, statistics.mean(lengths)


def systems_of(test: Test, work: Path, arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """{system: (scores, augmentation length or None)}."""
    found: dict[str, Any] = {
        "BM25, words": (test.scores(indexed(BM25(), test.corpus)), None),
        "BM25, WordPiece": (test.scores(indexed(BM25(analyser={"wordpiece": arguments.base}), test.corpus)), None),
    }
    for trained_on in names:
        path = work / f"{arguments.tag}{trained_on}-pairs"
        if (path / "card.json").exists():
            system = indexed(Augmented(path), test.corpus)
            where = "own pairs" if trained_on == test.name else f"pairs of {trained_on}"
            found[f"augmented, {where}"] = test.scores(system), added(system, list(test.queries.values()))
    if (folds := folds_scores(test, work, f"{arguments.tag}{test.name}")) is not None:
        found["augmented, own queries (5 folds)"] = folds
    return found


def quality(found: Mapping[str, Any]) -> str:
    """Means with intervals; differences from both BM25 with intervals and p-values of Fisher's test, after Holm."""
    names = list(found)
    rows = []
    tests = compare(names, np.stack([found[name][0][0] for name in names]))
    for name in names:
        values, length = found[name]
        low, high = bootstrap_interval(values[0])[0]
        cells = [md(name), f"{values[0].mean():.4f} ({low:.3f}–{high:.3f})", f"{values[1].mean():.4f}"]
        for base in names[:2]:
            gap = values[0] - found[base][0][0]
            low, high = bootstrap_interval(gap)[0]
            pair = next((each for each in tests.pairs if {each.first, each.second} == {name, base}), None)
            cells += [f"{gap.mean():+.4f} ({low:+.3f}–{high:+.3f}) {pair.fisher_holm:.4f}" if pair else ""]
        rows.append([*cells, "" if length is None else f"{length:.1f}"])
    return markdown_table(
        ["system", "nDCG@10", "Recall@100", "against words, p", "against WordPiece, p", "added terms"], rows
    )


def tables(work: Path, collections: Sequence[Path], arguments: argparse.Namespace) -> None:
    for path in collections:
        test = Test(path)
        print(f"### {test.name}: {len(test.queries)} queries, {len(test.corpus):,} passages\n")
        names = [path.name, *(name for name in arguments.transfer if name != path.name)]
        print(quality(systems_of(test, work, arguments, names)))
        if path.name == arguments.ablate:
            ablation(test, work, arguments)


def ablation(test: Test, work: Path, arguments: argparse.Namespace) -> None:
    """Every row cross-validated over the human queries; latency is that of the first fold's model."""
    found: dict[str, Any] = {}
    systems: dict[str, Augmented] = {}
    for row, changes in ABLATION.items():
        name = f"{arguments.tag}{test.name}{'-' + slug(row) if changes else ''}"
        if (folds := folds_scores(test, work, name)) is not None:
            found[row] = folds
            systems[row] = indexed(Augmented(work / f"{name}-fold1"), test.corpus)
    if "full setting" not in found:
        return
    times = alternate(systems, list(test.queries.values())[:100], 5)
    first = found["full setting"][0]
    rows = []
    for row, (scores, length) in found.items():
        low, high = bootstrap_interval(scores[0] - first[0])[0]
        change = "" if row == "full setting" else f"{(scores[0] - first[0]).mean():+.4f} ({low:+.3f}–{high:+.3f})"
        means = scores.mean(axis=1)
        rows.append(
            [row, f"{means[0]:.4f}", change, f"{means[2]:.3f}", f"{means[3]:.3f}",
             f"{times[row] / times['full setting']:.2f}", f"{length:.1f}"]
        )  # fmt: skip
    header = ["", "nDCG@10", "against full", "Accuracy@5", "Accuracy@20", "latency, full = 1", "added terms"]
    print(markdown_table(header, rows))


def alternate(systems: Mapping[str, Any], texts: Sequence[str], rounds: int) -> dict[str, float]:
    """Median seconds of one query at k = 1,000, systems taking turns query by query."""
    taken: dict[str, list[float]] = {name: [] for name in systems}
    for system in systems.values():
        system.search([texts[0]], 1000)
    for _ in range(rounds):
        for text in texts:
            for name, system in systems.items():
                start = time.perf_counter()
                system.search([text], 1000)
                taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in taken.items()}


def tile(retriever: LexicalRetriever, times: int) -> None:
    """The same passages `times` over: posting lists of a corpus that is so much larger, with the same statistics."""
    index = retriever.postings
    counts = np.diff(index.starts)
    terms = np.repeat(np.arange(len(counts)), counts)
    order = np.argsort(np.tile(terms, times), kind="stable")
    offsets = np.repeat(np.arange(times, dtype=np.int32) * np.int32(index.size), len(terms))
    positions = (np.tile(index.positions, times) + offsets)[order].astype(np.int32)
    impacts = np.tile(index.impacts, times)[order]
    retriever._index = InvertedIndex(index.starts * times, positions, impacts, index.size * times)


def latency(work: Path, collections: Sequence[Path], arguments: argparse.Namespace) -> None:
    """One query at a time, one thread, systems taking turns; ratios to BM25 over words."""
    rows = []
    for path in collections:
        test = Test(path)
        for times in arguments.tile:
            systems: dict[str, Any] = {
                "BM25, words": indexed(BM25(threads=1), test.corpus),
                "BM25, WordPiece": indexed(BM25(analyser={"wordpiece": arguments.base}, threads=1), test.corpus),
            }
            for label, tag in (item.split("=") for item in arguments.models):
                place = work / f"{tag}{test.name}-fold1"
                if (place / "card.json").exists():
                    systems[label] = indexed(Augmented(place, threads=1), test.corpus)
            if times > 1:
                for system in systems.values():
                    tile(system, times)
            found = alternate(systems, list(test.queries.values())[: arguments.queries], arguments.rounds)
            base = found["BM25, words"]
            encoding = {
                name: statistics.median(_timed(lambda s=s, q=q: s.weights(q)) for q in list(test.queries.values())[:50])
                for name, s in systems.items()
                if isinstance(s, Augmented)
            }
            for name, seconds in found.items():
                share = f"{encoding[name] * 1000:.2f}" if name in encoding else ""
                cells = [f"{len(test.corpus) * times:,}", f"{seconds * 1000:.2f}", f"{seconds / base:.2f}", share]
                rows.append([f"{md(test.name)}: {md(name)}", *cells])
                print(rows[-1], file=sys.stderr, flush=True)
    print(markdown_table(["system", "passages", "ms", "BM25, words = 1", "of it the encoder, ms"], rows))


def _timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "tables", "latency"])
    parser.add_argument("work", type=Path)
    parser.add_argument("collections", type=Path, nargs="+")
    parser.add_argument("--base", default="all-minilm-l6-v2")
    parser.add_argument("--tag", default="", help="before the names of models, to keep several settings apart")
    parser.add_argument("--steps", default="pairs,folds")
    parser.add_argument("--recipe", type=Path, help="a YAML recipe, as of airgen train")
    parser.add_argument("--set", action="append", default=[], help="a setting of the recipe, NAME=VALUE")
    parser.add_argument("--set-folds", action="append", default=[], help="the same, for the folds alone")
    parser.add_argument("--start", help="the model that folds start from where a collection has no titles")
    parser.add_argument("--ablate", default="", help="the collection of the ablation")
    parser.add_argument("--transfer", nargs="*", default=[], help="collections whose models are tried on the others")
    parser.add_argument("--models", nargs="*", default=["augmented="], help="latency: LABEL=TAG")
    parser.add_argument("--tile", type=int, nargs="*", default=[1])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    do = {"train": train_all, "tables": tables, "latency": latency}[arguments.what]
    do(arguments.work, arguments.collections, arguments)


if __name__ == "__main__":
    main()

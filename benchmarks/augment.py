"""BM25 query augmentation compared with both BM25 baselines: quality, latency, transfer, and the paper's ablation.

    python benchmarks/augment.py train   WORK COLLECTION... [--base all-minilm-l6-v2] [--ablate cranfield]
    python benchmarks/augment.py tables  WORK COLLECTION... [--ablate cranfield]
    python benchmarks/augment.py latency WORK COLLECTION... [--tile 40]

A COLLECTION is a directory in BEIR format with human queries in its test split. No model is tested on its training
queries: `pairs` trains on mined titles and texts, without labels; `folds` continues from that model with four fifths of
the test queries and is tested on the last fifth, five times; `transfer` tests the model of one collection on others.
Models are saved in WORK. Finished models are not trained again, and stopped training is resumed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from trained import Collection, mined_pairs, trained

from airgen.evaluation.intervals import bootstrap_interval
from airgen.evaluation.significance import compare
from airgen.retrievers.lexical.augment import Augmented
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.lexical.index import InvertedIndex, LexicalRetriever
from airgen.safety.escaping import markdown_table, md
from airgen.training.ablation import SETTINGS
from airgen.training.recipe import Fold

FOLDS = 5


def slug(text: str) -> str:
    return text.replace(" ", "-").lower()


def train_all(work: Path, collections: Sequence[Path], arguments: argparse.Namespace) -> None:
    for collection in collections:
        train_one(work, collection, f"{arguments.tag}{collection.name}", (), arguments)
        if collection.name == arguments.ablate:
            for row, changes in SETTINGS.items():
                if changes:
                    train_one(work, collection, f"{arguments.tag}{collection.name}-{slug(row)}", changes, arguments)


def train_one(work: Path, collection: Path, name: str, switches: Sequence[str], arguments: argparse.Namespace) -> None:
    """Train NAME-pairs on titles and texts, and then NAME-fold1 to 5, starting from it, on the human queries."""
    steps = arguments.steps.split(",")
    mined = mined_pairs(collection, work)
    changes = (*arguments.set, *switches)
    if mined is not None and "pairs" in steps:
        trained(
            "augment", mined, arguments.base, work / f"{name}-pairs", changes, recipe=arguments.recipe, device="cpu"
        )
    if "folds" in steps:
        start = work / f"{name}-pairs" if mined is not None else Path(arguments.start or arguments.base)
        for number in range(1, FOLDS + 1):
            own = (*changes, *arguments.set_folds)
            settings = {"recipe": arguments.recipe, "split": "test", "fold": Fold(number, FOLDS), "device": "cpu"}
            trained("augment", collection, str(start), work / f"{name}-fold{number}", own, **settings)


def added(system: Augmented, queries: Sequence[str]) -> float:
    """Return the mean number of added terms per query (the paper's augmentation length)."""
    return statistics.mean(sum(not term.in_query for term in system.explain(query)) for query in queries)


def folds_scores(test: Collection, work: Path, name: str) -> tuple[np.ndarray[Any, Any], float] | None:
    """Return the scores of each query by the model that was not trained on it, and the mean number of added terms."""
    order, columns, lengths = list(test.queries), {}, []
    for number in range(1, FOLDS + 1):
        path = work / f"{name}-fold{number}"
        if not (path / "card.json").exists():
            return None
        held = [
            key for key in json.loads((path / "card.json").read_text())["data"]["held_out_query_ids"] if key in order
        ]
        system = test.index(Augmented(path))
        columns.update(zip(held, test.scores(system, held).T, strict=True))
        lengths.append(added(system, [test.queries[key] for key in held]))
    return np.array([columns[key] for key in order]).T, statistics.mean(lengths)


def systems_of(test: Collection, work: Path, arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """{system: (scores, augmentation length or None)}."""
    found: dict[str, Any] = {
        "BM25, words": (test.scores(test.index(BM25())), None),
        "BM25, WordPiece": (test.scores(test.index(BM25(analyser={"wordpiece": arguments.base}))), None),
    }
    for source in names:
        path = work / f"{arguments.tag}{source}-pairs"
        if (path / "card.json").exists():
            system = test.index(Augmented(path))
            where = "own pairs" if source == test.name else f"pairs of {source}"
            found[f"augmented, {where}"] = test.scores(system), added(system, list(test.queries.values()))
    if (folds := folds_scores(test, work, f"{arguments.tag}{test.name}")) is not None:
        found["augmented, own queries (5 folds)"] = folds
    return found


def quality(found: Mapping[str, Any]) -> str:
    """Print means with intervals, and differences from both BM25 systems with intervals and Holm-corrected p-values of
    Fisher's test."""
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
        test = Collection(path)
        print(test.title())
        names = [path.name, *(name for name in arguments.transfer if name != path.name)]
        print(quality(systems_of(test, work, arguments, names)))
        if path.name == arguments.ablate:
            ablation(test, work, arguments)


def ablation(test: Collection, work: Path, arguments: argparse.Namespace) -> None:
    """Cross-validate each row over the human queries; the latency is that of the first fold's model."""
    found: dict[str, Any] = {}
    systems: dict[str, Augmented] = {}
    for row, changes in SETTINGS.items():
        name = f"{arguments.tag}{test.name}{'-' + slug(row) if changes else ''}"
        if (folds := folds_scores(test, work, name)) is not None:
            found[row] = folds
            systems[row] = test.index(Augmented(work / f"{name}-fold1"))
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
    """Return the median seconds per query at k = 1,000, with systems alternating query by query."""
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
    """Repeat the passages: the posting lists of a corpus that is `times` larger, with the same statistics."""
    index = retriever.postings
    counts = np.diff(index.starts)
    terms = np.repeat(np.arange(len(counts)), counts)
    order = np.argsort(np.tile(terms, times), kind="stable")
    offsets = np.repeat(np.arange(times, dtype=np.int32) * np.int32(index.size), len(terms))
    positions = (np.tile(index.positions, times) + offsets)[order].astype(np.int32)
    impacts = np.tile(index.impacts, times)[order]
    retriever._index = InvertedIndex(index.starts * times, positions, impacts, index.size * times)


def latency(work: Path, collections: Sequence[Path], arguments: argparse.Namespace) -> None:
    """Measure latency with one query at a time, one thread and alternating systems, as ratios to BM25 over words."""
    rows = []
    for path in collections:
        test = Collection(path)
        for times in arguments.tile:
            systems: dict[str, Any] = {
                "BM25, words": test.index(BM25()),
                "BM25, WordPiece": test.index(BM25(analyser={"wordpiece": arguments.base})),
            }
            for label, tag in (item.split("=") for item in arguments.models):
                place = work / f"{tag}{test.name}-fold1"
                if (place / "card.json").exists():
                    systems[label] = test.index(Augmented(place))
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
    parser.add_argument("--tag", default="", help="prefix of the names of models, for several settings")
    parser.add_argument("--steps", default="pairs,folds")
    parser.add_argument("--recipe", type=Path, help="a YAML recipe for airgen train")
    parser.add_argument("--set", action="append", default=[], help="a setting of the recipe, NAME=VALUE")
    parser.add_argument("--set-folds", action="append", default=[], help="the same, for the folds alone")
    parser.add_argument("--start", help="the model that folds start from if a collection has no titles")
    parser.add_argument("--ablate", default="", help="the collection of the ablation")
    parser.add_argument("--transfer", nargs="*", default=[], help="collections whose models are tested on the others")
    parser.add_argument("--models", nargs="*", default=["augmented="], help="latency: LABEL=TAG")
    parser.add_argument("--tile", type=int, nargs="*", default=[1])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    do = {"train": train_all, "tables": tables, "latency": latency}[arguments.what]
    do(arguments.work, arguments.collections, arguments)


if __name__ == "__main__":
    main()

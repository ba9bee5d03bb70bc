"""What a training sees: queries with positives and hard negatives, dev queries, and never the test split.

    data = load_training_set(Path("scifact"), split="train")
    data = load_training_set(Path("scifact"), split="test", fold=Fold(1, 5))     # cross-validation over queries

Every source of training data is a directory in BEIR's layout: a public dataset, one that airgen generated (train on
its dev split), or pairs mined from a corpus (`airgen train pairs` writes corpus.jsonl, queries.jsonl and
qrels/train.tsv), so nothing else has a format of its own.

The split that is trained on is always named. `test` and `all` are refused, unless a fold is given: then the queries of
the split are dealt into n parts by their text, one part is held out, and the two sides share no query and no wording.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.measures import parse_measures, score
from airgen.evaluation.run import run_from_hits
from airgen.keys import content_key, rng, text_key
from airgen.retrievers.base import Corpus, Hits, Retriever
from airgen.training.recipe import Fold, Recipe

__all__ = [
    "Dev",
    "Example",
    "TrainingSet",
    "draw",
    "epoch_batches",
    "load_training_set",
    "read_corpus",
    "with_negatives",
]

Labels = Mapping[str, Mapping[str, float]]

RESERVED = ("test", "all")
"""Splits that are never trained on without a fold."""

_DEV_SPLITS = ("dev", "validation", "val", "valid")


@dataclass(frozen=True, slots=True)
class Example:
    """A training query. `positives` and `negatives` are places in the corpus, best (or highest ranked) first."""

    id: str
    query: str
    positives: tuple[int, ...]
    negatives: tuple[int, ...] = ()


@dataclass(frozen=True)
class Dev:
    """Queries apart from the training ones, on which training is watched."""

    queries: Mapping[str, str]
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def figures(self, hits: Hits, corpus: Corpus) -> dict[str, float]:
        """{"nDCG@10": ..., "Recall@100": ...} of hits in the order of `queries`; {} where there are no queries."""
        if not self.labels:
            return {}
        run = run_from_hits(list(self.queries), corpus.ids, hits)
        return score(run, {q: dict(of) for q, of in self.labels.items()}, parse_measures("nDCG@10 Recall@100")).means()

    def search(self, retriever: Retriever, corpus: Corpus) -> dict[str, float]:
        """`figures` of a retriever that has indexed the corpus."""
        return self.figures(retriever.search(list(self.queries.values()), 100), corpus) if self.labels else {}


@dataclass(frozen=True)
class TrainingSet:
    """All that one training may see. `held_out` are a fold's labels: written beside the model, never looked at."""

    corpus: Corpus
    examples: tuple[Example, ...]
    dev: Dev
    held_out: Labels = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """A key of everything that training depends on: texts by the dataset's hash, queries and negatives by name."""
        rows = [[e.id, list(e.positives), list(e.negatives)] for e in self.examples]
        return content_key([self.about.get("digest"), rows, sorted(self.dev.labels)])


def load_training_set(
    path: Path,
    *,
    split: str,
    fold: Fold | None = None,
    dev_share: float = 0.1,
    language: str | None = None,
) -> TrainingSet:
    """Read a dataset's training queries; negatives are those that its qrels judge 0 or less.

    The dev queries are the dataset's dev split if it has one (and is not trained on), else `dev_share` of the training
    queries. Left out, and counted in `about["left_out"]`: queries without text or without a positive in the corpus,
    and those that stand, by id or wording, in a reserved split.

    Raises UsageError for a reserved split without a fold, DatasetError for a missing split and for fewer than two
    training queries.
    """
    dataset = BeirDataset.open(path)
    if fold is None and split.lower() in RESERVED:
        others = [name for name in dataset.splits if name not in RESERVED]
        able = f"train on {' or '.join(others)}" if others else "this dataset has no other"
        raise UsageError(f"--split {split} is for testing: {able}, or cross-validate over its queries with --fold 1/5")
    if split not in dataset.splits and split != "all":
        hint = ": cross-validate over its queries with --split test --fold 1/5" if "test" in dataset.splits else ""
        raise DatasetError(f"{path} has no split {split!r} to train on (it has {', '.join(dataset.splits)}){hint}")
    corpus = _corpus(dataset, language)
    texts = {key: query.text for key, query in dataset.queries().items()}
    labels: dict[str, dict[str, float]] = dataset.qrels(split).labels
    held_out: dict[str, dict[str, float]] = {}
    if fold is not None:
        held_out, labels = _held_out(labels, texts, fold)
        reserved = held_out
    else:
        names = [name for name in dataset.splits if name in RESERVED]
        reserved = {query: of for name in names for query, of in dataset.qrels(name).labels.items()}
    wordings = {_wording(texts[query]) for query in reserved if query in texts}
    left_out: dict[str, int] = {}
    places = {key: place for place, key in enumerate(corpus.ids)}
    examples = []
    for query, of_query in labels.items():
        reason = ""
        found = sorted((-label, passage) for passage, label in of_query.items() if label > 0 and passage in places)
        if not texts.get(query, "").strip():
            reason = "without text"
        elif not found:
            reason = "without a positive in the corpus"
        elif query in reserved or _wording(texts[query]) in wordings:
            reason = "also held out or a test query"
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        wrong = sorted(passage for passage, label in of_query.items() if label <= 0 and passage in places)
        positives = tuple(places[passage] for _, passage in found)
        examples.append(Example(query, texts[query], positives, tuple(places[passage] for passage in wrong)))
    examples, dev = _dev(dataset, split, fold, examples, labels, texts, dev_share)
    if len(examples) < 2:
        why = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise DatasetError(
            f"{path}: {len(examples)} training queries in {split}{f' ({why})' if why else ''}, at least 2 are needed: "
            "a query's in-batch negatives are the others' positives"
        )
    about = {
        "dataset": dataset.name,
        "digest": dataset.digest(split),
        "split": split,
        "fold": str(fold) if fold else None,
        "language": corpus.language,
        "passages": len(corpus),
        "training_queries": len(examples),
        "dev_queries": len(dev),
        "held_out_queries": len(held_out),
        "queries_with_judged_negatives": sum(bool(example.negatives) for example in examples),
        "left_out": left_out,
        "training_query_ids": content_key(sorted(example.id for example in examples)),
        "held_out_query_ids": sorted(held_out),
    }
    return TrainingSet(corpus, tuple(examples), dev, held_out, about)


def read_corpus(path: Path, language: str | None = None) -> Corpus:
    """The corpus of a dataset in BEIR's layout. Raises DatasetError."""
    return _corpus(BeirDataset.open(path), language)


def with_negatives(data: TrainingSet, recipe: Recipe, retriever: Retriever | None = None) -> TrainingSet:
    """The training set with the hard negatives that the recipe asks for: the dataset's own, mined ones, or both.

    Mined are the best `mined_depth` hits of BM25 (or of `retriever`, already indexed) that are not judged for the
    query, in their order. Raises DatasetError where the recipe wants the dataset's own and it has none.
    """
    if not recipe.hard_negatives:
        return replace(data, examples=tuple(replace(example, negatives=()) for example in data.examples))
    if recipe.negatives == "dataset":
        if not any(example.negatives for example in data.examples):
            raise DatasetError(
                f"{data.about.get('dataset')}: no training query has a passage judged 0, so there are no negatives: "
                "set negatives: bm25, or hard_negatives: 0 for in-batch ones alone"
            )
        return data
    if retriever is None:
        from airgen.retrievers.lexical.bm25 import BM25

        retriever = BM25()
        retriever.index(data.corpus)
    hits = retriever.search([example.query for example in data.examples], recipe.mined_depth)
    examples = []
    for example, row in zip(data.examples, hits.positions, strict=True):
        own = () if recipe.negatives == "bm25" else example.negatives
        known = {*example.positives, *example.negatives}
        mined = tuple(place for place in row.tolist() if place >= 0 and place not in known)
        examples.append(replace(example, negatives=(*own, *mined)))
    return replace(data, examples=tuple(examples))


def draw(example: Example, count: int, seed: int, epoch: int) -> tuple[int, tuple[int, ...]]:
    """One positive and `count` negatives of an example for one epoch: the same for the same arguments, always.

    Fewer negatives where it has fewer.
    """
    random = rng("draw", seed, epoch, example.id)
    positive = example.positives[random.randrange(len(example.positives))]
    return positive, tuple(random.sample(example.negatives, min(count, len(example.negatives))))


def epoch_batches(count: int, size: int, seed: int, epoch: int) -> list[list[int]]:
    """0 to count - 1 in an order of that epoch's own, in batches of `size`; a last one of a single item is left out.

    In-batch negatives need two, and every epoch has as many batches.
    """
    order = np.random.default_rng(rng("order", seed, epoch).getrandbits(64)).permutation(count).tolist()
    batches = [order[first : first + size] for first in range(0, count, size)]
    return batches[:-1] if len(batches) > 1 and len(batches[-1]) == 1 < size else batches


def _corpus(dataset: BeirDataset, language: str | None) -> Corpus:
    return Corpus.from_passages(dataset.passages(), language or str(dataset.info.get("language") or "en"))


def _held_out(
    labels: dict[str, dict[str, float]], texts: Mapping[str, str], fold: Fold
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """(held out, rest): queries of one wording go together; the order is by the hash of the wording, as of no seed."""
    wordings = {query: _wording(texts.get(query, query)) for query in labels}
    ordered = sorted(set(wordings.values()), key=lambda wording: (text_key(f"fold\x1f{wording}"), wording))
    if len(ordered) < fold.of:
        raise DatasetError(f"{len(ordered)} queries cannot be dealt into {fold.of} folds: use --fold 1/{len(ordered)}")
    chosen = set(ordered[fold.number - 1 :: fold.of])
    inside = {query: of for query, of in labels.items() if wordings[query] in chosen}
    return inside, {query: of for query, of in labels.items() if query not in inside}


def _dev(
    dataset: BeirDataset,
    split: str,
    fold: Fold | None,
    examples: Sequence[Example],
    labels: Labels,
    texts: Mapping[str, str],
    share: float,
) -> tuple[list[Example], Dev]:
    """Training examples and dev queries, which share no wording."""
    own = next((name for name in _DEV_SPLITS if name in dataset.splits and name != split), None)
    if fold is None and own is not None:
        found = {query: of for query, of in dataset.qrels(own).labels.items() if texts.get(query, "").strip()}
        wordings = {_wording(texts[query]) for query in found}
        kept = [e for e in examples if e.id not in found and _wording(e.query) not in wordings]
        return kept, Dev({query: texts[query] for query in found}, found)
    ordered = sorted(
        {_wording(e.query) for e in examples}, key=lambda wording: (text_key(f"dev\x1f{wording}"), wording)
    )
    chosen = set(ordered[: round(share * len(ordered))])
    inside = {e.id: labels[e.id] for e in examples if _wording(e.query) in chosen}
    kept = [e for e in examples if e.id not in inside]
    return kept, Dev({query: texts[query] for query in inside}, inside)


def _wording(text: str) -> str:
    """A query without case and white space at its ends: two that differ in nothing else are one."""
    return " ".join(text.casefold().split())

"""Several datasets in one training, each with a weight: E5's MS MARCO, NQ and NLI (section 4.2), S2ORC at 0.3.

    mixed([load_training_set(...), load_training_set(...)], [1.0, 0.3])

The corpora become one, with ids as DATASET/ID, so a batch has queries of all datasets and their positives are one
another's in-batch negatives. Hard negatives are chosen in each dataset by itself, before. No query that any of the
datasets has for testing or for dev is trained on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airgen.errors import UsageError
from airgen.keys import content_key
from airgen.retrievers.base import Corpus
from airgen.training.columns import Examples
from airgen.training.data import Dev, Share, TrainingSet, wording
from airgen.training.stored import Joined


def weighted_dataset(text: str) -> tuple[Path, float]:
    """(path, weight) of `data/nli=0.3`; the weight is 1 without one. Raises UsageError for a weight that is none."""
    path, sign, number = text.rpartition("=")
    if not sign or Path(text).exists():
        return Path(text), 1.0
    try:
        weight = float(number)
    except ValueError:
        weight = -1.0
    if not (path and 0 < weight <= 1000):
        raise UsageError(f"--on {text}: give DATASET=WEIGHT with a weight above 0, such as {path or 'data/nli'}=0.3")
    return Path(path), weight


def mixed(sets: Sequence[TrainingSet], weights: Sequence[float]) -> TrainingSet:
    """One training set of several. Raises UsageError for datasets in several languages, and for folds."""
    languages = sorted({one.corpus.language for one in sets})
    if len(languages) > 1:
        raise UsageError(f"the datasets are in {' and '.join(languages)}: give --language to train on them together")
    if any(one.held_out for one in sets):
        raise UsageError("--fold is for one dataset")
    names = _names(sets)
    dev_wordings = {wording(text) for one in sets for text in one.dev.queries.values()}
    examples = Examples(
        Joined([one.examples.ids for one in sets], lambda part, key: f"{names[part]}/{key}"),
        Joined([one.examples.texts for one in sets]),
    )
    shares, tables = [], []
    queries, passages = 0, 0
    for one, name, weight in zip(sets, names, weights, strict=True):
        count = len(examples)
        for query, positives, negatives in one.examples.rows():
            if not dev_wordings or wording(one.examples.texts[query]) not in dev_wordings:
                moved = ([place + passages for place in places] for places in (positives, negatives))
                examples.append(query + queries, *moved)
        queries, passages = queries + len(one.examples.texts), passages + len(one.corpus)
        count = len(examples) - count
        shares.append(Share(count, weight))
        left_out = {**one.about["left_out"]}
        if count < len(one.examples):
            left_out["a dev query of another dataset"] = len(one.examples) - count
        tables.append({**one.about, "name": name, "weight": weight, "left_out": left_out, "training_queries": count})
    corpus = Corpus(
        Joined([one.corpus.ids for one in sets], lambda part, key: f"{names[part]}/{key}"),
        Joined([one.corpus.texts for one in sets]),
        Joined([one.corpus.titles or [""] * len(one.corpus) for one in sets])
        if any(one.corpus.titles for one in sets)
        else (),
        languages[0],
    )
    dev = Dev(
        {f"{name}/{key}": text for one, name in zip(sets, names, strict=True) for key, text in one.dev.queries.items()},
        {
            f"{name}/{key}": {f"{name}/{passage}": label for passage, label in labels.items()}
            for one, name in zip(sets, names, strict=True)
            for key, labels in one.dev.labels.items()
        },
    )
    return TrainingSet(corpus, examples, dev, about=_about(tables, len(corpus), len(dev)), shares=tuple(shares))


def _about(tables: Sequence[dict[str, Any]], passages: int, dev: int) -> dict[str, Any]:
    """What the card says of all datasets together, and of each."""
    left_out: Counter[str] = Counter()
    for table in tables:
        left_out.update(table["left_out"])
    return {
        "dataset": " + ".join(table["name"] for table in tables),
        "digest": content_key([[table["digest"], table["split"], table["weight"]] for table in tables]),
        "split": tables[0]["split"],
        "fold": None,
        "language": tables[0]["language"],
        "passages": passages,
        "training_queries": sum(table["training_queries"] for table in tables),
        "dev_queries": dev,
        "held_out_queries": 0,
        "queries_with_judged_negatives": sum(table["queries_with_judged_negatives"] for table in tables),
        "left_out": dict(left_out),
        "training_query_ids": content_key([table["training_query_ids"] for table in tables]),
        "held_out_query_ids": [],
        "datasets": list(tables),
    }


def _names(sets: Sequence[TrainingSet]) -> list[str]:
    """The datasets' names, with a number where two have one name."""
    met: Counter[str] = Counter()
    names = []
    for one in sets:
        name = str(one.about["dataset"])
        met[name] += 1
        names.append(name if met[name] == 1 else f"{name}#{met[name]}")
    return names

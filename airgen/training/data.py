"""Training data: queries with positives and hard negatives, and dev queries, but never test queries.

    data = load_training_set(Path("scifact"), split="train")
    data = load_training_set(Path("scifact"), split="test", fold=Fold(1, 5))     # cross-validation over queries
    mixed([load_training_set(...), load_training_set(...)], [1.0, 0.3])          # one model from several datasets

The splits `test` and `all` are refused unless a fold is given. A fold divides the queries of the split into n parts by
the hash of their wording, and holds out one part. The held-out queries share no wording with the others.

Several datasets can be combined with weights, such as E5's MS MARCO, NQ and NLI (section 4.2), or S2ORC at 0.3. Their
corpora are merged, with ids of the form DATASET/ID, so their positives serve as one another's in-batch negatives. Hard
negatives are chosen beforehand within each dataset. Test and dev queries of any of the datasets are never trained on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.components.keys import canonical_json, content_key, file_sha256, key_of_pieces, rng, text_key
from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.measures import parse_measures, score
from airgen.evaluation.run import run_from_hits
from airgen.retrievers.hits import Hits
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.passages import Passages
from airgen.retrievers.protocols import Retriever
from airgen.settings.requirements import located
from airgen.storage.paths import fetched_collection
from airgen.storage.sequences import batched
from airgen.training.dataset_columns import DatasetColumns, Example, Examples, Joined
from airgen.training.recipe import Fold, Recipe, TrainingData
from airgen.training.teachers import FileScores, OwnTeacher, read_scores

Labels = Mapping[str, Mapping[str, float]]

RESERVED = ("test", "all")
"""Splits that are used for training only with a fold."""

_MINED_QUERIES = 10_000  # queries whose negatives are mined at once
_DEV_SPLITS = ("dev", "validation", "val", "valid")


@dataclass(frozen=True)
class Dev:
    """Held-out queries for choosing the weights to keep."""

    queries: Mapping[str, str]
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def figures(self, hits: Hits, corpus: Passages) -> dict[str, float]:
        """Return {"nDCG@10": ..., "Recall@100": ...} for hits in the order of `queries`, or {} if there are no
        queries."""
        if not self.labels:
            return {}
        run = run_from_hits(list(self.queries), corpus.ids, hits)
        labels = {query: dict(of_query) for query, of_query in self.labels.items()}
        return score(run, labels, parse_measures("nDCG@10 Recall@100")).means()

    def search(self, retriever: Retriever, corpus: Passages) -> dict[str, float]:
        """Return the `figures` of a retriever that has indexed the corpus."""
        return self.figures(retriever.search(list(self.queries.values()), 100), corpus) if self.labels else {}


@dataclass(frozen=True)
class TrainingSet:
    """The data for one training.

    Attributes:
        held_out: The labels of a fold, which are saved with the model but not used.
        shares: The number of examples and the weight of each of several datasets, in order.
        teachers: The teacher of each dataset, if it has its own.
    """

    corpus: Passages
    examples: Examples
    dev: Dev
    held_out: Labels = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    shares: tuple[Share, ...] = ()
    teachers: tuple[OwnTeacher, ...] = ()

    def batches(self, size: int, seed: int, epoch: int) -> list[list[int]]:
        """Return an epoch's examples in batches, as places; see `epoch_batches`."""
        return epoch_batches(len(self.examples), size, seed, epoch, shares=self.shares)

    @property
    def digest(self) -> str:
        """Return a hash of everything that training depends on: the dataset's hash, and the ids of queries, positives
        and negatives."""
        # The key of [digest, [[id, positives, negatives], ...], dev ids], without the list of all rows in memory.
        rows = (
            canonical_json([example.id, list(example.positives), list(example.negatives)]) for example in self.examples
        )
        pieces = chain(
            (f"[{canonical_json(_teaching_digest(self.about))},[", next(rows, "")),
            (f",{row}" for row in rows),
            (f"],{canonical_json(sorted(self.dev.labels))}]",),
        )
        return key_of_pieces(pieces)


def _teaching_digest(about: Mapping[str, Any]) -> Any:
    """Return the hash of a dataset, including its own teacher, if any."""
    teacher = about.get("teacher_sha256") or about.get("teacher")
    return about.get("digest") if teacher is None else [about.get("digest"), teacher]


def load_training_set(
    path: Path,
    *,
    split: str,
    fold: Fold | None = None,
    dev_share: float = 0.1,
    language: str | None = None,
    reserved_elsewhere: Collection[str] = (),
) -> TrainingSet:
    """Read the training queries of a dataset. Negatives are the passages with labels of 0 or less in its qrels.

    The dev queries are the dataset's dev split, if it has one that is not trained on, or else `dev_share` of the
    training queries. Queries are left out, and counted in `about["left_out"]`, if they have no text, if they have no
    positive in the corpus, or if they are also in a reserved split, by id or wording, or in `reserved_elsewhere`, the
    `reserved_wordings` of other datasets.

    Raises UsageError for a reserved split without a fold, and DatasetError if the split is missing or there are fewer
    than two training queries.
    """
    dataset = BeirDataset.open(path)
    if fold is None and split.lower() in RESERVED:
        others = [name for name in dataset.splits if name not in RESERVED]
        advice = f"train on {' or '.join(others)}" if others else "this dataset has no other"
        raise UsageError(
            f"--split {split} is for testing: {advice}, or cross-validate over its queries with --fold 1/5"
        )
    if split not in dataset.splits and split != "all":
        hint = ": cross-validate over its queries with --split test --fold 1/5" if "test" in dataset.splits else ""
        raise DatasetError(f"{path} has no split {split!r} to train on (it has {', '.join(dataset.splits)}){hint}")
    columns = DatasetColumns(dataset, _language(dataset, language))
    held_out, rows = folded(dataset, split, fold)
    reserved = held_out.keys() if fold is not None else _reserved(dataset)
    wordings = {wording(text) for query in reserved if (text := columns.text(query))}.union(reserved_elsewhere)
    left_out: dict[str, int] = {}
    examples = Examples(columns.query_ids, columns.query_texts)
    groups = columns.groups(rows)
    if groups is None:
        dataset.qrels(split)  # raises the error with the line
    for query, passages, labels in groups or ():
        text = columns.query_texts[query] if query >= 0 else ""
        pairs = [(label, place) for label, place in zip(labels, passages, strict=True) if place >= 0]
        positives = columns.ordered([(-label, place) for label, place in pairs if label > 0])
        reason = ""
        if not text.strip():
            reason = "without text"
        elif not positives:
            reason = "without a positive in the corpus"
        elif columns.query_ids[query] in reserved or wording(text) in wordings:
            reason = "also held out or a test query"
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            examples.append(query, positives, columns.ordered([(0.0, place) for label, place in pairs if label <= 0]))
    examples, dev = _dev(dataset, split, fold, examples, columns=columns, share=dev_share)
    corpus = columns.corpus
    if len(examples) < 2:
        why = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise DatasetError(
            f"{path}: {len(examples)} training queries in {split}{f' ({why})' if why else ''}, but at least 2 are "
            f"needed: a query's in-batch negatives are the positives of the others"
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
    return TrainingSet(corpus, examples, dev, held_out=held_out, about=about)


def read_corpus(path: Path) -> Passages:
    """Read the corpus of a dataset in BEIR's layout into memory. Raises DatasetError."""
    dataset = BeirDataset.open(path)
    return Passages.of(dataset.passages(), _language(dataset, None))


def with_negatives(data: TrainingSet, recipe: Recipe) -> TrainingSet:
    """Add hard negatives according to the recipe: the dataset's own, mined ones, or both.

    Mined negatives are the unjudged passages among the top `mined_depth` hits of BM25, in order. Raises DatasetError if
    the recipe requires the dataset's own negatives but it has none.
    """
    if not recipe.hard_negatives:
        return replace(data, examples=data.examples.with_negatives(() for _ in data.examples))
    if recipe.negatives == "dataset":
        if not any(example.negatives for example in data.examples):
            raise DatasetError(
                f"{data.about.get('dataset')}: no training query has a passage judged 0, so there are no negatives: "
                "set negatives: bm25, or hard_negatives: 0 to train with in-batch negatives alone"
            )
        return data
    retriever = BM25()
    retriever.index(data.corpus)
    return replace(data, examples=data.examples.with_negatives(_mined(data.examples, retriever, recipe)))


def with_own_teacher(data: TrainingSet, teacher: str | None) -> TrainingSet:
    """Add a dataset's own teacher to the training set: None, "none", a re-ranker, or the path of a file of scores.

    The scored passages in a file that are not relevant become the hard negatives. Raises DatasetError if the file
    cannot be read or has no score for a training query.
    """
    own_teacher = OwnTeacher(len(data.corpus), teacher)
    if teacher is None:
        return replace(data, teachers=(own_teacher,))
    path, about = Path(teacher).expanduser(), {**data.about, "teacher": teacher}
    if not path.is_file():
        return replace(data, teachers=(own_teacher,), about=about)
    try:
        scores = FileScores(read_scores(path), data.examples, data.corpus)
    except DatasetError as error:
        raise DatasetError(f"{teacher}: {str(error).removeprefix(f'{path}: ')}") from error
    negatives = (scores.negatives(number, row[1]) for number, row in enumerate(data.examples.rows()))
    return replace(
        data,
        examples=data.examples.with_negatives(negatives),
        teachers=(replace(own_teacher, scores=scores),),
        about={**about, "teacher": path.name, "teacher_sha256": file_sha256(path)},
    )


def _mined(examples: Sequence[Example], retriever: Retriever, recipe: Recipe) -> Iterator[tuple[int, ...]]:
    """Mine the negatives of each example."""
    for batch in batched(examples, _MINED_QUERIES):
        hits = retriever.search([example.query for example in batch], recipe.mined_depth)
        for example, row in zip(batch, hits.positions, strict=True):
            given = () if recipe.negatives == "bm25" else example.negatives
            known = {*example.positives, *example.negatives}
            yield *given, *(place for place in row.tolist() if place >= 0 and place not in known)


def draw(example: Example, count: int, seed: int, epoch: int) -> tuple[int, tuple[int, ...]]:
    """Sample a positive and `count` negatives of an example for one epoch; fewer negatives if it has fewer.

    The same arguments always give the same samples.
    """
    random = rng("draw", seed, epoch, example.id)
    positive = example.positives[random.randrange(len(example.positives))]
    return positive, tuple(random.sample(example.negatives, min(count, len(example.negatives))))


def reserved_wordings(path: Path) -> set[str]:
    """Return the wordings of the queries that a dataset reserves for testing."""
    dataset = BeirDataset.open(path)
    known = _reserved(dataset)
    return {wording(query.text) for key, query in dataset.queries().items() if key in known} if known else set()


def _reserved(dataset: BeirDataset) -> set[str]:
    return {query for name in dataset.splits if name in RESERVED for query in dataset.qrels(name).labels}


def _language(dataset: BeirDataset, language: str | None) -> str:
    return language or str(dataset.info.get("language") or "en")


def _dev(
    dataset: BeirDataset, split: str, fold: Fold | None, examples: Examples, *, columns: DatasetColumns, share: float
) -> tuple[Examples, Dev]:
    """Split the queries into training examples and dev queries that share no wording."""
    dev_split = next((name for name in _DEV_SPLITS if name in dataset.splits and name != split), None)
    if fold is None and dev_split is not None:
        labels = {query: row for query, row in dataset.qrels(dev_split).labels.items() if columns.text(query).strip()}
        texts = {query: columns.text(query) for query in labels}
        wordings = {wording(text) for text in texts.values()}
        outside = np.array(
            [example.id not in labels and wording(example.query) not in wordings for example in examples], np.bool_
        )
        return examples.where(outside), Dev(texts, labels)
    keys = np.array([text_key(f"dev\x1f{wording(example.query)}") for example in examples], "S32")
    ordered = np.unique(keys)
    inside = np.isin(keys, ordered[: round(share * len(ordered))])
    texts = {example.id: example.query for example in examples.where(inside)}
    labels = {query: {} for query in texts}
    if texts:
        for query, passage, label in dataset.label_rows(split):
            if query in labels:
                labels[query].setdefault(passage, label)
    return examples.where(~inside), Dev(texts, labels)


def folded(
    dataset: BeirDataset, split: str, fold: Fold | None
) -> tuple[dict[str, dict[str, float]], Iterable[tuple[str, str, float]]]:
    """Return the labels of the fold's queries and the rows of all others, or, without a fold, stream the rows of the
    split.

    Queries with the same wording stay together. The fold does not depend on a seed. Raises DatasetError if there are
    more folds than wordings in the split.
    """
    if fold is None:
        return {}, dataset.label_rows(split)
    texts, labels = {query.id: query.text for query in dataset.each_query()}, dataset.qrels(split).labels
    wordings = {query: wording(texts.get(query, query)) for query in labels}
    ordered = sorted(set(wordings.values()), key=lambda text: (text_key(f"fold\x1f{text}"), text))
    if len(ordered) < fold.parts:
        raise DatasetError(
            f"{len(ordered)} queries cannot be divided into {fold.parts} folds: use --fold 1/{len(ordered)}"
        )
    chosen = set(ordered[fold.number - 1 :: fold.parts])
    held_out = {query: row for query, row in labels.items() if wordings[query] in chosen}
    others = ((query, *pair) for query, row in labels.items() if query not in held_out for pair in row.items())
    return held_out, others


def wording(text: str) -> str:
    """Return a query in lower case with single spaces, so that equal wordings are recognised."""
    return " ".join(text.casefold().split())


@dataclass(frozen=True, slots=True)
class Share:
    """A run of `count` examples from one dataset, and its weight."""

    count: int
    weight: float


def epoch_batches(count: int, size: int, seed: int, epoch: int, *, shares: Sequence[Share] = ()) -> list[list[int]]:
    """Shuffle the numbers from 0 to count - 1 into batches of `size` for an epoch, weighted by `shares` if given.

    A last batch of one item is left out, because in-batch negatives need two. Every epoch has the same number of
    batches.
    """
    numbers = epoch_examples(shares, seed, epoch) if shares else np.arange(count)
    permuted = np.random.default_rng(rng("order", seed, epoch).getrandbits(64)).permutation(len(numbers))
    order = numbers[permuted].tolist()
    batches = [order[first : first + size] for first in range(0, len(order), size)]
    return batches[:-1] if len(batches) > 1 and len(batches[-1]) == 1 < size else batches


def epoch_examples(shares: Sequence[Share], seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the numbers of an epoch's examples, in dataset order. Every epoch has the same number from each
    dataset."""
    parts: list[NDArray[np.int64]] = []
    first = 0
    for place, share in enumerate(shares):
        repeats, fraction = divmod(share.weight, 1.0)
        numbers = np.arange(first, first + share.count)
        parts += [numbers] * int(repeats)
        # By the position and not the name of a dataset, because folders are renamed.
        draw = np.random.default_rng(rng("share", seed, epoch, place).getrandbits(64))
        parts.append(np.sort(draw.choice(numbers, round(fraction * share.count), replace=False)))
        first += share.count
    return np.concatenate(parts)


def weighted_dataset(text: str, folder: Path | None = None) -> TrainingData:
    """Parse the dataset, weight and teacher in `data/nli=0.3,teacher=none`. The default weight is 1.

    A name that is not a folder refers to a fetched collection. Paths start at `folder`, the folder of a YAML file; None
    stands for a command. Raises UsageError for an invalid weight.
    """
    option = "--on" if folder is None else "dataset:"
    text, also, teacher = (text, "", "") if located(text, folder).exists() else text.partition(",teacher=")
    if also and not teacher:
        raise UsageError(f"{option} {text},teacher=: name a re-ranker or a file of scores, or write teacher=none")
    own_teacher = teacher if also else None
    path, sign, number = text.rpartition("=")
    if not sign or located(text, folder).exists():
        return TrainingData(_place(text, folder), teacher=own_teacher)
    try:
        weight = float(number)
    except ValueError:
        weight = -1.0
    if not (path and 0 < weight <= 1000):
        example = f"{path or 'data/nli'}=0.3"
        raise UsageError(f"{option} {text}: give DATASET=WEIGHT with a weight above 0, such as {example}")
    return TrainingData(_place(path, folder), weight, own_teacher)


def _place(name: str, folder: Path | None) -> Path:
    path = located(name, folder)
    return path if path.exists() else fetched_collection(name) or path


def mixed(sets: Sequence[TrainingSet], weights: Sequence[float]) -> TrainingSet:
    """Merge several training sets. Raises UsageError if datasets have different languages or folds are used."""
    languages = sorted({part.corpus.language for part in sets})
    if len(languages) > 1:
        raise UsageError(f"the datasets are in {' and '.join(languages)}: give --language to train on them together")
    if any(part.held_out for part in sets):
        raise UsageError("--fold accepts only one dataset")
    met: Counter[str] = Counter()
    names = []  # with a number if two datasets have the same name
    for name in (str(part.about["dataset"]) for part in sets):
        met[name] += 1
        names.append(name if met[name] == 1 else f"{name}#{met[name]}")
    dev_wordings = {wording(text) for part in sets for text in part.dev.queries.values()}
    examples = Examples(
        Joined([part.examples.ids for part in sets], lambda number, key: f"{names[number]}/{key}"),
        Joined([part.examples.texts for part in sets]),
    )
    shares, tables = [], []
    queries, passages = 0, 0
    for part, name, weight in zip(sets, names, weights, strict=True):
        count = len(examples)
        for query, positives, negatives in part.examples.rows():
            if not dev_wordings or wording(part.examples.texts[query]) not in dev_wordings:
                moved = ([place + passages for place in places] for places in (positives, negatives))
                examples.append(query + queries, *moved)
        queries, passages = queries + len(part.examples.texts), passages + len(part.corpus)
        count = len(examples) - count
        shares.append(Share(count, weight))
        left_out = {**part.about["left_out"]}
        if count < len(part.examples):
            left_out["a dev query of another dataset"] = len(part.examples) - count
        tables.append({**part.about, "name": name, "weight": weight, "left_out": left_out, "training_queries": count})
    corpus = Passages(
        Joined([part.corpus.ids for part in sets], lambda number, key: f"{names[number]}/{key}"),
        Joined([part.corpus.texts for part in sets]),
        Joined([part.corpus.titles or [""] * len(part.corpus) for part in sets])
        if any(part.corpus.titles for part in sets)
        else (),
        languages[0],
    )
    dev = Dev(
        {
            f"{name}/{key}": text
            for part, name in zip(sets, names, strict=True)
            for key, text in part.dev.queries.items()
        },
        {
            f"{name}/{key}": {f"{name}/{passage}": label for passage, label in labels.items()}
            for part, name in zip(sets, names, strict=True)
            for key, labels in part.dev.labels.items()
        },
    )
    left_out = sum((Counter(table["left_out"]) for table in tables), Counter[str]())
    sums = ("training_queries", "queries_with_judged_negatives")
    about = {
        **sets[0].about,
        "dataset": " + ".join(names),
        "digest": content_key([[_teaching_digest(table), table["split"], table["weight"]] for table in tables]),
        "passages": len(corpus),
        "dev_queries": len(dev),
        **{name: sum(table[name] for table in tables) for name in sums},
        "left_out": dict(left_out),
        "training_query_ids": content_key([table["training_query_ids"] for table in tables]),
        "datasets": tables,
    }
    teachers = [
        replace(teacher, prefix=f"{name}/") for part, name in zip(sets, names, strict=True) for teacher in part.teachers
    ]
    return TrainingSet(corpus, examples, dev, about=about, shares=tuple(shares), teachers=tuple(teachers))

"""What the trainings of sentence-transformers' models share: batches, drawn passages, the dev queries' small corpus.

Its models and losses are the library's; the loop is ours (`loop.py`), so that checkpoints, resume, dev figures and
cards are the same for every kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.keys import rng
from airgen.registry import load_extra
from airgen.retrievers.base import Corpus, Retriever
from airgen.retrievers.dense.embedders import loaded, model_place
from airgen.training.base_models import quiet
from airgen.training.data import Example, TrainingSet, draw, epoch_batches, load_training_set, with_negatives
from airgen.training.loop import Trained, run
from airgen.training.recipe import Recipe, Request
from airgen.training.task import Task

__all__ = ["Batch", "Drawn", "LibraryRecipe", "LibraryTask", "in_training", "load_library", "train_library"]

Encoder = TypeVar("Encoder")


class LibraryRecipe(Recipe):
    """What the kinds that train a transformer on (query, passage) pairs have in common."""

    max_length: int = Field(128, ge=8, description="tokens a text, the rest is cut off")
    dev_passages: int | None = Field(
        5000, ge=1, description="dev queries search their positives and so many random passages; none: the whole corpus"
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """The examples of one step, by number; `step` counts from 0 through all epochs."""

    epoch: int
    step: int
    examples: tuple[int, ...]


@dataclass(frozen=True)
class Drawn:
    """A batch's texts. `places` is int64 (queries, 1 + negatives) into the corpus, the positive first."""

    examples: Sequence[Example]
    places: NDArray[np.int64]

    @property
    def queries(self) -> list[str]:
        """The queries' texts."""
        return [example.query for example in self.examples]


def load_library(family: str, base: str, **settings: Any) -> Any:
    """A model of sentence-transformers' class `family`, from a catalogue name, a folder or a Hub name.

    Raises ModelError where it cannot be had, MissingExtra without the library.
    """
    library = load_extra("sentence_transformers", f"training from {base!r}")
    with quiet():
        return loaded(
            "the base model", base, getattr(library, family), model_name_or_path=model_place(base), **settings
        )


def in_training(kind: Callable[[str], Encoder], model: Any) -> Encoder:
    """An encoder of `kind` around a model as it stands, for the dev queries."""
    encoder = kind("in training")
    vars(encoder)["_model"] = model  # where its cached property would keep the loaded one
    return encoder


class LibraryTask(Task):
    """The part of a task that does not depend on the model."""

    def __init__(self, recipe: LibraryRecipe, data: TrainingSet, device: str) -> None:
        self.recipe, self.data, self.device = recipe, data, device
        self.dev_corpus = _dev_corpus(data, recipe)

    def batches(self, epoch: int) -> list[Batch]:
        """All training queries once, in an order of the epoch's own; no batch has a positive twice, if that can be.

        In-batch negatives would take the second for a negative of the first.
        """
        size = self.recipe.batch_size
        dealt = _apart(self.data.examples, epoch_batches(len(self.data.examples), size, self.recipe.seed, epoch))
        return [Batch(epoch, epoch * len(dealt) + place, tuple(one)) for place, one in enumerate(dealt)]

    def told(self, batch: Any) -> str:
        """The ids of the first queries of a batch."""
        ids = [self.data.examples[number].id for number in batch.examples[:3]]
        return f"queries {', '.join(ids)}{', ...' if len(batch.examples) > 3 else ''}"

    def drawn(self, batch: Batch, negatives: int) -> Drawn:
        """A positive and `negatives` passages for each query; where it has fewer hard ones, random ones fill up.

        So E5 does for the one negative of an NLI pair (section 5.1).
        """
        examples = [self.data.examples[number] for number in batch.examples]
        places = np.zeros((len(examples), 1 + negatives), np.int64)
        for row, example in enumerate(examples):
            positive, hard = draw(example, negatives, self.recipe.seed, batch.epoch)
            filled = [positive, *hard]
            if len(filled) <= negatives:
                filled += self._random(example, negatives + 1 - len(filled), batch.epoch)
            places[row] = filled
        return Drawn(examples, places)

    def _random(self, example: Example, count: int, epoch: int) -> list[int]:
        random = rng("fill", self.recipe.seed, epoch, example.id)
        relevant = set(example.positives)
        size = len(self.data.corpus)
        able = size - len(relevant)
        # In a corpus without a single other passage the positive stands in, and is masked as one.
        return [
            next(place for place in iter(lambda: random.randrange(size), -1) if place not in relevant)
            if able > 0
            else example.positives[0]
            for _ in range(count)
        ]

    def columns(self, drawn: Drawn) -> list[list[str]]:
        """Texts as the library's losses take them: queries, positives, first negatives, second ones, ..."""
        texts = [[self.data.corpus.full_text(place) for place in column] for column in drawn.places.T.tolist()]
        return [drawn.queries, *texts]

    def features(self, model: Any, columns: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """Each column tokenised, on the device."""
        return [
            {name: value.to(self.device) if hasattr(value, "to") else value for name, value in features.items()}
            for features in (model.preprocess(list(column)) for column in columns)
        ]

    def search_dev(self, retriever: Retriever) -> dict[str, float]:
        """Figures of the dev queries, searched by `retriever` in the dev corpus; {} where there are none."""
        if not len(self.data.dev):
            return {}
        retriever.index(self.dev_corpus)
        return self.data.dev.search(retriever, self.dev_corpus)

    def save_library(self, model: Any, folder: Path) -> None:
        """Write a model of the library; the card beside it is ours."""
        with quiet():
            model.save_pretrained(str(folder), create_model_card=False)


def train_library(
    kind: str, request: Request, recipe: LibraryRecipe, make: Callable[[TrainingSet, str], LibraryTask]
) -> Trained:
    """Read the data that the recipe asks for, and run a task on it."""
    data = load_training_set(
        request.on, split=request.split, fold=request.fold, dev_share=recipe.dev_share, language=request.language
    )
    data = with_negatives(data, recipe)
    return run(kind, lambda device: make(data, device), recipe, data, request)


def _apart(examples: Sequence[Example], dealt: list[list[int]]) -> list[list[int]]:
    """The same batches, as many and as large, with each positive once in each as far as that can be."""
    batches: list[list[int]] = [[] for _ in dealt]
    taken: list[set[int]] = [set() for _ in dealt]
    open_ones = list(range(len(dealt)))
    for number in (number for batch in dealt for number in batch):
        positives = set(examples[number].positives)
        place = next((one for one in open_ones if not positives & taken[one]), open_ones[0])
        batches[place].append(number)
        taken[place] |= positives
        if len(batches[place]) == len(dealt[place]):
            open_ones.remove(place)
    return batches


def _dev_corpus(data: TrainingSet, recipe: LibraryRecipe) -> Corpus:
    """The dev queries' positives and random passages, in the order of the corpus."""
    corpus = data.corpus
    if not len(data.dev) or recipe.dev_passages is None or len(corpus) <= recipe.dev_passages:
        return corpus
    positives = {passage for of in data.dev.labels.values() for passage, label in of.items() if label > 0}
    chosen = {place for place, key in enumerate(corpus.ids) if key in positives}
    order = np.random.default_rng(rng("dev passages", recipe.seed).getrandbits(64)).permutation(len(corpus))
    chosen.update(order[: recipe.dev_passages].tolist())
    places = sorted(chosen)
    titles = [corpus.titles[place] for place in places] if corpus.titles else ()
    texts = [corpus.texts[place] for place in places]
    return Corpus([corpus.ids[place] for place in places], texts, titles, corpus.language)

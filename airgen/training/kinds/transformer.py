"""The common part of all transformer training: batches, sampled passages, teachers, dev search and saving.

`TransformerTask` supports any model, and `SentenceTransformersTask` those with models and losses from
sentence-transformers. The trainer is always that of `trainer.py`, so checkpoints, resuming, dev figures and cards are
the same for every kind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.components.keys import rng
from airgen.components.registry import load_extra
from airgen.errors import DatasetError, UsageError
from airgen.retrievers.dense.embedders import loaded, quiet_transformers
from airgen.retrievers.model_facts import model_place
from airgen.retrievers.passages import Passages
from airgen.retrievers.protocols import Retriever
from airgen.training.data import TrainingSet, draw
from airgen.training.dataset_columns import Example, part_of
from airgen.training.recipe import Recipe
from airgen.training.task import TrainingTask, shared
from airgen.training.teachers import Teacher, TeacherSpec

IN_TRAINING = "in training"
"""The name of the encoder around the model during training, which searches the dev queries."""


class TransformerRecipe(Recipe):
    """Settings of the kinds that train a transformer on (query, passage) pairs."""

    max_length: int = Field(128, ge=8, description="tokens of a text; the rest is cut off")
    dev_passages: int | None = Field(
        5000,
        ge=1,
        description="dev queries search their positives and this many random passages; null: the whole corpus",
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """The examples of one step, as places in the training data. `step` counts from 0 over all epochs."""

    epoch: int
    step: int
    examples: tuple[int, ...]


@dataclass(frozen=True)
class SampledBatch:
    """Examples with one positive and several negatives each. `places` is int64 (queries, 1 + negatives), positives
    first."""

    examples: Sequence[Example]
    places: NDArray[np.int64]

    @property
    def queries(self) -> list[str]:
        """Return the texts of the queries."""
        return [example.query for example in self.examples]


def load_model(loader: Any, base: str, argument: str = "model_name_or_path", **settings: Any) -> Any:
    """Load the base model with a library's class or function, whose parameter `argument` takes the model's place.

    `base` is a catalogue name, a folder or a Hub name. Raises ModelError if it cannot be loaded.
    """
    with quiet_transformers():
        return loaded("the base model", base, loader, **{argument: model_place(base)}, **settings)


def token_limit(model: Any, max_length: int) -> int:
    """Return `max_length`, or the transformers model's number of positions if it is smaller."""
    return min(max_length, getattr(model.config, "max_position_embeddings", None) or max_length)


def save_with_tokenizer(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a transformers folder."""
    _settle(tokenizer)
    with quiet_transformers():
        model.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))


def _settle(tokenizer: Any) -> None:
    """Remove the last batch's padding and truncation from a tokenizer, which would otherwise be saved with it.

    Training that resumes after its last step has seen no batch, and must write the same files.
    """
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is not None:
        fast.no_padding()
        fast.no_truncation()


class TransformerTask(TrainingTask):
    """The part of a task that does not depend on the model. `teacher` is false if there is none."""

    RECIPE: ClassVar[type[Recipe]] = TransformerRecipe
    by_row: ClassVar[bool] = False  # whether queries with and without a teacher can be in the same batch
    tokenizer: Any

    def __init__(self, recipe: TransformerRecipe, data: TrainingSet, device: str, teacher: TeacherSpec = None) -> None:
        self.torch = load_extra("torch", "training a transformer")
        self.recipe, self.data, self.device = recipe, data, device
        self.dev_corpus = _dev_corpus(data, recipe)
        self.teacher = Teacher(teacher, data.corpus, data.teachers)
        if self.teacher and not self.teacher.of_all and not self.by_row:
            raise UsageError(
                "a dataset has no teacher, and only an encoder learns some queries from labels alone: leave out "
                "`teacher=none`, and name a teacher for the others"
            )

    def batches(self, epoch: int) -> list[Batch]:
        """Yield all training queries once, shuffled for the epoch. If possible, no batch contains a positive twice.

        With in-batch negatives, a repeated positive would be a negative of the other query.
        """
        size = self.recipe.batch_size
        parts = separate(self.data.examples, self.data.batches(size, self.recipe.seed, epoch))
        return [Batch(epoch, epoch * len(parts) + place, tuple(part)) for place, part in enumerate(parts)]

    def part_of(self, batch: Batch) -> Batch:
        """Return this process's part of a batch."""
        return replace(batch, examples=tuple(shared(batch.examples)))

    def describe_batch(self, batch: Any) -> str:
        return f"queries {first_three([self.data.examples[number].id for number in batch.examples])}"

    def sample(self, batch: Batch, negatives: int) -> SampledBatch:
        """Draw a positive and `negatives` negatives per query, adding random ones if there are too few hard ones.

        E5 does this for NLI pairs, which have one negative (section 5.1).
        """
        examples = [self.data.examples[number] for number in batch.examples]
        places = np.zeros((len(examples), 1 + negatives), np.int64)
        for row, example in enumerate(examples):
            positive, hard = draw(example, negatives, self.recipe.seed, batch.epoch)
            filled = [positive, *hard]
            if len(filled) <= negatives:
                filled += self._random(example, negatives + 1 - len(filled), batch.epoch)
            places[row] = filled
        return SampledBatch(examples, places)

    def _random(self, example: Example, count: int, epoch: int) -> list[int]:
        random = rng("fill", self.recipe.seed, epoch, example.id)
        relevant = set(example.positives)
        size = len(self.data.corpus)
        others = size - len(relevant)
        # In a corpus without any other passage, the positive is used, and the loss masks it.
        return [
            next(place for place in iter(lambda: random.randrange(size), -1) if place not in relevant)
            if others > 0
            else example.positives[0]
            for _ in range(count)
        ]

    def teacher_scores(self, sample: SampledBatch) -> Any:
        """Return the teacher's scores for a sample, (queries, 1 + negatives), or None if there is no teacher.

        NaN marks a missing score if the kind can do without it; otherwise, a DatasetError names it.
        """
        if not self.teacher:
            return None
        scores = self.teacher.scores(sample.examples, sample.places)
        lacking = np.argwhere(np.isnan(scores))
        if len(lacking) and not self.by_row:
            row, column = lacking[0].tolist()
            passage = self.data.corpus.ids[int(sample.places[row, column])]
            raise DatasetError(
                f"the file of a teacher has no score for query {sample.examples[row].id} and passage {passage}: lower "
                "hard_negatives to the number of scored ones, or name a re-ranker"
            )
        return self.tensor(scores)

    def tensor(self, array: NDArray[Any]) -> Any:
        """Return an array as a tensor on the device."""
        return self.torch.from_numpy(array).to(self.device)

    def moved(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Move the features of texts to the device."""
        return {name: value.to(self.device) if hasattr(value, "to") else value for name, value in features.items()}

    def passages(self, places: NDArray[np.int64]) -> list[str]:
        """Return the texts of passages."""
        return [self.data.corpus.full_text(place) for place in places.tolist()]

    def retriever(self) -> Retriever:
        """Build the system around the model in its current state."""
        raise NotImplementedError

    def evaluate(self) -> dict[str, float]:
        """Search the dev corpus with the dev queries, and return the figures, or {} if there are no dev queries."""
        if not len(self.data.dev):
            return {}
        retriever = self.retriever()
        retriever.index(self.dev_corpus)
        return self.data.dev.search(retriever, self.dev_corpus)

    def save(self, folder: Path) -> None:
        """Write a transformers folder."""
        save_with_tokenizer(self.model, self.tokenizer, folder)


class SentenceTransformersTask(TransformerTask):
    """A task with a model and losses from sentence-transformers.

    Attributes:
        library_model: The library's model, of which `model` is a part.
    """

    library_model: Any = None

    def columns(self, sample: SampledBatch) -> list[list[str]]:
        """Return texts in the format of the library's losses: queries, positives, first negatives, second
        negatives..."""
        return [sample.queries, *(self.passages(column) for column in sample.places.T)]

    def tokenised(self, batch: Batch, negatives: int) -> tuple[SampledBatch, list[Any]]:
        """Return a sample of the batch, and the features of each text column, on the CPU."""
        sample = self.sample(batch, negatives)
        model = self.library_model or self.model
        return sample, [model.preprocess(list(column)) for column in self.columns(sample)]

    def features(self, model: Any, columns: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """Tokenise each column and move it to the device."""
        return [self.moved(model.preprocess(list(column))) for column in columns]

    def save(self, folder: Path) -> None:
        """Write a sentence-transformers folder. The card is airgen's."""
        model = self.library_model or self.model
        _settle(getattr(model, "tokenizer", None))
        with quiet_transformers():
            model.save_pretrained(str(folder), create_model_card=False)


def info_nce(scores: Any, targets: Any, masked: Any = None, reduction: str = "mean") -> Any:
    """Compute the negative mean log softmax of each row's target (E5, equation 1).

    Args:
        scores: Scores of the candidates, (rows, candidates).
        targets: The target of each row, which must not be masked.
        masked: Candidates to leave out, bool with the shape of `scores`.
        reduction: "none" returns the value of each row.
    """
    torch = load_extra("torch", "training")
    if masked is not None:
        scores = scores.masked_fill(masked, -torch.inf)
    return torch.nn.functional.cross_entropy(scores, targets, reduction=reduction)


def first_three(ids: Sequence[str]) -> str:
    """Return the first three ids, for an error message."""
    return f"{', '.join(ids[:3])}{', ...' if len(ids) > 3 else ''}"


def separate(examples: Sequence[Example], batches: list[list[int]]) -> list[list[int]]:
    """Rearrange examples into batches of the same sizes in which each positive occurs only once, if possible."""
    separated: list[list[int]] = [[] for _ in batches]
    taken: list[set[int]] = [set() for _ in batches]
    unfilled = list(range(len(batches)))
    for number in (number for batch in batches for number in batch):
        positives = set(examples[number].positives)
        place = next((place for place in unfilled if not positives & taken[place]), unfilled[0])
        separated[place].append(number)
        taken[place] |= positives
        if len(separated[place]) == len(batches[place]):
            unfilled.remove(place)
            taken[place] = set()  # of millions of examples, only those in incomplete batches
    return separated


def _dev_corpus(data: TrainingSet, recipe: TransformerRecipe) -> Passages:
    """Return the positives of the dev queries and random passages, in corpus order."""
    corpus = data.corpus
    if not len(data.dev) or recipe.dev_passages is None or len(corpus) <= recipe.dev_passages:
        return corpus
    positives = {passage for row in data.dev.labels.values() for passage, label in row.items() if label > 0}
    chosen = {place for place, key in enumerate(corpus.ids) if key in positives}
    order = np.random.default_rng(rng("dev passages", recipe.seed).getrandbits(64)).permutation(len(corpus))
    chosen.update(order[: recipe.dev_passages].tolist())
    return part_of(corpus, sorted(chosen))

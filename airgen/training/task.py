"""What one kind of training gives the trainer (`trainer.py`), and what a training returns."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from airgen.training.data import TrainingSet
from airgen.training.recipe import Recipe


@dataclass(frozen=True)
class Trained:
    """A finished training. `figures` are of the weights that were kept; `history` has an entry for each evaluation."""

    out: Path
    fingerprint: str
    steps: int
    figures: Mapping[str, float]
    history: Sequence[Mapping[str, Any]]
    stopped: str
    seconds: float
    memory_bytes: int
    trained_now: bool = True

    @classmethod
    def of_card(cls, out: Path, card: Mapping[str, Any]) -> Trained:
        """The training that an earlier call finished."""
        costs = card["costs"]
        return cls(
            out, card["fingerprint"], card["steps"], card["figures"], card["history"], card["stopped"],
            costs["seconds"], costs["memory_bytes"], trained_now=False,
        )  # fmt: skip


def processes() -> int:
    """How many processes of torch's launcher train together; 1 without it."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def rank() -> int:
    """The number of this process, from 0."""
    return int(os.environ.get("RANK") or 0) if processes() > 1 else 0


class TrainingTask(ABC):
    """One kind of training, on one dataset.

    RECIPE: the kind's class of recipe. SYSTEM: the kind of its retriever, the name of the setting that is the trained
    folder, and names of settings that are the recipe's. memory: names of the settings that lower its use of memory.
    model: the torch.nn.Module that is trained, on its device; checkpoints hold its state. trained: the same, or what
    several processes wrap around it, through which gradients are summed. weighted: whether an epoch is one of queries,
    so that datasets can have weights. shares_batches: whether several processes can train it.
    """

    RECIPE: ClassVar[type[Recipe]] = Recipe
    SYSTEM: ClassVar[tuple[str, ...]] = ()
    memory: tuple[str, ...] = ("batch_size",)
    weighted: ClassVar[bool] = True
    shares_batches: ClassVar[bool] = False
    recipe: Any
    model: Any
    trained: Any = None

    @abstractmethod
    def __init__(self, recipe: Any, data: TrainingSet, base: str, device: str) -> None: ...

    @abstractmethod
    def batches(self, epoch: int) -> Sequence[Any]:
        """The batches of an epoch, in order. The same epoch gives the same batches; every epoch has as many."""

    @abstractmethod
    def loss(self, batch: Any) -> Mapping[str, Any]:
        """{"loss": the scalar tensor to minimise, and other scalars to show}. Its `backward` computes all gradients."""

    @abstractmethod
    def evaluate(self) -> Mapping[str, float]:
        """Figures of the dev queries, nDCG@10 among them; {} without dev queries. Called without gradients."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the trained model so that its retriever can load it."""

    def system(self, folder: Path) -> Mapping[str, Any]:
        """The trained model of that folder as an entry of a systems YAML, without a name."""
        if not self.SYSTEM:
            return {}
        kind, place, *names = self.SYSTEM
        return {"kind": kind, place: str(folder), **{name: getattr(self.recipe, name) for name in names}}

    def learning_rates(self, recipe: Recipe) -> list[tuple[Any, float]]:
        """The modules to train, each with its highest learning rate."""
        return [(self.model, recipe.learning_rate)]

    def describe_batch(self, batch: Any) -> str:
        """What a batch consists of, for an error message; it may be empty."""
        return ""

"""What one kind of training gives the loop, and what the loop returns."""

from __future__ import annotations

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


class TrainingTask(ABC):
    """One kind of training, on one dataset.

    RECIPE: the kind's class of recipe. memory: names of the settings that lower its use of memory. model: the
    torch.nn.Module that is trained, on its device; checkpoints hold its state. weighted: whether an epoch is one of
    queries, so that datasets can have weights. shares_batches: whether several processes can train it.
    """

    RECIPE: ClassVar[type[Recipe]] = Recipe
    memory: tuple[str, ...] = ("batch_size",)
    weighted: ClassVar[bool] = True
    shares_batches: ClassVar[bool] = False
    model: Any

    @abstractmethod
    def __init__(self, recipe: Any, data: TrainingSet, base: str, device: str) -> None: ...

    @abstractmethod
    def batches(self, epoch: int) -> Sequence[Any]:
        """The batches of an epoch, in order. The same epoch gives the same batches; every epoch has as many."""

    @abstractmethod
    def loss(self, batch: Any) -> Mapping[str, Any]:
        """{"loss": the scalar tensor to minimise, and other scalars to show}."""

    @abstractmethod
    def evaluate(self) -> Mapping[str, float]:
        """Figures of the dev queries, nDCG@10 among them; {} without dev queries. Called without gradients."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the trained model so that its retriever can load it."""

    def system(self, folder: Path) -> Mapping[str, Any]:
        """The trained model of that folder as an entry of a systems YAML, without a name."""
        return {}

    def backward(self, batch: Any) -> dict[str, float]:
        """Compute the gradients of one step; returns the numbers of `loss`."""
        parts = self.loss(batch)
        parts["loss"].backward()
        return {name: float(value.detach()) for name, value in parts.items()}

    def learning_rates(self, recipe: Recipe) -> list[tuple[Any, float]]:
        """The modules to train, each with its highest learning rate."""
        return [(self.model, recipe.learning_rate)]

    def describe_batch(self, batch: Any) -> str:
        """What a batch consists of, for an error message; it may be empty."""
        return ""

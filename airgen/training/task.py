"""What one kind of training is to the loop: batches, a loss, a look at the dev queries, and a folder to write.

And what the loop gives back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.training.recipe import Recipe

__all__ = ["Task", "Trained"]


@dataclass(frozen=True)
class Trained:
    """A finished training. `figures` are of the weights that were kept; `history` has one entry a look at dev."""

    out: Path
    fingerprint: str
    steps: int
    figures: Mapping[str, float]
    history: Sequence[Mapping[str, Any]]
    stopped: str
    seconds: float
    memory_bytes: int
    trained_now: bool = True


class Task(ABC):
    """What one kind of training gives the loop. `memory` names the settings that lower its use of memory."""

    model: Any
    memory: tuple[str, ...] = ("batch_size",)

    @abstractmethod
    def batches(self, epoch: int) -> Sequence[Any]:
        """The batches of an epoch, in order: the same for the same epoch, as many in every one."""

    @abstractmethod
    def loss(self, batch: Any) -> Mapping[str, Any]:
        """{"loss": a scalar tensor to be minimised, and any other scalars to be shown}."""

    @abstractmethod
    def evaluate(self) -> Mapping[str, float]:
        """Figures of the dev queries, nDCG@10 among them; {} where there are none. Called without gradients."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the trained model, as its retriever loads it."""

    def system(self, folder: Path) -> Mapping[str, Any]:
        """The trained model of that folder as an entry of a systems YAML, its name left out."""
        return {}

    def backward(self, batch: Any) -> dict[str, float]:
        """Fill the gradients for one step; returns the numbers of `loss`."""
        parts = self.loss(batch)
        parts["loss"].backward()
        return {name: float(value.detach()) for name, value in parts.items()}

    def groups(self, recipe: Recipe) -> list[dict[str, Any]]:
        """AdamW's parameter groups; each may have its own `lr`. Biases and norms are not decayed."""
        named = [(name, weights) for name, weights in self.model.named_parameters() if weights.requires_grad]
        return [
            {"params": [weights for _, weights in named if weights.ndim >= 2], "weight_decay": recipe.weight_decay},
            {"params": [weights for _, weights in named if weights.ndim < 2], "weight_decay": 0.0},
        ]

    def told(self, batch: Any) -> str:
        """What a batch is, for an error message."""
        return ""

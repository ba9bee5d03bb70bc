"""The interface between a kind of training and the trainer (`trainer.py`), and the files written with the weights.

MODEL/card.json        kind, base, data, recipe, figures, costs; written last, so a folder with it is complete
MODEL/README.md        the same in words
MODEL/held-out.tsv     qrels of the queries that a fold held out: `airgen evaluate measures RUN MODEL/held-out.tsv`
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from airgen.components.devices import gpu_name
from airgen.display.study import Shown
from airgen.errors import TrainingError
from airgen.evaluation.result import library_versions
from airgen.safety.escaping import markdown_table, md
from airgen.storage.whole_files import building
from airgen.training.data import TrainingSet
from airgen.training.recipe import Recipe

T = TypeVar("T")


WATCHED = "nDCG@10"
"""The dev figure for choosing the weights to keep."""


@dataclass(frozen=True)
class Trained(Shown):
    """The result of training. `figures` are those of the weights that were kept, and `history` has an entry per
    evaluation."""

    out: Path
    fingerprint: str
    steps: int
    figures: Mapping[str, float]
    history: Sequence[Mapping[str, Any]]
    stopped: str
    seconds: float
    memory_bytes: int
    trained_now: bool = True
    gpu_bytes: int | None = None

    @classmethod
    def of_card(cls, out: Path, card: Mapping[str, Any]) -> Trained:
        """Return the result of training that an earlier call finished."""
        costs = card["costs"]
        return cls(
            out=out,
            fingerprint=card["fingerprint"],
            steps=card["steps"],
            figures=card["figures"],
            history=card["history"],
            stopped=card["stopped"],
            seconds=costs["seconds"],
            memory_bytes=costs["memory_bytes"],
            trained_now=False,
            gpu_bytes=costs.get("gpu_bytes"),
        )


def processes() -> int:
    """Return the number of processes in torch's launcher, or 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def rank() -> int:
    """Return the number of this process, from 0."""
    return int(os.environ.get("RANK") or 0) if processes() > 1 else 0


def shared(items: Sequence[T]) -> Sequence[T]:
    """Return this process's items of a batch. A remainder is left for another epoch."""
    if processes() == 1:
        return items
    count = max(1, len(items) // processes())
    return [items[place % len(items)] for place in range(count * rank(), count * (rank() + 1))]


class TrainingTask(ABC):
    """Base class of a kind of training on a dataset.

    Attributes:
        RECIPE: The kind's class of recipe.
        SYSTEM: The kind of its retriever, the setting for the trained folder, and settings to copy from the recipe.
        model: The torch.nn.Module to train, on its device. Checkpoints contain its state.
        trained: The same model or, in several processes, a wrapper that sums gradients.
        weighted: Whether an epoch consists of queries, so that datasets can have weights.
        own_passes: Whether its loss calls `trained` itself in the recipe's precision, rather than the trainer.
        ahead: This process's next batch, and the result of `prepare` for it, computed while the GPU runs the previous
            step.
    """

    RECIPE: ClassVar[type[Recipe]] = Recipe
    SYSTEM: ClassVar[tuple[str, ...]] = ()
    weighted: ClassVar[bool] = True
    own_passes: ClassVar[bool] = False
    recipe: Any
    model: Any
    trained: Any = None
    ahead: tuple[Any, Any] | None = None

    @abstractmethod
    def __init__(self, recipe: Any, data: TrainingSet, base: str, device: str) -> None: ...

    @abstractmethod
    def batches(self, epoch: int) -> Sequence[Any]:
        """Yield the batches of an epoch, in order.

        The same epoch gives the same batches, and every epoch has the same number of them.
        """

    def part_of(self, batch: Any) -> Any:
        """Return this process's part of a batch. All processes have the same number of examples."""
        return batch

    def prepare(self, batch: Any) -> Any:
        """Prepare a batch before its step, in another thread on the CPU: sampled texts and features.

        Returns None if there is nothing to prepare. It must not use a shared random state.
        """
        return None

    @property
    def makes_ahead(self) -> bool:
        """Return whether `prepare` may run during a step, which is not possible if a step uses the same tokenizer."""
        return True

    def ready(self, batch: Any) -> Any:
        """Return the result of `prepare` for a batch, computed ahead or now."""
        if self.ahead is not None and self.ahead[0] == batch:
            return self.ahead[1]
        return self.prepare(batch)

    @abstractmethod
    def loss(self, batch: Any) -> Mapping[str, Any]:
        """Return {"loss": scalar tensor to minimise, and other scalars to show}. `backward` computes all gradients."""

    @abstractmethod
    def evaluate(self) -> Mapping[str, float]:
        """Return the figures on the dev queries, including nDCG@10, or {} if there are none. Called without
        gradients."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the trained model so that its retriever can load it."""

    def system(self, folder: Path) -> Mapping[str, Any]:
        """Return the entry for the trained model in a systems YAML, without a name."""
        if not self.SYSTEM:
            return {}
        kind, place, *names = self.SYSTEM
        return {"kind": kind, place: str(folder), **{name: getattr(self.recipe, name) for name in names}}

    @classmethod
    def usual_recipe(cls, queries: int) -> str | None:
        """Return the name of the built-in recipe for this many training queries, or None for the defaults."""
        return None

    def learning_rates(self, recipe: Recipe) -> list[tuple[Any, float]]:
        """Return the modules to train, each with its highest learning rate."""
        return [(self.model, recipe.learning_rate)]

    def describe_batch(self, batch: Any) -> str:
        """Describe the contents of a batch for an error message, or return ""."""
        return ""


CARD = "card.json"


def read_card(folder: Path) -> dict[str, Any] | None:
    """Read the card of a trained model, or return None if there is none. Raises TrainingError if it is damaged."""
    path = folder / CARD
    if not path.is_file():
        return None
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(f"{path}: cannot be read ({error}): train into another folder") from error
    if not isinstance(card, dict) or "kind" not in card:
        raise TrainingError(f"{path}: is not the card of a trained model")
    return card


def finished_recipe(folder: Path) -> Mapping[str, Any]:
    """Return the recipe of an existing trained model, or {}."""
    recipe = (read_card(folder) or {}).get("recipe")
    return recipe if isinstance(recipe, dict) else {}


def system_line(card: Mapping[str, Any]) -> str:
    """Return the trained model as a line of a systems YAML: `- {name: mine, kind: dense, embedder: models/e5}`."""
    return f"- {{name: mine, {', '.join(f'{key}: {value}' for key, value in card['system'].items())}}}"


def write_card(
    kind: str,
    task: TrainingTask,
    trained: Trained,
    recipe: Recipe,
    *,
    data: TrainingSet,
    parts: Mapping[str, Any],
    device: str,
) -> None:
    """Write a trained model's folder (the task's files, then the cards), and move it into place with a single
    rename."""
    card = {
        "kind": kind,
        "fingerprint": trained.fingerprint,
        "parts": dict(parts),
        "base": parts["base"],
        "data": dict(data.about),
        "recipe": recipe.model_dump(mode="json"),
        "system": dict(task.system(trained.out)),
        "steps": trained.steps,
        "stopped": trained.stopped,
        "figures": dict(trained.figures),
        "history": [dict(entry) for entry in trained.history],
        "costs": {
            "seconds": round(trained.seconds, 3),
            "memory_bytes": trained.memory_bytes,
            "gpu_bytes": trained.gpu_bytes,
            "device": gpu_name(device),
            "processes": processes(),
        },
        "versions": library_versions(),
    }
    with building(trained.out, CARD) as folder:
        task.save(folder)
        if data.held_out:
            rows = [
                f"{query}\t{passage}\t{label:g}\n"
                for query, labels in data.held_out.items()
                for passage, label in labels.items()
            ]
            (folder / "held-out.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), encoding="utf-8")
        (folder / "README.md").write_text(_card_text(card), encoding="utf-8")
        (folder / CARD).write_text(json.dumps(card, ensure_ascii=False, indent=1, sort_keys=True), encoding="utf-8")


def _card_text(card: Mapping[str, Any]) -> str:
    data, costs = card["data"], card["costs"]
    fold = f", fold {data['fold']} held out ({data['held_out_queries']} queries)" if data.get("fold") else ""
    gpu = f", {costs['gpu_bytes'] / 1e6:.0f} MB of the GPU's" if costs.get("gpu_bytes") else ""
    others = f", {costs['processes']} processes" if costs.get("processes", 1) > 1 else ""
    figures = ", ".join(f"{name} {value:.4f}" for name, value in card["figures"].items()) or "no dev queries"
    history = [
        [str(entry["step"]), *(f"{entry[name]:.4f}" if name in entry else "" for name in ("loss", "nDCG@10"))]
        for entry in card["history"]
    ]
    return "\n".join(
        [
            f"# {card['kind']} trained on {md(data['dataset'])}",
            "",
            f"Base: {md(card['base']['model'])}. Data: {md(data['dataset'])}, split {md(data['split'])}{fold}: "
            f"{data['training_queries']} training and {data['dev_queries']} dev queries over "
            f"{data['passages']} passages; content hash {data['digest']}.",
            *(
                f"- {md(dataset['name'])}, weight {dataset['weight']:g}: {dataset['training_queries']} training and "
                f"{dataset['dev_queries']} dev queries, split {md(dataset['split'])}; content hash {dataset['digest']}."
                for dataset in data.get("datasets", ())
            ),
            "",
            f"Dev figures of these weights: {figures}. {card['steps']} steps ({card['stopped']}), "
            f"{costs['seconds']:.0f} s on {costs['device']}{others}, {costs['memory_bytes'] / 1e6:.0f} MB at most{gpu}"
            f"; precision {card['recipe'].get('precision', 'fp32')}. "
            f"Fingerprint {card['fingerprint']}.",
            "",
            f"In a systems YAML: `{system_line(card)}`",
            "",
            markdown_table(["step", "loss", "dev nDCG@10"], history),
            "## Recipe",
            "",
            *(f"- {name}: {value}" for name, value in card["recipe"].items()),
            "",
        ]
    )

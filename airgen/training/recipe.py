"""Recipes: the hyperparameters of training, read from YAML.

A kind of training derives its recipe from `Recipe`, changes defaults and adds fields. The `description` of a field says
what it is or where its value comes from, and `airgen train recipe KIND` prints it next to the value. Fields that cannot
change the weights are marked SPEED. All others are part of the training's fingerprint, and a checkpoint with another
fingerprint is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

import yaml
from pydantic import Field

from airgen.components.devices import has_bf16
from airgen.errors import UsageError
from airgen.settings.base import SPEED, Settings, answer_settings, find_yaml, load_yaml, validate
from airgen.storage.yaml_text import read_yaml

R = TypeVar("R", bound="Recipe")


@dataclass(frozen=True, slots=True)
class Fold:
    """A cross-validation fold: the queries in part `number` (from 1) of `parts` are held out, and all others are used
    for training."""

    number: int
    parts: int

    @classmethod
    def parse(cls, text: str) -> Fold:
        """Parse `"2/5"`. Raises UsageError for anything else."""
        number, _, parts = text.partition("/")
        if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts) and int(parts) >= 2):
            raise UsageError(f"--fold {text}: give i/n with 1 <= i <= n and n at least 2, such as 1/5")
        return cls(int(number), int(parts))

    def __str__(self) -> str:
        return f"{self.number}/{self.parts}"


class Recipe(Settings):
    """Settings of every kind of training. A kind changes the defaults to those of its paper."""

    seed: int = Field(default=42, description="of weights, order, dropout and sampled negatives")
    epochs: int = Field(
        default=3, ge=1, description="passes over the training queries, if nothing ends training before"
    )
    max_steps: int | None = Field(default=None, ge=1, description="maximum number of steps, whatever the epochs say")
    batch_size: int = Field(default=32, ge=1, description="queries in a step")
    learning_rate: float = Field(default=2e-5, gt=0, description="the highest, after warm-up")
    schedule: Literal["linear", "cosine", "constant"] = Field(
        default="linear", description="after warm-up: falls to 0, or stays"
    )
    warmup: float = Field(default=0.1, ge=0, le=1, description="share of all steps in which the rate grows from 0")
    weight_decay: float = Field(default=0.01, ge=0, description="AdamW's, on matrices; biases and norms have none")
    clip_norm: float = Field(default=1.0, gt=0, description="gradients are scaled down to this norm")
    hard_negatives: int = Field(default=1, ge=0, description="sampled for each query and epoch from those that it has")
    negatives: Literal["both", "dataset", "bm25"] = Field(
        default="both",
        description="passages judged 0 in the dataset, BM25's best that are not judged, or the former, then the latter",
    )
    mined_depth: int = Field(default=100, ge=1, description="depth of BM25's ranking from which negatives are taken")
    dev_share: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="share of the training queries that become dev queries if there is no dev split",
    )
    evaluate_every: int | None = Field(
        default=None, ge=1, description="steps between two evaluations on dev; null: one epoch"
    )
    patience: int = Field(
        default=3, ge=0, description="stop after this many evaluations without a better dev nDCG@10; 0: never"
    )
    keep: Literal["best", "last"] = Field(default="best", description="the weights that are best on dev, or the last")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="of a step's products; auto: bf16 on a GPU that has it, else fp32 (on a GPU TF32)"
    )
    gradient_checkpointing: bool = Field(default=False, description="less memory for a step, and a third more time")
    deterministic: bool = Field(
        default=False, description="on a GPU: one seed gives one model, at some cost; on a CPU it does so anyway"
    )
    checkpoint_every: Annotated[int, SPEED] = Field(
        default=100, ge=1, description="steps between two checkpoints; changes no weights"
    )

    def parts(self) -> dict[str, Any]:
        """Return the fields that can change the weights, as JSON values."""
        return answer_settings(self)

    def on(self, device: str, made: Mapping[str, Any] | None = None) -> Self:
        """Return the recipe with the precision for a device, or with that of a finished model's recipe."""
        if self.precision != "auto":
            return self
        fast = "bf16" if device.startswith("cuda") and has_bf16() else "fp32"
        chosen = (made or {}).get("precision") or fast
        return self.model_copy(update={"precision": "bf16" if chosen == "bf16" else "fp32"})


class TrainingData(NamedTuple):
    """A dataset to train on, with the number of times an epoch repeats its queries, and its own teacher
    (`teachers.with_own_teacher`)."""

    path: Path
    weight: float = 1.0
    teacher: str | None = None


@dataclass(frozen=True)
class TrainingRequest:
    """The options of `airgen train KIND`.

    Attributes:
        on: A dataset directory in BEIR format (published, generated, or mined pairs), or several, each with a weight
            and a teacher (`TrainingData`).
        base: The model to start from: a name listed by `airgen show models`, a folder, or a Hub name.
        out: The folder of the trained model.
        recipe: A file, or the name of a built-in recipe.
        changes: Settings that override the recipe's, as NAME=VALUE.
        resume: Whether to continue from an existing checkpoint.
    """

    on: Path | tuple[TrainingData | tuple[Path, float], ...]
    base: str
    out: Path
    recipe: Path | None = None
    changes: tuple[str, ...] = ()
    split: str = "train"
    fold: Fold | None = None
    resume: bool = False
    language: str | None = None
    device: str | None = None
    quiet: bool = False

    @property
    def datasets(self) -> tuple[TrainingData, ...]:
        """Return each dataset with its weight and teacher."""
        return (
            (TrainingData(self.on),) if isinstance(self.on, Path) else tuple(TrainingData(*entry) for entry in self.on)
        )

    def recipe_of(self, kind: type[R]) -> R:
        """Load the recipe for this kind, with `changes`. Raises SettingsError or UsageError."""
        base = load_yaml(find_yaml("pipelines", self.recipe), kind) if self.recipe is not None else kind()
        if not self.changes:
            return base
        changed = dict(_assignment(text) for text in self.changes)
        for name, value in changed.items():
            if value is None and name in kind.model_fields and kind.model_fields[name].annotation is str:
                changed[name] = ""  # `query_prefix=` is a text without words
        return validate({**base.model_dump(mode="json"), **changed}, kind, "--set")


def _assignment(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise UsageError(f"--set {text}: give NAME=VALUE, such as learning_rate=1e-4")
    return name.strip(), read_yaml(value, f"--set {name.strip()}")[0]


def commented_yaml(recipe: Recipe) -> str:
    """Return a recipe as YAML with the description of each setting next to it."""
    lines = []
    for name, field in type(recipe).model_fields.items():
        value = yaml.safe_dump(recipe.model_dump(mode="json")[name], default_flow_style=True).removesuffix("...\n")
        lines.append(f"{name}: {value.strip()}".ljust(32) + f"  # {field.description}")
    return "\n".join(lines) + "\n"

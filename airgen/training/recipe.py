"""Recipes: every number of a training, read from YAML, each with its source.

    class AugmentRecipe(Recipe):
        learning_rate: float = Field(default=3e-4, gt=0, description="seed 002, section 3 (NQ)")

A kind of training derives its recipe from `Recipe`, changes defaults and adds fields; every field has a
`description` that says where the value comes from and, where ours differs from the paper's, why.
`airgen train recipe KIND` prints them as commented YAML. Unknown keys are errors. `SPEED` names the fields that cannot
change the weights: all others are part of a training's fingerprint, and a checkpoint of another fingerprint is refused.

A kind's function takes one `Request` (what the command line said) and starts with

    recipe = request.recipe_of(AugmentRecipe)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field

from airgen.errors import UsageError
from airgen.settings.yaml_file import load_yaml, validate

__all__ = ["Fold", "Recipe", "Request", "commented_yaml"]

R = TypeVar("R", bound="Recipe")


@dataclass(frozen=True, slots=True)
class Fold:
    """Part `number` (from 1) of `of`: its queries are held out, the other parts' train."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Fold:
        """`"2/5"`. Raises UsageError for anything else."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of) and int(of) >= 2):
            raise UsageError(f"--fold {text}: wants i/n with 1 <= i <= n and n at least 2, as in 1/5")
        return cls(int(number), int(of))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


class Recipe(BaseModel):
    """What every kind of training has. A kind changes the defaults to those of its paper."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    SPEED: ClassVar[frozenset[str]] = frozenset({"checkpoint_every"})

    seed: int = Field(default=42, description="of weights, order, dropout and drawn negatives")
    epochs: int = Field(default=3, ge=1, description="passes over the training queries, if nothing stops it before")
    max_steps: int | None = Field(default=None, ge=1, description="stop after so many steps, whatever the epochs say")
    batch_size: int = Field(default=32, ge=1, description="queries a step")
    learning_rate: float = Field(default=2e-5, gt=0, description="the highest, after warm-up")
    schedule: Literal["linear", "cosine", "constant"] = Field(
        default="linear", description="after warm-up: down to 0, or not"
    )
    warmup: float = Field(default=0.1, ge=0, le=1, description="share of all steps in which the rate grows from 0")
    weight_decay: float = Field(default=0.01, ge=0, description="AdamW's, on matrices; biases and norms have none")
    clip_norm: float = Field(default=1.0, gt=0, description="gradients are scaled down to this norm")
    hard_negatives: int = Field(default=1, ge=0, description="drawn for each query and epoch from those it has")
    negatives: Literal["both", "dataset", "bm25"] = Field(
        default="both",
        description="the dataset's judged ones, BM25's best that are not positive, or the first filled by both",
    )
    mined_depth: int = Field(default=100, ge=1, description="how far down BM25's ranking negatives are taken")
    dev_share: float = Field(
        default=0.1, ge=0, lt=1, description="of the training queries, kept as dev where there is no dev split"
    )
    evaluate_every: int | None = Field(default=None, ge=1, description="steps between two looks at dev; null: an epoch")
    patience: int = Field(default=3, ge=0, description="looks without a better dev nDCG@10 that end training; 0: none")
    keep: Literal["best", "last"] = Field(default="best", description="the weights that are best on dev, or the last")
    checkpoint_every: int = Field(default=100, ge=1, description="steps between two checkpoints; changes no weights")

    @classmethod
    def of(cls, value: dict[str, Any], name: str = "recipe") -> Self:
        """A mapping as a recipe. Raises SettingsError with every problem."""
        return validate(value, cls, name)

    def parts(self) -> dict[str, Any]:
        """The fields that can change the weights, as JSON has them."""
        return self.model_dump(mode="json", exclude=set(self.SPEED))


@dataclass(frozen=True)
class Request:
    """What `airgen train KIND` was asked for.

    on: a directory in BEIR's layout (a published dataset, a generated one, or mined pairs). base: the model to start
    from: a name of `airgen models list`, a folder, or a Hub name. out: the folder of the trained model. changes: single
    settings that replace the recipe's. resume: go on from the checkpoint that is there.
    """

    on: Path
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

    def recipe_of(self, kind: type[R]) -> R:
        """The recipe file as that kind's, with `changes` put over it. Raises SettingsError, UsageError."""
        base = load_yaml(self.recipe, kind) if self.recipe is not None else kind()
        if not self.changes:
            return base
        changed = dict(_assignment(text) for text in self.changes)
        return kind.of({**base.model_dump(mode="json"), **changed}, "--set")


def _assignment(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise UsageError(f"--set {text}: wants NAME=VALUE, as in learning_rate=1e-4")
    try:
        return name.strip(), yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UsageError(f"--set {text}: the value is not YAML") from error


def commented_yaml(recipe: Recipe) -> str:
    """A recipe as YAML with the source of each number beside it."""
    lines = []
    for name, field in type(recipe).model_fields.items():
        value = yaml.safe_dump(recipe.model_dump(mode="json")[name], default_flow_style=True).removesuffix("...\n")
        lines.append(f"{name}: {value.strip()}".ljust(32) + f"  # {field.description}")
    return "\n".join(lines) + "\n"

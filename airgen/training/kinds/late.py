"""Late interaction as in ColBERT, by sentence-transformers' MultiVectorEncoder and its losses.

    airgen train colbert --on scifact --base splade-bert-tiny --out models/colbert

A token's vector is projected to `dim` and scaled to unit length; the loss is InfoNCE over MaxSim scores of the batch's
passages and the hard negatives, or with a teacher the divergence from its scores (BEIR trains ColBERT without, with
passages of 300 tokens: its section 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from airgen.registry import load_extra
from airgen.retrievers.late.maxsim import LateInteraction, MultiVectorEncoder
from airgen.training.data import TrainingSet
from airgen.training.kinds.sentence_transformers import (
    Batch,
    LibraryRecipe,
    LibraryTask,
    in_training,
    load_library,
    train_library,
)
from airgen.training.loop import Trained
from airgen.training.recipe import Request
from airgen.training.teachers import Teacher, TeacherSpec

__all__ = ["RECIPE", "LateRecipe", "LateTask", "train"]


class LateRecipe(LibraryRecipe):
    """ColBERT's hyperparameters; the library projects tokens to 128 dimensions, as ColBERT does."""

    epochs: int = Field(3, ge=1, description="BEIR: 300,000 steps on MS MARCO; early stopping ends it")
    learning_rate: float = Field(3e-6, gt=0, description="ColBERT; small models take 1e-3")
    batch_size: int = Field(32, ge=1, description="ColBERT")
    max_length: int = Field(300, ge=8, description="BEIR, section 4")
    hard_negatives: int = Field(1, ge=0, description="ColBERT: one BM25 negative a query")
    scale: float = Field(1.0, gt=0, description="multiplies the MaxSim sums, the library's default")
    teacher: TeacherSpec = Field(None, description="re-rankers to distil from")
    teacher_temperature: float = Field(1.0, gt=0, description="divides the teacher's scores")


RECIPE = LateRecipe


class LateTask(LibraryTask):
    """Model, loss and dev figures of a late-interaction model."""

    memory = ("batch_size", "max_length", "hard_negatives")
    recipe: LateRecipe

    def __init__(self, recipe: LateRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device)
        self.torch = load_extra("torch", "training late interaction")
        losses = load_extra("sentence_transformers.multi_vector_encoder.losses", "training late interaction")
        self.model = load_library("MultiVectorEncoder", base, device=device)
        limit = getattr(self.model[0].model.config, "max_position_embeddings", None) or recipe.max_length
        self.model.max_seq_length = min(recipe.max_length, limit)
        self.teacher = Teacher(recipe.teacher, data.corpus)
        self._negatives = recipe.hard_negatives
        if self.teacher:
            self._negatives = max(1, self._negatives)  # a distribution over one passage says nothing
            self._loss = losses.MultiVectorDistillKLDivLoss(self.model)
        else:
            self._loss = losses.MultiVectorMultipleNegativesRankingLoss(self.model, scale=recipe.scale)

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """InfoNCE over MaxSim, or the divergence from the teacher."""
        drawn = self.drawn(batch, self._negatives)
        labels = None
        if self.teacher:
            scores = self.teacher.scores(drawn.queries, drawn.places) / self.recipe.teacher_temperature
            labels = self.torch.from_numpy(scores).to(self.device)
        return {"loss": self._loss(self.features(self.model, self.columns(drawn)), labels)}

    def evaluate(self) -> dict[str, float]:
        """MaxSim of the dev queries with every passage."""
        return self.search_dev(LateInteraction(in_training(MultiVectorEncoder, self.model)))

    def save(self, folder: Path) -> None:
        """A folder of sentence-transformers."""
        self.save_library(self.model, folder)

    def system(self, folder: Path) -> Mapping[str, Any]:
        """`kind: late`."""
        return {"kind": "late", "model": str(folder)}


def train(request: Request) -> Trained:
    """Train late interaction on a dataset's queries, positives and hard negatives."""
    recipe = request.recipe_of(LateRecipe)
    return train_library("colbert", request, recipe, lambda data, device: LateTask(recipe, data, request.base, device))

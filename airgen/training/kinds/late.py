"""Late interaction as in ColBERT, by sentence-transformers' MultiVectorEncoder and its losses.

    airgen train colbert --on scifact --base splade-bert-tiny --out models/colbert

Token vectors are projected to 128 dimensions and scaled to unit length. The loss is InfoNCE over the MaxSim scores of
the batch's passages and the hard negatives; with a teacher it is the divergence from the teacher's scores. BEIR trains
ColBERT without a teacher, with passages of 300 tokens (its section 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from airgen.registry import load_extra
from airgen.retrievers.late.maxsim import LateInteraction, MultiVectorEncoder
from airgen.training.data import TrainingSet
from airgen.training.kinds.transformer import (
    IN_TRAINING,
    Batch,
    SentenceTransformersTask,
    TransformerRecipe,
    load_model,
    token_limit,
)
from airgen.training.teachers import TeacherSpec


class LateRecipe(TransformerRecipe):
    """ColBERT's hyperparameters; the library projects tokens to 128 dimensions, as ColBERT does."""

    epochs: int = Field(3, ge=1, description="BEIR: 300,000 steps on MS MARCO; early stopping ends it")
    learning_rate: float = Field(3e-6, gt=0, description="ColBERT; small models take 1e-3")
    batch_size: int = Field(32, ge=1, description="ColBERT")
    max_length: int = Field(300, ge=8, description="BEIR, section 4")
    hard_negatives: int = Field(1, ge=0, description="ColBERT: one BM25 negative for each query")
    scale: float = Field(1.0, gt=0, description="multiplies the MaxSim sums, the library's default")
    teacher: TeacherSpec = Field(None, description="re-rankers to distil from")
    teacher_temperature: float = Field(1.0, gt=0, description="divides the teacher's scores")


class LateTask(SentenceTransformersTask):
    """Trains a late-interaction model."""

    RECIPE = LateRecipe
    recipe: LateRecipe

    def __init__(self, recipe: LateRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device, recipe.teacher)
        library = load_extra("sentence_transformers", "training late interaction")
        losses = load_extra("sentence_transformers.multi_vector_encoder.losses", "training late interaction")
        self.model = load_model(library.MultiVectorEncoder, base, device=device)
        self.model.max_seq_length = token_limit(self.model[0].model, recipe.max_length)
        self._negatives = recipe.hard_negatives
        if self.teacher:
            self._negatives = max(1, self._negatives)  # a distribution over one passage has no information
            self._loss = losses.MultiVectorDistillKLDivLoss(self.model)
        else:
            self._loss = losses.MultiVectorMultipleNegativesRankingLoss(self.model, scale=recipe.scale)

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """InfoNCE over MaxSim, or the divergence from the teacher."""
        sample = self.sample(batch, self._negatives)
        scores = self.teacher_scores(sample)
        labels = None if scores is None else scores / self.recipe.teacher_temperature
        return {"loss": self._loss(self.features(self.model, self.columns(sample)), labels)}

    def evaluate(self) -> dict[str, float]:
        """Search by MaxSim with every passage."""
        encoder = MultiVectorEncoder(IN_TRAINING)
        encoder.model = self.model
        return self.search_dev(LateInteraction(encoder))

    def system(self, folder: Path) -> Mapping[str, Any]:
        """`kind: late`."""
        return {"kind": "late", "model": str(folder)}

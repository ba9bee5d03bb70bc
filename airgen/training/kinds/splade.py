"""SPLADE by sentence-transformers' model and losses; the successor of BEIR's sparse family.

    airgen train splade --on scifact --base splade-bert-tiny --out models/splade

Without a teacher the ranking loss is InfoNCE over the batch's passages and the hard negatives; with a teacher it is
margin-MSE. The FLOPS regulariser of queries and passages is added to either. Its weight grows with the square of the
step over the first third of the training (Formal and others, 2021, "SPLADE v2").
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from airgen.registry import load_extra
from airgen.retrievers.base import model_place
from airgen.retrievers.sparse import Sparse, SparseEncoder
from airgen.training.base_models import load_base, quiet
from airgen.training.data import TrainingSet
from airgen.training.kinds.transformer import (
    IN_TRAINING,
    Batch,
    SentenceTransformersTask,
    TransformerRecipe,
    token_limit,
)
from airgen.training.teachers import TeacherSpec


class SpladeRecipe(TransformerRecipe):
    """SPLADE v2's hyperparameters."""

    epochs: int = Field(3, ge=1, description="SPLADE v2: 150,000 steps on MS MARCO; early stopping ends it")
    learning_rate: float = Field(2e-5, gt=0, description="SPLADE v2; small models take 1e-3")
    batch_size: int = Field(32, ge=1, description="SPLADE v2: 124, on four GPUs")
    max_length: int = Field(256, ge=8, description="SPLADE v2")
    hard_negatives: int = Field(1, ge=0, description="SPLADE v2: one BM25 negative for each query")
    teacher: TeacherSpec = Field(None, description="re-rankers, whose mean margin is learned (DistilSPLADE)")
    flops_queries: float = Field(
        5e-5, ge=0, description="weight of the FLOPS regulariser of queries; the library's example"
    )
    flops_passages: float = Field(3e-5, ge=0, description="weight of the FLOPS regulariser of passages")
    flops_warmup: float = Field(1 / 3, gt=0, le=1, description="share of all steps; SPLADE v2: 50k of 150k")


class SpladeTask(SentenceTransformersTask):
    """Trains a SPLADE."""

    RECIPE = SpladeRecipe
    recipe: SpladeRecipe

    def __init__(self, recipe: SpladeRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device, recipe.teacher)
        losses = load_extra("sentence_transformers.sparse_encoder.losses", "training a SPLADE")
        self.model = _splade(base, recipe, device)
        self._negatives = recipe.hard_negatives
        if self.teacher:
            self._negatives = max(1, self._negatives)  # a margin needs a negative
        inner = (losses.SparseMarginMSELoss if self.teacher else losses.SparseMultipleNegativesRankingLoss)(self.model)
        self._loss = losses.SpladeLoss(self.model, inner, recipe.flops_passages, recipe.flops_queries)
        steps = len(self.batches(0)) * recipe.epochs
        self._warmup_steps = max(1, round(recipe.flops_warmup * min(steps, recipe.max_steps or steps)))

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """The ranking loss and both regularisers."""
        sample = self.sample(batch, self._negatives)
        share = min(1.0, (batch.step + 1) / self._warmup_steps) ** 2
        self._loss.document_regularizer_weight = self.recipe.flops_passages * share
        self._loss.query_regularizer_weight = self.recipe.flops_queries * share
        parts = self._loss(self.features(self.model, self.columns(sample)), self.teacher_scores(sample))
        flops = parts["document_regularizer_loss"] + parts["query_regularizer_loss"]
        return {"loss": parts["base_loss"] + flops, "ranking": parts["base_loss"], "flops": flops}

    def evaluate(self) -> dict[str, float]:
        """Search by inner product."""
        encoder = SparseEncoder(IN_TRAINING)
        encoder.model = self.model
        return self.search_dev(Sparse(encoder))

    def system(self, folder: Path) -> Mapping[str, Any]:
        """`kind: sparse`."""
        return {"kind": "sparse", "model": str(folder), "max_length": self.recipe.max_length}


def _splade(base: str, recipe: SpladeRecipe, device: str) -> Any:
    """A masked-language model whose logits are max-pooled. Raises ModelError for a base without that head."""
    library = load_extra("sentence_transformers", f"training from {base!r}")
    modules = load_extra("sentence_transformers.sparse_encoder.modules", f"training from {base!r}")
    transformers = load_extra("sentence_transformers.base.modules", f"training from {base!r}")
    load_base(base, masked_lm=True)  # raises an error if there is no trained head
    with quiet():
        transformer = transformers.Transformer(model_place(base), transformer_task="fill-mask")
    transformer.max_seq_length = token_limit(transformer.model, recipe.max_length)
    return library.SparseEncoder(modules=[transformer, modules.SpladePooling("max")], device=device)

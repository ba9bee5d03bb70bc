"""Train cross-encoders, SPLADE and late interaction with models and losses from sentence-transformers.

BEIR's cross-encoder for BM25+CE was distilled from an ensemble of three teachers with the margin-MSE loss of Hofstätter
and others (its section 4): it learns the teachers' difference between the scores of a positive and a negative. Without
a teacher, the loss is binary cross-entropy. Dev figures are for BM25's re-ranked top hits.

SPLADE's ranking loss is InfoNCE or, with a teacher, margin-MSE, plus the FLOPS regulariser of queries and passages,
whose weight grows quadratically over the first third of training (Formal and others, 2021, "SPLADE v2").

Late interaction follows ColBERT: token vectors are projected to 128 dimensions and scaled to unit length. The loss is
InfoNCE over MaxSim scores or, with a teacher, the divergence from its scores.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from airgen.components.registry import load_extra
from airgen.retrievers.combine import RerankedRetriever
from airgen.retrievers.dense.embedders import quiet_transformers
from airgen.retrievers.late.maxsim import LateInteraction, MultiVectorEncoder
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.model_facts import model_place
from airgen.retrievers.protocols import Retriever
from airgen.retrievers.rerank import CrossEncoder
from airgen.retrievers.sparse import Sparse, SparseEncoder
from airgen.training.base_models import load_base
from airgen.training.data import TrainingSet
from airgen.training.kinds.transformer import (
    IN_TRAINING,
    Batch,
    SampledBatch,
    SentenceTransformersTask,
    TransformerRecipe,
    load_model,
    token_limit,
)
from airgen.training.task import processes
from airgen.training.teachers import TeacherSpec


class CrossEncoderRecipe(TransformerRecipe):
    """The recipe for cross-encoders. Teachers and loss are BEIR's; other values are those of Hofstätter and others
    (2021)."""

    epochs: int = Field(2, ge=1, description="ours; early stopping may end it before")
    learning_rate: float = Field(7e-6, gt=0, description="Hofstätter and others; small models take 1e-4")
    batch_size: int = Field(32, ge=1, description="Hofstätter and others")
    max_length: int = Field(256, ge=8, description="query and passage together")
    hard_negatives: int = Field(
        4, ge=1, description="the teachers' paper: 1 of a long list in each step; ours: 4 make better use of a pass"
    )
    teacher: TeacherSpec = Field(
        None, description="re-rankers whose mean margin is learned; null: binary cross-entropy"
    )
    rerank_depth: int = Field(
        50, ge=1, description="BM25 hits of each dev query that are re-ranked for the dev figures"
    )


class CrossEncoderTask(SentenceTransformersTask):
    """Trains a cross-encoder."""

    RECIPE = CrossEncoderRecipe
    recipe: CrossEncoderRecipe

    def __init__(self, recipe: CrossEncoderRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device, recipe.teacher)
        library = load_extra("sentence_transformers", "training a cross-encoder")
        losses = load_extra("sentence_transformers.cross_encoder.losses", "training a cross-encoder")
        self.model = load_model(library.CrossEncoder, base, num_labels=1, max_length=recipe.max_length, device=device)
        self._loss = (losses.MarginMSELoss if self.teacher else losses.BinaryCrossEntropyLoss)(self.model)

    def prepare(self, batch: Batch) -> tuple[SampledBatch, list[list[str]]]:
        """Return the texts, since the library's losses tokenise the pairs."""
        sample = self.sample(batch, self.recipe.hard_negatives)
        return sample, self.columns(sample)

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """Compute the margin-MSE loss with the teachers, or binary cross-entropy."""
        sample, columns = self.ready(batch)
        if self.teacher:
            return {"loss": self._loss(columns, self.teacher_scores(sample))}
        queries = [query for _ in columns[1:] for query in columns[0]]
        passages = [text for column in columns[1:] for text in column]
        labels = self.torch.zeros(len(queries), device=self.device)
        labels[: len(columns[0])] = 1.0  # the positives are the first column
        return {"loss": self._loss([queries, passages], labels)}

    def retriever(self) -> Retriever:
        """Build BM25 with its top hits re-ranked."""
        reranker = CrossEncoder(IN_TRAINING, max_length=self.recipe.max_length)
        reranker.model = self.model
        return RerankedRetriever(BM25(), reranker, top=self.recipe.rerank_depth)

    def system(self, folder: Path) -> Mapping[str, Any]:
        """Return `kind: rerank`, after a system named bm25."""
        return {"kind": "rerank", "first": "bm25", "reranker": str(folder)}


class SpladeRecipe(TransformerRecipe):
    """The recipe for SPLADE, with The recipe for SPLADE, with SPLADE v2's hyperparameters."""

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
    """Trains a SPLADE model."""

    SYSTEM = ("sparse", "model", "max_length")
    RECIPE = SpladeRecipe
    recipe: SpladeRecipe

    def __init__(self, recipe: SpladeRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device, recipe.teacher)
        losses = load_extra("sentence_transformers.sparse_encoder.losses", "training a SPLADE")
        self.model = _splade(base, recipe, device)
        self._negatives = recipe.hard_negatives
        if self.teacher:
            self._negatives = max(1, self._negatives)  # a margin needs a negative
        if self.teacher:
            inner = losses.SparseMarginMSELoss(self.model)
        else:  # the passages of all processes are negatives
            inner = losses.SparseMultipleNegativesRankingLoss(self.model, gather_across_devices=processes() > 1)
        self._loss = losses.SpladeLoss(self.model, inner, recipe.flops_passages, recipe.flops_queries)
        steps = len(self.batches(0)) * recipe.epochs
        self._warmup_steps = max(1, round(recipe.flops_warmup * min(steps, recipe.max_steps or steps)))

    def prepare(self, batch: Batch) -> tuple[SampledBatch, list[Any]]:
        """Tokenise the texts."""
        return self.tokenised(batch, self._negatives)

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """Compute the ranking loss and both regularisers."""
        sample, features = self.ready(batch)
        share = min(1.0, (batch.step + 1) / self._warmup_steps) ** 2
        self._loss.document_regularizer_weight = self.recipe.flops_passages * share
        self._loss.query_regularizer_weight = self.recipe.flops_queries * share
        parts = self._loss([*map(self.moved, features)], self.teacher_scores(sample))
        flops = parts["document_regularizer_loss"] + parts["query_regularizer_loss"]
        return {"loss": parts["base_loss"] + flops, "ranking": parts["base_loss"], "flops": flops}

    def retriever(self) -> Retriever:
        """Search by inner product."""
        encoder = SparseEncoder(IN_TRAINING)
        encoder.model = self.model
        return Sparse(encoder)


def _splade(base: str, recipe: SpladeRecipe, device: str) -> Any:
    """Build a masked language model with max-pooled logits. Raises ModelError if the base has no language modelling
    head."""
    library = load_extra("sentence_transformers", f"training from {base!r}")
    modules = load_extra("sentence_transformers.sparse_encoder.modules", f"training from {base!r}")
    transformers = load_extra("sentence_transformers.base.modules", f"training from {base!r}")
    load_base(base, masked_lm=True)  # raises an error if there is no trained head
    with quiet_transformers():
        transformer = transformers.Transformer(model_place(base), transformer_task="fill-mask")
    transformer.max_seq_length = token_limit(transformer.model, recipe.max_length)
    return library.SparseEncoder(modules=[transformer, modules.SpladePooling("max")], device=device)


class LateRecipe(TransformerRecipe):
    """The recipe for late interaction, with ColBERT's hyperparameters. The library projects tokens to 128
    dimensions."""

    epochs: int = Field(3, ge=1, description="BEIR: 300,000 steps on MS MARCO; early stopping ends it")
    learning_rate: float = Field(3e-6, gt=0, description="ColBERT; small models take 1e-3")
    batch_size: int = Field(32, ge=1, description="ColBERT")
    max_length: int = Field(300, ge=8, description="BEIR, section 4")
    hard_negatives: int = Field(1, ge=0, description="ColBERT: one BM25 negative for each query")
    teacher: TeacherSpec = Field(None, description="re-rankers to distil from")
    teacher_temperature: float = Field(1.0, gt=0, description="divides the teacher's scores")


class LateTask(SentenceTransformersTask):
    """Trains a late-interaction model."""

    SYSTEM = ("late", "model")
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
            self._negatives = max(1, self._negatives)  # a distribution over a single passage contains no information
            self._loss = losses.MultiVectorDistillKLDivLoss(self.model)
        else:
            together = processes() > 1  # the passages of all processes are negatives
            self._loss = losses.MultiVectorMultipleNegativesRankingLoss(
                self.model, scale=1.0, gather_across_devices=together
            )

    def prepare(self, batch: Batch) -> tuple[SampledBatch, list[Any]]:
        """Tokenise the texts."""
        return self.tokenised(batch, self._negatives)

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """Compute InfoNCE over MaxSim, or the divergence from the teacher."""
        sample, features = self.ready(batch)
        scores = self.teacher_scores(sample)
        labels = None if scores is None else scores / self.recipe.teacher_temperature
        return {"loss": self._loss([*map(self.moved, features)], labels)}

    def retriever(self) -> Retriever:
        """Search by MaxSim with every passage."""
        encoder = MultiVectorEncoder(IN_TRAINING)
        encoder.model = self.model
        return LateInteraction(encoder)

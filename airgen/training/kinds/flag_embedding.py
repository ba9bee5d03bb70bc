"""FlagEmbedding's fine-tuning of its encoders (BGE): its own model class and loss, in airgen's trainer.

The class is `BiEncoderOnlyEmbedderModel`: the first token's vector, normalised, inner products divided by 0.02, and
cross-entropy over all passages of the batch, with a teacher plus the divergence from its scores. Checkpoints, resuming,
dev figures and the card are those of every kind. The trained folder can be loaded with sentence-transformers, with
FlagEmbedding, and as `kind: dense`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from airgen.components.registry import load_extra
from airgen.retrievers.protocols import Retriever
from airgen.training.data import TrainingSet
from airgen.training.kinds.encoder import build_encoder, search_with
from airgen.training.kinds.transformer import Batch, SampledBatch, SentenceTransformersTask, TransformerRecipe
from airgen.training.recipe import Recipe
from airgen.training.teachers import TeacherSpec

_QUERY_PREFIX = "Represent this sentence for searching relevant passages: "


class FlagEmbeddingRecipe(TransformerRecipe):
    """The recipe for fine-tuning a BGE encoder, with the values of FlagEmbedding's example for its base models."""

    epochs: int = Field(2, ge=1, description="FlagEmbedding's example")
    batch_size: int = Field(32, ge=1, description="ours; its example has 2 on each of two GPUs")
    learning_rate: float = Field(1e-5, gt=0, description="FlagEmbedding's example")
    warmup: float = Field(0.1, ge=0, le=1, description="FlagEmbedding's example")
    hard_negatives: int = Field(7, ge=0, description="FlagEmbedding's groups of 8: a positive and 7 negatives")
    max_length: int = Field(512, ge=8, description="tokens of a query or passage; FlagEmbedding's example")
    temperature: float = Field(0.02, gt=0, description="FlagEmbedding's default")
    query_prefix: str = Field(_QUERY_PREFIX, description="of BGE v1.5 in English")
    passage_prefix: str = Field("", description="BGE's passages have none")
    pooling: Literal["cls", "mean"] = Field("cls", description="FlagEmbedding's default")
    in_batch_negatives: bool = Field(True, description="FlagEmbedding's default")
    teacher: TeacherSpec = Field(None, description="a re-ranker whose scores are learned, too (kl_div)")
    freeze_positions: bool = Field(False, description="FlagEmbedding's default")

    @property
    def similarity(self) -> str:
        """Return the similarity of its vectors, which are normalised."""
        return "cosine"


class FlagEmbeddingTask(SentenceTransformersTask):
    """Trains an encoder with FlagEmbedding's model class."""

    SYSTEM = ("dense", "embedder")
    RECIPE: ClassVar[type[Recipe]] = FlagEmbeddingRecipe
    recipe: FlagEmbeddingRecipe

    def __init__(self, recipe: FlagEmbeddingRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device, recipe.teacher)
        models = load_extra("FlagEmbedding.finetune.embedder.encoder_only.base.modeling", "training with FlagEmbedding")
        self.library_model = build_encoder(base, recipe, device)
        self._transformer = self.library_model[0]
        self.model = models.BiEncoderOnlyEmbedderModel(
            self._transformer.model,
            tokenizer=self._transformer.tokenizer,
            temperature=recipe.temperature,
            sentence_pooling_method=recipe.pooling,
            normalize_embeddings=True,
        ).to(device)

    def prepare(self, batch: Batch) -> tuple[SampledBatch, list[Mapping[str, Any]]]:
        """Return the sample, the features of its queries, and those of their groups of passages."""
        recipe, sample = self.recipe, self.sample(batch, self.recipe.hard_negatives)
        queries = [recipe.query_prefix + text for text in sample.queries]
        passages = [recipe.passage_prefix + text for text in self.passages(sample.places.ravel())]
        return sample, [self._tokens(queries), self._tokens(passages)]

    def _tokens(self, texts: list[str]) -> Mapping[str, Any]:
        longest = self._transformer.max_seq_length
        tokenize = self._transformer.tokenizer
        features: Mapping[str, Any] = tokenize(
            texts, padding=True, truncation=True, max_length=longest, return_tensors="pt"
        )
        return features

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """Compute FlagEmbedding's loss of the batch."""
        sample, (queries, passages) = self.ready(batch)
        scores = self.teacher_scores(sample)
        output = self.model(
            queries=self.moved(queries),
            passages=self.moved(passages),
            teacher_scores=None if scores is None else scores.flatten().tolist(),
            no_in_batch_neg_flag=not self.recipe.in_batch_negatives,
        )
        return {"loss": output.loss}

    def retriever(self) -> Retriever:
        """Build dense search."""
        return search_with(self.library_model, self.recipe)

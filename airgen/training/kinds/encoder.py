"""E5's encoder (section 4): one shared transformer, average pooling, prefixes, InfoNCE, and distillation.

    airgen train encoder --on scifact --base models/e5-pretrained --out models/e5-scifact
    airgen train encoder --on datasets/mine --split dev --base all-minilm-l6-v2 --out models/genq

The second line is BEIR's GenQ: a model that is adapted with generated queries. The recipe here is that of fine-tuning.
With a teacher the loss is

    KL(p_teacher, p_student) over a positive and its hard negatives  +  alpha * InfoNCE over all passages of the batch

and without one it is InfoNCE alone. `pretrain.py` has the recipe of section 5.1 for pairs without labels. The trained
folder loads with sentence-transformers, and as `kind: dense`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.registry import load_extra
from airgen.retrievers.base import Embedder
from airgen.retrievers.dense.embedders import SentenceTransformersEmbedder
from airgen.retrievers.dense.retriever import Dense
from airgen.training.data import TrainingSet
from airgen.training.gradient_cache import cached_backward
from airgen.training.kinds.transformer import (
    IN_TRAINING,
    Batch,
    SampledBatch,
    SentenceTransformersTask,
    TransformerRecipe,
    load_model,
    token_limit,
)
from airgen.training.losses import distillation, false_negatives, info_nce
from airgen.training.negatives import Queue, follow, momentum_copy
from airgen.training.processes import processes, seed_step, sum_gradients
from airgen.training.recipe import Recipe
from airgen.training.stored import key_of
from airgen.training.teachers import TeacherSpec


class EncoderRecipe(TransformerRecipe):
    """Fine-tuning, E5's section 5.1 and table 11."""

    epochs: int = Field(3, ge=1, description="E5, section 5.1")
    batch_size: int = Field(256, ge=1, description="E5, section 5.1")
    learning_rate: float = Field(3e-5, gt=0, description="E5 small; base 2e-5, large 1e-5 (section 5.1)")
    warmup: float = Field(0.1, ge=0, le=1, description="E5: 400 steps, of a far longer training")
    hard_negatives: int = Field(7, ge=0, description="E5, section 5.1; random passages where a query has fewer")
    max_length: int = Field(192, ge=8, description="E5, table 11")
    temperature: float = Field(0.01, gt=0, description="E5, section 4.1")
    query_prefix: str = Field("query: ", description="E5, section 4.1")
    passage_prefix: str = Field("passage: ", description="E5, section 4.1")
    pooling: Literal["mean", "cls"] = Field("mean", description="E5, section 4.1: average pooling")
    teacher: TeacherSpec = Field(
        None, description="a re-ranker (name or mapping), or a list whose mean is learned; E5: a cross-encoder"
    )
    alpha: float = Field(0.2, ge=0, description="weight of the contrastive loss beside the teacher's; E5, table 11")
    teacher_temperature: float = Field(
        1.0, gt=0, description="divides the teacher's scores: 1 for logits, less for scores in a narrow range"
    )
    extra_negatives: Literal["none", "pre-batch", "moco"] = Field(
        "none", description="besides those of the batch; in E5's table 8 `none` is best"
    )
    queue_size: int = Field(8192, ge=1, description="vectors kept for extra_negatives; E5: 65,536 and 130,000")
    momentum: float = Field(0.999, ge=0, lt=1, description="of the second encoder of moco, as in its paper")
    chunk: int = Field(64, ge=1, description="texts encoded at once with gradient caching: less memory, some more time")
    freeze_positions: bool = Field(True, description="E5, appendix B: so that longer texts work after training")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="E5: mixed; bf16 on a GPU")
    gradient_checkpointing: bool = Field(False, description="E5, section 5.1: less memory, more time")


class EncoderTask(SentenceTransformersTask):
    """Trains an encoder, with cached gradients."""

    RECIPE: ClassVar[type[Recipe]] = EncoderRecipe
    memory = ("chunk", "max_length", "batch_size")
    shares_batches = True
    recipe: EncoderRecipe

    def __init__(self, recipe: EncoderRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device, recipe.teacher)
        self.encoder = _encoder(base, recipe, device)
        self.model = self.torch.nn.Module()  # checkpoints hold the encoder and the queue of extra negatives
        self.model.encoder = self.encoder
        self._text_ids = _TextIds(data.corpus.full_texts)
        self.queue: Queue | None = None
        if recipe.extra_negatives != "none":
            self.queue = Queue(self.model, recipe.queue_size, int(self.encoder.get_embedding_dimension()))
        if recipe.extra_negatives == "moco":
            self.model.twin = momentum_copy(self.encoder)
        self.model.to(device)

    @property
    def library_model(self) -> Any:
        """The encoder."""
        return self.encoder

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """The loss of one batch, without gradient caching; training itself uses `backward`."""
        sample, passages = self._sample(batch)
        return self._loss(self._encode(self._texts(sample, passages)), sample, passages)

    def backward(self, batch: Batch) -> dict[str, float]:
        """Compute the gradients of the whole batch, encoded in chunks of texts of similar length."""
        sample, passages = self._sample(batch)
        if self.recipe.extra_negatives == "moco":
            follow(self.model.twin, self.encoder, self.recipe.momentum)
        texts = self._texts(sample, passages)
        order = sorted(range(len(texts)), key=lambda place: (len(texts[place]), place))
        # Every process needs a chunk, or more.
        size = min(self.recipe.chunk, max(1, len(order) // processes()))
        chunks = [order[first : first + size] for first in range(0, len(order), size)]
        seed_step(self.recipe.seed, batch.step)
        back = self.torch.tensor(np.argsort(np.array(order)), device=self.device)
        numbers = cached_backward(
            lambda chunk: self._encode([texts[place] for place in chunk]),
            chunks,
            lambda vectors: self._loss(vectors[back], sample, passages),
        )
        sum_gradients(self.encoder.parameters())
        return numbers

    def _sample(self, batch: Batch) -> tuple[SampledBatch, NDArray[np.int64]]:
        """The sample of the batch, and the places of its passages, each once."""
        sample = self.sample(batch, self.recipe.hard_negatives)
        return sample, np.unique(sample.places)

    def _texts(self, sample: SampledBatch, passages: NDArray[np.int64]) -> list[str]:
        """Queries and then passages, with their prefixes; no passages if moco's encoder takes those."""
        queries = [self.recipe.query_prefix + text for text in sample.queries]
        return queries if self.recipe.extra_negatives == "moco" else queries + self._passage_texts(passages)

    def _passage_texts(self, places: NDArray[np.int64]) -> list[str]:
        return [self.recipe.passage_prefix + text for text in self.passages(places)]

    def _encode(self, texts: Sequence[str], encoder: Any = None) -> Any:
        """Unit vectors, (len(texts), dim)."""
        encoder = encoder or self.encoder
        features = self.features(encoder, [texts])[0]
        low = self.recipe.precision == "bf16"
        with self.torch.autocast(self.device.partition(":")[0], self.torch.bfloat16) if low else nullcontext():
            vectors = encoder(features)["sentence_embedding"]
        return vectors.float() if low else vectors

    def _loss(self, vectors: Any, sample: SampledBatch, passages: NDArray[np.int64]) -> dict[str, Any]:
        torch, recipe = self.torch, self.recipe
        count = len(sample.queries)
        queries, found = vectors[:count], vectors[count:]
        if recipe.extra_negatives == "moco":
            with torch.no_grad():
                texts = self._passage_texts(passages)
                parts = [texts[first : first + recipe.chunk] for first in range(0, len(texts), recipe.chunk)]
                found = torch.cat([self._encode(part, self.model.twin) for part in parts])
        text_ids = self._text_ids.of_passages[passages]
        candidates, candidate_ids = found, text_ids
        if self.queue is not None:
            older, older_ids = self.queue.read()
            candidates = torch.cat([found, older])
            candidate_ids = np.concatenate([text_ids, older_ids.cpu().numpy()])
        columns = np.searchsorted(passages, sample.places)  # each query's own positive and negatives
        positives = [self._text_ids.of_passages[list(example.positives)] for example in sample.examples]
        masked = self.tensor(
            false_negatives(
                self._text_ids.of_texts(sample.queries),
                candidate_ids,
                [frozenset(ids.tolist()) for ids in positives],
                columns[:, 0],
            )
        )
        scores = queries @ candidates.T / recipe.temperature
        contrastive = info_nce(scores, self.tensor(columns[:, 0]), masked)
        numbers = {"loss": contrastive}
        if self.teacher:
            own = self.tensor(columns)
            wanted = self.teacher_scores(sample) / recipe.teacher_temperature
            soft = distillation(scores.gather(1, own), wanted, masked.gather(1, own))
            numbers = {"loss": soft + recipe.alpha * contrastive, "distillation": soft, "contrastive": contrastive}
        if self.queue is not None and torch.is_grad_enabled():
            self.queue.push(found, self.tensor(text_ids))
        return numbers

    def evaluate(self) -> dict[str, float]:
        """Dense search."""
        recipe = self.recipe
        embedder = SentenceTransformersEmbedder(
            IN_TRAINING, query_prefix=recipe.query_prefix, passage_prefix=recipe.passage_prefix
        )
        embedder.model = self.encoder
        return self.search_dev(Dense(cast(Embedder, embedder)))

    def system(self, folder: Path) -> Mapping[str, Any]:
        """`kind: dense`; the prefixes are the prompts of the folder."""
        return {"kind": "dense", "embedder": str(folder)}


class _TextIds:
    """Ids of texts. Equal texts have equal ids, so no passage is a negative of its duplicate's query.

    An id is a hash, so that the texts need not be in memory. of_passages: the id of each passage's text, by its place
    in the corpus.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.of_passages = np.fromiter(map(key_of, texts), np.int64, len(texts))

    def of_texts(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """The ids of texts."""
        return np.array([key_of(text) for text in texts], np.int64)


def _encoder(base: str, recipe: EncoderRecipe, device: str) -> Any:
    """Transformer, pooling and normalisation in the library's classes; a pooling head of the base is not used."""
    library = load_extra("sentence_transformers", f"training from {base!r}")
    modules = load_extra("sentence_transformers.sentence_transformer.modules", f"training from {base!r}")
    transformer = load_model(modules.Transformer, base)
    transformer.max_seq_length = token_limit(transformer.model, recipe.max_length)
    if recipe.freeze_positions:
        for name, weights in transformer.named_parameters():
            if name.endswith("position_embeddings.weight"):
                weights.requires_grad_(False)
    if recipe.gradient_checkpointing:
        transformer.model.gradient_checkpointing_enable()
    pooling = modules.Pooling(transformer.get_embedding_dimension(), recipe.pooling)
    return library.SentenceTransformer(
        modules=[transformer, pooling, modules.Normalize()],
        prompts={"query": recipe.query_prefix, "document": recipe.passage_prefix},
        device=device,
    )

"""E5's encoder (section 4): one shared transformer, average pooling, prefixes, InfoNCE, and distillation.

    airgen train encoder --on scifact --base models/e5-pretrained --out models/e5-scifact
    airgen train encoder --on datasets/mine --split dev --base all-minilm-l6-v2 --out models/genq

The second line is BEIR's GenQ: a model adapted by generated queries. `pretrain.py` is the same task with the
hyperparameters of section 5.1 for pairs without labels (`airgen train pretrain`); this module's are those of
fine-tuning, where the loss is

    KL(p_teacher, p_student) over a positive and its hard negatives  +  alpha * InfoNCE over all passages of the batch

and without a teacher InfoNCE alone. The trained folder loads with sentence-transformers, and as `kind: dense`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.registry import load_extra
from airgen.retrievers.base import Embedder
from airgen.retrievers.dense.embedders import SentenceTransformersEmbedder, loaded, model_place
from airgen.retrievers.dense.retriever import Dense
from airgen.training.base_models import quiet
from airgen.training.data import TrainingSet
from airgen.training.gradient_cache import cached_backward
from airgen.training.kinds.sentence_transformers import Batch, Drawn, LibraryRecipe, LibraryTask, train_library
from airgen.training.loop import Trained
from airgen.training.losses import distillation, false_negatives, info_nce
from airgen.training.negatives import Queue, follow, momentum_copy
from airgen.training.recipe import Request
from airgen.training.teachers import Teacher, TeacherSpec

__all__ = ["RECIPE", "EncoderRecipe", "EncoderTask", "train"]


class EncoderRecipe(LibraryRecipe):
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
        None, description="a re-ranker (name or mapping), or several, whose mean is learned; E5: a cross-encoder"
    )
    alpha: float = Field(0.2, ge=0, description="weight of the contrastive loss beside the teacher's, E5, table 11")
    teacher_temperature: float = Field(
        1.0, gt=0, description="divides the teacher's scores: 1 for logits, less for scores in a narrow range"
    )
    extra_negatives: Literal["none", "pre-batch", "moco"] = Field(
        "none", description="beside the batch's own; E5's table 8 found none the best"
    )
    queue_size: int = Field(8192, ge=1, description="vectors kept for extra_negatives; E5: 65,536 and 130,000")
    momentum: float = Field(0.999, ge=0, lt=1, description="of moco's second encoder, as in its paper")
    chunk: int = Field(64, ge=1, description="texts encoded at once: gradient caching, memory against some speed")
    freeze_positions: bool = Field(True, description="E5, appendix B: longer texts are met after training")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="E5: mixed; bf16 on a GPU")
    gradient_checkpointing: bool = Field(False, description="E5, section 5.1: less memory, more time")


RECIPE = EncoderRecipe


class EncoderTask(LibraryTask):
    """The model, its loss with cached gradients, and its dev figures."""

    memory = ("chunk", "max_length", "batch_size")
    recipe: EncoderRecipe

    def __init__(self, recipe: EncoderRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device)
        torch = load_extra("torch", "training an encoder")
        self.torch = torch
        self.encoder = _encoder(base, recipe, device)
        self.model = torch.nn.Module()  # what is checkpointed: the encoder, and with extra negatives its memory of them
        self.model.encoder = self.encoder
        self.teacher = Teacher(recipe.teacher, data.corpus)
        self._text_ids = _TextIds([data.corpus.full_text(place) for place in range(len(data.corpus))])
        self.queue: Queue | None = None
        if recipe.extra_negatives != "none":
            self.queue = Queue(self.model, recipe.queue_size, int(self.encoder.get_embedding_dimension()))
        if recipe.extra_negatives == "moco":
            self.model.twin = momentum_copy(self.encoder)
        self.model.to(device)

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """The loss of one batch in one piece; training itself goes through `backward`."""
        drawn, passages = self._drawn(batch)
        texts = self._texts(drawn, passages)
        return self._loss(self._encode(texts), drawn, passages)

    def backward(self, batch: Batch) -> dict[str, float]:
        """Gradients of the whole batch, encoded in chunks of texts of like length."""
        drawn, passages = self._drawn(batch)
        if self.recipe.extra_negatives == "moco":
            follow(self.model.twin, self.encoder, self.recipe.momentum)
        texts = self._texts(drawn, passages)
        order = sorted(range(len(texts)), key=lambda place: (len(texts[place]), place))
        chunks = [order[first : first + self.recipe.chunk] for first in range(0, len(order), self.recipe.chunk)]
        back = self.torch.tensor(np.argsort(np.array(order)), device=self.device)
        return cached_backward(
            lambda chunk: self._encode([texts[place] for place in chunk]),
            chunks,
            lambda vectors: self._loss(vectors[back], drawn, passages),
            self.device,
        )

    def _drawn(self, batch: Batch) -> tuple[Drawn, NDArray[np.int64]]:
        """What the batch is made of, and its passages, each once."""
        drawn = self.drawn(batch, self.recipe.hard_negatives)
        return drawn, np.unique(drawn.places)

    def _texts(self, drawn: Drawn, passages: NDArray[np.int64]) -> list[str]:
        """The queries with their prefix; below them the passages with theirs, unless moco's other encoder has those."""
        queries = [self.recipe.query_prefix + text for text in drawn.queries]
        return queries if self.recipe.extra_negatives == "moco" else queries + self._passage_texts(passages)

    def _passage_texts(self, passages: NDArray[np.int64]) -> list[str]:
        return [self.recipe.passage_prefix + self.data.corpus.full_text(place) for place in passages.tolist()]

    def _encode(self, texts: Sequence[str], encoder: Any = None) -> Any:
        """Unit vectors, (len(texts), dim), with gradients if they are on."""
        encoder = encoder or self.encoder
        features = self.features(encoder, [texts])[0]
        low = self.recipe.precision == "bf16"
        with self.torch.autocast(self.device.partition(":")[0], self.torch.bfloat16) if low else nullcontext():
            vectors = encoder(features)["sentence_embedding"]
        return vectors.float() if low else vectors

    def _loss(self, vectors: Any, drawn: Drawn, passages: NDArray[np.int64]) -> dict[str, Any]:
        torch, recipe = self.torch, self.recipe
        count = len(drawn.queries)
        queries, found = vectors[:count], vectors[count:]
        if recipe.extra_negatives == "moco":
            with torch.no_grad():
                texts = self._passage_texts(passages)
                parts = [texts[first : first + recipe.chunk] for first in range(0, len(texts), recipe.chunk)]
                found = torch.cat([self._encode(part, self.model.twin) for part in parts])
        texts_of = self._text_ids.places[passages]
        candidates, candidate_texts = found, texts_of
        if self.queue is not None:
            older, older_texts = self.queue.read()
            candidates = torch.cat([found, older])
            candidate_texts = np.concatenate([texts_of, older_texts.cpu().numpy()])
        columns = np.searchsorted(passages, drawn.places)  # each query's own positive and negatives
        masked = false_negatives(
            self._text_ids.of(drawn.queries),
            candidate_texts,
            [frozenset(self._text_ids.places[list(example.positives)].tolist()) for example in drawn.examples],
            columns[:, 0],
        )
        scores = queries @ candidates.T / recipe.temperature
        hidden = torch.from_numpy(masked).to(self.device)
        contrastive = info_nce(scores, torch.from_numpy(columns[:, 0]).to(self.device), hidden)
        parts_of = {"loss": contrastive}
        if self.teacher:
            own = torch.from_numpy(columns).to(self.device)
            teacher = torch.from_numpy(self.teacher.scores(drawn.queries, drawn.places)).to(self.device)
            soft = distillation(scores.gather(1, own), teacher / recipe.teacher_temperature, hidden.gather(1, own))
            parts_of = {"loss": soft + recipe.alpha * contrastive, "distillation": soft, "contrastive": contrastive}
        if self.queue is not None and torch.is_grad_enabled():
            self.queue.push(found, torch.from_numpy(texts_of).to(self.device))
        return parts_of

    def evaluate(self) -> dict[str, float]:
        """Dense search of the dev queries."""
        return self.search_dev(Dense(cast(Embedder, _InTraining(self.encoder, self.recipe))))

    def save(self, folder: Path) -> None:
        """A folder of sentence-transformers, prefixes included."""
        self.save_library(self.encoder, folder)

    def system(self, folder: Path) -> Mapping[str, Any]:
        """`kind: dense`: the prefixes are the folder's prompts."""
        return {"kind": "dense", "embedder": str(folder)}


class _InTraining(SentenceTransformersEmbedder):
    """The encoder as it stands, for the dev queries."""

    def __init__(self, encoder: Any, recipe: EncoderRecipe) -> None:
        super().__init__("in training", query_prefix=recipe.query_prefix, passage_prefix=recipe.passage_prefix)
        self._encoder = encoder

    @property
    def _model(self) -> Any:
        return self._encoder


class _TextIds:
    """Equal texts, equal ids: a passage that stands twice in the corpus is no negative of its twin's query."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._ids: dict[str, int] = {}
        self.places = np.array([self._ids.setdefault(text, len(self._ids)) for text in texts], np.int64)

    def of(self, queries: Sequence[str]) -> NDArray[np.int64]:
        """The passage that a query is, or -1 for one that is none."""
        return np.array([self._ids.get(query, -1) for query in queries], np.int64)


def _encoder(base: str, recipe: EncoderRecipe, device: str) -> Any:
    """Transformer, pooling and unit length, in the library's classes; a base's own pooling head is left behind."""
    library = load_extra("sentence_transformers", f"training from {base!r}")
    modules = load_extra("sentence_transformers.sentence_transformer.modules", f"training from {base!r}")
    with quiet():
        transformer = loaded("the base model", base, modules.Transformer, model_name_or_path=model_place(base))
    limit = getattr(transformer.model.config, "max_position_embeddings", None) or recipe.max_length
    transformer.max_seq_length = min(recipe.max_length, limit)
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


def train(request: Request, kind: str = "encoder", made_of: type[EncoderRecipe] = EncoderRecipe) -> Trained:
    """Train an encoder on a dataset's labelled queries (or, for `pretrain`, on mined pairs)."""
    recipe = request.recipe_of(made_of)
    return train_library(kind, request, recipe, lambda data, device: EncoderTask(recipe, data, request.base, device))

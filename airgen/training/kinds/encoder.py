"""E5's encoder (section 4): one shared transformer, average pooling, prefixes, InfoNCE, and distillation.

With a teacher, the loss is

    KL(p_teacher, p_student) over a positive and its hard negatives  +  alpha * InfoNCE over all passages of the batch

and without a teacher, it is InfoNCE only. With `distil: margin-mse`, the first term is the squared error of TAS-B's
margins (Hofstätter and others, 2021), (s+ - s-) - (t+ - t-), for a positive and each of its hard negatives. A query
whose dataset has no teacher uses InfoNCE, as in separate training. With `similarity: dot`, vectors keep their lengths,
and nothing else differs (BEIR, appendix H). With `topics`, all queries of a batch are about one topic (TAS-B).
Pre-training is the same with another recipe, on pairs without labels, and BEIR's GenQ is the same on generated queries.
The trained folder can be loaded with sentence-transformers, and as `kind: dense`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.components.registry import load_extra
from airgen.retrievers.dense.embedders import SentenceTransformersEmbedder
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.protocols import Embedder, Retriever
from airgen.training.data import TrainingSet
from airgen.training.dataset_columns import key_of
from airgen.training.kinds.transformer import (
    IN_TRAINING,
    Batch,
    SampledBatch,
    SentenceTransformersTask,
    TransformerRecipe,
    load_model,
    separate,
    token_limit,
)
from airgen.training.recipe import Recipe
from airgen.training.teachers import TeacherSpec
from airgen.training.topic_batches import by_topic, topics_of


class EncoderRecipe(TransformerRecipe):
    """The recipe for fine-tuning (E5, section 5.1 and table 11)."""

    epochs: int = Field(3, ge=1, description="E5, section 5.1")
    batch_size: int = Field(256, ge=1, description="E5, section 5.1")
    learning_rate: float = Field(3e-5, gt=0, description="E5 small; base 2e-5, large 1e-5 (section 5.1)")
    warmup: float = Field(0.1, ge=0, le=1, description="E5: 400 steps, of a far longer training")
    hard_negatives: int = Field(7, ge=0, description="E5, section 5.1; random passages where a query has fewer")
    max_length: int = Field(192, ge=8, description="E5, table 11")
    similarity: Literal["cosine", "dot"] = Field(
        "cosine", description="E5: the cosine; dot: the lengths of vectors count (DPR, ANCE, TAS-B; BEIR, appendix H)"
    )
    temperature: float | None = Field(
        None, gt=0, description="null: 0.01 for the cosine (E5, section 4.1), 1 for dot, whose scores are not below 1"
    )
    query_prefix: str = Field("query: ", description="E5, section 4.1")
    passage_prefix: str = Field("passage: ", description="E5, section 4.1")
    pooling: Literal["mean", "cls"] = Field("mean", description="E5, section 4.1: average pooling")
    teacher: TeacherSpec = Field(
        None, description="a re-ranker (name or mapping), or a list whose mean is learned; E5: a cross-encoder"
    )
    distil: Literal["kl", "margin-mse"] = Field(
        "kl", description="how the teacher's scores are learned; margin-mse: TAS-B, with similarity dot and alpha 0"
    )
    alpha: float = Field(0.2, ge=0, description="weight of the contrastive loss beside the teacher's; E5, table 11")
    teacher_temperature: float = Field(
        1.0, gt=0, description="divides the teacher's scores: 1 for logits, less for scores in a narrow range"
    )
    topics: int = Field(
        0, ge=0, description="clusters of queries, each batch of one: TAS-B's topic-aware sampling has 2,000; 0: random"
    )
    extra_negatives: Literal["none", "pre-batch", "moco"] = Field(
        "none", description="besides those of the batch; in E5's table 8 `none` is best"
    )
    queue_size: int = Field(8192, ge=1, description="vectors kept for extra_negatives; E5: 65,536 and 130,000")
    momentum: float = Field(0.999, ge=0, lt=1, description="of the second encoder of moco, as in its paper")
    chunk: int = Field(
        64, ge=1, description="texts encoded at once with gradient caching, which saves memory but takes longer"
    )
    freeze_positions: bool = Field(True, description="E5, appendix B: so that longer texts work after training")

    @property
    def scale(self) -> float:
        """Return the factor for dot products in the softmax."""
        return 1 / (self.temperature or (0.01 if self.similarity == "cosine" else 1.0))


class EncoderTask(SentenceTransformersTask):
    """Trains an encoder, with cached gradients."""

    SYSTEM = ("dense", "embedder")
    RECIPE: ClassVar[type[Recipe]] = EncoderRecipe
    own_passes = True
    by_row = True
    recipe: EncoderRecipe

    def __init__(self, recipe: EncoderRecipe, data: TrainingSet, base: str, device: str) -> None:
        from airgen.training.losses import E5Loss, TrainedEncoder

        super().__init__(recipe, data, device, recipe.teacher)
        self.encoder = self.library_model = build_encoder(base, recipe, device)
        self.model = self.trained = TrainedEncoder(self.encoder, recipe.precision)
        self.e5 = E5Loss(self.model, recipe)
        self._text_ids = _ids_of(data.corpus.full_texts)  # so that no passage is a negative of its duplicate's query
        self.model.to(device)
        self._topics = topics_of(self._query_vectors(), recipe.topics, recipe.seed) if recipe.topics else None

    def _query_vectors(self) -> NDArray[np.float32]:
        """Encode the training queries before training."""
        texts = [self.recipe.query_prefix + example.query for example in self.data.examples]
        with self.torch.no_grad():
            vectors = self.encoder.encode(texts, batch_size=self.recipe.chunk, show_progress_bar=False)
        return np.asarray(vectors, np.float32)

    def batches(self, epoch: int) -> list[Batch]:
        """Yield batches like other tasks. With `topics`, all queries of a batch are about one topic."""
        if self._topics is None:
            return super().batches(epoch)
        recipe = self.recipe
        parts = by_topic(self.data.batches(recipe.batch_size, recipe.seed, epoch), self._topics, recipe.seed, epoch)
        parts = separate(self.data.examples, parts)
        return [Batch(epoch, epoch * len(parts) + place, tuple(part)) for place, part in enumerate(parts)]

    def prepare(self, batch: Batch) -> tuple[SampledBatch, list[str], list[Any], list[Any]]:
        """Return the sample, its passages, the order of each column by length, and the features in this order."""
        recipe = self.recipe
        sample = self.sample(batch, recipe.hard_negatives)
        texts = [recipe.query_prefix + text for text in sample.queries]
        places = sample.places.T.ravel()  # the positives, then the first negatives, ...
        passages = [recipe.passage_prefix + text for text in self.passages(places)]
        columns = [texts] if self.e5.moco else [texts, passages]
        orders = [sorted(range(len(column)), key=lambda at: (len(column[at]), at)) for column in columns]
        ordered = ([column[at] for at in order] for column, order in zip(columns, orders, strict=True))
        return sample, passages, orders, [self.encoder.preprocess(column) for column in ordered]

    @property
    def makes_ahead(self) -> bool:
        """Return whether to prepare batches ahead, which moco does not allow, because its second encoder tokenises
        within a step."""
        return not self.e5.moco

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """Compute the loss of the whole batch, encoded in chunks of texts of similar length."""
        recipe, e5, corpus_ids = self.recipe, self.e5, self._text_ids
        sample, passages, orders, features = self.ready(batch)
        places, moco = sample.places.T.ravel(), e5.follow() if e5.moco else None
        back = [self.tensor(np.argsort(np.array(order))) for order in orders]
        relevant = [frozenset(corpus_ids[list(example.positives)].tolist()) for example in sample.examples]

        def masks(ids: Any, targets: Any) -> Any:
            mask = false_negatives(_ids_of(sample.queries), ids.cpu().numpy(), relevant, targets.cpu().numpy())
            return self.tensor(mask)

        def of_vectors(*vectors: Any) -> Any:
            queries, *documents = (part[order] for part, order in zip(vectors, back, strict=True))
            if moco is not None:
                documents = [self._by_twin(moco, passages)]
            teacher = self.teacher_scores(sample)
            wanted = None if teacher is None else teacher / recipe.teacher_temperature
            return e5.of_vectors(queries, documents[0], self.tensor(corpus_ids[places]), masks, teacher=wanted)

        e5.model = self.trained
        return {"loss": e5.forward_cached([*map(self.moved, features)], of_vectors), **e5.numbers}

    def _by_twin(self, twin: Any, texts: list[str]) -> Any:
        """Encode texts with moco's encoder."""
        parts = [texts[first : first + self.recipe.chunk] for first in range(0, len(texts), self.recipe.chunk)]
        with self.torch.no_grad():
            return self.torch.cat(
                [self.model(self.features(twin, [part])[0], twin)["sentence_embedding"] for part in parts]
            )

    def retriever(self) -> Retriever:
        """Build dense search."""
        return search_with(self.encoder, self.recipe)


class EncoderSettings(Protocol):
    """What a recipe says of the encoder that it trains."""

    @property
    def max_length(self) -> int: ...
    @property
    def query_prefix(self) -> str: ...
    @property
    def passage_prefix(self) -> str: ...
    @property
    def pooling(self) -> str: ...
    @property
    def similarity(self) -> str: ...
    @property
    def freeze_positions(self) -> bool: ...


def search_with(encoder: Any, recipe: EncoderSettings) -> Retriever:
    """Build dense search with an encoder in training."""
    embedder = SentenceTransformersEmbedder(
        IN_TRAINING,
        query_prefix=recipe.query_prefix,
        passage_prefix=recipe.passage_prefix,
        similarity=recipe.similarity,
    )
    embedder.model = encoder
    return Dense(cast(Embedder, embedder))


def false_negatives(
    queries: NDArray[np.int64],
    candidates: NDArray[np.int64],
    relevant: list[frozenset[int]],
    targets: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Mark the candidates that must not be negatives of a query, bool (queries, candidates).

    Args:
        queries: Ids of the queries' texts; equal texts have the same id.
        candidates: Ids of the candidates' texts.
        relevant: For each query, the texts known to be relevant. They are masked, and so is a candidate equal to the
            query, because a neighbour can be the query of one pair and the passage of another.
        targets: The column of each query's positive, which is not masked.
    """
    masked: NDArray[np.bool_] = candidates[None, :] == queries[:, None]
    places: dict[int, list[int]] = {}
    for column, text in enumerate(candidates.tolist()):
        places.setdefault(text, []).append(column)
    for row, texts in enumerate(relevant):
        for text in texts:
            masked[row, places.get(text, [])] = True
    masked[np.arange(len(queries)), targets] = False
    return masked


def _ids_of(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return ids of texts: hashes, so that the texts need not be in memory."""
    return np.fromiter(map(key_of, texts), np.int64, len(texts))


def build_encoder(base: str, recipe: EncoderSettings, device: str) -> Any:
    """Build the transformer, pooling and normalisation with the library's classes, without the base's pooling head."""
    library = load_extra("sentence_transformers", f"training from {base!r}")
    modules = load_extra("sentence_transformers.sentence_transformer.modules", f"training from {base!r}")
    transformer = load_model(modules.Transformer, base)
    transformer.max_seq_length = token_limit(transformer.model, recipe.max_length)
    if recipe.freeze_positions:
        for name, weights in transformer.named_parameters():
            if name.endswith("position_embeddings.weight"):
                weights.requires_grad_(False)
    pooling = modules.Pooling(transformer.get_embedding_dimension(), recipe.pooling)
    normalise = [modules.Normalize()] if recipe.similarity == "cosine" else []
    return library.SentenceTransformer(
        modules=[transformer, pooling, *normalise],
        similarity_fn_name=recipe.similarity,
        prompts={"query": recipe.query_prefix, "document": recipe.passage_prefix},
        device=device,
    )


class PretrainRecipe(EncoderRecipe):
    """The recipe for pre-training (E5, section 5.1 and table 11)."""

    epochs: int = Field(3, ge=1, description="E5: 20,000 steps, about 2.5 epochs")
    batch_size: int = Field(
        1024, ge=1, description="E5: 32,768; 1,024 is the smallest of its table 5, for the few pairs of a small corpus"
    )
    learning_rate: float = Field(3e-4, gt=0, description="E5 small; base 2e-4, large 1e-4 (section 5.1)")
    warmup: float = Field(0.05, ge=0, le=1, description="E5, section 5.1: 1,000 of 20,000 steps")
    max_length: int = Field(128, ge=8, description="E5, table 11")
    hard_negatives: int = Field(0, ge=0, description="E5, section 4.1: in-batch negatives alone")
    dev_share: float = Field(0.01, ge=0, lt=1, description="there are many pairs, and a few hundred are enough for dev")


class PretrainTask(EncoderTask):
    """Trains an encoder with the pre-training recipe."""

    RECIPE = PretrainRecipe

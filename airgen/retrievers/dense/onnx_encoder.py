"""BERT-like models with ONNX Runtime and tokenizers, without torch: passage vectors, token vectors and re-ranking.

Each text is processed alone. On a CPU, this is as fast as a batch, because there is no padding to compute. A vector
thus never depends on its neighbours: a model with dynamic quantisation of activations has one scale for the whole
batch, which changes a re-ranker's logits by up to .7 (benchmarks/rerank.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from airgen import models
from airgen.components.registry import load_extra
from airgen.compute import cores
from airgen.errors import AirgenError, ModelError
from airgen.models.catalogue import weights_hash
from airgen.retrievers.component import Component
from airgen.retrievers.dense.bert_graph import Run, cpu_session, exported_bert
from airgen.retrievers.model_facts import ModelFacts, ModelSetup, shown_name
from airgen.retrievers.model_output import checked_scores, finite, unit_rows
from airgen.retrievers.model_prompts import Prompts, known_prompts
from airgen.retrievers.protocols import IndexProgress, TextKind
from airgen.safety.interruptible import thread_pool
from airgen.settings.base import MODEL
from airgen.settings.requirements import located
from airgen.text.normal_form import encodable
from airgen.text.token_counts import plain_tokenizer

_TOLD_TEXTS = 8  # texts between two words about progress: a quarter of a second of a cross-encoder
_CHARS_PER_TOKEN = 100  # the longest word of WordPiece; more characters per token would be truncated anyway


def load_tokenizer(path: Path, max_length: int) -> Any:
    """Load a `tokenizers.Tokenizer` that truncates to `max_length` tokens and never pads."""
    tokenizer = plain_tokenizer(path)
    tokenizer.enable_truncation(max_length)
    return tokenizer


def _told(values: Iterable[Any], total: int, tell: IndexProgress | None) -> Iterator[Any]:
    """Yield the values; `tell` learns now and then how many there were, and how many there are in all."""
    for number, value in enumerate(values, 1):
        if tell is not None and (number % _TOLD_TEXTS == 0 or number == total):
            tell(number, total)
        yield value


def load_weights(folder: Path) -> dict[str, Any]:
    """Read the arrays in a model's folder by name. Raises ModelError."""
    path, library = folder / "model.safetensors", load_extra("safetensors.numpy", "the embedded models")
    try:
        weights: dict[str, Any] = library.load_file(path)
    except Exception as error:  # the library's own error has no built-in base
        raise ModelError(f"{path} cannot be read: {error}") from error
    return weights


def encode_batch(
    tokenizer: Any, texts: Sequence[str | tuple[str, str]], max_length: int, special: bool = True
) -> list[Any]:
    """Tokenise texts, or pairs of texts, of any length. Only the beginning of a very long text is tokenised.

    Args:
        tokenizer: A `tokenizers.Tokenizer`.
        texts: The texts or pairs.
        max_length: Number of tokens that the tokenizer keeps.
        special: Whether to add the model's special tokens.
    """
    limit = max_length * _CHARS_PER_TOKEN
    short = [
        encodable(text[:limit]) if isinstance(text, str) else tuple(encodable(part[:limit]) for part in text)
        for text in texts
    ]
    return list(tokenizer.encode_batch(short, add_special_tokens=special))


class EmbeddedModel(Component):
    """A model that runs on the CPU without torch, and is loaded on first use."""

    class Settings(Component.Settings):
        """Settings of a model that does not need torch.

        Attributes:
            model: A name in the catalogue, or a folder.
            max_length: Maximum number of tokens, including special tokens.
        """

        model: Annotated[str, MODEL]
        max_length: int = Field(default=256, ge=3, le=512)

        @model_validator(mode="before")
        @classmethod
        def _as_it_was_trained(cls, value: Any) -> Any:
            known = models.catalogue().get(str(value.get("model"))) if isinstance(value, dict) else None
            trained = (
                {name: setting for name, setting in known.settings.items() if name in cls.model_fields} if known else {}
            )
            return {**trained, **value} if trained else value

    settings: Settings
    travels = True

    def set_up(self) -> None:
        self.name, self._max_length = self.settings.model, self.settings.max_length
        self.threads = cores()

    def _beside(self, work: Callable[[Any], Any], items: Sequence[Any], tell: IndexProgress | None = None) -> list[Any]:
        """Apply `work` to each item in `threads` threads, which use one core each. tell: is told how many are done."""
        if self.threads == 1 or len(items) < 2:
            return list(_told(map(work, items), len(items), tell))
        with thread_pool(self.threads) as pool:
            return list(_told(pool.map(work, items), len(items), tell))

    @cached_property
    def _folder(self) -> Path:
        place = located(self.name, self.folder)
        return place if place.is_dir() else models.path(self.name)

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self._folder / "tokenizer.json", self._max_length)

    @cached_property
    def _counter(self) -> Any:
        """Return the tokenizer without a limit."""
        return plain_tokenizer(self._folder / "tokenizer.json")

    special = True  # whether texts get the special tokens of the tokenizer
    similarity: ClassVar[str] = "dot"

    def setup(self) -> ModelSetup:
        """Return how the model is run."""
        dtype = "int8" if "int8" in self.name else ""
        return ModelSetup(self.name, max_length=self._max_length, dtype=dtype, similarity=self.similarity)

    def most_tokens(self, kind: TextKind) -> int:
        """Return the maximum length."""
        return self._max_length

    def token_counts(self, texts: Sequence[str], kind: TextKind) -> list[int]:
        """Return the numbers of tokens according to the model's tokenizer."""
        clean = [encodable(text) for text in texts]
        return [len(item.ids) for item in self._counter.encode_batch(clean, add_special_tokens=self.special)]

    @property
    def _identity(self) -> Mapping[str, object]:
        return models.identity(self.name) or {"sha256": weights_hash(str(self._folder))}

    def describe(self) -> Mapping[str, object]:
        raise NotImplementedError

    @property
    def facts(self) -> ModelFacts:
        """Return the model's facts. The number of parameters comes from the catalogue."""
        known = models.catalogue().get(self.name)
        return ModelFacts(known.parameters if known else None, threads=self.threads)


class EmbeddedEmbedder(EmbeddedModel):
    """Base class of embedders that return unit vectors."""

    class Settings(EmbeddedModel.Settings):
        """Settings of an embedder that does not need torch.

        A prefix is put before every text. Default: the one in the model card, if airgen knows it.
        """

        query_prefix: str | None = None
        passage_prefix: str | None = None

    settings: Settings
    card: ClassVar[str] = ""  # the model whose card applies to all models of this kind

    def prefix(self, kind: TextKind) -> str:
        """Return what is put before texts of a kind."""
        given = self.settings.query_prefix if kind == "query" else self.settings.passage_prefix
        card = known_prompts(self.card or self.name) or Prompts("")
        return getattr(card, kind) if given is None else given

    @property
    def dim(self) -> int:
        """Return the length of a vector."""
        raise NotImplementedError

    def pooled(self, texts: Sequence[str]) -> Iterable[NDArray[np.float32]]:
        """Return the vector of each text, of any length."""
        raise NotImplementedError

    def prefixed(self, texts: Sequence[str], kind: TextKind) -> list[str]:
        """Return the texts with the prefix of their kind."""
        prefix = self.prefix(kind)
        return [prefix + text for text in texts]

    similarity = "cosine"

    def setup(self) -> ModelSetup:
        """Return how the model is run, with the prefixes in use."""
        chosen, query, passage = self.settings, self.prefix("query"), self.prefix("passage")
        by_hand = chosen.query_prefix is not None or chosen.passage_prefix is not None
        unknown = not by_hand and known_prompts(self.card or self.name) is None
        return replace(
            super().setup(),
            query_prompt=query,
            passage_prompt=passage,
            prompts_from=("the settings" if by_hand else "its model card") if query or passage else "",
            dim=self.dim,
            hint=f"no query prompt is known for {shown_name(self.name)}" if unknown else "",
        )

    def token_counts(self, texts: Sequence[str], kind: TextKind) -> list[int]:
        """Return the numbers of tokens with the prefix."""
        return super().token_counts(self.prefixed(texts, kind), kind)

    def described(self, family: str, *names: str) -> dict[str, object]:
        """Return the family, the named settings and the prefixes."""
        prefixes = {f"{kind}_prefix": self.prefix(kind) for kind in ("query", "passage")}
        return {**super().described(family, *names), **prefixes}

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Encode texts to unit vectors, float32 (n, dim)."""
        vectors = np.zeros((len(texts), self.dim), np.float32)
        for row, vector in enumerate(self.pooled(self.prefixed(texts, kind))):
            vectors[row] = vector
        return unit_rows(finite(vectors, self.name))


class OnnxModel(EmbeddedModel):
    """An ONNX Runtime model: a name in the catalogue, or a folder with `model.onnx` and `tokenizer.json`."""

    class Settings(EmbeddedModel.Settings):
        """Settings of an ONNX Runtime model."""

        packages: ClassVar[tuple[str, ...]] = ("onnxruntime", "tokenizers", "onnx")

    settings: Settings
    output: ClassVar[str]

    def _loaded(self, load: Callable[[str], Any]) -> Any:
        path = str(self._folder / "model.onnx")
        try:
            return load(path)
        except AirgenError:
            raise
        except Exception as error:  # the libraries have no common base class for their errors
            raise ModelError(f"{path} cannot be loaded: {error}") from error

    @cached_property
    def _session(self) -> Any:
        return self._loaded(cpu_session)

    @cached_property
    def _run(self) -> Run:
        return self._graph()

    def _graph(self) -> Run:
        """Load the model's own graph."""
        session = self._session
        if self.output not in [output.name for output in session.get_outputs()]:
            raise ModelError(f"{self.name} has no output `{self.output}`: name a model that was made for this kind")
        inputs = {given.name for given in session.get_inputs()}

        def run(ids: NDArray[np.int64], types: NDArray[np.int64]) -> NDArray[np.float32]:
            fed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}
            outputs = session.run([self.output], {name: fed[name] for name in fed if name in inputs})
            return np.asarray(outputs[0][0], np.float32)

        return run

    def _each(
        self,
        encoded: Sequence[Any],
        keep: Callable[[NDArray[np.float32]], Any],
        tell: IndexProgress | None = None,
    ) -> list[Any]:
        """Run the model on each encoding alone, and return the results of `keep` on each output. tell: see
        `_beside`."""
        run = self._run

        def process(item: Any) -> Any:
            return keep(run(np.array([item.ids], np.int64), np.array([item.type_ids], np.int64)))

        return self._beside(process, encoded, tell)


class OnnxEncoder(OnnxModel, EmbeddedEmbedder):
    """A BERT-like encoder in ONNX format, which can also return token vectors for MaxSim."""

    class Settings(OnnxModel.Settings, EmbeddedEmbedder.Settings):
        """Settings of an ONNX Runtime encoder.

        Attributes:
            pooling: Whether to use the mean of all token vectors or the first token's vector.
        """

        model: Annotated[str, MODEL] = "all-minilm-l6-v2-int8"
        pooling: Literal["mean", "cls"] = "mean"

    settings: Settings
    output = "last_hidden_state"

    def _graph(self) -> Run:
        """Load a faster graph with the same weights if the catalogue has one, or else the model's own."""
        known = models.catalogue().get(self.name)
        if known is None or (heads := known.heads) is None:
            return super()._graph()
        exported: Run = self._loaded(lambda path: exported_bert(path, heads))
        return exported

    @cached_property
    def dim(self) -> int:
        """Return the length of a vector, which is known for catalogue models without loading them."""
        return 384 if self.name in models.catalogue() else int(self._session.get_outputs()[0].shape[-1])

    def pooled(self, texts: Sequence[str]) -> Iterable[NDArray[np.float32]]:
        """Return the pooled token vectors of each text."""
        first = self.settings.pooling == "cls"
        encoded = encode_batch(self._tokenizer, texts, self._max_length)
        return self._each(encoded, lambda states: states[0] if first else states.mean(axis=0))

    def token_vectors(self, texts: Sequence[str], kind: TextKind) -> list[NDArray[np.float32]]:
        """Return the unit token vectors of each text, (tokens, dim), without [CLS] and [SEP].

        A text without any other token keeps the two special tokens, so that every passage has a vector.
        """

        def inner(states: NDArray[np.float32]) -> NDArray[np.float32]:
            return unit_rows(finite(states[1:-1] if len(states) > 2 else states, self.name))

        return self._each(encode_batch(self._tokenizer, self.prefixed(texts, kind), self._max_length), inner)

    def describe(self) -> Mapping[str, object]:
        described = self.described("onnx", "model", "max_length", "pooling")
        return {**described, **self._identity}


class OnnxCrossEncoder(OnnxModel):
    """A cross-encoder in ONNX format (a `Reranker`), with one logit per (query, passage) pair, regardless of other
    pairs."""

    class Settings(OnnxModel.Settings):
        """Settings of an ONNX Runtime cross-encoder.

        Attributes:
            max_length: Maximum number of tokens per pair. The longer text is truncated first.
        """

        model: Annotated[str, MODEL] = "ms-marco-minilm-l12-int8"
        max_length: int = Field(default=512, ge=3, le=512)

    settings: Settings
    output = "logits"
    alone = True
    similarity = ""
    special = False
    tokens_of_pair: ClassVar[int] = 3  # [CLS] query [SEP] passage [SEP]

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return one logit per pair, shape (n,). Raises ModelError for NaN or several outputs per pair."""
        if not pairs:
            return np.zeros(0, np.float32)
        logits = self._each(
            encode_batch(self._tokenizer, pairs, self._max_length),
            lambda logits_of_pair: logits_of_pair,
            self.progress,
        )
        return checked_scores(np.stack(logits), len(pairs), self.name)

    def describe(self) -> Mapping[str, object]:
        return {**self.described("onnx-cross-encoder", "model", "max_length"), **self._identity}

"""Wrap a user's embedders and re-rankers: functions, and models of other libraries.

    Dense(my_embed)                                  # texts -> one vector for each
    Dense(SentenceTransformer("..."))                # or what LangChain, llama-index or model2vec encode with
    {"kind": "python", "name": "my_embed", ...}      # as settings name it (`airgen.components.user_functions.named`)

Output is checked at once: the number of vectors, their dimension, and that numbers are finite. An error in such code is
reported on one line with its location.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from airgen.components.user_functions import foreign, named, required, takes
from airgen.errors import AirgenError, ModelError, UsageError
from airgen.retrievers.component import Component
from airgen.retrievers.model_facts import ModelFacts, ModelSetup
from airgen.retrievers.model_output import checked_scores, finite, unit_rows
from airgen.retrievers.protocols import TextKind
from airgen.settings.user_function import PYTHON, OwnSettings

Encode = Callable[[list[str], TextKind], Any]


class Own(Component):
    """Base class of wrappers for a user's function or object."""

    class Settings(Component.Settings, OwnSettings):
        """See `OwnSettings`."""

    settings: Settings

    @classmethod
    def of(cls, value: Any, folder: Path | None = None) -> Self:
        """Wrap a function or an object. Raises UsageError for anything else."""
        component = cls(folder=folder, **named(value))
        component.check()
        return component

    def set_up(self) -> None:
        self.name = self.settings.name

    def check(self) -> None:
        """Raise UsageError if the object cannot be called."""

    @cached_property
    def own(self) -> Any:
        """Return the wrapped function or object."""
        return self.settings.found(self.folder)

    @property
    def facts(self) -> ModelFacts:
        """Return the parameters and device of a torch model; nothing for other objects."""
        if callable(getattr(self.own, "parameters", None)) and hasattr(self.own, "state_dict"):
            from airgen.retrievers.dense.embedders import torch_facts

            return torch_facts(self.own)
        return ModelFacts(device=None)

    def library(self) -> Any:
        """Return the component that runs an object of sentence-transformers as it runs one by name, or None."""
        return None

    def setup(self) -> ModelSetup | None:
        """Return how sentence-transformers runs the object; nothing for others."""
        inner = self.library()
        return None if inner is None else replace(inner.setup(), model=self.name)

    def most_tokens(self, kind: TextKind) -> int | None:
        """Return the maximum length of an object of sentence-transformers."""
        most: int | None = self.library().most_tokens(kind)
        return most

    def token_counts(self, texts: Sequence[str], kind: TextKind) -> list[int] | None:
        """Return the numbers of tokens for an object of sentence-transformers."""
        counts: list[int] | None = self.library().token_counts(texts, kind)
        return counts

    @property
    def tokens_of_pair(self) -> int:
        """Return how many special tokens a pair has for a CrossEncoder."""
        return int(self.library().tokens_of_pair)

    def describe(self) -> Mapping[str, object]:
        return self.described(PYTHON, *(name for name in type(self.settings).model_fields if name != "place"))


class OwnEmbedder(Own):
    """An embedder that is a function of texts, or an object with `encode`, `embed_documents` or a similar method."""

    class Settings(Own.Settings):
        """Settings of a user's embedder.

        Attributes:
            similarity: With `dot`, vectors keep their lengths. Default: the model's own similarity, or else cosine.
        """

        similarity: Literal["cosine", "dot"] | None = None

    settings: Settings

    def check(self) -> None:
        if _encoder(self.own) is None:
            raise UsageError(
                f"{self.name}: a {type(self.own).__name__} embeds no texts: give a function of texts, or an object "
                "with encode(texts), such as a SentenceTransformer"
            )

    def library(self) -> Any:
        """Return the embedder that runs a SentenceTransformer as it runs one by name, or None for other objects."""
        return self._library

    @cached_property
    def _library(self) -> Any:
        if not _is_of(self.own, "SentenceTransformer"):
            return None
        from airgen.retrievers.dense.embedders import SentenceTransformersEmbedder, given_name

        similarity, device = self.settings.similarity, str(self.own.device)
        embedder = SentenceTransformersEmbedder(given_name(self.own), similarity=similarity, device=device)
        embedder.model = self.own
        return embedder

    @cached_property
    def _encode(self) -> Encode:
        encode = _encoder(self.own)
        if encode is None:
            raise UsageError(f"{self.name}: a {type(self.own).__name__} cannot embed texts")
        return encode

    @cached_property
    def dim(self) -> int:
        """Return the length of a vector, which is determined by embedding two texts."""
        if self._library is not None:
            return int(self._library.dim)
        return int(self.encode(["one text", "another text"], "passage").shape[1])

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Encode texts to vectors, float32 (n, dim).

        Args:
            texts: n texts.
            kind: Whether they are queries or passages.

        Raises:
            ModelError: The function failed, or returned a wrong number of vectors or a different dimension.
        """
        inputs = list(texts)
        if not inputs:
            return np.zeros((0, self.dim), np.float32)
        if self._library is not None:
            vectors: NDArray[np.float32] = self._library.encode(inputs, kind)
            return vectors
        output = foreign(lambda: self._encode(inputs, kind), f"the embedder {self.name}", ModelError)
        vectors = finite(self._array(output, len(inputs)), self.name)
        return vectors if self.settings.similarity == "dot" else unit_rows(vectors)

    def _array(self, output: Any, count: int) -> NDArray[np.float32]:
        wanted = f"one vector per text is needed, ({count}, dim)"
        array = foreign(lambda: _numbers(output), f"the embedder {self.name}: {wanted}", ModelError)
        if array.ndim != 2 or len(array) != count or not array.shape[1]:
            raise ModelError(
                f"the embedder {self.name} returned numbers of shape {array.shape} for {count} texts: {wanted}"
            )
        if "dim" in self.__dict__ and array.shape[1] != self.dim:
            raise ModelError(
                f"the embedder {self.name} returned vectors of {array.shape[1]} numbers after vectors of {self.dim}"
            )
        return array


def _is_of(value: Any, kind: str) -> bool:
    """Return whether an object is a model of this class of sentence-transformers, without importing the library."""
    library = sys.modules.get("sentence_transformers")
    return library is not None and isinstance(value, getattr(library, kind, ()))


def _numbers(output: Any) -> NDArray[np.float32]:
    """Convert an array, a tensor on any device, or a list of tensors to fp32."""
    if hasattr(output, "detach"):
        output = output.detach()
    if hasattr(output, "cpu"):
        output = output.cpu()
        return np.asarray(output.float() if hasattr(output, "float") else output, np.float32)
    if isinstance(output, list | tuple) and any(hasattr(item, "cpu") for item in output):
        return np.stack([_numbers(item) for item in output])
    return np.asarray(output, np.float32)


_OF_A_SEARCH = ("k", "top_k", "topk", "n", "limit", "size", "filter", "filters")
_ONE_TEXT = ("query", "text", "question", "q")


def is_embedding(value: Any) -> bool:
    """Return whether a function of one argument returns vectors for texts. It is called with two short texts."""
    needed = required(value) if callable(value) and not inspect.isclass(value) else []
    if len(needed) != 1 or needed[0] in _ONE_TEXT or any(takes(value, name) for name in _OF_A_SEARCH):
        return False
    try:
        output = foreign(partial(value, ["one text", "another text"]), "a function")
        numbers = _numbers(output) if hasattr(output, "cpu") else np.asarray(output)
    except (AirgenError, TypeError, ValueError, OverflowError):
        return False  # a search, whose own errors are reported when it runs
    # Whole numbers may be the ids of passages.
    return numbers.dtype.kind == "f" and numbers.ndim == 2 and len(numbers) == 2 and numbers.shape[1] > 1


def _encoder(value: Any) -> Encode | None:
    """Return the method with which an object embeds texts of a kind, or None."""
    sides = {"query": "encode_query", "passage": "encode_document"}
    if all(callable(getattr(value, name, None)) for name in sides.values()):  # as sentence-transformers has it
        return lambda texts, kind: getattr(value, sides[kind])(texts)
    if callable(encode := getattr(value, "encode", None)) and not isinstance(value, str | bytes):
        return encode if takes(encode, "kind") else lambda texts, kind: encode(texts)
    if callable(documents := getattr(value, "embed_documents", None)):  # LangChain
        return lambda texts, kind: [value.embed_query(text) for text in texts] if kind == "query" else documents(texts)
    if callable(batch := getattr(value, "get_text_embedding_batch", None)):  # llama-index
        queries = value.get_query_embedding
        return lambda texts, kind: [queries(text) for text in texts] if kind == "query" else batch(texts)
    if callable(value):
        return (
            (lambda texts, kind: value(texts, kind=kind)) if takes(value, "kind") else lambda texts, kind: value(texts)
        )
    return None


class OwnReranker(Own):
    """A re-ranker that is a function of a query and passages, a function of pairs, or an object with `predict`."""

    def library(self) -> Any:
        """Return the re-ranker that runs a CrossEncoder as it runs one by name, or None for other objects."""
        return self._library

    @cached_property
    def _library(self) -> Any:
        if not _is_of(self.own, "CrossEncoder"):
            return None
        from airgen.retrievers.dense.embedders import given_name
        from airgen.retrievers.rerank import CrossEncoder

        reranker = CrossEncoder(given_name(self.own), device=str(self.own.device))
        reranker.model = self.own
        return reranker

    def check(self) -> None:
        if not callable(getattr(self.own, "predict", None)) and not callable(self.own):
            raise UsageError(
                f"{self.name}: a {type(self.own).__name__} scores no pairs: give a function of (query, passages), or "
                "an object with predict(pairs), such as a CrossEncoder"
            )

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return one score per pair, shape (n,).

        Raises ModelError if the code fails or returns a wrong number of scores.
        """
        where = f"the re-ranker {self.name}"
        if not pairs:
            return np.zeros(0, np.float32)
        if self._library is not None:
            scores: NDArray[np.float32] = self._library.score(pairs)
            return scores
        if callable(predict := getattr(self.own, "predict", None)):
            output = foreign(partial(predict, [tuple(pair) for pair in pairs]), where, ModelError)
            return self._checked(output, len(pairs), where)
        if len(required(self.own)) == 1:
            return self._checked(foreign(lambda: self.own(list(pairs)), where, ModelError), len(pairs), where)
        parts = []
        for query, group in groupby(pairs, key=lambda pair: pair[0]):
            passages = [passage for _, passage in group]
            output = foreign(partial(self.own, query, passages), where, ModelError)
            parts.append(self._checked(output, len(passages), where))
            if self.progress:
                self.progress(sum(map(len, parts)), len(pairs))
        return np.concatenate(parts)

    def _checked(self, output: Any, count: int, where: str) -> NDArray[np.float32]:
        numbers = foreign(
            lambda: _numbers(output), f"{where}: one number for each of {count} passages is needed", ModelError
        )
        return checked_scores(numbers, count, self.name)

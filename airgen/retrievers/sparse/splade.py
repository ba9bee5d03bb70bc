"""SPLADE: texts to sparse weights over a vocabulary, log(1 + ReLU(logit)) max-pooled over the tokens.

`NumpySplade` runs a BERT masked-language model of the embedded size by numpy alone, so that learned sparse
retrieval needs neither torch nor a GPU; `SparseEncoder` runs any model of sentence-transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from airgen import models
from airgen.errors import ModelError
from airgen.models.files import weights_hash
from airgen.registry import load_extra
from airgen.retrievers.base import TextKind
from airgen.retrievers.dense.bert import Array, Bert, gelu, layer_norm
from airgen.retrievers.dense.onnx_encoder import encode_batch, load_tokenizer

__all__ = ["NumpySplade", "SparseEmbedder", "SparseEncoder", "SparseRow"]

SparseRow = tuple[NDArray[np.int32], Array]
"""Ascending term ids of the vocabulary, and their weights above 0."""


class SparseEmbedder(Protocol):
    """Texts to sparse rows."""

    name: str

    def encode(self, texts: Sequence[str], kind: TextKind) -> list[SparseRow]:
        """One row a text."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes the rows."""
        ...


class NumpySplade:
    """A SPLADE model with BERT's architecture and its own masked-language-model head.

    `model` is a name of the catalogue or a folder with `config.json`, `model.safetensors` and `tokenizer.json`.
    Each text runs alone, so its row never depends on its neighbours.
    """

    def __init__(self, model: str = "splade-bert-tiny", *, max_length: int = 256) -> None:
        if not 3 <= max_length <= 512:
            raise ModelError(f"max_length is {max_length}: 3 to 512 tokens are possible")
        self.name = model
        self._max_length = max_length

    @cached_property
    def _folder(self) -> Path:
        folder = Path(self.name)
        return folder if folder.is_dir() else models.path(self.name)

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self._folder / "tokenizer.json", self._max_length)

    @cached_property
    def _model(self) -> _MaskedLanguageModel:
        return _MaskedLanguageModel(self._folder)

    def encode(self, texts: Sequence[str], kind: TextKind) -> list[SparseRow]:
        """The sparse row of each text; queries and passages are treated alike."""
        encoded = encode_batch(self._tokenizer, texts, self._max_length)
        return [self._row(np.array(item.ids, np.int64)) for item in encoded]

    def _row(self, ids: NDArray[np.int64]) -> SparseRow:
        # Maximum before log(1 + ReLU(x)): it is monotonous, so the result is the same at 1/length of the cost.
        best = self._model.logits(ids).max(axis=0)
        if not np.isfinite(best).all():
            raise ModelError(f"{self.name} gave NaN or infinity for a text of {len(ids)} tokens")
        terms = np.flatnonzero(best > 0).astype(np.int32)
        return terms, np.log1p(best[terms])

    def describe(self) -> Mapping[str, object]:
        """Model, hash of its files, maximum length."""
        return {
            "family": "splade",
            "model": self.name,
            **(models.identity(self.name) or {"sha256": weights_hash(self.name)}),
            "max_length": self._max_length,
        }


class SparseEncoder:
    """Any SPLADE-like model that sentence-transformers' SparseEncoder can load, by Hub name or folder."""

    def __init__(
        self,
        model: str,
        *,
        max_length: int | None = 256,
        device: str | None = None,
        batch_size: int = 32,
        revision: str | None = None,
    ) -> None:
        self.name = model
        self._max_length, self._device, self._batch, self._revision = max_length, device, batch_size, revision

    @cached_property
    def model(self) -> Any:
        """The library's model, loaded at first use. A training sets its own, to search with it."""
        library = load_extra("sentence_transformers", f"the sparse model {self.name!r}")
        try:
            model = library.SparseEncoder(self.name, device=self._device, revision=self._revision)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise ModelError(f"the sparse model {self.name} cannot be loaded: {_short(error)}") from error
        if self._max_length is not None:
            model.max_seq_length = self._max_length
        return model

    def encode(self, texts: Sequence[str], kind: TextKind) -> list[SparseRow]:
        """The sparse row of each text, by the model's query or document side."""
        encode = self.model.encode_query if kind == "query" else self.model.encode_document
        found = encode(
            list(texts),
            batch_size=self._batch,
            convert_to_tensor=False,
            convert_to_sparse_tensor=False,
            show_progress_bar=False,
        )
        return [_sparse(np.asarray(row.cpu() if hasattr(row, "cpu") else row, np.float32), self.name) for row in found]

    def describe(self) -> Mapping[str, object]:
        """Model, revision, maximum length."""
        return {
            "family": "sparse-encoder",
            "model": self.name,
            "revision": self._revision,
            "max_length": self._max_length,
        }


def _sparse(dense: Array, model: str) -> SparseRow:
    if not np.isfinite(dense).all():
        raise ModelError(f"{model} gave NaN or infinity")
    terms = np.flatnonzero(dense > 0).astype(np.int32)
    return terms, dense[terms]


def _short(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__


class _MaskedLanguageModel:
    """BERT and its masked-language-model head, for one text, in fp32."""

    def __init__(self, folder: Path) -> None:
        safetensors = load_extra("safetensors.numpy", "the embedded sparse model")
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            raw = safetensors.load_file(folder / "model.safetensors")
        except (OSError, ValueError) as error:
            raise ModelError(f"{folder} is not a BERT model: {error}") from error
        if config.get("model_type") != "bert" or config.get("hidden_act") != "gelu":
            raise ModelError(f"{folder}: only BERT with gelu runs by numpy, use sentence-transformers for it")
        self._epsilon = float(config["layer_norm_eps"])
        # Older checkpoints call the weight and bias of a layer norm gamma and beta.
        self._weights: dict[str, Array] = {
            name.removeprefix("bert.")
            .replace("LayerNorm.gamma", "LayerNorm.weight")
            .replace("LayerNorm.beta", "LayerNorm.bias"): array
            for name, array in raw.items()
        }
        self._words = self._weights["embeddings.word_embeddings.weight"]
        self._bert = Bert(self._weights, config["num_hidden_layers"], config["num_attention_heads"], self._epsilon)
        # The decoder is tied to the word embeddings and not stored, unless a model says otherwise.
        self._decoder = np.ascontiguousarray(self._weights.get("cls.predictions.decoder.weight", self._words).T)

    def logits(self, ids: NDArray[np.int64]) -> Array:
        """Logits over the vocabulary of each token, (tokens, vocabulary)."""
        weights, head = self._weights, "cls.predictions.transform"
        states = self._bert.states(self._words[ids])
        states = gelu(states @ weights[f"{head}.dense.weight"].T + weights[f"{head}.dense.bias"])
        norm = weights[f"{head}.LayerNorm.weight"], weights[f"{head}.LayerNorm.bias"]
        states = layer_norm(states, *norm, self._epsilon)
        return np.asarray(states @ self._decoder + weights["cls.predictions.bias"], np.float32)

"""SPLADE: texts to sparse weights over a vocabulary, log(1 + ReLU(logit)) max-pooled over the tokens.

`EmbeddedSplade` runs a small BERT masked-language model by ONNX Runtime, so that learned sparse retrieval needs neither
torch nor a GPU. `SparseEncoder` runs any model of sentence-transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.errors import ModelError
from airgen.registry import load_extra
from airgen.retrievers.base import TextKind
from airgen.retrievers.dense.bert import Array, Bert
from airgen.retrievers.dense.embedders import LibraryModel
from airgen.retrievers.dense.onnx_encoder import EmbeddedModel, encode_batch
from airgen.settings.base import MODEL, SPEED

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


class EmbeddedSplade(EmbeddedModel):
    """A SPLADE model with BERT's architecture and its own masked-language-model head.

    Each text runs alone, so its row never depends on its neighbours.
    """

    class Settings(EmbeddedModel.Settings):
        """`model`: a name of the catalogue, or a folder with config.json, model.safetensors and tokenizer.json."""

        packages: ClassVar[tuple[str, ...]] = ("safetensors", "tokenizers", "onnx", "onnxruntime")
        model: Annotated[str, MODEL] = "splade-bert-tiny"

    settings: Settings

    @cached_property
    def _model(self) -> _MaskedLanguageModel:
        return _MaskedLanguageModel(self._folder)

    def encode(self, texts: Sequence[str], kind: TextKind) -> list[SparseRow]:
        """The sparse row of each text; queries and passages are treated alike."""
        encoded = encode_batch(self._tokenizer, texts, self._max_length)
        self._model.bert.loaded()
        return self._beside(lambda item: self._row(np.array(item.ids, np.int64)), encoded)

    def _row(self, ids: NDArray[np.int64]) -> SparseRow:
        # The maximum comes before log(1 + ReLU(x)), which is monotonous: the result is the same, the cost 1/length.
        best = self._model.greatest_logits(ids)
        if not np.isfinite(best).all():
            raise ModelError(f"{self.name} gave NaN or infinity for a text of {len(ids)} tokens")
        terms = np.flatnonzero(best > 0).astype(np.int32)
        return terms, np.log1p(best[terms])

    def describe(self) -> Mapping[str, object]:
        """Model, hash of its files, maximum length."""
        return {**self.described("splade", "model", "max_length"), **self._identity}


class SparseEncoder(LibraryModel):
    """Any SPLADE-like model that sentence-transformers' SparseEncoder can load, by Hub name or folder."""

    class Settings(LibraryModel.Settings):
        """`max_length` counts tokens (None: the model's own limit)."""

        max_length: int | None = Field(default=256, ge=1)
        batch_size: Annotated[int, SPEED] = Field(default=32, ge=1)

    settings: Settings

    @cached_property
    def model(self) -> Any:
        model = self.loaded("SparseEncoder", "the sparse model")
        if self.settings.max_length is not None:
            model.max_seq_length = self.settings.max_length
        return model

    def encode(self, texts: Sequence[str], kind: TextKind) -> list[SparseRow]:
        """The sparse row of each text, by the model's query or document side."""
        encode = self.model.encode_query if kind == "query" else self.model.encode_document
        found = encode(
            list(texts),
            batch_size=self.settings.batch_size,
            convert_to_tensor=False,
            convert_to_sparse_tensor=False,
            show_progress_bar=False,
        )
        return [_sparse(np.asarray(row.cpu() if hasattr(row, "cpu") else row, np.float32), self.name) for row in found]

    def describe(self) -> Mapping[str, object]:
        """Model, revision, hash of a local one, maximum length."""
        local = {"sha256": self._hash} if self._hash else {}
        return {**self.described("sparse-encoder", "model", "revision", "max_length"), **local}


def _sparse(dense: Array, model: str) -> SparseRow:
    if not np.isfinite(dense).all():
        raise ModelError(f"{model} gave NaN or infinity")
    terms = np.flatnonzero(dense > 0).astype(np.int32)
    return terms, dense[terms]


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
            raise ModelError(f"{folder}: only BERT with gelu can run here: load it with kind: sparse-encoder")
        # Older checkpoints call the weight and bias of a layer norm gamma and beta.
        weights: dict[str, Array] = {
            name.removeprefix("bert.")
            .replace("LayerNorm.gamma", "LayerNorm.weight")
            .replace("LayerNorm.beta", "LayerNorm.bias"): array
            for name, array in raw.items()
        }
        self._words = weights["embeddings.word_embeddings.weight"]
        shape = config["num_hidden_layers"], config["num_attention_heads"], float(config["layer_norm_eps"])
        self.bert = Bert(weights, *shape, logits=True)

    def greatest_logits(self, ids: NDArray[np.int64]) -> Array:
        """The greatest logit of any token for each term of the vocabulary, (vocabulary,)."""
        return self.bert.states(self._words[ids])

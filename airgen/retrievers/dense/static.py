"""Static embeddings: one vector for each token of a vocabulary, and the mean of them for a text. No network runs.

They are the fastest dense family: a text costs its tokenisation and one sum. WordLlama's vectors are in the catalogue;
folders of model2vec's form (`model.safetensors`, `tokenizer.json`, `config.json`) load too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.errors import ModelError
from airgen.registry import load_extra
from airgen.retrievers.base import TextKind
from airgen.retrievers.dense.onnx_encoder import EmbeddedModel, encode_batch
from airgen.retrievers.output_checks import finite, unit_rows
from airgen.settings.base import MODEL


class StaticEmbedder(EmbeddedModel):
    """An `Embedder` of mean token vectors at length 1. Tokens that the vocabulary does not know count for nothing.

    The tokenizer adds no special tokens. As in model2vec, a model may weigh its tokens (`weights`) and let several
    tokens share a vector (`mapping`).
    """

    class Settings(EmbeddedModel.Settings):
        """`model` is a name of the catalogue, or a folder with model.safetensors and tokenizer.json."""

        packages: ClassVar[tuple[str, ...]] = ("safetensors", "tokenizers")
        model: Annotated[str, MODEL] = "wordllama-256"
        max_length: int = Field(default=8192, ge=1)
        query_prefix: str = ""
        passage_prefix: str = ""

    settings: Settings

    @cached_property
    def _table(self) -> tuple[NDArray[np.floating[Any]], NDArray[np.float32] | None, NDArray[np.int64] | None]:
        path = self._folder / "model.safetensors"
        try:
            tensors = load_extra("safetensors.numpy", "static embeddings").load_file(path)
        except Exception as error:  # the library raises its own error, bare ones, and OSError
            raise ModelError(f"{path} cannot be read: {error}") from error
        weights, mapping = tensors.pop("weights", None), tensors.pop("mapping", None)
        if len(tensors) != 1 or next(iter(tensors.values())).ndim != 2:
            shapes = ", ".join(f"{name} {list(one.shape)}" for name, one in sorted(tensors.items())) or "nothing"
            raise ModelError(f"{path} holds {shapes}; static embeddings are one table, (tokens, dimensions)")
        (table,) = tensors.values()
        known = len(table) if mapping is None else len(mapping)
        size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        if size > known or (weights is not None and len(weights) < known):
            raise ModelError(
                f"{path} has vectors for {known} tokens, and tokenizer.json has {size}: they do not belong together"
            )
        if mapping is not None and (mapping.min(initial=0) < 0 or mapping.max(initial=0) >= len(table)):
            raise ModelError(f"{path}: its `mapping` points outside the {len(table)} vectors")
        return table, None if weights is None else np.asarray(weights, np.float32), mapping

    @cached_property
    def _unknown(self) -> int | None:
        """The token that stands for what the vocabulary does not know."""
        settings = json.loads(self._tokenizer.to_str())["model"]
        name = settings.get("unk_token")
        if name is None and isinstance(settings.get("unk_id"), int):
            return int(settings["unk_id"])
        found = None if name is None else self._tokenizer.token_to_id(name)
        return None if found is None else int(found)

    @cached_property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self._table[0].shape[1])

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Unit vectors, (n, dim); a text without a known token has zeros."""
        table, weights, mapping = self._table
        prefix = self.settings.query_prefix if kind == "query" else self.settings.passage_prefix
        vectors = np.zeros((len(texts), self.dim), np.float32)
        for row, item in enumerate(
            encode_batch(self._tokenizer, [prefix + text for text in texts], self._max_length, special=False)
        ):
            ids = np.array([one for one in item.ids if one != self._unknown], np.int64)
            if len(ids):
                found = table[ids if mapping is None else mapping[ids]].astype(np.float32)
                vectors[row] = found.mean(axis=0) if weights is None else (found * weights[ids][:, None]).mean(axis=0)
        return unit_rows(finite(vectors, self.name))

    def describe(self) -> Mapping[str, object]:
        """Model, hash of its files, pooling, prefixes, maximum length."""
        described = self.described("static", "model", "max_length", "query_prefix", "passage_prefix")
        return {**described, **self._identity, "pooling": "mean"}

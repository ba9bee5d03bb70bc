"""Embedders that need torch: sentence-transformers and FlagEmbedding, by Hub name, folder or catalogue name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen import models
from airgen.errors import ModelError, UsageError
from airgen.models.files import weights_hash
from airgen.registry import load_extra
from airgen.retrievers.base import TextKind
from airgen.retrievers.output_checks import finite, unit_rows

__all__ = ["FlagEmbedder", "SentenceTransformersEmbedder", "loaded", "model_place"]

_POOLINGS = ("mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens")


def model_place(model: str) -> str:
    """A catalogue name as its folder; a folder or Hub name as it is. Raises ModelError where it is not fetched."""
    return str(models.path(model)) if model in models.catalogue() else model


def loaded(what: str, name: str, make: Any, **settings: Any) -> Any:
    """`make(**settings)`, its failures as one ModelError that says what to do."""
    try:
        return make(**settings)
    except (OSError, ValueError, KeyError, RuntimeError, AttributeError, TypeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise ModelError(
            f"{what} {name} cannot be loaded ({reason}): give a Hub name that can be reached, a folder, "
            "or a model of `airgen models list`"
        ) from error


class SentenceTransformersEmbedder:
    """A model of sentence-transformers.

    `query_prefix` and `passage_prefix` stand before every text (an instruction is a prefix); where they are not given,
    those that a local folder names as its prompts. `pooling` replaces the model's own: mean, cls, max, lasttoken, ...
    `max_length` counts tokens and is cut to what the model can take.
    """

    def __init__(
        self,
        model: str,
        *,
        query_prefix: str | None = None,
        passage_prefix: str | None = None,
        pooling: str | None = None,
        max_length: int = 512,
        batch_size: int = 32,
        device: str | None = None,
        revision: str | None = None,
    ) -> None:
        if pooling is not None and pooling not in _POOLINGS:
            raise UsageError(f"pooling {pooling!r}: {', '.join(_POOLINGS)} are known")
        self.name = model
        own = _prompts(model)
        self._prefix = {
            "query": own.get("query", "") if query_prefix is None else query_prefix,
            "passage": own.get("document", own.get("passage", "")) if passage_prefix is None else passage_prefix,
        }
        self._pooling, self._max_length, self._batch = pooling, max_length, batch_size
        self._device, self._revision = device, revision

    @cached_property
    def model(self) -> Any:
        """The library's model, loaded at first use. A training sets its own, to search with it."""
        library = load_extra("sentence_transformers", f"the model {self.name!r}")
        model = loaded(
            "the model",
            self.name,
            library.SentenceTransformer,
            model_name_or_path=model_place(self.name),
            device=self._device,
            revision=self._revision,
        )
        limit = getattr(getattr(model[0], "auto_model", None), "config", None)
        positions = getattr(limit, "max_position_embeddings", None) or self._max_length
        model.max_seq_length = min(self._max_length, positions)
        if self._pooling is not None:
            for place, module in enumerate(model):
                if type(module).__name__ == "Pooling":
                    width = module.get_config_dict().get("embedding_dimension") or model[0].get_embedding_dimension()
                    model[place] = type(module)(width, pooling_mode=self._pooling)
        return model

    @cached_property
    def dim(self) -> int:
        """Length of a vector."""
        model = self.model
        size = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        return int(size())

    @cached_property
    def _hash(self) -> str:
        return weights_hash(model_place(self.name))

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Unit vectors, (n, dim)."""
        prefix = self._prefix[kind]
        vectors = self.model.encode(
            [prefix + text for text in texts],
            batch_size=self._batch,
            convert_to_numpy=True,
            normalize_embeddings=False,
            show_progress_bar=False,
        )
        shaped = np.asarray(vectors, np.float32).reshape(len(texts), -1)
        return unit_rows(finite(shaped, self.name))

    def describe(self) -> Mapping[str, object]:
        """Model, revision, hash of a local one, prefixes, pooling, maximum length."""
        return {
            "family": "sentence-transformers",
            "model": self.name,
            "revision": self._revision,
            **(models.identity(self.name) or {"sha256": self._hash}),
            "query_prefix": self._prefix["query"],
            "passage_prefix": self._prefix["passage"],
            "pooling": self._pooling,
            "max_length": self._max_length,
        }


def _prompts(model: str) -> dict[str, str]:
    """The prompts of a model in a local folder, as sentence-transformers keeps them."""
    try:
        config = json.loads((Path(model) / "config_sentence_transformers.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # another kind of model, or no folder: loading it will say what is wrong
        return {}
    prompts = config.get("prompts") if isinstance(config, dict) else None
    return {key: value for key, value in (prompts or {}).items() if isinstance(value, str)}


class FlagEmbedder:
    """A model of FlagEmbedding; bge-m3, the paper's recall model, gives token vectors for MaxSim as well."""

    def __init__(
        self,
        model: str = "BAAI/bge-m3",
        *,
        query_prefix: str = "",
        passage_prefix: str = "",
        max_length: int = 512,
        batch_size: int = 32,
        device: str | None = None,
        fp16: bool = False,
    ) -> None:
        self.name = model
        self._prefix = {"query": query_prefix, "passage": passage_prefix}
        self._max_length, self._batch = max_length, batch_size
        self._device, self._fp16 = device, fp16

    @cached_property
    def _model(self) -> Any:
        library = load_extra("FlagEmbedding", f"the model {self.name!r}")
        return loaded(
            "the model",
            self.name,
            library.BGEM3FlagModel,
            model_name_or_path=model_place(self.name),
            use_fp16=self._fp16,
            devices=self._device,
        )

    @cached_property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self.encode(["a"], "query").shape[1])

    @cached_property
    def _hash(self) -> str:
        return weights_hash(model_place(self.name))

    def _outputs(self, texts: Sequence[str], kind: TextKind, dense: bool) -> Any:
        prefix = self._prefix[kind]
        return self._model.encode(
            [prefix + text for text in texts],
            batch_size=self._batch,
            max_length=self._max_length,
            return_dense=dense,
            return_sparse=False,
            return_colbert_vecs=not dense,
        )

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Unit vectors, (n, dim)."""
        vectors = np.asarray(self._outputs(texts, kind, dense=True)["dense_vecs"], np.float32)
        return unit_rows(finite(vectors.reshape(len(texts), -1), self.name))

    def token_vectors(self, texts: Sequence[str], kind: TextKind) -> list[NDArray[np.float32]]:
        """Unit token vectors of each text (bge-m3's multi-vectors), (tokens, dim)."""
        found = self._outputs(texts, kind, dense=False)["colbert_vecs"]
        return [unit_rows(finite(np.asarray(array, np.float32), self.name)) for array in found]

    def describe(self) -> Mapping[str, object]:
        """Model, hash of a local one, prefixes, maximum length, precision."""
        return {
            "family": "flag",
            "model": self.name,
            "sha256": self._hash,
            "query_prefix": self._prefix["query"],
            "passage_prefix": self._prefix["passage"],
            "max_length": self._max_length,
            "fp16": self._fp16,
        }

"""SPARTA: every term of the vocabulary has an impact in every passage (Zhao and others, 2021; BEIR's section 4).

    system = Sparta("models/sparta")          # {kind: sparta, model: models/sparta}; `airgen train sparta` makes it

    impact(t, d) = log(1 + ReLU(max over tokens j of d of <e_t, s_j> + b))
    score(q, d)  = sum of the impacts of q's tokens in d

e_t is the vocabulary's embedding of t without context, s_j the encoder's output for token j of the passage: queries
are looked up, not encoded, and a passage can be found by terms that it does not hold. Impacts stand in an inverted
index; `top_terms` keeps the highest of each passage (SPARTA: 2,000 of 30,000).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from airgen.errors import ModelError, UsageError
from airgen.models.files import weights_hash
from airgen.registry import load_extra
from airgen.retrievers.base import TextKind
from airgen.retrievers.dense.embedders import loaded, model_place
from airgen.retrievers.sparse.retriever import Sparse
from airgen.retrievers.sparse.splade import SparseRow

__all__ = ["BIAS", "Sparta", "SpartaEncoder"]

BIAS = "sparta_bias"
"""The name of b in the model's config.json."""


class SpartaEncoder:
    """A transformer and its own input embeddings as impacts, by folder or Hub name."""

    def __init__(
        self,
        model: str,
        *,
        max_length: int = 256,
        top_terms: int | None = 2000,
        device: str | None = None,
        batch_size: int = 16,
    ) -> None:
        if top_terms is not None and top_terms < 1:
            raise UsageError(f"top_terms is {top_terms}: at least 1 is needed")
        self.name = model
        self._max_length, self._top, self._device, self._batch = max_length, top_terms, device, batch_size

    @cached_property
    def parts(self) -> tuple[Any, Any, float]:
        """(model, tokenizer, b). Raises ModelError for a folder that `airgen train sparta` did not write."""
        transformers = load_extra("transformers", f"the impacts of {self.name!r}")
        place = model_place(self.name)
        made = [transformers.AutoModel, transformers.AutoTokenizer]
        model, tokenizer = [
            loaded("the model", self.name, kind.from_pretrained, pretrained_model_name_or_path=place) for kind in made
        ]
        bias = getattr(model.config, BIAS, None)
        if not isinstance(bias, float):
            raise ModelError(f"{self.name} is no SPARTA: its config.json has no {BIAS}")
        return model.to(self._device or "cpu").eval(), tokenizer, bias

    def encode(self, texts: Sequence[str], kind: TextKind) -> list[SparseRow]:
        """A query's tokens with their counts, or a passage's impacts. Raises ModelError for NaN."""
        return self._asked(texts) if kind == "query" else self._impacts(texts)

    def _asked(self, texts: Sequence[str]) -> list[SparseRow]:
        tokenizer = self.parts[1]
        rows = []
        for text in texts:
            ids = tokenizer(text, add_special_tokens=False, truncation=True, max_length=self._max_length)["input_ids"]
            known = [one for one in ids if one != tokenizer.unk_token_id]
            terms, counts = np.unique(np.array(known, np.int32), return_counts=True)
            rows.append((terms, counts.astype(np.float32)))
        return rows

    def _impacts(self, texts: Sequence[str]) -> list[SparseRow]:
        torch = load_extra("torch", f"the impacts of {self.name!r}")
        model, tokenizer, bias = self.parts
        limit = min(self._max_length, getattr(model.config, "max_position_embeddings", None) or self._max_length)
        terms = model.get_input_embeddings().weight
        rows: list[SparseRow] = []
        with torch.inference_mode():
            for first in range(0, len(texts), self._batch):
                batch = list(texts[first : first + self._batch])
                encoded = tokenizer(batch, truncation=True, max_length=limit, padding=True, return_tensors="pt").to(
                    model.device
                )
                states = model(**encoded).last_hidden_state
                for row, mask in zip(states, encoded["attention_mask"].bool(), strict=True):
                    # One passage at a time: (tokens, vocabulary) of a batch would be a gigabyte.
                    best = (row[mask] @ terms.T).max(dim=0).values + bias
                    rows.append(self._sparse(torch.log1p(torch.relu(best)).float().cpu().numpy()))
        return rows

    def _sparse(self, impacts: Any) -> SparseRow:
        if not np.isfinite(impacts).all():
            raise ModelError(f"{self.name} gave NaN or infinity")
        found = np.flatnonzero(impacts > 0)
        if self._top is not None and len(found) > self._top:
            order = np.lexsort((found, -impacts[found]))[: self._top]  # of equal ones, the lower id
            found = np.sort(found[order])
        return found.astype(np.int32), impacts[found].astype(np.float32)

    def describe(self) -> dict[str, object]:
        """Model, hash, maximum length, terms kept."""
        return {
            "family": "sparta",
            "model": self.name,
            "sha256": weights_hash(model_place(self.name)),
            "max_length": self._max_length,
            "top_terms": self._top,
        }


class Sparta(Sparse):
    """SPARTA over the inverted index of impacts; settings as for `SpartaEncoder`."""

    def __init__(
        self,
        model: str | SpartaEncoder,
        *,
        max_length: int = 256,
        top_terms: int | None = 2000,
        device: str | None = None,
        batch_size: int = 16,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        if isinstance(model, str):
            model = SpartaEncoder(
                model, max_length=max_length, top_terms=top_terms, device=device, batch_size=batch_size
            )
        super().__init__(model, progress=progress)
        self.name = f"sparta {model.name}"

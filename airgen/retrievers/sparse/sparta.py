"""SPARTA: every term of the vocabulary has an impact in every passage (Zhao and others, 2021; BEIR's section 4).

    system = Sparta("models/sparta")          # {kind: sparta, model: models/sparta}; `airgen train sparta` makes it
    system = Sparta("BeIR/sparta-msmarco-distilbert-base-v1", bias=0)     # BEIR's checkpoint, a plain transformer

    impact(t, d) = log(1 + ReLU(max over tokens j of d of <e_t, s_j> + b))
    score(q, d)  = sum of the impacts of q's tokens in d

e_t is the input embedding of t, without context; s_j is the encoder's output for token j of the passage. Queries are
looked up, not encoded. A passage can be found by terms that it does not hold. The impacts are in an inverted index, and
`top_terms` keeps the highest of each passage (SPARTA: 2,000 of 30,000).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from airgen.errors import ModelError
from airgen.registry import load_extra
from airgen.retrievers.base import ModelFacts, SettingsWithModel, TextKind
from airgen.retrievers.dense.embedders import TorchModel, torch_facts, with_tokenizer
from airgen.retrievers.sparse.retriever import Sparse
from airgen.retrievers.sparse.splade import SparseRow
from airgen.settings.base import FILE, SPEED
from airgen.settings.parts import Part

BIAS = "sparta_bias"
"""The name of b in the model's config.json."""


class SpartaEncoder(TorchModel):
    """A transformer and its own input embeddings as impacts, by folder or Hub name."""

    class Settings(TorchModel.Settings):
        """`max_length` counts tokens. `top_terms`: how many impacts of each passage are kept (None: all).

        `bias` is b of a checkpoint that does not name it. BEIR's has none (0), and its special tokens have no impact.
        """

        packages: ClassVar[tuple[str, ...]] = ("torch", "transformers")
        max_length: int = Field(default=256, ge=1)
        top_terms: int | None = Field(default=2000, ge=1)
        batch_size: Annotated[int, SPEED] = Field(default=16, ge=1)
        bias: float | None = None

    settings: Settings

    @property
    def facts(self) -> ModelFacts:
        return torch_facts(self.parts[0])

    @cached_property
    def parts(self) -> tuple[Any, Any, float]:
        """(model, tokenizer, b). Raises ModelError for a model without b, where no `bias` is given."""
        chosen = self.name, self.place(self.name), self.settings.device
        model, tokenizer = with_tokenizer("AutoModel", "the model", *chosen)
        bias = getattr(model.config, BIAS, self.settings.bias)
        if not isinstance(bias, float):
            raise ModelError(
                f"{self.name} is not a SPARTA model of `airgen train sparta`: its config.json has no {BIAS}; if it is "
                "one of BEIR's form, set `bias: 0` beside it"
            )
        return model, tokenizer, bias

    def encode(self, texts: Sequence[str], kind: TextKind) -> list[SparseRow]:
        """A query's tokens with their counts, or a passage's impacts. Raises ModelError for NaN."""
        return self._asked(texts) if kind == "query" else self._impacts(texts)

    def _asked(self, texts: Sequence[str]) -> list[SparseRow]:
        tokenizer, limit = self.parts[1], self.settings.max_length
        rows = []
        for text in texts:
            ids = tokenizer(text, add_special_tokens=False, truncation=True, max_length=limit)["input_ids"]
            known = [one for one in ids if one != tokenizer.unk_token_id]
            terms, counts = np.unique(np.array(known, np.int32), return_counts=True)
            rows.append((terms, counts.astype(np.float32)))
        return rows

    def _impacts(self, texts: Sequence[str]) -> list[SparseRow]:
        torch = load_extra("torch", f"the impacts of {self.name!r}")
        model, tokenizer, bias = self.parts
        limit, size = self.settings.max_length, self.settings.batch_size
        limit = min(limit, getattr(model.config, "max_position_embeddings", None) or limit)
        terms = model.get_input_embeddings().weight
        if getattr(model.config, BIAS, None) is None:  # as in BEIR, whose impacts of special tokens are log(1 + 0)
            terms = terms.detach().clone()
            terms[tokenizer.all_special_ids] = 0
        rows: list[SparseRow] = []
        with torch.inference_mode():
            for first in range(0, len(texts), size):
                batch = list(texts[first : first + size])
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
        if (top := self.settings.top_terms) is not None and len(found) > top:
            order = np.lexsort((found, -impacts[found]))[:top]  # ties go to the lower id
            found = np.sort(found[order])
        return found.astype(np.int32), impacts[found].astype(np.float32)

    def describe(self) -> dict[str, object]:
        """Model, hash, maximum length, terms kept, and a bias that was given."""
        given = {} if self.settings.bias is None else {"bias": self.settings.bias}
        return {**self.described("sparta", "model", "max_length", "top_terms"), "sha256": self._hash, **given}


class Sparta(Sparse):
    """SPARTA over the inverted index of impacts."""

    class Settings(SettingsWithModel):
        """`model`: a folder or Hub name. The settings of `SpartaEncoder` may stand beside it.

        `cache` is a root folder for the rows of passages; each is computed once.
        """

        model: Annotated[Any, Part("sparta-encoder")]
        cache: Annotated[Path | None, SPEED, FILE] = None

    settings: Settings  # type: ignore[assignment]  # another kind of model

    def set_up(self) -> None:
        super().set_up()
        self.name = f"sparta {self.model.name}"

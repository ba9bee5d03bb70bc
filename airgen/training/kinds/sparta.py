"""SPARTA (Zhao and others, 2021; BEIR's section 4), trained with in-batch and hard negatives.

    airgen train sparta --on scifact --base all-minilm-l6-v2 --out models/sparta

score(q, d) = sum over tokens t of q of log(1 + ReLU(max over tokens j of d of <e_t, s_j> + b)), where e_t are the
model's input embeddings and s_j its outputs. `airgen.retrievers.sparse` searches with it. The loss is InfoNCE
over the batch's passages; other passages that are labelled relevant to a query are not among its negatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from airgen.registry import load_extra
from airgen.retrievers.sparse import BIAS, Sparta, SpartaEncoder
from airgen.training.base_models import load_base
from airgen.training.data import TrainingSet
from airgen.training.kinds.transformer import (
    IN_TRAINING,
    Batch,
    TransformerRecipe,
    TransformerTask,
    save_with_tokenizer,
    token_limit,
)
from airgen.training.losses import info_nce


class SpartaRecipe(TransformerRecipe):
    """BEIR fine-tuned DistilBERT on MS MARCO; the numbers that it does not name are ours."""

    epochs: int = Field(3, ge=1, description="ours; early stopping ends it")
    learning_rate: float = Field(2e-5, gt=0, description="usual for a pretrained transformer; small models take 1e-3")
    batch_size: int = Field(32, ge=1, description="ours: in-batch negatives")
    max_length: int = Field(256, ge=8, description="BEIR's models, section 4")
    hard_negatives: int = Field(1, ge=0, description="ours: one BM25 negative for each query")
    first_bias: float = Field(0.0, description="b before training")
    top_terms: int = Field(2000, ge=1, description="SPARTA: impacts kept for each passage, also when searching")


def impacts(terms: Any, states: Any, mask: Any, bias: Any) -> Any:
    """log(1 + ReLU(max_j <e_t, s_j> + b)), (passages, terms).

    terms: (terms, dim); states: (passages, tokens, dim); mask: bool (passages, tokens), False for padding.
    """
    torch = load_extra("torch", "training SPARTA")
    products = torch.einsum("td,pjd->ptj", terms, states).masked_fill(~mask[:, None, :], -torch.inf)
    return torch.log1p(torch.relu(products.amax(dim=-1) + bias))


class SpartaTask(TransformerTask):
    """Trains a SPARTA."""

    RECIPE = SpartaRecipe
    recipe: SpartaRecipe

    def __init__(self, recipe: SpartaRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device)
        loaded = load_base(base)
        self.tokenizer = loaded.tokenizer
        self.model = self.torch.nn.Module()
        self.model.encoder = loaded.model
        self.model.bias = self.torch.nn.Parameter(self.torch.tensor([recipe.first_bias]))
        self.model.to(device).train()
        self._limit = token_limit(loaded.model, recipe.max_length)

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """InfoNCE over the scores of every query with every passage of the batch."""
        torch = self.torch
        sample = self.sample(batch, self.recipe.hard_negatives)
        places = np.unique(sample.places)
        cut = {"truncation": True, "max_length": self._limit}
        rows = [
            [token for token in ids if token != self.tokenizer.unk_token_id]
            for ids in self.tokenizer(sample.queries, add_special_tokens=False, **cut)["input_ids"]
        ]
        terms = sorted({token for ids in rows for token in ids})
        columns = {term: column for column, term in enumerate(terms)}
        counts = torch.zeros(len(rows), len(terms), device=self.device)
        for row, ids in enumerate(rows):
            for token in ids:
                counts[row, columns[token]] += 1
        encoded = self.tokenizer(self.passages(places), padding=True, return_tensors="pt", **cut).to(self.device)
        states = self.model.encoder(**encoded).last_hidden_state
        vectors = self.model.encoder.get_input_embeddings().weight[torch.tensor(terms, dtype=torch.long)]
        weights = impacts(vectors, states, encoded["attention_mask"].bool(), self.model.bias)
        targets = np.searchsorted(places, sample.places[:, 0])
        masked = np.stack([np.isin(places, example.positives) for example in sample.examples])
        masked[np.arange(len(targets)), targets] = False
        return {"loss": info_nce(counts @ weights.T, self.tensor(targets), self.tensor(masked))}

    def evaluate(self) -> dict[str, float]:
        """Search in the inverted index of impacts."""
        encoder = SpartaEncoder(IN_TRAINING, max_length=self.recipe.max_length, top_terms=self.recipe.top_terms)
        encoder.parts = self.model.encoder, self.tokenizer, float(self.model.bias.detach())
        return self.search_dev(Sparta(encoder))

    def save(self, folder: Path) -> None:
        """Write a folder of transformers, with b in its config."""
        setattr(self.model.encoder.config, BIAS, float(self.model.bias.detach()))
        save_with_tokenizer(self.model.encoder, self.tokenizer, folder)

    def system(self, folder: Path) -> Mapping[str, Any]:
        """`kind: sparta`."""
        kept = {"max_length": self.recipe.max_length, "top_terms": self.recipe.top_terms}
        return {"kind": "sparta", "model": str(folder), **kept}

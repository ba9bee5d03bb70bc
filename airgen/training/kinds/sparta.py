"""SPARTA (Zhao and others, 2021; BEIR's section 4), trained with in-batch and hard negatives.

    airgen train sparta --on scifact --base all-minilm-l6-v2 --out models/sparta

score(q, d) = sum over tokens t of q of log(1 + ReLU(max over tokens j of d of <e_t, s_j> + b)), with e_t from the
model's own input embeddings and s_j its output: see `airgen.retrievers.sparse.sparta`, which searches with it. The
loss is InfoNCE over the batch's passages; texts known to be relevant to a query are none of its negatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from airgen.registry import load_extra
from airgen.retrievers.sparse.sparta import BIAS, Sparta, SpartaEncoder
from airgen.training.base_models import load_base, quiet
from airgen.training.data import TrainingSet
from airgen.training.kinds.sentence_transformers import Batch, LibraryRecipe, LibraryTask, train_library
from airgen.training.loop import Trained
from airgen.training.losses import info_nce
from airgen.training.recipe import Request

__all__ = ["RECIPE", "SpartaRecipe", "SpartaTask", "impacts", "train"]


class SpartaRecipe(LibraryRecipe):
    """BEIR fine-tuned DistilBERT on MS MARCO; the numbers it does not name are ours."""

    epochs: int = Field(3, ge=1, description="ours; early stopping ends it")
    learning_rate: float = Field(2e-5, gt=0, description="usual for a pretrained transformer; small models take 1e-3")
    batch_size: int = Field(32, ge=1, description="ours: in-batch negatives")
    max_length: int = Field(256, ge=8, description="BEIR's models, section 4")
    hard_negatives: int = Field(1, ge=0, description="ours: one BM25 negative a query")
    first_bias: float = Field(0.0, description="b before training")
    top_terms: int = Field(2000, ge=1, description="impacts kept of each passage, SPARTA's own; also when it is used")


RECIPE = SpartaRecipe


def impacts(terms: Any, states: Any, mask: Any, bias: Any) -> Any:
    """log(1 + ReLU(max_j <e_t, s_j> + b)), (passages, terms).

    terms: (terms, dim); states: (passages, tokens, dim); mask: bool (passages, tokens), False for padding.
    """
    torch = load_extra("torch", "training SPARTA")
    products = torch.einsum("td,pjd->ptj", terms, states).masked_fill(~mask[:, None, :], -torch.inf)
    return torch.log1p(torch.relu(products.amax(dim=-1) + bias))


class SpartaTask(LibraryTask):
    """Model, loss and dev figures of a SPARTA."""

    memory = ("batch_size", "max_length", "hard_negatives")
    recipe: SpartaRecipe

    def __init__(self, recipe: SpartaRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device)
        self.torch = load_extra("torch", "training SPARTA")
        found = load_base(base)
        self.tokenizer = found.tokenizer
        self.model = self.torch.nn.Module()
        self.model.encoder = found.model
        self.model.bias = self.torch.nn.Parameter(self.torch.tensor([recipe.first_bias]))
        self.model.to(device).train()
        limit = getattr(found.model.config, "max_position_embeddings", None) or recipe.max_length
        self._limit = min(recipe.max_length, limit)

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """InfoNCE over the scores of every query with every passage of the batch."""
        torch = self.torch
        drawn = self.drawn(batch, self.recipe.hard_negatives)
        places = np.unique(drawn.places)
        asked = [
            [one for one in ids if one != self.tokenizer.unk_token_id]
            for ids in self.tokenizer(drawn.queries, add_special_tokens=False, truncation=True, max_length=self._limit)[
                "input_ids"
            ]
        ]
        terms = sorted({one for ids in asked for one in ids})
        columns = {term: column for column, term in enumerate(terms)}
        counts = torch.zeros(len(asked), len(terms), device=self.device)
        for row, ids in enumerate(asked):
            for one in ids:
                counts[row, columns[one]] += 1
        texts = [self.data.corpus.full_text(place) for place in places.tolist()]
        encoded = self.tokenizer(texts, truncation=True, max_length=self._limit, padding=True, return_tensors="pt")
        encoded = encoded.to(self.device)
        states = self.model.encoder(**encoded).last_hidden_state
        vectors = self.model.encoder.get_input_embeddings().weight[torch.tensor(terms, dtype=torch.long)]
        found = impacts(vectors, states, encoded["attention_mask"].bool(), self.model.bias)
        targets = np.searchsorted(places, drawn.places[:, 0])
        masked = np.stack([np.isin(places, example.positives) for example in drawn.examples])
        masked[np.arange(len(targets)), targets] = False
        hidden, wanted = (torch.from_numpy(array).to(self.device) for array in (masked, targets))
        return {"loss": info_nce(counts @ found.T, wanted, hidden)}

    def evaluate(self) -> dict[str, float]:
        """Search of the dev queries in the inverted index."""
        return self.search_dev(Sparta(_InTraining(self)))

    def save(self, folder: Path) -> None:
        """A folder of transformers, with b in its config."""
        setattr(self.model.encoder.config, BIAS, float(self.model.bias.detach()))
        with quiet():
            self.model.encoder.save_pretrained(str(folder))
            self.tokenizer.save_pretrained(str(folder))

    def system(self, folder: Path) -> Mapping[str, Any]:
        """`kind: sparta`."""
        kept = {"max_length": self.recipe.max_length, "top_terms": self.recipe.top_terms}
        return {"kind": "sparta", "model": str(folder), **kept}


class _InTraining(SpartaEncoder):
    """The model as it stands, for the dev queries."""

    def __init__(self, task: SpartaTask) -> None:
        super().__init__("in training", max_length=task.recipe.max_length, top_terms=task.recipe.top_terms)
        self._task = task

    @property
    def parts(self) -> tuple[Any, Any, float]:
        return self._task.model.encoder, self._task.tokenizer, float(self._task.model.bias.detach())


def train(request: Request) -> Trained:
    """Train SPARTA on a dataset's queries, positives and hard negatives."""
    recipe = request.recipe_of(SpartaRecipe)
    return train_library("sparta", request, recipe, lambda data, device: SpartaTask(recipe, data, request.base, device))

"""docT5query (Nogueira and Lin, 2019; BEIR's section 4): a model that writes the queries which a passage answers.

    airgen train doct5query --on msmarco --base t5-base --out models/doct5query
    airgen train expand scifact --model models/doct5query --out scifact-queries.jsonl

The base is any sequence-to-sequence model of transformers. The input is a passage, the target one of its queries, the
loss their cross-entropy. Queries are those of a dataset, or those that `airgen train expand` wrote, as pairs
(`airgen train pairs SOURCE --queries FILE`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from airgen.registry import load_extra
from airgen.retrievers.base import model_place
from airgen.retrievers.dense.embedders import loaded
from airgen.retrievers.lexical.expanded import Expanded
from airgen.training.data import TrainingSet
from airgen.training.kinds.transformer import (
    IN_TRAINING,
    Batch,
    TransformerRecipe,
    TransformerTask,
    load_model,
    save_with_tokenizer,
)
from airgen.training.mining.expansion import Seq2Seq

_IGNORED = -100  # a label that torch's cross-entropy leaves out


class QueryWriterRecipe(TransformerRecipe):
    """docT5query's hyperparameters."""

    epochs: int = Field(2, ge=1, description="docT5query: 4,000 steps, which are 2 epochs of MS MARCO")
    learning_rate: float = Field(1e-4, gt=0, description="docT5query; small models take 1e-3")
    schedule: Any = Field("constant", description="docT5query")
    warmup: float = Field(0.0, ge=0, le=1, description="docT5query: none")
    batch_size: int = Field(256, ge=1, description="docT5query")
    max_length: int = Field(512, ge=8, description="docT5query: tokens of a passage")
    max_query_tokens: int = Field(64, ge=2, description="docT5query: tokens of a query")
    prefix: str = Field("", description="stands before each passage, also when the model is used: docT5query has none")
    hard_negatives: int = Field(0, ge=0, le=0, description="writing has no negatives")
    dev_queries: int = Field(3, ge=1, description="ours: written for each passage of the dev corpus, for BM25")
    dev_passages: int | None = Field(
        500, ge=1, description="ours: dev queries search their positives and this many random passages; null: all"
    )


class QueryWriterTask(TransformerTask):
    """Trains a writer of queries."""

    RECIPE = QueryWriterRecipe
    memory = ("batch_size", "max_length", "max_query_tokens")
    recipe: QueryWriterRecipe

    def __init__(self, recipe: QueryWriterRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device)
        library = load_extra("transformers", "training docT5query")
        place = {"pretrained_model_name_or_path": model_place(base)}
        self.tokenizer = loaded("the tokenizer of", base, library.AutoTokenizer.from_pretrained, **place)
        loader = library.AutoModelForSeq2SeqLM.from_pretrained
        self.model = load_model(loader, base, "pretrained_model_name_or_path").to(device)

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """Cross-entropy of each query, given one of its passages; the mean over the tokens of the batch."""
        sample = self.sample(batch, 0)
        passages = [self.recipe.prefix + text for text in self.passages(sample.places[:, 0])]
        cut = {"truncation": True, "padding": True, "return_tensors": "pt"}
        inputs = self.tokenizer(passages, max_length=self.recipe.max_length, **cut).to(self.device)
        targets = self.tokenizer(text_target=sample.queries, max_length=self.recipe.max_query_tokens, **cut)
        labels = targets["input_ids"].masked_fill(~targets["attention_mask"].bool(), _IGNORED).to(self.device)
        fed = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        return {"loss": self.model(**fed, labels=labels).loss}

    def evaluate(self) -> dict[str, float]:
        """Search with BM25 over the dev corpus, expanded by what the model writes now."""
        if not len(self.data.dev):
            return {}
        recipe = self.recipe
        writer = Seq2Seq(
            IN_TRAINING, prefix=recipe.prefix, max_length=recipe.max_length, max_new_tokens=recipe.max_query_tokens
        )
        writer.parts = self.model, self.tokenizer
        texts = list(self.dev_corpus.full_texts)
        state = self.torch.get_rng_state()  # what is sampled here must not change the training
        try:
            written = writer.of_batches(texts, recipe.dev_queries, recipe.seed)
        finally:
            self.torch.set_rng_state(state)
        expansions = dict(zip(self.dev_corpus.ids, written, strict=True))
        return self.search_dev(Expanded(expansions, queries=None))

    def save(self, folder: Path) -> None:
        """Write a folder of transformers."""
        save_with_tokenizer(self.model, self.tokenizer, folder)

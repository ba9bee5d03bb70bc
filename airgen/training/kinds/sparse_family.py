"""Train BEIR's sparse models (its section 4): docT5query, DeepCT and SPARTA.

docT5query (Nogueira and Lin, 2019) generates queries that a passage answers: the input of a sequence-to-sequence model
is a passage, the target is one of its queries, and the loss is cross-entropy.

DeepCT (Dai and Callan, 2020) predicts which words of a passage its queries contain. The target of a term in a passage
is the share of the passage's training queries that contain it. Terms are those of the BM25 index (stemmed, without stop
words), so the query word "statin" matches "statins". A linear layer on the transformer predicts the target from the
first piece of each word, with squared error. Passages without a training query are not used.

SPARTA (Zhao and others, 2021): score(q, d) = sum over tokens t of q of log(1 + ReLU(max over tokens j of d of <e_t,
s_j> + b)), where e_t are the model's input embeddings and s_j its outputs. The loss is InfoNCE over the batch's
passages and hard negatives. Other passages labelled as relevant to a query are excluded from its negatives.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from airgen.components.keys import rng
from airgen.components.registry import load_extra
from airgen.errors import DatasetError
from airgen.retrievers.dense.embedders import loaded
from airgen.retrievers.lexical.expanded import DeepCT, Expanded, TermWeigher, words_of
from airgen.retrievers.model_facts import model_place
from airgen.retrievers.protocols import Retriever
from airgen.retrievers.sparse import BIAS, Sparta, SpartaEncoder
from airgen.text.analysis import Analyser, analyser
from airgen.training.base_models import load_base
from airgen.training.data import TrainingSet, epoch_batches
from airgen.training.kinds.transformer import (
    IN_TRAINING,
    Batch,
    TransformerRecipe,
    TransformerTask,
    first_three,
    info_nce,
    load_model,
    save_with_tokenizer,
    token_limit,
)
from airgen.training.mining.expansion import Seq2Seq

_IGNORED_LABEL = -100  # a label that torch's cross-entropy ignores


class QueryWriterRecipe(TransformerRecipe):
    """The recipe for docT5query, with its hyperparameters."""

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
    """Trains a model that generates queries."""

    RECIPE = QueryWriterRecipe
    recipe: QueryWriterRecipe

    def __init__(self, recipe: QueryWriterRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device)
        library = load_extra("transformers", "training docT5query")
        place = {"pretrained_model_name_or_path": model_place(base)}
        self.tokenizer = loaded("the tokenizer of", base, library.AutoTokenizer.from_pretrained, **place)
        loader = library.AutoModelForSeq2SeqLM.from_pretrained
        self.model = load_model(loader, base, "pretrained_model_name_or_path").to(device)

    def prepare(self, batch: Batch) -> tuple[dict[str, Any], Any]:
        """Tokenise passages as inputs, and queries as labels."""
        sample = self.sample(batch, 0)
        passages = [self.recipe.prefix + text for text in self.passages(sample.places[:, 0])]
        cut = {"truncation": True, "padding": True, "return_tensors": "pt"}
        inputs = self.tokenizer(passages, max_length=self.recipe.max_length, **cut)
        targets = self.tokenizer(text_target=sample.queries, max_length=self.recipe.max_query_tokens, **cut)
        labels = targets["input_ids"].masked_fill(~targets["attention_mask"].bool(), _IGNORED_LABEL)
        return {name: inputs[name] for name in ("input_ids", "attention_mask")}, labels

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """Compute the cross-entropy of each query given one of its passages, averaged over the tokens of the batch."""
        features, labels = self.ready(batch)
        return {"loss": self.model(**self.moved(features), labels=labels.to(self.device)).loss}

    def retriever(self) -> Retriever:
        """Build BM25 over the dev corpus, expanded with queries from the model in its current state."""
        recipe = self.recipe
        writer = Seq2Seq(
            IN_TRAINING, prefix=recipe.prefix, max_length=recipe.max_length, max_new_tokens=recipe.max_query_tokens
        )
        writer.parts = self.model, self.tokenizer
        texts = list(self.dev_corpus.full_texts)
        seeds = [rng("dev", recipe.seed, key).getrandbits(32) for key in self.dev_corpus.ids]
        written = writer.write(texts, recipe.dev_queries, seeds)
        expansions = dict(zip(self.dev_corpus.ids, written, strict=True))
        return Expanded(expansions, queries=None)


class DeepCTRecipe(TransformerRecipe):
    """The recipe for DeepCT, with its hyperparameters."""

    epochs: int = Field(3, ge=1, description="DeepCT: 100,000 steps on MS MARCO; early stopping ends it")
    learning_rate: float = Field(2e-5, gt=0, description="DeepCT; small models take 1e-3")
    batch_size: int = Field(16, ge=1, description="DeepCT: passages in a step")
    max_length: int = Field(128, ge=8, description="DeepCT, for MS MARCO's passages")
    hard_negatives: int = Field(0, ge=0, le=0, description="a regression has no negatives")


def term_recall(queries: Sequence[str], analyse: Analyser) -> dict[str, float]:
    """Return {term: share of the queries that contain it}.

    >>> from airgen.text.analysis import analyser
    >>> term_recall(["do cats purr", "cats"], analyser("en"))
    {'cat': 1.0, 'purr': 0.5}
    """
    counts = Counter(term for query in queries for term in dict.fromkeys(analyse(query)))
    return {term: count / len(queries) for term, count in counts.items()}


class DeepCTTask(TransformerTask):
    """Trains the regression of term weights."""

    weighted = False
    SYSTEM = ("deepct", "model", "max_length")
    RECIPE = DeepCTRecipe
    recipe: DeepCTRecipe

    def __init__(self, recipe: DeepCTRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device)
        transformers = load_extra("transformers", "training DeepCT")
        self.tokenizer = load_base(base).tokenizer
        loader = transformers.AutoModelForTokenClassification.from_pretrained
        self.model = load_model(loader, base, "pretrained_model_name_or_path", num_labels=1).to(device)
        self._analyse = analyser(data.corpus.language)
        queries_of: dict[int, list[str]] = {}
        for example in data.examples:
            for place in example.positives:
                queries_of.setdefault(place, []).append(example.query)
        self._recall = {place: term_recall(queries, self._analyse) for place, queries in sorted(queries_of.items())}
        self._places = list(self._recall)
        if len(self._places) < 2:
            raise DatasetError("fewer than two passages have a training query, which is not enough for DeepCT")
        self._limit = token_limit(self.model, recipe.max_length)

    def batches(self, epoch: int) -> list[Batch]:
        """Yield each passage that has a query once, as its position in the corpus."""
        parts = epoch_batches(len(self._places), self.recipe.batch_size, self.recipe.seed, epoch)
        return [Batch(epoch, epoch * len(parts) + place, tuple(part)) for place, part in enumerate(parts)]

    def describe_batch(self, batch: Any) -> str:
        return f"passages {first_three([self.data.corpus.ids[self._places[number]] for number in batch.examples])}"

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """Compute the squared error between weight and query-term recall, averaged over words."""
        places = [self._places[number] for number in batch.examples]
        texts = [self.data.corpus.full_text(place) for place in places]
        encoded, words = words_of(self.tokenizer, texts, self._limit)
        rows, tokens, targets = [], [], []
        for row, (place, spans) in enumerate(zip(places, words, strict=True)):
            recall = self._recall[place]
            for token, start, end in spans:
                rows.append(row)
                tokens.append(token)
                terms = self._analyse(texts[row][start:end])
                targets.append(max((recall.get(term, 0.0) for term in terms), default=0.0))
        scores = self.model(**{name: value.to(self.device) for name, value in encoded.items()}).logits[..., 0].float()
        wanted = self.torch.tensor(targets, device=self.device)
        return {"loss": self.torch.nn.functional.mse_loss(scores[rows, tokens], wanted)}

    def retriever(self) -> Retriever:
        """Build BM25 over the pseudo-documents of the dev corpus."""
        weigher = TermWeigher(IN_TRAINING, max_length=self.recipe.max_length)
        weigher.parts = self.model, self.tokenizer
        return DeepCT(weigher)


class SpartaRecipe(TransformerRecipe):
    """The recipe for SPARTA. BEIR fine-tuned DistilBERT on MS MARCO; values that it does not state are ours."""

    epochs: int = Field(3, ge=1, description="ours; early stopping ends it")
    learning_rate: float = Field(2e-5, gt=0, description="usual for a pretrained transformer; small models take 1e-3")
    batch_size: int = Field(32, ge=1, description="ours: in-batch negatives")
    max_length: int = Field(256, ge=8, description="BEIR's models, section 4")
    hard_negatives: int = Field(1, ge=0, description="ours: one BM25 negative for each query")
    top_terms: int = Field(2000, ge=1, description="SPARTA: impacts kept for each passage, also when searching")


def impacts(terms: Any, states: Any, mask: Any, bias: Any) -> Any:
    """Compute log(1 + ReLU(max_j <e_t, s_j> + b)), (passages, terms).

    Args:
        terms: Embeddings of the terms, (terms, dim).
        states: Token states, (passages, tokens, dim).
        mask: bool (passages, tokens), False for padding.
        bias: The bias b.
    """
    torch = load_extra("torch", "training SPARTA")
    products = torch.einsum("td,pjd->ptj", terms, states).masked_fill(~mask[:, None, :], -torch.inf)
    return torch.log1p(torch.relu(products.amax(dim=-1) + bias))


class SpartaTask(TransformerTask):
    """Trains a SPARTA model."""

    SYSTEM = ("sparta", "model", "max_length", "top_terms")
    RECIPE = SpartaRecipe
    recipe: SpartaRecipe

    def __init__(self, recipe: SpartaRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device)
        loaded = load_base(base)
        self.tokenizer = loaded.tokenizer
        self.model = self.torch.nn.Module()
        self.model.encoder = loaded.model
        self.model.bias = self.torch.nn.Parameter(self.torch.zeros(1))
        self.model.to(device).train()
        self._limit = token_limit(loaded.model, recipe.max_length)

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """Compute InfoNCE over the scores of every query with every passage in the batch."""
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
        with torch.autocast(torch.device(self.device).type, enabled=False):  # sums of many impacts need fp32
            scores = counts @ weights.float().T
        return {"loss": info_nce(scores, self.tensor(targets), self.tensor(masked))}

    def retriever(self) -> Retriever:
        """Build search over the inverted index of impacts."""
        encoder = SpartaEncoder(IN_TRAINING, max_length=self.recipe.max_length, top_terms=self.recipe.top_terms)
        encoder.parts = self.model.encoder, self.tokenizer, float(self.model.bias.detach())
        return Sparta(encoder)

    def save(self, folder: Path) -> None:
        """Write a transformers folder with b in its config."""
        setattr(self.model.encoder.config, BIAS, float(self.model.bias.detach()))
        save_with_tokenizer(self.model.encoder, self.tokenizer, folder)

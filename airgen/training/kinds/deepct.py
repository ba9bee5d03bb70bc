"""DeepCT (Dai and Callan, 2020; BEIR's section 4): which words of a passage would its queries name?

    airgen train deepct --on scifact --base all-minilm-l6-v2 --out models/deepct

The target of a term in a passage is its query-term recall, the share of the passage's training queries that hold it;
terms are those of the BM25 index (stemmed, without stopwords), so that "statins" is recalled by "statin". A linear
layer on the transformer regresses it by squared error on the first piece of each word. Passages without a query say
nothing and are not trained on. The retriever is `airgen.retrievers.lexical.deepct`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from airgen.errors import DatasetError
from airgen.registry import load_extra
from airgen.retrievers.dense.embedders import loaded, model_place
from airgen.retrievers.lexical.deepct import DeepCT, TermWeigher, words_of
from airgen.text.analysis import Analyser, analyser
from airgen.training.base_models import load_base, quiet
from airgen.training.data import TrainingSet, epoch_batches
from airgen.training.kinds.sentence_transformers import Batch, LibraryRecipe, LibraryTask, train_library
from airgen.training.loop import Trained
from airgen.training.recipe import Request

__all__ = ["RECIPE", "DeepCTRecipe", "DeepCTTask", "term_recall", "train"]


class DeepCTRecipe(LibraryRecipe):
    """DeepCT's hyperparameters."""

    epochs: int = Field(3, ge=1, description="DeepCT: 100,000 steps on MS MARCO; early stopping ends it")
    learning_rate: float = Field(2e-5, gt=0, description="DeepCT; small models take 1e-3")
    batch_size: int = Field(16, ge=1, description="DeepCT: passages a step")
    max_length: int = Field(128, ge=8, description="DeepCT, for MS MARCO's passages")
    hard_negatives: int = Field(0, ge=0, le=0, description="a regression has none")


RECIPE = DeepCTRecipe


def term_recall(queries: Sequence[str], analyse: Analyser) -> dict[str, float]:
    """The share of the queries that hold each of their terms.

    >>> from airgen.text.analysis import analyser
    >>> term_recall(["do cats purr", "cats"], analyser("en"))
    {'cat': 1.0, 'purr': 0.5}
    """
    counts = Counter(term for query in queries for term in dict.fromkeys(analyse(query)))
    return {term: count / len(queries) for term, count in counts.items()}


class DeepCTTask(LibraryTask):
    """Model, regression loss, and dev figures of BM25 over the pseudo-documents."""

    memory = ("batch_size", "max_length")
    recipe: DeepCTRecipe

    def __init__(self, recipe: DeepCTRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device)
        self.torch = load_extra("torch", "training DeepCT")
        transformers = load_extra("transformers", "training DeepCT")
        self.tokenizer = load_base(base).tokenizer
        kind = transformers.AutoModelForTokenClassification
        with quiet():
            self.model = loaded(
                "the base model",
                base,
                kind.from_pretrained,
                pretrained_model_name_or_path=model_place(base),
                num_labels=1,
            ).to(device)
        self._analyse = analyser(data.corpus.language)
        asked: dict[int, list[str]] = {}
        for example in data.examples:
            for place in example.positives:
                asked.setdefault(place, []).append(example.query)
        self._recall = {place: term_recall(queries, self._analyse) for place, queries in sorted(asked.items())}
        self._places = list(self._recall)
        if len(self._places) < 2:
            raise DatasetError("fewer than two passages have a training query: DeepCT learns from passages")
        limit = getattr(self.model.config, "max_position_embeddings", None) or recipe.max_length
        self._limit = min(recipe.max_length, limit)

    def batches(self, epoch: int) -> list[Batch]:
        """All passages with a query once; a batch's numbers are theirs, in the order of the corpus."""
        dealt = epoch_batches(len(self._places), self.recipe.batch_size, self.recipe.seed, epoch)
        return [Batch(epoch, epoch * len(dealt) + place, tuple(one)) for place, one in enumerate(dealt)]

    def told(self, batch: Any) -> str:
        """The ids of the first passages of a batch."""
        ids = [self.data.corpus.ids[self._places[number]] for number in batch.examples[:3]]
        return f"passages {', '.join(ids)}{', ...' if len(batch.examples) > 3 else ''}"

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """Squared error between weight and query-term recall, the mean over words."""
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

    def evaluate(self) -> dict[str, float]:
        """BM25 over the pseudo-documents of the dev corpus."""
        return self.search_dev(DeepCT(_InTraining(self.model, self.tokenizer, self.recipe.max_length)))

    def save(self, folder: Path) -> None:
        """A folder of transformers: a token classifier with one output."""
        with quiet():
            self.model.save_pretrained(str(folder))
            self.tokenizer.save_pretrained(str(folder))

    def system(self, folder: Path) -> Mapping[str, Any]:
        """`kind: deepct`."""
        return {"kind": "deepct", "model": str(folder), "max_length": self.recipe.max_length}


class _InTraining(TermWeigher):
    """The model as it stands, for the dev queries."""

    def __init__(self, model: Any, tokenizer: Any, max_length: int) -> None:
        super().__init__("in training", max_length=max_length)
        self._parts = model, tokenizer

    @property
    def parts(self) -> tuple[Any, Any]:
        return self._parts


def train(request: Request) -> Trained:
    """Train DeepCT on a dataset's queries and positives."""
    recipe = request.recipe_of(DeepCTRecipe)
    return train_library("deepct", request, recipe, lambda data, device: DeepCTTask(recipe, data, request.base, device))

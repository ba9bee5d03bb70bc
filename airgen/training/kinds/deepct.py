"""DeepCT (Dai and Callan, 2020; BEIR's section 4): predict which words of a passage its queries name.

    airgen train deepct --on scifact --base all-minilm-l6-v2 --out models/deepct

The target of a term in a passage is its query-term recall: the share of the passage's training queries that contain it.
Terms are those of the BM25 index (stemmed, without stopwords), so the query word "statin" recalls "statins". A linear
layer on the transformer predicts the target from the first piece of each word, with squared error. Passages without a
training query are not trained on. The retriever is `airgen.retrievers.lexical.expanded`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from airgen.errors import DatasetError
from airgen.registry import load_extra
from airgen.retrievers.lexical.expanded import DeepCT, TermWeigher, words_of
from airgen.text.analysis import Analyser, analyser
from airgen.training.base_models import load_base
from airgen.training.data import TrainingSet
from airgen.training.kinds.transformer import (
    IN_TRAINING,
    Batch,
    TransformerRecipe,
    TransformerTask,
    first_three,
    load_model,
    save_with_tokenizer,
    token_limit,
)
from airgen.training.order import epoch_batches


class DeepCTRecipe(TransformerRecipe):
    """DeepCT's hyperparameters."""

    epochs: int = Field(3, ge=1, description="DeepCT: 100,000 steps on MS MARCO; early stopping ends it")
    learning_rate: float = Field(2e-5, gt=0, description="DeepCT; small models take 1e-3")
    batch_size: int = Field(16, ge=1, description="DeepCT: passages in a step")
    max_length: int = Field(128, ge=8, description="DeepCT, for MS MARCO's passages")
    hard_negatives: int = Field(0, ge=0, le=0, description="a regression has no negatives")


def term_recall(queries: Sequence[str], analyse: Analyser) -> dict[str, float]:
    """{term: share of the queries that contain it}.

    >>> from airgen.text.analysis import analyser
    >>> term_recall(["do cats purr", "cats"], analyser("en"))
    {'cat': 1.0, 'purr': 0.5}
    """
    counts = Counter(term for query in queries for term in dict.fromkeys(analyse(query)))
    return {term: count / len(queries) for term, count in counts.items()}


class DeepCTTask(TransformerTask):
    """Trains the regression of term weights."""

    weighted = False
    RECIPE = DeepCTRecipe
    memory = ("batch_size", "max_length")
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
        """All passages with a query once; the numbers of a batch count these passages in the order of the corpus."""
        parts = epoch_batches(len(self._places), self.recipe.batch_size, self.recipe.seed, epoch)
        return [Batch(epoch, epoch * len(parts) + place, tuple(part)) for place, part in enumerate(parts)]

    def describe_batch(self, batch: Any) -> str:
        """The ids of the first passages of a batch."""
        return f"passages {first_three([self.data.corpus.ids[self._places[number]] for number in batch.examples])}"

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
        """Search with BM25 over the pseudo-documents of the dev corpus."""
        weigher = TermWeigher(IN_TRAINING, max_length=self.recipe.max_length)
        weigher.parts = self.model, self.tokenizer
        return self.search_dev(DeepCT(weigher))

    def save(self, folder: Path) -> None:
        """Write a folder of transformers: a token classifier with one output."""
        save_with_tokenizer(self.model, self.tokenizer, folder)

    def system(self, folder: Path) -> Mapping[str, Any]:
        """`kind: deepct`."""
        return {"kind": "deepct", "model": str(folder), "max_length": self.recipe.max_length}

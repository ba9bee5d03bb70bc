"""Train BM25 query augmentation end to end (BM25 Query Augmentation Learned End-to-End, section 2).

    score(q, d) = (w(q) * v * (bow(q) + a(q)))^T f(d)        a(q) = ReLU(W enc(q)_0)    w(q)_i = ReLU(u^T enc(q)_i)
    loss = -log softmax of the positive's score among hard and in-batch negatives  +  l1 * sqrt(h)^T a(q)

Documents are never encoded: v * f(d) are BM25's weights of the passage's WordPiece terms, so a step costs a forward
and a backward pass over short queries. `airgen.retrievers.lexical.augment` holds the formula a second time, for one
query by numpy; a test compares the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.registry import load_extra
from airgen.retrievers.base import Corpus
from airgen.retrievers.lexical.augment import SETTINGS
from airgen.retrievers.lexical.index import LexicalRetriever
from airgen.retrievers.lexical.inverted_index import InvertedIndex
from airgen.retrievers.lexical.query_terms import QueryReader
from airgen.retrievers.lexical.weighting import BM25Weighting, PresenceWeighting
from airgen.text.analysis import Analyser, WordPieces
from airgen.training.base_models import load_base
from airgen.training.data import TrainingSet, draw, epoch_batches, load_training_set, with_negatives
from airgen.training.kinds.augment_model import AugmentModel, EncodedQuery, Start
from airgen.training.loop import Task, Trained, run
from airgen.training.losses import info_nce
from airgen.training.recipe import Recipe, Request

__all__ = ["RECIPE", "AugmentRecipe", "AugmentTask", "train"]

_WORD_TOKENS = 16  # of one word, special ones included


class AugmentRecipe(Recipe):
    """Query augmentation. "Table 2" marks the switches of the paper's ablation."""

    epochs: int = Field(default=10, ge=1, description="paper: 45 (NQ), 10 (EntityQuestions), 2 (MS MARCO)")
    batch_size: int = Field(
        default=32, ge=2, description="paper: 144 of 58,880 queries or more; a few hundred would make one step an epoch"
    )
    learning_rate: float = Field(default=3e-5, gt=0, description="of the encoder; paper: 3e-4 (NQ), 3e-5 (MS MARCO)")
    head_learning_rate: float = Field(default=3e-4, gt=0, description="of W and u; the paper has one rate for all (NQ)")
    hard_negatives: int = Field(default=1, ge=0, description="paper: 1 (NQ), 4 (MS MARCO), mined by BM25")
    l1: float = Field(default=0.1, ge=0, description="lambda; paper: 0.1 (NQ), 0.025 (MS MARCO)")
    weighted_l1: bool = Field(default=True, description="Table 2: by sqrt of document frequency, or the same for all")
    weights: bool = Field(default=True, description="Table 2: learn w, or leave it at 1")
    scoring: Literal["bm25", "bow"] = Field(default="bm25", description="Table 2: BM25's weights, or bags of words")
    augmentation: bool = Field(default=True, description="learn a, or leave it at 0 (not in the paper's table)")
    terms: Literal["wordpiece", "words"] = Field(
        default="wordpiece", description="what is indexed, weighted and added; words: stems, without stop words"
    )
    k1: float = Field(default=0.9, ge=0, description="Pyserini's default, as BEIR's")
    b: float = Field(default=0.4, ge=0, le=1, description="Pyserini's default, as BEIR's")
    temperature: float = Field(default=1.0, gt=0, description="scores are divided by it; the paper has none")
    pooling: Literal["cls", "mean"] = Field(
        default="cls", description="enc(q)_0; or the tokens' mean at length 1, as sentence encoders were trained"
    )
    start: Literal["random", "terms"] = Field(
        default="random", description="W: random (paper), or the base's own encoding of each term, for little data"
    )
    start_scale: float = Field(default=1.0, gt=0, description="terms: a of a term whose cosine with the query is 1")
    start_added: int = Field(
        default=20, ge=0, description="terms: how many a training query gains at first, on average"
    )
    train_encoder: bool = Field(default=True, description="or only W and u: many times faster, for little data")
    max_query_tokens: int = Field(default=64, ge=3, le=512, description="the encoder sees no more of a query")


RECIPE = AugmentRecipe


def train(request: Request) -> Trained:
    """Train and write a folder that `{kind: augment, path: OUT}` evaluates."""
    recipe = request.recipe_of(AugmentRecipe)
    data = load_training_set(
        request.on, split=request.split, fold=request.fold, dev_share=recipe.dev_share, language=request.language
    )
    data = with_negatives(data, recipe)
    return run("augment", lambda device: AugmentTask(recipe, data, request.base, device), recipe, data, request)


class AugmentTask(Task):
    """The loop's view of it: `names` are the terms by column (see `augment_model`), as the index numbers them."""

    memory = ("batch_size", "max_query_tokens", "hard_negatives")

    def __init__(self, recipe: AugmentRecipe, data: TrainingSet, base: str, device: str) -> None:
        self.torch = load_extra("torch", "training")
        self.recipe, self.data, self.device = recipe, data, device
        loaded = load_base(base)
        self.tokenizer_json = loaded.tokenizer.backend_tokenizer.to_str()
        with TemporaryDirectory() as folder:
            (Path(folder) / "tokenizer.json").write_text(self.tokenizer_json, encoding="utf-8")
            self.read = QueryReader(Path(folder), recipe.max_query_tokens, recipe.terms, data.corpus.language)
            bm25 = recipe.scoring == "bm25"
            self.retriever = LexicalRetriever(
                BM25Weighting(recipe.k1, recipe.b) if bm25 else PresenceWeighting(), analyser=self.read.analyser
            )
            self.retriever.index(data.corpus)
        self.names = list(self.retriever.vocabulary)
        # The paper's f(d) has the factor k + 1, which orders nothing but scales the loss; our index leaves it out.
        self.documents = _Rows(self.retriever.postings, recipe.k1 + 1 if bm25 else 1.0)
        frequencies = np.diff(self.retriever.postings.starts).astype(np.float32)
        penalty = np.sqrt(frequencies / len(data.corpus)) if recipe.weighted_l1 else np.ones_like(frequencies)
        self.penalty = self.torch.tensor(penalty, device=device)
        self.queries = self._encoded([example.query for example in data.examples])
        self.dev = self._encoded(list(data.dev.queries.values()))
        self.augment = AugmentModel(
            loaded,
            self.names,
            pooling=recipe.pooling,
            weights=recipe.weights,
            augmentation=recipe.augmentation,
            train_encoder=recipe.train_encoder,
            device=device,
        )
        start = Start(recipe.start, recipe.start_scale, recipe.start_added)
        spelt = spelling(self.read.analyser, data.corpus, self.names, loaded.tokenizer) if start.how == "terms" else []
        self.augment.start(start, spelt, self.queries)
        if not recipe.train_encoder:
            self.augment.remember([query.ids for query in (*self.queries, *self.dev)])
        if (Path(base) / SETTINGS).is_file():
            self.augment.take(Path(base))
        self.model = self.augment.module

    def _encoded(self, texts: Sequence[str]) -> list[EncodedQuery]:
        known = self.retriever.vocabulary
        found = []
        for query in self.read(texts):
            columns = [-1 if term is None else known.get(term, -1) for term in query.terms]
            every = dict.fromkeys(column for column in columns if column >= 0)
            every |= dict.fromkeys(known[term] for term in query.rest if term in known)
            found.append(EncodedQuery(query.ids, columns, list(every)))
        return found

    def batches(self, epoch: int) -> Sequence[tuple[int, list[int]]]:
        """(epoch, places of examples)."""
        recipe = self.recipe
        batches = epoch_batches(len(self.data.examples), recipe.batch_size, recipe.seed, epoch)
        return [(epoch, batch) for batch in batches]

    def loss(self, batch: tuple[int, list[int]]) -> Mapping[str, Any]:
        """Contrastive loss and penalty; `added` is how many terms a query gains."""
        epoch, places = batch
        examples = [self.data.examples[place] for place in places]
        drawn = [draw(one, self.recipe.hard_negatives, self.recipe.seed, epoch) for one in examples]
        passages = [positive for positive, _ in drawn] + [one for _, negatives in drawn for one in negatives]
        weighted, added = self.augment.weights([self.queries[place] for place in places])
        documents = self.torch.tensor(self.documents.dense(passages), device=self.device)
        positives = [frozenset(one.positives) for one in examples]
        masked = [
            [place != row and p in positives[row] for place, p in enumerate(passages)] for row in range(len(drawn))
        ]
        rank = info_nce(
            weighted @ documents.T / self.recipe.temperature,
            self.torch.arange(len(drawn), device=self.device),
            self.torch.tensor(masked, device=self.device),
        )
        penalty = (added * self.penalty).sum(-1).mean()
        count = (added > 0).float().sum(-1).mean()
        return {"loss": rank + self.recipe.l1 * penalty, "rank": rank, "penalty": penalty, "added": count}

    def groups(self, recipe: Recipe) -> list[dict[str, Any]]:
        """The heads have a learning rate of their own."""
        found = []
        for name, part in self.model.items():
            rate = self.recipe.learning_rate if name == "encoder" else self.recipe.head_learning_rate
            weights = [tensor for tensor in part.parameters() if tensor.requires_grad]
            for decayed in (True, False):
                chosen = [tensor for tensor in weights if (tensor.ndim >= 2) is decayed]
                if chosen:
                    found.append(
                        {"params": chosen, "lr": rate, "weight_decay": recipe.weight_decay if decayed else 0.0}
                    )
        return found

    def evaluate(self) -> Mapping[str, float]:
        """Search with the learned weights, as the retriever will."""
        queries: list[dict[str, float]] = []
        added = 0.0
        for first in range(0, len(self.dev), 64):
            weighted, extra = self.augment.weights(self.dev[first : first + 64])
            added += float((extra > 0).sum())
            for row in weighted.cpu().numpy():
                columns = np.flatnonzero(row)
                queries.append({self.names[column]: float(row[column]) for column in columns})
        if not queries:
            return {}
        figures = self.data.dev.figures(self.retriever.search_weighted(queries, 100), self.data.corpus)
        return {**figures, "added": round(added / len(queries), 3)}

    def system(self, folder: Path) -> Mapping[str, Any]:
        """`kind: augment`."""
        return {"kind": "augment", "path": str(folder)}

    def save(self, folder: Path) -> None:
        """What `airgen.retrievers.lexical.augment` loads."""
        settings = self.recipe.model_dump(
            include={"terms", "k1", "b", "scoring", "weights", "augmentation", "pooling", "max_query_tokens"}
        )
        language = self.data.corpus.language
        self.augment.save(folder, self.tokenizer_json, {**settings, "language": language})

    def told(self, batch: tuple[int, list[int]]) -> str:
        """Which queries it holds."""
        ids = [self.data.examples[place].id for place in batch[1]]
        return f"queries {', '.join(ids[:5])}{', ...' if len(ids) > 5 else ''}"


def spelling(terms: Analyser, corpus: Corpus, names: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Token ids of each term, special ones included: of the word that stands behind it most often in the corpus.

    A WordPiece term stands for itself.
    """
    if isinstance(terms, WordPieces):
        known = tokenizer.get_vocab()
        return [[tokenizer.cls_token_id, known[name], tokenizer.sep_token_id] for name in names]
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for position in range(len(corpus)):
        words = terms.split(terms.prepare(corpus.full_text(position)))
        for word, term in zip(words, terms.terms(words), strict=True):
            if term is not None:
                counts[term][word.lower()] += 1
    chosen = [min(found, key=lambda word: (-found[word], word)) for found in counts.values()]
    return [tokenizer.encode(word, truncation=True, max_length=_WORD_TOKENS) for word in chosen]


class _Rows:
    """Passages by their terms: what the index holds by term, turned round."""

    def __init__(self, index: InvertedIndex, factor: float) -> None:
        self._width = len(index.starts) - 1
        columns = np.repeat(np.arange(self._width, dtype=np.int32), np.diff(index.starts))
        order = np.argsort(index.positions, kind="stable")
        self._columns, self._impacts = columns[order], index.impacts[order] * np.float32(factor)
        self._starts = np.zeros(index.size + 1, np.int64)
        np.cumsum(np.bincount(index.positions, minlength=index.size), out=self._starts[1:])

    def dense(self, passages: Sequence[int]) -> NDArray[np.float32]:
        """v * f(d) of passages, (passages, columns)."""
        found = np.zeros((len(passages), self._width), np.float32)
        for row, passage in enumerate(passages):
            part = slice(self._starts[passage], self._starts[passage + 1])
            found[row, self._columns[part]] = self._impacts[part]
        return found

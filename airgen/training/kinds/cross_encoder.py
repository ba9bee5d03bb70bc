"""A cross-encoder for BM25+CE, by sentence-transformers' losses.

    airgen train cross-encoder --on scifact --base all-minilm-l6-v2 --set teacher=maxsim --out models/ce

BEIR's cross-encoder was distilled from an ensemble of three teachers with the margin-MSE loss of Hofstätter and others
(its section 4): it learns the teachers' difference between the scores of a positive and a negative. Without a teacher
the loss is binary cross-entropy over the positive and the negatives. Dev figures are those of BM25's best hits,
re-ranked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from airgen.registry import load_extra
from airgen.retrievers.base import Hits
from airgen.retrievers.lexical.bm25 import BM25
from airgen.training.data import TrainingSet
from airgen.training.kinds.transformer import Batch, SentenceTransformersTask, TransformerRecipe, load_model
from airgen.training.teachers import TeacherSpec


class CrossEncoderRecipe(TransformerRecipe):
    """BEIR names the teachers and the loss; the other numbers are those of Hofstätter and others (2021)."""

    epochs: int = Field(2, ge=1, description="ours; early stopping may end it before")
    learning_rate: float = Field(7e-6, gt=0, description="Hofstätter and others; small models take 1e-4")
    batch_size: int = Field(32, ge=1, description="Hofstätter and others")
    max_length: int = Field(256, ge=8, description="query and passage together")
    hard_negatives: int = Field(
        4, ge=1, description="the teachers' paper: 1 of a long list in each step; ours: 4 make better use of a pass"
    )
    teacher: TeacherSpec = Field(
        None, description="re-rankers whose mean margin is learned; null: binary cross-entropy"
    )
    rerank_depth: int = Field(
        50, ge=1, description="BM25 hits of each dev query that are re-ranked for the dev figures"
    )


class CrossEncoderTask(SentenceTransformersTask):
    """Trains a cross-encoder."""

    RECIPE = CrossEncoderRecipe
    recipe: CrossEncoderRecipe

    def __init__(self, recipe: CrossEncoderRecipe, data: TrainingSet, base: str, device: str) -> None:
        super().__init__(recipe, data, device, recipe.teacher)
        library = load_extra("sentence_transformers", "training a cross-encoder")
        losses = load_extra("sentence_transformers.cross_encoder.losses", "training a cross-encoder")
        self.model = load_model(library.CrossEncoder, base, num_labels=1, max_length=recipe.max_length, device=device)
        self._loss = (losses.MarginMSELoss if self.teacher else losses.BinaryCrossEntropyLoss)(self.model)
        self._first: Hits | None = None

    def loss(self, batch: Batch) -> Mapping[str, Any]:
        """Margin-MSE to the teachers, or binary cross-entropy."""
        sample = self.sample(batch, self.recipe.hard_negatives)
        columns = self.columns(sample)
        if self.teacher:
            return {"loss": self._loss(columns, self.teacher_scores(sample))}
        queries = [query for _ in columns[1:] for query in columns[0]]
        passages = [text for column in columns[1:] for text in column]
        labels = self.torch.zeros(len(queries), device=self.device)
        labels[: len(columns[0])] = 1.0  # the positives are the first column
        return {"loss": self._loss([queries, passages], labels)}

    def evaluate(self) -> dict[str, float]:
        """Re-rank BM25's best hits of the dev queries."""
        dev, corpus = self.data.dev, self.dev_corpus
        if not len(dev):
            return {}
        queries = list(dev.queries.values())
        if self._first is None:
            first = BM25()
            first.index(corpus)
            self._first = first.search(queries, self.recipe.rerank_depth)
        positions = self._first.positions
        rows, columns = np.nonzero(positions >= 0)
        pairs = [
            (queries[row], corpus.full_text(int(positions[row, at]))) for row, at in zip(rows, columns, strict=True)
        ]
        scores = np.full(positions.shape, -np.inf, np.float32)
        if pairs:
            scores[rows, columns] = self.model.predict(pairs, batch_size=64, show_progress_bar=False)
        order = np.argsort(-scores, axis=1, kind="stable")
        hits = Hits(np.take_along_axis(positions, order, 1), np.take_along_axis(scores, order, 1))
        return dev.figures(hits, corpus)

    def system(self, folder: Path) -> Mapping[str, Any]:
        """`kind: rerank`, after a system that is named bm25."""
        return {"kind": "rerank", "first": "bm25", "reranker": str(folder)}

"""Checks of a model's output before it is used: shape, length, finite numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.errors import CorpusError, ModelError
from airgen.retrievers.base import Corpus


def finite(vectors: NDArray[np.float32], model: str) -> NDArray[np.float32]:
    """The vectors themselves. Raises ModelError where one holds NaN or infinity, with its position in the batch."""
    good = np.isfinite(vectors).all(axis=-1)
    if not good.all():
        raise ModelError(f"{model} gave NaN or infinity for text {int(np.flatnonzero(~good)[0])} of its batch")
    return vectors


def unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows scaled to length 1; a row of zeros stays as it is."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.float32(1e-12)), np.float32)


def checked_scores(scores: Any, count: int, model: str) -> NDArray[np.float32]:
    """Scores as float32 (count,). Raises ModelError for another number of them, NaN or infinity."""
    array = np.asarray(scores, np.float32).reshape(-1)
    if len(array) != count:
        raise ModelError(f"{model} gave {len(array)} scores for {count} pairs")
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ModelError(f"{model} gave {array[bad]} as the score of pair {bad}: a score must be a finite number")
    return array


def non_empty(corpus: Corpus) -> Corpus:
    """The corpus itself. Raises CorpusError for one without passages or with sequences of unequal length."""
    if not len(corpus):
        raise CorpusError("the corpus has no passages")
    if len(corpus.texts) != len(corpus.ids) or len(corpus.titles) not in (0, len(corpus.ids)):
        raise CorpusError(
            f"the corpus has {len(corpus.ids)} ids, {len(corpus.texts)} texts and {len(corpus.titles)} titles"
        )
    return corpus

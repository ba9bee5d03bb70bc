"""Protocols of retrievers, embedders and re-rankers: the methods that airgen calls.

retriever.index(corpus)                 once
retriever.search(queries, k) -> Hits    integer positions into the corpus, best first
reranker.score(pairs) -> float32 (n,)   a score per (query, passage) pair; higher is better
embedder.encode(texts, kind) -> float32 (n, dim), unit length
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from airgen.retrievers.hits import Hits
from airgen.retrievers.passages import Passages

TextKind = Literal["query", "passage"]
IndexProgress = Callable[[int, int], None]
"""A function that takes the number of finished passages and the total."""


@runtime_checkable
class Embedder(Protocol):
    """Encodes texts as vectors whose inner product is their similarity. For most models, the vectors have length 1."""

    name: str

    @property
    def dim(self) -> int:
        """Return the number of dimensions of a vector."""

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Return the vectors of texts, float32 (len(texts), dim)."""

    def describe(self) -> Mapping[str, object]:
        """Return every setting that affects the vectors: model, hash, prefixes, pooling, maximum length."""


@runtime_checkable
class Reranker(Protocol):
    """Scores (query, passage) pairs. Only the order of the scores for the same query is meaningful."""

    name: str

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return the scores of pairs, float32 (len(pairs),)."""

    def describe(self) -> Mapping[str, object]:
        """Return every setting that affects the scores."""


@runtime_checkable
class CorpusReranker(Reranker, Protocol):
    """A re-ranker that uses statistics of the corpus, and must be fitted first."""

    def fit(self, corpus: Passages) -> object:
        """Compute statistics of the corpus. Must be called before `score`."""


@runtime_checkable
class Retriever(Protocol):
    """A retrieval system: a first stage, or a combination of systems."""

    name: str

    def index(self, corpus: Passages) -> None:
        """Index the corpus. Must be called before `search`."""

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k best passages per query, with arrays of shape (len(queries), k)."""

    def describe(self) -> Mapping[str, object]:
        """Return every setting that affects the results, for the record of a run."""


def show_corpus(reranker: Reranker, corpus: Passages) -> bool:
    """Fit a re-ranker to the corpus if necessary, and return whether it was."""
    if isinstance(reranker, CorpusReranker):
        reranker.fit(corpus)
        return True
    return False

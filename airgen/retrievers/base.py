"""The protocols of retrieval, shared by quality control and evaluation.

retriever.index(corpus)                 once
retriever.search(queries, k) -> Hits    integer positions into the corpus, best first
reranker.score(pairs) -> float32 (n,)   one score a (query, passage) pair, higher is better
embedder.encode(texts, kind) -> float32 (n, dim), unit length
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.beir import BeirPassage
from airgen.records import flat_text

__all__ = ["Corpus", "Embedder", "Hits", "Reranker", "Retriever", "TextKind"]

TextKind = Literal["query", "passage"]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Parallel sequences of passages. `titles` is empty or as long as `texts`; `language` is an ISO 639-1 code."""

    ids: Sequence[str]
    texts: Sequence[str]
    titles: Sequence[str] = ()
    language: str = "en"

    @classmethod
    def from_passages(cls, passages: Iterable[BeirPassage], language: str) -> Corpus:
        """The passages of a BEIR directory, in memory; `titles` stays empty where no passage has a title."""
        every = list(passages)
        titles = [passage.title for passage in every]
        texts = [passage.text for passage in every]
        return cls([passage.id for passage in every], texts, titles if any(titles) else (), language)

    def __len__(self) -> int:
        return len(self.ids)

    def full_text(self, position: int) -> str:
        """Title and text joined by a space, as BEIR gives them to a model."""
        return flat_text(self.titles[position] if self.titles else "", self.texts[position])


@dataclass(frozen=True, slots=True)
class Hits:
    """The result of a search over n queries.

    positions: int32 (n, k), places in the corpus, best first, -1 after the last hit.
    scores:    float32 (n, k), -inf after the last hit.
    Ties stand in the order of position, so equal inputs give equal hits.
    """

    positions: NDArray[np.int32]
    scores: NDArray[np.float32]


@runtime_checkable
class Embedder(Protocol):
    """Texts to unit vectors. `name` identifies model and settings for the cache."""

    name: str
    dim: int

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Shape (len(texts), dim), rows of length 1."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes the vectors: model, hash, prefixes, pooling, maximum length."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Scores (query, passage) pairs; only the order of the scores within one query has a meaning."""

    name: str

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Shape (len(pairs),), in the order of the pairs."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes the scores."""
        ...


@runtime_checkable
class Retriever(Protocol):
    """A first-stage or combined system."""

    name: str

    def index(self, corpus: Corpus) -> None:
        """Read the corpus once; must be called before `search`."""
        ...

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The k best passages of each query."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes the result, for the record of a run."""
        ...

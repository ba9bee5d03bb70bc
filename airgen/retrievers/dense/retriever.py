"""Dense retrieval: one vector for each text, exact search by inner product.

Vectors are kept as fp16, in a folder (`airgen.retrievers.encodings`) or in memory, so that results are equal with and
without a cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from airgen.errors import ModelError, UsageError
from airgen.retrievers.base import Component, Corpus, Embedder, Hits, finite, half, non_empty
from airgen.retrievers.dense.exact_search import search, search_shards
from airgen.retrievers.encodings import store_of, took_over
from airgen.retrievers.on_workers import encoded
from airgen.settings.base import FILE, SPEED
from airgen.settings.parts import Part, located

_BATCH = 256  # texts embedded between two writes; a crash loses at most these


class Dense(Component):
    """An embedder and exact search over a corpus (paper 2.4, step 1)."""

    class Settings(Component.Settings):
        """`cache`: the root folder for embeddings, or None to keep them in memory, or where `shared_encodings` says."""

        embedder: Annotated[Any, Part("embedder")] = "all-minilm-l6-v2-int8"
        cache: Annotated[Path | None, SPEED, FILE] = None

    settings: Settings
    embedder: Embedder

    def set_up(self) -> None:
        self.name = f"dense {self.embedder.name}"
        self._matrix: NDArray[np.float16] | None = None
        self._rows: NDArray[np.int64] | None = None
        self._file: tuple[Path, int] | None = None  # of the matrix, and the place of its first row there

    @property
    def index_bytes(self) -> int | None:
        return None if self._matrix is None else self._matrix.nbytes + (0 if self._rows is None else self._rows.nbytes)

    def index(self, corpus: Corpus) -> None:
        """Embed the passages that are not in the cache yet. Raises CorpusError for an empty corpus."""
        non_empty(corpus)
        cache, texts, dim = self.settings.cache, corpus.full_texts, self.embedder.dim
        store = store_of(self.embedder, "vectors", cache and located(str(cache), self.folder))
        self._rows = self._file = None
        if store is None:
            self._matrix = np.zeros((len(corpus), dim), np.float16)
            for place, vectors in self._embedded(texts, np.arange(len(corpus))):
                self._matrix[place] = vectors
            return
        store.check(2 * dim)
        new = store.missing(texts)
        for place, vectors in self._embedded(texts, new):
            store.keep({texts[at]: (row,) for at, row in zip(place.tolist(), vectors, strict=True)})
        took_over(len(corpus) - len(new))
        rows = store.starts(texts) // (2 * dim)
        matrix = np.memmap(store.data, np.float16, "r", shape=(store.data.stat().st_size // (2 * dim), dim))
        first = int(rows[0])
        if np.array_equal(rows, np.arange(first, first + len(rows))):
            self._matrix, self._file = matrix[first : first + len(rows)], (store.data, first)
        else:
            self._matrix, self._rows, self._file = matrix, rows, (store.data, 0)

    def _embedded(
        self, texts: Sequence[str], places: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float16]]]:
        """The vectors of the texts at these places, a batch at a time, in fp16."""
        batches = [places[first : first + _BATCH] for first in range(0, len(places), _BATCH)]
        wanted = ([texts[place] for place in batch.tolist()] for batch in batches)
        done = 0
        for batch, vectors in zip(batches, encoded(self.embedder.encode, wanted, "passage"), strict=True):
            yield batch, half(self._checked(vectors, len(batch)), self.embedder.name)
            done += len(batch)
            if self.progress:
                self.progress(done, len(places))

    def _checked(self, vectors: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        if vectors.shape != (count, self.embedder.dim):
            raise ModelError(
                f"{self.embedder.name} gave vectors of shape {vectors.shape} for {count} texts, "
                f"({count}, {self.embedder.dim}) expected: did the model behind it change?"
            )
        return finite(vectors, self.embedder.name)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The k passages with the greatest inner product, exactly. Raises UsageError before `index`."""
        if self._matrix is None:
            raise UsageError("Dense.search before Dense.index: the corpus comes first")
        vectors = np.zeros((0, self.embedder.dim), np.float32)
        if queries:
            vectors = self._checked(self.embedder.encode(list(queries), "query"), len(queries))
        if self._file is None:
            return search(self._matrix, vectors, k)
        path, first = self._file
        return search_shards(path, self._matrix, vectors, k, first=first, rows=self._rows)

    def describe(self) -> Mapping[str, object]:
        """The embedder's settings, and how its vectors are kept and searched."""
        return {
            "family": "dense",
            "embedder": dict(self.embedder.describe()),
            "rows": "fp16",
            "search": "exact",
        }

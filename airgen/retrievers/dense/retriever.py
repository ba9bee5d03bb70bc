"""Dense retrieval: one vector for each text, exact search by inner product.

Vectors are kept as fp16, in a cache folder or in memory, so that results are equal with and without a cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.batches import batched
from airgen.errors import ModelError, UsageError
from airgen.retrievers.base import Component, Corpus, Embedder, Hits
from airgen.retrievers.dense.embedding_cache import EmbeddingCache, cache_folder
from airgen.retrievers.dense.exact_search import faiss_index, search, search_faiss
from airgen.retrievers.dense.onnx_encoder import EmbeddedModel
from airgen.retrievers.dense.shard_search import search_shards
from airgen.retrievers.on_workers import encoded
from airgen.retrievers.output_checks import finite, non_empty
from airgen.retrievers.shared_encodings import shared
from airgen.settings.base import FILE, SPEED
from airgen.settings.parts import Part, located

_BATCH = 256  # texts that the embedder gets at once where there is no cache


class Dense(Component):
    """An embedder and exact search over a corpus (paper 2.4, step 1)."""

    class Settings(Component.Settings):
        """`cache`: the root folder for embeddings, or None to keep them in memory, or where `shared_encodings` says.

        `memory_bytes` bounds the search.
        """

        embedder: Annotated[Any, Part("embedder")] = "all-minilm-l6-v2-int8"
        cache: Annotated[Path | None, SPEED, FILE] = None
        memory_bytes: Annotated[int, SPEED] = Field(default=1 << 30, ge=1)
        backend: Literal["exact", "faiss"] = "exact"

        def required_packages(self) -> tuple[str, ...]:
            """faiss is optional."""
            return ("faiss",) if self.backend == "faiss" else ()

    settings: Settings
    embedder: Embedder

    def set_up(self) -> None:
        self.name = f"dense {self.embedder.name}"
        self._matrix: NDArray[np.float16] | None = None
        self._rows: NDArray[np.int64] | None = None
        self._faiss: Any = None  # made at the first search, and of the same rows
        self._file: tuple[Path, int] | None = None  # of the matrix, and the place of its first row there

    @property
    def index_bytes(self) -> int | None:
        return None if self._matrix is None else self._matrix.nbytes + (0 if self._rows is None else self._rows.nbytes)

    def index(self, corpus: Corpus) -> None:
        """Embed the passages that are not in the cache yet. Raises CorpusError for an empty corpus."""
        non_empty(corpus)
        self._faiss = None
        root, common = self.settings.cache, shared()
        if root is None and common and isinstance(self.embedder, EmbeddedModel):
            root = common.folder.absolute()
        if root is None:
            self._matrix, self._rows, self._file = self._embed(corpus), None, None
            return
        folder = cache_folder(located(str(root), self.folder), self.embedder, "passage")
        with EmbeddingCache(folder, self.embedder, "passage") as cache:
            before = len(cache)
            rows = cache.rows(corpus.full_texts, self.progress)
            if common:
                common.reused += len(corpus) - (len(cache) - before)
            matrix, path = cache.matrix(), cache.rows_path
        first = int(rows[0])
        if np.array_equal(rows, np.arange(first, first + len(rows))):
            self._matrix, self._rows, self._file = matrix[first : first + len(rows)], None, (path, first)
        else:
            self._matrix, self._rows, self._file = matrix, rows, (path, 0)

    def _embed(self, corpus: Corpus) -> NDArray[np.float16]:
        matrix = np.zeros((len(corpus), self.embedder.dim), np.float16)
        done = 0
        for vectors in encoded(self.embedder.encode, batched(corpus.full_texts, _BATCH), "passage"):
            count = min(_BATCH, len(corpus) - done)
            matrix[done : done + count] = self._checked(vectors, count)
            done += count
            if self.progress:
                self.progress(done, len(corpus))
        return matrix

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
        if self.settings.backend == "faiss":
            if self._faiss is None:
                self._faiss = faiss_index(self._matrix, self._rows)
            return search_faiss(self._faiss, vectors, k)
        options: dict[str, Any] = {"rows": self._rows, "memory_bytes": self.settings.memory_bytes}
        if self._file is None:
            return search(self._matrix, vectors, k, **options)
        path, first = self._file
        return search_shards(path, self._matrix, vectors, k, first=first, **options)

    def describe(self) -> Mapping[str, object]:
        """The embedder's settings, and how its vectors are kept and searched."""
        return {
            "family": "dense",
            "embedder": dict(self.embedder.describe()),
            "rows": "fp16",
            "search": self.settings.backend,
        }

"""Latent semantic analysis: TF-IDF vectors reduced by a truncated SVD (Deerwester et al. 1990).

A dense retriever without a trained model, which learns from the corpus itself in seconds. The strongest singular
vectors are found by subspace iteration (Halko, Martinsson and Tropp 2011) in loops with a fixed order, because the last
bits of results from LAPACK and BLAS depend on the processor, and singular values that are nearly equal would amplify
the differences.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.components.registry import load_extra
from airgen.compute.exact_arithmetic import log
from airgen.retrievers.dense import exact_search as exact
from airgen.retrievers.hits import Hits
from airgen.retrievers.lexical.index import Analysing
from airgen.retrievers.model_output import unit_rows
from airgen.retrievers.passages import Passages, non_empty
from airgen.safety.interruptible import interruptible
from airgen.text.analysis import Encoder

_SEED = 42
_FEWEST_PASSAGES = 2  # minimum passages per term; rarer terms are left out


class LSA(Analysing):
    """Cosine similarity in the space of the `dim` strongest components of (1 + ln tf) * idf.

    Equal inputs and seeds give equal results.
    """

    class Settings(Analysing.Settings):
        """Settings of LSA.

        Attributes:
            dim: Number of components.
        """

        packages: ClassVar[tuple[str, ...]] = ("scipy", "numba")
        dim: int = Field(default=200, ge=1)

    settings: Settings
    positional = ("dim",)
    name = "lsa"

    def set_up(self) -> None:
        self._encoder: Encoder | None = None
        self._kept: NDArray[np.int64] = np.empty(0, np.int64)  # term id -> column, -1 for a term that is left out
        self._idf: NDArray[np.float64] = np.empty(0)
        self._components: NDArray[np.float64] = np.empty((0, 0))
        self._matrix: NDArray[np.float32] = np.empty((0, 0), np.float32)

    @property
    def index_bytes(self) -> int | None:
        arrays = (self._kept, self._idf, self._components, self._matrix)
        return sum(array.nbytes for array in arrays) if self._encoder else None

    def index(self, corpus: Passages) -> None:
        """Learn the components from the corpus, and project its passages. Raises MissingExtra or CorpusError."""
        non_empty(corpus)
        self._encoder = Encoder(self.fix_language(corpus.language))
        counts = self._counts(list(corpus.full_texts), fit=True)
        rank = min(self.settings.dim, *counts.shape)
        if rank == 0:  # no term occurs in two passages
            self._components = np.zeros((0, counts.shape[1]))
        else:
            from airgen.retrievers.dense._components_compiled import right_singular_vectors

            self._components = interruptible(lambda: right_singular_vectors(counts, rank, _SEED))
        self._matrix = self._project(counts)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k passages with the greatest cosine similarity per query. A query without a known term has no
        hits."""
        self.indexed(self._encoder)
        vectors = self._project(self._counts(queries, fit=False))
        if not vectors.shape[1]:
            return Hits.none(len(queries), k)
        hits = exact.search(self._matrix, vectors, k)
        empty = ~vectors.any(axis=1)
        hits.positions[empty], hits.scores[empty] = -1, -np.inf
        return hits

    def describe(self) -> Mapping[str, object]:
        about = {"model": "lsa", "weights": "(1 + ln tf) * idf", "ties": "by position"}
        return {"dim": self.settings.dim, **about, "analyser": dict(self.analyser.describe())}

    def _counts(self, texts: Sequence[str], fit: bool) -> Any:
        """Return sparse TF-IDF rows of unit length."""
        csr_matrix = load_extra("scipy.sparse", "retriever 'lsa'").csr_matrix
        assert self._encoder is not None
        terms, lengths = self._encoder.encode(texts)
        rows = np.repeat(np.arange(len(texts)), lengths)
        if fit:
            size = len(self._encoder.vocabulary)
            once = np.unique(terms.astype(np.int64) * len(texts) + rows) // len(texts)
            documents = np.bincount(once, minlength=size)
            used = documents >= min(_FEWEST_PASSAGES, len(texts))
            self._kept = np.where(used, np.cumsum(used) - 1, -1)
            self._idf = log((1 + len(texts)) / (1 + documents[used])) + 1
        columns = np.full(len(terms), -1)
        known = terms < len(self._kept)  # a query's new terms get new ids
        columns[known] = self._kept[terms[known]]
        inside = columns >= 0
        shape = (len(texts), len(self._idf))
        counts = csr_matrix((np.ones(int(inside.sum())), (rows[inside], columns[inside])), shape=shape)
        counts.sum_duplicates()
        counts.data = (1 + log(counts.data)) * self._idf[counts.indices]
        norms = np.sqrt(
            np.bincount(np.repeat(np.arange(len(texts)), np.diff(counts.indptr)), counts.data**2, len(texts))
        )
        counts.data /= np.repeat(np.maximum(norms, 1e-12), np.diff(counts.indptr))
        return counts

    def _project(self, counts: Any) -> NDArray[np.float32]:
        from airgen.retrievers.dense._components_compiled import product

        return unit_rows(product(counts, self._components.T).astype(np.float32))

"""Dense retrieval with one vector per text, stored as fp32 and searched exactly or with a faiss index."""

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from airgen.components.devices import suppress_exhausted
from airgen.components.keys import content_key
from airgen.components.registry import load_extra, missing_extra
from airgen.errors import ModelError, UsageError
from airgen.retrievers.component import Component
from airgen.retrievers.dense.ann_index import AnnIndex, AnnSpec, build_ann, near_share, pairs, spec_problem
from airgen.retrievers.dense.exact_search import check_search, search, search_shards
from airgen.retrievers.dense.gpu_search import GpuRows, gpu_for
from airgen.retrievers.encoding_cache import EncodingStore, at_once, cache_root, count_reused, encoded, keys_of, root_of
from airgen.retrievers.hits import Hits
from airgen.retrievers.model_facts import model_identity
from airgen.retrievers.model_output import finite
from airgen.retrievers.passages import Passages, non_empty
from airgen.retrievers.protocols import Embedder
from airgen.settings.base import FILE, SPEED, refuse
from airgen.settings.spec import Part
from airgen.storage.paths import locked

_BATCH_TEXTS = 256  # texts embedded between two writes on a CPU, which a crash can lose


_RECALL_DEPTH = 10  # hits that `ann_recall` compares


class EmbedderSettings(Component.Settings):
    """Settings shared by all systems with an embedder.

    Attributes:
        cache: Root folder for embeddings. Default: the folder of `shared_encodings`, or else memory.
    """

    embedder: Annotated[Any, Part("embedder")] = "all-minilm-l6-v2-int8"
    cache: Annotated[Path | None, SPEED, FILE] = None


class Dense(Component):
    """Dense retrieval with an embedder (paper, section 2.4, step 1), by exact search or with a faiss index.

    Args:
        embedder: An embedder: its name, its settings, or an object.
        cache: Folder in which embeddings are cached. Default: keep them in memory.
        index: Factory string of a faiss index, such as "HNSW32" or "IVF1024,PQ32". Default: exact search.
        search: Search parameters of the index, such as {"efSearch": 64}.
        build: Build parameters of the index, such as {"efConstruction": 200}.
        training_sample: Number of passages on which the index is trained.
        index_parts: Number of parts that are built and searched separately.
    """

    class Settings(EmbedderSettings):
        """Settings of dense retrieval.

        Attributes:
            index: A faiss factory string (`HNSW32`, `IVF1024,PQ32`, `HNSW32_SQ8`). Default: exact search. With a
                `cache`, the index is built only once.
            search: Search parameters under faiss's names, such as {efSearch: 64} or {nprobe: 16}.
            build: Build parameters under faiss's names, such as {efConstruction: 200}.
            training_sample: Number of passages on which the index is trained.
            index_parts: Number of parts, each built and searched separately.
        """

        index: str | None = None
        search: dict[str, float] = Field(default={})
        build: dict[str, float] = Field(default={})
        training_sample: int = Field(default=65_536, ge=1)
        index_parts: int = Field(default=1, ge=1, le=1024)

        def required_packages(self) -> tuple[str, ...]:
            """Return the required packages: faiss for an approximate index."""
            return (*self.packages, *(("faiss",) if self.index else ()))

        @property
        def ann(self) -> AnnSpec | None:
            """Return the settings of the approximate index, if any."""
            if self.index is None:
                return None
            return AnnSpec(
                factory=self.index,
                build=pairs(self.build),
                search=pairs(self.search),
                sample=self.training_sample,
                parts=self.index_parts,
            )

        @model_validator(mode="after")
        def _index_that_faiss_knows(self) -> Self:
            refuse((self.index is None and (self.search or self.build), "`search` and `build` belong to an `index`"))
            if (spec := self.ann) is not None and missing_extra("faiss", "an index") is None:
                refuse((problem := spec_problem(spec), problem))
            return self

    settings: Settings
    embedder: Embedder

    def set_up(self) -> None:
        self.name = f"dense {self.embedder.name}" + (f" {self.settings.index}" if self.settings.index else "")
        self._ann: AnnIndex | None = None
        self._asked: NDArray[np.float32] | None = None  # the vectors of the latest search
        self._matrix: NDArray[np.float32] | None = None
        self._rows: NDArray[np.int64] | None = None
        self._file: tuple[Path, int] | None = None  # the file of the matrix, and the position of its first row
        self._there: GpuRows | None = None  # the matrix in a GPU's memory

    def release(self) -> None:
        """Free the memory of the models, and of the vectors on the GPU."""
        self._there = None
        super().release()

    @property
    def index_bytes(self) -> int | None:
        """Size in bytes of the approximate index or, without one, of the vectors."""
        if self._ann is not None:
            return self._ann.bytes
        return None if self._matrix is None else self._matrix.nbytes + (0 if self._rows is None else self._rows.nbytes)

    def index(self, corpus: Passages) -> None:
        """Embed the passages that are not cached yet, and build the index. Raises CorpusError if the corpus is
        empty."""
        non_empty(corpus)
        if (spec := self.settings.ann) is not None:
            spec.check(self.embedder.dim, len(corpus))
        self._embed(corpus)
        if spec is not None:
            self._ann = self._approximate(corpus, spec)

    def _embed(self, corpus: Passages) -> None:
        texts, dim = corpus.full_texts, self.embedder.dim
        root = root_of(self.embedder, cache_root(self))
        self._rows = self._file = self._there = None
        if root is None:
            self._matrix = np.zeros((len(corpus), dim), np.float32)
            for place, vectors in self._embedded(texts, np.arange(len(corpus)), None):
                self._matrix[place] = vectors
            return
        store = EncodingStore(root, model_identity(self.embedder), "vectors", "passage")
        store.check(4 * dim)
        keys = keys_of(texts)
        new = store.missing(keys)
        for place, vectors in self._embedded(texts, new, root):
            store.keep({texts[at]: (row,) for at, row in zip(place.tolist(), vectors, strict=True)})
        count_reused(len(corpus) - len(new))
        rows = store.starts(keys) // (4 * dim)
        matrix = np.memmap(store.data, np.float32, "r", shape=(store.data.stat().st_size // (4 * dim), dim))
        first = int(rows[0])
        if np.array_equal(rows, np.arange(first, first + len(rows))):
            self._matrix, self._file = matrix[first : first + len(rows)], (store.data, first)
        else:
            self._matrix, self._rows, self._file = matrix, rows, (store.data, 0)

    def _embedded(
        self, texts: Sequence[str], places: NDArray[np.int64], root: Path | None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Yield the positions and vectors of texts, in batches."""
        size = at_once(self.embedder, _BATCH_TEXTS)
        batches = [places[first : first + size] for first in range(0, len(places), size)]
        wanted = ([texts[place] for place in batch.tolist()] for batch in batches)
        done = 0
        if self.progress and batches:
            self.progress(0, len(places))  # the first batch may take a minute on a busy machine
        for batch, vectors in zip(batches, encoded(self.embedder.encode, wanted, "passage", root), strict=True):
            yield batch, self._checked(vectors, len(batch))
            done += len(batch)
            if self.progress:
                self.progress(done, len(places))

    def _checked(self, vectors: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        if vectors.shape != (count, self.embedder.dim):
            raise ModelError(
                f"{self.embedder.name} returned vectors of shape {vectors.shape} for {count} texts instead of "
                f"({count}, {self.embedder.dim}): check whether its model has changed"
            )
        return finite(vectors, self.embedder.name)

    def _approximate(self, corpus: Passages, spec: AnnSpec) -> AnnIndex:
        """Return the index of this corpus, from the cache if possible."""
        assert self._matrix is not None
        root = root_of(self.embedder, cache_root(self))
        if root is None:
            root = Path(tempfile.mkdtemp(prefix="airgen-ann-"))
            weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)
        texts = hashlib.sha256(keys_of(corpus.full_texts).tobytes()).hexdigest()
        made_of = [model_identity(self.embedder), spec.factory, spec.build, spec.sample, spec.parts, texts]
        folder = root / f"faiss-{content_key(made_of)[:16]}"
        root.mkdir(parents=True, exist_ok=True)
        with locked(root / f"{folder.name}.lock", wait=True):
            if not folder.is_dir():
                making = root / f"{folder.name}.new"
                shutil.rmtree(making, ignore_errors=True)
                making.mkdir()
                build_ann(making, spec, self._matrix, rows=self._rows, file=self._file)
                making.rename(folder)
        return AnnIndex(folder, spec)

    def rows(self, places: Sequence[int]) -> NDArray[np.float32]:
        """Return the vectors of the passages at these positions, float32 (n, dim)."""
        assert self._matrix is not None
        where = np.asarray(places) if self._rows is None else self._rows[places]
        return np.array(self._matrix[where])

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k passages per query with the greatest inner product, exactly or approximately.

        Args:
            queries: n queries.
            k: Number of hits per query.

        Returns:
            The hits, with arrays of shape (n, k).

        Raises:
            UsageError: `index` has not been called.
            ModelError: The embedder returned vectors with another shape, NaN or infinity.
        """
        self.indexed(self._matrix)
        vectors = np.zeros((0, self.embedder.dim), np.float32)
        if queries:
            vectors = self._checked(self.embedder.encode(list(queries), "query"), len(queries))
        self._asked = vectors
        return self.nearest(vectors, k) if self._ann is None else self._ann.search(vectors, k)

    def ann_recall(self, queries: Sequence[str], hits: Hits) -> float | None:
        """Measure the recall of the approximate index: the share of the 10 nearest passages among the first 10 hits.

        Args:
            queries: The queries of the latest search.
            hits: The hits of that search.

        Returns:
            A share from 0 to 1, or None if the search is exact.

        Raises:
            UsageError: The hits are not those of the latest search.
        """
        if self._ann is None or not queries:
            return None
        if self._asked is None or len(self._asked) != len(hits.positions):
            raise UsageError("ann_recall needs the hits of the latest search")
        assert self._matrix is not None
        count = len(self._matrix) if self._rows is None else len(self._rows)
        return near_share(self.nearest(self._asked, min(_RECALL_DEPTH, count)).positions, hits)

    def nearest(self, vectors: NDArray[np.float32], k: int) -> Hits:
        """Find the nearest passages by exact search.

        Args:
            vectors: Vectors of n queries, float32 (n, dim).
            k: Number of hits per query.

        Returns:
            The hits, with arrays of shape (n, k).
        """
        assert self._matrix is not None
        rows = self._on_gpu()
        if rows is None:
            return self._nearest(vectors, k)
        check_search(self._matrix, vectors, k)
        hits, doubtful = rows.search(vectors, k)
        if len(doubtful):
            again = self._nearest(vectors[doubtful], k)
            hits.positions[doubtful], hits.scores[doubtful] = again.positions, again.scores
        return hits

    def _on_gpu(self) -> GpuRows | None:
        """Return the vectors in GPU memory if they fit, or None."""
        if self._there is None and self._matrix is not None:
            count = len(self._matrix) if self._rows is None else len(self._rows)
            device = gpu_for(count * self._matrix.shape[1], self._matrix.itemsize)
            if device is not None:
                with suppress_exhausted():
                    self._there = GpuRows(self._matrix, device, rows=self._rows)
        return self._there

    def _nearest(self, vectors: NDArray[np.float32], k: int) -> Hits:
        assert self._matrix is not None
        if self._file is None:
            return search(self._matrix, vectors, k)
        path, first = self._file
        return search_shards(path, self._matrix, vectors, k, first=first, rows=self._rows)

    def describe(self) -> Mapping[str, object]:
        chosen = self.settings
        about = {"family": "dense", "embedder": dict(self.embedder.describe()), "rows": "fp32"}
        if chosen.index is None:
            return {**about, "search": "exact"}
        version = load_extra("faiss", "an index").__version__
        index = {"build": dict(chosen.build), "search": dict(chosen.search), "faiss": version}
        return {**about, "index": chosen.index, "sample": chosen.training_sample, "parts": chosen.index_parts, **index}

"""Late interaction with one vector per token: each query token is matched with its best passage token (MaxSim).

    score(q, p) = sum over query tokens i of max over passage tokens j of <q_i, p_j>

The retriever either keeps every token vector of the corpus in memory and compares all of them, which suits small
corpora, or keeps them on disk in a few bits per dimension (`index: compressed`). The re-ranker encodes only the given
passages.
"""

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.components.devices import suppress_exhausted
from airgen.components.keys import content_key, text_key
from airgen.components.registry import load_extra
from airgen.compute.exact_arithmetic import inner_products
from airgen.errors import ModelError
from airgen.retrievers.component import Component
from airgen.retrievers.dense.embedders import LibraryModel, as_array
from airgen.retrievers.dense.gpu_search import GpuLists, GpuTokens, gpu_for
from airgen.retrievers.encoding_cache import CacheSettings, Memo, at_once, cache_root, encoded
from airgen.retrievers.hits import Hits
from airgen.retrievers.late.compressed_index import BATCH, CompressedIndex, build_index, token_rows
from airgen.retrievers.model_facts import model_identity
from airgen.retrievers.model_output import checked_scores, finite
from airgen.retrievers.passages import Passages, non_empty
from airgen.retrievers.protocols import TextKind
from airgen.retrievers.top_k import top_k
from airgen.settings.base import SPEED
from airgen.settings.spec import Part
from airgen.storage.paths import locked

_TOKENS_AT_ONCE = 16384  # passage tokens compared at once
_QUERIES_AT_ONCE = 16  # queries compared at once with them


def maxsims(queries: Sequence[NDArray[Any]], tokens: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute MaxSim of queries with passages. For vectors from `token_rows`, the bits are the same on every machine.

    Args:
        queries: The token vectors of each query, (q, dim).
        tokens: The token vectors of all passages, (t, dim).
        starts: The first row of each passage, which has at least one row.

    Returns:
        Scores, float64 (queries, passages).
    """
    similarity = tokens.astype(np.float64, copy=False) @ np.concatenate(queries).astype(np.float64).T
    best = np.maximum.reduceat(similarity, starts, axis=0)
    parts = np.split(best, np.cumsum([len(query) for query in queries])[:-1], axis=1)
    return np.stack([inner_products(part, np.ones(part.shape[1])) for part in parts])


class MultiVectorEncoder(LibraryModel):
    """A ColBERT-style model in sentence-transformers (5.4 or later), by Hub name or folder."""

    class Settings(LibraryModel.Settings):
        """Settings of a late-interaction model.

        Attributes:
            batch_size: Texts per batch. Default: 32 on a CPU, and as many as fit on a GPU.
        """

        batch_size: Annotated[int | None, SPEED] = Field(default=None, ge=1)

    settings: Settings

    @cached_property
    def model(self) -> Any:
        """Return the library's model. Raises ModelError if it has no token projection, since the library would use a
        random one."""
        model = self.loaded("MultiVectorEncoder", "the late-interaction model")
        projects = any(type(part).__name__ == "Dense" for part in model)
        if projects and not ("Dense" in self._file("modules.json") or "HF_ColBERT" in self._file("config.json")):
            raise ModelError(
                f"{self.name} is not a late-interaction model: it has no token projection; use another model, or "
                "train one from it: airgen train colbert"
            )
        return model

    def _file(self, name: str) -> str:
        """Return the text of a small file in the model's folder, or ""."""
        find = load_extra("sentence_transformers.util", "late interaction").load_file_path
        path = find(self.place(self.name), name, revision=self.settings.revision)
        return Path(path).read_text(encoding="utf-8") if path else ""

    def token_vectors(self, texts: Sequence[str], kind: TextKind) -> list[NDArray[np.float32]]:
        """Return token vectors from the model's query or document side."""
        model, side, inputs = self.model, self.side(kind), list(texts)
        options = {"convert_to_numpy": True, "show_progress_bar": False, **self.pool_of(model)}
        outputs = self.in_batches(lambda size: side(inputs, batch_size=size, **options), self.batch_for(inputs, model))
        arrays = [as_array(item) for item in outputs]
        # The model may leave out punctuation, which can be a whole text. A vector of zeros then matches nothing.
        nonempty = [array if len(array) else np.zeros((1, array.shape[-1]), np.float32) for array in arrays]
        return [finite(array, self.name) for array in nonempty]

    def describe(self) -> Mapping[str, object]:
        return {**self.described("multi-vector", "model", "revision"), **self.local, **self.precision}


class _WithTokens(Component):
    """Base class of the retriever and the re-ranker, which share a model of token vectors."""

    class Settings(CacheSettings):
        """Settings of a component with a late-interaction model.

        Attributes:
            model: The model for token vectors. Its own settings can be given next to it.
        """

        model: Annotated[Any, Part("token-embedder")] = "all-minilm-l6-v2-int8"

    settings: Settings
    model: Any  # token_vectors(texts, kind) -> an array (tokens, dim) of unit vectors for each text

    def set_up(self) -> None:
        self._memo = Memo(self, self.model.token_vectors, "tokens", lambda vectors: (token_rows(vectors),))


class LateInteraction(_WithTokens):
    """MaxSim with every passage, or with candidates from a compressed index. `progress` may be set before `index`."""

    class Settings(_WithTokens.Settings):
        """Settings of late interaction.

        An exact index is in memory, with fp16 token vectors of at most `LateInteraction.memory_bytes`. A compressed
        index is on disk: each query token visits a few centroids, and the best passages are scored by their decoded
        vectors.

        Attributes:
            bits: Bits per dimension of a compressed index, in addition to one centroid per token.
            cache: Root folder for compressed indexes, which are reused for the same corpus and model. Default: a
                temporary folder.
        """

        index: Literal["exact", "compressed"] = "exact"
        bits: Literal[1, 2, 4] = 2

    settings: Settings
    memory_bytes = 4 << 30
    probes, candidates = 16, 1024  # bits per dimension of a compressed index (benchmarks/late.py)

    def set_up(self) -> None:
        super().set_up()
        self.name = f"late {self.model.name}"
        self._tokens: NDArray[np.float16] | None = None
        self._starts = np.zeros(0, np.int64)
        self._compressed: CompressedIndex | None = None
        self._there: GpuTokens | None = None  # the token vectors in a GPU's memory
        self._lists: GpuLists | None = None  # the cells of a compressed index, in the same way

    @property
    def index_bytes(self) -> int | None:
        if self._compressed is not None:
            return self._compressed.bytes
        return None if self._tokens is None else self._tokens.nbytes + self._starts.nbytes

    def index(self, corpus: Passages) -> None:
        """Encode every passage. Raises CorpusError if the corpus is empty, and ModelError if it is too large."""
        non_empty(corpus)
        if self.settings.index == "compressed":
            self._compressed, self._lists = self._on_disk(corpus), None
            return
        tokens: list[NDArray[np.float16]] = []
        size = 0
        for (vectors,) in self._memo.stream(corpus.full_texts):
            tokens.append(vectors)
            size += vectors.nbytes
            if size > self.memory_bytes:
                raise ModelError(
                    f"the token vectors of {len(tokens)} of {len(corpus)} passages need {size / 1e9:.1f} GB, and an "
                    f"exact index may use {self.memory_bytes / 1e9:.1f}: set `index: compressed`, or re-rank the hits "
                    "of another retriever with MaxSim"
                )
        self._there = None
        lengths = np.array([len(array) for array in tokens], np.int64)
        self._starts = np.concatenate(([0], np.cumsum(lengths)))
        self._tokens = np.concatenate(tokens)

    def _on_disk(self, corpus: Passages) -> CompressedIndex:
        """Return the compressed index of this corpus, from the cache if possible."""
        root = cache_root(self)
        if root is None:
            root = Path(tempfile.mkdtemp(prefix="airgen-late-"))
            weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)
        texts = content_key([text_key(text) for text in corpus.full_texts])
        folder = root / content_key([model_identity(self.model), self.settings.bits, texts])[:16]
        with locked(root / "lock"):
            if not folder.is_dir():
                build_index(
                    folder,
                    corpus.full_texts,
                    lambda batches: encoded(self.model.token_vectors, batches, "passage"),
                    batch=at_once(self.model, BATCH),
                    bits=self.settings.bits,
                    progress=self.progress,
                )
            return CompressedIndex.open(folder)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k best passages per query by MaxSim. Raises UsageError if `index` has not been called."""
        self.indexed(self._compressed or self._tokens)
        vectors = [token_rows(array) for array in (self.model.token_vectors(list(queries), "query") if queries else [])]
        if self._compressed is not None:
            lists = self._lists_on_gpu(self._compressed)
            return self._compressed.search(vectors, k, probes=self.probes, candidates=self.candidates, lists=lists)
        return self._exact(vectors, k)

    def _exact(self, vectors: Sequence[NDArray[np.float16]], k: int) -> Hits:
        """Compute MaxSim with every passage, in one wide product for several queries, which is faster than several
        narrow ones."""
        assert self._tokens is not None
        scores = np.zeros((len(vectors), len(self._starts) - 1), np.float32)
        gpu_tokens = self._tokens_on_gpu()
        if gpu_tokens is not None:
            for row, vector in enumerate(vectors):
                scores[row] = gpu_tokens.scores(vector)
        for first, end in self._blocks() if gpu_tokens is None else ():
            block = self._tokens[self._starts[first] : self._starts[end]].astype(np.float64)
            starts = self._starts[first:end] - self._starts[first]
            for row in range(0, len(vectors), _QUERIES_AT_ONCE):
                queries = slice(row, row + _QUERIES_AT_ONCE)
                scores[queries, first:end] = maxsims(vectors[queries], block, starts)
        hits = Hits.none(len(vectors), k)
        for row, row_scores in enumerate(scores):
            hits.put(row, *top_k(row_scores, k))
        return hits

    def _lists_on_gpu(self, index: CompressedIndex) -> GpuLists | None:
        """Return the cells of the index in GPU memory if they fit, or None."""
        if self._lists is None:
            with suppress_exhausted():
                self._lists = index.on_gpu()
        return self._lists

    def _tokens_on_gpu(self) -> GpuTokens | None:
        """Return the token vectors in GPU memory if they fit, or None."""
        if self._there is None and self._tokens is not None:
            device = gpu_for(self._tokens.size, self._tokens.itemsize)
            if device is not None:
                with suppress_exhausted():
                    self._there = GpuTokens(self._tokens, self._starts, device)
        return self._there

    def release(self) -> None:
        """Free the memory of the model, and of the index on the GPU."""
        self._there = self._lists = None
        super().release()

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of passages with about `_TOKENS` tokens."""
        count, first = len(self._starts) - 1, 0
        while first < count:
            most = self._starts[first] + _TOKENS_AT_ONCE
            end = max(first + 1, int(np.searchsorted(self._starts, most, side="right")) - 1)
            yield first, end
            first = end

    def describe(self) -> Mapping[str, object]:
        index: dict[str, object] = {"rows": "fp16"}
        if self.settings.index == "compressed":
            index = {"bits": self.settings.bits, "probes": self.probes, "candidates": self.candidates}
        return {"family": "late", "model": dict(self.model.describe()), **index}


def _scores_on_gpu(
    pairs: Sequence[tuple[NDArray[np.float16], NDArray[np.float16]]], texts: Sequence[str], device: str
) -> list[float]:
    """Score pairs by MaxSim per query token, all passages of a query at once, with the same bits as on the CPU."""
    scores = np.zeros(len(pairs))
    groups: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        groups.setdefault(text, []).append(place)
    for places in groups.values():
        query, passages = pairs[places[0]][0], [pairs[place][1] for place in places]
        starts = np.concatenate(([0], np.cumsum([len(passage) for passage in passages])))
        scores[places] = GpuTokens(np.concatenate(passages), starts, device).scores(query) / len(query)
    return scores.tolist()


class MaxSim(_WithTokens):
    """MaxSim as a re-ranker. The latest texts' token vectors are cached, so that a passage is encoded only once."""

    def set_up(self) -> None:
        super().set_up()
        self.name = f"maxsim {self.model.name}"

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return MaxSim divided by the number of query tokens, shape (n,)."""
        left = self._memo([query for query, _ in pairs], "query")
        right = self._memo([passage for _, passage in pairs], "passage")
        both = [(query, passage) for (query,), (passage,) in zip(left, right, strict=True)]
        scores: list[float] | None = None
        if (device := gpu_for(sum(passage.size for _, passage in both), 2)) is not None:
            with suppress_exhausted():
                scores = _scores_on_gpu(both, [query for query, _ in pairs], device)
        if scores is None:
            start = np.zeros(1, np.int64)
            scores = [maxsims([query], passage, start)[0, 0] / len(query) for query, passage in both]
        return checked_scores(scores, len(pairs), self.name)

    def describe(self) -> Mapping[str, object]:
        return {"family": "late", "model": dict(self.model.describe())}

"""Late interaction: one vector a token, each query token matched with its best passage token (MaxSim).

    score(q, p) = sum over query tokens i of max over passage tokens j of <q_i, p_j>

As a retriever it keeps every token vector of the corpus and compares them all, for small corpora; as a re-ranker it
encodes only what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from airgen.errors import ModelError, UsageError
from airgen.registry import load_extra
from airgen.retrievers.base import Corpus, Hits, TextKind
from airgen.retrievers.dense.onnx_encoder import OnnxEncoder
from airgen.retrievers.output_checks import checked_scores, finite, non_empty
from airgen.retrievers.text_memo import Memo
from airgen.retrievers.top_k import top_k

__all__ = ["LateInteraction", "MaxSim", "MultiVectorEncoder", "TokenEmbedder", "maxsim"]

_BATCH = 64  # texts given to the model at once
_TOKENS = 16384  # passage tokens compared at once


class TokenEmbedder(Protocol):
    """Texts to unit token vectors."""

    name: str

    def token_vectors(self, texts: Sequence[str], kind: TextKind) -> list[NDArray[np.float32]]:
        """For each text an array (tokens, dim), at least one row."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes the vectors."""
        ...


def maxsim(query: NDArray[np.float32], tokens: NDArray[np.float32], starts: NDArray[np.int64]) -> NDArray[np.float32]:
    """MaxSim of one query (q, dim) with passages whose tokens stand one after another.

    `tokens` is (t, dim); passage i has the rows from `starts[i]` to `starts[i + 1]` (the last: to the end), at
    least one. Shape of the result: (len(starts),).
    """
    similarity = tokens @ query.T
    return np.asarray(np.maximum.reduceat(similarity, starts, axis=0).sum(axis=1), np.float32)


class MultiVectorEncoder:
    """A ColBERT-style model of sentence-transformers (5.4 or later), by Hub name or folder."""

    def __init__(
        self, model: str, *, device: str | None = None, batch_size: int = 32, revision: str | None = None
    ) -> None:
        self.name = model
        self._device, self._batch, self._revision = device, batch_size, revision

    @cached_property
    def model(self) -> Any:
        """The library's model, loaded at first use. A training sets its own, to search with it."""
        library = load_extra("sentence_transformers", f"the late-interaction model {self.name!r}")
        if not hasattr(library, "MultiVectorEncoder"):
            raise ModelError(
                "this sentence-transformers has no MultiVectorEncoder: pip install -U sentence-transformers"
            )
        try:
            return library.MultiVectorEncoder(self.name, device=self._device, revision=self._revision)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
            raise ModelError(f"the late-interaction model {self.name} cannot be loaded: {reason}") from error

    def token_vectors(self, texts: Sequence[str], kind: TextKind) -> list[NDArray[np.float32]]:
        """Token vectors of the model's query or document side."""
        encode = self.model.encode_query if kind == "query" else self.model.encode_document
        found = encode(list(texts), batch_size=self._batch, show_progress_bar=False)
        arrays = [np.asarray(item.cpu() if hasattr(item, "cpu") else item, np.float32) for item in found]
        # Punctuation can be left out by the model, and with it all of a text: one vector of zeros matches nothing.
        whole = [array if len(array) else np.zeros((1, array.shape[-1]), np.float32) for array in arrays]
        return [finite(array, self.name) for array in whole]

    def describe(self) -> Mapping[str, object]:
        """Model and revision."""
        return {"family": "multi-vector", "model": self.name, "revision": self._revision}


def _model(model: TokenEmbedder | str, settings: Mapping[str, Any]) -> TokenEmbedder:
    if not isinstance(model, str):
        return model
    from airgen.models import catalogue

    known = catalogue().get(model)
    if known is not None and known.kind == "onnx":
        return OnnxEncoder(model, **settings)
    if "bge-m3" in model.lower():
        from airgen.retrievers.dense.embedders import FlagEmbedder

        flag: TokenEmbedder = FlagEmbedder(model, **settings)
        return flag
    return MultiVectorEncoder(model, **settings)


class LateInteraction:
    """MaxSim against every passage, for corpora whose token vectors fit in `memory_bytes` (fp16).

    `model` is a name of the catalogue, a bge-m3, a Hub name or folder of a multi-vector model, or a TokenEmbedder;
    other settings go to the model.
    """

    def __init__(
        self,
        model: TokenEmbedder | str = "all-minilm-l6-v2-int8",
        *,
        memory_bytes: int = 4 << 30,
        progress: Callable[[int, int], None] | None = None,
        **settings: Any,
    ) -> None:
        self.model = _model(model, settings)
        self.name = f"late {self.model.name}"
        self._memory = memory_bytes
        self._progress = progress
        self._tokens: NDArray[np.float16] | None = None
        self._starts = np.zeros(0, np.int64)

    def index(self, corpus: Corpus) -> None:
        """Encode every passage. Raises CorpusError for an empty corpus, ModelError when it is too large."""
        non_empty(corpus)
        found: list[NDArray[np.float16]] = []
        size = 0
        for first in range(0, len(corpus), _BATCH):
            places = range(first, min(first + _BATCH, len(corpus)))
            vectors = self.model.token_vectors([corpus.full_text(place) for place in places], "passage")
            found += [array.astype(np.float16) for array in vectors]
            size += sum(array.size * 2 for array in vectors)
            if size > self._memory:
                raise ModelError(
                    f"the token vectors of {len(found)} of {len(corpus)} passages need {size / 1e9:.1f} GB, "
                    f"{self._memory / 1e9:.1f} allowed: re-rank another retriever's hits with MaxSim instead"
                )
            if self._progress:
                self._progress(len(found), len(corpus))
        lengths = np.array([len(array) for array in found], np.int64)
        self._starts = np.concatenate(([0], np.cumsum(lengths)))
        self._tokens = np.concatenate(found)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The k best passages by MaxSim, exactly. Raises UsageError before `index`."""
        if self._tokens is None:
            raise UsageError("LateInteraction.search before LateInteraction.index: the corpus comes first")
        vectors = self.model.token_vectors(list(queries), "query") if queries else []
        vectors = [array.astype(np.float16).astype(np.float32) for array in vectors]
        count = len(self._starts) - 1
        scores = np.zeros((len(vectors), count), np.float32)
        first = 0
        while first < count:
            limit = self._starts[first] + _TOKENS
            end = max(first + 1, int(np.searchsorted(self._starts, limit, side="right")) - 1)
            block = self._tokens[self._starts[first] : self._starts[end]].astype(np.float32)
            starts = self._starts[first:end] - self._starts[first]
            for row, query in enumerate(vectors):
                scores[row, first:end] = maxsim(query, block, starts)
            first = end
        positions = np.full((len(vectors), k), -1, np.int32)
        best = np.full((len(vectors), k), -np.inf, np.float32)
        for row in range(len(vectors)):
            found, values = top_k(scores[row], k)
            positions[row, : len(found)], best[row, : len(found)] = found, values
        return Hits(positions, best)

    def describe(self) -> Mapping[str, object]:
        """The model's settings, and how its vectors are kept."""
        return {"family": "late", "model": dict(self.model.describe()), "rows": "fp16"}


class MaxSim:
    """MaxSim as a re-ranker; `model` and settings as for `LateInteraction`.

    Token vectors of the latest texts are kept, up to `memory_bytes`, so that a passage is encoded once for many
    queries.
    """

    def __init__(
        self, model: TokenEmbedder | str = "all-minilm-l6-v2-int8", *, memory_bytes: int = 1 << 30, **settings: Any
    ) -> None:
        self.model = _model(model, settings)
        self.name = f"maxsim {self.model.name}"
        self._encode = Memo(self._halved, lambda array: int(array.nbytes), memory_bytes)

    def _halved(self, texts: Sequence[str], kind: TextKind) -> list[NDArray[np.float16]]:
        # fp16 as in LateInteraction, so that the same model gives the same scores in both uses.
        return [array.astype(np.float16) for array in self.model.token_vectors(texts, kind)]

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """MaxSim divided by the number of query tokens, shape (n,)."""
        left = self._encode([query for query, _ in pairs], "query")
        right = self._encode([passage for _, passage in pairs], "passage")
        start = np.zeros(1, np.int64)
        scores = [
            maxsim(query.astype(np.float32), passage.astype(np.float32), start)[0] / len(query)
            for query, passage in zip(left, right, strict=True)
        ]
        return checked_scores(scores, len(pairs), self.name)

    def describe(self) -> Mapping[str, object]:
        """The model's settings."""
        return {"family": "late", "model": dict(self.model.describe())}

"""all-MiniLM-L6-v2 through ONNX Runtime and tokenizers, without torch: passage vectors and token vectors.

Each text runs alone. On a CPU a batch of one is as fast as a larger one (there is no padding to compute), and a
vector then never depends on which other texts happened to be in its batch, not even in the last bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen import models
from airgen.errors import ModelError
from airgen.models.files import weights_hash
from airgen.registry import load_extra
from airgen.retrievers.base import TextKind
from airgen.retrievers.output_checks import finite, unit_rows
from airgen.text.words import encodable

__all__ = ["OnnxEncoder", "encode_batch", "load_tokenizer"]

_CHARS_A_TOKEN = 100  # WordPiece's longest word; a text's beginning of so many characters a token holds all that counts


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_tokenizer(path: Path, max_length: int) -> Any:
    """A `tokenizers.Tokenizer` that truncates to `max_length` tokens and never pads."""
    tokenizers = load_extra("tokenizers", "the embedded models")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception for a missing or damaged file
        raise ModelError(f"{path} is not a tokenizer: {error}") from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    return tokenizer


def encode_batch(tokenizer: Any, texts: Sequence[str], max_length: int) -> list[Any]:
    """Encodings of texts of any length; of one as long as a book only the beginning is tokenised."""
    limit = max_length * _CHARS_A_TOKEN
    return list(tokenizer.encode_batch([encodable(text[:limit]) for text in texts]))


class OnnxEncoder:
    """A BERT-like encoder in ONNX with mean pooling (an `Embedder`), and its token vectors for MaxSim.

    `model` is a name of the catalogue or a folder with `model.onnx` and `tokenizer.json`. `max_length` counts
    tokens, the two special ones included; what is beyond is cut, and `truncated` counts the texts it was cut from.
    `threads` texts run at a time, each on one core (None: as many as there are cores); they do not change the vectors.
    """

    def __init__(
        self,
        model: str = "all-minilm-l6-v2-int8",
        *,
        max_length: int = 256,
        query_prefix: str = "",
        passage_prefix: str = "",
        threads: int | None = None,
    ) -> None:
        if not 3 <= max_length <= 512:
            raise ModelError(f"max_length is {max_length}: 3 to 512 tokens are possible")
        self.name = model
        self.truncated = 0
        self._max_length = max_length
        self._prefix = {"query": query_prefix, "passage": passage_prefix}
        self._threads = max(1, threads if threads is not None else _cores())

    @cached_property
    def _folder(self) -> Path:
        folder = Path(self.name)
        return folder if folder.is_dir() else models.path(self.name)

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self._folder / "tokenizer.json", self._max_length)

    @cached_property
    def dim(self) -> int:
        """Length of a vector; the embedded model's is known without loading it."""
        return 384 if self.name in models.catalogue() else int(self._session.get_outputs()[0].shape[-1])

    @cached_property
    def _session(self) -> Any:
        onnxruntime = load_extra("onnxruntime", "the embedded encoder")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        try:
            return onnxruntime.InferenceSession(
                str(self._folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the runtime has no common base class for its errors
            raise ModelError(f"{self._folder / 'model.onnx'} cannot be loaded: {error}") from error

    @cached_property
    def _run(self) -> Callable[[NDArray[np.int64]], NDArray[np.float32]]:
        session = self._session
        inputs = {given.name for given in session.get_inputs()}

        def run(ids: NDArray[np.int64]) -> NDArray[np.float32]:
            fed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            found = session.run(["last_hidden_state"], {name: fed[name] for name in fed if name in inputs})
            return np.asarray(found[0][0], np.float32)

        return run

    def _hidden(self, texts: Sequence[str], kind: TextKind, keep: Callable[[NDArray[np.float32]], Any]) -> list[Any]:
        """`keep` of the last hidden states, (tokens, dim) with the special tokens, of each text."""
        prefix = self._prefix[kind]
        encoded = encode_batch(self._tokenizer, [prefix + text for text in texts], self._max_length)
        self.truncated += sum(bool(item.overflowing) for item in encoded)
        run = self._run

        def one(item: Any) -> Any:
            return keep(run(np.array([item.ids], np.int64)))

        if self._threads == 1 or len(encoded) < 2:
            return [one(item) for item in encoded]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(one, encoded))

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Mean of the token vectors of each text, at length 1; shape (n, dim)."""
        vectors = np.zeros((len(texts), self.dim), np.float32)
        for row, mean in enumerate(self._hidden(texts, kind, lambda states: states.mean(axis=0))):
            vectors[row] = mean
        return unit_rows(finite(vectors, self.name))

    def token_vectors(self, texts: Sequence[str], kind: TextKind) -> list[NDArray[np.float32]]:
        """For each text its token vectors at length 1, shape (tokens, dim); [CLS] and [SEP] are left out.

        A text without a token of its own keeps the two special ones, so that no passage is without a vector.
        """

        def inner(states: NDArray[np.float32]) -> NDArray[np.float32]:
            return unit_rows(finite(states[1:-1] if len(states) > 2 else states, self.name))

        return self._hidden(texts, kind, inner)

    def describe(self) -> Mapping[str, object]:
        """Model, hash of its files, pooling, prefixes, maximum length."""
        return {
            "family": "onnx",
            "model": self.name,
            **(models.identity(self.name) or {"sha256": weights_hash(self.name)}),
            "pooling": "mean",
            "max_length": self._max_length,
            "query_prefix": self._prefix["query"],
            "passage_prefix": self._prefix["passage"],
        }

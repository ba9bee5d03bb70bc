"""BERT-like models by ONNX Runtime and tokenizers, without torch: passage vectors and token vectors.

Each text runs alone. On a CPU a batch of one is as fast as a larger one, because there is no padding to compute. And a
vector then never depends on the other texts of a batch: a model whose activations are quantised as it runs has one
scale for the whole batch, which moves a re-ranker's logits by up to .7 (benchmarks/rerank.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from airgen import models
from airgen.compute.threads import cores
from airgen.errors import AirgenError, ModelError
from airgen.models.files import weights_hash
from airgen.registry import load_extra
from airgen.retrievers.base import Component, ModelFacts, TextKind
from airgen.retrievers.output_checks import checked_scores, finite, unit_rows
from airgen.settings.base import MODEL, SPEED
from airgen.settings.parts import located
from airgen.text.words import encodable

Run = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]
"""Token ids and token types, (1, tokens) each, to the model's output for that text."""

_CHARS_A_TOKEN = 100  # the longest word of WordPiece; what is beyond so many characters a token would be cut


def cpu_session(model: str | bytes) -> Any:
    """ONNX Runtime's session of a file or a serialised model; each run takes one core."""
    onnxruntime = load_extra("onnxruntime", "the embedded encoder")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


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


def encode_batch(
    tokenizer: Any, texts: Sequence[str | tuple[str, str]], max_length: int, special: bool = True
) -> list[Any]:
    """Encodings of texts, or of pairs of them, of any length; only the beginning of a very long text is tokenised.

    special: with the tokens that the model wants around a text.
    """
    limit = max_length * _CHARS_A_TOKEN
    short = [
        encodable(text[:limit]) if isinstance(text, str) else tuple(encodable(one[:limit]) for one in text)
        for text in texts
    ]
    return list(tokenizer.encode_batch(short, add_special_tokens=special))


class EmbeddedModel(Component):
    """A model that runs without torch, on the CPU; it is loaded at its first use."""

    class Settings(Component.Settings):
        """`model` is a name of the catalogue, or a folder; `max_length` counts tokens, special ones included."""

        model: Annotated[str, MODEL]
        max_length: int = Field(default=256, ge=3, le=512)

        @model_validator(mode="before")
        @classmethod
        def _as_it_was_trained(cls, value: Any) -> Any:
            known = models.catalogue().get(str(value.get("model"))) if isinstance(value, dict) else None
            own = {name: one for name, one in known.settings.items() if name in cls.model_fields} if known else {}
            return {**own, **value} if own else value

    settings: Settings
    travels = True

    def set_up(self) -> None:
        self.name, self._max_length = self.settings.model, self.settings.max_length
        self._threads = cores()

    def _beside(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """`work` of each item, `_threads` of them at a time, each on one core."""
        if self._threads == 1 or len(items) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(work, items))

    @cached_property
    def _folder(self) -> Path:
        place = located(self.name, self.folder)
        return place if place.is_dir() else models.path(self.name)

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self._folder / "tokenizer.json", self._max_length)

    @property
    def _identity(self) -> Mapping[str, object]:
        return models.identity(self.name) or {"sha256": weights_hash(str(self._folder))}

    def describe(self) -> Mapping[str, object]:
        """Every setting that changes what it gives."""
        raise NotImplementedError

    @property
    def facts(self) -> ModelFacts:
        """The catalogue knows the parameters of its own models."""
        known = models.catalogue().get(self.name)
        return ModelFacts(known.parameters if known else None, threads=self._threads)


class OnnxModel(EmbeddedModel):
    """A model of ONNX Runtime: a name of the catalogue, or a folder with `model.onnx` and `tokenizer.json`.

    `truncated` counts the texts that were longer than `max_length`.
    """

    class Settings(EmbeddedModel.Settings):
        """`threads` texts run at a time, each on one core (None: as many as there are cores)."""

        packages: ClassVar[tuple[str, ...]] = ("onnxruntime", "tokenizers")
        threads: Annotated[int | None, SPEED] = Field(default=None, ge=1)

    settings: Settings
    output: ClassVar[str]

    def set_up(self) -> None:
        super().set_up()
        self.truncated = 0
        self._threads = self.settings.threads or cores()

    @cached_property
    def _session(self) -> Any:
        try:
            return cpu_session(str(self._folder / "model.onnx"))
        except AirgenError:
            raise
        except Exception as error:  # the runtime has no common base class for its errors
            raise ModelError(f"{self._folder / 'model.onnx'} cannot be loaded: {error}") from error

    @cached_property
    def _run(self) -> Run:
        session = self._session
        inputs = {given.name for given in session.get_inputs()}

        def run(ids: NDArray[np.int64], types: NDArray[np.int64]) -> NDArray[np.float32]:
            fed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}
            found = session.run([self.output], {name: fed[name] for name in fed if name in inputs})
            return np.asarray(found[0][0], np.float32)

        return run

    def _each(self, encoded: Sequence[Any], keep: Callable[[NDArray[np.float32]], Any]) -> list[Any]:
        """`keep` of the model's output for each encoding of the tokenizer, which runs alone."""
        self.truncated += sum(bool(item.overflowing) for item in encoded)
        run = self._run

        def one(item: Any) -> Any:
            return keep(run(np.array([item.ids], np.int64), np.array([item.type_ids], np.int64)))

        return self._beside(one, encoded)


class OnnxEncoder(OnnxModel):
    """A BERT-like encoder in ONNX (an `Embedder`), and its token vectors for MaxSim."""

    class Settings(OnnxModel.Settings):
        """`pooling`: the mean of all token vectors, or the first one."""

        model: Annotated[str, MODEL] = "all-minilm-l6-v2-int8"
        query_prefix: str = ""
        passage_prefix: str = ""
        pooling: Literal["mean", "cls"] = "mean"

    settings: Settings
    output = "last_hidden_state"

    @cached_property
    def dim(self) -> int:
        """Length of a vector; that of a catalogue model is known without loading it."""
        return 384 if self.name in models.catalogue() else int(self._session.get_outputs()[0].shape[-1])

    def _hidden(self, texts: Sequence[str], kind: TextKind, keep: Callable[[NDArray[np.float32]], Any]) -> list[Any]:
        """`keep` of the last hidden states, (tokens, dim) with the special tokens, of each text."""
        prefix = self.settings.query_prefix if kind == "query" else self.settings.passage_prefix
        return self._each(encode_batch(self._tokenizer, [prefix + text for text in texts], self._max_length), keep)

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """The pooled token vectors of each text, at length 1; shape (n, dim)."""
        vectors = np.zeros((len(texts), self.dim), np.float32)
        first = self.settings.pooling == "cls"
        for row, pooled in enumerate(self._hidden(texts, kind, lambda one: one[0] if first else one.mean(axis=0))):
            vectors[row] = pooled
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
        described = self.described("onnx", "model", "max_length", "query_prefix", "passage_prefix", "pooling")
        return {**described, **self._identity}


class OnnxCrossEncoder(OnnxModel):
    """A cross-encoder in ONNX (a `Reranker`): one logit for each (query, passage) pair, whatever stands beside it."""

    class Settings(OnnxModel.Settings):
        """`max_length` counts the tokens of the pair; the longer of the two texts is cut first."""

        model: Annotated[str, MODEL] = "ms-marco-minilm-l12-int8"
        max_length: int = Field(default=512, ge=3, le=512)

    settings: Settings
    output = "logits"

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """One logit a pair, shape (n,). Raises ModelError for NaN or a model with several outputs a pair."""
        if not pairs:
            return np.zeros(0, np.float32)
        logits = self._each(encode_batch(self._tokenizer, pairs, self._max_length), lambda found: found)
        return checked_scores(np.stack(logits), len(pairs), self.name)

    def describe(self) -> Mapping[str, object]:
        """Model, hash of its files, maximum length."""
        return {**self.described("onnx-cross-encoder", "model", "max_length"), **self._identity}

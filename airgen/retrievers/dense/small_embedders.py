"""Embedders for small models that do not need torch: multilingual e5 in 4 bits, and static vectors.

multilingual-e5-small runs from one packed file with ONNX Runtime. In little-endian order, the file contains the sizes
of the model, a unigram vocabulary with scores, a map of characters to replacements, and the tensors by name. Linear
weights and word embeddings are in blocks of 32 weights: an fp16 scale, then 16 bytes with weight j in the low half of
byte j and weight j + 16 in the high half, both plus 8.

Static embeddings have one vector per token, and the mean of these vectors for a text, which costs only tokenisation and
a sum. WordLlama's vectors are in the catalogue; folders in model2vec's format are also supported.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen import models
from airgen.components.keys import file_sha256
from airgen.components.registry import load_extra
from airgen.errors import ModelError
from airgen.retrievers.dense.bert_graph import Array, bert
from airgen.retrievers.dense.onnx_encoder import EmbeddedEmbedder, encode_batch, load_weights
from airgen.retrievers.protocols import TextKind
from airgen.settings.base import MODEL
from airgen.settings.requirements import located
from airgen.text.normal_form import encodable

_BLOCK = np.dtype([("scale", "<f2"), ("weights", "u1", 16)])
_CHARS_PER_TOKEN = 20  # longer than any piece of the vocabulary; see onnx_encoder.encode_batch
_SPACES = re.compile(" {2,}")
_NAMES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


class PackedE5(EmbeddedEmbedder):
    """An E5 model with mean-pooled unit vectors."""

    class Settings(EmbeddedEmbedder.Settings):
        """Settings of a packed E5 model.

        Attributes:
            model: A name in the catalogue, or a file.
        """

        packages: ClassVar[tuple[str, ...]] = ("tokenizers", "onnx", "onnxruntime")
        model: Annotated[str, MODEL] = "multilingual-e5-small-q4"
        max_length: int = Field(default=512, ge=3, le=512)

    settings: Settings
    card = "multilingual-e5-small"

    @cached_property
    def _file(self) -> _File:
        return _File(models.path(self.name) if self.name in models.catalogue() else located(self.name, self.folder))

    @cached_property
    def dim(self) -> int:
        """Length of a vector; that of a catalogue model is known without loading it."""
        return 384 if self.name in models.catalogue() else self._file.width

    @cached_property
    def _bert(self) -> Callable[[Array], Array]:
        file = self._file
        return bert(file.weights(), file.layers, file.heads, file.epsilon, narrow=True)

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer = self._file.tokenizer()
        tokenizer.enable_truncation(self._max_length - 2)
        return tokenizer

    @cached_property
    def _counter(self) -> Any:
        return self._file.tokenizer()

    def token_counts(self, texts: Sequence[str], kind: TextKind) -> list[int]:
        """Return the numbers of tokens, with those that begin and end a text."""
        return [count + 2 for count in super().token_counts(texts, kind)]

    def pooled(self, texts: Sequence[str]) -> Iterable[Array]:
        """Return the mean of each text's last hidden states."""
        file, states = self._file, self._bert
        return self._beside(lambda ids: states(file.words(ids)).mean(axis=0), self._ids(texts))

    def _ids(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        file, limit = self._file, self._max_length * _CHARS_PER_TOKEN
        # A lone surrogate cannot be encoded, so it becomes a question mark.
        cut = [encodable(text[:limit]) for text in texts]
        plain = [_SPACES.sub(" ", text.translate(file.replacements)) for text in cut]
        return [np.array([file.begin, *item.ids, file.end]) for item in self._tokenizer.encode_batch(plain)]

    def describe(self) -> Mapping[str, object]:
        """Return the model, hash, bits of the linear layers at run time, pooling, prefixes and maximum length."""
        described = self.described("packed-e5", "model", "max_length")
        identity = models.identity(self.name) or {"sha256": file_sha256(located(self.name, self.folder))}
        return {**described, **identity, "bits": 7, "pooling": "mean"}


class _File:
    """The packed file. Word embeddings stay packed and memory-mapped, since they would take 384 MB in fp32."""

    def __init__(self, path: Path) -> None:
        try:
            self._data = np.memmap(path, np.uint8, "r")
            self._parse()
        except (OSError, ValueError, struct.error, UnicodeDecodeError, IndexError) as error:
            raise ModelError(f"{path} is not a packed e5 model: {error}") from error

    def _take(self, form: str) -> tuple[Any, ...]:
        size = struct.calcsize("<" + form)
        values = struct.unpack("<" + form, self._data[self._at : self._at + size].tobytes())
        self._at += size
        return values

    def _array(self, kind: str, count: int) -> NDArray[Any]:
        array = np.frombuffer(self._data, kind, count, self._at)
        self._at += array.nbytes
        return array

    def _parse(self) -> None:
        self._at = 0
        if self._take("4sI") != (b"E5S1", 1):
            raise ValueError("it does not begin with E5S1, version 1")
        self.width, self.layers, self.heads, _, _, self.positions, self.types = self._take("7i")
        self.epsilon, block = self._take("fi")
        if block != 32:
            raise ValueError(f"its blocks hold {block} weights")
        count, self.begin, self.end, _, self._unknown = self._take("5i")
        (size,) = self._take("Q")
        offsets = self._array("<u4", count + 1)
        scores = self._array("<f4", count).tolist()
        blob = self._array("u1", size).tobytes()
        pieces = [blob[start:end].decode("utf-8") for start, end in pairwise(offsets)]
        self._vocabulary = list(zip(pieces, scores, strict=True))
        replaced, _ = self._take("iI")
        self.replacements: dict[int, str] = {}
        for _ in range(replaced):
            point, length = self._take("IB")
            self.replacements[point] = "".join(map(chr, self._array("<u4", length)))
        self._tensors: dict[str, tuple[int, int]] = {}
        for _ in range(self._take("i")[0]):
            (length,) = self._take("H")
            name = self._array("u1", length).tobytes().decode("ascii")
            _, values, start, _ = self._take("BIQQ")
            self._tensors[name] = (start, values)

    def tokenizer(self) -> Any:
        """Build the unigram tokenizer, without special tokens."""
        library = load_extra("tokenizers", "the embedded models")
        tokenizer = library.Tokenizer(library.models.Unigram(self._vocabulary, self._unknown))
        tokenizer.pre_tokenizer = library.pre_tokenizers.Metaspace()
        return tokenizer

    def _plain(self, name: str) -> Array:
        start, values = self._tensors[name]
        return np.frombuffer(self._data, "<f4", values, start)

    def _packed(self, name: str) -> NDArray[Any]:
        start, values = self._tensors[name]
        return np.frombuffer(self._data, _BLOCK, values // 32, start)

    def words(self, ids: NDArray[np.int64]) -> Array:
        """Return the word embeddings of token ids, (tokens, width)."""
        blocks = self._packed("emb.word").reshape(-1, self.width // 32)
        return _unpacked(blocks[ids]).reshape(len(ids), self.width)

    def weights(self) -> dict[str, Array]:
        """Return all weights except the word embeddings in fp32, by transformers' names."""
        weights = {
            "embeddings.position_embeddings.weight": self._plain("emb.pos").reshape(self.positions, self.width),
            "embeddings.token_type_embeddings.weight": self._plain("emb.type").reshape(-1, self.width),
            "embeddings.LayerNorm.weight": self._plain("emb.ln.w"),
            "embeddings.LayerNorm.bias": self._plain("emb.ln.b"),
        }
        for layer in range(self.layers):
            for short, long in _NAMES.items():
                name, bias = f"encoder.layer.{layer}.{long}", self._plain(f"l{layer}.{short}.b")
                weights[f"{name}.bias"] = bias
                if short.endswith("ln"):
                    weights[f"{name}.weight"] = self._plain(f"l{layer}.{short}.w")
                else:
                    weights[f"{name}.weight"] = _unpacked(self._packed(f"l{layer}.{short}.w")).reshape(len(bias), -1)
        return weights


def _unpacked(blocks: NDArray[Any]) -> Array:
    """Unpack blocks of any shape to consecutive fp32 weights."""
    packed = blocks["weights"]
    nibbles = np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32) - 8
    return np.asarray(nibbles * blocks["scale"].astype(np.float32)[..., None], np.float32)


class StaticEmbedder(EmbeddedEmbedder):
    """An embedder that averages token vectors and normalises the mean. A text without known tokens gets a zero vector.

    The tokenizer adds no special tokens. As in model2vec, a model may weight its tokens (`weights`), and several tokens
    may share a vector (`mapping`).
    """

    class Settings(EmbeddedEmbedder.Settings):
        """Settings of static embeddings.

        Attributes:
            model: A name in the catalogue, or a folder with `model.safetensors` and `tokenizer.json`.
        """

        packages: ClassVar[tuple[str, ...]] = ("safetensors", "tokenizers")
        model: Annotated[str, MODEL] = "wordllama-256"
        max_length: int = Field(default=8192, ge=1)

    settings: Settings
    special = False

    @cached_property
    def _table(self) -> tuple[NDArray[np.floating[Any]], NDArray[np.float32] | None, NDArray[np.int64] | None]:
        path, tensors = self._folder / "model.safetensors", load_weights(self._folder)
        weights, mapping = tensors.pop("weights", None), tensors.pop("mapping", None)
        if len(tensors) != 1 or next(iter(tensors.values())).ndim != 2:
            shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in sorted(tensors.items())) or "nothing"
            raise ModelError(f"{path} holds {shapes}; static embeddings are one table, (tokens, dimensions)")
        (table,) = tensors.values()
        known = len(table) if mapping is None else len(mapping)
        size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        if size > known or (weights is not None and len(weights) < known):
            raise ModelError(
                f"{path} has vectors for {known} tokens, and tokenizer.json has {size}: they do not belong together"
            )
        if mapping is not None and (mapping.min(initial=0) < 0 or mapping.max(initial=0) >= len(table)):
            raise ModelError(f"{path}: its `mapping` points outside the {len(table)} vectors")
        return table, None if weights is None else np.asarray(weights, np.float32), mapping

    @cached_property
    def _unknown(self) -> int | None:
        """Return the token for text that the vocabulary does not contain."""
        settings = json.loads(self._tokenizer.to_str())["model"]
        name = settings.get("unk_token")
        if name is None and isinstance(settings.get("unk_id"), int):
            return int(settings["unk_id"])
        token = None if name is None else self._tokenizer.token_to_id(name)
        return None if token is None else int(token)

    @cached_property
    def dim(self) -> int:
        return int(self._table[0].shape[1])

    def pooled(self, texts: Sequence[str]) -> Iterable[Array]:
        """Return the weighted mean of each text's token vectors."""
        table, weights, mapping = self._table
        for item in encode_batch(self._tokenizer, texts, self._max_length, special=False):
            ids = np.array([token for token in item.ids if token != self._unknown], np.int64)
            vectors = table[ids if mapping is None else mapping[ids]].astype(np.float32)
            weighted = vectors if weights is None else vectors * weights[ids][:, None]
            yield weighted.mean(axis=0) if len(ids) else np.zeros(self.dim, np.float32)

    def describe(self) -> Mapping[str, object]:
        described = self.described("static", "model", "max_length")
        return {**described, **self._identity, "pooling": "mean"}

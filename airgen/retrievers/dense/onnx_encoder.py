"""BERT-like models by ONNX Runtime and tokenizers, without torch: passage vectors, token vectors, re-ranking.

Each text runs alone. On a CPU that is as fast as a batch, because there is no padding to compute. And a vector then
never depends on its neighbours: a model whose activations are quantised as it runs has one scale for the whole batch,
which moves a re-ranker's logits by up to .7 (benchmarks/rerank.py).

For models that come without a graph, one is made when they are loaded, of weights named as transformers names them:

    states = bert(weights, layers, heads, epsilon, narrow=True)
    states(words)                           # word embeddings (tokens, width) to the last hidden states, same shape
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from airgen import models
from airgen.compute import cores
from airgen.errors import AirgenError, ModelError
from airgen.models.catalogue import weights_hash
from airgen.registry import load_extra
from airgen.retrievers.base import Component, ModelFacts, TextKind, checked_scores, finite, unit_rows
from airgen.settings.base import MODEL
from airgen.settings.parts import located
from airgen.text.tokens import plain_tokenizer
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
    tokenizer = plain_tokenizer(path)
    tokenizer.enable_truncation(max_length)
    return tokenizer


def load_weights(folder: Path) -> dict[str, Any]:
    """The arrays of a model's folder by name. Raises ModelError."""
    path, library = folder / "model.safetensors", load_extra("safetensors.numpy", "the embedded models")
    try:
        found: dict[str, Any] = library.load_file(path)
    except Exception as error:  # the library's own error has no built-in base
        raise ModelError(f"{path} cannot be read: {error}") from error
    return found


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
        self.threads = cores()

    def _beside(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """`work` of each item, `threads` of them at a time, each on one core."""
        if self.threads == 1 or len(items) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(self.threads) as pool:
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
        raise NotImplementedError

    @property
    def facts(self) -> ModelFacts:
        """The catalogue knows the parameters of its own models."""
        known = models.catalogue().get(self.name)
        return ModelFacts(known.parameters if known else None, threads=self.threads)


class EmbeddedEmbedder(EmbeddedModel):
    """An `Embedder` of unit vectors."""

    class Settings(EmbeddedModel.Settings):
        """A prefix stands before every text."""

        query_prefix: str = ""
        passage_prefix: str = ""

    settings: Settings

    @property
    def dim(self) -> int:
        """Length of a vector."""
        raise NotImplementedError

    def pooled(self, texts: Sequence[str]) -> Iterable[NDArray[np.float32]]:
        """The vector of each text, of any length."""
        raise NotImplementedError

    def prefixed(self, texts: Sequence[str], kind: TextKind) -> list[str]:
        """The texts as the model reads them."""
        prefix = self.settings.query_prefix if kind == "query" else self.settings.passage_prefix
        return [prefix + text for text in texts]

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """Unit vectors, (n, dim)."""
        vectors = np.zeros((len(texts), self.dim), np.float32)
        for row, vector in enumerate(self.pooled(self.prefixed(texts, kind))):
            vectors[row] = vector
        return unit_rows(finite(vectors, self.name))


class OnnxModel(EmbeddedModel):
    """A model of ONNX Runtime: a name of the catalogue, or a folder with `model.onnx` and `tokenizer.json`."""

    class Settings(EmbeddedModel.Settings):
        """As for every embedded model."""

        packages: ClassVar[tuple[str, ...]] = ("onnxruntime", "tokenizers", "onnx")

    settings: Settings
    output: ClassVar[str]

    def _loaded(self, load: Callable[[str], Any]) -> Any:
        path = str(self._folder / "model.onnx")
        try:
            return load(path)
        except AirgenError:
            raise
        except Exception as error:  # the libraries have no common base class for their errors
            raise ModelError(f"{path} cannot be loaded: {error}") from error

    @cached_property
    def _session(self) -> Any:
        return self._loaded(cpu_session)

    @cached_property
    def _run(self) -> Run:
        known = models.catalogue().get(self.name)
        if known and (heads := known.heads) and self.output == OnnxEncoder.output:
            exported: Run = self._loaded(lambda path: exported_bert(path, heads))
            return exported
        session = self._session
        if self.output not in [one.name for one in session.get_outputs()]:
            raise ModelError(f"{self.name} has no output `{self.output}`: name a model that was made for this kind")
        inputs = {given.name for given in session.get_inputs()}

        def run(ids: NDArray[np.int64], types: NDArray[np.int64]) -> NDArray[np.float32]:
            fed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}
            found = session.run([self.output], {name: fed[name] for name in fed if name in inputs})
            return np.asarray(found[0][0], np.float32)

        return run

    def _each(self, encoded: Sequence[Any], keep: Callable[[NDArray[np.float32]], Any]) -> list[Any]:
        """`keep` of the model's output for each encoding of the tokenizer, which runs alone."""
        run = self._run

        def one(item: Any) -> Any:
            return keep(run(np.array([item.ids], np.int64), np.array([item.type_ids], np.int64)))

        return self._beside(one, encoded)


class OnnxEncoder(OnnxModel, EmbeddedEmbedder):
    """A BERT-like encoder in ONNX, and its token vectors for MaxSim."""

    class Settings(OnnxModel.Settings, EmbeddedEmbedder.Settings):
        """`pooling`: the mean of all token vectors, or the first one."""

        model: Annotated[str, MODEL] = "all-minilm-l6-v2-int8"
        pooling: Literal["mean", "cls"] = "mean"

    settings: Settings
    output = "last_hidden_state"

    @cached_property
    def dim(self) -> int:
        """Length of a vector; that of a catalogue model is known without loading it."""
        return 384 if self.name in models.catalogue() else int(self._session.get_outputs()[0].shape[-1])

    def pooled(self, texts: Sequence[str]) -> Iterable[NDArray[np.float32]]:
        """The pooled token vectors of each text."""
        first = self.settings.pooling == "cls"
        encoded = encode_batch(self._tokenizer, texts, self._max_length)
        return self._each(encoded, lambda states: states[0] if first else states.mean(axis=0))

    def token_vectors(self, texts: Sequence[str], kind: TextKind) -> list[NDArray[np.float32]]:
        """For each text its token vectors at length 1, shape (tokens, dim); [CLS] and [SEP] are left out.

        A text without a token of its own keeps the two special ones, so that no passage is without a vector.
        """

        def inner(states: NDArray[np.float32]) -> NDArray[np.float32]:
            return unit_rows(finite(states[1:-1] if len(states) > 2 else states, self.name))

        return self._each(encode_batch(self._tokenizer, self.prefixed(texts, kind), self._max_length), inner)

    def describe(self) -> Mapping[str, object]:
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
        return {**self.described("onnx-cross-encoder", "model", "max_length"), **self._identity}


Array = NDArray[np.float32]

_EPSILON = 1e-12  # BERT's
_TERMS = 4096  # of a vocabulary at once
_STEPS = 63  # steps of 7 bits: with 8, processors without VNNI would add up too much for 16 bits


def bert(
    weights: Mapping[str, Array], layers: int, heads: int, epsilon: float, *, narrow: bool = False
) -> Callable[[Array], Array]:
    """A function of the word embeddings of one text, (tokens, width): its last hidden states, same shape.

    `weights` are fp32, linear ones (out, in). narrow: linear layers in 7 bits with activations in 8, but for the second
    one of each feed-forward, whose inputs have outliers. That is three times as fast, and a cosine of .999 to fp32
    (benchmarks/narrow.py).
    """
    graph = _Graph(weights, heads, epsilon, narrow)
    session = cpu_session(graph.model(graph.states(layers)))
    return lambda words: np.asarray(session.run(None, {"words": np.asarray(words, np.float32)})[0], np.float32)


def exported_bert(path: str, heads: int) -> Run:
    """A BERT that PyTorch exported, its weights in int8 with steps in fp32, run by the graph of `bert`.

    The states are those of the file's own graph but for the last digits, in four fifths of its time: there is no mask
    to add, no NaN to look for, and a product adds its bias itself (docs/notes/models.md).
    """
    onnx = load_extra("onnx", "the embedded encoder")
    graph = onnx.load(path).graph
    arrays = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    factors: dict[str, Any] = {}
    for node in graph.node:
        first, last, output = node.input[0], node.input[-1], node.output[0]
        if "word_embeddings" in output:  # the largest by far: they stay in int8
            continue
        if node.op_type == "Cast" and first in arrays:
            arrays[output] = arrays[first].astype(np.float32)
        elif node.op_type == "Mul" and first in arrays and last in arrays:
            arrays[output] = arrays[first] * arrays[last]
        elif node.op_type == "MatMul":
            factors[output] = arrays.get(last)
        elif node.op_type == "Add" and first in factors and last.endswith(".bias"):
            arrays[last.removesuffix("bias") + "weight"] = factors[first].T
    weights = {name.removeprefix("inner."): array for name, array in arrays.items()}
    layers = sum(name.endswith(".intermediate.dense.bias") for name in weights)
    words, steps = (weights[f"embeddings.word_embeddings.weight_{part}"] for part in ("q", "scale"))
    states = bert(weights, layers, heads, _EPSILON)
    return lambda ids, types: states(words[ids[0]] * steps[ids[0]])


class MaskedLanguageModel:
    """BERT with its head, and the greatest logit of any token for each term of the vocabulary.

    Only logits above 0 are asked for, and few terms have one. So all products are made in whole numbers first, which
    takes a third of the time, and those where their error may hide such a logit are made again in fp32.
    """

    def __init__(self, weights: Mapping[str, Array], layers: int, heads: int, epsilon: float) -> None:
        graph = _Graph(weights, heads, epsilon, narrow=False)
        # The decoder is tied to the word embeddings, unless a model has its own.
        self._decoder = weights.get("cls.predictions.decoder.weight", weights["embeddings.word_embeddings.weight"])
        self._bias = weights["cls.predictions.bias"]
        steps, scale = _in_steps(self._decoder.T)
        whole = (steps * scale).T
        self._lengths = np.linalg.norm(whole, axis=1)
        self._rounded = np.linalg.norm(self._decoder - whole, axis=1)
        states = graph.head(graph.states(layers))
        parts = [slice(first, first + _TERMS) for first in range(0, len(scale), _TERMS)]
        self._session = cpu_session(
            graph.model(states, *(graph.product(states, steps[:, one], scale[one]) for one in parts))
        )
        self._product = cpu_session(
            load_extra("onnx.parser", "the embedded encoder").parse_model(_PRODUCT).SerializeToString()
        )

    def logits(self, words: Array) -> tuple[NDArray[np.int32], Array]:
        """The terms whose greatest logit is above 0, ascending, and these logits; NaN counts as above 0."""
        states, *products = self._session.run(None, {"words": np.asarray(words, np.float32)})
        rough = np.concatenate([part.max(axis=0) for part in products]) + self._bias
        # By Cauchy and Schwarz. A state is wrong by a step of its 8 bits at most, a weight by what was rounded away.
        step = (max(states.max(), 0) - min(states.min(), 0)) / 255
        error = np.linalg.norm(states, axis=1).max() * self._rounded + step * states.shape[1] ** 0.5 * self._lengths
        some = np.flatnonzero(~(rough <= -1.01 * error)).astype(np.int32)
        exact = self._product.run(None, {"states": states, "rows": self._decoder[some]})[0]
        best = exact.max(axis=0) + self._bias[some]
        kept = ~(best <= 0)
        return some[kept], best[kept]


_PRODUCT = """<ir_version: 8, opset_import: ["" : 17]>
of_rows (float[t, w] states, float[n, w] rows) => (float[t, n] found) { found = Gemm <transB = 1> (states, rows) }"""


def _in_steps(weight: Array) -> tuple[NDArray[np.int8], Array]:
    """Whole numbers for weights (in, out), and the size of their steps, (out,)."""
    scale = np.maximum(np.abs(weight).max(axis=0) / _STEPS, np.finfo(np.float32).tiny).astype(np.float32)
    return np.rint(weight / scale).astype(np.int8), scale


class _Graph:
    """Nodes and constants of an ONNX graph; each method adds some, and returns the name of their output."""

    def __init__(self, weights: Mapping[str, Array], heads: int, epsilon: float, narrow: bool) -> None:
        self._onnx = load_extra("onnx", "the embedded encoder")
        self._weights, self._heads, self._epsilon, self._narrow = weights, heads, epsilon, narrow
        self._width = weights["embeddings.position_embeddings.weight"].shape[1]
        self._model = self._onnx.ModelProto(ir_version=8)
        self._nodes, self._constants = self._model.graph.node, self._model.graph.initializer

    def _node(self, kind: str, *inputs: str, domain: str = "", **options: Any) -> str:
        name = f"n{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], domain=domain, **options))
        return name

    def _constant(self, array: Any) -> str:
        name = f"c{len(self._constants)}"
        # Not by the library's helpers: each of them would copy the weights once more.
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        self._constants.add(name=name, dims=array.shape, data_type=kind, raw_data=array.tobytes())
        return name

    def _linear(self, states: str, name: str, narrow: bool = False) -> str:
        weight, bias = self._weights[f"{name}.weight"].T, self._constant(self._weights[f"{name}.bias"])
        if not narrow:
            return self._node("Add", self._node("MatMul", states, self._constant(weight)), bias)
        return self.product(states, *_in_steps(weight), bias)

    def product(self, states: str, steps: NDArray[np.int8], scale: Array, *bias: str) -> str:
        """States, in whole numbers of 8 bits, times weights of `_in_steps`."""
        constants = map(self._constant, (steps, scale, np.zeros(len(scale), np.int8)))
        return self._node("DynamicQuantizeMatMul", states, *constants, *bias, domain="com.microsoft")

    def _norm(self, states: str, name: str) -> str:
        given = (self._constant(self._weights[f"{name}.weight"]), self._constant(self._weights[f"{name}.bias"]))
        return self._node("LayerNormalization", states, *given, axis=-1, epsilon=self._epsilon)

    def _gelu(self, states: str) -> str:
        return self._node("Gelu", states, domain="com.microsoft")

    def states(self, layers: int) -> str:
        """The last hidden states, (tokens, width), of the input `words`."""
        zero, axis = self._constant(np.array([0])), self._constant(np.array([0]))
        tokens = self._node("Slice", self._node("Shape", "words"), zero, self._constant(np.array([1])))
        positions = self._constant(self._weights["embeddings.position_embeddings.weight"])
        states = self._node("Add", "words", self._node("Slice", positions, zero, tokens, axis))
        kind = self._constant(self._weights["embeddings.token_type_embeddings.weight"][0])
        states = self._norm(self._node("Add", states, kind), "embeddings.LayerNorm")
        for layer in range(layers):
            states = self._layer(states, f"encoder.layer.{layer}")
        return states

    def _layer(self, states: str, name: str) -> str:
        attended = self._attention(states, f"{name}.attention.self")
        attended = self._linear(attended, f"{name}.attention.output.dense", self._narrow)
        states = self._norm(self._node("Add", attended, states), f"{name}.attention.output.LayerNorm")
        inner = self._gelu(self._linear(states, f"{name}.intermediate.dense", self._narrow))
        found = self._node("Add", self._linear(inner, f"{name}.output.dense"), states)
        return self._norm(found, f"{name}.output.LayerNorm")

    def _attention(self, states: str, name: str) -> str:
        size = self._width // self._heads
        parted = self._constant(np.array([-1, self._heads, size]))

        def part(of: str, order: list[int], factor: float = 1.0) -> str:
            found = self._linear(states, f"{name}.{of}", self._narrow)
            if factor != 1.0:
                found = self._node("Mul", found, self._constant(np.float32(factor)))
            return self._node("Transpose", self._node("Reshape", found, parted), perm=order)

        query, key = part("query", [1, 0, 2], 1 / np.sqrt(size)), part("key", [1, 2, 0])
        shares = self._node("Softmax", self._node("MatMul", query, key), axis=-1)
        found = self._node("Transpose", self._node("MatMul", shares, part("value", [1, 0, 2])), perm=[1, 0, 2])
        return self._node("Reshape", found, self._constant(np.array([-1, self._width])))

    def head(self, states: str) -> str:
        """What the decoder of a masked language model multiplies."""
        head = "cls.predictions.transform"
        return self._norm(self._gelu(self._linear(states, f"{head}.dense")), f"{head}.LayerNorm")

    def model(self, *outputs: str) -> bytes:
        """The serialised model, whose outputs are these."""
        make, kind, graph = self._onnx.helper, self._onnx.TensorProto.FLOAT, self._model.graph
        graph.name = "bert"
        graph.input.append(make.make_tensor_value_info("words", kind, ["tokens", self._width]))
        graph.output.extend(make.make_tensor_value_info(output, kind, None) for output in outputs)
        self._model.opset_import.extend([make.make_opsetid("", 17), make.make_opsetid("com.microsoft", 1)])
        return bytes(self._model.SerializeToString())

"""BERT for one text by ONNX Runtime, from a dictionary of weights: for models that come without a graph of their own.

    bert = Bert(weights, layers, heads, epsilon, narrow=True)
    bert.states(words)                      # word embeddings (tokens, width) to the last hidden states, same shape

Weights are named as transformers names those of `BertModel`. Each text runs by itself, without padding, so that its
states never depend on its neighbours in a batch. The graph is made when the model is loaded, which takes a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.registry import load_extra
from airgen.retrievers.dense.onnx_encoder import cpu_session

Array = NDArray[np.float32]

_TERMS = 4096  # of a vocabulary at once: the logits of all tokens for all terms would leave the cache
_STEPS = 63  # steps of 7 bits: with 8, processors without VNNI would add up too much for 16 bits


class Bert:
    """Embeddings and encoder layers; `weights` are fp32, linear ones (out, in).

    narrow: linear layers in 7 bits with activations in 8, but for the second one of each feed-forward, whose inputs
    have outliers. That is three times as fast, and a cosine of .999 to fp32 (benchmarks/narrow.py).
    logits: the states become the greatest logit of any token for each term of the vocabulary, (terms,), by the head of
    a masked language model.
    """

    def __init__(
        self,
        weights: Mapping[str, Array],
        layers: int,
        heads: int,
        epsilon: float,
        *,
        narrow: bool = False,
        logits: bool = False,
    ) -> None:
        self._weights, self._layers, self._heads, self._epsilon = weights, layers, heads, epsilon
        self._narrow, self._logits = narrow, logits

    def loaded(self) -> Bert:
        """Itself, when the graph is made: before several threads use it."""
        _ = self._session
        return self

    def states(self, words: Array) -> Array:
        """The last hidden states, (tokens, width), or the logits, of the word embeddings of one text."""
        return np.asarray(self._session.run(None, {"words": np.asarray(words, np.float32)})[0], np.float32)

    @cached_property
    def _session(self) -> Any:
        graph = _Graph(self._weights, self._heads, self._epsilon, self._narrow)
        states = graph.states(self._layers)
        return cpu_session(graph.model(graph.logits(states) if self._logits else states))


class _Graph:
    """Nodes and constants of an ONNX graph; each method adds some, and returns the name of their output."""

    def __init__(self, weights: Mapping[str, Array], heads: int, epsilon: float, narrow: bool) -> None:
        self._onnx = load_extra("onnx", "the embedded encoder")
        self._weights, self._heads, self._epsilon, self._narrow = weights, heads, epsilon, narrow
        self._width = weights["embeddings.position_embeddings.weight"].shape[1]
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def _node(self, kind: str, *inputs: str, domain: str = "", **options: Any) -> str:
        name = f"n{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], domain=domain, **options))
        return name

    def _constant(self, array: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _linear(self, states: str, name: str, narrow: bool = False) -> str:
        weight, bias = self._weights[f"{name}.weight"].T, self._constant(self._weights[f"{name}.bias"])
        if not narrow:
            return self._node("Add", self._node("MatMul", states, self._constant(weight)), bias)
        scale = np.maximum(np.abs(weight).max(axis=0) / _STEPS, np.finfo(np.float32).tiny).astype(np.float32)
        steps = [np.rint(weight / scale).astype(np.int8), scale, np.zeros(len(scale), np.int8)]
        given = (states, *map(self._constant, steps), bias)
        return self._node("DynamicQuantizeMatMul", *given, domain="com.microsoft")

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

    def logits(self, states: str) -> str:
        """The greatest logit of any token for each term, (terms,), of the head of a masked language model.

        The decoder is tied to the word embeddings, unless a model has its own. The bias comes last: it is the same for
        all tokens, and rounding keeps their order.
        """
        head = "cls.predictions.transform"
        states = self._norm(self._gelu(self._linear(states, f"{head}.dense")), f"{head}.LayerNorm")
        words = self._weights["embeddings.word_embeddings.weight"]
        decoder = self._weights.get("cls.predictions.decoder.weight", words)
        best = []
        for first in range(0, len(decoder), _TERMS):
            every = self._node("MatMul", states, self._constant(decoder[first : first + _TERMS].T))
            best.append(self._node("ReduceMax", every, axes=[0], keepdims=0))
        bias = self._constant(self._weights["cls.predictions.bias"])
        return self._node("Add", self._node("Concat", *best, axis=0), bias)

    def model(self, output: str) -> bytes:
        """The serialised model, whose output is this one."""
        make, kind = self._onnx.helper, self._onnx.TensorProto.FLOAT
        graph = make.make_graph(
            self._nodes,
            "bert",
            [make.make_tensor_value_info("words", kind, ["tokens", self._width])],
            [make.make_tensor_value_info(output, kind, None)],
            self._constants,
        )
        versions = [make.make_opsetid("", 17), make.make_opsetid("com.microsoft", 1)]
        model = make.make_model(graph, opset_imports=versions)
        model.ir_version = 8
        return bytes(model.SerializeToString())

"""Build an ONNX Runtime graph of BERT from weights with transformers' names.

    states = bert(weights, layers, heads, epsilon, narrow=True)
    states(words)                           # word embeddings (tokens, width) to the last hidden states, same shape

This is for models without a graph, or with a slow one.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.components.registry import load_extra

Array = NDArray[np.float32]
Run = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]
"""Token ids and token types, (1, tokens) each, to the model's output for that text."""

_EPSILON = 1e-12  # BERT's
_TERMS_AT_ONCE = 4096  # vocabulary entries at once
_STEPS = 63  # steps of 7 bits, because with 8 bits, sums overflow 16 bits on processors without VNNI


def cpu_session(model: str | bytes) -> Any:
    """Open a file or a serialised model with ONNX Runtime. Each run uses one core."""
    onnxruntime = load_extra("onnxruntime", "the embedded encoder")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def bert(
    weights: Mapping[str, Array], layers: int, heads: int, epsilon: float, *, narrow: bool = False
) -> Callable[[Array], Array]:
    """Build a function that maps the word embeddings of a text, (tokens, width), to its last hidden states, same shape.

    Args:
        weights: Weights in fp32 by transformers' names. Linear weights are (out, in).
        layers: Number of layers.
        heads: Number of attention heads.
        epsilon: Epsilon of the layer norms.
        narrow: Run linear layers with 7-bit weights and 8-bit activations, except the second layer of each feed-forward
            block, whose inputs have outliers. This is three times as fast, with a cosine similarity of .999 to fp32
            (benchmarks/narrow.py).
    """
    graph = _Graph(weights, heads, epsilon, narrow)
    session = cpu_session(graph.model(graph.states(layers)))
    return lambda words: np.asarray(session.run(None, {"words": np.asarray(words, np.float32)})[0], np.float32)


def exported_bert(path: str, heads: int) -> Run:
    """Run a BERT exported by PyTorch, with int8 weights and fp32 scales, using the graph of `bert`.

    The states equal those of the file's own graph except in the last digits, in four fifths of the time: there is no
    mask to add and no check for NaN, and products include the bias (docs/notes/models.md).
    """
    onnx = load_extra("onnx", "the embedded encoder")
    graph = onnx.load(path).graph
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    factors: dict[str, Any] = {}
    for node in graph.node:
        first, last, output = node.input[0], node.input[-1], node.output[0]
        if "word_embeddings" in output:  # the largest by far, so they stay in int8
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
    """BERT with its language modelling head, returning the maximum logit over tokens for each vocabulary term.

    Only positive logits matter, and few terms have one. All products are therefore first computed in integers, which
    takes a third of the time, and recomputed in fp32 if their error might hide a positive logit.
    """

    def __init__(self, weights: Mapping[str, Array], layers: int, heads: int, epsilon: float) -> None:
        graph = _Graph(weights, heads, epsilon, narrow=False)
        # The decoder is tied to the word embeddings, unless a model has its own.
        self._decoder = weights.get("cls.predictions.decoder.weight", weights["embeddings.word_embeddings.weight"])
        self._bias = weights["cls.predictions.bias"]
        steps, scale = _in_steps(self._decoder.T)
        rounded = (steps * scale).T
        self._lengths = np.linalg.norm(rounded, axis=1)
        self._rounded = np.linalg.norm(self._decoder - rounded, axis=1)
        states = graph.head(graph.states(layers))
        parts = [slice(first, first + _TERMS_AT_ONCE) for first in range(0, len(scale), _TERMS_AT_ONCE)]
        self._session = cpu_session(
            graph.model(states, *(graph.product(states, steps[:, part], scale[part]) for part in parts))
        )
        self._product = cpu_session(
            load_extra("onnx.parser", "the embedded encoder").parse_model(_PRODUCT).SerializeToString()
        )

    def logits(self, words: Array) -> tuple[NDArray[np.int32], Array]:
        """Return the terms with a positive maximum logit, ascending, and these logits. NaN counts as positive."""
        states, *products = self._session.run(None, {"words": np.asarray(words, np.float32)})
        rough = np.concatenate([part.max(axis=0) for part in products]) + self._bias
        # By Cauchy and Schwarz. The error of a state is at most a step of its 8 bits, and that of a weight is the
        # rounding error.
        step = (max(states.max(), 0) - min(states.min(), 0)) / 255
        error = np.linalg.norm(states, axis=1).max() * self._rounded + step * states.shape[1] ** 0.5 * self._lengths
        candidates = np.flatnonzero(~(rough <= -1.01 * error)).astype(np.int32)
        exact = self._product.run(None, {"states": states, "rows": self._decoder[candidates]})[0]
        best = exact.max(axis=0) + self._bias[candidates]
        positive = ~(best <= 0)
        return candidates[positive], best[positive]


_PRODUCT = """<ir_version: 8, opset_import: ["" : 17]>
of_rows (float[t, w] states, float[n, w] rows) => (float[t, n] found) { found = Gemm <transB = 1> (states, rows) }"""


def _in_steps(weight: Array) -> tuple[NDArray[np.int8], Array]:
    """Round weights (in, out) to integers, and return them with their step sizes, (out,)."""
    scale = np.maximum(np.abs(weight).max(axis=0) / _STEPS, np.finfo(np.float32).tiny).astype(np.float32)
    return np.rint(weight / scale).astype(np.int8), scale


class _Graph:
    """Builder of an ONNX graph. Each method adds nodes and constants, and returns the name of their output."""

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
        # Without the library's helpers, each of which would copy the weights again.
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        self._constants.add(name=name, dims=array.shape, data_type=kind, raw_data=array.tobytes())
        return name

    def _linear(self, states: str, name: str, narrow: bool = False) -> str:
        weight, bias = self._weights[f"{name}.weight"].T, self._constant(self._weights[f"{name}.bias"])
        if not narrow:
            return self._node("Add", self._node("MatMul", states, self._constant(weight)), bias)
        return self.product(states, *_in_steps(weight), bias)

    def product(self, states: str, steps: NDArray[np.int8], scale: Array, *bias: str) -> str:
        """Multiply states, as 8-bit integers, by weights from `_in_steps`."""
        constants = map(self._constant, (steps, scale, np.zeros(len(scale), np.int8)))
        return self._node("DynamicQuantizeMatMul", states, *constants, *bias, domain="com.microsoft")

    def _norm(self, states: str, name: str) -> str:
        parameters = (self._constant(self._weights[f"{name}.weight"]), self._constant(self._weights[f"{name}.bias"]))
        return self._node("LayerNormalization", states, *parameters, axis=-1, epsilon=self._epsilon)

    def _gelu(self, states: str) -> str:
        return self._node("Gelu", states, domain="com.microsoft")

    def states(self, layers: int) -> str:
        """Return the last hidden states, (tokens, width), of the input `words`."""
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
        total = self._node("Add", self._linear(inner, f"{name}.output.dense"), states)
        return self._norm(total, f"{name}.output.LayerNorm")

    def _attention(self, states: str, name: str) -> str:
        size = self._width // self._heads
        parted = self._constant(np.array([-1, self._heads, size]))

        def part(of: str, order: list[int], factor: float = 1.0) -> str:
            projected = self._linear(states, f"{name}.{of}", self._narrow)
            if factor != 1.0:
                projected = self._node("Mul", projected, self._constant(np.float32(factor)))
            return self._node("Transpose", self._node("Reshape", projected, parted), perm=order)

        query, key = part("query", [1, 0, 2], 1 / np.sqrt(size)), part("key", [1, 2, 0])
        shares = self._node("Softmax", self._node("MatMul", query, key), axis=-1)
        context = self._node("Transpose", self._node("MatMul", shares, part("value", [1, 0, 2])), perm=[1, 0, 2])
        return self._node("Reshape", context, self._constant(np.array([-1, self._width])))

    def head(self, states: str) -> str:
        """Apply the transform before the decoder of a masked language model."""
        head = "cls.predictions.transform"
        return self._norm(self._gelu(self._linear(states, f"{head}.dense")), f"{head}.LayerNorm")

    def model(self, *outputs: str) -> bytes:
        """Serialise the model with these outputs."""
        make, kind, graph = self._onnx.helper, self._onnx.TensorProto.FLOAT, self._model.graph
        graph.name = "bert"
        graph.input.append(make.make_tensor_value_info("words", kind, ["tokens", self._width]))
        graph.output.extend(make.make_tensor_value_info(output, kind, None) for output in outputs)
        self._model.opset_import.extend([make.make_opsetid("", 17), make.make_opsetid("com.microsoft", 1)])
        return bytes(self._model.SerializeToString())

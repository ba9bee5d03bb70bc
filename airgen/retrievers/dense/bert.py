"""The forward pass of BERT for one text, by numpy alone: for models small enough that torch is not worth installing.

Weights are named as transformers names those of `BertModel`. Each text runs by itself, without padding, so that its
states never depend on its neighbours in a batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Bert", "gelu", "layer_norm"]

Array = NDArray[np.float32]

_CACHED = 1 << 14  # values worked on at once, so that temporaries stay in the cache


class Bert:
    """Embeddings and encoder layers; `weights` are fp32, linear ones (out, in)."""

    def __init__(self, weights: Mapping[str, Array], layers: int, heads: int, epsilon: float) -> None:
        # (in, out): BLAS multiplies a few rows by these nearly twice as fast.
        self._weights = {
            name: np.ascontiguousarray(array.T) if name.startswith("encoder.") and array.ndim == 2 else array
            for name, array in weights.items()
        }
        self._layers, self._heads, self._epsilon = layers, heads, epsilon

    def states(self, words: Array) -> Array:
        """The last hidden states, (tokens, width), of the word embeddings of one text, (tokens, width)."""
        states = words + self._weights["embeddings.position_embeddings.weight"][: len(words)]
        states = states + self._weights["embeddings.token_type_embeddings.weight"][0]
        states = self._norm(states, "embeddings.LayerNorm")
        for layer in range(self._layers):
            states = self._layer(states, f"encoder.layer.{layer}")
        return states

    def _layer(self, states: Array, name: str) -> Array:
        attended = self._dense(self._attention(states, f"{name}.attention.self"), f"{name}.attention.output.dense")
        states = self._norm(attended + states, f"{name}.attention.output.LayerNorm")
        inner = gelu(self._dense(states, f"{name}.intermediate.dense"))
        return self._norm(self._dense(inner, f"{name}.output.dense") + states, f"{name}.output.LayerNorm")

    def _attention(self, states: Array, name: str) -> Array:
        tokens, width = states.shape
        query, key, value = (self._dense(states, f"{name}.{part}") for part in ("query", "key", "value"))
        query /= np.float32(np.sqrt(width // self._heads))
        found = np.empty((tokens, width), np.float32)
        for start in range(0, width, width // self._heads):  # a head's scores stay in the cache
            part = slice(start, start + width // self._heads)
            scores = query[:, part] @ key[:, part].T
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            np.matmul(scores, value[:, part], out=found[:, part])
        return found

    def _dense(self, states: Array, name: str) -> Array:
        found = states @ self._weights[f"{name}.weight"]
        found += self._weights[f"{name}.bias"]
        return np.asarray(found, np.float32)

    def _norm(self, states: Array, name: str) -> Array:
        return layer_norm(states, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"], self._epsilon)


def layer_norm(states: Array, weight: Array, bias: Array, epsilon: float) -> Array:
    """Layer normalisation over the last axis."""
    centred = states - np.add.reduce(states, axis=-1, keepdims=True) * np.float32(1 / states.shape[-1])
    variance = np.einsum("...i,...i->...", centred, centred)[..., None] * np.float32(1 / states.shape[-1])
    centred /= np.sqrt(variance + np.float32(epsilon))
    centred *= weight
    centred += bias
    return np.asarray(centred, np.float32)


def gelu(values: Array) -> Array:
    """GELU by the error function, as BERT has it."""
    found = np.empty_like(values)
    rows = max(1, _CACHED // max(1, values.shape[-1]))
    for start in range(0, len(values), rows):
        part = values[start : start + rows]
        bent = _erf(part * np.float32(np.sqrt(0.5)))
        bent += 1
        bent *= part
        np.multiply(bent, np.float32(0.5), out=found[start : start + rows])
    return found


def _erf(values: Array) -> Array:
    """The error function to 1.5e-7 (Abramowitz and Stegun, 7.1.26); numpy has none."""
    size = np.abs(values)
    t = size * np.float32(0.3275911)
    t += 1
    np.reciprocal(t, out=t)
    series = t * np.float32(1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series += np.float32(factor)
        series *= t
    size *= -size
    np.exp(size, out=size)
    series *= size
    np.subtract(1, series, out=series)
    return np.asarray(np.copysign(series, values, out=series), np.float32)

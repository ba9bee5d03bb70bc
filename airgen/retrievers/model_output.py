"""Check the output of models: vectors and scores must be finite, and as many as requested."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.errors import ModelError
from airgen.safety.escaping import one_line


def finite(vectors: NDArray[np.float32], model: str) -> NDArray[np.float32]:
    """Return the vectors unchanged. Raises ModelError for NaN or infinity, naming the position in the batch."""
    is_finite = np.isfinite(vectors).all(axis=-1)
    if not is_finite.all():
        raise ModelError(f"{model} returned NaN or infinity for text {int(np.flatnonzero(~is_finite)[0])} of its batch")
    return vectors


def as_vectors(vectors: Any, model: str) -> NDArray[np.float32]:
    """Return vectors as a float32 array of any shape. Raises ModelError for anything but numbers."""
    try:
        return np.asarray(vectors, np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{model} returned vectors that are not numbers ({one_line(error, 100)})") from None


def unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale rows to length 1. Rows of zeros are unchanged."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.float32(1e-12)), np.float32)


def checked_scores(scores: Any, count: int, model: str) -> NDArray[np.float32]:
    """Return scores as float32 (count,). Raises ModelError for a wrong number of scores, text, NaN or infinity."""
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(scores, np.float32).reshape(-1)
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{model} returned scores that are not numbers ({one_line(error, 100)})") from None
    if len(array) != count:
        raise ModelError(f"{model} returned {len(array)} scores for {count} pairs")
    if not np.isfinite(array).all():
        wrong = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ModelError(
            f"{model} returned {array[wrong]} as the score of pair {wrong}: a score must be a finite number"
        )
    return array

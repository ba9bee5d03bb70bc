"""The hot loops of the inverted index in numpy; `_postings_compiled` has them for numba, equal to the bit.

Both add a query's postings term by term in float32, in the query's order, without fused operations; both order
hits by score, then by position. So a result does not depend on whether numba is installed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def count_postings(
    terms: NDArray[np.int32], lengths: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Postings from the term ids of texts one after another; `size` is how many terms there are.

    Returns starts int64 (size + 1,), positions int32 and frequencies int32: term t stands in the texts
    `positions[starts[t]:starts[t + 1]]`, in ascending order.
    """
    texts = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    width = max(1, len(lengths))
    keys, counts = np.unique(terms.astype(np.int64) * width + texts, return_counts=True)
    starts = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(keys // width, minlength=size), out=starts[1:])
    return starts, (keys % width).astype(np.int32), counts.astype(np.int32)


def search(
    starts: NDArray[np.int64],
    positions: NDArray[np.int32],
    impacts: NDArray[np.float32],
    size: int,
    bounds: NDArray[np.int64],
    terms: NDArray[np.int64],
    weights: NDArray[np.float32],
    out_positions: NDArray[np.int32],
    out_scores: NDArray[np.float32],
) -> None:
    """Search queries `terms[bounds[i]:bounds[i + 1]]` with their weights; fills the two (n, k) outputs."""
    k = out_positions.shape[1]
    for query in range(len(bounds) - 1):
        scores = np.zeros(size, np.float32)
        for place in range(bounds[query], bounds[query + 1]):
            part = slice(starts[terms[place]], starts[terms[place] + 1])
            scores[positions[part]] += weights[place] * impacts[part]  # a text is once in a term's postings
        found = np.flatnonzero(scores > 0)
        if len(found) > k:
            found = found[scores[found] >= np.partition(scores[found], -k)[-k]]
        found = found[np.argsort(-scores[found], kind="stable")][:k]
        out_positions[query, : len(found)] = found
        out_scores[query, : len(found)] = scores[found]

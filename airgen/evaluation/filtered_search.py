"""Search among the passages that match a query's filter, for retrievers without filters.

    hits = retriever.search(["how do I reset it?"], 1000)
    hits = search_within(retriever, ["how do I reset it?"], [{"version": "2"}], corpus, k=1000, hits=hits)

A retriever ranks the whole corpus, so more hits are requested until k of them match or there are no more. For exact
search, the result equals that of a search over the matching passages only.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.evaluation.dataset_split import fits
from airgen.retrievers.hits import Hits
from airgen.retrievers.passages import Passages
from airgen.retrievers.protocols import Retriever

_DEPTH_FACTOR = 4  # how many times as many hits each further search requests

Filter = Mapping[str, Any]


def search_within(
    retriever: Retriever,
    queries: Sequence[str],
    filters: Sequence[Filter | None],
    corpus: Passages,
    *,
    k: int,
    hits: Hits,
) -> Hits:
    """Return the best k hits of each query among the passages that match its filter.

    Args:
        retriever: A retriever that has indexed the corpus.
        queries: Texts of n queries.
        filters: The filter of each query, or None if all passages match.
        corpus: The passages, with their metadata.
        k: Number of hits per query.
        hits: The best k hits among all passages, which are tried first.

    Returns:
        The hits, with arrays of shape (n, k).
    """
    fitting = _Fitting(corpus)
    rows = list(range(len(queries)))
    best, depth = Hits.none(len(queries), k), k
    while rows:
        unfinished = []
        for place, row in enumerate(rows):
            positions, scores = hits.positions[place], hits.scores[place]
            retrieved = positions >= 0
            keep = (
                retrieved
                if filters[row] is None
                else retrieved & fitting.mask(filters[row])[np.where(retrieved, positions, 0)]
            )
            exhausted = int(retrieved.sum()) < depth or depth >= len(corpus.ids)
            if int(keep.sum()) < k and not exhausted:
                unfinished.append(row)
                continue
            best.put(row, positions[keep][:k], scores[keep][:k])
        rows, depth = unfinished, min(len(corpus.ids), depth * _DEPTH_FACTOR)
        if rows:
            hits = retriever.search([queries[row] for row in rows], depth)
    return best


class _Fitting:
    """Caches which passages match each distinct filter."""

    def __init__(self, corpus: Passages) -> None:
        self._metadata = corpus.metadata or [{}] * len(corpus.ids)
        self._masks: dict[str, NDArray[np.bool_]] = {}

    def mask(self, wanted: Filter | None) -> NDArray[np.bool_]:
        """Return, for each passage, whether it matches."""
        key = json.dumps(wanted, sort_keys=True, default=str)
        if key not in self._masks:
            self._masks[key] = np.array([fits(metadata, wanted) for metadata in self._metadata], bool)
        return self._masks[key]

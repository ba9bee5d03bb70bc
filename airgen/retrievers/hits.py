"""The hits of a search, as arrays of positions in the corpus and scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Hits:
    """The hits of n queries, best first. Ties are in order of position.

    Args:
        positions: Positions in the corpus, int32 (n, k), with -1 after the last hit.
        scores: Scores, float32 (n, k), with -inf after the last hit.
    """

    positions: NDArray[np.int32]
    scores: NDArray[np.float32]

    @classmethod
    def none(cls, queries: int, k: int) -> Hits:
        """Return arrays for k hits per query, without any hits."""
        return cls(np.full((queries, k), -1, np.int32), np.full((queries, k), -np.inf, np.float32))

    def put(self, row: int, positions: NDArray[np.int32], scores: NDArray[np.float32]) -> None:
        """Set the hits of a query, at most k."""
        self.positions[row, : len(positions)], self.scores[row, : len(scores)] = positions, scores

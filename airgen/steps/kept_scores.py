"""Scores that re-rankers gave while queries were generated, which pre-labels take over instead of scoring again.

    kept = KeptScores()
    kept.keep(0, reranker, pairs, reranker.score(pairs))
    kept.find(0, query, text)          # its score, or None

Only scores that depend on their pair alone are kept (`Component.alone`), so rows are the same with and without them,
for example when a job goes on in another process.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_SCORES = 500_000  # some 100 MB; the oldest are forgotten


class KeptScores:
    """The latest scores of a job's re-rankers, by the place of the re-ranker and a hash of the pair."""

    def __init__(self, most: int = _MOST_SCORES) -> None:
        self._most = most
        self._scores: OrderedDict[tuple[int, bytes], float] = OrderedDict()

    def keep(self, place: int, reranker: Any, pairs: Sequence[tuple[str, str]], scores: NDArray[np.float32]) -> None:
        """Keep the scores of (query, passage) pairs, if they do not depend on the other pairs."""
        if not getattr(reranker, "alone", False) or len(scores) != len(pairs):
            return
        for pair, score in zip(pairs, scores, strict=True):
            self._scores[place, _key(*pair)] = float(score)
        while len(self._scores) > self._most:
            self._scores.popitem(last=False)

    def find(self, place: int, query: str, passage: str) -> float | None:
        """Return the score of a pair, as the re-ranker gave it; None if it is not kept."""
        return self._scores.get((place, _key(query, passage))) if self._scores else None


def _key(query: str, passage: str) -> bytes:
    sizes = f"{len(query)} "
    return blake2b(f"{sizes}{query}{passage}".encode("utf-8", "surrogatepass"), digest_size=16).digest()

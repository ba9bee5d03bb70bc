"""The words of a collection: how often each occurs, how their number grows, how two collections differ.

    vocabulary = Vocabulary("en")
    vocabulary.add(["The cats sat", "a cat"])
    vocabulary.tokens, vocabulary.types               # 5, 5
    weighted_jaccard(vocabulary, other)               # 0 to 1

Words are not stemmed and stop words are kept, because the wording itself is measured. Words are found as BM25 finds
them (`airgen.text.analysis`), and in Chinese, Japanese and Korean by `airgen.text.words`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airgen.text.analysis import Encoder, analyser

_FIT_FROM = 100  # tokens; among fewer, nearly every word is new in any text


@dataclass(frozen=True, slots=True)
class Growth:
    """The number of types (different words) after a number of tokens, in the order of the texts (Heaps 1978).

    `factor` and `exponent` are K and b of types = K tokens^b, fitted by least squares to the logarithms of the
    points from 100 tokens on; None if there are fewer than three points.
    """

    tokens: tuple[int, ...]
    types: tuple[int, ...]
    factor: float | None
    exponent: float | None


class Vocabulary:
    """Counts of the words of one collection, which is added batch by batch."""

    def __init__(self, language: str) -> None:
        chain = analyser(language, stem=False, stopwords=False, segment=language in ("zh", "ja", "ko"))
        self._encoder = Encoder(chain)
        self._counts = np.zeros(0, np.int64)
        self._curve: list[tuple[int, int]] = []
        self.tokens = 0

    def add(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Count the words of more texts; returns how many each text has, int64 (texts,)."""
        terms, lengths = self._encoder.encode(texts)
        self._grow(terms)
        counts = np.bincount(terms, minlength=len(self._encoder.vocabulary))
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        self.tokens += len(terms)
        return lengths

    def _grow(self, terms: NDArray[np.int32]) -> None:
        """Add the points of the curve that fall within these terms: at 1, 2, 5, 10, 20, 50, ... tokens."""
        if not len(terms):
            return
        # Ids are given in the order of first appearance, so the largest id so far gives the number of types.
        highest = np.maximum.accumulate(terms)
        last = self.tokens + len(terms)
        for mark in (step * 10**power for power in range(len(str(last))) for step in (1, 2, 5)):
            if self.tokens < mark <= last:
                self._curve.append((mark, int(max(len(self._counts), highest[mark - self.tokens - 1] + 1))))

    @property
    def types(self) -> int:
        """How many different words there are."""
        return len(self._counts)

    def growth(self) -> Growth:
        """The curve so far; its last point is all texts."""
        points = [*self._curve]
        if self.tokens and (not points or points[-1][0] != self.tokens):
            points.append((self.tokens, self.types))
        fitted = np.log(np.array([point for point in points if point[0] >= _FIT_FROM], float).reshape(-1, 2))
        factor = exponent = None
        if len(fitted) >= 3:
            exponent, intercept = (float(value) for value in np.polyfit(fitted[:, 0], fitted[:, 1], 1))
            factor = float(np.exp(intercept))
        return Growth(tuple(at for at, _ in points), tuple(types for _, types in points), factor, exponent)

    def shares(self) -> dict[str, float]:
        """Each word's frequency over the sum of all words' frequencies."""
        total = max(1, self.tokens)
        return {word: int(self._counts[place]) / total for word, place in self._encoder.vocabulary.items()}


def weighted_jaccard(left: Vocabulary, right: Vocabulary) -> float:
    """Of each word's two shares, the sum of the smaller over the sum of the larger (BEIR, appendix F), 0 to 1."""
    one, other = left.shares(), right.shares()
    if len(other) < len(one):
        one, other = other, one
    if not one:
        return 0.0
    # The shares of each side sum to 1, so the two sums add up to 2.
    smaller = min(math.fsum(min(share, other[word]) for word, share in one.items() if word in other), 1.0)
    return smaller / (2.0 - smaller)


def jaccard_matrix(vocabularies: Sequence[Vocabulary]) -> NDArray[np.float64]:
    """Weighted Jaccard similarity of each pair, float64 (n, n), 1 on the diagonal."""
    found = np.eye(len(vocabularies))
    for row in range(len(vocabularies)):
        for column in range(row):
            found[row, column] = found[column, row] = weighted_jaccard(vocabularies[row], vocabularies[column])
    return found

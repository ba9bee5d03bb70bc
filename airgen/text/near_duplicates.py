"""Near duplicates among short texts: exact Jaccard similarity of their words, without comparing every pair.

    seen = NearDuplicateIndex("en")
    seen.add("How do bees make honey?")        # None: nothing like it came before
    seen.add("how do bees make honey")         # 0: the place of the first text like it

Two sets of n and m words with a Jaccard similarity of at least t share a word among the first n - ceil(t n) + 1 and
m - ceil(t m) + 1 of them in any one order (prefix filtering, Chaudhuri et al. 2006), so only those are looked up.
For documents there is MinHash (`airgen.corpus.cleaning.minhash`); queries are too short for its estimate.
"""

from __future__ import annotations

import math
import unicodedata

from airgen.text.words import words

__all__ = ["THRESHOLD", "NearDuplicateIndex", "alike", "folded_words"]

THRESHOLD = 0.8  # Jaccard similarity from which two texts say the same


def folded_words(text: str, language: str) -> list[str]:
    """The words of a text in order, without differences of case, width or composition."""
    return [word.casefold() for word in words(unicodedata.normalize("NFKC", text), language)]


def alike(left: frozenset[str], right: frozenset[str], threshold: float = THRESHOLD) -> bool:
    """True for two sets of words with at least this Jaccard similarity; two empty ones are not alike."""
    return bool(left or right) and len(left & right) >= threshold * len(left | right)


class NearDuplicateIndex:
    """Texts seen so far, in the order they were added. `threshold` is a Jaccard similarity above 0."""

    def __init__(self, language: str, threshold: float = THRESHOLD) -> None:
        self._language, self._threshold = language, threshold
        self._sets: list[frozenset[str]] = []
        self._places: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self._sets)

    def find(self, text: str) -> int | None:
        """The place of the earliest text that is like this one, or None."""
        return self._find(frozenset(folded_words(text, self._language)))

    def add(self, text: str) -> int | None:
        """Add a text, and return the place of the earliest one before it that is like it, or None."""
        new = frozenset(folded_words(text, self._language))
        found = self._find(new)
        for word in self._prefix(new):
            self._places.setdefault(word, []).append(len(self._sets))
        self._sets.append(new)
        return found

    def _find(self, new: frozenset[str]) -> int | None:
        candidates = {place for word in self._prefix(new) for place in self._places.get(word, ())}
        return min((place for place in candidates if alike(new, self._sets[place], self._threshold)), default=None)

    def _prefix(self, some: frozenset[str]) -> list[str]:
        # Long words first: they are rare, so that few texts share them.
        kept = len(some) - math.ceil(self._threshold * len(some) - 1e-9) + 1
        return sorted(some, key=lambda word: (-len(word), word))[:kept]

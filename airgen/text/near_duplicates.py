"""Find near duplicates among short texts by the exact Jaccard similarity of their words, and words copied from a
document.

    seen = NearDuplicateIndex("en")
    seen.add("How do bees make honey?")        # None: no similar text came before
    seen.add("how do bees make honey")         # 0: the place of the first similar text
    borrowed("wings that bend", "The wing bends under load.", "en")     # (1.0, ["wings", "bend"])

Not every pair is compared (prefix filtering, Chaudhuri et al. 2006): if sets of n and m words have a Jaccard similarity
of at least t, they share at least o = ceil(t (n + m) / (1 + t)) words. In any fixed order of words, the first n - o + k
words of one and the first m - o + k words of the other then have k words in common. Texts are found by two such words
and both sizes, so a text in a log of a million queries is compared with few others, even with those that differ from it
in a number alone.
Documents use MinHash (`airgen.corpus.cleaning.duplicates`), whose estimate is too rough for queries.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import combinations

from airgen.text.analysis import Analyser, analyser
from airgen.text.normal_form import normal_form
from airgen.text.words import words

THRESHOLD = 0.8  # minimum Jaccard similarity of near duplicates
_TOGETHER = 2  # words by which a text is found: k above
_MOST_KEYS = 10  # of a text for another size, unless they are single words
_ROUNDING = 1e-9


def folded_words(text: str, language: str) -> list[str]:
    """Return the words of a text in order, case-folded and in NFKC."""
    return list(_folded_words(text, language))


@lru_cache(maxsize=32)  # a document is compared with each query, rewrite and negative
def _folded_words(text: str, language: str) -> tuple[str, ...]:
    return tuple(word.casefold() for word in words(normal_form("NFKC", text), language))


def word_counts(texts: Iterable[str], language: str) -> Counter[str]:
    """Return the number of texts with each word."""
    return Counter(word for text in texts for word in set(_folded_words(text, language)))


def alike(left: frozenset[str], right: frozenset[str], threshold: float = THRESHOLD) -> bool:
    """Return whether two sets of words have at least this Jaccard similarity. Two empty sets do not count as
    similar."""
    return bool(left or right) and len(left & right) >= threshold * len(left | right)


class NearDuplicateIndex:
    """The texts added so far, in order. `threshold` is a Jaccard similarity above 0.

    Args:
        counts: Number of texts with each word (case-folded), if known. It affects only the speed.
    """

    def __init__(self, language: str, threshold: float = THRESHOLD, counts: Mapping[str, int] | None = None) -> None:
        self._language, self._threshold, self._counts = language, threshold, counts
        self._sets: list[frozenset[str]] = []
        self._places: dict[int, list[int]] = {}
        self._plans: dict[int, list[tuple[int, int, int]]] = {}  # by the size of a set

    def __len__(self) -> int:
        return len(self._sets)

    def find(self, text: str) -> int | None:
        """Return the position of the first text that is similar to this one, or None."""
        return next(iter(self.places(text)), None)

    def add(self, text: str) -> int | None:
        """Add a text, and return the position of the first earlier text that is similar to it, or None."""
        new = frozenset(folded_words(text, self._language))
        similar = self._similar(new)
        for size, words_ in self._keys(new):
            self._places.setdefault(hash((len(new), size, words_)), []).append(len(self._sets))
        self._sets.append(new)
        return next(iter(similar), None)

    def places(self, text: str) -> list[int]:
        """Return the positions of all texts that are similar to this one, in order."""
        return self._similar(frozenset(folded_words(text, self._language)))

    def _similar(self, new: frozenset[str]) -> list[int]:
        keys = (hash((size, len(new), words_)) for size, words_ in self._keys(new))
        candidates = {place for key in keys for place in self._places.get(key, ())}
        return sorted(place for place in candidates if alike(new, self._sets[place], self._threshold))

    def _keys(self, unique: frozenset[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield the sizes of sets that may be similar, each with some words that such a set has in common with this
        one."""
        size, ordered = len(unique), self._ordered(unique)
        if size not in self._plans:
            self._plans[size] = list(self._plan(size))
        for other, first, together in self._plans[size]:
            for chosen in combinations(ordered[:first], together):
                yield other, chosen

    def _plan(self, size: int) -> Iterator[tuple[int, int, int]]:
        """Yield the sizes of sets that may be similar, each with the number of first words, and how many of them are
        taken together."""
        threshold = self._threshold
        for other in range(math.ceil(threshold * size - _ROUNDING), math.floor(size / threshold + _ROUNDING) + 1):
            common = max(1, math.ceil(threshold * (size + other) / (1 + threshold) - _ROUNDING))
            more = max(size, other) - common
            many = range(min(common, _TOGETHER), 1, -1)
            together = next((count for count in many if math.comb(more + count, count) <= _MOST_KEYS), 1)
            yield other, size - common + together, together

    def _ordered(self, unique: frozenset[str]) -> list[str]:
        if self._counts is not None:
            known = self._counts
            return sorted(unique, key=lambda word: (known.get(word, 0), word))
        # Long words come first, because they are rare.
        return sorted(unique, key=lambda word: (-len(word), word))


stemmer = lru_cache(maxsize=16)(analyser)


@lru_cache(maxsize=32)  # a document is compared with each draft of a query, once for itself and once with its scenario
def _document_stems(document: str, language: str) -> frozenset[str]:
    stems: Analyser = stemmer(language)
    return frozenset(stems(document))


def borrowed(query: str, document: str, language: str) -> tuple[float, list[str]]:
    """Measure how many of a query's words also occur in its document, by stems and without stop words.

    Returns:
        The share of the query's distinct stems that occur in the document, 0 to 1, and the query's words with these
        stems.
    """
    stems: Analyser = stemmer(language)
    query_stems = set(stems(query))
    shared = query_stems & _document_stems(document, language)
    named = [word for word in dict.fromkeys(words(query, language)) if shared & set(stems(word))]
    return (len(shared) / len(query_stems) if query_stems else 0.0), named

"""How much of a query is copied from a document.

>>> borrowed("wings that bend", "The wing bends under load.", "en")
(1.0, ['wings', 'bend'])
"""

from __future__ import annotations

from functools import lru_cache

from airgen.text.analysis import Analyser, analyser
from airgen.text.words import words

_analyser = lru_cache(maxsize=16)(analyser)


def borrowed(query: str, document: str, language: str) -> tuple[float, list[str]]:
    """The share of the query's distinct stems that the document has, 0 to 1, and the query's words with these stems.

    Stop words are left out on both sides.
    """
    stems: Analyser = _analyser(language)
    asked = set(stems(query))
    shared = asked & set(stems(document))
    named = [word for word in dict.fromkeys(words(query, language)) if shared & set(stems(word))]
    return (len(shared) / len(asked) if asked else 0.0), named

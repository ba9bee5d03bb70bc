"""The checks that an answer must pass before anything more is paid for it.

Each returns what is wrong, in words that are told to the model for its next attempt, or None.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from airgen.pipeline.stages.attributes import LENGTH_TEXT, WORDS
from airgen.settings import GenerationSettings
from airgen.text.language_check import self_reference, wrong_language
from airgen.text.near_duplicates import alike, folded_words
from airgen.text.overlap import borrowed
from airgen.text.words import count_words

__all__ = [
    "copied",
    "duplicates",
    "first_problem",
    "longest_common_run",
    "names_character",
    "near_parts",
    "off_subject",
    "overlap",
    "self_reference",
    "too_near",
    "wrong_language",
    "wrong_length",
]


def first_problem(*problems: str | None) -> str | None:
    """The first of several findings."""
    return next((problem for problem in problems if problem), None)


def wrong_length(text: str, length: str, language: str) -> str | None:
    """The asked length class (A.2.1), by the language's own words."""
    least, most = WORDS[length]
    count = count_words(text, language)
    if count >= least and (most is None or count <= most):
        return None
    return f"wrong length: it has {count} words, wanted is {LENGTH_TEXT[length]}"


def longest_common_run(left: Sequence[str], right: Sequence[str]) -> int:
    """The length of the longest run of equal words that both have."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(right):
        places.setdefault(word, []).append(place)
    best, before = 0, dict[int, int]()  # place in `right` -> length of the run that ends there
    for word in left:
        before = {place: before.get(place - 1, 0) + 1 for place in places.get(word, ())}
        best = max(best, max(before.values(), default=0))
    return best


def copied(query: str, document: str, language: str, most: int) -> str | None:
    """A query that is a phrase of its document tests nothing but string matching."""
    run = longest_common_run(folded_words(query, language), folded_words(document, language))
    return f"copies the document: {run} words in a row, at most {most} are allowed" if run > most else None


def overlap(query: str, document: str, language: str) -> float:
    """The share of the query's distinct words that stand in the document, 0 to 1."""
    asked = set(folded_words(query, language))
    return len(asked & set(folded_words(document, language))) / len(asked) if asked else 0.0


def too_near(query: str, title: str, document: str, language: str, generation: GenerationSettings) -> str | None:
    """Whether a query borrows too many of its document's words, or of its title's, by the pipeline's bounds."""
    if generation.max_overlap is not None:
        share, named = borrowed(query, document, language)
        if share > generation.max_overlap:
            return (
                f"uses too many of the document's words ({share:.0%}, at most {generation.max_overlap:.0%}): "
                f"say some of these otherwise: {', '.join(named)}"
            )
    if generation.max_title_overlap is not None and title:
        share, named = borrowed(title, query, language)
        if share > generation.max_title_overlap:
            return (
                f"repeats the document's title ({share:.0%} of its words, at most "
                f"{generation.max_title_overlap:.0%}): say some of these otherwise: {', '.join(named)}"
            )
    return None


def names_character(query: str, character: str) -> str | None:
    """Whether a query speaks of "the engineer" whom only the prompt knows (English; others have cases and genders)."""
    who = re.escape(character.strip().rstrip("s")).replace(r"\ ", r"\s+")
    if who and re.search(rf"\bthe\s+{who}(?:s|'s|’s)?\b", query, re.IGNORECASE):
        return f"speaks of its character: it says 'the {character.strip()}'"
    return None


def off_subject(query: str, document: str, scenario: str, character: str, language: str) -> str | None:
    """Whether an original query has no content word of its document or scenario, but for who asks.

    It comes before any rewriting, so that even a query from the need alone should name something of either.
    """
    _, named = borrowed(query, f"{document}\n{scenario}", language)
    _, who = borrowed(query, character, language)
    return None if set(named) - set(who) else "off the subject: it has no word of the document or of the scenario"


def near_parts(generation: GenerationSettings) -> dict[str, float]:
    """The bounds that are set, for a fingerprint: a pipeline without them keeps the one that it had."""
    bounds = {"max_overlap": generation.max_overlap, "max_title_overlap": generation.max_title_overlap}
    return {name: value for name, value in bounds.items() if value is not None}


def duplicates(left: str, right: str, language: str) -> bool:
    """True for texts that say the same in (nearly) the same words: Jaccard of their words at least 0.8."""
    return alike(frozenset(folded_words(left, language)), frozenset(folded_words(right, language)))

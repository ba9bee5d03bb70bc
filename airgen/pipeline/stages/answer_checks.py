"""The checks that an answer must pass before anything more is paid for it.

Each returns a `Problem`, whose text the model is told for its next attempt, or None.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from airgen.pipeline.stage import Problem
from airgen.pipeline.stages.attributes import LENGTH_TEXT, WORDS
from airgen.settings import GenerationSettings
from airgen.text import language_check
from airgen.text.near_duplicates import alike, folded_words
from airgen.text.overlap import borrowed
from airgen.text.words import count_words

_THREES, _SOME_WORDS = 3, 8


def first_problem(*problems: Problem | None) -> Problem | None:
    """The first problem that was found."""
    return next((problem for problem in problems if problem), None)


def wrong_language(text: str, language: str, document: str = "") -> Problem | None:
    """Whether a text is in another language than the one asked for, which is its document's if one is given."""
    detail = language_check.wrong_language(text, language, document)
    return Problem("wrong language", detail) if detail else None


def self_reference(text: str) -> Problem | None:
    """Whether a query speaks of "the document": it must make sense to somebody who has never seen it."""
    detail = language_check.self_reference(text)
    return Problem("refers to the document", detail) if detail else None


def repeats_itself(text: str, language: str) -> Problem | None:
    """Whether a query of eight words or more runs in circles, as a small model's may: three words in a row come three
    times, or more than half of all words were said before. No query of 9,900 that people asked (14 collections) does.
    """
    said = folded_words(text, language)
    if len(said) < _SOME_WORDS:
        return None
    most = max(Counter(zip(said, said[1:], said[2:], strict=False)).values())
    if most < _THREES and len(set(said)) * 2 >= len(said):
        return None
    return Problem("repeats itself", f"its {len(said)} words are {len(set(said))} different ones")


def untranslated(text: str, language: str, source: str) -> Problem | None:
    """Whether a query that should be in another language than its document is in the document's."""
    detail = language_check.untranslated(text, language, source)
    return Problem("wrong language", detail) if detail else None


def wrong_length(text: str, length: str, language: str) -> Problem | None:
    """Whether a query is outside the length class that was asked for (A.2.1), by the words of its language."""
    least, most = WORDS[length]
    count = count_words(text, language)
    if count >= least and (most is None or count <= most):
        return None
    return Problem("wrong length", f"it has {count} words, wanted is {LENGTH_TEXT[length]}")


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


def copied(query: str, document: str, language: str, most: int) -> Problem | None:
    """Whether a query is a phrase of its document: such a query tests nothing but string matching."""
    run = longest_common_run(folded_words(query, language), folded_words(document, language))
    if run <= most:
        return None
    return Problem("copies the document", f"{run} words in a row, at most {most} are allowed")


def overlap(query: str, document: str, language: str) -> float:
    """The share of the query's distinct words that stand in the document, 0 to 1."""
    asked = set(folded_words(query, language))
    return len(asked & set(folded_words(document, language))) / len(asked) if asked else 0.0


def too_near(query: str, title: str, document: str, language: str, generation: GenerationSettings) -> Problem | None:
    """Whether a query shares too many words with its document or with its title, by the pipeline's bounds."""
    if generation.max_overlap is not None:
        share, named = borrowed(query, document, language)
        if share > generation.max_overlap:
            figures = f"({share:.0%}, at most {generation.max_overlap:.0%})"
            wish = f"say some of these otherwise: {', '.join(named)}"
            return Problem("uses too many of the document's words", f"{figures}: {wish}")
    if generation.max_title_overlap is not None and title:
        share, named = borrowed(title, query, language)
        if share > generation.max_title_overlap:
            figures = f"({share:.0%} of its words, at most {generation.max_title_overlap:.0%})"
            wish = f"say some of these otherwise: {', '.join(named)}"
            return Problem("repeats the document's title", f"{figures}: {wish}")
    return None


def names_character(query: str, character: str) -> Problem | None:
    """Whether a query speaks of "the engineer", whom only the prompt knows (in English only: other languages have
    cases and genders)."""
    who = re.escape(character.strip().rstrip("s")).replace(r"\ ", r"\s+")
    if who and re.search(rf"\bthe\s+{who}(?:s|'s|’s)?\b", query, re.IGNORECASE):
        return Problem("speaks of its character", f"it says 'the {character.strip()}'")
    return None


def off_subject(query: str, document: str, scenario: str, character: str, language: str) -> Problem | None:
    """Whether an original query shares no content word with its document or scenario.

    Words that only name the character do not count. The check comes before any rewriting, so a query that was made
    from the need alone should name something of the document or the scenario, too.
    """
    _, named = borrowed(query, f"{document}\n{scenario}", language)
    _, of_character = borrowed(query, character, language)
    if set(named) - set(of_character):
        return None
    return Problem("off the subject", "it has no word of the document or of the scenario")


def duplicates(left: str, right: str, language: str) -> bool:
    """True for texts that say the same in (nearly) the same words: Jaccard of their words at least 0.8."""
    return alike(frozenset(folded_words(left, language)), frozenset(folded_words(right, language)))

"""The checks of a query: each returns a `Problem`, whose text the model is told for its next attempt, or None."""

import re
from collections import Counter
from collections.abc import Sequence

from airgen.generation.attributes import TYPE_TEXT, WORDS, has_length, length_text
from airgen.settings import Pipeline
from airgen.settings.languages import SPACELESS
from airgen.steps.step import Problem
from airgen.text import language_check
from airgen.text.analysis.languages import STOPWORDS
from airgen.text.near_duplicates import alike, borrowed, folded_words
from airgen.text.query_form import (
    asks_somewhere,
    clearly_asks,
    function_words,
    in_first_person,
    is_keywords,
)
from airgen.text.words import count_words, words


def run_together(text: str, length: str, language: str, *known: str) -> Problem | None:
    """Return a problem if a model that ran out of words ran the rest of its sentence together: "... inside afunction".

    This is the case if the last word of a query of maximum length does not occur in the `known` texts, and consists of
    two words that do (or of function words), or contains two longer ones, a capital or a joining character
    ("and_pull").
    """
    most, tokens = WORDS[length][1], text.rstrip("?.؟۔। ").split()
    if most is None or len(tokens) < most:
        return None
    held = {word.casefold() for other in known for word in words(other, language)}
    last, small = tokens[-1], STOPWORDS.get(language, frozenset())
    folded = last.casefold()
    if folded in held or any(folded in other.casefold() for other in known):
        return None
    longer = [word for word in held if len(word) >= 4]
    parts = ((folded[:cut], folded[cut:]) for cut in range(1, len(folded)))
    inside = re.findall("|".join(sorted(map(re.escape, longer), key=len, reverse=True)), folded) if longer else []
    if (
        re.search(r"[a-z][A-Z]|\w[_.]\w{3}", last)
        or any(a in held | small and b in held | small for a, b in parts)
        or len(inside) >= 2
    ):
        return Problem("runs words together", f"{last!r}; use fewer words")
    return None


# A text that begins like a request is not a problem: "I need information on ...", "looking for ...".
_ERRAND = re.compile(
    r"^(?:\w+(?:'\w+)?\W+){0,3}?(?:"
    r"(?:need|want|like|trying|try|hoping|looking|wondering|curious)s? (?:to |for )?"
    r"(?:know|understand|learn|find|look for|look up|research|study|read|how|about"
    r"|(?:some |more )?(?:information|info|evidence|details))\b"
    r"|interested in\b|(?:studying|researching|investigating|writing)\b|(?:looking|searching) for\b"
    r"|(?:ich )?(?:brauche|suche|möchte|benötige) (?:\w+ )?(?:informationen|wissen|infos|mehr)\b)"
    r"|^我?(?:需要|想要?|正在)(?:了解|知道|找|研究|查)|信息$",
    re.IGNORECASE,
)


def wrong_type(text: str, kind: str, language: str = "") -> Problem | None:
    """Return a problem if a query's form clearly does not match its type (A.2.1): a question that asks nothing,
    keywords that are a sentence, a problem or claim that is a question, a problem that only asks for
    information, or a claim in the first person.

    What a claim states and whether a problem is one are left to the model, because rules refused good ones: "can't
    connect systems analysis with ..." is no question, and "RNase L attacks viral RNA" states something. In a language
    whose question words are unknown, only the question mark counts.
    """
    wanted = f"but must be {TYPE_TEXT.get(kind, kind)}"
    if kind == "question" and asks_somewhere(text, language) is False:
        return Problem("wrong type", f"it does not ask anything, {wanted}")
    if kind == "keywords" and not is_keywords(text, language):
        return Problem("wrong type", f"it is not a list of keywords, {wanted}")
    if kind in ("problem", "claim") and clearly_asks(text, language):
        return Problem("wrong type", f"it is a question, {wanted}")
    if kind == "problem" and _ERRAND.search(text):
        return Problem("wrong type", f"it is a request for information, {wanted}")
    if kind == "claim" and in_first_person(text, language):
        return Problem("wrong type", f"it tells of somebody, {wanted}")
    return None


_MAX_TRIGRAM_REPEATS, _MIN_REPEATING_WORDS = 3, 8


def first_problem(*problems: Problem | None) -> Problem | None:
    """Return the first problem, or None."""
    return next((problem for problem in problems if problem), None)


def wrong_language(text: str, language: str, document: str = "") -> Problem | None:
    """Return a problem if a text is not in the requested language, which is the document's if a document is given."""
    detail = language_check.wrong_language(text, language, document)
    return Problem("wrong language", detail) if detail else None


def self_reference(text: str) -> Problem | None:
    """Return a problem if a query refers to "the document": it must make sense to people who have never seen it."""
    detail = language_check.self_reference(text)
    return Problem("refers to the document", detail) if detail else None


def repeats_itself(text: str, language: str) -> Problem | None:
    """Return a problem if a query of eight words or more repeats itself, as small models do: a run of three words
    occurs three times, or more than half of the words are repetitions. None of 9,900 queries by people (14 collections)
    does.
    """
    tokens = folded_words(text, language)
    if len(tokens) < _MIN_REPEATING_WORDS:
        return None
    most = max(Counter(zip(tokens, tokens[1:], tokens[2:], strict=False)).values())
    if most < _MAX_TRIGRAM_REPEATS and len(set(tokens)) * 2 >= len(tokens):
        return None
    return Problem("repeats itself", f"only {len(set(tokens))} of its {len(tokens)} words are different")


def untranslated(text: str, language: str, source: str) -> Problem | None:
    """Return a problem if a query that should not be in its document's language is in that language."""
    detail = language_check.untranslated(text, language, source)
    return Problem("wrong language", detail) if detail else None


def wrong_length(text: str, length: str, language: str) -> Problem | None:
    """Return a problem if a query is not in the requested length class (A.2.1)."""
    if has_length(text, length, language):
        return None
    count = count_words(text, language)
    return Problem("wrong length", f"it has {count} words, but must have {length_text(length, language)}")


def longest_common_run(left: Sequence[str], right: Sequence[str]) -> Sequence[str]:
    """Return the longest run of words that both texts contain, the first of several."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(right):
        places.setdefault(word, []).append(place)
    best, end, before = 0, 0, dict[int, int]()  # position in `right` -> length of the run that ends there
    for at, word in enumerate(left, 1):
        before = {place: before.get(place - 1, 0) + 1 for place in places.get(word, ())}
        if (longest := max(before.values(), default=0)) > best:
            best, end = longest, at
    return left[end - best : end]


def copied(query: str, document: str, language: str, most: int) -> Problem | None:
    """Return a problem if a query is a phrase from its document, since such a query tests only string matching."""
    run = longest_common_run(folded_words(query, language), folded_words(document, language))
    if len(run) <= most:
        return None
    # Only its beginning, since the next answer may not repeat what the model is told.
    phrase = ("" if language in SPACELESS else " ").join(run[:_SHOWN_WORDS])
    figures = f"{len(run)} words in a row ({phrase!r} and so on), but at most {most} are allowed"
    return Problem("copies the document", figures)


_SHOWN_WORDS = 4


def overlap(query: str, document: str, language: str) -> float:
    """Return the share of the query's distinct content words that occur in the document, 0 to 1. Function words are
    ignored, because a formal style has more of them and every document contains them.
    """
    content = set(folded_words(query, language)) - function_words(language)
    return len(content & set(folded_words(document, language))) / len(content) if content else 0.0


def nearer(new: str, old: str, document: str, language: str) -> Problem | None:
    """Return a problem if a rewrite has more of the document's content words than the previous query.

    One more is allowed, since it may be a necessary term.
    """
    before, after = overlap(old, document, language), overlap(new, document, language)
    if after <= before or _shared(new, document, language) <= _shared(old, document, language) + 1:
        return None
    return Problem("shares more words with the document than before", f"({after:.0%}, was {before:.0%})")


def _shared(query: str, document: str, language: str) -> int:
    content = set(folded_words(query, language)) - function_words(language)
    return len(content & set(folded_words(document, language)))


def too_near(query: str, title: str, document: str, pipeline: Pipeline) -> Problem | None:
    """Return a problem if a query shares too many words with its document or title according to the pipeline's limits.
    Words of different languages are not compared.
    """
    generation, language = pipeline.generation, pipeline.language
    for reason, most, whole, other, of in (
        ("uses too many of the document's words", generation.max_overlap, query, document, ""),
        ("repeats the document's title", generation.max_title_overlap, title, query, " of its words"),
    ):
        share, named = (0.0, []) if most is None or pipeline.cross_lingual else borrowed(whole, other, language)
        if most is not None and share > most:
            figures = f"({share:.0%}{of}, at most {most:.0%})"
            return Problem(reason, f"{figures}: replace some of these words: {', '.join(named)}")
    return None


def query_problem(
    text: str,
    document: str,
    pipeline: Pipeline,
    *own: Problem | None,
    length: str = "",
    kind: str = "",
    known: Sequence[str] = (),
    title: str | None = None,
) -> Problem | None:
    """Return the first problem of an original or rewritten query. `own` are the results of its stage's own checks.

    Args:
        length, kind: The requested length class and type.
        known: Texts with complete words, if a pattern limited the query.
        title: Title of the document, if the limits on shared words apply.
    """
    language, source = pipeline.query_language, "" if pipeline.cross_lingual else document
    problems = (
        wrong_language(text, language, source),
        untranslated(text, language, pipeline.language),
        self_reference(text),
        wrong_length(text, length, language) if length else None,
        wrong_type(text, kind, language),
        *own,
        run_together(text, length, language, *known) if length and known else None,
        repeats_itself(text, language),
        copied(text, document, language, pipeline.generation.max_copied_words),
        too_near(text, title, document, pipeline) if title is not None else None,
    )
    return first_problem(*problems)


def names_character(query: str, character: str) -> Problem | None:
    """Return a problem if a query refers to "the engineer", whom only the prompt mentions (only in English, since other
    languages have cases and genders).
    """
    who = re.escape(character.strip().rstrip("s")).replace(r"\ ", r"\s+")
    if who and re.search(rf"\bthe\s+{who}(?:s|'s|’s)?\b", query, re.IGNORECASE):
        return Problem("mentions its character", f"it says 'the {character.strip()}'")
    return None


def off_subject(query: str, document: str, scenario: str, character: str, language: str) -> Problem | None:
    """Return a problem if an original query shares no content word with its document or scenario, except those that
    name the character.
    """
    _, named = borrowed(query, f"{document}\n{scenario}", language)
    _, of_character = borrowed(query, character, language)
    if set(named) - set(of_character):
        return None
    return Problem("off the subject", "it contains no word of the document or the scenario")


def duplicates(left: str, right: str, language: str) -> bool:
    """Return whether two texts are near duplicates: the Jaccard similarity of their words is at least 0.8."""
    return alike(frozenset(folded_words(left, language)), frozenset(folded_words(right, language)))

"""The attributes of a query, drawn from the item's own key (paper, appendix A.2.1); and the checks of an answer: each
returns a `Problem`, whose text the model is told for its next attempt, or None.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from airgen.keys import rng
from airgen.languages import SPACELESS
from airgen.settings import GenerationSettings, Pipeline
from airgen.steps.step import Problem
from airgen.text import language_check
from airgen.text.analysis.languages import STOPWORDS
from airgen.text.near_duplicates import alike, borrowed, folded_words
from airgen.text.query_form import (
    asks,
    asks_somewhere,
    function_words,
    in_first_person,
    is_keywords,
    without_function_words,
)
from airgen.text.statements import states
from airgen.text.words import count_words, words

# length class -> (least words, most words); the paper's classes overlap, so does this table.
WORDS: dict[str, tuple[int, int | None]] = {"lt5": (1, 4), "lt10": (1, 9), "10to20": (10, 20), "ge20": (20, None)}

LENGTH_TEXT = {
    "lt5": "at most 4 words",
    "lt10": "fewer than 10 words",
    "10to20": "between 10 and 20 words",
    "ge20": "at least 20 words",
}
TYPE_TEXT = {
    "question": "a question",
    "problem": "a problem that the character has, told by what is wrong or does not work: no question, no wish to know",
    "claim": "a claim, stated as a fact, that the document supports or refutes",
    "keywords": "keywords as one types them into a search box, without a sentence or a question",
}
INFORMATION_TEXT = {
    "overall": "what the document says as a whole, its main topic",
    "partial": "one particular detail in the document, beyond its main topic",
}
STYLE_TEXT = {
    "concise": "concise, without a word too many",
    "casual": "casual, as one talks to a friend",
    "informal": "informal, everyday words, relaxed grammar",
    "formal": "formal and polite, in full sentences",
    "professional": "professional, in the terms of the trade",
    "complicated": "complicated, with subordinate clauses and rare words",
    "academic": "academic, as a researcher would put it",
}


_LENGTHS_OF = {"claim": ("10to20", "ge20"), "keywords": ("lt5", "lt10")}


def length_class(text: str, language: str) -> str:
    """Return the class of a text's length. The paper's overlap: a text of four words is `lt5`."""
    return class_of(count_words(text, language))


def class_of(count: int) -> str:
    """Return the class of so many words."""
    return "lt5" if count < 5 else "lt10" if count < 10 else "10to20" if count <= 20 else "ge20"


def draw(ratios: Mapping[str, float], *key: object) -> str:
    """Return one name, with probability in proportion to its ratio, decided by `key` alone."""
    names = sorted(name for name, ratio in ratios.items() if ratio > 0)
    return rng(*key).choices(names, [ratios[name] for name in names])[0]


def query_attributes(generation: GenerationSettings, key: str) -> tuple[str, str, str]:
    """Draw (length, type, information) of the query made under `key` (A.2.1)."""
    kind = draw(generation.types, key, "type")
    return draw(lengths_of(generation, kind), key, "length"), kind, draw(generation.information, key, "information")


def lengths_of(generation: GenerationSettings, kind: str) -> dict[str, float]:
    """Return the ratio of lengths of one type of query.

    A short claim is ambiguous, so claims have one of the two longer classes, in their own ratio; keywords have one of
    the two shorter ones. The other types are drawn so that the lengths of all queries together have the ratio of
    `generation.lengths` (1:4:2:1 in A.2.1), as far as there are not more claims than long queries.
    """
    total = sum(generation.lengths.values())
    left = {name: ratio / total for name, ratio in generation.lengths.items()}
    wanted = dict(left)
    for bound, classes in _LENGTHS_OF.items():
        share = generation.types.get(bound, 0) / sum(generation.types.values())
        own = {name: wanted.get(name, 0.0) for name in classes}
        of_type = {name: part / sum(own.values()) for name, part in own.items()} if share and any(own.values()) else {}
        if kind == bound:
            return of_type
        left = {name: max(0.0, part - share * of_type.get(name, 0.0)) for name, part in left.items()}
    return left if any(left.values()) else wanted


# Letters of languages without spaces. One of their words has about 1.7 letters (rjieba and fugashi on XQuAD's questions
# and on a manual); these bounds keep most texts inside their class.
_UNSPACED = {"ja": r"\u3005\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff", "zh": r"\u3005\u3400-\u4dbf\u4e00-\u9fff"}
_LETTERS_PER_WORD = (1.8, 1.6)  # for the least and for the most words
# The first word of a query is in the script of its language: a small model that begins in English goes on in English.
_FIRST_LETTERS = {
    "ar": r"\u0620-\u064a",
    "fa": r"\u0620-\u06cc",
    "ru": r"\u0400-\u052f",
    "hi": r"\u0904-\u0939",
    "bn": r"\u0985-\u09b9",
    "ko": r"\uac00-\ud7a3",
}
_LATIN = ("de", "en", "es", "fr", "id")
# What a word is made of, beside full stops: no spaces, braces, sentence ends or commas; and for languages in Latin
# letters nothing from other scripts, which a small model falls into when it is at a loss.
_LETTERS = r"\"-+\-/->@-z|~-\u024f\u2010-\u203a"
_ANY = r"^\s.,?!{}\uff01\uff0c\uff1f\u060c\u061f\u0964\u06d4\u3002\u4e00-\u9fff"
_MIN_WORDS = {"lt5": 2, "lt10": 3}  # one word is hardly a query
_MAX_WORD_LETTERS = 30  # between full stops
_MAX_PATTERN_WORDS = 40  # if the class has no upper bound
# A problem is told in the first person; a claim does not begin like a question (what, how, wie, was, ...).
_BEGIN = {
    ("problem", "en"): "(?:I|I'm|I've|My|We|Our) ",
    ("claim", "en"): r"[A-GI-VX-Z][a-z]* ",
    ("claim", "de"): r"[A-VX-ZÄÖÜ][a-zäöüß]* ",
}


def form_pattern(length: str, kind: str, language: str) -> str | None:
    """Return a regular expression that a query of this length and type matches, as a small model cannot count its
    words; None if the language is not supported. See `run_together` for what the model does at the end.
    """
    least, most = WORDS[length]
    begin = _BEGIN.get((kind, language), "")
    least, most = max(least, _MIN_WORDS.get(length, 1)), most or _MAX_PATTERN_WORDS
    return words_pattern(least, most, kind == "question", language, begin=begin)


def words_pattern(least: int, most: int, question: bool, language: str, begin: str = "") -> str | None:
    """Return a regular expression for one line of `least` to `most` words; None for Thai, whose words have no spaces.

    Chinese and Japanese are held to a number of letters. `begin`: a pattern of the first words, each with a space
    behind it.
    """
    if language in _UNSPACED:
        low, high = math.ceil(least * _LETTERS_PER_WORD[0]), math.floor(most * _LETTERS_PER_WORD[1])
        foreign = r"[0-9A-Z][0-9A-Za-z%+#.\-]{0,19}"  # a name or a number, which counts with the letter after it
        letter = rf"(?:{foreign})?[{_UNSPACED[language]}]"
        end = r"[?\uff1f]?" if question else r"\u3002?"
        return rf"^(?:{letter}[\u3001\uff0c]?){{{low - 1},{max(low, high) - 1}}}{letter}(?:{foreign})?{end}$"
    if language in SPACELESS:
        return None
    letters = _LETTERS if language in _LATIN else _ANY
    # A full stop may stand inside a word: pdb.set_trace, 3.5. Without a bound, a small model may write digits for ever.
    word = rf"[{letters}]{{1,{_MAX_WORD_LETTERS}}}(?:[.][{letters}]{{1,{_MAX_WORD_LETTERS}}}){{0,3}}"
    if not begin and language in _FIRST_LETTERS and least > 1:
        begin = rf"[{_FIRST_LETTERS[language]}][{letters}]{{0,{_MAX_WORD_LETTERS}}},? "
    fewer = begin.count(" ")  # a first word may be followed by a comma, but never holds a space
    end = r"[?\uff1f\u061f]?" if question else r"[.\u0964\u06d4]?"
    return f"^{begin}(?:{word},? ){{{max(0, least - 1 - fewer)},{max(0, most - 1 - fewer)}}}{word}{end}$"


def run_together(text: str, length: str, language: str, *known: str) -> Problem | None:
    """Return whether a model that ran out of words wrote the rest of its sentence as one: "... inside afunction".

    That is the last word of a query of the greatest length, which stands in none of the `known` texts, and is made of
    two words that do (or of function words), holds two longer ones, a capital, or a sign that joins ("and_pull").
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


# A text that begins like an errand is not a problem: "I need information on ...", "looking for ...".
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
    """Return whether a query has another form than its type (A.2.1), by its marks and first words.

    A question asks something. A claim and a problem do not, and are not bare keywords. A claim has a predicate. A
    problem is not an errand ("I need information on ..."). Keywords are not a sentence. In a language whose question
    words are not known, only the question mark counts.
    """
    asking, wanted = asks(text, language), f"wanted is {TYPE_TEXT.get(kind, kind)}"
    if kind == "question":
        return Problem("wrong type", f"it asks nothing, {wanted}") if asks_somewhere(text, language) is False else None
    if kind == "keywords" and not is_keywords(text, language):
        return Problem("wrong type", f"it is not a list of keywords, {wanted}")
    if kind in ("problem", "claim") and asking:
        return Problem("wrong type", f"it is a question, {wanted}")
    if kind == "problem" and _ERRAND.search(text):
        return Problem("wrong type", f"it says that something is looked for, {wanted}")
    if kind == "claim" and (in_first_person(text, language) or not _states(text, language)):
        return Problem("wrong type", f"it states nothing, {wanted}")
    return None


def _states(text: str, language: str) -> bool:
    """Return whether a text may be a claim: it has a predicate, or none is needed and it has function words."""
    stated = states(text, language)
    return not without_function_words(text, language) if stated is None else stated


_MAX_TRIGRAM_REPEATS, _MIN_REPEATING_WORDS = 3, 8


def first_problem(*problems: Problem | None) -> Problem | None:
    """Return the first problem that was found."""
    return next((problem for problem in problems if problem), None)


def wrong_language(text: str, language: str, document: str = "") -> Problem | None:
    """Return whether a text is in another language than the one asked for, which is its document's if one is given."""
    detail = language_check.wrong_language(text, language, document)
    return Problem("wrong language", detail) if detail else None


def self_reference(text: str) -> Problem | None:
    """Return whether a query speaks of "the document": it must make sense to somebody who has never seen it."""
    detail = language_check.self_reference(text)
    return Problem("refers to the document", detail) if detail else None


def repeats_itself(text: str, language: str) -> Problem | None:
    """Return whether a query of eight words or more runs in circles, as a small model's may: three words in a row come
    three times, or more than half of all words were said before. No query of 9,900 that people asked (14 collections)
    does.
    """
    tokens = folded_words(text, language)
    if len(tokens) < _MIN_REPEATING_WORDS:
        return None
    most = max(Counter(zip(tokens, tokens[1:], tokens[2:], strict=False)).values())
    if most < _MAX_TRIGRAM_REPEATS and len(set(tokens)) * 2 >= len(tokens):
        return None
    return Problem("repeats itself", f"its {len(tokens)} words are {len(set(tokens))} different ones")


def untranslated(text: str, language: str, source: str) -> Problem | None:
    """Return whether a query that should be in another language than its document is in the document's."""
    detail = language_check.untranslated(text, language, source)
    return Problem("wrong language", detail) if detail else None


def wrong_length(text: str, length: str, language: str) -> Problem | None:
    """Return whether a query is outside the length class that was asked for (A.2.1), by the words of its language."""
    least, most = WORDS[length]
    count = count_words(text, language)
    if count >= least and (most is None or count <= most):
        return None
    return Problem("wrong length", f"it has {count} words, wanted is {LENGTH_TEXT[length]}")


def longest_common_run(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the length of the longest run of equal words that both have."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(right):
        places.setdefault(word, []).append(place)
    best, before = 0, dict[int, int]()  # place in `right` -> length of the run that ends there
    for word in left:
        before = {place: before.get(place - 1, 0) + 1 for place in places.get(word, ())}
        best = max(best, max(before.values(), default=0))
    return best


def copied(query: str, document: str, language: str, most: int) -> Problem | None:
    """Return whether a query is a phrase of its document: such a query tests nothing but string matching."""
    run = longest_common_run(folded_words(query, language), folded_words(document, language))
    if run <= most:
        return None
    return Problem("copies the document", f"{run} words in a row, at most {most} are allowed")


def overlap(query: str, document: str, language: str) -> float:
    """Return the share of the query's distinct content words that stand in the document, 0 to 1: a formal style has
    more function words, and every document has them.
    """
    content = set(folded_words(query, language)) - function_words(language)
    return len(content & set(folded_words(document, language))) / len(content) if content else 0.0


def nearer(new: str, old: str, document: str, language: str) -> Problem | None:
    """Return whether a rewrite has more of the document's content words than the query before it.

    One more may be a term that has to stay.
    """
    before, after = overlap(old, document, language), overlap(new, document, language)
    if after <= before or _shared(new, document, language) <= _shared(old, document, language) + 1:
        return None
    return Problem("shares more words with the document than before", f"({after:.0%}, was {before:.0%})")


def _shared(query: str, document: str, language: str) -> int:
    content = set(folded_words(query, language)) - function_words(language)
    return len(content & set(folded_words(document, language)))


def too_near(query: str, title: str, document: str, pipeline: Pipeline) -> Problem | None:
    """Return whether a query shares too many words with its document or with its title, by the pipeline's bounds; words
    of two languages are not compared.
    """
    generation, language = pipeline.generation, pipeline.language
    for reason, most, whole, other, of in (
        ("uses too many of the document's words", generation.max_overlap, query, document, ""),
        ("repeats the document's title", generation.max_title_overlap, title, query, " of its words"),
    ):
        share, named = (0.0, []) if most is None or pipeline.cross_lingual else borrowed(whole, other, language)
        if most is not None and share > most:
            figures = f"({share:.0%}{of}, at most {most:.0%})"
            return Problem(reason, f"{figures}: say some of these otherwise: {', '.join(named)}")
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
    """Return the first problem of a query, original or rewritten; `own` is the result of its stage's own check
    at.

    Args:
        length, kind: The classes that were asked for.
        known: Texts whose words are whole, where a pattern ended the query.
        title: Of the document, where the bounds of nearness count.
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
    """Return whether a query speaks of "the engineer", whom only the prompt knows (in English only: other languages
    have cases and genders).
    """
    who = re.escape(character.strip().rstrip("s")).replace(r"\ ", r"\s+")
    if who and re.search(rf"\bthe\s+{who}(?:s|'s|’s)?\b", query, re.IGNORECASE):
        return Problem("mentions its character", f"it says 'the {character.strip()}'")
    return None


def off_subject(query: str, document: str, scenario: str, character: str, language: str) -> Problem | None:
    """Return whether an original query shares no content word with its document or scenario, but for those that name
    the character.
    """
    _, named = borrowed(query, f"{document}\n{scenario}", language)
    _, of_character = borrowed(query, character, language)
    if set(named) - set(of_character):
        return None
    return Problem("off the subject", "it has no word of the document or of the scenario")


def duplicates(left: str, right: str, language: str) -> bool:
    """Return whether two texts say the same in (nearly) the same words: Jaccard of their words at least 0.8."""
    return alike(frozenset(folded_words(left, language)), frozenset(folded_words(right, language)))

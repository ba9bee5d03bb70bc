"""The attributes of a query, drawn from the item's own key (paper, appendix A.2.1).

A draw depends on the key and the ratios alone, so concurrency, resume and the target's size change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from airgen.keys import rng
from airgen.settings import GenerationSettings

__all__ = [
    "INFORMATION_TEXT",
    "LENGTH_TEXT",
    "STYLE_TEXT",
    "TYPE_TEXT",
    "WORDS",
    "draw",
    "form_pattern",
    "query_attributes",
    "wrong_type",
]

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
    "problem": "a problem that the character describes and wants solved, without asking a question",
    "claim": "a claim, stated as a fact, that the document supports or refutes",
}
INFORMATION_TEXT = {
    "overall": "what the document says as a whole, its main topic",
    "partial": "one particular detail in the document, beyond its main topic",
}
STYLE_TEXT = {
    "concise": "concise, like keywords or a terse request",
    "casual": "casual, as one talks to a friend",
    "informal": "informal, everyday words, relaxed grammar",
    "formal": "formal and polite, in full sentences",
    "professional": "professional, in the terms of the trade",
    "complicated": "complicated, with subordinate clauses and rare words",
    "academic": "academic, as a researcher would put it",
}


def draw(ratios: Mapping[str, float], *key: object) -> str:
    """One name, with probability in proportion to its ratio, decided by `key` alone."""
    names = sorted(name for name, ratio in ratios.items() if ratio > 0)
    return rng(*key).choices(names, [ratios[name] for name in names])[0]


def query_attributes(generation: GenerationSettings, key: str) -> tuple[str, str, str]:
    """(length, type, information) of the query made under `key`.

    The type is drawn first; a claim's length is drawn from the two longer classes only, in their own ratio, since a
    short claim is ambiguous (A.2.1).
    """
    kind = draw(generation.types, key, "type")
    lengths: Mapping[str, float] = generation.lengths
    if kind == "claim":
        lengths = {name: lengths.get(name, 0) for name in ("10to20", "ge20")}
    return draw(lengths, key, "length"), kind, draw(generation.information, key, "information")


_UNSPACED = ("ja", "zh")
_LATIN = ("de", "en", "es", "fr", "id")
# What a word is made of, beside full stops: no spaces, braces, sentence ends or commas; and for languages in Latin
# letters nothing from other scripts, which a small model falls into when it is at a loss.
_LETTERS = r"\"-+\-/->@-z|~-\u024f\u2010-\u203a"
_ANY = r"^\s.,?!{}\uff01\uff0c\uff1f\u060c\u061f\u0964\u06d4\u3002\u4e00-\u9fff"
_LEAST = {"lt5": 2, "lt10": 3}  # one word is hardly a query
_MORE = 4  # words beyond the class that the pattern lets a sentence end in
_LONGEST = 40  # words, where the class has no upper bound
# A problem is told in the first person; a claim does not begin like a question (what, how, wie, was, ...).
_BEGIN = {
    ("problem", "en"): "(?:I|I'm|I've|My|We|Our) ",
    ("claim", "en"): r"[A-GI-VX-Z][a-z]* ",
    ("claim", "de"): r"[A-VX-ZÄÖÜ][a-zäöüß]* ",
}


def form_pattern(length: str, kind: str, language: str) -> str | None:
    """A regular expression that a query of this length and type matches; None where words have no spaces.

    One line of one sentence, with the words that the class asks for at least, and a question mark for questions
    only: a small model cannot count its words, and asking again does not teach it. The upper end is a few words
    loose, and left to the check of the length: a model that is out of words runs the rest of its sentence together.
    """
    if language in _UNSPACED:
        return None
    least, most = WORDS[length]
    least, most = max(least, _LEAST.get(length, 1)), most + _MORE if most else _LONGEST
    letters = _LETTERS if language in _LATIN else _ANY
    word = rf"[{letters}]+(?:[.][{letters}]+)*"  # a full stop may stand inside a word: pdb.set_trace, 3.5
    begin = _BEGIN.get((kind, language), "")
    fewer = 1 if begin else 0
    end = r"[?\uff1f\u061f]?" if kind == "question" else r"[.\u0964\u06d4]?"
    return f"^{begin}(?:{word},? ){{{least - 1 - fewer},{most - 1 - fewer}}}{word}{end}$"


def wrong_type(text: str, kind: str) -> str | None:
    """A problem and a claim are no questions; what is wrong, in words for the next attempt, or None."""
    if kind != "question" and text.rstrip(" \"'”’»").endswith(("?", "？", "؟")):
        return f"wrong type: it is a question, wanted is {TYPE_TEXT[kind]}"
    return None

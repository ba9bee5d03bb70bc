"""The attributes of a query, drawn from the item's own key (paper, appendix A.2.1).

A draw depends on the key and the ratios alone, so concurrency, resume and the target's size change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from airgen.keys import rng
from airgen.settings import GenerationSettings

__all__ = ["INFORMATION_TEXT", "LENGTH_TEXT", "STYLE_TEXT", "TYPE_TEXT", "WORDS", "draw", "query_attributes"]

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

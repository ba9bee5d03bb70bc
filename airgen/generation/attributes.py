"""The attributes of a query, drawn from the item's own key (paper, appendix A.2.1)."""

import math
from collections.abc import Mapping

from airgen.components.keys import rng
from airgen.settings import GenerationSettings
from airgen.text.words import count_words

# length class -> (minimum words, maximum words). The paper's classes overlap, and so does this table.
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
    "claim": "a claim, stated as a fact",
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


# Chinese and Japanese queries are counted in characters, which people can count: two for a word.
_CHARACTERS = 2
_COUNTED_IN_CHARACTERS = frozenset({"zh", "ja"})

_LENGTHS_OF = {"claim": ("10to20", "ge20"), "keywords": ("lt5", "lt10")}


def length_text(length: str, language: str) -> str:
    """Return what a prompt says of a length class: "at most 4 words (8 characters)" in Chinese and Japanese."""
    if language not in _COUNTED_IN_CHARACTERS:
        return LENGTH_TEXT[length]
    characters = " to ".join(str(bound * _CHARACTERS) for bound in WORDS[length] if bound and bound > 1)
    return f"{LENGTH_TEXT[length]} ({characters} characters)"


def has_length(text: str, length: str, language: str) -> bool:
    """Return whether a text is in a length class, as a person or as Unicode's rules count its words."""
    least, most = WORDS[length]
    counts = [count_words(text, language)]
    if language in _COUNTED_IN_CHARACTERS:
        counts.append(math.ceil(sum(map(str.isalnum, text)) / _CHARACTERS))
    else:
        # As people count words: COVID-19, don't and TCP/IP are one each, a lone dash is none.
        counts.append(sum(any(map(str.isalnum, token)) for token in text.split()))
    return any(count >= least and (most is None or count <= most) for count in counts)


def length_class(text: str, language: str) -> str:
    """Return the length class of a text. The paper's classes overlap: a text of four words is `lt5`."""
    return class_of(count_words(text, language))


def class_of(count: int) -> str:
    """Return the length class of a number of words."""
    return "lt5" if count < 5 else "lt10" if count < 10 else "10to20" if count <= 20 else "ge20"


def draw(ratios: Mapping[str, float], *key: object) -> str:
    """Draw a name with a probability proportional to its ratio, determined only by `key`."""
    names = sorted(name for name, ratio in ratios.items() if ratio > 0)
    return rng(*key).choices(names, [ratios[name] for name in names])[0]


def drawn_truth(kind: str, key: str) -> str:
    """Draw whether the document shows a claim to be `true` or `false`; "" for other types. Left to itself, a model only
    restates the document."""
    return draw({"true": 1, "false": 1}, key, "truth") if kind == "claim" else ""


def query_attributes(generation: GenerationSettings, key: str) -> tuple[str, str, str]:
    """Draw the length, type and information of the query with this key (A.2.1)."""
    kind = draw(generation.types, key, "type")
    return draw(lengths_of(generation, kind), key, "length"), kind, draw(generation.information, key, "information")


def lengths_of(generation: GenerationSettings, kind: str) -> dict[str, float]:
    """Return the ratio of the lengths of one query type.

    A short claim is ambiguous, so claims use only the two longer classes, in their own ratio, and keywords only the two
    shorter ones. The other types are drawn so that the lengths of all queries together have the ratio in
    `generation.lengths` (1:4:2:1 in A.2.1), unless there are more claims than long queries.
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

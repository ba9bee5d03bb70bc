"""Real queries as examples (`generation.examples`): generated ones have their style, but never their content.

The query imitates the length and form of one example, drawn by the sample's key; three more show how people write. The
lengths and forms of generated queries are therefore distributed like those of the examples. A small model copies what
it is shown (nine of eleven queries of a 1.5B model were its examples), so its prompt shows no example, only the length,
the form and the opening, which consists of the function words at the beginning of the example.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from airgen.components.keys import rng
from airgen.generation.attributes import (
    class_of,
)
from airgen.settings.languages import SPACELESS
from airgen.steps.step import Problem
from airgen.text.analysis.languages import STOPWORDS
from airgen.text.near_duplicates import alike, folded_words
from airgen.text.words import count_words, words

MAX_EXAMPLES = 4  # number of examples in a prompt, with the imitated one first
MAX_OPENING_WORDS = 4
MIN_COMMON_SHARE = 0.05  # a word that begins this share of the examples counts as their style
MAX_SHARED_WORDS = 8  # consecutive; fewer may be shared, as style ("what is the effect of")
_QUESTION = ("?", "\uff1f", "\u061f")


@dataclass(frozen=True, slots=True)
class Model:
    """The example whose length and form a query imitates, and the examples that the prompt shows. Limits are in words.

    Attributes:
        opening: The words at the beginning of the example that are not about its subject ("what are the"), or "".
    """

    text: str
    shown: tuple[str, ...]
    least: int
    most: int
    form: str
    opening: str

    @property
    def length(self) -> str:
        """Return the paper's length class."""
        return class_of((self.least + self.most) // 2)


def form_of(text: str, language: str) -> str:
    """Return `question` (by its ending), `keywords` (no function words) or `sentence`."""
    if text.rstrip(" \"'”’»").endswith(_QUESTION):
        return "question"
    known = STOPWORDS.get(language)
    if known and not any(word.casefold() in known for word in words(text, language)):
        return "keywords"
    return "sentence"


def draw_examples(examples: Sequence[str], key: str, language: str) -> Model:
    """Draw the examples for one query, determined only by `key`."""
    shown = rng(key, "examples").sample(list(examples), min(MAX_EXAMPLES, len(examples)))
    count = max(1, count_words(shown[0], language))
    least, most = max(1, math.floor(count * 0.6)), math.ceil(count * 1.5) + 1
    form = form_of(shown[0], language)
    opening = "" if form == "keywords" else _opening(shown[0], tuple(examples), language)
    return Model(shown[0], tuple(shown), least, most, form=form, opening=opening)


def _opening(text: str, examples: tuple[str, ...], language: str) -> str:
    """Return the first words of an example that are function words, or with which other examples also begin."""
    if language in SPACELESS:
        return ""
    style = _first_words(examples) | STOPWORDS.get(language, frozenset())
    tokens = text.split()
    begins = itertools.takewhile(lambda word: word.isalpha() and word.casefold() in style, tokens[:MAX_OPENING_WORDS])
    return " ".join(list(begins)[: len(tokens) - 1])


@lru_cache(maxsize=4)
def _first_words(examples: tuple[str, ...]) -> frozenset[str]:
    counts = Counter(first[0].casefold() for text in examples if (first := text.split(maxsplit=1)))
    return frozenset(word for word, count in counts.items() if count >= max(2, MIN_COMMON_SHARE * len(examples)))


def unlike_model(text: str, model: Model | None, language: str) -> Problem | None:
    """Return a problem if a query is much shorter or longer than its model, or if only the query has a question
    mark."""
    if model is None:
        return None
    count = count_words(text, language)
    if not model.least <= count <= model.most:
        return Problem("wrong length", f"it has {count} words, but must have {model.least} to {model.most}")
    asks = form_of(text, language) == "question"
    if asks != (model.form == "question"):
        return Problem("wrong form", "end it with a question mark" if not asks else "write it without a question mark")
    return None


def repeats_example(text: str, examples: tuple[str, ...], language: str) -> Problem | None:
    """Return a problem if a query is a near duplicate of an example or contains a run of `RUN` words from one, since
    real queries must not leak into a benchmark.
    """
    tokens = folded_words(text, language)
    shares_run = any(run in _runs(examples, language) for run in _windows(tokens))
    if shares_run or any(alike(frozenset(tokens), example) for example in _word_sets(examples, language)):
        return Problem("repeats an example", feedback="it repeats one of the examples; write only about the document")
    return None


@lru_cache(maxsize=4)
def _word_sets(examples: tuple[str, ...], language: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(folded_words(text, language)) for text in examples)


def _windows(tokens: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(tokens[start : start + MAX_SHARED_WORDS]) for start in range(len(tokens) - MAX_SHARED_WORDS + 1))


@lru_cache(maxsize=4)
def _runs(examples: tuple[str, ...], language: str) -> frozenset[tuple[str, ...]]:
    return frozenset(run for text in examples for run in _windows(folded_words(text, language)))

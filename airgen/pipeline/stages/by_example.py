"""Queries in the style of real ones (`generation.examples`): length, form and words, and never their content.

One example, drawn by the sample's key, is the model of the query's length and form; three more show how people write.
So the lengths and forms of generated queries are distributed as those of the examples are.

A small model copies what it is shown (nine of eleven queries of a 1.5B model were its examples), so its prompt shows no
example: it gets the length, the form and the opening, which are the function words that the model begins with.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from airgen.keys import rng
from airgen.languages import SPACELESS
from airgen.pipeline.stage import Problem
from airgen.text.analysis.stopwords import STOPWORDS
from airgen.text.near_duplicates import alike, folded_words
from airgen.text.words import count_words, words

SHOWN = 4  # examples in a prompt, the model first
OPENING = 4  # words of an opening at most
COMMON = 0.05  # share of the examples that begin with a word, from which on it belongs to their style
RUN = 8  # words in a row that no query may share with an example: a few are style ("what is the effect of")
_QUESTION = ("?", "\uff1f", "\u061f")


@dataclass(frozen=True, slots=True)
class Model:
    """The example whose length and form a query gets, and those that the prompt shows. Bounds are in words.

    opening: the words that the example begins with and that say nothing of its subject ("what are the"), or "".
    """

    text: str
    shown: tuple[str, ...]
    least: int
    most: int
    form: str
    opening: str

    @property
    def length(self) -> str:
        """The paper's class of its length."""
        count = (self.least + self.most) // 2
        return "lt5" if count < 5 else "lt10" if count < 10 else "10to20" if count <= 20 else "ge20"


def form_of(text: str, language: str) -> str:
    """`question` (it ends as one), `keywords` (no function word), else `sentence`."""
    if text.rstrip(" \"'”’»").endswith(_QUESTION):
        return "question"
    known = STOPWORDS.get(language)
    if known and not any(word.casefold() in known for word in words(text, language)):
        return "keywords"
    return "sentence"


def draw_examples(examples: Sequence[str], key: str, language: str) -> Model:
    """The examples for one query, decided by `key` alone."""
    shown = rng(key, "examples").sample(list(examples), min(SHOWN, len(examples)))
    count = max(1, count_words(shown[0], language))
    least, most = max(1, math.floor(count * 0.6)), math.ceil(count * 1.5) + 1
    form = form_of(shown[0], language)
    opening = "" if form == "keywords" else _opening(shown[0], tuple(examples), language)
    return Model(shown[0], tuple(shown), least, most, form, opening)


def _opening(text: str, examples: tuple[str, ...], language: str) -> str:
    """The first words of an example, each a function word or a word that other examples begin with, too."""
    if language in SPACELESS:
        return ""
    style = _first_words(examples) | STOPWORDS.get(language, frozenset())
    said = text.split()
    begins = itertools.takewhile(lambda word: word.isalpha() and word.casefold() in style, said[:OPENING])
    return " ".join(list(begins)[: len(said) - 1])


@lru_cache(maxsize=4)
def _first_words(examples: tuple[str, ...]) -> frozenset[str]:
    counts = Counter(first[0].casefold() for text in examples if (first := text.split(maxsplit=1)))
    return frozenset(word for word, count in counts.items() if count >= max(2, COMMON * len(examples)))


def unlike_model(text: str, model: Model, language: str) -> Problem | None:
    """Whether a query is much shorter or longer than its model, or has a question mark where that has none."""
    count = count_words(text, language)
    if not model.least <= count <= model.most:
        return Problem("wrong length", f"it has {count} words, wanted are {model.least} to {model.most}")
    asks = form_of(text, language) == "question"
    if asks != (model.form == "question"):
        return Problem("wrong form", "end it with a question mark" if not asks else "write it without a question mark")
    return None


def repeats_example(text: str, examples: tuple[str, ...], language: str) -> Problem | None:
    """Whether a query is a near duplicate of any example, or holds `RUN` words of one in a row: real queries must not
    leak into a benchmark.
    """
    said = folded_words(text, language)
    mine = frozenset(said)
    if any(run in _runs(examples, language) for run in _windows(said)) or any(
        alike(mine, theirs) for theirs in _word_sets(examples, language)
    ):
        return Problem("repeats an example", told="it repeats one of the examples; write about the document alone")
    return None


@lru_cache(maxsize=4)
def _word_sets(examples: tuple[str, ...], language: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(folded_words(text, language)) for text in examples)


def _windows(said: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(said[start : start + RUN]) for start in range(len(said) - RUN + 1))


@lru_cache(maxsize=4)
def _runs(examples: tuple[str, ...], language: str) -> frozenset[tuple[str, ...]]:
    return frozenset(run for text in examples for run in _windows(folded_words(text, language)))

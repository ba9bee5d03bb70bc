"""Queries in the style of real ones (`generation.examples`): length, form and words, and never their content.

One example, drawn by the sample's key, is the model of the query's length and form; three more show how people write.
So the lengths and forms of generated queries are distributed as those of the examples are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from airgen.keys import rng
from airgen.pipeline.stage import Problem
from airgen.text.analysis.stopwords import STOPWORDS
from airgen.text.near_duplicates import alike, folded_words
from airgen.text.words import count_words, words

__all__ = ["Model", "draw_examples", "form_of", "repeats_example", "unlike_model"]

SHOWN = 4  # examples in a prompt, the model first
_QUESTION = ("?", "\uff1f", "\u061f")


@dataclass(frozen=True, slots=True)
class Model:
    """The example whose length and form a query gets, and those that the prompt shows. Bounds are in words."""

    text: str
    shown: tuple[str, ...]
    least: int
    most: int
    form: str

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
    return Model(shown[0], tuple(shown), least, most, form_of(shown[0], language))


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
    """Whether a query is a near duplicate of any example: real queries must not leak into a benchmark."""
    mine = frozenset(folded_words(text, language))
    if any(alike(mine, theirs) for theirs in _word_sets(examples, language)):
        return Problem("repeats an example", told="it repeats one of the examples; write about the document alone")
    return None


@lru_cache(maxsize=4)
def _word_sets(examples: tuple[str, ...], language: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(folded_words(text, language)) for text in examples)

"""What airgen knows about a language: `checks_of("pl")["stemmer"] == "snowball:polish"`."""

from __future__ import annotations

import importlib.util

from airgen.corpus.cleaning.filters import has_list
from airgen.languages import LANGUAGES
from airgen.text.analysis.languages import stemmer_name, stopword_count
from airgen.text.language_check import checked
from airgen.text.words import segmenter


def checks_of(language: str) -> dict[str, str]:
    """What a language has; `none` where it has nothing, so that nothing is checked or changed.

    words: what splits them. stemmer, stopwords: of BM25. filter: of the corpus. offensive: a list of such words.
    answers: how generated text is checked. phrases: whether references to "this document" are found. paper: whether
    it is one of AIR-Bench's 13.
    """
    package = importlib.util.find_spec("glin_profanity") is not None
    paper = language in LANGUAGES
    return {
        "words": segmenter(language),
        "stemmer": stemmer_name(language),
        "stopwords": str(stopword_count(language) or "none"),
        "filter": "fastText",
        "offensive": ("list" if has_list(language) else "none") if package else "unknown: glin-profanity is missing",
        "answers": checked(language),
        "phrases": "yes" if paper else "none",
        "paper": "yes" if paper else "no",
    }


def in_words(language: str) -> str:
    """A line for a language that the paper does not have; empty for the others."""
    found = checks_of(language)
    if found["paper"] == "yes":
        return ""
    stemmer = f"stemmer {found['stemmer']}, " if found["stemmer"] != "none" else ""
    have = f"words by {found['words']}, {stemmer}language filter by {found['filter']}"
    lack = [
        name
        for name, key in (("stop words", "stopwords"), ("list of offensive words", "offensive"))
        if found[key] == "none"
    ]
    return (
        f"language {language} is not one of the paper's 13: {have}; no {', no '.join([*lack, 'phrases'])}; "
        f"answers are checked by {found['answers']}"
    )

"""Text to index terms: `analyser("en")("Cats sat")` is ["cat", "sat"]."""

from __future__ import annotations

from airgen.text.analysis import languages
from airgen.text.analysis.analyser import Analyser
from airgen.text.analysis.encode import Encoder
from airgen.text.analysis.wordpiece import WordPieces

__all__ = ["Analyser", "Encoder", "WordPieces", "analyser"]


def analyser(
    language: str = "en",
    stem: bool = True,
    stopwords: bool = True,
    segment: bool = False,
    ngram: int = 0,
    wordpiece: str | None = None,
) -> Analyser:
    """The analyser of a language (`zh` and `zh-Hant` alike); one without rules of its own is split and lower-cased.

    `wordpiece` takes the tokens of a model instead (`wordpiece.py`); the other options then have no part in it.
    Raises MissingExtra if its stemmer needs PyStemmer and that is not installed.
    """
    language = language.replace("_", "-").partition("-")[0].lower()
    if wordpiece is not None:
        return WordPieces(language, wordpiece=wordpiece)
    made = Analyser(language, stem, stopwords, segment, ngram)
    if stem and not ngram:
        languages.chain(language, stem, stopwords)  # fails here, not at the first text
    return made

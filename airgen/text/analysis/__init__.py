"""Text to index terms: `analyser("en")("Cats sat")` is ["cat", "sat"]."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from airgen.settings.base import FILE, Settings
from airgen.text.analysis import languages
from airgen.text.analysis.analyser import Analyser, Encoder, WordPieces

__all__ = ["Analyser", "AnalyserSettings", "Encoder", "WordPieces", "analyser"]


class AnalyserSettings(Settings):
    """How a text becomes terms; see `Analyser` for the fields.

    `wordpiece` takes the tokens of a model instead (a name of the catalogue, or a folder); the other fields then have
    no part in it.
    """

    stem: bool = True
    stopwords: bool = True
    segment: bool = False
    ngram: int = Field(default=0, ge=0)
    wordpiece: Annotated[str | None, FILE] = None


def analyser(language: str = "en", folder: Path | None = None, **settings: Any) -> Analyser:
    """The analyser of a language (`zh` and `zh-Hant` alike); one without rules of its own is split and lower-cased.

    `settings` are those of `AnalyserSettings`; a relative path in them starts at `folder`. Raises MissingExtra if the
    language's stemmer needs PyStemmer and that is not installed.
    """
    chosen = AnalyserSettings(**settings)
    language = language.replace("_", "-").partition("-")[0].lower()
    if chosen.wordpiece is not None:
        inside = (folder or Path()) / chosen.wordpiece
        return WordPieces(language, wordpiece=str(inside) if inside.exists() else chosen.wordpiece)
    made = Analyser(language, chosen.stem, chosen.stopwords, chosen.segment, chosen.ngram)
    if chosen.stem and not chosen.ngram:
        languages.chain(language, chosen.stem, chosen.stopwords)  # fails here, not at the first text
    return made

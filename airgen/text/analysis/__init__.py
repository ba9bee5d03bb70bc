"""Turn text into index terms: `analyser("en")("Cats sat")` is ["cat", "sat"]."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from airgen.settings.base import FILE, Settings
from airgen.text.analysis import languages
from airgen.text.analysis.analyser import Analyser, Encoder, WordPieces

__all__ = ["Analyser", "AnalyserSettings", "Encoder", "WordPieces", "analyser"]


class AnalyserSettings(Settings):
    """Settings for turning text into terms; see `Analyser` for the fields.

    `wordpiece` uses the tokens of a model instead (a name in the catalogue, or a folder); the other fields then have no
    effect.
    """

    stem: bool = True
    stopwords: bool = True
    segment: bool = False
    ngram: int = Field(default=0, ge=0)
    wordpiece: Annotated[str | None, FILE] = None


def analyser(language: str = "en", folder: Path | None = None, **settings: Any) -> Analyser:
    """Return the analyser for a language. Text in a language without rules is split and lower-cased.

    Args:
        language: An ISO 639 code; a script or region is ignored (`zh-Hant` is `zh`).
        folder: Folder to which paths in the settings are relative.
        **settings: Fields of `AnalyserSettings`.

    Raises:
        MissingExtra: The language's stemmer needs PyStemmer, which is not installed.
    """
    chosen = AnalyserSettings(**settings)
    language = language.replace("_", "-").partition("-")[0].lower()
    if chosen.wordpiece is not None:
        inside = (folder or Path()) / chosen.wordpiece
        return WordPieces(language, wordpiece=str(inside) if inside.exists() else chosen.wordpiece)
    built = Analyser(
        language,
        stem=chosen.stem,
        stopwords=chosen.stopwords,
        segment=chosen.segment,
        ngram=chosen.ngram,
    )
    if chosen.stem and not chosen.ngram:
        languages.chain(language, chosen.stem, chosen.stopwords)  # fails now, not at the first text
    return built

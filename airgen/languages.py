"""The languages of AIR-Bench, and those that are written without spaces between words."""

from __future__ import annotations

__all__ = ["LANGUAGES", "SPACELESS", "language_name"]

LANGUAGES: dict[str, str] = {
    "en": "English",
    "zh": "Chinese",
    "es": "Spanish",
    "fr": "French",
    "de": "German",
    "ru": "Russian",
    "ja": "Japanese",
    "ko": "Korean",
    "ar": "Arabic",
    "fa": "Persian",
    "id": "Indonesian",
    "hi": "Hindi",
    "bn": "Bengali",
}
"""The 13 languages of AIR-Bench 24.05, by ISO 639-1 code."""

SPACELESS = frozenset({"zh", "ja", "th", "lo", "km", "my"})
"""Languages that are written without spaces between words."""


def language_name(code: str) -> str:
    """The English name of a language code; a code that is not in `LANGUAGES` is returned unchanged."""
    return LANGUAGES.get(code, code)

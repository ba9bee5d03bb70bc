"""The languages that airgen supports: the paper's 13, and others that have a stemmer and a language filter."""

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

OTHERS: dict[str, str] = {
    "it": "Italian",
    "pt": "Portuguese",
    "nl": "Dutch",
    "pl": "Polish",
    "sv": "Swedish",
    "tr": "Turkish",
    "cs": "Czech",
    "da": "Danish",
    "no": "Norwegian",
    "fi": "Finnish",
    "hu": "Hungarian",
    "ro": "Romanian",
    "el": "Greek",
    "ca": "Catalan",
    "et": "Estonian",
    "lt": "Lithuanian",
    "eu": "Basque",
    "ga": "Irish",
    "hy": "Armenian",
    "sr": "Serbian",
    "ta": "Tamil",
    "ne": "Nepali",
    "uk": "Ukrainian",
    "vi": "Vietnamese",
    "th": "Thai",
}
"""Languages that are not in the paper; fewer checks support them: see `airgen.corpus.show`."""

SUPPORTED: dict[str, str] = {**LANGUAGES, **OTHERS}
"""All supported languages of a pipeline."""

SPACELESS = frozenset({"zh", "ja", "th", "lo", "km", "my"})
"""Languages that are written without spaces between words."""


def language_name(code: str) -> str:
    """Return the English name of a language code; a code that is not in `SUPPORTED` is returned unchanged."""
    return SUPPORTED.get(code, code)

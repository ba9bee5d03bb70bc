"""How each language turns one token into a term: normalise, drop stop words, stem.

`chain("de", True, True)("Häuser") == "haus"`. English follows Lucene's EnglishAnalyzer. Arabic uses Larkey's
light10, Persian and Bengali use a short list of suffixes, the others Snowball's stemmer (PyStemmer). The stop words of
languages other than English are airgen's own short lists of function words: `stopwords.py`.
"""

from __future__ import annotations

import importlib
import unicodedata
from collections.abc import Callable
from functools import cache

from airgen.errors import MissingExtra
from airgen.text.analysis import porter
from airgen.text.analysis.stopwords import STOPWORDS
from airgen.text.normal_form import normal_form

_SNOWBALL = {
    "es": "spanish",
    "fr": "french",
    "de": "german",
    "ru": "russian",
    "id": "indonesian",
    "hi": "hindi",
    "it": "italian",
    "pt": "portuguese",
    "nl": "dutch",
    "sv": "swedish",
    "da": "danish",
    "no": "norwegian",
    "fi": "finnish",
    "hu": "hungarian",
    "ro": "romanian",
    "tr": "turkish",
    "pl": "polish",
    "cs": "czech",
    "el": "greek",
    "ca": "catalan",
    "et": "estonian",
    "lt": "lithuanian",
    "eu": "basque",
    "ga": "irish",
    "hy": "armenian",
    "sr": "serbian",
    "ta": "tamil",
    "ne": "nepali",
}
_LIGHT = {"ar": "light10", "fa": "light-suffixes", "bn": "light-suffixes"}
_ELISIONS = frozenset(
    {"l", "m", "t", "qu", "n", "s", "j", "d", "c", "jusqu", "quoiqu", "lorsqu", "puisqu"}  # as Lucene's French filter
)


def stemmer_name(language: str) -> str:
    """The name of the stemmer that `chain` uses."""
    if language == "en":
        return "porter"
    if language in _LIGHT:
        return _LIGHT[language]
    return f"snowball:{_SNOWBALL[language]}" if language in _SNOWBALL else "none"


def stopword_count(language: str) -> int:
    """The number of stop words of the language."""
    return len(STOPWORDS.get(language, ()))


def lower(token: str) -> str:
    """Lower case one character at a time, as Java does it: no final sigma, no dotted capital I in two parts."""
    return token.lower() if token.isascii() else "".join([letter.lower()[0] for letter in token])


@cache
def chain(language: str, stem: bool, stopwords: bool) -> Callable[[str], str | None]:
    """The function from a token to its term, or to None for a stop word.

    Raises MissingExtra if the language's stemmer needs PyStemmer and that is not installed.
    """
    normalise = _NORMALISERS.get(language, lower)
    stops = frozenset(map(normalise, STOPWORDS.get(language, ()))) if stopwords else frozenset()
    stemmer = _stemmer(language) if stem else None

    def term(token: str) -> str | None:
        word = normalise(token)
        if not word or word in stops:
            return None
        return (stemmer(word) or word) if stemmer else word  # Nepali's stemmer leaves nothing of some words

    return term


def _stemmer(language: str) -> Callable[[str], str] | None:
    if language == "en":
        return porter.stem
    if language in _LIGHT:
        return {"ar": _stem_arabic, "fa": _stem_persian, "bn": _stem_bengali}[language]
    if language not in _SNOWBALL:
        return None
    try:
        package = importlib.import_module("Stemmer")
    except ModuleNotFoundError as error:
        raise MissingExtra(f"stemming language {language!r}", "PyStemmer", "languages") from error
    if _SNOWBALL[language] not in package.algorithms():  # Polish and Czech need PyStemmer 3.1
        raise MissingExtra(f"stemming language {language!r}", "PyStemmer", "languages")
    stem: Callable[[str], str] = package.Stemmer(_SNOWBALL[language], 0).stemWord
    if language == "de":
        return lambda word: _plain_umlauts(stem(word))
    return stem


def _english(token: str) -> str:
    if token[-2:-1] in ("'", "’", "＇") and token[-1:] in ("s", "S"):
        token = token[:-2]
    return lower(token)


def _french(token: str) -> str:
    word = lower(token).replace("’", "'")
    head, mark, tail = word.partition("'")
    return tail if mark and tail and head in _ELISIONS else word


def _german(token: str) -> str:
    return lower(token).replace("ß", "ss")


def _plain_umlauts(word: str) -> str:
    return word.replace("ä", "a").replace("ö", "o").replace("ü", "u")


def _russian(token: str) -> str:
    return lower(token).replace("ё", "е")


def _digits(text: str) -> str:
    """Any script's digits as 0 to 9."""
    return "".join([str(unicodedata.decimal(letter, letter)) for letter in text])


_ARABIC = str.maketrans("آأإٱىة", "اااايه", "ـ" + "".join(map(chr, range(0x64B, 0x653))))
_PERSIAN = str.maketrans("يىےكۀةہأإؤ", "یییکهههااو", "ـٔ" + "".join(map(chr, range(0x64B, 0x653))))
# Hindi is spelt with and without nukta, with chandrabindu or anusvara: one form for each.
_HINDI = str.maketrans({"़": None, "ँ": "ं", "‌": None, "‍": None})
_BENGALI = str.maketrans({"‌": None, "‍": None, "ঁ": None, "়": None})


def _arabic(token: str) -> str:
    return _digits(lower(token)).translate(_ARABIC)


def _persian(token: str) -> str:
    return _digits(lower(token)).translate(_PERSIAN)


def _hindi(token: str) -> str:
    return _digits(normal_form("NFD", lower(token))).translate(_HINDI)


def _bengali(token: str) -> str:
    return _digits(normal_form("NFD", lower(token))).translate(_BENGALI)


_NORMALISERS: dict[str, Callable[[str], str]] = {
    "en": _english,
    "fr": _french,
    "de": _german,
    "ru": _russian,
    "ar": _arabic,
    "fa": _persian,
    "hi": _hindi,
    "bn": _bengali,
}


def _stem_arabic(word: str) -> str:
    """Light10 (Larkey, Ballesteros and Connell 2007) on normalised text: and, the article, then suffixes."""
    if word.startswith("و") and len(word) > 3:
        word = word[1:]
    for prefix in ("وال", "بال", "كال", "فال", "لل", "ال"):
        if word.startswith(prefix) and len(word) >= len(prefix) + 2:
            word = word[len(prefix) :]
            break
    for suffix in ("ها", "ان", "ات", "ون", "ين", "يه", "ه", "ي"):
        if word.endswith(suffix) and len(word) >= len(suffix) + 2:
            word = word[: -len(suffix)]
    return word


_PERSIAN_SUFFIXES = ("هایی", "های", "ها", "ترین", "تر", "ات", "ان", "ی", "م", "ت", "ش")
_BENGALI_SUFFIXES = (
    *("গুলোকে", "গুলোর", "গুলিকে", "গুলির", "গুলো", "গুলি", "দেরকে", "দের", "টিকে", "টির", "টাকে", "টার"),
    *("টি", "টা", "খানা", "কে", "তে", "েরা", "রা", "ের", "র", "ে", "ই", "ও"),
)


def _strip_one(word: str, suffixes: tuple[str, ...], least: int) -> str:
    for suffix in suffixes:
        if word.endswith(suffix) and len(word) - len(suffix) >= least:
            return word[: -len(suffix)]
    return word


def _stem_persian(word: str) -> str:
    """Plural, comparative and possessive endings, at most one, leaving three letters."""
    return _strip_one(word, _PERSIAN_SUFFIXES, 3)


def _stem_bengali(word: str) -> str:
    """Case, plural and definite endings, at most two, leaving three letters."""
    return _strip_one(_strip_one(word, _BENGALI_SUFFIXES, 3), _BENGALI_SUFFIXES, 3)

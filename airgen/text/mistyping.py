"""Introduce typing errors into queries by rules and a seed: a typo, a missing word or a shortened word.

    mistyped("how to configure a printer", "en", rng(key, "typing"))     # ("how to confgiure a printer", "typo")

Typos are a neighbouring key, two transposed letters, or a missing or doubled letter. The first letter is always
correct, as it mostly is in query logs. Only function words are omitted. Numbers, and words of fewer than four letters,
are never changed.
"""

import re
from collections.abc import Callable
from random import Random

from airgen.settings.languages import SPACELESS
from airgen.text.analysis.languages import STOPWORDS

AS_WRITTEN, TYPO, MISSING, SHORTENED = "as written", "typo", "missing word", "abbreviation"
_RATIOS = {TYPO: 3, MISSING: 1, SHORTENED: 1}

_KEY_ROWS = {"de": ("qwertzuiopü", "asdfghjklöä", "yxcvbnm"), "fr": ("azertyuiop", "qsdfghjklm", "wxcvbn")}
_QWERTY = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_RUSSIAN = ("йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю")
_SHORT = {
    "en": {
        "and": "&", "with": "w/", "without": "w/o", "information": "info", "temperature": "temp", "example": "ex",
        "government": "govt", "department": "dept", "difference": "diff", "configuration": "config", "number": "no",
        "application": "app", "please": "pls", "because": "bc", "between": "btw", "approximately": "approx",
        "you": "u", "your": "ur", "minutes": "min", "average": "avg", "maximum": "max", "minimum": "min",
        "document": "doc", "documentation": "docs", "environment": "env", "university": "uni", "medication": "meds",
    },
    "de": {
        "und": "u.", "oder": "od.", "nicht": "nich", "Information": "Info", "Informationen": "Infos",
        "Temperatur": "Temp", "beziehungsweise": "bzw", "Nummer": "Nr", "maximal": "max", "Universität": "Uni",
        "Unterschied": "Unterschd", "vielleicht": "vllt", "eventuell": "evtl", "Krankenhaus": "KH",
    },
    "fr": {"et": "&", "avec": "ac", "pour": "pr", "beaucoup": "bcp", "information": "info", "température": "temp",
           "université": "univ", "gouvernement": "gouv", "numéro": "n°", "exemple": "ex"},
    "es": {"que": "q", "por": "x", "porque": "xq", "también": "tb", "información": "info", "número": "nº",
           "temperatura": "temp", "universidad": "uni", "ejemplo": "ej", "gobierno": "gob"},
    "id": {"yang": "yg", "dengan": "dgn", "untuk": "utk", "tidak": "tdk", "dan": "&", "informasi": "info",
           "bagaimana": "gmn", "kenapa": "knp", "karena": "krn", "sudah": "sdh", "dalam": "dlm"},
}  # fmt: skip
_VOWELS = frozenset("aeiouyäöüáéíóúàèìòùâêîôûаеёиоуыэюя")
_MIN_CUT_LETTERS, _MIN_KEPT_LETTERS = 9, 4  # minimum letters of a word that may be truncated, and of the rest
_WORD = re.compile(r"[^\W\d_]{4,}")
_IDEOGRAPHS = re.compile(r"[\u3041-\u30ff\u4e00-\u9fff\u0e00-\u0e7f]{4,}")


def mistyped(text: str, language: str, random: Random) -> tuple[str, str]:
    """Introduce one typing error into a text.

    Args:
        text: The query.
        language: ISO 639 code; determines neighbouring keys, stop words and abbreviations.
        random: Generator that draws the kind of error and its position.

    Returns:
        The changed text and the kind of error, or the unchanged text and `as written` if no rule applies.
    """
    kinds = [*_RATIOS]
    first = random.choices(kinds, [_RATIOS[kind] for kind in kinds])[0]
    for kind in (first, *(other for other in kinds if other != first)):
        changed = _MAKERS[kind](text, language, random)
        if changed is not None and changed != text:
            return changed, kind
    return text, AS_WRITTEN


def _typo(text: str, language: str, random: Random) -> str | None:
    spaceless = language in SPACELESS
    words = list((_IDEOGRAPHS if spaceless else _WORD).finditer(text))
    if not words:
        return None
    # A longer word has more positions for a typing error.
    word = random.choices(words, [len(candidate[0]) - 2 for candidate in words])[0]
    slips = [_swapped, _missing] if spaceless else [_swapped, _missing, _doubled, _beside]
    random.shuffle(slips)
    place = random.randrange(1, len(word[0]) - 1)
    for slip in slips:
        changed = slip(word[0], place, language, random)
        if changed != word[0]:
            return text[: word.start()] + changed + text[word.end() :]
    return None


def _swapped(word: str, place: int, language: str, random: Random) -> str:
    return word[:place] + word[place + 1] + word[place] + word[place + 2 :]


def _missing(word: str, place: int, language: str, random: Random) -> str:
    return word[:place] + word[place + 1 :]


def _doubled(word: str, place: int, language: str, random: Random) -> str:
    return word[:place] + word[place] + word[place:]


def _beside(word: str, place: int, language: str, random: Random) -> str:
    """Replace a letter by a neighbour in the same row of keys."""
    letter = word[place]
    for row in (*_KEY_ROWS.get(language, _QWERTY), *_RUSSIAN):
        at = row.find(letter)
        if at >= 0:
            neighbours = [row[next_to] for next_to in (at - 1, at + 1) if 0 <= next_to < len(row)]
            return word[:place] + random.choice(neighbours) + word[place + 1 :]
    return word


def _without_a_word(text: str, language: str, random: Random) -> str | None:
    words, small = text.split(), STOPWORDS.get(language, frozenset())
    places = [place for place, word in enumerate(words) if place > 0 and word.strip("?.,!").casefold() in small]
    if len(words) < 4 or not places:
        return None
    removed = random.choice(places)
    return " ".join(word for place, word in enumerate(words) if place != removed)


def _shortened(text: str, language: str, random: Random) -> str | None:
    known, words = _SHORT.get(language, {}), text.split()
    choices: list[tuple[int, str]] = []
    for place, word in enumerate(words):
        bare = word.rstrip("?.,!")
        if bare in known or bare.casefold() in known:
            choices.append((place, (known.get(bare) or known[bare.casefold()]) + word[len(bare) :]))
        elif len(bare) >= _MIN_CUT_LETTERS and bare.isalpha() and language not in SPACELESS and bare.islower():
            choices.append((place, _cut(bare) + word[len(bare) :]))
    if not choices:
        return None
    place, short = random.choice(choices)
    return " ".join([*words[:place], short, *words[place + 1 :]])


def _cut(word: str) -> str:
    """Shorten a word to a beginning that ends in a consonant: configuration becomes conf."""
    end = _MIN_KEPT_LETTERS
    while end < len(word) - 3 and word[end - 1] in _VOWELS:
        end += 1
    return word[:end]


_MAKERS: dict[str, Callable[[str, str, Random], str | None]] = {
    TYPO: _typo,
    MISSING: _without_a_word,
    SHORTENED: _shortened,
}

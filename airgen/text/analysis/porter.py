"""The Porter stemmer as Lucene's PorterStemFilter runs it: `stem("relational") == "relat"`.

M. F. Porter, An algorithm for suffix stripping, Program 14(3), 1980, with its author's two later departures
(`bli` to `ble` and `logi` to `log` in step 2, words of one or two letters unchanged). Lucene has these changes and
Snowball's `porter` has not. Each step takes the longest matching suffix, then checks its condition.
"""

from __future__ import annotations

_STEP_2 = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("logi", "log"),
)
_STEP_3 = (
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
)
# Longest first where one ends in another: ement, ment, ent.
_STEP_4 = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism"),
    *("ate", "iti", "ous", "ive", "ize"),
)
# One test for all endings, which most words do not pass.
_ENDINGS = tuple(suffix for suffix, _ in (*_STEP_2, *_STEP_3))
_ANY_ENDING = ("s", "ed", "ing", "y", "e", "ll", *_ENDINGS, *_STEP_4)


def stem(word: str) -> str:
    """The stem of a word in lower case. Every character except a, e, i, o, u and y is a consonant."""
    if len(word) < 3 or not word.endswith(_ANY_ENDING):
        return word
    word = _step_1(word)
    word = _replace(word, _STEP_2)
    word = _replace(word, _STEP_3)
    return _step_5(_step_4(word))


class _Letters(dict[int, str]):
    """Code points to v or c for str.translate; y is settled by `_shape`."""

    def __missing__(self, letter: int) -> str:
        self[letter] = kind = "v" if chr(letter) in "aeiou" else "y" if chr(letter) == "y" else "c"
        return kind


_LETTERS = _Letters()


def _shape(word: str) -> str:
    """v for each vowel and c for each consonant; y is a vowel after a consonant: `_shape("syzygy") == "cvcvcv"`."""
    shape = word.translate(_LETTERS)
    if "y" not in shape:
        return shape
    while (place := shape.find("y")) >= 0:
        shape = shape[:place] + ("v" if shape[place - 1 : place] == "c" else "c") + shape[place + 1 :]
    return shape


def _measure(word: str) -> int:
    """m: how many times a vowel is followed by a consonant."""
    return _shape(word).count("vc")


def _ends_cvc(word: str) -> bool:
    """Consonant, vowel, consonant at the end, the last not w, x or y: hop, not how."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _ends_double(word: str) -> bool:
    return word[-1:] == word[-2:-1] and _shape(word).endswith("c")


def _step_1(word: str) -> str:
    """Plurals, -ed and -ing, and y to i."""
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        if _measure(word[:-3]) > 0:
            word = word[:-1]
    else:
        for suffix in ("ed", "ing"):
            if word.endswith(suffix):
                if "v" in _shape(word[: -len(suffix)]):
                    word = _restore(word[: -len(suffix)])
                break
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    return word


def _restore(word: str) -> str:
    """Undo what -ed or -ing changed: hopp(ing) is hop, fil(ing) is file."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _ends_double(word):
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_cvc(word) else word


def _replace(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    """Apply the first rule whose suffix matches, if m > 0 before it."""
    if not word.endswith(_ENDINGS):
        return word
    for suffix, instead in rules:
        if word.endswith(suffix):
            head = word[: -len(suffix)]
            return head + instead if _measure(head) > 0 else word
    return word


def _step_4(word: str) -> str:
    if not word.endswith(_STEP_4):
        return word
    for suffix in _STEP_4:
        if word.endswith(suffix):
            head = word[: -len(suffix)]
            if _measure(head) > 1 and (suffix != "ion" or head[-1] in "st"):
                return head
            return word
    return word


def _step_5(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_cvc(word[:-1])):
            word = word[:-1]
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word

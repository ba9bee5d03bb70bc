"""Regular expressions that hold a small model to the length and form of a query, since it cannot count its words."""

import math

from airgen.generation.attributes import WORDS
from airgen.settings.languages import SPACELESS

# Letters per word in languages without spaces. A word has about 1.7 letters (rjieba and fugashi on XQuAD's questions
# and on a manual); these limits keep most texts inside their class.
_UNSPACED = {"ja": r"\u3005\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff", "zh": r"\u3005\u3400-\u4dbf\u4e00-\u9fff"}
_LETTERS_PER_WORD = (1.8, 1.6)  # for the minimum and the maximum number of words
# The first word of a query is in the script of its language, because a small model that begins in English continues in
# English.
_FIRST_LETTERS = {
    "ar": r"\u0620-\u064a",
    "fa": r"\u0620-\u06cc",
    "ru": r"\u0400-\u052f",
    "hi": r"\u0904-\u0939",
    "bn": r"\u0985-\u09b9",
    "ko": r"\uac00-\ud7a3",
}
_LATIN = ("de", "en", "es", "fr", "id")
# The characters of a word, apart from full stops: no spaces, braces, sentence ends or commas. In languages with Latin
# letters, characters of other scripts are also excluded, because a small model may switch to them.
_LETTERS = r"\"-+\-/->@-z|~-\u024f\u2010-\u203a"
_ANY = r"^\s.,?!{}\uff01\uff0c\uff1f\u060c\u061f\u0964\u06d4\u3002\u4e00-\u9fff"
_MIN_WORDS = {"lt5": 2, "lt10": 3}  # a single word is hardly a query
_MAX_WORD_LETTERS = 30  # between full stops
_MAX_PATTERN_WORDS = 40  # if the class has no upper bound
# A problem is told in the first person, and a claim does not begin like a question (what, how, wie, was, ...).
_BEGIN = {
    ("problem", "en"): "(?:I|I'm|I've|My|We|Our) ",
    ("claim", "en"): r"[A-GI-VX-Z][a-z]* ",
    ("claim", "de"): r"[A-VX-ZÄÖÜ][a-zäöüß]* ",
}


def form_pattern(length: str, kind: str, language: str) -> str | None:
    """Return a regular expression for queries of this length and type, since a small model cannot count its words, or
    None if the language is not supported. See `run_together` for what the model does at the end.
    """
    least, most = WORDS[length]
    begin = _BEGIN.get((kind, language), "")
    least, most = max(least, _MIN_WORDS.get(length, 1)), most or _MAX_PATTERN_WORDS
    return words_pattern(least, most, kind == "question", language, begin=begin)


def words_pattern(least: int, most: int, question: bool, language: str, begin: str = "") -> str | None:
    """Return a regular expression for a line of `least` to `most` words, or None for Thai, which has no spaces.

    In Chinese and Japanese, the number of characters is limited instead. `begin` is a pattern for the first words, each
    followed by a space.
    """
    if language in _UNSPACED:
        low, high = math.ceil(least * _LETTERS_PER_WORD[0]), math.floor(most * _LETTERS_PER_WORD[1])
        foreign = r"[0-9A-Z][0-9A-Za-z%+#.\-]{0,19}"  # a name or a number, which counts with the letter after it
        letter = rf"(?:{foreign})?[{_UNSPACED[language]}]"
        end = r"[?\uff1f]?" if question else r"\u3002?"
        return rf"^(?:{letter}[\u3001\uff0c]?){{{low - 1},{max(low, high) - 1}}}{letter}(?:{foreign})?{end}$"
    if language in SPACELESS:
        return None
    letters = _LETTERS if language in _LATIN else _ANY
    # A full stop may occur inside a word: pdb.set_trace, 3.5. Without a limit, a small model may write digits
    # endlessly.
    word = rf"[{letters}]{{1,{_MAX_WORD_LETTERS}}}(?:[.][{letters}]{{1,{_MAX_WORD_LETTERS}}}){{0,3}}"
    if not begin and language in _FIRST_LETTERS and least > 1:
        begin = rf"[{_FIRST_LETTERS[language]}][{letters}]{{0,{_MAX_WORD_LETTERS}}},? "
    fewer = begin.count(" ")  # a first word may be followed by a comma, but never contains a space
    end = r"[?\uff1f\u061f]?" if question else r"[.\u0964\u06d4]?"
    return f"^{begin}(?:{word},? ){{{max(0, least - 1 - fewer)},{max(0, most - 1 - fewer)}}}{word}{end}$"

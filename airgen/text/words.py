"""Words in any language: `count_words("Wie geht's?", "de") == 2`.

Words are the surface forms that a reader would count. Languages with spaces are split at Unicode word boundaries (UAX
#29, so that `don't`, `3.5` and `U.S.A` are one word each). Chinese, Japanese and Thai are segmented by a library if it
is installed (`pip install 'airgen-bench[languages]'`), otherwise by a rough rule. `segmenter(language)` names the
method, so that results can record it.
"""

import importlib
import importlib.util
import warnings
from collections.abc import Callable
from functools import cache

import regex

from airgen.settings.languages import SPACELESS

# UAX #29 ignores marks that follow a character (rule WB4), such as an emoji's variation selector.
_MARKS = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+"
_LETTER = r"[\p{WB=ALetter}\p{WB=Hebrew_Letter}]" + _MARKS
_DIGIT = r"\p{WB=Numeric}" + _MARKS
_JOINER = r"\p{WB=ExtendNumLet}" + _MARKS
_MID = r"[\p{WB=MidLetter}\p{WB=MidNumLet}\p{WB=Single_Quote}]" + _MARKS
_MID_DIGIT = r"[\p{WB=MidNum}\p{WB=MidNumLet}\p{WB=Single_Quote}]" + _MARKS
# WB5 to WB7; WB8 to WB12; a mix of both (WB9, WB10); katakana (WB13); joined by underscores (WB13a, b).
_LETTERS = rf"(?:{_LETTER}|(?<={_LETTER}){_MID}(?={_LETTER}))"
_DIGITS = rf"(?:{_DIGIT}|(?<={_DIGIT}){_MID_DIGIT}(?={_DIGIT}))"
_CHUNK = rf"(?:(?:{_LETTERS}|{_DIGITS})++|(?:\p{{WB=Katakana}}{_MARKS})++)"
# In scripts without spaces, each ideograph or hiragana is a word, and so is a run in a South-East Asian script.
_SPACELESS = (
    rf"(?![\p{{WB=Extend}}\p{{WB=Format}}])(?:[\p{{Script=Han}}\p{{Script=Hiragana}}]{_MARKS}"
    r"|\p{LB=SA}[\p{LB=SA}\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+)"
)

# The look-behinds keep the time for a long run of underscores, dots or exclamation marks linear.
WORD = regex.compile(
    rf"(?:(?<!{_JOINER})(?:{_JOINER})++)?{_CHUNK}(?:(?:{_JOINER})++{_CHUNK})*(?:{_JOINER})*+|{_SPACELESS}"
)
"""One UAX #29 word that holds a letter or a digit, as Lucene's StandardTokenizer finds it (emoji left out)."""

_LIBRARIES = {"zh": ("rjieba", "rjieba"), "ja": ("fugashi", "fugashi"), "th": ("budoux", "budoux")}
_HAS_WORD = regex.compile(r"[\p{L}\p{N}]")
_ROUGH = regex.compile(
    r"\p{Script=Han}{1,2}+|[\p{Script=Katakana}ー]++|\p{Script=Hiragana}{1,2}+|(?:\p{LB=SA}[\p{M}\p{Lm}]*+){1,4}+"
    r"|(?:(?![\p{Script=Han}\p{Script=Katakana}\p{Script=Hiragana}\p{LB=SA}])[\p{L}\p{N}\p{M}_'’.])++"
)


def words(text: str, language: str) -> list[str]:
    """Return the surface words of `text`, in order, without punctuation.

    `language` is an ISO 639-1 code; text in an unknown language is split like a language with spaces.
    """
    if language not in SPACELESS:
        return list(WORD.findall(text))
    return [word for word in _segment(language)(text) if _HAS_WORD.search(word)]


def count_words(text: str, language: str) -> int:
    """Return the number of words that `words` returns."""
    return len(words(text, language))


def segmenter(language: str) -> str:
    """Return the word segmenter of a language: `unicode`, a library's name, or `rough` if the library is not
    installed."""
    if language not in SPACELESS:
        return "unicode"
    library = _LIBRARIES.get(language)
    return library[0] if library and importlib.util.find_spec(library[1]) else "rough"


@cache
def _segment(language: str) -> Callable[[str], list[str]]:
    """Return the segmenter of a language without spaces, whose model or dictionary is loaded once."""
    name = segmenter(language)
    if name == "rjieba":
        cut = importlib.import_module("rjieba").cut
        return lambda text: list(cut(text))
    if name == "fugashi":
        try:
            tagger = importlib.import_module("fugashi").Tagger()
        except RuntimeError as error:  # fugashi without a dictionary
            warnings.warn(f"no dictionary for fugashi ({str(error).splitlines()[0]})", stacklevel=2)
            return _rough
        return lambda text: [node.surface for node in tagger(text)]
    if name == "budoux":
        parser = importlib.import_module("budoux").load_default_thai_parser()
        return lambda text: list(parser.parse(text))
    return _rough


def _rough(text: str) -> list[str]:
    """Split text into words of typical length: two ideographs or hiragana, a run of katakana, four Thai clusters."""
    return list(_ROUGH.findall(text))

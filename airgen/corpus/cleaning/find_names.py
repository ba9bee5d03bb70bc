"""Find names of persons in a text: after a courtesy title, by the recogniser of its language, or by spaCy.

>>> list(find_names("Mrs Ada Lovelace wrote it.", "titles", "en"))
[(4, 16)]
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from airgen.components.registry import load_extra
from airgen.corpus.cleaning.name_recognisers import Span, spans
from airgen.corpus.requirements import PURPOSES
from airgen.corpus.settings import Names
from airgen.errors import CorpusError
from airgen.text.analysis.languages import STOPWORDS

_ANYWHERE = "Mr|Mrs|Ms|Dr|Prof|Sir"
_TITLES = {
    "en": "Miss|Mister|Dame|Professor|Lord|Lady",
    "de": "Herr|Herrn|Frau|Familie|Professor",
    "fr": "M|Mme|Mlle|Monsieur|Madame|Mademoiselle",
    "es": "Sr|Sra|Srta|Señor|Señora|Don|Doña",
    "ru": "господин|госпожа|г-н|г-жа|доктор",
    "id": "Bapak|Bpk|Pak|Ibu|Bu|Sdr|Tuan|Nyonya|dr",
    "hi": "Shri|Smt",
}
_CAPITAL = "[A-ZÀ-ÖØ-ÞА-ЯЁ]"
_NAME = (
    rf"{_CAPITAL}[\w’'-]+(?:[ \u00a0](?:(?:von|van|de|der|den|del|di|da|la|le|bin|al|el)[ \u00a0])*"
    rf"{_CAPITAL}(?:[\w’'-]+|\.))*"
)
_HONOURED = re.compile(
    r"(?<![\w])([\u4e00-\u9fff]{2,4})(?=先生|女士|小姐)|([ァ-ヶー一-龯]{1,6})(?=さん(?![\w])|氏(?=[はがをのと、]))"
)
_KOREAN = re.compile(
    "(?<![가-힣])[김이박최정강조윤장임한오서신권황안송류전홍고문양손배백허유남심노하곽성차주우구민나진지엄채원천방공현함변염여추도석선설마길연위표명기반왕금옥육인맹제모]"
    r"(?:[가-힣]{1,2}(?=[ ](?:씨|님|선생|교수|박사))|[가-힣]{2}(?=씨(?![가-힣])))"
)
# Scripts without capital letters: one or two words after a title.
_UNCASED = {
    "ar": ("السيدة|السيد|الدكتورة|الدكتور|الأستاذة|الأستاذ|الحاجة|الحاج", "[\u0620-\u065f\u066e-\u06d3]+"),
    "fa": ("آقای|خانم|دکتر|مهندس", "[\u0620-\u065f\u066e-\u06d3\u200c]+"),
    "hi": ("श्रीमती|सुश्री|श्री|डॉ\\.|डॉक्टर|कुमारी", "[\u0900-\u0963\u0970-\u097f]+"),
    "bn": ("জনাবা|জনাব|মিসেস|মিস|ডা\\.|ড\\.", "[\u0980-\u09e5\u09f0-\u09ff]+"),
}
_COMPOUND = frozenset(["عبد", "أبو", "ابو", "بن", "آل"])  # begins a name of two words


def find_names(text: str, names: Names, language: str) -> Iterator[Span]:
    """Yield the positions of names of persons, in order, none inside another.

    Args:
        text: Normalised (NFC).
        names: How they are found; none are with `keep`.
        language: ISO 639.

    Raises:
        MissingExtra, ModelError, CorpusError: A package or model that finds names is missing.
    """
    if names == "keep":
        return
    named = [*_titled_spans(text, language)]
    if names == "ner":
        named += spans(text, language)
    elif names == "spacy":
        named += _entities(text, language)
    yield from _united(named)


def _united(named: Iterable[Span]) -> Iterator[Span]:
    """Yield spans in order, merging those that overlap."""
    last: Span | None = None
    for begin, end in sorted(named):
        if last is not None and begin < last[1]:
            last = last[0], max(last[1], end)
            continue
        if last is not None:
            yield last
        last = begin, end
    if last is not None:
        yield last


@cache
def _titled(language: str) -> re.Pattern[str]:
    titles = "|".join(filter(None, (_ANYWHERE, _TITLES.get(language, ""))))
    return re.compile(rf"(?<![\w.])((?:(?:{titles})\.?[ \u00a0]){{1,8}})({_NAME})")


@cache
def _titled_uncased(language: str) -> re.Pattern[str]:
    titles, word = _UNCASED[language]
    pattern = rf"(?<![\w])(?:{titles})[ \u00a0]({word})(?:[ \u00a0]({word})(?:[ \u00a0]({word}))?)?"
    return re.compile(unicodedata.normalize("NFC", pattern))


def _titled_spans(text: str, language: str) -> Iterator[Span]:
    """Yield names after a courtesy title, or before it in languages where the title follows."""
    for match in _titled(language).finditer(text):
        before = text[max(match.start() - 30, 0) : match.start()].split()
        # In `Richard M. Stallman`, M. is an initial and not the French title.
        if match[1].startswith("M. ") and before and before[-1][:1].isupper() and not before[-1].endswith((".", ",")):
            continue
        yield match.span(2)
    if language in ("zh", "ja"):
        yield from (match.span() for match in _HONOURED.finditer(text))
    if language == "ko":
        yield from (match.span() for match in _KOREAN.finditer(text))
    if language in _UNCASED:
        common = STOPWORDS.get(language, ())
        for match in _titled_uncased(language).finditer(text):
            if match[1] in common:
                continue
            end = match.end(1)
            if match[2] and match[2] not in common:
                end = match.end(3 if match[3] and (match[1] in _COMPOUND or match[2] in _COMPOUND) else 2)
            yield match.start(1), end


def _entities(text: str, language: str) -> Iterator[Span]:
    pipeline = _pipeline(language)
    # spaCy refuses a text of more than `max_length` characters.
    for at in range(0, len(text), pipeline.max_length):
        for span in pipeline(text[at : at + pipeline.max_length]).ents:
            if span.label_ in ("PERSON", "PER"):
                yield at + span.start_char, at + span.end_char


@cache
def _pipeline(language: str) -> Any:
    spacy = load_extra("spacy", PURPOSES["spacy"])
    packages = [name for name in spacy.util.get_installed_models() if name.startswith(f"{language}_")]
    if not packages:
        raise CorpusError(
            f"clean.names: spacy needs a spaCy model for {language!r}: install one (python -m spacy download MODEL), "
            "or set names: ner"
        )
    return spacy.load(sorted(packages)[0], exclude=["parser", "lemmatizer", "attribute_ruler", "tagger"])

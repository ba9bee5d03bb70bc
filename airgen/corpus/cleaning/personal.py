"""Personal data: what names or uniquely identifies an individual (paper, A.1), masked or dropped.

>>> mask("Write to ann@example.org or call +49 30 1234567.").text
'Write to <EMAIL> or call <PHONE>.'

Identifiers are found by form and, where they have one, by check digit, so that few numbers that are none are
masked: e-mail and IP addresses, telephone numbers, IBANs, payment cards, national ids. Names are found after a
courtesy title (`Mrs Ada Lovelace`, `Herr Meyer`), or by spaCy if it is asked for. Measured: docs/corpora.md.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from airgen.corpus.cleaning.base import KEEP, Item, Verdict
from airgen.errors import CorpusError
from airgen.registry import load_extra

__all__ = ["DropPersonal", "MaskPersonal", "Masked", "mask"]

Names = Literal["titles", "ner", "off"]


@dataclass(frozen=True, slots=True)
class Masked:
    """The text with <KIND> in place of each find, and how many of each kind there were."""

    text: str
    found: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    pattern: re.Pattern[str]
    holds: Callable[[str], bool]
    hint: Callable[[str], bool]  # a cheap test of the whole text: most texts end there


def _digits(text: str) -> str:
    return "".join(letter for letter in text if letter in "0123456789")


def luhn(text: str) -> bool:
    """Whether the digits pass Luhn's check (payment cards, ISO/IEC 7812-1)."""
    digits = [int(letter) for letter in reversed(_digits(text))]
    total = sum(digits[::2]) + sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return total % 10 == 0 and any(digits)


def iban(text: str) -> bool:
    """Whether an IBAN's length is possible and its check digits hold (ISO 13616: modulo 97 is 1)."""
    plain = re.sub(r"[\s-]", "", text).upper()
    if not 15 <= len(plain) <= 34:
        return False
    return int("".join(str(int(letter, 36)) for letter in plain[4:] + plain[:4])) % 97 == 1


def card(text: str) -> bool:
    """Whether a payment card's prefix and length are in use and Luhn's check holds."""
    digits = _digits(text)
    known = (
        (digits[0] == "4" and len(digits) in (13, 16, 19))
        or ("51" <= digits[:2] <= "55" and len(digits) == 16)
        or ("2221" <= digits[:4] <= "2720" and len(digits) == 16)
        or (digits[:2] in ("34", "37") and len(digits) == 15)
        or (digits[:2] in ("36", "38", "62", "65") and 14 <= len(digits) <= 19)
    )
    return known and luhn(digits)


def chinese_id(text: str) -> bool:
    """GB 11643: 18 characters, a date, ISO 7064 MOD 11-2."""
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    total = sum(int(digit) * weight for digit, weight in zip(text[:17], weights, strict=True))
    return "10X98765432"[total % 11] == text[17].upper() and "01" <= text[10:12] <= "12" and "01" <= text[12:14] <= "31"


def spanish_id(text: str) -> bool:
    """DNI and NIE: the letter is the number modulo 23."""
    number = text[:-1].upper().translate(str.maketrans("XYZ", "012")).replace("-", "").replace(".", "")
    return number.isdigit() and "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23] == text[-1].upper()


def french_id(text: str) -> bool:
    """NIR (social security): the last two digits are 97 less the number modulo 97."""
    plain = re.sub(r"\s", "", text).upper().replace("2A", "19").replace("2B", "18")
    return len(plain) == 15 and plain.isdigit() and 97 - int(plain[:13]) % 97 == int(plain[13:])


def aadhaar(text: str) -> bool:
    """India's 12 digits: Verhoeff's check."""
    digits = [int(letter) for letter in reversed(_digits(text))]
    check = 0
    for place, digit in enumerate(digits):
        check = _VERHOEFF_D[check][_VERHOEFF_P[place % 8][digit]]
    return check == 0


_VERHOEFF_D = [[(i + j) % 5 if i < 5 and j < 5 else 5 + (i + j) % 5 if i < 5 else 5 + (i - j) % 5 if j < 5 else (i - j) % 5
                for j in range(10)] for i in range(10)]  # fmt: skip
_VERHOEFF_P = [list(range(10)), [1, 5, 7, 6, 2, 8, 3, 0, 9, 4]]
for _ in range(6):
    _VERHOEFF_P.append([_VERHOEFF_P[-1][digit] for digit in _VERHOEFF_P[1]])


def social_security(text: str) -> bool:
    """US social security numbers that were ever given out."""
    area, group, serial = text.split("-") if "-" in text else text.split()
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


def public_address(text: str) -> bool:
    """An IP address of someone's machine: not private, loopback, reserved, or for documentation."""
    try:
        return ipaddress.ip_address(text).is_global
    except ValueError:
        return False


def _has_digits(least: int) -> Callable[[str], bool]:
    pattern = re.compile(r"(?:\d[\s().\-/]{0,3}){%d}" % least)
    return lambda text: pattern.search(text) is not None


_TITLES = (
    "Mr|Mrs|Ms|Miss|Mister|Sir|Dame|Dr|Prof|Professor|Herr|Herrn|Frau|M|Mme|Mlle|Monsieur|Madame|Mademoiselle|Sr|Sra|Srta"
    "|Señor|Señora|Don|Doña|Bapak|Ibu|Bpk|Sdr|Shri|Smt|господин|госпожа|г-н|г-жа|доктор"
)
_NAME = r"[A-ZÀ-ÖØ-ÞА-ЯЁ][\w’'-]+(?:[ \u00a0](?:(?:von|van|de|der|den|del|di|da|la|le|bin|al|el)[ \u00a0])*[A-ZÀ-ÖØ-ÞА-ЯЁ](?:[\w’'-]+|\.))*"
_BIG = r"(?<![\w.,/-])"  # not inside a longer number, a date, a path
_END = r"(?![\w/-]|[.,]\d)"


def _always(_: str) -> bool:
    return True


_RULES = [
    _Rule("EMAIL", re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])"), _always, lambda t: "@" in t),
    _Rule("IBAN", re.compile(r"\b[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,3})?\b"), iban, _has_digits(6)),
    _Rule("CARD", re.compile(_BIG + r"\d(?:[ -]?\d){12,18}" + _END), card, _has_digits(13)),
    _Rule("ID", re.compile(_BIG + r"[1-9]\d{5}(?:19|20)\d{9}[\dXx]" + _END), chinese_id, _has_digits(17)),
    _Rule("ID", re.compile(_BIG + r"[1-478][ ]?\d\d[ ]?(?:0[1-9]|1[0-2]|[2-9]\d)[ ]?(?:\d\d|2[AB])[ ]?\d{3}[ ]?\d{3}[ ]?\d\d" + _END),
          french_id, _has_digits(12)),
    _Rule("ID", re.compile(_BIG + r"[2-9]\d{3}([ -])\d{4}\1\d{4}" + _END), aadhaar, _has_digits(12)),
    _Rule("ID", re.compile(_BIG + r"\d{3}([- ])\d{2}\1\d{4}" + _END), social_security, _has_digits(9)),
    _Rule("ID", re.compile(r"(?<![\w-])(?:\d{8}|[XYZxyz]-?\d{7})-?[A-HJ-NP-TV-Za-hj-np-tv-z](?![\w-])"), spanish_id, _has_digits(7)),
    _Rule("IP", re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)"), public_address, lambda t: t.count(".") > 2),
    _Rule("IP", re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){3,7}(?::?[0-9A-Fa-f]{1,4})+(?![\w:])"), public_address, lambda t: t.count(":") > 3),
    _Rule(
        "PHONE",
        re.compile(
            r"(?<![\w.,/:+-])(?:"
            r"(?:\+|00)[1-9]\d{0,2}[ .\-/]?(?:\(0\)[ ]?)?(?:\(?\d{1,4}\)?[ .\-/]?){1,4}\d{2,4}"  # international
            r"|\(\d{2,5}\)[ ]?\d{3,4}[ .-]?\d{3,4}"  # (030) 1234567
            r"|[2-9]\d{2}[.-][2-9]\d{2}[.-]\d{4}"  # North America
            r"|0\d{1,4}[ /-]\d{2,4}(?:[ -]?\d{2,4}){1,3}"  # national with trunk 0
            r"|1[3-9]\d{9}"  # Chinese mobile
            r")(?![\w/-]|[.,:]\d)"
        ),
        lambda text: 8 <= len(_digits(text)) <= 15,
        _has_digits(7),
    ),
]  # fmt: skip
_TITLED = re.compile(rf"(?<![\w.])((?:{_TITLES})\.?[ \u00a0])({_NAME})")
_HONOURED = re.compile(r"(?<![\w])([\u4e00-\u9fff]{2,4})(?=先生|女士|小姐)|([ァ-ヶー一-龯]{1,6})(?=さん(?![\w])|氏(?=[はがをのと、]))")


def mask(text: str, names: Names = "off", language: str = "en") -> Masked:
    """Replace every find. Raises MissingExtra or CorpusError where `ner` is asked for and cannot be had."""
    found: Counter[str] = Counter()
    for rule in _RULES:
        if rule.hint(text):
            text = rule.pattern.sub(lambda match, rule=rule: _replace(match[0], rule, found), text)  # type: ignore[misc]
    if names == "titles":
        text = _TITLED.sub(lambda match: _name(found, match[1]), text)
        if language in ("zh", "ja"):
            text = _HONOURED.sub(lambda match: _name(found, ""), text)
    elif names == "ner":
        text = _entities(text, language, found)
    return Masked(text, dict(found))


def _replace(match: str, rule: _Rule, found: Counter[str]) -> str:
    if not rule.holds(match):
        return match
    found[rule.kind] += 1
    return f"<{rule.kind}>"


def _name(found: Counter[str], before: str) -> str:
    found["NAME"] += 1
    return f"{before}<NAME>"


def _entities(text: str, language: str, found: Counter[str]) -> str:
    people = [span for span in _pipeline(language)(text).ents if span.label_ in ("PERSON", "PER")]
    for span in reversed(people):
        found["NAME"] += 1
        text = text[: span.start_char] + "<NAME>" + text[span.end_char :]
    return text


@cache
def _pipeline(language: str) -> Any:
    spacy = load_extra("spacy", "finding names (clean.names: ner)")
    packages = [name for name in spacy.util.get_installed_models() if name.startswith(f"{language}_")]
    if not packages:
        raise CorpusError(f"clean.names: ner needs a spaCy pipeline for {language!r}: python -m spacy download ...; or use `titles`")
    return spacy.load(sorted(packages)[0], exclude=["parser", "lemmatizer", "attribute_ruler", "tagger"])


class MaskPersonal:
    """Replace personal data in title and text."""

    name = "personal data"

    def __init__(self, names: Names, language: str) -> None:
        self._names, self._language = names, language
        self.found: Counter[str] = Counter()

    def change(self, items: Sequence[Item]) -> None:
        """Mask in place; `found` counts by kind."""
        for item in items:
            masked = mask(item.document.text, self._names, self._language)
            title = mask(item.document.title, self._names, self._language) if item.document.title else Masked("", {})
            if masked.found or title.found:
                self.found.update(masked.found)
                self.found.update(title.found)
                item.document = replace(item.document, text=masked.text, title=title.text)


class DropPersonal:
    """Drop a document that holds personal data."""

    name = "personal data"

    def __init__(self, names: Names, language: str) -> None:
        self._names, self._language = names, language

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        """Verdicts for a batch; the detail names kinds, never the data."""
        return [self._judge(f"{item.document.title}\n{item.document.text}") for item in items]

    def _judge(self, text: str) -> Verdict:
        found = mask(text, self._names, self._language).found
        if not found:
            return KEEP
        return Verdict(False, "personal data", ", ".join(f"{count} {kind}" for kind, count in sorted(found.items())))

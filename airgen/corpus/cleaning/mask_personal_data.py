"""Mask or drop personal data: anything that names or uniquely identifies an individual (paper, A.1).

>>> mask("Write to ann@example.org or call +49 30 1234567.").text
'Write to <EMAIL> or call <PHONE>.'

Patterns find the data, and python-stdnum verifies numbers with check digits, so that few other numbers are masked (the
phonenumbers package finds national numbers only if the country is known). Names are found after a courtesy title (`Mrs
Ada Lovelace`, `Herr Meyer`) and by the language's recogniser. docs/notes/corpora.md reports the accuracy.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from stdnum import iban, luhn
from stdnum.cn import ric
from stdnum.es import dni, nie
from stdnum.exceptions import ValidationError
from stdnum.fr import nir
from stdnum.in_ import aadhaar

from airgen.corpus.cleaning.addresses_and_accounts import ACCOUNT, ADDRESS, BIRTH, PASSPORT, hide
from airgen.corpus.cleaning.filters import KEEP, CleanResult, Item
from airgen.corpus.cleaning.find_names import find_names
from airgen.corpus.cleaning.name_recognisers import has_recogniser, missing
from airgen.corpus.settings import CorpusSettings, Names, Task


@dataclass(frozen=True, slots=True)
class Masked:
    """The text with <KIND> in place of personal data, and the number of replacements by kind."""

    text: str
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    pattern: re.Pattern[str]
    is_valid: Callable[[str], bool]
    digits: int  # a text with fewer digits cannot match, so most texts are skipped
    sign: str  # a text without this cannot match either


_START = r"(?<![\w.,/-])"  # not inside a longer number, a date, a path
_END = r"(?![\w/-]|[.,]\d)"


def _digits_of(text: str) -> str:
    return "".join(letter for letter in text if letter in "0123456789")


def _is_card(text: str) -> bool:
    """Return whether a payment card number has a valid prefix, length and check digit."""
    digits = _digits_of(text)
    known = (
        (digits[0] == "4" and len(digits) in (13, 16, 19))
        or ("51" <= digits[:2] <= "55" and len(digits) == 16)
        or ("2221" <= digits[:4] <= "2720" and len(digits) == 16)
        or (digits[:2] in ("34", "37") and len(digits) == 15)
        or (digits[:2] in ("36", "38", "62", "65") and 14 <= len(digits) <= 19)
    )
    return known and luhn.is_valid(digits)


def _is_chinese_id(text: str) -> bool:
    """Check only the date and the check digit, because `ric.is_valid` also rejects real numbers whose district was
    renamed."""
    try:
        ric.get_birth_date(text)
    except ValidationError:
        return False
    return ric.calc_check_digit(text) == text[-1].upper()


def _is_social_security(text: str) -> bool:
    """Return whether the US could have issued the number, which has no check digit."""
    area, group, serial = re.split("[- ]", text)
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


def _is_public_address(text: str) -> bool:
    """Return whether this is a machine's IP address: not private, loopback, reserved, for documentation, or a section
    number.

    A section number such as `4.1.2.1` looks like an address, but in nearly every address, at least two of the four
    numbers are 20 or more. A hardware address looks like an IPv6 address, but in IPv6, some group has at least three
    digits.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        likely = sum(part >= 20 for part in address.packed) >= 2
    else:
        likely = any(len(group) >= 3 for group in text.split(":"))
    return likely and address.is_global


def _rule(kind: str, pattern: str, is_valid: Callable[[str], bool], digits: int, *, sign: str = "") -> _Rule:
    return _Rule(kind, re.compile(pattern), is_valid, digits=digits, sign=sign)


_PHONE = (
    r"(?<![\w.,/:+@=-])(?<!\d )(?:"
    r"(?:\+|00)[1-9]\d{0,2}[ .\-/](?:\(0\)[ ]?)?(?:\(?\d{1,4}\)?[ .\-/]?){1,4}\d{2,4}"  # international, in groups
    r"|(?:\+|00)[1-9]\d{10,12}"  # international, without spaces
    r"|\(\d{2,5}\)[ ]?\d{3,4}[ .-]?\d{3,4}"  # (030) 1234567
    r"|(?:1[-.])?[2-9]\d{2}[.-][2-9]\d{2}[.-]\d{4}"  # North America
    r"|0[1-9]\d{0,3}(?:[ /-]\d{6,8}|[ /-]\d{2,4}(?:[ -]\d{2,4}){1,3})"  # national with trunk 0
    r"|(?<=[：，、（])1[3-9]\d{9}"  # Chinese mobile
    r")(?![\w/-]|[.,:]\d)"
)
_CARD = r"(?:\d{13,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{1,7}|\d{4}[ -]\d{6}[ -]\d{5})"
_NIR = r"[1-478][ ]?\d\d[ ]?(?:0[1-9]|1[0-2]|[2-9]\d)[ ]?(?:\d\d|2[AB])[ ]?\d{3}[ ]?\d{3}[ ]?\d\d"
_DNI = r"(?<![\w-])(?:\d{8}|[XYZxyz]-?\d{7})-?[A-HJ-NP-TV-Za-hj-np-tv-z](?![\w-])"
_IPV6 = r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){3,7}(?::?[0-9A-Fa-f]++)++(?![\w:])"
_MAIL = r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])"
_RULES = [
    _rule("EMAIL", _MAIL, bool, 0, sign="@"),
    _rule("IBAN", r"\b[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,3})?\b", iban.is_valid, 6),
    _rule("CARD", _START + _CARD + _END, _is_card, 13),
    _rule("ID", _START + r"[1-9]\d{5}(?:19|20)\d{9}[\dXx]" + _END, _is_chinese_id, 17),
    _rule("ID", _START + _NIR + _END, nir.is_valid, 12),
    _rule("ID", _START + r"[2-9]\d{3}([ -])\d{4}\1\d{4}" + _END, aadhaar.is_valid, 12),
    _rule("ID", _START + r"\d{3}([- ])\d{2}\1\d{4}" + _END, _is_social_security, 9),
    _rule("ID", _DNI, lambda text: dni.is_valid(text) or nie.is_valid(text), 7),
    _rule("IP", r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)", _is_public_address, 4, sign="."),
    _rule("IP", _IPV6, _is_public_address, 1, sign=":"),
    _rule("PHONE", _PHONE, lambda text: 8 <= len(_digits_of(text)) <= 15, 7),
]


def mask(text: str, names: Names = "keep", language: str = "en") -> Masked:
    """Replace all personal data, including street addresses and dates of birth unless names are kept.

    Args:
        text: Normalised text (NFC).
        names: How to find personal names.
        language: ISO 639.

    Returns:
        The masked text, and the number of replacements by kind.

    Raises:
        MissingExtra, ModelError, CorpusError: A package or model for finding names is missing.
    """
    counts: Counter[str] = Counter()
    digits = sum(map(text.count, "0123456789"))  # ten scans in C are faster than a pattern
    may_have_digits = digits > 0 or not text.isascii()  # other scripts have their own digits
    for rule in _RULES:
        if rule.kind == "PHONE" and may_have_digits:  # a date or a passport number may look like this
            for kind in (PASSPORT, ACCOUNT) if names == "keep" else (ADDRESS, BIRTH, PASSPORT, ACCOUNT):
                text = hide(text, language, kind, counts)
        if digits >= rule.digits and rule.sign in text:
            text = rule.pattern.sub(lambda match, rule=rule: _replace(match[0], rule, counts), text)  # type: ignore[misc]
    pieces, at = [], 0
    for begin, end in find_names(text, names, language):
        counts["NAME"] += 1
        pieces += [text[at:begin], "<NAME>"]
        at = end
    return Masked("".join([*pieces, text[at:]]), dict(counts))


def _replace(match: str, rule: _Rule, counts: Counter[str]) -> str:
    if not rule.is_valid(match):
        return match
    counts[rule.kind] += 1
    return f"<{rule.kind}>"


def is_unmasked(settings: CorpusSettings, task: Task) -> bool:
    """Return whether personal data that the paper removes remains: names of persons, addresses and dates of birth.

    The paper removes them from the corpora of QA, not from the documents of Long-Doc (A.1).
    """
    return task == "qa" and settings.names == "keep"


def what_remains(settings: CorpusSettings, task: Task) -> str:
    """Return a sentence for publishers about which personal data is masked in a corpus's passages and which remains."""
    if settings.clean.personal_data == "off" or task == "long-doc":  # a long document is truncated, not cleaned
        return "Personal data is not searched for, and stays in the texts."
    treatment = "masked" if settings.clean.personal_data == "mask" else "a reason to drop the document"
    numbers = "e-mail and IP addresses, telephone numbers and numbers of accounts, cards, passports and identity cards"
    if settings.names == "keep":
        return f"Personal data: {numbers} are {treatment}; names of persons, street addresses and dates of birth stay."
    how = {
        "ner": "if a recogniser finds them" if has_recogniser(settings.language) else "only after a courtesy title",
        "spacy": "if spaCy finds them",
        "titles": "only after a courtesy title",
    }[settings.names]
    if settings.clean.names == "auto" and settings.names == "titles" and (parts := missing(settings.language)):
        how += f" (a recogniser finds more: {parts[0].command})"
    return f"Personal data: {numbers}, street addresses and dates of birth are {treatment}, and names of persons {how}."


def mask_item(item: Item, names: Names, language: str) -> CleanResult:
    """Replace and count personal data in the title and text, and keep the document."""
    document = item.document
    text, title = (mask(part, names, language) for part in (document.text, document.title))
    if text.counts or title.counts:
        item.document = replace(document, text=text.text, title=title.text)
        item.masked = dict(Counter(text.counts) + Counter(title.counts))
    return KEEP


def judge_personal(item: Item, names: Names, language: str) -> CleanResult:
    """Drop a document that contains personal data. The detail names the kinds, never the data."""
    counts = mask(f"{item.document.title}\n{item.document.text}", names, language).counts
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    return CleanResult(False, "personal data", kinds) if counts else KEEP

"""Check digits: whether a number that looks like an identifier is one.

>>> card("4111 1111 1111 1111"), iban("DE89 3704 0044 0532 0130 00"), card("1234 5678 9012 3456")
(True, True, False)
"""

from __future__ import annotations

import ipaddress
import re

__all__ = [
    "aadhaar",
    "card",
    "chinese_id",
    "digits_of",
    "french_id",
    "iban",
    "luhn",
    "public_address",
    "social_security",
    "spanish_id",
]


def digits_of(text: str) -> str:
    return "".join(letter for letter in text if letter in "0123456789")


def luhn(text: str) -> bool:
    """Whether the digits pass Luhn's check (payment cards, ISO/IEC 7812-1)."""
    digits = [int(letter) for letter in reversed(digits_of(text))]
    total = sum(digits[::2]) + sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return total % 10 == 0 and any(digits)


_IBAN_LENGTHS = (
    "AE23 AT20 BE16 BG22 BH22 BR29 CH21 CY28 CZ24 DE22 DK18 EE20 EG29 ES24 FI18 FR27 GB22 GR27 HR21 HU28 IE22 IL23 IS26"
    " IT27 JO30 KW30 KZ20 LB28 LT20 LU20 LV21 MC27 MT31 NL18 NO15 PK24 PL28 PT25 QA29 RO24 RS22 RU33 SA24 SE24 SI19"
    " SK24 TN24 TR26 UA29"
)
_LENGTHS = {part[:2]: int(part[2:]) for part in _IBAN_LENGTHS.split()}


def iban(text: str) -> bool:
    """Whether an IBAN has its country's length and its check digits hold (ISO 13616: modulo 97 is 1)."""
    plain = re.sub(r"[\s-]", "", text).upper()
    if len(plain) != _LENGTHS.get(plain[:2]):
        return False
    return int("".join(str(int(letter, 36)) for letter in plain[4:] + plain[:4])) % 97 == 1


def card(text: str) -> bool:
    """Whether a payment card's prefix and length are in use and Luhn's check holds."""
    digits = digits_of(text)
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
    digits = [int(letter) for letter in reversed(digits_of(text))]
    check = 0
    for place, digit in enumerate(digits):
        check = _VERHOEFF_D[check][_VERHOEFF_P[place % 8][digit]]
    return check == 0


def _dihedral(i: int, j: int) -> int:
    if i < 5:
        return (i + j) % 5 if j < 5 else 5 + (i + j) % 5
    return 5 + (i - j) % 5 if j < 5 else (i - j) % 5


# The multiplication table of the dihedral group D5, and the permutation's powers.
_VERHOEFF_D = [[_dihedral(i, j) for j in range(10)] for i in range(10)]
_VERHOEFF_P = [list(range(10)), [1, 5, 7, 6, 2, 8, 3, 0, 9, 4]]
for _ in range(6):
    _VERHOEFF_P.append([_VERHOEFF_P[-1][digit] for digit in _VERHOEFF_P[1]])


def social_security(text: str) -> bool:
    """US social security numbers that were ever given out."""
    area, group, serial = text.split("-") if "-" in text else text.split()
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


def public_address(text: str) -> bool:
    """An IP address of someone's machine: not private, loopback, reserved or for documentation, nor a section number.

    A section `4.1.2.1` looks like an address: of an address, at least two of the four numbers are 20 or more but
    once in a thousand. A hardware address looks like version 6: of that, one group has three digits or more.
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

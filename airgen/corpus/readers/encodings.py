"""Bytes to text: a byte order mark, the encoding of the YAML, UTF-8, or what charset-normalizer finds.

Old encodings are hard to tell apart, so only those in which the corpus's language was written are tried.
"""

from __future__ import annotations

import codecs

_SAMPLE = 1 << 20  # bytes that the detection reads
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_GROUPS = {
    "cp1252 iso8859_15": "en de fr es pt it nl sv da no fi id ca eu ga",
    "cp1250 iso8859_2": "pl cs sk hu ro hr sl",
    "cp1251 koi8_r": "ru uk bg sr",
    "cp1254": "tr",
    "cp1253": "el",
    "cp1256": "ar fa",
    "cp1257": "lt lv et",
    "gb18030 big5": "zh",
    "cp932 euc_jp": "ja",
    "cp949": "ko",
    "cp874": "th",
}
_OLD = {language: names.split() for names, languages in _GROUPS.items() for language in languages.split()}


def decoded(raw: bytes, encoding: str, language: str) -> str:
    """The text of a whole file. `encoding` is empty where the YAML names none.

    Raises UnicodeError, whose message names what was tried; LookupError for an encoding that does not exist.
    """
    for mark, name in _MARKS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(name)
    if encoding:
        return raw.decode(encoding)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode(detected(raw, language))


def detected(raw: bytes, language: str) -> str:
    """The encoding of bytes that are no UTF-8. Raises UnicodeError."""
    from charset_normalizer import from_bytes

    sample = raw if len(raw) <= _SAMPLE else raw[:_SAMPLE].rpartition(b"\n")[0]
    old = _OLD.get(language, [])
    found = from_bytes(sample, cp_isolation=old).best()
    # It gives up on a few words with many signs, where the language leaves one choice.
    named = found.encoding if found else next((name for name in old if _readable(sample, name)), "")
    if not named:
        tried = ", ".join(["utf-8", *old]) if old else "utf-8 and all that charset-normalizer knows"
        raise UnicodeError(f"tried {tried}; set reader.encoding")
    return named


def _readable(sample: bytes, encoding: str) -> bool:
    """Whether bytes become letters, digits and few signs."""
    try:
        text = "".join(sample.decode(encoding).split())
    except UnicodeDecodeError:
        return False
    return text.isprintable() and sum(map(str.isalnum, text)) * 2 >= len(text)

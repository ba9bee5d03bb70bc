"""The protocol of readers, and what all readers use, such as the encoding of a file.

    reader = resolve("reader", "jsonl")(settings, place)
    for row in reader.read():           # a Document, or a Dropped with its reason
        ...

A reader streams: it holds one document at a time, and what its format needs to find the next one. It raises CorpusError
for a file that cannot be used, and yields Dropped for a part of a file that cannot be used.
"""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import Field

from airgen.records import Document, Dropped
from airgen.settings.base import Settings
from airgen.settings.parts import ReadPart

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


MAX_BYTES = 16 * 1024 * 1024


class ReaderSettings(Settings):
    """The base of every reader's settings. `max_bytes` limits the raw size of one document.

    `skip`: names of files and folders, or patterns of names (`*.bak`), that are left out below `path`, at any depth.
    `packages` are the imports without which the reader cannot run.
    """

    packages: ClassVar[tuple[str, ...]] = ()
    max_bytes: int = Field(default=MAX_BYTES, ge=1)
    skip: tuple[str, ...] = (".*", "node_modules", "__pycache__")

    def inner(self) -> Sequence[ReadPart]:
        """The readers that this one is made of."""
        return ()

    def text_version(self) -> str:
        """The version of a text that is no file of the corpus, such as Python's own reference; empty for files."""
        return ""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a corpus's files, and what the corpus's YAML says about all of them."""

    root: Path
    source: str = ""
    licence: str = ""
    language: str = ""


class Reader(Protocol):
    """A reader of one source format. `Settings` validates its part of the corpus YAML, without `kind`."""

    Settings: ClassVar[type[ReaderSettings]]

    def __init__(self, settings: Any, place: Place) -> None: ...

    def read(self) -> Iterator[Document | Dropped]:
        """The documents, streamed in a fixed order. Raises CorpusError."""
        ...


class Unusable(Exception):
    """What a reader cannot use, which becomes a Dropped: a reason that is counted, and what is wrong with this one."""

    def __init__(self, reason: str, detail: str = "", text: str = "") -> None:
        super().__init__(detail)
        self.reason, self.detail, self.text = reason, detail[:200], text


def drop(
    reason: str, *, identity: str = "", detail: str = "", source: str = "", position: str = "", text: str = ""
) -> Dropped:
    """A part of the source that a reader cannot use. `prepare` sets its key."""
    return Dropped("", identity, "reader", reason, detail, source, position, text[:200])

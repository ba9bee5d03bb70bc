"""Word documents by mammoth: `reader: {kind: docx, path: handbook, split: sections}`.

mammoth makes HTML of a document with its headings, lists, tables, footnotes and content controls, without page headers,
comments and deleted text; the HTML is read as any other.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from typing import ClassVar
from xml.parsers.expat import ExpatError
from xml.sax import SAXException

from airgen.corpus.readers.html import TooMuchMarkupError, html_blocks
from airgen.corpus.readers.reader import drop
from airgen.corpus.readers.texts import FileReader, SectionSettings, documents_of
from airgen.records import Document, Dropped
from airgen.registry import load_extra

_DAMAGED = (
    zipfile.BadZipFile, zlib.error, ExpatError, SAXException, EOFError, OSError, ArithmeticError, LookupError,
    TypeError, ValueError, AttributeError, RuntimeError,
)  # fmt: skip
_MAX_TAGS = 1_000_000  # of one part: mammoth holds each element, a kilobyte of memory
_TITLE = "p[style-name='Title'] => h1:fresh"


class DocxReader(FileReader):
    """One document for each file or section."""

    class Settings(SectionSettings):
        """`max_bytes` limits the file, and its XML after unpacking."""

        packages: ClassVar[tuple[str, ...]] = ("mammoth", "selectolax")
        max_bytes: int = 64 * 1024 * 1024

    suffixes = (".docx",)

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """The documents of one file; a damaged, protected or too large one is dropped with its reason."""
        mammoth = load_extra("mammoth", "reader 'docx'")
        try:
            # A member gives at most the size that the archive declares for it, so the sum is a bound.
            with zipfile.ZipFile(io.BytesIO(raw)) as members:
                parts = [one for one in members.infolist() if not one.filename.startswith("word/media/")]
                size = sum(one.file_size for one in parts)
                detail = f"unpacks to {size} bytes, more than {self.settings.max_bytes}"
                if size <= self.settings.max_bytes:
                    most = max((_tags(members, one) for one in parts), default=0)
                    detail = f"more than {_MAX_TAGS:,} tags of XML" if most > _MAX_TAGS else ""
            if detail:
                yield drop("too large", identity=name, detail=detail, source=name)
                return
            found = mammoth.convert_to_html(io.BytesIO(raw), style_map=_TITLE, convert_image=lambda _: [])
            title, blocks = html_blocks(found.value)
        except TooMuchMarkupError as error:
            yield drop(error.reason, identity=name, detail=str(error), source=name)
            return
        except _DAMAGED as error:
            reason = "password needed" if raw.startswith(b"\xd0\xcf\x11\xe0") else "damaged document"
            yield drop(reason, identity=name, detail=f"{type(error).__name__}: {error}"[:200], source=name)
            return
        if not blocks:
            yield drop("no text in the document", identity=name, source=name)
            return
        yield from documents_of(blocks, title, name, self.settings, self.place, self.identity(name))


def _tags(members: zipfile.ZipFile, part: zipfile.ZipInfo) -> int:
    """How many tags a part of a document has, counted in pieces."""
    with members.open(part) as stream:
        return sum(piece.count(b"<") for piece in iter(lambda: stream.read(1 << 20), b""))

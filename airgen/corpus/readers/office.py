"""Word documents by mammoth, and EPUB books, whose chapters come in reading order.

    reader: {kind: docx, path: handbook, split: sections}
    reader: {kind: epub, path: books, split: sections}

mammoth makes HTML of a document with its headings, lists, tables, footnotes and content controls, without page headers,
comments and deleted text; the HTML is read as any other.
"""

import io
import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from typing import ClassVar
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.parsers.expat import ExpatError
from xml.sax import SAXException

from airgen.corpus.readers.html import MAX_MARKS, html_blocks
from airgen.corpus.readers.reader import Unusable
from airgen.corpus.readers.texts import FileReader, SectionSettings
from airgen.records import Document
from airgen.registry import load_extra

_DAMAGED = (
    zipfile.BadZipFile, zlib.error, ExpatError, ElementTree.ParseError, SAXException, EOFError, OSError,
    ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError,
)  # fmt: skip
_TITLE = "p[style-name='Title'] => h1:fresh"


class DocxReader(FileReader):
    """One document for each file or section."""

    class Settings(SectionSettings):
        """`max_bytes` limits the file, and its XML after unpacking."""

        packages: ClassVar[tuple[str, ...]] = ("mammoth", "selectolax")
        max_bytes: int = 64 * 1024 * 1024

    suffixes = (".docx",)

    def parse(self, raw: bytes, name: str) -> Iterator[Document]:
        """The documents of one file. Raises Unusable for a damaged, protected or too large one."""
        mammoth = load_extra("mammoth", "reader 'docx'")
        try:
            # A member gives at most the size that the archive declares for it, so the sum is a bound.
            with zipfile.ZipFile(io.BytesIO(raw)) as members:
                parts = [one for one in members.infolist() if not one.filename.startswith("word/media/")]
                size = sum(one.file_size for one in parts)
                if size > self.settings.max_bytes:
                    raise Unusable("too large", f"unpacks to {size} bytes, more than {self.settings.max_bytes}")
                if any(_tags(members, one) > MAX_MARKS for one in parts):  # mammoth holds each, a kilobyte of memory
                    raise Unusable("too large", f"more than {MAX_MARKS:,} tags of XML")
            found = mammoth.convert_to_html(io.BytesIO(raw), style_map=_TITLE, convert_image=lambda _: [])
            title, blocks = html_blocks(found.value)
        except _DAMAGED as error:
            reason = "password needed" if raw.startswith(b"\xd0\xcf\x11\xe0") else "damaged document"
            raise Unusable(reason, f"{type(error).__name__}: {error}") from error
        if not blocks:
            raise Unusable("no text in the document")
        yield from self.documents(blocks, title, name)


def _tags(members: zipfile.ZipFile, part: zipfile.ZipInfo) -> int:
    """How many tags a part of a document has, counted in pieces."""
    with members.open(part) as stream:
        return sum(piece.count(b"<") for piece in iter(lambda: stream.read(1 << 20), b""))


_CONTAINER = "{urn:oasis:names:tc:opendocument:xmlns:container}"
_OPF = "{http://www.idpf.org/2007/opf}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_MAX_XML = 16 * 1024 * 1024
_MAX_CHAPTERS = 5000


class EpubReader(FileReader):
    """One document for each book (for the Long-Doc task), chapter or section."""

    class Settings(SectionSettings):
        """`split`: file, chapters or sections."""

        packages: ClassVar[tuple[str, ...]] = ("selectolax",)
        splits: ClassVar[tuple[str, ...]] = ("file", "chapters", "sections")
        max_bytes: int = 256 * 1024 * 1024

    suffixes = (".epub",)

    def parse(self, raw: bytes, name: str) -> Iterator[Document]:
        """The documents of one book. Raises Unusable for a damaged, protected or too large one."""
        try:
            with zipfile.ZipFile(io.BytesIO(raw)) as book:
                title, chapters = _spine(book)
                left, tags = self.settings.max_bytes, 2 * MAX_MARKS
                for part in chapters:
                    page = _member(book, part)
                    left -= len(page)
                    tags -= page.count(b"<")
                    if left < 0 or tags < 0:
                        most = f"{self.settings.max_bytes} bytes" if left < 0 else f"{2 * MAX_MARKS:,} tags"
                        raise Unusable("too large", f"its chapters unpack to more than {most}")
                decoded = ((part, _member(book, part).decode("utf-8-sig", "replace")) for part in chapters)
                pages = [(part, html_blocks(page)) for part, page in decoded]
        except _DAMAGED as error:
            raise Unusable("damaged EPUB", f"{type(error).__name__}: {error}") from error
        pages = [(part, found) for part, found in pages if found[1]]
        if not pages:
            raise Unusable("no text in the book")
        if self.settings.split == "chapters":
            for number, (_, (heading, blocks)) in enumerate(pages, 1):
                text = "\n\n".join(block.text for block in blocks)
                heading = f"{title} > {heading}" if heading else title
                yield self.document(name, text, heading, f"#{number}", position=f"chapter {number}")
            return
        blocks = [block for _, (_, found) in pages for block in found]
        yield from self.documents(blocks, title, name)


def _member(book: zipfile.ZipFile, name: str) -> bytes:
    """A member's bytes. Raises ValueError for more than 16 MB, which no chapter has."""
    with book.open(name) as stream:
        data = stream.read(_MAX_XML + 1)
    if len(data) > _MAX_XML:
        raise ValueError(f"{name} unpacks to more than {_MAX_XML >> 20} MB")
    return data


def _xml(book: zipfile.ZipFile, name: str) -> ElementTree.Element:
    data = _member(book, name)
    if b"<!ENTITY" in data:  # entities can read files and expand without end
        raise ValueError(f"{name} declares entities")
    return ElementTree.fromstring(data)


def _spine(book: zipfile.ZipFile) -> tuple[str, list[str]]:
    """The title, and the chapters in reading order."""
    root = _xml(book, "META-INF/container.xml").find(f".//{_CONTAINER}rootfile")
    if root is None:
        raise ValueError("no rootfile in META-INF/container.xml")
    path = root.get("full-path", "")
    package = _xml(book, path)
    named = package.find(f".//{_DC}title")
    title = (named.text or "").strip() if named is not None else ""
    items = {
        item.get("id"): item.get("href", "")
        for item in package.iter(f"{_OPF}item")
        if "html" in item.get("media-type", "") and "nav" not in item.get("properties", "").split()
    }
    order = [ref.get("idref") for ref in package.iter(f"{_OPF}itemref") if ref.get("linear") != "no"]
    folder = posixpath.dirname(path)
    paths = [posixpath.normpath(posixpath.join(folder, unquote(items[ref]))) for ref in order if ref in items]
    chapters = list(dict.fromkeys(paths))  # a chapter that the spine repeats is read once
    if len(chapters) > _MAX_CHAPTERS:
        raise ValueError(f"the book has more than {_MAX_CHAPTERS} chapters")
    return title, chapters

"""Read Word documents with mammoth, and EPUB books in reading order.

    reader: {kind: docx, path: handbook, split: sections}
    reader: {kind: epub, path: books, split: sections}

mammoth converts a document with its headings, lists, tables and footnotes to HTML, which is read like any other HTML.
What mammoth does not read becomes text or a piece that is left out: see `word_xml`.
"""

import io
import posixpath
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import ClassVar
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.parsers.expat import ExpatError
from xml.sax import SAXException

from airgen.components.registry import load_extra
from airgen.corpus.readers.html import MAX_MARKS, TITLE, html_page
from airgen.corpus.readers.reader import Unusable, drop
from airgen.corpus.readers.sections import Page, SectionSettings
from airgen.corpus.readers.text_files import FileReader, damage
from airgen.corpus.readers.word_xml import WordFile
from airgen.storage.records import Document, Dropped
from airgen.text.character_encodings import decoded_html

_DAMAGED = (
    zipfile.BadZipFile, zlib.error, ExpatError, ElementTree.ParseError, SAXException, EOFError, OSError,
    ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError,
)  # fmt: skip
_TITLE = "p[style-name='Title'] => h1:fresh"


class DocxReader(FileReader):
    """Yields one document per file or section."""

    class Settings(SectionSettings):
        """Settings of the DOCX reader.

        Attributes:
            max_bytes: Maximum size of a file and of its unpacked XML.
        """

        packages: ClassVar[tuple[str, ...]] = ("mammoth", "selectolax")
        max_bytes: int = 64 * 1024 * 1024

    version, packed = 4, True
    suffixes = (".docx", ".docm", ".dotx")

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """Yield the pieces left out of a file, then its documents.

        Raises Unusable if the file is damaged, protected or too large.
        """
        mammoth = load_extra("mammoth", "reader 'docx'")
        try:
            # A member yields at most the size that the archive declares for it, so the sum is a limit.
            with zipfile.ZipFile(io.BytesIO(raw)) as members:
                parts = [member for member in members.infolist() if not member.filename.startswith("word/media/")]
                size = sum(member.file_size for member in parts)
                if size > self.settings.max_bytes:
                    raise Unusable("too large", f"unpacks to {size} bytes, more than {self.settings.max_bytes}")
                # mammoth needs a kilobyte of memory per tag.
                if any(_tags(members, member) > MAX_MARKS for member in parts):
                    raise Unusable("too large", f"more than {MAX_MARKS:,} XML tags")
            word = WordFile(raw)
            plain = io.BytesIO(word.readable())
            converted = mammoth.convert_to_html(plain, style_map=_TITLE, convert_image=lambda _: [])
            page = html_page(converted.value)
            title, blocks = page.title, page.blocks
            pieces = [*page.left, *word.pieces([title, *(block.text for block in blocks)])]
        except _DAMAGED as error:
            reason = "password needed" if raw.startswith(b"\xd0\xcf\x11\xe0") else "damaged document"
            raise Unusable(reason, f"{type(error).__name__}: {error}") from error
        yield from self.pieces(pieces, name)
        if not blocks:
            raise Unusable("no text in the document")
        yield from self.documents(blocks, title, name)


def _tags(members: zipfile.ZipFile, part: zipfile.ZipInfo) -> int:
    """Count the tags of a document's part, piece by piece."""
    with members.open(part) as stream:
        return sum(piece.count(b"<") for piece in iter(lambda: stream.read(1 << 20), b""))


_CONTAINER = "{urn:oasis:names:tc:opendocument:xmlns:container}"
_OPF = "{http://www.idpf.org/2007/opf}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_MAX_XML_BYTES = 16 * 1024 * 1024
_MAX_CHAPTERS = 5000
_NO_CHAPTER = "chapter is not in the book"
_DAMAGED_PART = (zipfile.BadZipFile, zlib.error, EOFError)


class EpubReader(FileReader):
    """Yields one document per book (for the Long-Doc task), chapter or section."""

    class Settings(SectionSettings):
        """Settings of the EPUB reader.

        Attributes:
            split: What becomes a document: the file, a chapter or a section.
        """

        packages: ClassVar[tuple[str, ...]] = ("selectolax",)
        splits: ClassVar[tuple[str, ...]] = ("file", "chapters", "sections")
        max_bytes: int = 256 * 1024 * 1024

    suffixes = (".epub",)

    version, packed = 5, True

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """Yield the pieces left out of a book's chapters, then its documents.

        Raises Unusable if the file is damaged, protected or too large.
        """
        pages, pieces = dict[str, Page](), list[Dropped]()
        where = {"identity": self.identity(name), "source": name}
        try:
            with zipfile.ZipFile(io.BytesIO(raw)) as book:
                title, parts, missing = _spine(book)
                pieces += [drop(_NO_CHAPTER, detail="not in the manifest", position=part, **where) for part in missing]
                self._check_size(book, parts)
                locked = _locked(book)
                for part in parts:
                    if part in locked:
                        raise Unusable("password needed", f"{part} is encrypted")
                    try:
                        decoded = decoded_html(_member(book, part), "", self.place.language)
                    except (KeyError, UnicodeError, *_DAMAGED_PART) as error:
                        reason = _NO_CHAPTER if isinstance(error, KeyError) else "damaged chapter"
                        reason = "unknown encoding" if isinstance(error, UnicodeError) else reason
                        pieces.append(drop(reason, detail=str(error), position=part, **where))
                        continue
                    pages[part] = html_page(decoded.text)
                    pieces += [damage(decoded, self.identity(name), name)] if decoded.damaged else []
        except _DAMAGED as error:
            raise Unusable("damaged EPUB", f"{type(error).__name__}: {error}") from error
        yield from pieces
        for part, page in pages.items():
            beside = [(parts[part], page.text)] if parts[part] and page.blocks else []
            left = [piece for piece in page.left if piece != (TITLE, title)]  # the title of the book is on each page
            yield from self.pieces([*beside, *left], name, part)
        chapters = [page for part, page in pages.items() if page.blocks and not parts[part]]
        if not chapters:
            raise Unusable("no text in the book")
        if self.settings.split == "chapters":
            for number, page in enumerate(chapters, 1):
                heading = f"{title} > {page.title}" if page.title else title
                yield self.document(name, page.text, heading, f"#{number}", position=f"chapter {number}")
            return
        yield from self.documents([block for page in chapters for block in page.blocks], title, name)

    def _check_size(self, book: zipfile.ZipFile, parts: Iterable[str]) -> None:
        left, tags = self.settings.max_bytes, 2 * MAX_MARKS
        for part in parts:
            try:
                raw = _member(book, part)
            except (KeyError, *_DAMAGED_PART):
                continue
            left -= len(raw)
            tags -= raw.count(b"<")
            if left < 0 or tags < 0:
                most = f"{self.settings.max_bytes} bytes" if left < 0 else f"{2 * MAX_MARKS:,} tags"
                raise Unusable("too large", f"its chapters unpack to more than {most}")


def _member(book: zipfile.ZipFile, name: str) -> bytes:
    """Return a member's bytes. Raises ValueError if it is larger than 16 MB, as no chapter is."""
    with book.open(name) as stream:
        data = stream.read(_MAX_XML_BYTES + 1)
    if len(data) > _MAX_XML_BYTES:
        raise ValueError(f"{name} unpacks to more than {_MAX_XML_BYTES >> 20} MB")
    return data


def _xml(book: zipfile.ZipFile, name: str) -> ElementTree.Element:
    data = _member(book, name)
    if b"<!ENTITY" in data:  # entities can read files and expand without end
        raise ValueError(f"{name} declares entities")
    return ElementTree.fromstring(data)


def _locked(book: zipfile.ZipFile) -> set[str]:
    """Return the encrypted parts of a book."""
    if "META-INF/encryption.xml" not in book.namelist():
        return set()
    references = _xml(book, "META-INF/encryption.xml").iter("{http://www.w3.org/2001/04/xmlenc#}CipherReference")
    return {unquote(reference.get("URI", "")) for reference in references}


def _spine(book: zipfile.ZipFile) -> tuple[str, dict[str, str], list[str]]:
    """Return the title, the pages in reading order, {part: why it is not a chapter, or ""}, and missing chapters."""
    root = _xml(book, "META-INF/container.xml").find(f".//{_CONTAINER}rootfile")
    if root is None:
        raise ValueError("no rootfile in META-INF/container.xml")
    path = root.get("full-path", "")
    package = _xml(book, path)
    named = package.find(f".//{_DC}title")
    title = (named.text or "").strip() if named is not None else ""
    folder = posixpath.dirname(path)
    items, others = dict[str | None, str](), dict[str, str]()
    for item in package.iter(f"{_OPF}item"):
        if "html" in item.get("media-type", ""):
            part = posixpath.normpath(posixpath.join(folder, unquote(item.get("href", ""))))
            if "nav" in item.get("properties", "").split():
                others[part] = "table of contents"
            else:
                items[item.get("id")] = part
    # Parts that are not linear, such as notes and answers, are text too, because links lead to them.
    refs = [reference.get("idref", "") for reference in package.iter(f"{_OPF}itemref")]
    order = [items[ref] for ref in refs if ref in items]
    known = {item.get("id") for item in package.iter(f"{_OPF}item")}
    missing = list(dict.fromkeys(ref for ref in refs if ref not in known))[:_MAX_CHAPTERS]
    chapters = dict.fromkeys(order, "")  # a chapter that the spine repeats is read once
    if len(items) + len(others) > _MAX_CHAPTERS:
        raise ValueError(f"the book has more than {_MAX_CHAPTERS} chapters")
    beside = dict.fromkeys(items.values(), "not in the reading order")
    pages = chapters | {part: why for part, why in (others | beside).items() if part not in chapters}
    return title, pages, missing

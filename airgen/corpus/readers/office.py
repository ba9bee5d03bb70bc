"""Word documents by mammoth, and EPUB books, whose chapters come in reading order.

    reader: {kind: docx, path: handbook, split: sections}
    reader: {kind: epub, path: books, split: sections}

mammoth makes HTML of a document with its headings, lists, tables, footnotes and content controls, without page headers,
comments and deleted text; the HTML is read as any other.
"""

import html
import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import ClassVar
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.parsers.expat import ExpatError
from xml.sax import SAXException

from airgen.corpus.readers.html import MAX_MARKS, html_blocks, html_page
from airgen.corpus.readers.reader import Unusable, left_out
from airgen.corpus.readers.texts import FileReader, SectionSettings
from airgen.records import Document, Dropped
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

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """The documents of one file, after the pieces that are left out.

        Raises Unusable for a damaged, protected or too large one.
        """
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
            plain = _with_equations(raw)
            found = mammoth.convert_to_html(io.BytesIO(plain), style_map=_TITLE, convert_image=lambda _: [])
            page = html_page(found.value)
            title, blocks = page.title, page.blocks
            pieces = list(_pieces(plain, [block.text for block in blocks]))
        except _DAMAGED as error:
            reason = "password needed" if raw.startswith(b"\xd0\xcf\x11\xe0") else "damaged document"
            raise Unusable(reason, f"{type(error).__name__}: {error}") from error
        for reason, text in pieces:
            yield left_out(reason, identity=self.identity(name), source=name, text=text)
        if not blocks:
            raise Unusable("no text in the document")
        yield from self.documents(blocks, title, name)


_BODY = "word/document.xml"
_EQUATION = re.compile(rb"<m:oMath(?:\s[^<>]*)?>")
_PARAGRAPH_OF = re.compile(rb"</?m:oMathPara(?:\s[^<>]*)?>|<m:oMathParaPr(?:\s[^<>]*)?/>")
_SIGNS = ((b"<m:sup>", b"^"), (b"<m:sub>", b"_"), (b"</m:num>", b"/"), (b"<m:deg>", b"root "))
_ANY_TAG = re.compile(rb"<[^<>]*>")
_READING = re.compile(rb"<w:rt(?:\s[^<>]*)?>|</?w:(?:ruby|rubyBase)(?:\s[^<>]*)?>|<w:rubyPr(?:\s[^<>]*)?>")
_WORDS = re.compile(rb"<(?:w|a):t(?:\s[^<>]*)?>([^<]*)<")
_ELSEWHERE = {
    "word/header": "header of the page", "word/footer": "footer of the page", "word/comments": "comments",
    "word/diagrams/data": "words of a drawing", "word/charts/chart": "words of a chart",
}  # fmt: skip
_MISSED = 1000  # paragraphs that are looked for in the whole text


def _with_equations(raw: bytes) -> bytes:
    """The document with its equations as text, and with the base of words that have a reading: mammoth leaves both
    out. It is written anew only where it has such."""
    with zipfile.ZipFile(io.BytesIO(raw)) as members:
        body = members.read(_BODY) if _BODY in members.namelist() else b""
        if b"<m:oMath" not in body and b"<w:ruby" not in body:
            return raw
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as written:
            for one in members.infolist():
                if not one.filename.startswith("word/media/"):
                    data = _plain_body(body) if one.filename == _BODY else members.read(one.filename)
                    written.writestr(one.filename, data)
    return out.getvalue()


def _plain_body(body: bytes) -> bytes:
    pieces, at = [], 0
    body = _PARAGRAPH_OF.sub(b"", body)
    for start in _EQUATION.finditer(body):
        end = body.find(b"</m:oMath>", start.end())
        if start.start() < at or end < 0:
            continue
        inner = body[start.end() : end]
        for tag, sign in _SIGNS:
            inner = inner.replace(tag, sign)
        words = b"".join(_ANY_TAG.sub(b"", inner).split(b"\n"))
        pieces += [body[at : start.start()], b'<w:r><w:t xml:space="preserve">', words, b"</w:t></w:r>"]
        at = end + len(b"</m:oMath>")
    body = b"".join([*pieces, body[at:]])
    pieces, at = [], 0
    for reading in _READING.finditer(body):
        if reading.start() < at:
            continue
        pieces.append(body[at : reading.start()])
        at = reading.end()
        for name in (b"rt", b"rubyPr"):
            if reading[0].startswith(b"<w:" + name) and not reading[0].endswith(b"/>"):
                end = body.find(b"</w:" + name + b">", at)
                at = end + len(name) + 5 if end >= 0 else at
    return b"".join([*pieces, body[at:]])


def _pieces(raw: bytes, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What of a document is in none of these texts: (reason, text)."""
    keys = {_letters(text) for text in texts}
    whole = "".join(map(_letters, texts))
    missed = 0
    with zipfile.ZipFile(io.BytesIO(raw)) as members:
        for name in members.namelist():
            reason = next((words for start, words in _ELSEWHERE.items() if name.startswith(start)), "")
            if not name.endswith(".xml") or not (reason or name in (_BODY, "word/footnotes.xml", "word/endnotes.xml")):
                continue
            paragraphs = [
                html.unescape(b"".join(_WORDS.findall(part)).decode("utf-8", "replace"))
                for part in members.read(name).split(b"</w:p>")
            ]
            lost = [text for text in paragraphs if (key := _letters(text)) and key not in keys]
            if not reason:
                missed += len(lost)
                lost = [text for text in lost if missed <= _MISSED and _letters(text) not in whole]
            if lost:
                yield reason or "not understood by mammoth", "\n".join(dict.fromkeys(lost))


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text)


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

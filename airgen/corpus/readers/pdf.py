"""PDF files without running heads, page numbers and hyphenation, by PDFium: `reader: {kind: pdf, path: papers}`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, ClassVar

from airgen.corpus.readers.reader import drop
from airgen.corpus.readers.texts import FileReader, SectionSettings
from airgen.interruptible import interruptible
from airgen.records import Document, Dropped
from airgen.registry import load_extra

__all__ = ["PdfReader", "join_pages"]

_PAGE_NUMBER = re.compile(r"^\W*(?:page\s*)?(?:\d{1,4}|[ivxlc]{1,7})(?:\s*(?:/|of)\s*\d{1,4})?\W*$", re.IGNORECASE)
_HYPHEN = re.compile(r"(\w)[-\u2010\u00ad]\n\s*([^\W\d_])")


_MAX_BROKEN = 100  # damaged pages after which the file is one damaged PDF


class PdfReader(FileReader):
    """One document for each file (for the Long-Doc task) or page."""

    class Settings(SectionSettings):
        """`split`: file or pages. `max_bytes` limits the size of the file."""

        packages: ClassVar[tuple[str, ...]] = ("pypdfium2",)
        splits: ClassVar[tuple[str, ...]] = ("file", "pages")
        max_bytes: int = 256 * 1024 * 1024

    suffixes = (".pdf", ".pdf.gz")

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """The documents of one file. A page that cannot be read is dropped; so is a file that needs a password, is
        damaged, or has no text (scanned)."""
        pdfium = load_extra("pypdfium2", "reader 'pdf'")
        try:
            book = interruptible(lambda: pdfium.PdfDocument(raw))
        except pdfium.PdfiumError as error:
            locked = getattr(error, "err_code", 0) == pdfium.raw.FPDF_ERR_PASSWORD
            reason = "password needed" if locked else "damaged PDF"
            yield drop(reason, identity=name, detail=str(error)[:200], source=name)
            return
        identity = self.identity(name)
        with _closing(book):
            title = str(book.get_metadata_value("Title") or "")
            pages: list[str] = []
            left, broken = self.settings.max_bytes, set[int]()
            for number in range(1, len(book) + 1):
                try:
                    pages.append(_page_text_soon(book, number - 1, left))
                except pdfium.PdfiumError as error:
                    pages.append("")
                    broken.add(number)
                    where = {"identity": f"{identity}#page={number}", "source": name, "position": f"page {number}"}
                    yield drop("damaged page", detail=str(error)[:200], **where)
                left -= len(pages[-1])
                if left < 0 or len(broken) > _MAX_BROKEN:
                    detail = f"its pages have more than {self.settings.max_bytes} characters"
                    detail = detail if left < 0 else f"more than {_MAX_BROKEN} damaged pages"
                    yield drop("too large" if left < 0 else "damaged PDF", identity=name, detail=detail, source=name)
                    return
        if not any(page.strip() for page in pages):
            yield drop("no text in the PDF", identity=name, detail=f"{len(pages)} pages, scanned?", source=name)
            return
        common: dict[str, Any] = {"source": name, "licence": self.place.licence, "language": self.place.language}
        cleaned = join_pages(pages)
        if self.settings.split == "file":
            yield Document(identity, "\n".join(cleaned), title, **common)
            return
        for number, text in enumerate(cleaned, 1):
            if number not in broken:
                yield Document(f"{identity}#page={number}", text, title, position=f"page {number}", **common)


@contextmanager
def _closing(book: Any) -> Iterator[None]:
    """Close the book in the end; not after Ctrl-C, because PDFium may still be reading a page in another thread."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException:
        book.close()
        raise
    book.close()


def _page_text_soon(book: Any, index: int, most: int) -> str:
    """The same as `_page_text`, but Ctrl-C is heard meanwhile: PDFium may take long, and looks at no signals."""
    return interruptible(lambda: _page_text(book, index, most))


def _page_text(book: Any, index: int, most: int) -> str:
    """The text of one page, not much more than `most` characters of it. Raises pypdfium2.PdfiumError."""
    with closing(book[index]) as page, closing(page.get_textpage()) as text:
        found: str = text.get_text_range(0, min(text.count_chars(), most + 1))
    # PDFium writes U+FFFE for a hyphen at the end of a line, and takes the break away.
    return found.replace("\r\n", "\n").replace("\ufffe", "")


def join_pages(pages: list[str]) -> list[str]:
    """Pages without running heads, running feet and page numbers, with hyphenated words joined.

    A first or last line is running if it is on a third of at least four pages; digits may differ.
    """
    rows = [[row.strip() for row in page.split("\n") if row.strip()] for page in pages]
    edges: Counter[str] = Counter()
    for lines in rows:
        depth = _depth(lines)
        edges.update({_key(line) for line in {*lines[:depth], *lines[-depth:]}})
    often = {key for key, count in edges.items() if len(pages) >= 4 and count * 3 >= len(pages) and key}
    return [_HYPHEN.sub(r"\1\2", "\n".join(_trim(lines, often))) for lines in rows]


def _depth(lines: list[str]) -> int:
    """How many lines at each end of a page can be head or foot; fewer on a short page."""
    return 2 if len(lines) >= 8 else 1


def _trim(lines: list[str], running: set[str]) -> list[str]:
    for _ in range(_depth(lines)):
        for at in (0, -1):
            if lines and (_PAGE_NUMBER.match(lines[at]) or _key(lines[at]) in running):
                lines = lines[1:] if at == 0 else lines[:-1]
    return lines


def _key(line: str) -> str:
    return re.sub(r"\d+", "#", line.lower()).strip(" #") if len(line) < 120 else ""

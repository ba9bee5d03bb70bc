"""PDF files without running heads, page numbers and hyphenation: `reader: {kind: pdf, path: papers}`."""

from __future__ import annotations

import io
import logging
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from airgen.corpus.readers.reader import drop
from airgen.corpus.readers.texts import FileReader, SectionSettings
from airgen.records import Document, Dropped
from airgen.registry import load_extra

__all__ = ["PdfReader", "join_pages"]

_PAGE_NUMBER = re.compile(r"^\W*(?:page\s*)?(?:\d{1,4}|[ivxlc]{1,7})(?:\s*(?:/|of)\s*\d{1,4})?\W*$", re.IGNORECASE)
_HYPHEN = re.compile(r"(\w)[-\u2010\u00ad]\n\s*([^\W\d_])")


class PdfReader(FileReader):
    """One document for each file (for the Long-Doc task) or page."""

    class Settings(SectionSettings):
        """`split`: file or pages. `max_bytes` limits the size of the file."""

        packages: ClassVar[tuple[str, ...]] = ("pypdf",)
        splits: ClassVar[tuple[str, ...]] = ("file", "pages")
        max_bytes: int = 256 * 1024 * 1024

    suffixes = (".pdf",)

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """The documents of one file; one that needs a password, is damaged or has no text (scanned) is dropped."""
        pypdf = load_extra("pypdf", "reader 'pdf'")
        try:
            with _quiet():
                book = pypdf.PdfReader(io.BytesIO(raw))
                locked = book.is_encrypted and not book.decrypt("")
                title = "" if locked else str((book.metadata or {}).get("/Title") or "")
                pages: list[str] = []
                left = self.settings.max_bytes
                for page in [] if locked else book.pages:
                    pages.append(page.extract_text() or "")
                    left -= len(pages[-1])
                    if left < 0:
                        detail = f"its pages have more than {self.settings.max_bytes} characters"
                        yield drop("too large", identity=name, detail=detail, source=name)
                        return
        except (pypdf.errors.PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError,
                ZeroDivisionError, OverflowError, NotImplementedError, AssertionError) as error:  # fmt: skip
            needs = "needs the package cryptography" if "cryptography" in str(error) else "damaged PDF"
            yield drop(needs, identity=name, detail=f"{type(error).__name__}: {error}"[:200], source=name)
            return
        if locked:
            yield drop("password needed", identity=name, source=name)
            return
        if not any(page.strip() for page in pages):
            yield drop("no text in the PDF", identity=name, detail=f"{len(pages)} pages, scanned?", source=name)
            return
        common = {"source": name, "licence": self.place.licence, "language": self.place.language}
        identity = name.removesuffix(".pdf")
        cleaned = join_pages(pages)
        if self.settings.split == "file":
            yield Document(identity, "\n".join(cleaned), title, **common)
            return
        for number, text in enumerate(cleaned, 1):
            yield Document(f"{identity}#page={number}", text, title, position=f"page {number}", **common)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence pypdf, which logs a warning for every odd object, and restore its logger afterwards."""
    logger = logging.getLogger("pypdf")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


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

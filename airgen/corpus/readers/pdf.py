"""PDF files without running heads, page numbers and hyphenation, by PDFium: `reader: {kind: pdf, path: papers}`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, ClassVar

from airgen.corpus.readers import pdf_child
from airgen.corpus.readers.reader import Place, Unusable, drop
from airgen.corpus.readers.texts import FileReader, SectionSettings
from airgen.errors import CorpusError
from airgen.interruptible import interruptible
from airgen.records import Document, Dropped
from airgen.registry import load_extra

_PAGE_NUMBER = re.compile(r"^\W*(?:page\s*)?(?:\d{1,4}|[ivxlc]{1,7})(?:\s*(?:/|of)\s*\d{1,4})?\W*$", re.IGNORECASE)
_HYPHEN = re.compile(r"(\w)[-\u2010\u00ad]\n\s*([^\W\d_])")


class PdfReader(FileReader):
    """One document for each file (for the Long-Doc task) or page."""

    class Settings(SectionSettings):
        """`split`: file or pages. `max_bytes` limits the size of the file."""

        packages: ClassVar[tuple[str, ...]] = ("pypdfium2",)
        splits: ClassVar[tuple[str, ...]] = ("file", "pages")
        max_bytes: int = 256 * 1024 * 1024

    suffixes = (".pdf", ".pdf.gz")

    def __init__(self, settings: PdfReader.Settings, place: Place) -> None:
        super().__init__(settings, place)
        self._child: _Child | None = None

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """The documents of one file. A page that cannot be read is dropped. Raises Unusable for a file that needs a
        password, is damaged, has no text (scanned), or needs too much memory or time."""
        load_extra("pypdfium2", "reader 'pdf'")
        if self._child is None or not self._child.lives:
            self._child = _Child()
        identity = self.identity(name)
        title, pages, broken = "", list[str](), set[int]()
        for kind, words, *detail in self._child.ask(raw, self.settings.max_bytes):
            if kind == "title":
                title = words
            elif kind == "page":
                pages.append(words)
            elif kind == "damaged":
                pages.append("")
                broken.add(number := len(pages))
                where = {"identity": f"{identity}#page={number}", "source": name, "position": f"page {number}"}
                yield drop("damaged page", detail=words[:200], **where)
            elif words:
                raise Unusable(words, *detail)
        if not any(page.strip() for page in pages):
            raise Unusable("no text in the PDF", f"{len(pages)} pages, scanned?")
        cleaned = join_pages(pages)
        if self.settings.split == "file":
            yield self.document(name, "\n".join(cleaned), title)
            return
        for number, text in enumerate(cleaned, 1):
            if number not in broken:
                yield self.document(name, text, title, f"#page={number}", position=f"page {number}")


class _Child:
    """A process that reads PDF files, one after another; see `pdf_child`."""

    def __init__(self) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", pdf_child.__name__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
        )  # fmt: skip
        self._end = weakref.finalize(self, _end, self._process, self._said)

    @property
    def lives(self) -> bool:
        """Whether it can be asked."""
        return self._end.alive and self._process.poll() is None

    def ask(self, raw: bytes, most: int) -> Iterator[list[str]]:
        """The messages about one file; at last why it cannot be used, or "".

        A caller that does not read all of them ends the process.
        """
        ended, pages = False, 0
        try:
            interruptible(lambda: self._send(b"%d %d %d\n" % (len(raw), most, pdf_child.SECONDS) + raw), self._end)
            while (message := interruptible(lambda: _answer(self._process), self._end)) is not None:
                ended, pages = message[0] == "end", pages + 1
                yield message
                if ended:
                    return
            code = self._process.wait()
            if code > 0 and not pages:
                self._said.seek(0)
                lines = self._said.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
                raise CorpusError(f"the process that reads PDF files failed: {lines[-1] if lines else f'code {code}'}")
            yield ["end", *_why_it_died(code, max(pages, 1))]  # the title was said before the first page
        finally:
            if not ended:
                self._end()

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: reading will say so
            self._process.stdin.write(data)
            self._process.stdin.flush()


def _end(process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, said):
        if stream is not None:
            with suppress(OSError, ValueError):  # a pipe with what was not read
                stream.close()


def _answer(process: subprocess.Popen[bytes]) -> list[str] | None:
    """The next message; None at the end of the process."""
    assert process.stdout is not None
    line = process.stdout.readline()
    message: list[str] | None = json.loads(line) if line.endswith(b"\n") else None
    return message


def _why_it_died(code: int, page: int) -> tuple[str, str]:
    """What is wrong with a file over which the process ended by a signal: reason and detail."""
    if code < 0 and -code in (signal.SIGABRT, getattr(signal, "SIGKILL", 9)):  # PDFium aborts where it gets no memory
        return "too large", f"page {page} needs more than {pdf_child.MEMORY >> 20:,} MB of memory"
    if -code == getattr(signal, "SIGXCPU", 24):
        return "takes too long", f"page {page} is not read after {pdf_child.SECONDS} s of processor time"
    return "damaged PDF", f"PDFium ended its process (code {code}) at page {page}"


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

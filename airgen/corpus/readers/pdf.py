"""Read PDF files with PDFium, without running heads, page numbers and hyphenation: `reader: {kind: pdf, path:
papers}`."""

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

from airgen.components.registry import load_extra
from airgen.corpus.readers import pdf_child
from airgen.corpus.readers.reader import Place, Unusable, drop, left_out
from airgen.corpus.readers.sections import SectionSettings
from airgen.corpus.readers.text_files import FileReader
from airgen.errors import CorpusError
from airgen.safety.interruptible import interruptible
from airgen.storage.records import Document, Dropped

_PAGE_NUMBER = re.compile(r"^\W*(?:page\s*)?(?:\d{1,4}|[ivxlc]{1,7})(?:\s*(?:/|of)\s*\d{1,4})?\W*$", re.IGNORECASE)
_HYPHEN = re.compile(r"(?<!\w)(\w++)([-\u2010\u00ad])\n\s*+([^\W\d_]\w*+)")
_NO_TITLE = re.compile(r"\W*(?:untitled|anonymous|none|unknown|document|title|microsoft word.*)?\d*\W*", re.IGNORECASE)
_MADE = re.compile(r"\.(?:docx?|indd|tex|dvi|ps|odt|pptx?|qxd|rtf|fm|pdf)$", re.IGNORECASE)  # the name of a file


class PdfReader(FileReader):
    """Yields one document per file (for the Long-Doc task) or page."""

    class Settings(SectionSettings):
        """Settings of the PDF reader.

        Attributes:
            split: What becomes a document: the file or a page.
            max_bytes: Maximum size of a file.
        """

        packages: ClassVar[tuple[str, ...]] = ("pypdfium2",)
        splits: ClassVar[tuple[str, ...]] = ("file", "pages")
        max_bytes: int = 256 * 1024 * 1024

    version, packed = 4, True
    suffixes = (".pdf", ".pdf.gz")

    def __init__(self, settings: PdfReader.Settings, place: Place) -> None:
        super().__init__(settings, place)
        self._child: _Child | None = None

    def parse(self, raw: bytes, name: str) -> Iterator[Document | Dropped]:
        """Yield the documents of one file.

        A page that cannot be read is dropped. Raises Unusable if the file needs a password, is damaged, has no text (is
        scanned), or needs too much memory or time.
        """
        load_extra("pypdfium2", "reader 'pdf'")
        if self._child is None or not self._child.lives:
            self._child = _Child()
        identity = self.identity(name)
        title, pages, broken = "", list[str](), set[int]()
        fields, notes, whole = dict[int, list[str]](), dict[int, list[str]](), list[tuple[str, str]]()
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
            elif kind in ("field", "note"):
                (fields if kind == "field" else notes).setdefault(len(pages), []).append(words.strip())
            elif kind in ("outline", "file"):
                whole.append((kind, words))
            elif words:
                raise Unusable(words, *detail)
        for number, texts in notes.items():
            yield from self.pieces([("notes beside the text", "\n".join(texts))], name, f"page {number}")
        shown = _letters("\n".join(pages))
        for kind, words in whole:
            reason = "file inside the document" if kind == "file" else "outline"
            new = [line for line in words.split("\n") if kind == "file" or _letters(line) not in shown]
            yield from self.pieces([(reason, "\n".join(new))] if any(new) else [], name)
        if not any(page.strip() for page in pages) and not any(any(texts) for texts in fields.values()):
            raise Unusable("no text in the PDF", f"{len(pages)} pages, scanned?")
        cleaned, running = join_pages(pages)
        if running:
            where = {"identity": identity, "source": name}
            text = "\n".join(dict.fromkeys(running))
            yield left_out("running heads and page numbers", detail=f"{len(running):,} lines", text=text, **where)
        for number, texts in fields.items():
            cleaned[number - 1] = "\n".join(filter(None, (cleaned[number - 1], *texts)))
        title = "" if _NO_TITLE.fullmatch(title) or _MADE.search(title) else title
        if self.settings.split == "file":
            yield self.document(name, "\n".join(cleaned), title)
            return
        for number, text in enumerate(cleaned, 1):
            if number not in broken:
                yield self.document(name, text, title, f"#page={number}", position=f"page {number}")


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text)


class _Child:
    """A process that reads PDF files one by one; see `pdf_child`."""

    def __init__(self) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", pdf_child.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._end = weakref.finalize(self, _end, self._process, self._stderr)

    @property
    def lives(self) -> bool:
        """Return whether the process is alive."""
        return self._end.alive and self._process.poll() is None

    def ask(self, raw: bytes, most: int) -> Iterator[list[str]]:
        """Yield the messages about one file, followed by the reason why it cannot be used, or "".

        If the caller does not read all of them, the process is ended.
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
                self._stderr.seek(0)
                lines = self._stderr.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
                raise CorpusError(f"the process that reads PDF files failed: {lines[-1] if lines else f'code {code}'}")
            yield ["end", *_death_reason(code, max(pages, 1))]  # the title came before the first page
        finally:
            if not ended:
                self._end()

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which reading will report
            self._process.stdin.write(data)
            self._process.stdin.flush()


def _end(process: subprocess.Popen[bytes], stderr: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, stderr):
        if stream is not None:
            with suppress(OSError, ValueError):  # a pipe with unread data
                stream.close()


def _answer(process: subprocess.Popen[bytes]) -> list[str] | None:
    """Return the next message, or None at the end of the process."""
    assert process.stdout is not None
    line = process.stdout.readline()
    message: list[str] | None = json.loads(line) if line.endswith(b"\n") else None
    return message


def _death_reason(code: int, page: int) -> tuple[str, str]:
    """Return the reason and detail for a file that made a signal end the process."""
    if code < 0 and -code in (signal.SIGABRT, getattr(signal, "SIGKILL", 9)):  # PDFium aborts without memory
        return "too large", f"page {page} needs more than {pdf_child.MEMORY >> 20:,} MB of memory"
    if -code == getattr(signal, "SIGXCPU", 24):
        return "takes too long", f"page {page} was not read within {pdf_child.SECONDS} s of processor time"
    return "damaged PDF", f"PDFium ended its process (code {code}) at page {page}"


def join_pages(pages: list[str]) -> tuple[list[str], list[str]]:
    """Remove running heads, running feet and page numbers, and join hyphenated words. Returns the pages and the removed
    lines.

    A first or last line is a running head or foot if a third of at least four pages have it, ignoring the page number.
    Lines with other numbers, such as "Chapter 1" at the beginning of chapters, are headings. A line that is a number is
    a page number if such numbers grow with the pages.
    """
    rows = [[row.strip() for row in page.split("\n") if row.strip()] for page in pages]
    running = _running(rows) | _page_numbers(rows)
    joined = Counter(word.casefold() for lines in rows for line in lines for word in re.findall(r"\w+", line))
    compounds = Counter(
        word.casefold() for lines in rows for line in lines for word in re.findall(r"(?<!\w)\w++-\w++", line)
    )

    def join(match: re.Match[str]) -> str:
        first, mark, second = match.groups()
        if mark == "\u00ad" or not _is_compound(first, second, joined, compounds):
            return first + second
        return f"{first}-{second}"

    texts, removed = [], []
    for page, lines in enumerate(rows):
        body = [line for place, line in enumerate(lines) if (page, place) not in running]
        removed += [line for place, line in enumerate(lines) if (page, place) in running]
        texts.append(_HYPHEN.sub(join, "\n".join(body)))
    return texts, removed


_PREFIXES = frozenset((
    "self", "well", "long", "short", "high", "low", "e", "x", "non", "semi", "ex", "all", "half", "cross", "co",
    "pre", "post", "anti", "multi", "full", "part", "real", "user", "so", "up", "one", "two", "three", "first",
    "second",
))  # fmt: skip


def _is_compound(first: str, second: str, joined: Counter[str], compounds: Counter[str]) -> bool:
    """Return whether a hyphen at the end of a line belongs to the word, judging by the document's words or else by the
    parts.
    """
    whole, low = (first + second).casefold(), first.casefold()
    if compounds[f"{low}-{second.casefold()}"]:
        return True
    if joined[whole]:
        return False
    if second[:1].isupper() or first[-1:].isdigit():
        return True
    return low in _PREFIXES


Line = tuple[int, int]  # page, and place among its lines


def _ends(lines: list[str]) -> list[int]:
    """Return the positions of possible running heads and feet: two lines at each end, or fewer on a short page."""
    depth = 2 if len(lines) >= 8 else 1 if len(lines) > 1 else 0
    return sorted({*range(depth), *range(len(lines) - depth, len(lines))})


def _running(rows: list[list[str]]) -> set[Line]:
    """Return the first and last lines that many pages share."""
    if len(rows) < 4:
        return set()
    lines_by_key: dict[str, list[Line]] = {}
    for page, lines in enumerate(rows):
        for place in _ends(lines):
            if key := _key(lines[place]):
                lines_by_key.setdefault(key, []).append((page, place))
    often = [lines for lines in lines_by_key.values() if len({page for page, _ in lines}) * 3 >= len(rows)]
    return {
        line for lines in often if _is_running([(page, rows[page][place]) for page, place in lines]) for line in lines
    }


def _is_running(lines: list[tuple[int, str]]) -> bool:
    """Return whether lines that differ only in their numbers are running heads: they are equal, or count the pages."""
    texts = {text for _, text in lines}
    if len(texts) == 1:
        return True
    numbers = [[int(number[:9]) for number in re.findall(r"\d+", text)] for _, text in lines]
    if not all(numbers) or len({len(row) for row in numbers}) > 1:
        return len(texts) * 2 <= len(lines)
    for column in zip(*numbers, strict=True):
        offsets = Counter(number - page for (page, _), number in zip(lines, column, strict=True))
        steady = offsets.most_common(1)[0][1]
        if len(set(column)) == len(column) and steady * 2 >= len(lines):
            # Chapter heads on each page count too: a page's number appears on its own or next to other words.
            return not all(_HEADING.match(text) for text in texts)
    return len(texts) * 2 <= len(lines)  # the head of a chapter of several pages


_HEADING = re.compile(
    r"(?:chapter|section|part|appendix|lesson|unit|step|article|kapitel|chapitre|cap)\b", re.IGNORECASE
)


def _page_numbers(rows: list[list[str]]) -> set[Line]:
    """Return the lines with page numbers, which are at the ends of several pages and grow with them."""
    numbers: dict[Line, int | None] = {}
    for page, lines in enumerate(rows):
        for place in _ends(lines):
            if _PAGE_NUMBER.match(lines[place]):
                digits = re.search(r"\d+", lines[place])
                numbers[page, place] = int(digits[0]) if digits else None
    offsets = Counter(value - page for (page, _), value in numbers.items() if value is not None)
    usual, times = offsets.most_common(1)[0] if offsets else (0, 0)
    romans = {line for line, value in numbers.items() if value is None}
    counted = {line for line, value in numbers.items() if times > 1 and value is not None and value - line[0] == usual}
    labelled = {line for line in numbers if re.search(r"page|of|/", rows[line[0]][line[1]], re.IGNORECASE)}
    return counted | labelled | (romans if len(romans) > 1 else set())


def _key(line: str) -> str:
    return re.sub(r"\d+", "#", line.lower()).strip(" #") if len(line) < 120 else ""

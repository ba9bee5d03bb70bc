"""Extract the texts of a PDF's pages in a separate, limited process: `python -m airgen.corpus.readers.pdf_child`.

PDFium limits neither memory nor time: a page of an 11 kB file can take gigabytes, or days. If PDFium cannot allocate
memory, it ends its process; if a file uses up its processor time, the system ends the process.

Standard input has, for each file, a line `BYTES CHARACTERS SECONDS` followed by its bytes. Standard output has one JSON
value per line: `["title", TEXT]`; for each page, `["page", TEXT]` or `["damaged", ERROR]`, followed by `["field",
TEXT]` for form fields and text boxes, and `["note", TEXT]`; then `["outline", TEXT]` and `["file", NAME]` for the whole
file; and finally `["end", REASON, DETAIL]`, where the reason says why the file cannot be used, or is empty. A process
that writes no `end` ran out of memory or time, or crashed.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

from airgen.components.registry import load_extra

MEMORY = 1 << 30  # bytes of address space, in addition to the file itself
SECONDS = 300  # of processor time for one file
_MAX_DAMAGED_PAGES = 100  # after more failures, the whole file counts as damaged
_MAX_FILE_BYTES = 256 * 1024 * 1024
_MAX_ANNOTATIONS = 10_000  # maximum per page; also entries of the outline, and attached files
_MAX_FIELD_CHARACTERS = 1 << 20


def _limit_memory() -> None:
    try:
        import resource  # only on POSIX
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = MEMORY + _MAX_FILE_BYTES
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    except (ValueError, OSError):  # macOS may refuse it
        return


def _limit_time(seconds: int) -> None:
    """Limit the processor time of the process from now on. The system then ends it (SIGXCPU)."""
    try:
        import resource
    except ImportError:
        return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    wanted = int(usage.ru_utime + usage.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _messages(pdfium: Any, raw: bytes, most: int) -> Iterator[tuple[str, ...]]:
    """Yield the messages about one file."""
    try:
        book = pdfium.PdfDocument(raw)
    except pdfium.PdfiumError as error:
        locked = getattr(error, "err_code", 0) == pdfium.raw.FPDF_ERR_PASSWORD
        yield "end", "password needed" if locked else "damaged PDF", str(error)
        return
    with closing(book):
        yield "title", str(book.get_metadata_value("Title") or "")
        left, broken = most, 0
        forms = _forms(book)
        for index in range(len(book)):
            try:
                text = _page_text(book, index, left)
                left -= len(text)
                yield "page", text
                for kind, words in _beside(pdfium.raw, book, index, forms):
                    left -= len(words)
                    yield kind, words
            except pdfium.PdfiumError as error:
                broken += 1
                yield "damaged", str(error)
            if left < 0:
                yield "end", "too large", f"its pages have more than {most} characters"
                return
            if broken > _MAX_DAMAGED_PAGES:
                yield "end", "damaged PDF", f"more than {_MAX_DAMAGED_PAGES} damaged pages"
                return
        yield "outline", _outline(book)
        for number in range(min(book.count_attachments(), _MAX_ANNOTATIONS)):
            yield "file", book.get_attachment(number).get_name()
    yield "end", "", ""


def _forms(book: Any) -> Any:
    """Return the form environment, which knows the values of form fields, or None if there is no form."""
    if book.get_formtype() == 0:
        return None
    book.init_forms()
    return book.formenv


def _beside(raw: Any, book: Any, index: int, forms: Any) -> Iterator[tuple[str, str]]:
    """Yield the fields, text boxes and notes of a page, which are not part of its text."""
    with closing(book[index]) as page:
        for number in range(min(raw.FPDFPage_GetAnnotCount(page), _MAX_ANNOTATIONS)):
            annotation = raw.FPDFPage_GetAnnot(page, number)
            if not annotation:
                continue
            try:
                kind = raw.FPDFAnnot_GetSubtype(annotation)
                if kind == raw.FPDF_ANNOT_WIDGET:
                    yield "field", _field(raw, annotation, forms)
                elif kind not in (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP):
                    words = _wide(lambda *room, a=annotation: raw.FPDFAnnot_GetStringValue(a, b"Contents", *room))
                    yield "field" if kind == raw.FPDF_ANNOT_FREETEXT else "note", words
            finally:
                raw.FPDFPage_CloseAnnot(annotation)


def _field(raw: Any, annotation: Any, forms: Any) -> str:
    """Return the value of a text or choice field."""
    if forms is None:
        return _wide(lambda *room: raw.FPDFAnnot_GetStringValue(annotation, b"V", *room))
    texts = (raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX)
    if raw.FPDFAnnot_GetFormFieldType(forms, annotation) not in texts:
        return ""
    return _wide(lambda *room: raw.FPDFAnnot_GetFormFieldValue(forms, annotation, *room))


def _wide(ask: Callable[[Any, int], int]) -> str:
    """Return a UTF-16 text that PDFium writes to a buffer, after asking for its length."""
    size = min(ask(None, 0), 2 * _MAX_FIELD_CHARACTERS)
    if size <= 2:
        return ""
    room = ctypes.create_string_buffer(size + 2)
    ask(ctypes.cast(room, ctypes.POINTER(ctypes.c_ushort)), size)
    return room.raw[:size].decode("utf-16-le", "replace").rstrip("\0")


def _outline(book: Any) -> str:
    titles = (mark.get_title() for mark in islice(book.get_toc(), _MAX_ANNOTATIONS))
    return "\n".join(title for title in titles if title)


def _page_text(book: Any, index: int, most: int) -> str:
    """Return the text of one page, up to about `most` characters. Raises pypdfium2.PdfiumError."""
    with closing(book[index]) as page, closing(page.get_textpage()) as text:
        content: str = text.get_text_range(0, min(text.count_chars(), most + 1))
    # PDFium writes U+FFFE for a hyphen at the end of a line, and removes the break; `join_pages` decides what to do.
    return content.replace("\r\n", "\n").replace("\ufffe", "-\n")


def main() -> None:
    """Process files until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, and ends this process
    pdfium = load_extra("pypdfium2", "reader 'pdf'")
    _limit_memory()
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what a library prints is not an answer
    for header in iter(sys.stdin.buffer.readline, b""):
        size, most, seconds = map(int, header.split())
        _limit_time(seconds)
        for message in _messages(pdfium, sys.stdin.buffer.read(size), most):
            out.write(json.dumps(message) + "\n")
            out.flush()


if __name__ == "__main__":
    main()

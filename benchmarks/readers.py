"""Compare our readers with common libraries on real files: kept words and damaged text.

    python benchmarks/readers.py FOLDER [--each 20] [--markdown table.md]

FOLDER has files of HTML, DOCX, EPUB and PDF below it (for the note: Debian's documentation packages, and the tests of
PyPI's source packages). Of each kind `--each` files are taken, evenly from all folders. A library that is not installed
is left out: run it in an environment that has trafilatura, markitdown, python-docx, pymupdf, pdfplumber and docling.

A simple reference says which words a file has: for HTML all text of the body without scripts and styles, for DOCX all
`w:t` outside of deleted text, for EPUB the same as HTML over the spine, for PDF the words that both PDFium and Poppler
(`pdftotext`) or, without it, PDFium alone finds. Figures, each a median over the files:

- kept: words of the reference that the reader's text has, counted with their frequency
- glued: words of the reader's text that the reference lacks and that are two of its words joined, per 1,000 words
- order: pairs of neighbouring words of the reference that are still neighbours, of those with both words kept
- ms: per file, without the start of the library

For our readers, `with pieces` counts what they name as left out, too.
"""

import argparse
import io
import itertools
import logging
import re
import statistics
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from airgen.components.registry import resolve
from airgen.corpus.readers.files import opened
from airgen.corpus.readers.reader import Place
from airgen.corpus.requirements import read_documents
from airgen.storage.records import Document

ENDINGS = {"html": (".html", ".htm"), "docx": (".docx",), "epub": (".epub",), "pdf": (".pdf", ".pdf.gz")}
WORD = re.compile(r"\w+")
MOST = 1 << 20  # bytes of a file

Read = Callable[[Path], str]


def airgen(kind: str, pieces: bool) -> Read:
    """Read with our reader: the text of its documents, and optionally of the pieces left out."""

    def read(path: Path) -> str:
        reader = resolve("reader", kind)
        rows = list(read_documents(reader(reader.Settings(path=path.name), Place(path.parent, language="en"))))
        texts = [row.text for row in rows if isinstance(row, Document)]
        return "\n\n".join(texts + ([row.text for row in rows if not isinstance(row, Document)] if pieces else []))

    return read


def unpacked(path: Path) -> bytes:
    with opened(path) as stream:
        return stream.read()


def trafilatura(path: Path) -> str:
    import trafilatura

    return trafilatura.extract(unpacked(path), favor_recall=True, include_tables=True) or ""


def markitdown(path: Path) -> str:
    from markitdown import MarkItDown

    ending = "".join(path.suffixes[-2:]).removesuffix(".gz")[-5:]
    return plain_markdown(MarkItDown().convert_stream(io.BytesIO(unpacked(path)), file_extension=ending).text_content)


def plain_markdown(text: str) -> str:
    from airgen.corpus.readers.markdown import markdown_page

    return markdown_page(text).text


def python_docx(path: Path) -> str:
    import docx

    def texts(parent) -> Iterator[str]:  # type: ignore[no-untyped-def]
        for item in parent.iter_inner_content():
            if hasattr(item, "rows"):
                for row in item.rows:
                    yield " | ".join("\n".join(texts(cell)) for cell in row.cells)
            else:
                yield item.text

    return "\n".join(texts(docx.Document(str(path))))


def pymupdf(path: Path) -> str:
    import pymupdf

    with pymupdf.open(stream=unpacked(path), filetype="pdf") as book:
        return "\n".join(page.get_text() for page in book)


def pdfplumber(path: Path) -> str:
    import pdfplumber

    with pdfplumber.open(io.BytesIO(unpacked(path))) as book:
        return "\n".join(page.extract_text() or "" for page in book.pages)


def pypdf(path: Path) -> str:
    import pypdf

    return "\n".join(page.extract_text() or "" for page in pypdf.PdfReader(io.BytesIO(unpacked(path))).pages)


def docx2python(path: Path) -> str:
    from docx2python import docx2python as opened_document

    with opened_document(str(path)) as document:
        return document.text


def docling(path: Path) -> str:
    from docling.document_converter import DocumentConverter

    return plain_markdown(DocumentConverter().convert(path).document.export_to_markdown())


READERS: dict[str, dict[str, Read]] = {
    "html": {"trafilatura": trafilatura, "markitdown": markitdown, "docling": docling},
    "docx": {"python-docx": python_docx, "docx2python": docx2python, "markitdown": markitdown, "docling": docling},
    "epub": {"markitdown": markitdown},
    "pdf": {"pymupdf": pymupdf, "pdfplumber": pdfplumber, "pypdf": pypdf, "markitdown": markitdown},
}


def html_words(raw: bytes) -> str:
    """Return all text that a browser would show, in order."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(raw.decode("utf-8", "replace"))
    for node in tree.css("script, style, head, template"):
        node.decompose()
    return tree.body.text(separator=" ") if tree.body is not None else ""


def docx_words(path: Path) -> str:
    space = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
    with zipfile.ZipFile(path) as members:
        root = ElementTree.fromstring(members.read("word/document.xml"))
    for parent in [*root.iter()]:  # a shape of Word has its text a second time, for programs that know no shapes
        for child in [one for one in parent if one.tag.endswith("}Fallback")]:
            parent.remove(child)
    signs = {f"{space}p": "\n", f"{space}tab": " ", f"{space}br": " "}
    return "".join((one.text or "") if one.tag == f"{space}t" else signs.get(one.tag, "") for one in root.iter())


def epub_words(path: Path) -> str:
    with zipfile.ZipFile(path) as members:
        names = [name for name in members.namelist() if name.endswith((".xhtml", ".html", ".htm"))]
        return " ".join(html_words(members.read(name)) for name in names)


def pdf_words(path: Path) -> str:
    """Return the words from Poppler if it is installed, and otherwise from PDFium."""
    try:
        found = subprocess.run(["pdftotext", "-", "-"], input=unpacked(path), capture_output=True, check=True)
        return found.stdout.decode("utf-8", "replace")
    except (OSError, subprocess.CalledProcessError):
        import pypdfium2

        book = pypdfium2.PdfDocument(unpacked(path))
        return "\n".join(page.get_textpage().get_text_range() for page in book)


REFERENCE: dict[str, Callable[[Path], str]] = {
    "html": lambda path: html_words(unpacked(path)), "docx": docx_words, "epub": epub_words, "pdf": pdf_words,
}  # fmt: skip


def score(reference: list[str], found: list[str]) -> tuple[float, float, float]:
    """Return Return (kept, glued per 1,000 words, order)."""
    wanted, got = Counter(reference), Counter(found)
    kept = (wanted & got).total() / max(wanted.total(), 1)
    joined = {a + b for a, b in itertools.pairwise(reference)}
    glued = sum(count for word, count in (got - wanted).items() if word not in wanted and word in joined)
    both = [(a, b) for a, b in itertools.pairwise(reference) if a in got and b in got]
    pairs = Counter(itertools.pairwise(found))
    order = (Counter(both) & pairs).total() / max(len(both), 1)
    return kept, 1000 * glued / max(len(found), 1), order


def chosen(folder: Path, kind: str, each: int) -> list[Path]:
    """Choose files of a kind with enough words, evenly from all folders."""
    folders: dict[Path, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        if path.name.lower().endswith(ENDINGS[kind]) and 200 < path.stat().st_size < MOST:
            folders.setdefault(path.parent, []).append(path)
    found: list[Path] = []
    seen: set[tuple[str, int]] = set()
    while len(found) < each and any(folders.values()):
        for paths in folders.values():
            if paths and len(found) < each:
                path = paths.pop(len(paths) // 2)
                if (copy := (path.name, path.stat().st_size)) in seen:
                    continue
                seen.add(copy)
                try:
                    enough = len(WORD.findall(REFERENCE[kind](path))) >= 20
                except Exception:  # noqa: BLE001  # a damaged file of a test
                    enough = False
                found += [path] if enough else []
    return found


def measure(kind: str, paths: list[Path]) -> Iterator[list[str]]:
    """Return a row for each reader of the kind."""
    readers = {"airgen": airgen(kind, False), "airgen, with pieces": airgen(kind, True), **READERS[kind]}
    references = {path: [word.casefold() for word in WORD.findall(REFERENCE[kind](path))] for path in paths}
    for name, read in readers.items():
        rows, failed, spent = [], 0, []
        try:
            read(paths[0])
        except ImportError:
            continue
        except Exception:  # noqa: BLE001  # counted below
            pass
        for path in paths:
            began = time.process_time()
            try:
                words = [word.casefold() for word in WORD.findall(read(path))]
            except Exception as error:  # noqa: BLE001  # what a foreign reader raises is a file that it cannot read
                print(f"{name}: {path.name}: {type(error).__name__}", file=sys.stderr)
                words, failed = [], failed + 1
            spent.append(1000 * (time.process_time() - began))
            rows.append(score(references[path], words))
        kept, glued, order = (list(column) for column in zip(*rows, strict=True))
        yield [
            kind, name, str(len(paths)), str(failed), f"{statistics.mean(kept):.1%}", f"{min(kept):.0%}",
            f"{statistics.mean(glued):.2f}", f"{statistics.mean(order):.1%}", f"{statistics.median(spent):.0f}",
        ]  # fmt: skip


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--kinds", nargs="*", default=list(ENDINGS))
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--list", action="store_true", help="the files only")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    head = ["kind", "reader", "files", "failed", "words kept", "least", "glued", "order", "ms"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for kind in options.kinds:
        paths = chosen(options.folder, kind, options.each)
        if options.list:
            print("\n".join(map(str, paths)))
        elif paths:
            for row in measure(kind, paths):
                lines.append("| " + " | ".join(row) + " |")
                print(lines[-1], flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

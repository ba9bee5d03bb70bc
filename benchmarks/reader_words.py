"""Words that each reader loses, against what another program takes from the same file.

    apt-get download sqlite3-doc debian-handbook nodejs-doc git-doc gnuplot-doc zsh-doc manpages   # and dpkg-deb -x
    python benchmarks/reader_words.py FOLDER [--files 20]

For each format up to `--files` files below FOLDER are read, drawn by a seed. A word is lost if the reader's text holds
it less often than the reference does. References: for Markdown, the page that markdown-it-py renders, as a browser's
text; for HTML, all text of the page but scripts and styles, so menus count as lost words (the last column has those of
lines that stand on a third of the files); for PDF, `pdftotext`, or pypdf without it; for manual pages, `man`.
"""

from __future__ import annotations

import argparse
import gzip
import io
import random
import re
import shutil
import subprocess
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from airgen.corpus.readers.html import HtmlReader
from airgen.corpus.readers.man import ManReader
from airgen.corpus.readers.markdown import MarkdownReader
from airgen.corpus.readers.pdf import PdfReader
from airgen.corpus.readers.reader import Place
from airgen.records import Document, Dropped

WORD = re.compile(r"\w+")


def content(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def rendered_html(raw: bytes) -> str:
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(raw.decode("utf-8", "replace"))
    for node in tree.css("script, style, template, noscript, head"):
        node.decompose()
    return tree.body.text(separator=" ") if tree.body else ""


def rendered_markdown(raw: bytes) -> str:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.footnote import footnote_plugin

    parser = MarkdownIt("commonmark", {"maxNesting": 100}).enable(["table", "strikethrough"]).use(footnote_plugin)
    return rendered_html(parser.render(raw.decode("utf-8", "replace")).encode())


def printed_pdf(raw: bytes) -> str:
    if shutil.which("pdftotext"):
        done = subprocess.run(["pdftotext", "-", "-"], input=raw, capture_output=True, check=False)
        return done.stdout.decode("utf-8", "replace")
    import pypdf

    try:
        return "\n".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(raw)).pages)
    except (pypdf.errors.PyPdfError, ValueError, KeyError, TypeError, AttributeError):
        return ""


def printed_man(raw: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".1") as file:
        file.write(raw)
        file.flush()
        done = subprocess.run(
            ["man", "--nh", "--nj", "-E", "UTF-8", "-P", "cat", "-l", file.name], capture_output=True, check=False
        )
    return re.sub(r".\x08", "", done.stdout.decode("utf-8", "replace"))


FORMATS: dict[str, tuple[type, dict[str, str], str, Callable[[bytes], str]]] = {
    "markdown": (MarkdownReader, {}, r"\.md(\.gz)?$", rendered_markdown),
    "html, page": (HtmlReader, {"extract": "page"}, r"\.html(\.gz)?$", rendered_html),
    "html, main": (HtmlReader, {"extract": "main"}, r"\.html(\.gz)?$", rendered_html),
    "html, trafilatura": (HtmlReader, {"extract": "trafilatura"}, r"\.html(\.gz)?$", rendered_html),
    "pdf": (PdfReader, {}, r"\.pdf(\.gz)?$", printed_pdf),
    "man": (ManReader, {}, r"/man\d/.*\.\d(\.gz)?$", printed_man),
}


def read(reader: type, settings: dict[str, str], path: Path) -> str | None:
    """The reader's text; None for a file that is dropped with its reason, such as one that only names another."""
    made = reader(reader.Settings.model_validate({"path": path.name, **settings}), Place(path.parent, language="en"))
    rows = list(made.read())
    if all(isinstance(row, Dropped) for row in rows):
        return None
    return "\n".join(f"{row.title}\n{row.text}" for row in rows if isinstance(row, Document))


def often(texts: list[str]) -> set[str]:
    lines = Counter(line for text in texts for line in {one.strip() for one in text.split("\n")} if line)
    return {line for line, count in lines.items() if count >= max(4, len(texts) / 3)}


def words(texts: Iterable[str]) -> int:
    return sum(len(WORD.findall(text)) for text in texts)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--files", type=int, default=20)
    given = options.parse_args()
    warnings.simplefilter("ignore")
    every = sorted(path for path in given.folder.rglob("*") if path.is_file() and not path.is_symlink())
    print("| reader | package | files | words | lost | lost, of repeated lines |\n|---|---|---|---|---|---|")
    for name, (reader, settings, pattern, reference) in FORMATS.items():
        groups: dict[str, list[Path]] = {}
        for path in every:
            if re.search(pattern, path.as_posix()) and path.stat().st_size < 2_000_000:
                groups.setdefault(path.relative_to(given.folder).parts[0], []).append(path)
        for package, paths in groups.items():
            chosen = sorted(random.Random(7).sample(paths, min(given.files, len(paths))))
            wanted, got = [], []
            for path in chosen:
                text = reference(content(path))
                found = read(reader, settings, path)
                if text.strip() and found is not None:
                    wanted.append(text)
                    got.append(found)
            furniture = often(wanted)
            total = lost = repeated = 0
            for text, found in zip(wanted, got, strict=True):
                own = Counter(WORD.findall(text))
                missing = own - Counter(WORD.findall(found))
                lines = Counter(WORD.findall(" ".join(line for line in text.split("\n") if line.strip() in furniture)))
                total, lost = total + own.total(), lost + missing.total()
                repeated += (missing & lines).total()
            if total:
                print(
                    f"| {name} | {package} | {len(wanted)} | {total:,} | {lost / total:.1%} | {repeated / total:.1%} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()

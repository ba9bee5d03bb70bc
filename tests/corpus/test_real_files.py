"""Readers on documentation that this machine has: Debian's HTML and manual pages, files that packages ship."""

import re
from collections import Counter
from pathlib import Path

import pytest

from airgen.corpus.readers.html import REMOVE, HtmlReader
from airgen.corpus.readers.reader import Place
from airgen.records import Document, Dropped

WORD = re.compile(r"\w+")


def some(folder: str, pattern: str, most: int = 12) -> list[Path]:
    """Files of this machine, evenly spread; skips where there is none."""
    found = sorted(path for path in Path(folder).glob(pattern) if path.is_file() and path.stat().st_size < 300_000)
    if not found:
        pytest.skip(f"no {pattern} in {folder}")
    return found[:: max(1, len(found) // most)][:most]


def read(reader: type, path: Path, **settings: object) -> list[Document | Dropped]:
    made = reader.Settings.model_validate({"path": path.name, **settings})  # type: ignore[attr-defined]
    return list(reader(made, Place(path.parent, language="en")).read())


def test_pages_lose_no_word_but_navigation() -> None:
    lexbor = pytest.importorskip("selectolax.lexbor")
    wanted, got = Counter[str](), Counter[str]()
    for path in some("/usr/share/doc", "*/**/*.html"):
        tree = lexbor.LexborHTMLParser(path.read_text("utf-8", "replace"))
        for node in tree.css(", ".join(REMOVE)):
            if node.tag not in ("body", "html"):
                node.decompose()
        root = tree.css_first("main") or tree.body
        wanted.update(WORD.findall(root.text(separator=" ")))
        for row in read(HtmlReader, path, extract="page"):
            got.update(WORD.findall(f"{row.text}"))
    assert (wanted - got).total() <= 0.01 * wanted.total()

"""Readers on documentation that this machine has: Debian's HTML and manual pages, files that packages ship."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airgen.corpus.readers.html import html_page
from airgen.corpus.readers.reader import Place
from airgen.storage.records import Document, Dropped

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


@pytest.mark.parametrize("extract", ["page", "main"])
def test_pages_lose_no_word(extract: Any) -> None:
    lexbor = pytest.importorskip("selectolax.lexbor")
    wanted, got = Counter[str](), Counter[str]()
    for path in some("/usr/share/doc", "*/**/*.html"):
        text = path.read_text("utf-8", "replace")
        tree = lexbor.LexborHTMLParser(text)
        for node in tree.css("script, style, template, head"):
            node.decompose()
        wanted.update(WORD.findall(tree.body.text(separator=" ")))
        page = html_page(text, extract=extract)
        for piece in (*(block.text for block in page.blocks), *(words for _, words in page.left)):
            got.update(WORD.findall(piece))
    assert (wanted - got).total() <= 0.01 * wanted.total()

"""Word documents, PDF pages and front matter: what their libraries leave out is text, or a piece with its reason."""

from pathlib import Path
from typing import Any

import pytest
from office_maker import WORD_ROOT, run, word

from airgen.corpus.readers.light_markup import without_navigation
from airgen.corpus.readers.markdown import markdown_blocks
from airgen.corpus.readers.pdf import join_pages
from airgen.corpus.readers.reader import Place
from airgen.corpus.readers.sections import Page
from airgen.corpus.readers.text_files import rst_blocks
from airgen.corpus.readers.word_and_epub import DocxReader
from airgen.storage.records import Document, Dropped


def read(raw: bytes, folder: Path) -> tuple[str, dict[str, str]]:
    (folder / "a.docx").write_bytes(raw)
    rows: list[Any] = list(DocxReader(DocxReader.Settings(path="a.docx"), Place(folder)).read())
    texts = [row.text for row in rows if isinstance(row, Document)]
    return "\n".join(texts), {row.reason: row.text for row in rows if isinstance(row, Dropped)}


def test_equations_readings_and_what_mammoth_leaves_out(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    square = "<m:sSup><m:e><m:r><m:t>c</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup>"
    body = (
        f"<w:p>{run('So ')}<m:oMathPara><m:oMath><m:r><m:t>E=m</m:t></m:r>{square}</m:oMath></m:oMathPara>"
        f"{run(' holds.')}</w:p><w:p><w:ruby><w:rubyPr><w:x/></w:rubyPr><w:rt>{run('reading')}</w:rt>"
        f"<w:rubyBase>{run('base')}</w:rubyBase></w:ruby></w:p>"
        f"<w:p><w:unknownThing>{run('Inside the unknown')}</w:unknownThing></w:p>"
        f"<w:tbl><w:tr><w:tc><w:p>{run('Part')}</w:p></w:tc><w:tc><w:p>{run('Price')}</w:p></w:tc></w:tr></w:tbl>"
    )
    said = {"hdr": "At the top", "ftr": "At the bottom", "comments": "Said aside"}
    parts = {name: f"<w:{name} {WORD_ROOT}><w:p>{run(words)}</w:p></w:{name}>" for name, words in said.items()}
    text, pieces = read(word(body, parts), tmp_path)
    assert "So E=mc^2 holds." in text and "base" in text and "Part | Price" in text
    assert "Inside the unknown" in text
    assert pieces == {
        "pronunciation of a word (ruby)": "reading", "header of the page": "At the top",
        "footer of the page": "At the bottom", "comments": "Said aside",
    }  # fmt: skip


LINES = ["Each day has a line that no other page has,", "and a second one that says more of it.", "A third ends."]


def pages(*heads: str, feet: tuple[str, ...] = ()) -> list[str]:
    return [
        "\n".join([head, *(f"{line} {place * 7 + 3}x" for line in LINES), *feet[place : place + 1]])
        for place, head in enumerate(heads)
    ]


@pytest.mark.parametrize(
    ("heads", "feet", "gone"),
    [
        (tuple(f"Chapter {n}" for n in range(1, 7)), (), 0),
        (("The old harbour",) * 6, (), 6),
        (tuple(f"The old harbour {n}" for n in range(12, 18)), (), 6),
        (("Head of it",) * 6, tuple(str(n) for n in range(40, 46)), 12),
        (("a", "b"), ("in the year", "1999"), 0),
        (("1999",), (), 0),
        (tuple(f"{n} lamps were sold" for n in (3, 90, 14, 7, 51, 22)), (), 0),
    ],
)
def test_heads_run_and_headings_stay(heads: tuple[str, ...], feet: tuple[str, ...], gone: int) -> None:
    texts, taken = join_pages(pages(*heads, feet=feet))
    assert len(taken) == gone and len(texts) == len(heads)
    for line in (*heads, *feet):
        assert (line in "\n".join(texts).split("\n")) == (line not in taken)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a long-\nterm plan", "a long-term plan"), ("we re-\npaired it; repaired", "we repaired it; repaired"),
        ("the well-\nknown and well-known", "the well-known and well-known"), ("an e-\nmail", "an e-mail"),
        ("har-\nbour lamps", "harbour lamps"), ("soft\u00ad\nened", "softened"), ("Anglo-\nSaxon", "Anglo-Saxon"),
    ],
)  # fmt: skip
def test_hyphens_of_lines_and_of_words(page: str, text: str) -> None:
    assert join_pages([page])[0] == [text]


@pytest.mark.parametrize(
    ("text", "title", "blocks"),
    [
        ("---\ntitle: >-\n  How boats\n  float\n---\nBody.", "How boats float", ["Body."]),
        ("---\ntitle: 'It''s here' # a note\ntags: [a]\n---  \nBody.", "It's here", ["Body."]),
        ("---\ntitle: Ports: a list\n---\nBody.", "Ports: a list", ["Body."]), ("---\ntitle: no\n---\nx", "no", ["x"]),
        ("+++\ntitle = \"Quay\"\n+++\nBody.", "Quay", ["Body."]), ("\ufeff---\ntitle: Mark\n---\nx", "Mark", ["x"]),
        ("---\na: &x [1]\nb: [*x, *x]\ntitle: Alias\n---\nx", "Alias", ["x"]), ("---\n---\nx", "", ["x"]),
        ("---\nWords between two rules.\n---\nMore words.", "", ["Words between two rules.", "More words."]),
        ("---\n\nWords after one rule.", "", ["Words after one rule."]),
    ],
)  # fmt: skip
def test_front_matter_is_what_yaml_reads(text: str, title: str, blocks: list[str]) -> None:
    found = markdown_blocks(text)
    assert found[0] == title and [block.text for block in found[1]] == blocks


def test_navigation_of_restructured_text_is_left_out_and_counted() -> None:
    text = ".. _boats:\n.. _ships: https://example.com/ships\n\nBoats\n=====\n\n.. currentmodule:: boats\n\n"
    text += ".. note:: It floats.\n\n.. toctree::\n   :maxdepth: 2\n\n   sails\n   ropes\n\nSee _ropes: they hold.\n\n"
    text += ".. code-block:: python\n\n   hoist()\n"
    page = without_navigation(Page(*rst_blocks(text)))
    assert [block.text for block in page.blocks] == [
        "Boats", ".. note:: It floats.", "See _ropes: they hold.", ".. code-block:: python", "   hoist()",
    ]  # fmt: skip
    assert dict(page.left) == {
        "target of a link": ".. _boats:\n.. _ships: https://example.com/ships",
        "directive of reStructuredText":
            ".. currentmodule:: boats\n\n.. toctree::\n   :maxdepth: 2\n\n   sails\n   ropes",
    }  # fmt: skip


def test_headings_of_restructured_text() -> None:
    text = "=====\nBoats\n=====\n\nA boat floats.\n\nSails\n-----\nA sail::\n\n    hoist()\n\n"
    text += "+---+\n| a |\n+---+\n\nRopes\n-----\n\nEnd.\n"
    title, blocks = rst_blocks(text)
    assert title == "Boats" and [(block.level, block.text) for block in blocks] == [
        (1, "Boats"), (0, "A boat floats."), (2, "Sails"), (0, "A sail::"), (0, "    hoist()"),
        (0, "+---+\n| a |\n+---+"), (2, "Ropes"), (0, "End."),
    ]  # fmt: skip

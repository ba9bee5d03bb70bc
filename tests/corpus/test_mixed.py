"""One corpus of files of several kinds: each file is read as its own reader reads it, and nothing is lost between."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from airgen.corpus.readers import html
from airgen.corpus.readers.html import HtmlReader
from airgen.corpus.readers.mixed import FilesReader
from airgen.corpus.readers.reader import Place
from airgen.corpus.requirements import missing, open_reader, source_digest
from airgen.corpus.settings import CorpusSettings
from airgen.errors import CorpusError
from airgen.storage.records import Document, Dropped

WORDS = "The warden lights the lamps of the old harbour at dusk."


def corpus(folder: Path, **reader: Any) -> CorpusSettings:
    values = {"kind": "files", "path": "docs", **reader}
    about = {"name": "c", "language": "en", "domain": "d", "licence": "CC0-1.0", "source": "s", "reader": values}
    return CorpusSettings.model_validate(about, context={"folder": folder})


def read(folder: Path, **reader: Any) -> list[Document | Dropped]:
    return list(open_reader(corpus(folder, **reader)).read())


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A folder as people have them."""
    docs = tmp_path / "docs"
    for name in ("a", "b", "tables"):
        (docs / name).mkdir(parents=True)
    (docs / "a" / "index.md").write_text(f"# Lamps\n\n{WORDS} In `a`.")
    (docs / "b" / "index.md").write_text(f"# Boats\n\n{WORDS} In `b`.")
    (docs / "b" / "index.html").write_text(f"<title>Ropes</title><p>{WORDS}</p>")
    (docs / "note.txt").write_bytes(f"{WORDS} Caf\xe9 na\xefve \x96 d\xe9j\xe0 vu.".encode("latin-1"))
    (docs / "tables" / "first.csv").write_text(f"Nr;Body\n1;{WORDS}\n2;Another {WORDS}\n")
    (docs / "tables" / "second.csv").write_text(f"id,name,text\n1,Boat,{WORDS}\n")
    (docs / "tables" / "figures.csv").write_text("year,count\n1990,7\n")
    (docs / "logo.png").write_bytes(b"\x89PNG")
    return docs


TABLES = [
    {"kind": "csv", "only": "tables/first.csv", "fields": {"id": "Nr", "title": None, "text": "Body"}},
    {"kind": "csv", "only": ["tables/sec*.csv"], "fields": {"id": "id", "title": "name"}},
]


def test_each_file_goes_to_the_reader_of_its_ending(docs: Path) -> None:
    rows = read(docs.parent, readers=["markdown", "html", "text", *TABLES])
    found = {row.id: row for row in rows if isinstance(row, Document)}
    assert list(found) == [
        "docs/a/index", "docs/b/index.html", "docs/b/index.md", "docs/note", "docs/tables/first#1",
        "docs/tables/first#2", "docs/tables/second#1",
    ]  # fmt: skip
    assert found["docs/b/index.html"].title == "Ropes" and "na\xefve \u2013 d\xe9j\xe0" in found["docs/note"].text
    second = found["docs/tables/second#1"]
    assert (second.title, second.text, second.source) == ("Boat", WORDS, "docs/tables/second.csv")
    dropped = [(row.source, row.reason) for row in rows if isinstance(row, Dropped)]
    assert dropped == [("docs/tables/figures.csv", "no reader for this file")]  # the picture is no text at all
    alone = HtmlReader(HtmlReader.Settings(path="docs", extract="page"), Place(docs.parent, "s", "CC0-1.0", "en"))
    assert list(alone.read()) == read(docs.parent, readers=[{"kind": "html", "extract": "page"}])
    rows = read(docs.parent, max_bytes=40, readers=["markdown", {"kind": "text", "max_bytes": 1000}])
    assert [row.reason for row in rows if isinstance(row, Dropped) and row.source] == ["too large"] * 2  # of its own
    assert [row.id for row in rows if isinstance(row, Document)] == ["docs/note"]
    with pytest.raises(CorpusError, match=r"`kind: files` reads several kinds"):
        read(docs.parent, kind="epub")


def test_without_a_list_texts_are_read_and_tables_are_not(docs: Path) -> None:
    pytest.importorskip("mammoth")
    with zipfile.ZipFile(docs / "policy.docx", "w") as word:
        body = f"<w:p><w:r><w:t>{WORDS}</w:t></w:r></w:p>"
        space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
        word.writestr("word/document.xml", f"<w:document {space}><w:body>{body}</w:body></w:document>")
    found = [row.id for row in read(docs.parent) if isinstance(row, Document)]
    assert found == ["docs/a/index", "docs/b/index.html", "docs/b/index.md", "docs/note", "docs/policy"]


def test_the_digest_follows_each_reader(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = corpus(docs.parent, readers=["html", "markdown"])
    before = source_digest(settings)
    assert source_digest(corpus(docs.parent, readers=["markdown"])) != before
    monkeypatch.setattr(html.HtmlReader, "version", 99)
    assert source_digest(settings) != before
    monkeypatch.undo()
    (docs / "a" / "index.md").write_text("# Other\n")
    assert source_digest(settings) != before


def test_check_lists_the_packages_of_every_reader(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    away = {"pypdfium2", "mammoth"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in away else find(name, *rest))
    lines = missing(corpus(docs.parent, readers=["pdf", "docx", "markdown"]), "qa")
    assert len(lines) == 2 and all("airgen-bench[corpus]" in line for line in lines)


@pytest.mark.parametrize(
    ("readers", "words"),
    [
        (["markdwon"], "did you mean 'markdown'"),
        (["datasets"], "'datasets' is not a reader that recognises files by their extension"),
        (["files"], "'files' is not a reader that recognises"),
        ([{"kind": "html", "splitt": "file"}], r"readers\.0: splitt: .*did you mean 'split'"),
        ([{"kind": "html", "path": "x"}], r"html: give `path` once"),
        ([{"kind": "csv", "only": 3}], "`only` must be a pattern or a list of patterns"),
        ([7], "the name of a reader, or a mapping"),
        ([], "at least 1"),
    ],
)
def test_a_wrong_list_is_refused_with_its_place(readers: list[Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        FilesReader.Settings(path="docs", readers=tuple(readers))


def test_the_ids_of_two_tables_do_not_collide_and_patterns_are_below_the_path(docs: Path) -> None:
    reader = {"path": "../docs/**/*.csv", "readers": [{**TABLES[0], "only": "tables/first.csv"}, TABLES[1]]}
    (docs.parent / "own").mkdir()
    found = [row.id for row in read(docs.parent / "own", **reader) if isinstance(row, Document)]
    assert found == ["docs/tables/first#1", "docs/tables/first#2", "docs/tables/second#1"]

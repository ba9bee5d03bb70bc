"""Small files of newer formats that would be read again and again, or with the square of their size."""

import zipfile
from pathlib import Path

import pytest

from airgen.corpus.readers import packed_xml
from airgen.corpus.readers.email_files import EmailReader
from airgen.corpus.readers.open_document import OpenDocumentReader
from airgen.corpus.readers.reader import Place
from airgen.corpus.readers.slides import SlidesReader
from airgen.corpus.readers.text_files import FileReader
from airgen.storage.records import Document, Dropped


def rows(kind: type[FileReader], folder: Path) -> list[Document | Dropped]:
    settings = kind.Settings.model_validate({"path": str(folder)})
    return list(kind(settings, Place(Path(), licence="CC0-1.0", language="en")).read())


def zipped(path: Path, members: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(("references", "reason"), [(3, ""), (500, "too large")])
def test_a_formula_that_a_text_names_without_end(
    references: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_xml, "_READ_AGAIN", 1 << 16)
    objects = '<object href="./F"/>' * references
    formula = f"<math><annotation>x + y</annotation>{'<mi>x</mi>' * 400}</math>"
    body = f"<doc><body><p>Sum {objects}</p></body></doc>"
    zipped(tmp_path / "a.odt", {"content.xml": body, "F/content.xml": formula})
    (row,) = rows(OpenDocumentReader, tmp_path)
    if reason:
        assert isinstance(row, Dropped) and row.reason == reason
    else:
        assert isinstance(row, Document) and row.text.count("x + y") == references


def test_notes_that_a_slide_names_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_xml, "_READ_AGAIN", 1 << 16)
    shape = "<sp><p><t>Frost protection</t></p></sp>"
    relations = "".join(f'<r Id="r{number}" Target="../notesSlides/n.xml"/>' for number in range(500))
    members = {"ppt/presentation.xml": "<x/>", "ppt/slides/s.xml": f"<sld>{shape}</sld>"}
    members |= {"ppt/slides/_rels/s.xml.rels": f"<x>{relations}</x>", "ppt/notesSlides/n.xml": f"<n>{shape * 100}</n>"}
    zipped(tmp_path / "a.pptx", members)
    (row,) = rows(SlidesReader, tmp_path)
    assert isinstance(row, Dropped) and row.reason == "too large"


@pytest.mark.parametrize("cell", [("<table-row><table-cell><p>a", "</p></table-cell></table-row>"), ("<p>a", "</p>")])
def test_tables_and_paragraphs_inside_each_other(cell: tuple[str, str], tmp_path: Path) -> None:
    opened, closed = cell
    for depth, read in ((10, True), (200, False)):
        zipped(tmp_path / "a.odt", {"content.xml": f"<doc><body>{opened * depth}b{closed * depth}</body></doc>"})
        (row,) = rows(OpenDocumentReader, tmp_path)
        assert isinstance(row, Document) if read else isinstance(row, Dropped) and row.reason == "nested too deep"


@pytest.mark.parametrize("header", ["To", "Content-Type"])
def test_a_long_header_is_not_parsed_but_kept(header: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(value: str) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr("email._header_value_parser.get_address_list", parsed)
    monkeypatch.setattr("email._header_value_parser.parse_content_type_header", parsed)
    value = "text/plain; " + "; ".join(f"p{number}=x" for number in range(2000))
    if header == "To":
        value = ",\n ".join(f"user{number}@example.org" for number in range(500))
    (tmp_path / "a.eml").write_text(f"Subject: Frost\n{header}: {value}\n\nOpen the upper valve.\n")
    found = rows(EmailReader, tmp_path)
    texts = [row.text for row in found if isinstance(row, Document)]
    assert texts == ["Open the upper valve."]
    if header == "To":
        (left,) = (row for row in found if isinstance(row, Dropped))
        assert "user0@" in left.text and "user499@" in left.text


@pytest.mark.parametrize("header", ["Date: 1 Jan 2020 00:00:00 +" + "9" * 30, "From: :;;:, @@@ <\x00@[b]>", "Cc: (("])
def test_a_header_that_breaks_the_rules_loses_no_message(header: str, tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_text(f"Subject: Frost\n{header}\n\nOpen the upper valve.\n")
    found = rows(EmailReader, tmp_path)
    assert [(row.title, row.text) for row in found if isinstance(row, Document)] == [("Frost", "Open the upper valve.")]

"""A word in any place of a document of any format is in a document, or in what was dropped with its reason."""

import json
from pathlib import Path
from typing import Any

import pytest
from office_maker import WORD_ROOT, W, epub, run, word
from pdf_maker import pdf

from airgen.corpus.needs import read_documents
from airgen.corpus.readers.reader import Place
from airgen.records import Document, Dropped
from airgen.registry import resolve

MARK = "Zqmark"
STRICT = "purl.oclc.org/ooxml/wordprocessingml"
LAMP = "The lamp at the end of the pier is lit at dusk, and the keeper writes down who lit it."


def rows_of(folder: Path, kind: str, name: str, raw: bytes, **settings: Any) -> list[Document | Dropped]:
    (folder / name).write_bytes(raw)
    reader = resolve("reader", kind)
    path = "." if kind == "beir" else name
    return list(read_documents(reader(reader.Settings(path=path, **settings), Place(folder, language="en"))))


def check(rows: list[Document | Dropped], *, kept: bool) -> None:
    """The mark is in a document or a piece, and in a document if it is `kept`; a piece has its reason."""
    documents = "\n".join(f"{row.title}\n{row.text}" for row in rows if isinstance(row, Document))
    pieces = [row for row in rows if isinstance(row, Dropped) and MARK in f"{row.text}\n{row.detail}"]
    assert MARK in documents or pieces, rows
    assert all(piece.reason for piece in pieces)
    if kept:
        assert MARK in documents, rows


SPLITS = ("file", "sections")
# {place: text with {} for the mark}; places whose name begins with "-" may be a piece that is left out.
MARKDOWN = {
    "heading": "# {}\n\nwords", "heading below nothing": "# A\n\n## {}\n\n## B\n\nwords",
    "last heading": "words\n\n# {}", "only heading": "# {}", "underlined heading": "{}\n===\n\nwords",
    "long heading": f"# {'a ' * 600} {{}}\n\nwords", "paragraph": "{}", "link": "[{}](x)", "image": "![{}](x)",
    "emphasis": "a **_{}_**", "deleted": "~~{}~~", "code": "`{}`", "block of code": "```\n{}\n```",
    "title of code": '```py title="{}"\nx\n```', "directive": "```{{note}} {}\nx\n```", "indented code": "    {}",
    "list": "- {}", "inner list": "- a\n  1. {}", "task": "- [ ] {}", "quotation": "> {}",
    "head of a table": "| {} | b |\n|---|---|\n| 1 | 2 |", "cell": "| a | b |\n|---|---|\n| 1 | {} |",
    "cell beyond the last": "| a | b |\n|---|---|\n| 1 | 2 | {} |", "ragged row": "| a | b |\n|---|---|\n| {}",
    "cell in a list": "* | a |\n  |---|\n  | b | {} |", "footnote": "a[^1]\n\n[^1]: {}",
    "note without reference": "a\n\n[^x]: {}\n\nb", "tags": "<div>{}</div>",
    "summary": "<details><summary>{}</summary>\n\nx\n</details>", "component": '<Tab label="{}">\n\nx\n\n</Tab>',
    "picture": "<img alt='{}' src=x>", "placeholder": "cp <{}>", "before a rule": "{}\n\n---\n\nx",
    "between rules": "---\n\n{}\n\n---", "after a rule": "x\n\n***\n{}", "equation": "$$\n{}\n$$",
    "admonition": "!!! note \"{}\"\n    x", "container": ":::tip {}\nx\n:::", "address": "<https://a.org/{}>",
    "title of front matter": "---\ntitle: {}\n---\nx", "-front matter": "---\ntitle: T\ndescription: {}\n---\nx",
    "-TOML": "+++\ntitle = 'T'\nsummary = '{}'\n+++\nx", "unclosed front matter": "---\ntitle: {}\nx",
    "deep": ">" * 150 + " {}", "deep list": "- " * 120 + "{}", "old Mac": "a\r\r{}\r", "no line end": "a\n\n{}",
    "term": "a\n: {}", "unclosed comment": "<!-- {}", "unclosed tag": "<p {}", "definition": "[a]: x\n{}",
}  # fmt: skip
TEXT = {
    "first line": "{}\nwords", "last line": "words\n{}", "after a rule": "a\n-----\n{}",
    "before a rule": "{}\n-----\na", "column": "a\t{}\tb", "form feed": "a\x0c{}", "after NUL": "a\x00{}",
    "indented": "\t  {}", "one line": "{}", "vertical tab": "a\x0b{}", "mark": "\ufeff{}", "old Mac": "a\r\r{}",
}  # fmt: skip
RST = {
    "title": "==\n{}\n==\n\nx", "long title": "========\n{}\n========\n\nx", "heading": "A\n=\n\n{}\n------\n\nx",
    "last heading": "A\n=\n\nx\n\n{}\n------", "two headings": "A\n=\n\n{}\n------\n\nB\n-\nx", "paragraph": "{}",
    "field": ":Author: {}", "directive": ".. note:: {}", "option": ".. figure:: x\n   :alt: {}",
    "literal": "a::\n\n  {}", "footnote": ".. [1] {}", "comment": ".. {}", "cell": "== ==\na  {}\n== ==",
    "grid": "+------+\n|{}|\n+------+", "term": "{}\n  meaning", "substitution": ".. |a| replace:: {}",
    "line block": "| {}", "short line": "{}\n--\n\nx", "transition": "a\n\n------\n\n{}",
}  # fmt: skip
HTML_CHAPTER = {
    "heading": "<h1>{}</h1><p>x</p>", "alone": "<h1>{}</h1>", "paragraph": "<p>{}</p>", "loose": "{}",
    "-navigation": "<nav>{}</nav><p>x</p>", "note": "<aside>{}</aside><p>x</p>",
    "-choice": "<select><option>{}</select>x", "-drawing": "<svg><text>{}</text></svg><p>x</p>",
    "cell": "<table><tr><td>a<td>{}</table>", "-reading": "a<rt>{}</rt>", "-frame": "<p>x</p><iframe>{}</iframe>",
    "hidden": "<p hidden>{}</p>", "-footer": "<footer>{}</footer><p>x</p>",
}  # fmt: skip


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    ("kind", "name", "place", "text"),
    [
        pytest.param(kind, name, place, text, id=f"{name}-{place}")
        for kind, name, places in [("markdown", "f.md", MARKDOWN), ("text", "f.txt", TEXT), ("text", "f.rst", RST)]
        for place, text in places.items()
    ],
)
def test_files_of_text(kind: str, name: str, place: str, text: str, split: str, tmp_path: Path) -> None:
    raw = text.format(MARK).encode()
    check(rows_of(tmp_path, kind, name, raw, split=split), kept=not place.startswith("-"))


@pytest.mark.parametrize("split", ["file", "sections", "chapters"])
@pytest.mark.parametrize("place", HTML_CHAPTER)
def test_chapters_of_books(place: str, split: str, tmp_path: Path) -> None:
    pytest.importorskip("selectolax")
    book = epub({"a": f"<p>{LAMP}</p>", "b": HTML_CHAPTER[place].format(MARK)})
    check(rows_of(tmp_path, "epub", "f.epub", book, split=split), kept=not place.startswith("-"))


@pytest.mark.parametrize(
    ("spine", "encoding", "kept"),
    [
        (("a", "b"), "utf-8", True), (("a", "b:no"), "utf-8", True), (("a",), "utf-8", False),
        (("a", "b"), "cp1251", True), (("a", "b"), "utf-16", True), (("a", "b", "b"), "utf-8", True),
        (("a", "lost", "b"), "utf-8", True), (("a", "never", "b"), "utf-8", True),
    ],
)  # fmt: skip
def test_books_are_read_whole(spine: tuple[str, ...], encoding: str, kept: bool, tmp_path: Path) -> None:
    pytest.importorskip("selectolax")
    second = f"<?xml version='1.0' encoding='{encoding}'?><p>Маяк горит, {MARK}.</p>"
    book = epub({"a": f"<p>{LAMP}</p>", "b": second.encode(encoding)}, spine=spine, lost="lost" in spine)
    rows = rows_of(tmp_path, "epub", "f.epub", book)
    check(rows, kept=kept)
    assert any("Маяк горит" in row.text for row in rows)
    reasons = [row.reason for row in rows if isinstance(row, Dropped)]
    assert ("chapter is not in the book" in reasons) == bool({"lost", "never"} & {*spine})


def test_a_book_under_lock_is_named_and_not_read_as_noise(tmp_path: Path) -> None:
    pytest.importorskip("selectolax")
    (row,) = rows_of(tmp_path, "epub", "f.epub", epub({"a": bytes(range(256))}, locked=("a.xhtml",)))
    assert isinstance(row, Dropped) and (row.reason, row.detail) == ("password needed", "a.xhtml is encrypted")
    good = epub({"a": f"<p>{LAMP}</p>"}, locked=("font.otf",))
    assert LAMP in rows_of(tmp_path, "epub", "g.epub", good)[0].text


def paragraph(inner: str, style: str = "") -> str:
    return f"<w:p>{f'<w:pPr><w:pStyle w:val={style!r}/></w:pPr>' if style else ''}{inner}</w:p>"


CELL = "<w:tbl><w:tr><w:tc>{}</w:tc><w:tc><w:p/></w:tc></w:tr></w:tbl>"
BOX = f"<w:txbxContent>{paragraph(run(MARK))}</w:txbxContent>"
VML = "urn:schemas-microsoft-com:vml"
WPS = "http://schemas.microsoft.com/office/word/2010/wordprocessingShape"
SHAPE = f"<wps:wsp xmlns:wps='{WPS}'><wps:txbx>{{}}</wps:txbx></wps:wsp>"
FORM = "<w:r><w:fldChar w:fldCharType='{}'/></w:r>"
DOCX = {
    "paragraph": paragraph(run(MARK)), "heading": paragraph(run(MARK), "Heading1") + paragraph(run("x")),
    "cell": CELL.format(paragraph(run(MARK))),
    "inner cell": CELL.format(CELL.format(paragraph(run(MARK))) + "<w:p/>"),
    "control": f"<w:sdt><w:sdtContent>{paragraph(run(MARK))}</w:sdtContent></w:sdt>",
    "-choices": f"<w:p><w:sdt><w:sdtPr><w:dropDownList><w:listItem w:displayText='{MARK}' w:value='a'/>"
    f"</w:dropDownList></w:sdtPr><w:sdtContent>{run('a')}</w:sdtContent></w:sdt></w:p>",
    "field": paragraph(f"<w:fldSimple w:instr='DATE'>{run(MARK)}</w:fldSimple>"),
    "field of a form": paragraph(FORM.format("begin") + FORM.format("separate") + run(MARK) + FORM.format("end")),
    "link": paragraph(f"<w:hyperlink w:anchor='a'>{run(MARK)}</w:hyperlink>"),
    "box": paragraph(f"<w:r><w:pict><v:rect xmlns:v='{VML}'><v:textbox>{BOX}</v:textbox></v:rect></w:pict></w:r>"),
    "shape": paragraph(f"<w:r><mc:AlternateContent><mc:Choice><w:drawing>{SHAPE.format(BOX)}</w:drawing></mc:Choice>"
                       "</mc:AlternateContent></w:r>"),
    "inserted": paragraph(f"<w:ins>{run(MARK)}</w:ins>"),
    "smart tag": paragraph(f"<w:smartTag>{run(MARK)}</w:smartTag>"),
    "-deleted": paragraph(run("x") + f"<w:del><w:r><w:delText>{MARK}</w:delText></w:r></w:del>"),
    "moved": paragraph(f"<w:moveTo>{run(MARK)}</w:moveTo>"), "caption": paragraph(run(MARK), "Caption"),
    "equation": paragraph(f"<m:oMath><m:r><m:t>{MARK}</m:t></m:r></m:oMath>"),
    "hidden": paragraph(f"<w:r><w:rPr><w:vanish/></w:rPr><w:t>{MARK}</w:t></w:r>"),
    "after a tab": paragraph("<w:r><w:t>a</w:t><w:tab/></w:r>" + run(MARK)),
    "-picture": paragraph(run("x") + f"<w:r><w:drawing><wp:inline><wp:docPr id='1' name='' descr='{MARK}'/></wp:inline>"
                          "</w:drawing></w:r>"),
    "-reading": paragraph(f"<w:ruby><w:rt>{run(MARK)}</w:rt><w:rubyBase>{run('x')}</w:rubyBase></w:ruby>"),
    "list": paragraph(f"<w:pPr><w:numPr><w:ilvl w:val='0'/><w:numId w:val='1'/></w:numPr></w:pPr>{run(MARK)}"),
    "section": paragraph(run(MARK)) + "<w:sectPr/>",
    "-unknown": paragraph(run("x") + f"<w:newThing>{run(MARK)}</w:newThing>"),
}  # fmt: skip
ROOTS = {
    "header1": "hdr", "footer2": "ftr", "comments": "comments", "footnotes": "footnotes", "endnotes": "endnotes",
    "glossary/document": "glossaryDocument", "later": "laterThing",
}  # fmt: skip
PARTS = {part: f"<w:{root} {WORD_ROOT}>{paragraph(run(MARK))}</w:{root}>" for part, root in ROOTS.items()}
DRAWING = "xmlns='http://schemas.openxmlformats.org/drawingml/2006/"
PARTS |= {
    "charts/chart1": f"<chartSpace {DRAWING}chart'><cat><strCache><pt><v>{MARK}</v></pt></strCache></cat></chartSpace>",
    "charts/chart2": f"<chartSpace {DRAWING}chart'><p {DRAWING}main'><r><t>{MARK}</t></r></p></chartSpace>",
    "diagrams/data1": f"<dataModel {DRAWING}diagram'><p {DRAWING}main'><r><t>{MARK}</t></r></p></dataModel>",
}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("place", DOCX)
def test_places_of_word_documents(place: str, split: str, tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    raw = word(paragraph(run(LAMP)) + DOCX[place])
    check(rows_of(tmp_path, "docx", "f.docx", raw, split=split), kept=not place.startswith("-"))


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_word_documents(part: str, tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    check(rows_of(tmp_path, "docx", "f.docx", word(paragraph(run(LAMP)), {part: PARTS[part]})), kept=False)


def test_other_forms_of_word_documents(tmp_path: Path) -> None:
    """Other prefixes of the namespace, UTF-16, the strict form, and a page of HTML inside."""
    pytest.importorskip("mammoth")
    plain = paragraph(run(LAMP)) + f"<w:p><w:odd>{run(MARK)}</w:odd></w:p>"
    for change in (
        lambda body: body.replace("w:", "ns0:").replace(":w=", ":ns0=").encode(),
        lambda body: f"<?xml version='1.0' encoding='UTF-16'?>{body}".encode("utf-16"),
        lambda body: body.replace(W, W.replace("schemas.openxmlformats.org/wordprocessingml/2006", STRICT)).encode(),
    ):
        raw = word(plain, change=change)
        rows = rows_of(tmp_path, "docx", "f.docx", raw)
        check(rows, kept=False)
        assert any(isinstance(row, Document) and LAMP in row.text for row in rows)
    raw = word(paragraph(run(LAMP)) + "<w:altChunk r:id='h1'/>", {"../inner.html": f"<p>{MARK}</p>"})
    check(rows_of(tmp_path, "docx", "f.docx", raw), kept=False)


PDF = {
    "text": {"pages": [[LAMP, MARK]]}, "first line": {"pages": [[MARK, LAMP]]},
    "head of all pages": {"pages": [[MARK, f"{LAMP} {n}x", f"{n}y"] for n in range(6)]},
    "head of a page": {"pages": [[MARK if n == 3 else f"h{n}z", f"{LAMP} {n}x"] for n in range(6)]},
    "form field": {"pages": [[LAMP]], "field": MARK}, "note": {"pages": [[LAMP]], "note": MARK},
    "unseen": {"pages": [[LAMP]], "unseen": MARK}, "bookmark": {"pages": [[LAMP]], "bookmark": MARK},
    "title": {"pages": [[LAMP]], "title": MARK}, "off the page": {"pages": [[LAMP]], "off": MARK},
    "only a field": {"pages": [[]], "field": MARK}, "only a note": {"pages": [[]], "note": MARK},
}  # fmt: skip


@pytest.mark.parametrize("split", ["file", "pages"])
@pytest.mark.parametrize("place", PDF)
def test_places_of_pdf_files(place: str, split: str, tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    check(rows_of(tmp_path, "pdf", "f.pdf", pdf(**PDF[place]), split=split), kept=False)


TABLES = {
    "text": "id,title,text\n1,a,{}\n", "title": "id,title,text\n1,{},b\n", "id": "id,title,text\n{},a,b\n",
    "long row": "id,title,text\n1,a,b,{}\n2,c,d\n3,e,f\n", "short row": "id,title,text\n1,{}\n2,c,d\n3,e,f\n",
    "line above": "{}\n\nid,title,text\n1,a,b\n2,c,d\n", "line below": "id,title,text\n1,a,b\n2,c,d\n{}\n",
    "quoted": 'id,title,text\n1,a,"b ""{}"" c"\n', "lines": 'id,title,text\n1,a,"b\n\n{}"\n',
    "last row": "id,title,text\n1,a,b\n2,c,{}", "unclosed": 'id,title,text\n1,a,b\n2,c,"{}\n',
    "no text": "id,title,text\n1,{},\n",
}  # fmt: skip
FIELDS: dict[str, Any] = {"id": "id", "title": "title", "text": "text"}
RECORDS: dict[str, Any] = {
    "text": {"text": MARK}, "title": {"title": MARK, "text": "a"}, "id": {"id": MARK, "text": "a"},
    "list": {"text": ["a", MARK]}, "only a title": {"title": MARK}, "empty text": {"title": MARK, "text": ""},
    "other kind": {"text": {"a": MARK}}, "other column": {"body": MARK}, "list of objects": {"text": [{"a": MARK}]},
}  # fmt: skip


@pytest.mark.parametrize("place", TABLES)
def test_places_of_tables(place: str, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    rows = rows_of(tmp_path, "csv", "f.csv", TABLES[place].format(MARK).encode(), fields=FIELDS)
    found = "\n".join(f"{row.id} {row.title if isinstance(row, Document) else row.detail} {row.text}" for row in rows)
    assert MARK in found, rows


@pytest.mark.parametrize(("kind", "name"), [("jsonl", "f.jsonl"), ("json", "f.json"), ("beir", "corpus.jsonl")])
@pytest.mark.parametrize("place", RECORDS)
def test_places_of_records(place: str, kind: str, name: str, tmp_path: Path) -> None:
    good = {"id": "good", "title": "t", "text": "a lamp"}
    lines = [good, RECORDS[place]]
    raw = json.dumps(lines) if kind == "json" else "\n".join(map(json.dumps, lines))
    rows = rows_of(tmp_path, kind, name, raw.encode(), fields=FIELDS)
    assert len(rows) == 2 and MARK in f"{rows[1].id} {rows[1]}"


@pytest.mark.parametrize("markup", ["html", "markdown"])
def test_markup_in_rows(markup: str, tmp_path: Path) -> None:
    pytest.importorskip("selectolax")
    texts = {"html": f"<p>a</p><nav>{MARK}</nav>", "markdown": f"---\ntags: {MARK}\n---\na"}
    raw = json.dumps({"id": "1", "title": "t", "text": texts[markup]}).encode()
    document, piece = rows_of(tmp_path, "jsonl", "f.jsonl", raw, fields={**FIELDS, "markup": markup})
    assert isinstance(document, Document) and document.text == "a"
    assert isinstance(piece, Dropped) and MARK in piece.text and piece.id == document.id


def test_a_piece_that_is_shown_in_part_says_so(tmp_path: Path) -> None:
    pytest.importorskip("selectolax")
    raw = f"<nav>{'a menu ' * 4000}</nav><main><p>{LAMP}</p></main>".encode()
    piece = next(row for row in rows_of(tmp_path, "html", "f.html", raw) if isinstance(row, Dropped))
    assert len(piece.text) == 20_000 and piece.detail == "the first 20,000 of 27,999 characters"


def test_documents_without_words_are_counted(tmp_path: Path) -> None:
    for kind, name, text in [("markdown", "f.md", "<!-- only a remark -->"), ("text", "f.rst", "\n \n.\n")]:
        for split in SPLITS:
            rows = rows_of(tmp_path, kind, name, text.encode(), split=split)
            assert len(rows) == 1, rows


def test_a_damaged_chapter_does_not_cost_the_book(tmp_path: Path) -> None:
    pytest.importorskip("selectolax")
    raw = epub({"a": f"<p>{LAMP}</p>", "b": f"<p>Words with {MARK}</p>"})
    rows = rows_of(tmp_path, "epub", "f.epub", raw.replace(b"Words with", b"Words wyth"))
    damaged, book = rows
    assert isinstance(damaged, Dropped) and (damaged.reason, damaged.position) == ("damaged chapter", "b.xhtml")
    assert isinstance(book, Document) and book.text == LAMP

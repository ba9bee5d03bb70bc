"""A word in any place of a document of any format is in a document, or in what was dropped with its reason."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from office_maker import OD_ROOT, SLIDE, WORD_ROOT, W, epub, odt, pptx, run, shape, word
from pdf_maker import pdf

from airgen.components.registry import resolve
from airgen.corpus.readers.reader import Place
from airgen.corpus.requirements import read_documents
from airgen.storage.records import Document, Dropped

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
    "cell of HTML": "<table><tr><td>a</td><td>{}</td></tr></table>",
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
ASCIIDOC = {
    "title": "= {}\n\nx",
    "heading": "= A\n\n== {}\n\nx",
    "closed heading": "== {} ==\n\nx",
    "last heading": "x\n\n== {}",
    "hashes": "# {}\n\nx",
    "paragraph": "{}",
    "attribute": "= A\n:note: {}\n\nx",
    "code": "----\n= {}\n----\n\n== B\n\nx",
    "unclosed code": "----\n{}",
    "comment": "// {}",
    "cell": "|===\n|{}|b\n|===",
    "admonition": "NOTE: {}",
    "term": "{}:: meaning",
    "caption": ".{}\nx",
    "lone sign": "= {}\n= B\nx",
    "macro": "image::a.png[{}]",
}
ORG = {
    "title": "#+TITLE: {}\n\nx",
    "heading": "* {}\nx",
    "inner heading": "* A\n** TODO {} :tag:\nx",
    "last heading": "x\n* {}",
    "tag": "* A :{}:\nx",
    "paragraph": "{}",
    "drawer": ":PROPERTIES:\n:ID: {}\n:END:",
    "code": "#+BEGIN_SRC sh\n{}\n#+END_SRC",
    "cell": "| a | {} |",
    "comment": "# {}",
    "setting": "#+AUTHOR: {}",
    "second title": "#+TITLE: A\n#+TITLE: {}",
}
TIME = "00:00:01,000 --> 00:00:02,000"
SUBTITLES = {
    "line": f"1\n{TIME}\n{{}}\n",
    "second line": f"1\n{TIME}\na\n{{}}\n",
    "without number": f"{TIME}\n{{}}\n",
    "-name of a cue": f"{{}}\n{TIME}\na\n",
    "italics": f"1\n{TIME}\n<i>{{}}</i>\n",
    "last": f"1\n{TIME}\na\n\n2\n{TIME}\n{{}}",
    "-header": f"WEBVTT {{}}\n\n{TIME}\na",
    "-note": f"WEBVTT\n\nNOTE\n{{}}\n\n{TIME}\na",
    "speaker": f"{TIME}\n<v {{}}>a</v>",
    "number": f"1\n{TIME}\n42 {{}}\n",
    "loose": "{}\n",
    "blank line": f"1\n{TIME}\na\n\n{{}}\n",
    "angle": f"1\n{TIME}\n<{{}}>\n",
    "class": f"{TIME}\n<c.yellow>{{}}</c>",
    "said twice": f"1\n{TIME}\n{{0}}\n\n2\n{TIME}\n{{0}}\n",
    "NOTE said": f"1\n{TIME}\nNOTE {{}}\n",
    "-after the time": f"1\n{TIME} {{}}\na\n",
    "override": f"1\n{TIME}\n{{{{\\an8}}}}{{}}\n",
}
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
        for kind, name, places in [
            ("markdown", "f.md", MARKDOWN),
            ("text", "f.txt", TEXT),
            ("text", "f.rst", RST),
            ("text", "f.adoc", ASCIIDOC),
            ("text", "f.org", ORG),
            ("text", "f.srt", SUBTITLES),
            ("text", "f.vtt", SUBTITLES),
        ]
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


PDF: dict[str, dict[str, Any]] = {
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


CELLS: dict[str, Any] = {
    "markdown": {"cell_type": "markdown", "source": [f"{MARK}\n"]},
    "code": {"cell_type": "code", "source": MARK},
    "heading": {"cell_type": "markdown", "source": f"## {MARK}"},
    "raw": {"cell_type": "raw", "source": MARK},
    "unknown kind": {"cell_type": "chart", "source": MARK},
    "table": {"cell_type": "markdown", "source": f"|{MARK}|\n|-|\n|1|"},
    "old heading": {"cell_type": "heading", "level": 9, "source": MARK},
    "old code": {"cell_type": "code", "input": [MARK]},
    "-matter": {"cell_type": "markdown", "source": f"---\ntags: {MARK}\n---\nx"},
    "-stream": {"cell_type": "code", "outputs": [{"output_type": "stream", "text": [MARK]}]},
    "-result": {"cell_type": "code", "outputs": [{"data": {"text/plain": MARK, "image/png": "AAAA"}}]},
    "-page": {"cell_type": "code", "outputs": [{"data": {"text/plain": "<IPython>", "text/html": f"<b>{MARK}</b>"}}]},
    "-error": {"cell_type": "code", "outputs": [{"ename": "E", "evalue": MARK, "traceback": ["x"]}]},
    "-colours": {"cell_type": "code", "outputs": [{"traceback": [f"\x1b[0;31m{MARK}\x1b[0m"]}]},
    "-old output": {"cell_type": "code", "outputs": [{"output_type": "pyout", "text": MARK}]},
    "-markdown": {"cell_type": "code", "outputs": [{"data": {"text/markdown": MARK}}]},
}


@pytest.mark.parametrize("outputs", [False, True])
@pytest.mark.parametrize("place", CELLS)
def test_cells_of_notebooks(place: str, outputs: bool, tmp_path: Path) -> None:
    pytest.importorskip("selectolax")
    cells = [{"cell_type": "markdown", "source": LAMP}, CELLS[place]]
    kept = (outputs and place != "-matter") or not place.startswith("-")
    for split, book in [("file", {"cells": cells}), ("sections", {"worksheets": [{"cells": cells}]})]:
        raw = json.dumps(book).encode()
        rows = rows_of(tmp_path, "ipynb", "f.ipynb", raw, split=split, outputs=outputs)
        check(rows, kept=kept)
        assert not any("\x1b" in row.text for row in rows)
    named = json.dumps({"cells": cells, "metadata": {"title": MARK}}).encode()
    assert any(isinstance(row, Document) and row.title == MARK for row in rows_of(tmp_path, "ipynb", "g.ipynb", named))


@pytest.mark.parametrize("raw", [b"[]", b"{", b'{"cells": 3}', b"[" * 100_000, b'{"cells": [{"source": 1}, 2]}'])
def test_a_file_that_is_no_notebook_is_dropped(raw: bytes, tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, "ipynb", "f.ipynb", raw)
    assert isinstance(row, Dropped) and row.reason in ("no notebook", "damaged notebook", "no text in the file")


PART = "--x\nContent-Type: {}\n\n{}\n"
MIXED = "Content-Type: multipart/mixed; boundary=x\n\n"
EITHER = "Content-Type: multipart/alternative; boundary=x\n\n"
RELATED = "Content-Type: multipart/related; boundary=x\n\n"
MAIL = {
    "subject": f"Subject: {MARK}\n\nx",
    "body": f"Subject: a\n\n{MARK}",
    "no headers": f"\n{MARK}",
    "-sender": f"From: {MARK} <a@b.org>\nSubject: a\n\nx",
    "html": f"Content-Type: text/html\n\n<p>{MARK}",
    "old encoding": f"Content-Type: text/plain; charset=koi8-r\n\n\xd0\xd2 {MARK}",
    "unknown charset": f"Content-Type: text/plain; charset=zz\n\n{MARK}",
    "quoted": f"Content-Transfer-Encoding: quoted-printable\n\n=5A{MARK[1:]}",
    "first part": MIXED + PART.format("text/plain", MARK) + "--x--",
    "last part": MIXED + PART.format("text/plain", "a") + PART.format("text/plain", MARK),
    "-other form": EITHER + PART.format("text/plain", "a") + PART.format("text/html", MARK),
    "only html has words": EITHER + PART.format("text/plain", " ") + PART.format("text/html", MARK),
    "-attachment": MIXED + PART.format("text/plain", "a") + PART.format(f"application/pdf; name={MARK}.pdf", "x"),
    "-text attached": MIXED
    + PART.format("text/plain", "a")
    + PART.format("text/plain\nContent-Disposition: attachment", MARK),
    "forwarded": MIXED + PART.format("message/rfc822", f"Subject: {MARK}\n\nx"),
    "saved page": RELATED + PART.format("text/html", f"<p>{MARK}") + PART.format("text/css", "p {}"),
    "after a mark": f"\xef\xbb\xbfSubject: {MARK}\n\nx",
    "no boundary": f"Content-Type: multipart/mixed\n\n{MARK}",
    "-before the parts": MIXED + MARK + "\n" + PART.format("text/plain", "a"),
    "-after the parts": MIXED + PART.format("text/plain", "a") + "--x--\n" + MARK,
    "beside bytes of no encoding": MIXED
    + PART.format("text/plain; charset=shift_jis", "\xff\xfd\x81")
    + PART.format("text/plain", MARK),
    "damaged base64": f"Content-Transfer-Encoding: base64\n\n{b64encode(f'a {MARK} b c d e'.encode()).decode()[:-3]}!",
    "-frame": RELATED + PART.format("text/html", "<p>a") + PART.format("text/html", f"<p>{MARK}"),
}


@pytest.mark.parametrize("name", ["f.eml", "f.mbox"])
@pytest.mark.parametrize("place", MAIL)
def test_places_of_messages(place: str, name: str, tmp_path: Path) -> None:
    pytest.importorskip("selectolax")
    raw = MAIL[place].encode("latin-1")
    if name == "f.mbox" and not MAIL[place].startswith("\n"):
        raw = b"From a@b.org Mon Jan 1\nSubject: other\n\nFrom here on.\n\nFrom a@b.org Mon Jan 1\n" + raw
    check(rows_of(tmp_path, "email", name, raw), kept=not place.startswith("-"))


def test_messages_are_decoded_as_programs_do(tmp_path: Path) -> None:
    """A charset of the 1980s stands for its successor: gb2312 for gbk, us-ascii for windows-1252 or UTF-8."""
    pytest.importorskip("selectolax")
    for charset, encoding, text in [
        ("gb2312", "gbk", "港口的灯由镕喆两人检查"),
        ("iso-8859-1", "cp1252", "The ferry costs 12 € – “return”"),
        ("us-ascii", "utf-8", "größer"),
    ]:
        raw = f"Content-Type: text/plain; charset={charset}\n\n".encode() + text.encode(encoding)
        document = next(row for row in rows_of(tmp_path, "email", "f.eml", raw) if isinstance(row, Document))
        assert document.text == text


CHOICE = "<mc:AlternateContent><mc:Choice>{}</mc:Choice><mc:Fallback>{}</mc:Fallback></mc:AlternateContent>"
SLIDES: dict[str, dict[str, Any]] = {
    "title": {"slides": [[MARK, "a"]]},
    "only a title": {"slides": [[MARK]]},
    "text": {"slides": [["a", MARK]]},
    "last slide": {"slides": [["a", "b"], ["c", MARK]]},
    "last title": {"slides": [["a", "b"], [MARK]]},
    "notes": {"notes": MARK},
    "cell": {"table": MARK},
    "group": {"more": {"slide": f"<p:grpSp><p:grpSp>{shape(MARK)}</p:grpSp></p:grpSp>"}},
    "choice": {"more": {"slide": CHOICE.format(shape(MARK), shape(MARK))}},
    "-footer": {"more": {"slide": shape(MARK, "ftr")}},
    "-date": {"more": {"slide": shape(MARK, "dt")}},
    "-picture": {"more": {"slide": f"<p:pic><p:nvPicPr><p:cNvPr descr='{MARK}'/></p:nvPicPr></p:pic>"}},
    "-comment": {"more": {"ppt/comments/c1.xml": f"<p:cmLst {SLIDE}><p:cm><p:text>{MARK}</p:text></p:cm></p:cmLst>"}},
    "-chart": {"more": {"ppt/charts/c1.xml": f"<c {SLIDE}><strCache><v>{MARK}</v></strCache></c>"}},
    "-drawing": {"more": {"ppt/diagrams/data1.xml": f"<d {SLIDE}><a:p><a:r><a:t>{MARK}</a:t></a:r></a:p></d>"}},
    "-master": {"more": {"ppt/slideMasters/m1.xml": f"<p:m {SLIDE}>{shape(MARK)}</p:m>"}},
    "in no list": {"more": {"ppt/slides/slide9.xml": f"<p:sld {SLIDE}>{shape(MARK)}</p:sld>"}},
    "-hidden": {"more": {"ppt/slides/slide9.xml": f"<p:sld show='0' {SLIDE}>{shape(MARK)}</p:sld>"}},
}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("place", SLIDES)
def test_places_of_presentations(place: str, split: str, tmp_path: Path) -> None:
    raw = pptx(**{"slides": [["a", LAMP]], **SLIDES[place]})
    rows = rows_of(tmp_path, "pptx", "f.pptx", raw, split=split)
    check(rows, kept=not place.startswith("-"))
    assert sum(row.text.count(MARK) + getattr(row, "title", "").count(MARK) for row in rows) <= 2


def test_slides_come_in_the_order_of_the_presentation(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, "pptx", "f.pptx", pptx([["A talk", "one"], ["Next", "two"], ["End", "three"]]))
    assert isinstance(row, Document) and row.title == "A talk"
    assert row.text == "A talk\n\none\n\nNext\n\ntwo\n\nEnd\n\nthree"


NOTE = (
    "<text:p>a<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>{}</text:p>"
    "</text:note-body></text:note></text:p>"
)
ROW = "<table:table><table:table-row><table:table-cell>{}</table:table-cell></table:table-row></table:table>"
ITEM = "<text:list><text:list-item>{}</text:list-item></text:list>"
EQUATION = f"<math><semantics><mi>x</mi><annotation>{MARK}</annotation></semantics></math>"
OPEN = {
    "paragraph": "<text:p>{}</text:p>",
    "heading": "<text:h text:outline-level='2'>{}</text:h><text:p>a</text:p>",
    "title": "<text:p text:style-name='Title'>{}</text:p>",
    "span": "<text:p>a <text:span>{}</text:span> b</text:p>",
    "after a space": "<text:p>a<text:s text:c='3'/>{}</text:p>",
    "after a tab": "<text:p>a<text:tab/>{}</text:p>",
    "list": ITEM.format("<text:p>{}</text:p>"),
    "note": NOTE,
    "after a note": NOTE.format("x").replace("</text:note></text:p>", "</text:note>{}</text:p>"),
    "cell": ROW.format("<text:p>{}</text:p>"),
    "box": "<text:p>a<draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame></text:p>",
    "section": "<text:section><text:p>{}</text:p></text:section>",
    "link": "<text:p><text:a>{}</text:a></text:p>",
    "inner list": ITEM.format(ITEM.format("<text:p>{}</text:p>")),
    "-comment": "<text:p>a<office:annotation><text:p>{}</text:p></office:annotation></text:p>",
    "-deleted": "<text:tracked-changes><text:p>{}</text:p></text:tracked-changes>",
    "-contents": "<text:table-of-content><text:p>{}</text:p></text:table-of-content>",
    "-picture": "<text:p>a<draw:frame><draw:image/><svg:desc>{}</svg:desc></draw:frame></text:p>",
    "equation": "<text:p>a<draw:frame><draw:object xlink:href='./Object 1'/></draw:frame></text:p>",
    "box in a cell": ROW.format("<text:p>a<draw:text-box><text:p>{}</text:p></draw:text-box></text:p>"),
    "unknown": "<text:later><text:p>{}</text:p></text:later>",
}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("place", OPEN)
def test_places_of_open_documents(place: str, split: str, tmp_path: Path) -> None:
    raw = odt(
        f"<text:p>{LAMP}</text:p>{OPEN[place].format(MARK)}",
        {"Object 1/content.xml": EQUATION} if place == "equation" else {},
    )
    check(rows_of(tmp_path, "odt", "f.odt", raw, split=split), kept=not place.startswith("-"))


def test_headers_of_open_documents(tmp_path: Path) -> None:
    footer = f"<style:footer><text:p>{MARK}</text:p></style:footer>"
    styles = f"<office:document-styles {OD_ROOT}>{footer}</office:document-styles>"
    check(rows_of(tmp_path, "odt", "f.odt", odt(f"<text:p>{LAMP}</text:p>", {"styles.xml": styles})), kept=False)


def test_files_that_no_reader_reads_are_counted(tmp_path: Path) -> None:
    """Each document of another format has a line that says what helps; pictures have none."""
    for name in ("old.doc", "sheet.xlsx", "paper.tex", "all.zip", "rows.csv.xz", "logo.png", "README", "b.html"):
        (tmp_path / name).write_text("some words")
    (tmp_path / "a.md").write_text(LAMP)
    reader = resolve("reader", "markdown")
    rows = list(reader(reader.Settings(path="."), Place(tmp_path, language="en")).read())
    dropped = {row.source: row for row in rows if isinstance(row, Dropped) and row.source}
    assert set(dropped) == {"old.doc", "sheet.xlsx", "paper.tex", "all.zip", "rows.csv.xz"}
    assert dropped["rows.csv.xz"].reason == "no reader for .csv.xz files" and ".docx" in dropped["old.doc"].detail
    (others,) = (row for row in rows if isinstance(row, Dropped) and not row.source)
    assert (others.reason, others.detail) == ("files of other kinds", "2 files: no ending (1), .html (1)")


@pytest.mark.parametrize(
    ("kind", "name", "raw"),
    [
        ("jsonl", "f.jsonl", b'\x1e{"id": "1", "title": "t", "text": "%s"}\n'),
        ("jsonl", "f.jsonl", b'{"id": "1", "title": "t", "text": "%s"},\n'),
        ("csv", "f.csv", b"id,title,text\n1,a,%s\x00 x\n2,b,c\n"),
    ],
)  # fmt: skip
def test_rows_with_signs_that_do_not_belong_there(kind: str, name: str, raw: bytes, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, kind, name, raw % MARK.encode(), fields=FIELDS)
    assert any(isinstance(row, Document) and MARK in row.text for row in rows), rows


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_no_utf_8(encoding: str, tmp_path: Path) -> None:
    """The bytes of Cyrillic in UTF-16 are control codes in UTF-8, and no error."""
    text = f"Маяк горит ночью у дальнего мола, {MARK}."
    (row,) = rows_of(tmp_path, "text", "f.txt", text.encode(encoding))
    assert isinstance(row, Document) and row.text == text


def test_cells_of_html_in_markdown_are_apart(tmp_path: Path) -> None:
    raw = b"<table>\n<tr><th>Lamp</th><th>Lit</th></tr>\n<tr><td>north<td>dusk</tr>\n</table>\n\n<p>one</p><p>two</p>\n"
    (row,) = rows_of(tmp_path, "markdown", "f.md", raw)
    assert [line.strip() for line in row.text.split("\n") if line.strip()] == [
        "Lamp | Lit",
        "north | dusk",
        "one",
        "two",
    ]


@pytest.mark.parametrize(
    ("kind", "name", "raw", "advice"),
    [
        ("html", "f.html", b"%PDF-1.4\n", "a PDF: name it .pdf"),
        ("text", "f.txt", b"%PDF-1.4\n", "a PDF: name it .pdf"),
        ("text", "f.txt", b"<!DOCTYPE html>\n<p>a", "an HTML page: name it .html"),
        ("markdown", "f.md", b"{\\rtf1 a}", "RTF: save it as .docx"),
        ("docx", "f.docx", b"\n<html><p>a", "an HTML page: name it .html"),
        ("pdf", "f.pdf", b"<!doctype html><p>not found", "an HTML page: name it .html"),
        ("html", "f.html", b"PK\x03\x04", "an archive or an office document: name it .docx, .epub, .odt or .pptx"),
    ],
)
def test_a_file_of_another_format_is_named(kind: str, name: str, raw: bytes, advice: str, tmp_path: Path) -> None:
    """As crawlers save what a server gives under any name: its bytes are no text."""
    (row,) = rows_of(tmp_path, kind, name, raw)
    assert isinstance(row, Dropped) and row.reason == "another format than its name says"
    assert row.detail.startswith(advice)

"""Readers on real files of each format, and on everything that can be wrong with them."""

import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import duckdb
import pytest
from refusals import refused

from airgen.corpus.readers.html import HtmlReader, html_blocks
from airgen.corpus.readers.json_records import BeirReader, DatasetsReader, JsonLinesReader, JsonReader
from airgen.corpus.readers.light_markup import TextReader
from airgen.corpus.readers.markdown import MarkdownReader
from airgen.corpus.readers.pdf import PdfReader, join_pages
from airgen.corpus.readers.reader import Place, Unusable
from airgen.corpus.readers.tabular import CsvReader, ParquetReader
from airgen.corpus.readers.word_and_epub import DocxReader, EpubReader
from airgen.errors import CorpusError
from airgen.storage.records import Document, Dropped


def read(reader: type, folder: Path, **settings: object) -> list[Document | Dropped]:
    return list(
        reader(reader.Settings.model_validate(settings), Place(folder, licence="CC0-1.0", language="en")).read()
    )


def reasons(rows: list[Document | Dropped]) -> list[str]:
    return [row.reason for row in rows if isinstance(row, Dropped)]


def texts(rows: list[Document | Dropped]) -> list[str]:
    return [row.text for row in rows if isinstance(row, Document)]


def test_json_lines_keep_ids_titles_positions_and_drop_what_is_no_document(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"_id": "a", "title": "T", "text": "first"}',  # a byte order mark
        b"",
        b'{"_id": 7, "text": "second"}',
        b"[1, 2]",
        b"{not json",
        b'{"_id": "b", "text": "\xff\xfe broken"}',
        b'{"_id": "c"}',
        b'{"_id": "d", "text": 5}',
        b'{"_id": "e", "text": "\\ud800 lone, and \\u0000 nul"}',
        b'{"_id": "f", "text": "' + b"x" * 999 + b'"}',
        b'{"text": "no id"}',
    ]
    (tmp_path / "c.jsonl").write_bytes(b"\n".join(lines))
    rows = read(JsonLinesReader, tmp_path, path="c.jsonl", max_bytes=900)
    documents = [row for row in rows if isinstance(row, Document)]
    assert [(row.id, row.text) for row in documents[:3]] == [
        ("a", "first"),
        ("7", "second"),
        ("e", "\ud800 lone, and \0 nul"),
    ]
    assert (documents[0].title, documents[0].position, documents[0].licence) == ("T", "line 1", "CC0-1.0")
    assert documents[3].id == read(JsonLinesReader, tmp_path, path="c.jsonl")[-1].id and len(documents[3].id) == 16
    assert [(row.reason, row.position) for row in rows if isinstance(row, Dropped)] == [
        ("not a JSON object", "line 4"), ("not JSON", "line 5"), ("broken UTF-8", "line 6"),
        ("missing text", "line 7"), ("text is not a string", "line 8"), ("too large", "line 10"),
    ]  # fmt: skip


def test_a_truncated_gzip_is_an_error_not_a_short_corpus(tmp_path: Path) -> None:
    data = gzip.compress(b"\n".join(json.dumps({"_id": str(n), "text": f"text {n * n}"}).encode() for n in range(5000)))
    (tmp_path / "c.jsonl.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(CorpusError, match="gzip ends early"):
        read(JsonLinesReader, tmp_path, path="c.jsonl.gz")
    (tmp_path / "c.jsonl.gz").write_bytes(data[:100] + b"\0" * 50 + data[150:])
    with pytest.raises(CorpusError, match="damaged gzip"):
        read(JsonLinesReader, tmp_path, path="c.jsonl.gz")
    (tmp_path / "c.jsonl.gz").write_bytes(data)
    assert len(texts(read(JsonLinesReader, tmp_path, path="c.jsonl.gz"))) == 5000


def test_hidden_folders_and_what_skip_names_are_left_out_and_counted(tmp_path: Path) -> None:
    names = "a.md .git/b.md .git/deep/c.md x/node_modules/d.md x/e.md x/.f.md x/old-g.md .h.png"
    for name in names.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"The text of {name}")
    for path in (".", "**/*.md"):
        rows = read(MarkdownReader, tmp_path, path=path)
        assert texts(rows) == ["The text of a.md", "The text of x/e.md", "The text of x/old-g.md"]
        left = sorted(row.source for row in rows if isinstance(row, Dropped))
        assert left == [".git", "x/.f.md", "x/node_modules"]
        assert set(reasons(rows)) == {"left out by reader.skip"}
    assert texts(read(MarkdownReader, tmp_path, path=".git/*.md")) == ["The text of .git/b.md"]
    assert len(texts(read(MarkdownReader, tmp_path, path="x", skip=["old-*"]))) == 3
    assert len(texts(read(MarkdownReader, tmp_path, path=".", skip=[]))) == 7
    with pytest.raises(CorpusError, match=r"reader.skip \(x, a.md, \.\*\) leaves out all files"):
        read(MarkdownReader, tmp_path, path=".", skip=["x", "a.md", ".*"])


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "secret.txt").write_text("not part of the corpus")
    (inside / "a.txt").write_text("part of it")
    (inside / "b.txt").symlink_to(tmp_path / "secret.txt")
    rows = read(TextReader, tmp_path / "in", path=".")
    assert texts(rows) == ["part of it"]
    assert reasons(rows) == ["link out of the folder"]


def test_nested_columns_and_several_texts() -> None:
    from airgen.corpus.readers.tabular import Fields, to_documents

    fields = Fields(id="meta.id", title=None, text=["head", "body.lines"])
    row = {"meta": {"id": 3}, "head": "H", "body": {"lines": ["one", "two"]}}
    document = next(to_documents(row, fields, Place(Path()), "s", "p"))
    assert isinstance(document, Document)
    assert (document.id, document.text) == ("3", "H\n\none\ntwo")
    verses = {"_id": "s1", "verses": [{"t": "a"}, {"t": "b"}, {"other": 1}]}
    assert isinstance(next(to_documents(verses, Fields(text="verses.t"), Place(Path()), "", "")), Dropped)
    verses["verses"].pop()  # type: ignore[union-attr]
    joined = next(to_documents(verses, Fields(text="verses.t"), Place(Path()), "", ""))
    assert isinstance(joined, Document) and joined.text == "a\nb"


def test_json_of_a_list_or_of_named_objects(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"data": {"rows": [{"_id": "1", "text": "x"}, "odd"]}}))
    rows = read(JsonReader, tmp_path, path="a.json", rows="data.rows")
    assert texts(rows) == ["x"] and reasons(rows) == ["not a JSON object"]
    (tmp_path / "b.json").write_text(json.dumps({"k1": {"text": "y"}, "k2": {"text": "z"}}))
    rows = read(JsonReader, tmp_path, path="b.json", fields={"id": "key"})
    assert [(row.id, row.text) for row in rows] == [("k1", "y"), ("k2", "z")]
    with pytest.raises(CorpusError, match=r"set reader\.rows"):
        read(JsonReader, tmp_path, path="a.json", rows="data.none")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
def test_a_csv_file_whose_lines_end_in_different_ways(tmp_path: Path, encoding: str) -> None:
    rows = 'id,text\r\n1,"two\nlines é"\r\n2,b\n3,c\r4,d\r\n'
    (tmp_path / "mixed.csv").write_bytes(rows.encode(encoding))
    fields = {"id": "id", "text": "text"}
    found = read(CsvReader, tmp_path, path="mixed.csv", fields=fields, encoding=encoding)
    assert texts(found) == ["two\nlines é", "b", "c", "d"] and [row.id for row in found] == ["1", "2", "3", "4"]  # type: ignore[union-attr]


def test_parquet_and_csv_agree_and_read_only_what_is_mapped(tmp_path: Path) -> None:
    duckdb.execute(
        f"COPY (SELECT '00' || i AS id, 'T' || i AS title,"
        f" 'text \"' || i || '\", x' AS body, i AS other FROM range(2500) t(i))"
        f" TO '{tmp_path}/t.parquet' (FORMAT parquet)"
    )
    duckdb.execute(f"COPY (SELECT * FROM '{tmp_path}/t.parquet') TO '{tmp_path}/t.csv' (HEADER)")
    fields = {"id": "id", "title": "title", "text": "body"}
    parquet = read(ParquetReader, tmp_path, path="t.parquet", fields=fields)
    table = read(CsvReader, tmp_path, path="t.csv", fields=fields)
    assert [(row.id, row.title, row.text) for row in parquet] == [(row.id, row.title, row.text) for row in table]
    (tmp_path / "a[1]*.parquet").write_bytes((tmp_path / "t.parquet").read_bytes())
    assert read(ParquetReader, tmp_path, path="a[[]1]*.parquet", fields=fields)[5].text == parquet[5].text
    assert (len(parquet), parquet[7].id, parquet[7].text) == (2500, "007", 'text "7", x')
    some = read(ParquetReader, tmp_path, path="t.parquet", fields=fields, where="other % 1000 = 3")
    assert [row.id for row in some] == [
        "003", "001003", "002003"
    ]  # fmt: skip
    with pytest.raises(CorpusError, match="Permission"):
        query = "id IN (SELECT body FROM read_parquet('/elsewhere/other.parquet'))"
        read(ParquetReader, tmp_path, path="t.parquet", fields=fields, where=query)
    with refused(CorpusError, "unknown_column", where="t.parquet"):
        read(ParquetReader, tmp_path, path="t.parquet", fields={"text": "wrong"})
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(CorpusError, match=r"bad\.parquet"):
        read(ParquetReader, tmp_path, path="bad.parquet", fields=fields)


@pytest.mark.parametrize(
    ("raw", "language", "encoding", "text"),
    [
        ("\ufeffwith a mark".encode(), "en", "", "with a mark"),
        ("\ufeffsixteen bits".encode("utf-16-le"), "en", "latin-1", "sixteen bits"),
        ("„café“ für €5".encode("cp1252"), "en", "", "„café“ für €5"),
        ("Привет, мир. Это текст".encode("koi8-r"), "ru", "", "Привет, мир. Это текст"),
        ("Привет, мир. Это текст".encode("cp1251"), "ru", "", "Привет, мир. Это текст"),
        ("Zażółć gęślą jaźń i jeszcze więcej".encode("iso8859-2"), "pl", "", "Zażółć gęślą jaźń i jeszcze więcej"),
        ("日本語の文章です。".encode("euc-jp"), "ja", "", "日本語の文章です。"),
        ("中文文本文件".encode("gbk"), "zh", "", "中文文本文件"),
        (b"  \n", "en", "", ("empty file", "")),
        (bytes(range(128, 256)) * 20, "en", "",
         ("unknown encoding", "tried utf-8, cp1252, iso8859_15, cp850, mac_roman; set reader.encoding")),
        ("„café“".encode("cp1252"), "en", "cp12520", ("unknown encoding", "cp12520: no such encoding")),
    ],
)  # fmt: skip
def test_marks_and_the_language_tell_encodings_apart(
    tmp_path: Path, raw: bytes, language: str, encoding: str, text: str | tuple[str, str]
) -> None:
    (tmp_path / "a.txt").write_bytes(raw)
    settings = TextReader.Settings.model_validate({"path": "a.txt", "encoding": encoding})
    (row,) = TextReader(settings, Place(tmp_path, language=language)).read()
    assert (row.text if isinstance(row, Document) else (row.reason, row.detail)) == text


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig"])
def test_a_table_in_another_encoding(tmp_path: Path, encoding: str) -> None:
    rows = "Ticket Nr;Text\n7;Größe der Tür\n8;" + "x" * (1 << 20) + "\n9;„schön“ für €5\n"
    (tmp_path / "a.csv").write_bytes(rows.encode(encoding))
    fields = {"id": "Ticket Nr", "title": None, "text": "Text"}
    for named in ["", encoding]:
        found = read(CsvReader, tmp_path, path="a.csv", fields=fields, encoding=named)
        assert [(row.id, row.text[:20]) for row in found] == [
            ("7", "Größe der Tür"), ("8", "x" * 20), ("9", "„schön“ für €5")
        ]  # fmt: skip
        assert {row.source for row in found} == {"a.csv"}
    with refused(CorpusError, "unknown_column", "Text", where=tmp_path / "a.csv"):  # the file, not a copy
        read(CsvReader, tmp_path, path="a.csv", fields={"id": "Number", "text": "Text"})
    with pytest.raises(CorpusError, match="is not an encoding"):
        read(CsvReader, tmp_path, path="a.csv", fields=fields, encoding="cp12520")
    (tmp_path / "a.csv").write_bytes(b"id,text\n1," + bytes(range(128, 256)) * 20)
    with pytest.raises(CorpusError, match="tried utf-8, cp1252"):
        read(CsvReader, tmp_path, path="a.csv", fields={"id": "id", "text": "text"})


@pytest.mark.parametrize("column", ["_id", "id", "docid"])
def test_the_id_is_found_where_the_yaml_names_no_column(tmp_path: Path, column: str) -> None:
    rows = [{column: f"p{number}", "title": "T", "text": f"text {number}"} for number in range(3)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    duckdb.execute(f"COPY (FROM '{tmp_path}/d.jsonl') TO '{tmp_path}/d.parquet' (FORMAT parquet)")
    for kind, file in ((JsonLinesReader, "d.jsonl"), (ParquetReader, "d.parquet")):
        assert [row.id for row in read(kind, tmp_path, path=file)] == ["p0", "p1", "p2"]
        hashed = read(kind, tmp_path, path=file, fields={"id": None})
        assert all(isinstance(row, Document) and len(row.id) == 16 for row in hashed)


def test_columns_that_the_yaml_names_must_exist(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Ticket Nr,Text\n7,words\n")
    (tmp_path / "a.jsonl").write_text('{"Ticket Nr": 7, "Text": "words"}\n{"Text": "more", "title": "T"}\n')
    (tmp_path / "a.json").write_text('[{"Ticket Nr": 7, "Text": "words"}]')
    for reader, name in ((CsvReader, "a.csv"), (JsonLinesReader, "a.jsonl"), (JsonReader, "a.json")):
        with pytest.raises(CorpusError, match=r"no column 'Ticket' \(did you mean 'Ticket Nr'\?\); set reader\.fields"):
            read(reader, tmp_path, path=name, fields={"id": "Ticket", "text": "Text"})
        with pytest.raises(CorpusError, match=r"no column 'zzz'.*it has .*Text, Ticket Nr"):
            read(reader, tmp_path, path=name, fields={"id": "Ticket Nr", "title": "zzz", "text": "Text"})
        assert texts(read(reader, tmp_path, path=name, fields={"text": "Text"}))[0] == "words"


def test_a_folder_of_other_files_says_what_reads_them(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a.csv", "deep/b.csv", "c.md", "d.xyz"):
        (tmp_path / name).write_text("x")
    with pytest.raises(CorpusError, match=r"none of its 4 files ends in \.txt.*`kind: csv` reads 2 of them, `"):
        read(TextReader, tmp_path, path=".")
    (tmp_path / "deep" / "odd").mkdir()
    (tmp_path / "deep" / "odd" / "e.xyz").write_text("x")
    (tmp_path / "empty").mkdir()
    for path, words in (("deep/odd", r"they are \.xyz \(1\)"), ("empty", "the folder is empty"), ("x", "no such file")):
        with pytest.raises(CorpusError, match=words):
            read(TextReader, tmp_path, path=path)


def test_markup_in_fields_goes_and_its_words_stay(tmp_path: Path) -> None:
    rows = [
        {"_id": "1", "title": "Caf&eacute; <b>one</b>", "text": "<p>First &amp; best</p><ul><li>a<li>b</ul>"},
        {"_id": "2", "title": "", "text": "no tags,\n  as it is"},
        {"_id": "3", "text": "<div>" * 600 + "deep"},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = read(JsonLinesReader, tmp_path, path="a.jsonl", fields={"markup": "html"})
    assert [(row.title, row.text) for row in found if isinstance(row, Document)][:2] == [
        ("Café one", "First & best\n\n- a\n\n- b"), ("", "no tags,\n  as it is")
    ]  # fmt: skip
    (tmp_path / "b.jsonl").write_text(json.dumps({"_id": "1", "text": "# H\n\nuse `a <b>` [x](y)"}))
    assert texts(read(JsonLinesReader, tmp_path, path="b.jsonl", fields={"markup": "markdown"})) == ["H\n\nuse a <b> x"]


def tree(folder: Path) -> Path:
    for name in ("api/index.md", "guide/index.md", "guide/a.md", "guide/a.markdown"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"the text of {name}")
    return folder


@pytest.mark.parametrize(
    ("root", "path"),
    [(".", "docs"), (".", "docs/**/*.m*"), ("corpora", "../docs"), ("corpora/deep", "../../docs/"),
     ("corpora", "../docs/**/*.m*"), ("corpora", "{here}/docs")],
)  # fmt: skip
def test_ids_are_the_paths_wherever_the_yaml_is(tmp_path: Path, root: str, path: str) -> None:
    tree(tmp_path / "docs")
    (tmp_path / root).mkdir(parents=True, exist_ok=True)
    rows = read(MarkdownReader, tmp_path / root, path=path.format(here=tmp_path))
    assert [row.id for row in rows] == [
        "docs/api/index", "docs/guide/a.markdown", "docs/guide/a.md", "docs/guide/index"
    ]  # fmt: skip
    assert all(row.source.startswith("docs/") for row in rows)


@pytest.mark.parametrize("path", ["..", "../a", "../a/../a/x.md", "../*/x.md", "../a/[x].md"])
def test_an_id_never_leaves_the_folder(tmp_path: Path, path: str) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    (tmp_path / "a" / "x.md").write_text("text")
    (row,) = read(MarkdownReader, tmp_path / "b", path=path)
    assert row.id == "a/x"


PAGE = """<html><head><title>Page</title><style>p {}</style></head><body><nav>Menu <a>Home</a></nav>
<h1>Head</h1><p>One <b>two</b>
three.<script>alert(1)</script></p><div class="toc">skip me</div><ul><li>first</li><li>second</li></ul>
<table><tr><th>a</th><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>
<pre>x =  1
  y</pre><dl><dt>term</dt><dd>meaning</dd></dl>stray &lt;tag&gt;<footer>imprint</footer></body></html>"""


def test_html_keeps_text_and_drops_furniture() -> None:
    title, blocks = html_blocks(PAGE, remove=[".toc"])
    assert title == "Head"
    assert [block.text for block in blocks] == [
        "Head", "One two three.", "- first", "- second", "a | b", "c | d",
        "x =  1\n  y", "term", "meaning", "stray <tag>"
    ]  # fmt: skip
    assert blocks[0].level == 1 and blocks[7].joins
    signs = (
        '<body><h1>Queues<a class="headerlink" href="#q" title="Link to this heading">¶</a></h1>'
        '<h2><a class="header-anchor" href="#a">A linked heading</a></h2><p>Text.</p></body>'
    )
    assert [block.text for block in html_blocks(signs)[1]] == ["Queues", "A linked heading", "Text."]


def documents_first(rows: list[Document | Dropped]) -> list[Any]:
    return sorted(rows, key=lambda row: isinstance(row, Dropped))


SITE = """<html><head><title>Hives | Bee site</title></head><body>
<div class="top"><a href="/">Home</a> <a href="/shop">Shop of all things for bees</a>
<a href="/x">Sign in to your account</a></div>
<div class="content"><h1>Hives</h1>
<p>A hive is where bees live. It has frames that hold the comb, and a floor that keeps the damp away from the brood.</p>
<p>Bees keep the hive at a temperature of about thirty-five degrees, whatever the weather is outside of it.</p>
<table><tr><td>A frame</td><td>holds the comb that the bees build in summer</td></tr></table>
<pre>hive --open &lt;frame&gt;</pre></div>
<div class="bottom">Follow us <a href="/a">on the network of bees</a> <a href="/b">and on the other one</a></div>
</body></html>"""


@pytest.mark.parametrize(
    ("extract", "chrome"), [(None, False), ("main", False), ("trafilatura", False), ("page", True)]
)
def test_the_furniture_of_a_site_goes_and_the_text_stays(tmp_path: Path, extract: str | None, chrome: bool) -> None:
    pytest.importorskip("trafilatura")
    (tmp_path / "a.html").write_text(SITE)
    row, *left = documents_first(read(HtmlReader, tmp_path, path=".", extract=extract))
    assert isinstance(row, Document) and row.title == "Hives"
    for words in ("where bees live", "thirty-five degrees", "comb that the bees build", "hive --open <frame>"):
        assert words in row.text
    assert ("Follow us" in row.text, "Sign in" in row.text) == (chrome, chrome)
    shown = " ".join(part.text for part in left)
    assert ("Follow us" in shown, "Sign in" in shown) == (not chrome, not chrome)
    row, *left = documents_first(read(HtmlReader, tmp_path, path=".", content=".bottom"))  # who names it gets all of it
    assert "where bees live" in left[0].text and row.text == "Follow us on the network of bees and on the other one"


def test_depth(tmp_path: Path) -> None:
    _, blocks = html_blocks("<div>" * 5000 + "deep" + "</div>" * 5000)  # deeper than Python's stack
    assert [block.text for block in blocks] == ["deep"]
    (tmp_path / "a.jsonl").write_text(json.dumps({"title": "<div>" * 100_000, "text": "fine"}))
    assert reasons(read(JsonLinesReader, tmp_path, path="a.jsonl", fields={"markup": "html"})) == ["nested too deep"]
    drawing = "<svg>" + "<path d='M 0 0'/><circle r='1'/>" * 5000 + "</svg>"
    assert [block.text for block in html_blocks(f"<p>before{drawing}</p><p>after</p>")[1]] == ["before", "after"]
    for start in ("<svg/>", "<svg><p>", "<svg><title>", ""):
        with pytest.raises(Unusable, match="levels of nested elements"):
            html_blocks(start + "<path/>" * 400_000)


def test_html_in_a_declared_encoding_and_without_text(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes('<meta charset="koi8-r"><p>Привет, мир'.encode("koi8-r"))
    (tmp_path / "b.html").write_text("<html><body><nav>only a menu</nav></body></html>")
    rows = read(HtmlReader, tmp_path, path=".")
    assert texts(rows) == ["Привет, мир"]
    assert reasons(rows) == ["navigation", "no text in the page"]


def pdf(pages: list[list[str]], locked: bool = False) -> bytes:
    """A PDF made of text lines, by hand; PDFium repairs the missing table."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b""]
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 850] /Contents %d 0 R /Resources << /Font << /F1 << "
    page += b"/Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>"
    for lines in pages:
        content = b"BT /F1 12 Tf 50 800 Td " + b" ".join(b"(%s) Tj 0 -20 Td" % line.encode() for line in lines) + b" ET"
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
        objects.append(page % len(objects))
    kids = b" ".join(b"%d 0 R" % number for number in range(4, len(objects) + 1, 2))
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(pages))
    body = b"".join(b"%d 0 obj\n%s\nendobj\n" % (number, one) for number, one in enumerate(objects, 1))
    key = b"/ID [<00> <00>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <%s> /U <%s> >>" % (b"0" * 64, b"0" * 64)
    return b"%%PDF-1.4\n%strailer << /Root 1 0 R %s >>\n%%%%EOF" % (body, key if locked else b"")


def test_pdf_text_without_running_heads_and_broken_words(tmp_path: Path) -> None:
    words = ["alpha", "beta", "gamma", "delta", "epsilon"]
    pages = [
        ["A Running Head", f"The {word} begins and is contin-", "ued here.", f"{n}"] for n, word in enumerate(words)
    ]
    (tmp_path / "book.pdf").write_bytes(pdf(pages))
    left, row = read(PdfReader, tmp_path, path=".")
    assert isinstance(row, Document) and left.text.split("\n")[:2] == ["A Running Head", "0"]
    assert row.text == "\n".join(f"The {word} begins and is continued here." for word in words)
    by_page = read(PdfReader, tmp_path, path=".", split="pages")
    assert [row.id for row in by_page][1:3] == ["book#page=1", "book#page=2"]
    assert join_pages(["Title\nsame", "Title\nother"])[0] == ["Title\nsame", "Title\nother"]  # of two pages none runs


def test_pdf_with_a_password_damaged_or_scanned_is_dropped_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf([["secret"]], locked=True))
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.4 nothing")
    (tmp_path / "c.pdf").write_bytes(pdf([[]]))
    assert reasons(read(PdfReader, tmp_path, path=".")) == ["password needed", "damaged PDF", "no text in the PDF"]


def test_a_damaged_page_is_counted_and_the_others_are_read(tmp_path: Path) -> None:
    good = pdf([["one"], ["two"], ["three"]])
    second = good.index(b"/Type /Page /Parent", good.index(b"/Type /Page /Parent") + 1)
    (tmp_path / "a.pdf").write_bytes(good[:second] + b"/Type /Pane" + good[second + 11 :])
    rows = read(PdfReader, tmp_path, path=".", split="pages")
    assert texts(rows) == ["one", "three"]
    assert [(row.reason, row.position) for row in rows if isinstance(row, Dropped)] == [("damaged page", "page 2")]


WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def docx(body: str, before: str = "") -> bytes:
    """A Word document with this body, by hand."""
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{one}"><w:name w:val="{name}"/></w:style>'
        for one, name in (("T", "Title"), ("H1", "heading 1"))
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/styles.xml", f'<w:styles xmlns:w="{WORD}">{styles}</w:styles>')
        document = f'{before}<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
        archive.writestr("word/document.xml", document)
    return out.getvalue()


def paragraph(text: str, style: str = "") -> str:
    look = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{look}<w:r><w:t>{text}</w:t></w:r></w:p>"


def test_word_documents_keep_headings_tables_and_controls(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    cells = "".join(f"<w:tc>{paragraph(text)}</w:tc>" for text in ("left", "right"))
    body = (
        paragraph("The &lt;Title&gt;", "T") + paragraph("Part", "H1") + paragraph("Some text.")
        + f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>"
        + f"<w:sdt><w:sdtContent>{paragraph('In a control.')}</w:sdtContent></w:sdt>"
    )  # fmt: skip
    (tmp_path / "a.docx").write_bytes(docx(body))
    (row,) = read(DocxReader, tmp_path, path=".")
    assert isinstance(row, Document)
    assert (row.id, row.title) == ("a", "The <Title>")
    assert row.text == "The <Title>\n\nPart\n\nSome text.\n\nleft | right\n\nIn a control."
    assert row.outline == ((1, "The <Title>"), (1, "Part"))


def test_word_documents_that_cannot_be_read_are_dropped(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    bomb = "<!DOCTYPE b [" + '<!ENTITY a0 "ha">'
    bomb += "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12)) + "]>"
    (tmp_path / "a.docx").write_bytes(docx(paragraph("&a11;"), bomb))
    (tmp_path / "b.docx").write_bytes(b"PK nothing")
    (tmp_path / "c.docx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    (tmp_path / "d.docx").write_bytes(docx(paragraph("word " * 2_000_000)))
    (tmp_path / "e.docx").write_bytes(docx(""))
    found = read(DocxReader, tmp_path, path=".", max_bytes=4_000_000)
    assert reasons(found) == [
        "damaged document", "damaged document", "password needed", "too large", "no text in the document"
    ]  # fmt: skip


def epub(path: Path, entity: bool = False, repeated: str = "", first: str = "First.", more: int = 0) -> None:
    """A book of two chapters; `repeated`: spine entries that come again; `more`: entries of chapters that are none."""
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
    )
    opf = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
        "<dc:title>The Book</dc:title></metadata><manifest>"
        '<item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
        '<item id="b" href="text/two%20b.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="a" href="text/one.xhtml" media-type="application/xhtml+xml"/>'
        + "".join(f'<item id="m{i}" href="{i}.xhtml" media-type="application/xhtml+xml"/>' for i in range(more))
        + '</manifest><spine><itemref idref="n"/><itemref idref="a"/><itemref idref="b"/>'
        + repeated
        + "".join(f'<itemref idref="m{i}"/>' for i in range(more))
        + "</spine></package>"
    )
    if entity:
        opf = '<!DOCTYPE p [<!ENTITY e SYSTEM "file:///etc/passwd">]>' + opf
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("META-INF/container.xml", container)
        book.writestr("OEBPS/book.opf", opf)
        book.writestr("OEBPS/nav.xhtml", "<p>Contents</p>")
        book.writestr("OEBPS/text/one.xhtml", f"<h1>One</h1><p>{first}</p>", zipfile.ZIP_DEFLATED)
        book.writestr("OEBPS/text/two b.xhtml", "<h1>Two</h1><p>Second.</p>")


def test_epub_in_reading_order(tmp_path: Path) -> None:
    epub(tmp_path / "b.epub", repeated='<itemref idref="a"/><itemref idref="b"/>' * 1000)  # each is read once
    contents, whole = read(EpubReader, tmp_path, path=".")
    assert (contents.reason, contents.text) == ("table of contents", "Contents")
    assert (whole.id, whole.title, whole.text) == ("b", "The Book", "One\n\nFirst.\n\nTwo\n\nSecond.")
    _, *chapters = read(EpubReader, tmp_path, path=".", split="chapters")
    assert [(row.id, row.title) for row in chapters] == [("b#1", "The Book > One"), ("b#2", "The Book > Two")]


def test_a_book_that_is_a_bomb_declares_entities_or_is_damaged_is_dropped(tmp_path: Path) -> None:
    """One small file of a chapter with 16 MB of spaces, and one whose spine has 5,001 chapters."""
    epub(tmp_path / "a.epub", first=" " * (16 << 20))
    epub(tmp_path / "b.epub", more=4999)
    assert (tmp_path / "a.epub").stat().st_size < 20_000
    epub(tmp_path / "c.epub", entity=True)
    (tmp_path / "d.epub").write_bytes(b"PK\x03\x04 half a book")
    rows = read(EpubReader, tmp_path, path=".")
    assert reasons(rows) == ["damaged EPUB"] * 4
    details = [row.detail for row in rows if isinstance(row, Dropped)]
    assert "text/one.xhtml unpacks to more than 16 MB" in details[0]
    assert "the book has more than 5000 chapters" in details[1]


def test_a_beir_folder(tmp_path: Path) -> None:
    rows = b'{"_id": "1", "title": "T", "text": "a"}\n{"_id": "2", "text": "b"}\n'
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "corpus.jsonl.gz").write_bytes(gzip.compress(rows))
    (tmp_path / "set" / "queries.jsonl").write_text('{"_id": "q", "text": "not read"}')
    found = read(BeirReader, tmp_path, path="set")
    assert [(row.id, row.title, row.text) for row in found] == [("1", "T", "a"), ("2", "", "b")]
    (tmp_path / "set" / "corpus.jsonl").write_bytes(rows)
    with pytest.raises(CorpusError, match=r"2 files named corpus\.jsonl"):
        read(BeirReader, tmp_path, path="set")


def test_a_data_set_on_disk(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"text": ["a", "b", None], "key": [1, 2, 3]}
    datasets.DatasetDict({"dev": datasets.Dataset.from_dict(rows)}).save_to_disk(str(tmp_path / "saved"))
    found = read(DatasetsReader, tmp_path, path="saved", split="dev", fields={"id": "key", "title": None})
    assert [(row.id, row.text) for row in found if isinstance(row, Document)] == [("1", "a"), ("2", "b")]
    assert reasons(found) == ["missing text"]
    with pytest.raises(CorpusError, match="split 'train'"):
        read(DatasetsReader, tmp_path, path="saved")


def test_a_shared_collection_reads_whole(shared: Path) -> None:
    found = read(BeirReader, shared / "collections", path="scifact")
    assert len(texts(found)) == 5183 and not reasons(found)

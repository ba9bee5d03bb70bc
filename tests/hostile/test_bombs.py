"""A small file that unpacks to much ends in a counted skip, or in one line, within bounded memory.

Each case is read in a process of its own, which says how much memory it had at most: the libraries of some readers
take memory that Python does not see.
"""

import gzip
import json
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from beir_folder import write_beir
from child import finish

from airgen.corpus.readers import pdf_child
from airgen.corpus.readers.pdf import PdfReader
from airgen.corpus.readers.reader import Place
from airgen.dataset.beir import BeirDataset
from airgen.errors import AirgenError
from airgen.evaluation import read_run
from airgen.storage.records import Document, Dropped

MB = 1 << 20
CHILD = """
import importlib, json, re, resource, sys
from pathlib import Path
from airgen.corpus.readers.reader import Place
from airgen.errors import AirgenError
from airgen.storage.records import Dropped
module, name, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
reader = getattr(importlib.import_module("airgen.corpus.readers." + module), name)
limit = 3 << 30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))  # no machine comes into distress where a bound is missing
found = []
try:
    for row in reader(reader.Settings.model_validate(settings), Place(Path(), licence="CC0-1.0", language="en")).read():
        found.append(row.reason if isinstance(row, Dropped) else "document")
except AirgenError as error:
    found.append(str(error))
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())  # ru_maxrss begins with the parent's
print(json.dumps([sorted(set(found)), int(peak[1]) >> 10]))
"""


def zipped(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def squeezed(unit: bytes, megabytes: int, start: bytes = b"", end: bytes = b"") -> bytes:
    """Repetitions of a unit as gzip, one member a megabyte."""
    return gzip.compress(start) + gzip.compress(unit * (MB // len(unit))) * megabytes + gzip.compress(end)


def gz(*words: Any) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(squeezed(*words))


def page_of_a_pdf(path: Path) -> None:
    """One page of ten million letters in 11 kB."""
    words = zlib.compress(b"BT /F1 1 Tf " + (b"(" + b"a" * 30_000 + b") Tj ") * 333 + b"ET", 9)
    parts = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Resources<</Font<</F1 5 0 R>>>>/Contents 4 0 R>>",
        b"<</Length %d/Filter/FlateDecode>>stream\n%b\nendstream" % (len(words), words),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    body = b"".join(b"%d 0 obj\n%b\nendobj\n" % (number, part) for number, part in enumerate(parts, 1))
    path.write_bytes(b"%PDF-1.4\n" + body + b"trailer <</Root 1 0 R>>\n%%EOF")  # PDFium repairs the missing table


def parquet(path: Path) -> None:
    with duckdb.connect() as database:
        database.execute(f"COPY (SELECT repeat('a', 20000000) AS text FROM range(60)) TO '{path}' (COMPRESSION zstd)")


def book(unit: bytes, chapters: int = 10) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        container = (
            b'<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            b'<rootfile full-path="b.opf"/></rootfiles></container>'
        )
        names = [f"{number}.xhtml" for number in range(chapters)]
        items = "".join(f'<item id="i{name}" href="{name}" media-type="application/xhtml+xml"/>' for name in names)
        spine = "".join(f'<itemref idref="i{name}"/>' for name in names)
        package = f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{spine}</spine></package>'
        texts = dict.fromkeys(names, unit * (12 * MB // len(unit)))
        zipped(path, {"META-INF/container.xml": container, "b.opf": package.encode(), **texts})

    return write


def word(unit: bytes, size: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        body = b'<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>'
        zipped(path, {"word/document.xml": body + unit * (size * MB // len(unit)) + b"</w:body></w:document>"})

    return write


CASES = {
    "JSON line": ("json_records", "JsonLinesReader", "f.jsonl.gz", gz(b" ", 200, b'{"text": "'), "too large"),
    "JSON values": (
        "json_records",
        "JsonReader",
        "f.json.gz",
        gz(b"[],", 120, b"[", b"[]]"),
        "JSON values; convert it",
    ),
    "CSV field": ("tabular", "CsvReader", "f.csv.gz", gz(b"a", 200, b'text\n"'), "cannot be read"),
    "CSV field of many lines": ("tabular", "CsvReader", "f.csv.gz", gz(b"a" * 99 + b"\n", 12, b'text\n"'), "document"),
    "Parquet value": ("tabular", "ParquetReader", "f.parquet", parquet, "too large"),
    "text": ("light_markup", "TextReader", "f.txt.gz", gz(b"a", 200), "too large"),
    "Markdown": ("markdown", "MarkdownReader", "f.md.gz", gz(b"a", 200), "too large"),
    "HTML": ("html", "HtmlReader", "f.html.gz", gz(b"<p>a", 12), "too large"),
    "PDF": ("pdf", "PdfReader", "f.pdf.gz", gz(b"a", 300, b"%PDF-1.4\n"), "too large"),
    "Word document": ("word_and_epub", "DocxReader", "f.docx", word(b"a", 200), "too large"),
    "elements of a Word document": ("word_and_epub", "DocxReader", "f.docx", word(b"<w:p/>", 60), "too large"),
    "chapters of a book": ("word_and_epub", "EpubReader", "f.epub", book(b" ", 30), "too large"),
    "elements of a chapter": ("word_and_epub", "EpubReader", "f.epub", book(b"<p>a"), "too large"),
    "elements of a book": ("word_and_epub", "EpubReader", "f.epub", book(b"<p>" + b"a" * 29), "too large"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_bomb_for_a_reader(name: str, tmp_path: Path) -> None:
    module, reader, file, write, reason = CASES[name]
    for package in {"html": ("selectolax",), "pdf": ("pypdfium2",), "office": ("mammoth",)}.get(module, ()):
        pytest.importorskip(package)
    write(tmp_path / file)
    assert (tmp_path / file).stat().st_size < 2 * MB
    settings = json.dumps({"path": file, **({"fields": {"text": "text"}} if module == "tabular" else {})})
    ended = finish(CHILD, module, reader, settings, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr[-2000:]
    found, peak = json.loads(ended.stdout)
    assert len(found) == 1 and reason in found[0] and "\n" not in found[0], found
    assert peak < 1000, f"{peak} MB"


def endless_pdf(path: Path) -> None:
    """A form that draws another ten times, which draws another ten times, ...: little memory, and much work."""
    forms = [b"/X Do " * 10] * 5 + [b"q Q " * 25_000]
    parts = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</XObject<</X 5 0 R>>>>>>",
        b"<</Length 5>>stream\n/X Do\nendstream",
    ]
    for number, form in enumerate(forms, 6):
        about = b"/Resources<</XObject<</X %d 0 R>>>>" % number
        parts.append(b"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]%s/Length %d>>stream\n" % (about, len(form)))
        parts[-1] += form + b"\nendstream"
    body = b"".join(b"%d 0 obj\n%s\nendobj\n" % (number, part) for number, part in enumerate(parts, 1))
    path.write_bytes(b"%PDF-1.4\n" + body + b"trailer <</Root 1 0 R>>\n%%EOF")


def test_a_pdf_that_takes_for_ever_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pypdfium2")
    pytest.importorskip("resource")
    monkeypatch.setattr(pdf_child, "SECONDS", 1)
    endless_pdf(tmp_path / "a.pdf")
    place = Place(tmp_path, licence="CC0-1.0", language="en")
    rows = list(PdfReader(PdfReader.Settings(path="."), place).read())
    found = [(row.source, row.reason, row.detail) for row in rows if isinstance(row, Dropped)]
    assert found == [("a.pdf", "takes too long", "page 1 was not read within 1 s of processor time")]


def test_the_pdf_files_after_a_bomb_are_read(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    for number, name in enumerate(("a", "c", "d"), 1):
        page_of_a_pdf(tmp_path / f"{name}.pdf")
        whole = (tmp_path / f"{name}.pdf").read_bytes()
        start, end = whole.index(b"stream\n") + 7, whole.index(b"\nendstream")
        text = zlib.compress(b"BT /F1 9 Tf (Lamp %d burns) Tj ET" % number)
        (tmp_path / f"{name}.pdf").write_bytes(whole[:start] + text + whole[end:])
    page_of_a_pdf(tmp_path / "b.pdf")
    place = Place(tmp_path, licence="CC0-1.0", language="en")
    rows = list(PdfReader(PdfReader.Settings(path="."), place).read())
    assert [row.text for row in rows if isinstance(row, Document)] == ["Lamp 1 burns", "Lamp 2 burns", "Lamp 3 burns"]
    assert [(row.source, row.reason, row.detail) for row in rows if isinstance(row, Dropped)] == [
        ("b.pdf", "too large", "page 1 needs more than 1,024 MB of memory")
    ]


@pytest.mark.parametrize("name", ["corpus.jsonl.gz", "queries.jsonl.gz", "qrels", "run"])
def test_a_bomb_in_a_public_dataset(name: str, tmp_path: Path) -> None:
    home = write_beir(
        tmp_path / "d", [{"_id": "p", "text": "a"}], [{"_id": "q", "text": "a"}], {"test": [("q", "p", 1)]}
    )
    zeros = squeezed(b"\0", 200)
    path = home / ("qrels/test.tsv" if name == "qrels" else name)
    path.unlink(missing_ok=True)
    path = path.with_name(path.name + ".gz") if name == "run" else path
    if name.endswith(".gz"):
        path.with_suffix("").unlink()
    path.write_bytes(bytes(200 * MB) if name == "qrels" else zeros)
    tracemalloc.start()
    try:
        with pytest.raises(AirgenError, match=r"a line of more than 64 MB; refused"):
            if name == "run":
                read_run(path)
            else:
                dataset = BeirDataset.open(home)
                print(dataset.qrels("test"), dataset.queries("test"), list(dataset.passages()))
        assert tracemalloc.get_traced_memory()[1] < 200 * MB
    finally:
        tracemalloc.stop()

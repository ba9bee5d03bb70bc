"""Ctrl-C ends every command soon, whatever it is doing, with exit code 3 and one line.

Each test starts the real command on an input that keeps it busy for long, or for ever. A function inside the command
says when it begins, and when it ends, which it must not do: then the process waited for it. A name with `!` is a
function of compiled code; it never ends, and does not look at signals.
"""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from child import start
from dataset_maker import make_content
from job_maker import CORPUS, LEXICAL, make_corpus

from airgen.dataset.write import write_dataset
from airgen.text.token_counts import shipped_vocabulary

CHILD = """
import ctypes, importlib, sys, threading
name, *sys.argv[1:] = sys.argv[1:]
never = name.startswith("!")
name = name.removeprefix("!")
if name:
    module, _, name = name.partition(":")
    owner = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    plain = getattr(owner, last)
    def marked(*args, **options):
        if never:  # a lock of C, taken twice: no signal ends it, and Python's handler is not reached
            lock, libc = ctypes.create_string_buffer(256), ctypes.CDLL(None)
            libc.pthread_mutex_lock(lock)
            threading.Timer(0.2, print, ["began"], {"flush": True}).start()
            libc.pthread_mutex_lock(lock)
        print("began", flush=True)
        found = plain(*args, **options)
        print("ended", flush=True)
        return found
    setattr(owner, last, marked)
from airgen.cli import main
main()
"""
# Third-party calls that never return, as with a large model on a slow machine.
STUCK = """
import threading
import numpy as np
from airgen.retrievers.component import Component

class Stuck(Component):
    name, dim = "stuck", 4
    def stop(self, *words):
        print("began", flush=True)
        threading.Event().wait()
    def encode(self, texts, kind):
        return np.full((len(texts), 4), 0.5, np.float32) if len(texts) < 5 else self.stop()
    def score(self, pairs):
        return np.zeros(len(pairs), np.float32) if len(pairs) < 5 else self.stop()
    index = search = stop
    def describe(self):
        return {"stuck": True}
"""


def assert_heard(folder: Path, marked: str, *words: str) -> str:
    """Interrupt the command when the function `marked` (module:name) begins; returns what it said."""
    with start(CHILD, marked, *words, cwd=folder) as child:
        for line in child.stdout:
            if line == "began\n":
                child.send_signal(signal.SIGINT)
                break
        printed, said = child.stdout.read(), child.stderr.read()
    assert "ended" not in printed, (printed, said)
    assert child.returncode == 3, (child.returncode, printed, said)
    assert said.count("airgen: stopped by the user") == 1, said
    assert "Traceback" not in said and "Exception" not in said, said
    return said


HOSTILE = {
    "a word of 4 MB": ("a", {"tokenizer": "cl100k_base"}, "!tiktoken:Encoding.encode_ordinary"),
    "addresses": ("12:30:45:a ", {}, "airgen.corpus.cleaning.mask_personal_data:mask"),
    "marks": ("e\u0315\u0300", {}, "airgen.corpus.cleaning.filters:normalise"),
    "brackets": ("[a](", {"reader": {"kind": "markdown"}}, "airgen.corpus.readers.markdown:markdown_page"),
    "tables": ("<td>a<p>", {"reader": {"kind": "html"}}, "!airgen.corpus.readers.html:html_page"),
    "a page of a PDF": ("", {"reader": {"kind": "pdf"}}, "!airgen.corpus.readers.pdf:_answer"),
    "a JSON of 60 MB": ("", {"reader": {"kind": "json"}}, "airgen.tables.json_files:parsed"),
}


def small_pdf() -> bytes:
    """One empty page; PDFium repairs the missing table."""
    return (
        b"%PDF-1.4\n1 0 obj <</Type/Catalog/Pages 2 0 R>> endobj\n2 0 obj <</Type/Pages/Kids[3 0 R]/Count 1>> endobj\n"
        b"3 0 obj <</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>> endobj\ntrailer <</Root 1 0 R>>\n%%EOF"
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_while_a_corpus_is_prepared(name: str, tmp_path: Path) -> None:
    unit, settings, marked = HOSTILE[name]
    kind = settings.get("reader", {}).get("kind", "jsonl")
    if kind in ("html", "pdf"):
        pytest.importorskip({"html": "selectolax", "pdf": "pypdfium2"}[kind])
    if "tokenizer" in settings and not shipped_vocabulary():
        pytest.skip("tiktoken's vocabulary is not here")
    text = unit * (4_000_000 // len(unit.encode())) if unit else ""
    path = tmp_path / f"f.{'md' if kind == 'markdown' else kind}"
    if kind == "jsonl":
        path.write_text(json.dumps({"_id": "a", "text": text}, ensure_ascii=False) + "\n", encoding="utf-8")
    elif kind == "pdf":
        path.write_bytes(small_pdf())
    elif kind == "json":
        path.write_text("[" + '{"a":{}},' * 7_000_000 + "{}]")
    else:
        path.write_text(text)
    value = {
        "name": "big", "language": "en", "domain": "d", "licence": "CC0-1.0", "source": "s", "tokenizer": "words",
        "clean": {"language": "off", "offensive_share": "off"}, **settings,
    }  # fmt: skip
    value["reader"] = {"kind": kind, "path": path.name}
    (tmp_path / "big.yaml").write_text(json.dumps(value))
    assert_heard(tmp_path, marked, "show", "corpus", "big.yaml")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    make_corpus(tmp_path / "small.jsonl", 30)
    (tmp_path / "small.yaml").write_text(CORPUS, encoding="utf-8")
    (tmp_path / "stuck.py").write_text(STUCK, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("step", ["recall", "re-ranking"])
def test_while_a_job_computes(step: str, job: Path) -> None:
    old = {"recall": "pools_only: true", "re-ranking": "rerankers: [bm25]"}[step]
    new = {"recall": 'model: {kind: "stuck:Stuck"}', "re-ranking": 'rerankers: [{kind: "stuck:Stuck"}]'}[step]
    (job / "job.yaml").write_text(LEXICAL.replace("target: 4", "target: 2").replace(old, new), encoding="utf-8")
    assert_heard(job, "", "run", "job.yaml")


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("slow", "marked"),
    [
        ({"kind": "stuck:Stuck"}, ""),
        ({"kind": "rerank", "first": "bm25", "reranker": {"kind": "stuck:Stuck"}}, ""),
        ({"kind": "http", "query_field": "q", "hits_path": "hits"},
         "airgen.evaluation.search_service:SearchService._hits"),
    ],
    ids=["stuck", "rerank", "a silent service"],
)  # fmt: skip
def test_while_systems_are_evaluated(
    slow: dict[str, object], marked: str, dataset: Path, job: Path, silent: str
) -> None:
    url = {"url": silent} if slow["kind"] == "http" else {}
    systems = [{"name": "bm25", "kind": "bm25"}, {"name": "slow", **slow, **url}]
    (job / "systems.yaml").write_text(json.dumps({"systems": systems}))
    assert_heard(job, marked, "evaluate", str(dataset), "--systems", "systems.yaml")


def test_while_a_corpus_is_fetched(tmp_path: Path, silent: str) -> None:
    value = {
        "name": "far", "language": "en", "domain": "d", "licence": "CC0-1.0", "source": "s",
        "reader": {"kind": "jsonl", "path": "f.jsonl"},
        "fetch": {"kind": "url", "url": f"{silent}/f.jsonl", "sha256": "0" * 64},
    }  # fmt: skip
    (tmp_path / "far.yaml").write_text(json.dumps(value))
    assert_heard(tmp_path, "httpx2:HTTPTransport.handle_request", "fetch", "far.yaml")


def test_while_holes_are_judged(dataset: Path, job: Path) -> None:
    judge = "import threading\ndef judge(query, text):\n    print('began', flush=True)\n    threading.Event().wait()\n"
    (job / "waiting.py").write_text(judge, encoding="utf-8")
    labels = (dataset / "qrels" / "test.tsv").read_text().splitlines()[1:]
    rows = (dataset / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    passages = [json.loads(row)["_id"] for row in rows]
    query = labels[0].split("\t")[0]
    (job / "x.run").write_text("".join(f"{query} Q0 {key} 1 {n}.5 x\n" for n, key in enumerate(passages)))
    assert_heard(job, "", "audit", "holes", str(dataset), "--run", "x.run", "--judge", "waiting:judge", "--depth", "99")


def test_while_a_dataset_is_published(tmp_path: Path, silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_ENDPOINT", silent)
    monkeypatch.setenv("HF_TOKEN", "hf_" + "g" * 34)
    write_dataset(tmp_path / "d", make_content())
    words = ("publish", "d", "--repo", "org/name", "--yes")
    assert_heard(tmp_path, "airgen.publishing.hub:Hub._info", *words)

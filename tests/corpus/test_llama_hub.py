"""Readers of LlamaHub and node parsers of LlamaIndex, the real ones, and some that misbehave."""

import http.server
import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from corpus_maker import corpus, prose
from packages import package
from pydantic import ValidationError

from airgen.corpus import prepare
from airgen.corpus.chunking import chunks
from airgen.corpus.readers.llama_hub import unattended
from airgen.corpus.requirements import missing, source_digest
from airgen.corpus.settings import CorpusSettings
from airgen.errors import CorpusError, SettingsError
from airgen.settings.base import validate
from airgen.storage.records import Dropped, Passage

package("llama_index.core")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def rows(folder: Path, reader: str, **more: Any) -> list[Passage | Dropped]:
    own = {name: more.pop(name) for name in ("arguments", "load", "id", "title", "max_bytes") if name in more}
    return list(prepare(corpus(folder, {"kind": "llama-index", "reader": reader, **own}, **more), "qa"))


def ids(found: list[Passage | Dropped]) -> list[str]:
    return [row.id for row in found]


FILES = "llama_index.core.readers:SimpleDirectoryReader"


def test_files_with_stable_ids_and_a_digest_of_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("b.txt", "a.txt"):
        (tmp_path / "docs" / name).write_text(prose(len(name) + ord(name[0])))
    reader = {"kind": "llama-index", "reader": FILES, "arguments": {"input_dir": "./docs"}}
    settings = corpus(tmp_path, reader)
    assert missing(settings, "qa") == []
    found = [list(prepare(settings, "qa")) for _ in range(2)]
    assert found[0] == found[1] and ids(found[0]) == ["docs/a.txt", "docs/b.txt"]
    assert [row.title for row in found[0]] == ["a.txt", "b.txt"]  # type: ignore[union-attr]
    before = source_digest(settings)
    (tmp_path / "docs" / "a.txt").write_text(prose(1))
    assert source_digest(settings) != before


def test_a_vault_of_obsidian(tmp_path: Path) -> None:
    pytest.importorskip("llama_index.readers.obsidian")
    notes = tmp_path / "vault"
    (notes / "garden").mkdir(parents=True)
    (notes / "Bees.md").write_text(f"# Bees\n\n{prose(1)}\n")
    (notes / "garden" / "Bees.md").write_text(f"# Bees again\n\n{prose(2)} See [[Bees]].\n")
    found = rows(tmp_path, "llama_index.readers.obsidian:ObsidianReader", arguments={"input_dir": "./vault"})
    assert sorted(ids(found)) == ["vault/Bees.md", "vault/garden/Bees.md"]
    assert {row.title for row in found if isinstance(row, Passage)} == {"Bees"}


def test_a_database_whose_address_is_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llama_index.readers.database")
    file = tmp_path / "secret-name.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE page (id INTEGER, title TEXT, body TEXT)")
        database.executemany("INSERT INTO page VALUES (?, ?, ?)", [(7, "Wax", prose(3)), (9, "Hive", prose(4))])
    database.close()
    reader = "llama_index.readers.database:DatabaseReader"
    load = {
        "query": "SELECT id, title, body FROM page ORDER BY id", "metadata_cols": ["id", "title"],
        "excluded_text_cols": ["id", "title"],
    }  # fmt: skip
    monkeypatch.setenv("WIKI_DATABASE", f"sqlite:///{file}")
    found = rows(tmp_path, reader, arguments={"uri": "${WIKI_DATABASE}"}, load=load, id="id")
    assert [(row.id, row.title) for row in found if isinstance(row, Passage)] == [("7", "Wax"), ("9", "Hive")]
    monkeypatch.setenv("WIKI_DATABASE", f"nonsense:///{file}?password=hunter2-hunter2")
    with pytest.raises(CorpusError, match=r"^reader llama_index.readers.database:DatabaseReader: ") as at:
        rows(tmp_path, reader, arguments={"uri": "${WIKI_DATABASE}"}, load=load)
    assert "hunter2" not in str(at.value) and "secret-name" not in str(at.value) and "\n" not in str(at.value)
    monkeypatch.delenv("WIKI_DATABASE")
    settings = corpus(tmp_path, {"kind": "llama-index", "reader": reader, "arguments": {"uri": "${WIKI_DATABASE}"}})
    assert missing(settings, "qa") == ["reader: the environment variable WIKI_DATABASE is not set"]


@pytest.fixture
def site() -> Iterator[str]:
    """A web site of two pages on loopback."""
    pages = {
        f"/{name}": f"<html><title>{name}</title><p>{prose(number)}</p></html>" for number, name in enumerate("ab")
    }

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path, "").encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_web_pages(site: str, tmp_path: Path) -> None:
    try:
        from llama_index.readers.web import SimpleWebPageReader
    except ImportError as error:
        pytest.skip(f"the package imports all of its readers' libraries: {error}")
    assert SimpleWebPageReader
    pytest.importorskip("html2text")
    urls = [f"{site}/a", f"{site}/b"]
    reader = "llama_index.readers.web:SimpleWebPageReader"
    found = rows(tmp_path, reader, arguments={"html_to_text": True}, load={"urls": urls})
    assert ids(found) == urls


OWN = '''
from urllib.parse import quote
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

class Pages(BaseReader):
    """Random ids, the same address twice, and one page without any."""
    def __init__(self, token=None, broken=False):
        self.token, self.broken = token, broken
    def load_data(self, count=1):
        if self.broken:
            raise PermissionError(f"401 for token {self.token}")
        address = {"url": "https://example.org/a", "title": "A"}
        return [Document(text=text, metadata=address) for text in TEXTS[:2]] + [Document(text=TEXTS[2])][:count]

class Telling(BaseReader):
    """Puts what it was given wherever a document has room for it."""
    def __init__(self, token, wiki):
        self.token, self.wiki = token, wiki
    def load_data(self):
        about = {"url": f"{self.wiki}/a?token={self.token}", "title": f"A {self.token}", "by": [self.token]}
        return [Document(text=f"{TEXTS[0]} {self.token} {quote(self.token)} {self.wiki}", metadata=about)]

class Lazy(BaseReader):
    def lazy_load_data(self):
        for number in range(3):
            yield Document(text=TEXTS[number], id_=f"page-{number}")

class Login(BaseReader):
    def load_data(self):
        return input("Password: ")

class Browser(BaseReader):
    def load_data(self):
        import webbrowser
        webbrowser.open("https://login.example.org")

class Exits(BaseReader):
    def load_data(self):
        raise SystemExit(3)

class Pictures(BaseReader):
    def load_data(self):
        return [object(), Document(text=TEXTS[0], id_="text")]

class NoReader:
    pass
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module = tmp_path / "modules" / "hub_of_ours.py"
    module.parent.mkdir()
    module.write_text(f"{OWN}\nTEXTS = {[prose(number) for number in range(3)]!r}\n")
    monkeypatch.syspath_prepend(module.parent)
    return tmp_path


def test_ids_are_stable_whatever_the_reader_gives(own: Path) -> None:
    first, second = (rows(own, "hub_of_ours:Pages") for _ in range(2))
    assert first == second
    assert ids(first)[:2] == ["https://example.org/a", "https://example.org/a#2"] and len(ids(first)[2]) == 16
    assert ids(rows(own, "hub_of_ours:Lazy")) == ["page-0", "page-1", "page-2"]
    assert ids(rows(own, "hub_of_ours:Pages", id="title"))[:2] == ["A", "A#2"]


def test_named_metadata_is_kept(own: Path) -> None:
    reader = {"kind": "llama-index", "reader": "hub_of_ours:Pages", "metadata": ["url"]}
    (first, *_, last) = prepare(corpus(own, reader), "qa")
    assert isinstance(first, Passage) and json.loads(first.metadata) == {"url": "https://example.org/a"}
    assert isinstance(last, Passage) and "example" not in last.metadata


def test_what_is_no_text_or_too_large_is_counted(own: Path) -> None:
    found = rows(own, "hub_of_ours:Pictures")
    assert [(row.reason, row.detail) for row in found if isinstance(row, Dropped)] == [("no text", "a object")]
    with pytest.raises(CorpusError, match=r"has no passages: 3 of 3 documents were dropped .3 reader: too large"):
        rows(own, "hub_of_ours:Lazy", max_bytes=10)


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        ("hub_of_ours:Login", "requires a login: set it in `arguments`"),
        ("hub_of_ours:Browser", "requires a login: set it in `arguments`"),
        ("hub_of_ours:Exits", r"hub_of_ours:Exits: .*3"),
        ("hub_of_ours:NoReader", "hub_of_ours:NoReader is not a reader of LlamaIndex: it has no load_data"),
        ("hub_of_ours:Pges", r"hub_of_ours has no Pges \(did you mean 'Pages'\?\)"),
        ("llama_index.readers.nonesuch:Reader", "pip install llama-index-readers-nonesuch$"),
        ("nowhere_at_all:Reader", "cannot be imported: No module named"),
    ],
)
def test_a_reader_that_cannot_be_used_is_one_line(own: Path, reader: str, words: str) -> None:
    with pytest.raises(CorpusError, match=words) as at:
        rows(own, reader)
    assert "\n" not in str(at.value)


def test_wrong_arguments_are_found_before_the_reader_is_made(own: Path) -> None:
    def lines(**more: Any) -> list[str]:
        return missing(corpus(own, {"kind": "llama-index", "reader": "hub_of_ours:Pages", **more}), "qa")

    assert lines() == []
    assert lines(arguments={"tokn": 1}) == [
        "reader hub_of_ours:Pages: arguments: got an unexpected keyword argument 'tokn'; it takes token, broken"
    ]
    assert lines(load={"pages": 1}) == [
        "reader hub_of_ours:Pages: load: got an unexpected keyword argument 'pages'; it takes count"
    ]


def test_secrets_stand_in_the_environment_and_in_no_message(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in ({"token": "abc"}, {"uri": "postgresql://me:pass@host/db"}, {"a": {"b": ["sk-" + "a1B2" * 10]}}):
        reader = {"kind": "llama-index", "reader": "hub_of_ours:Pages", "arguments": arguments}
        values = {"name": "made", "language": "en", "domain": "test", "licence": "CC0-1.0", "source": "here"}
        with pytest.raises(SettingsError, match="contains a secret: write") as at:
            validate({**values, "reader": reader}, CorpusSettings, "corpus.yaml")
        assert "pass@" not in str(at.value) and "a1B2" not in str(at.value) and "abc" not in str(at.value)
    corpus(own, {"kind": "llama-index", "reader": "hub_of_ours:Pages", "load": {"space_key": "HANDBOOK"}})
    monkeypatch.setenv("PAGES", "quite-secret-4711")
    with pytest.raises(CorpusError, match="401 for token") as failed:
        rows(own, "hub_of_ours:Pages", arguments={"token": "${PAGES}", "broken": True})
    assert "4711" not in str(failed.value) and failed.value.__cause__ is None


def test_keys_are_in_no_row_and_other_variables_stay(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGES", "quite secret/4711")
    monkeypatch.setenv("WIKI", "https://wiki.example.org")
    arguments = {"token": "${PAGES}", "wiki": "${WIKI}"}
    reader = {"kind": "llama-index", "reader": "hub_of_ours:Telling", "arguments": arguments, "metadata": ["url", "by"]}
    (row,) = prepare(corpus(own, reader), "qa")
    assert isinstance(row, Passage)
    assert "4711" not in repr(row)
    assert row.id == "https://wiki.example.org/a?token=[key]" and row.title == "A [key]"
    assert row.text.endswith("[key] [key] https://wiki.example.org")
    assert json.loads(row.metadata) == {"url": row.id, "by": ["[key]"]}


def test_the_terminal_is_as_it_was() -> None:
    usual = input
    with unattended():
        assert input is not usual
    assert input is usual


# Node parsers -------------------------------------------------------------------------------------------------------

MARKDOWN = "llama_index.core.node_parser:MarkdownNodeParser"


def chunked(folder: Path, text: str, **chunk: Any) -> list[Passage]:
    (folder / "guide.txt").write_text(text)
    settings = corpus(folder, {"kind": "text", "path": "."}, chunk=chunk)
    assert missing(settings, "qa") == []
    return [row for row in prepare(settings, "qa") if isinstance(row, Passage)]


def test_markdown_is_cut_at_its_headings_with_offsets(tmp_path: Path) -> None:
    text = f"# Bees\n\n{prose(1)}\n\n## Wax\n\n{prose(2)}\n\n# Hives\n\n{prose(3)}"
    found = chunked(tmp_path, text, parser=MARKDOWN)
    assert [row.text.splitlines()[0] for row in found] == ["# Bees", "## Wax", "# Hives"]
    assert all(text[row.start : row.end] == row.text for row in found)
    assert [row.start for row in found] == [0, text.index("## Wax"), text.index("# Hives")]
    assert [row.title.rpartition(" > ")[2] for row in found][1] == "Bees"
    assert ids(found) == [f"{found[0].document}#chunk={number}" for number in (1, 2, 3)]


def test_repeated_text_gets_the_offsets_of_each_place(tmp_path: Path) -> None:
    text = " ".join(["one two three four five six seven eight."] * 12)
    found = chunked(
        tmp_path, text, parser="llama_index.core.node_parser:SentenceSplitter",
        arguments={"chunk_size": 30, "chunk_overlap": 10, "include_metadata": False},
    )  # fmt: skip
    assert len(found) > 3 and all(text[row.start : row.end] == row.text for row in found)
    assert [row.start for row in found] == sorted({row.start for row in found})


def test_a_node_that_is_not_in_the_text_has_no_offsets(tmp_path: Path) -> None:
    pytest.importorskip("bs4")  # which LlamaIndex reads HTML with
    text = f"<p>{prose(1)}</p>\n\n<p>{prose(2)} <b>{prose(3)}</b></p>"
    found = chunked(tmp_path, text, parser="llama_index.core.node_parser:HTMLNodeParser")
    joined = [row for row in found if row.text not in text]
    assert joined and all((row.start, row.end) == (0, 0) for row in joined)


@pytest.mark.parametrize(
    ("chunk", "words"),
    [
        ({"parser": "llama_index.core.node_parser:MarkdownNodParser"}, r"did you mean 'MarkdownNodeParser'"),
        ({"parser": "llama_index.core.schema:Document"}, "is not a node parser of LlamaIndex"),
        ({"parser": "no_such_module:Parser"}, "cannot be imported"),
        ({"parser": MARKDOWN, "arguments": {"header_separator": "/"}}, "takes no argument 'header_separator'"),
    ],
)
def test_a_wrong_parser_is_one_line_of_check(tmp_path: Path, chunk: dict[str, Any], words: str) -> None:
    (line,) = missing(corpus(tmp_path, {"kind": "text", "path": "."}, chunk=chunk), "qa")
    assert re.search(words, line) and "\n" not in line


def test_a_parser_and_our_own_way_do_not_mix(tmp_path: Path) -> None:
    for chunk in ({"parser": MARKDOWN, "size": 100}, {"arguments": {"chunk_size": 3}}):
        with pytest.raises(ValidationError, match=r"not allowed with `parser`|allowed only with a `parser`"):
            corpus(tmp_path, {"kind": "text"}, chunk=chunk)


@pytest.mark.parametrize(("size", "overlap"), [(200, 50), (40, 10), (25, 0)])
def test_the_public_splitter_is_the_oracle_of_long_doc(size: int, overlap: int) -> None:
    """Long-Doc calls two private methods for their offsets; the public way must give the same texts."""
    from llama_index.core.node_parser import SentenceSplitter
    from llama_index.core.schema import Document

    from airgen.corpus.chunking import sentence_pieces
    from airgen.text.token_counts import encoding, token_ids

    ours = "\n\n".join(
        f"Part {number}. {prose(number, 90)} A short one. {prose(number + 50, 15)}" for number in range(12)
    )
    splitter = SentenceSplitter(
        chunk_size=size,
        chunk_overlap=overlap,
        tokenizer=lambda text: token_ids(encoding("cl100k_base"), text),
        chunking_tokenizer_fn=lambda text: sentence_pieces(text, "en"),
    )
    wanted = [node.text for node in splitter.get_nodes_from_documents([Document(text=ours)])]
    assert [ours[chunk.start : chunk.end] for chunk in chunks(ours, size=size, overlap=overlap)] == wanted
    assert len(wanted) > 10

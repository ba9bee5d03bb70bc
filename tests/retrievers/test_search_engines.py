"""Indexing on a server and searching it. The double speaks Typesense's words; tests/servers has the real engines."""

import json

import pytest
from http_double import answering

from airgen.errors import ModelError, UsageError
from airgen.net import http
from airgen.retrievers import Passages, load_retriever

TEXTS = [f"number{place} {'even' if place % 2 == 0 else 'odd'}" for place in range(2300)]
CORPUS = Passages([f"p{place}" for place in range(2300)], TEXTS)


class Server:
    def __init__(self):
        self.collections, self.imported, self.failures, self.keys = {}, [], {}, []

    def answer(self, asked):
        self.keys.append(asked.headers.get("X-TYPESENSE-API-KEY"))
        path = asked.path.partition("?")[0]
        if (failing := self.failures.get(path.rpartition("/")[2])) and (failure := failing.pop(0)) is not None:
            return failure
        if path == "/debug":
            return 200, {"version": "0.24.1"}
        if path == "/collections":
            name = asked.json()["name"]
            return 201, {"num_documents": len(self.collections.setdefault(name, {}))}
        if path == "/multi_search":
            return 200, {"results": [self.page(one) for one in asked.json()["searches"]]}
        rows = self.collections.get(path.split("/")[2])
        if rows is None:
            return 404, {"message": "Not Found"}
        if path.endswith("/import"):
            lines = [json.loads(line) for line in asked.body.splitlines()]
            rows |= {one["id"]: one["text"] for one in lines}
            self.imported += [int(one["id"]) for one in lines]
            return 200, "\n".join('{"success":true}' for _ in lines)
        return 200, {"num_documents": len(rows)}

    def page(self, asked):
        if asked["collection"] not in self.collections:
            return {"code": 404, "error": "Not found."}
        rows = self.collections[asked["collection"]]
        found = [key for key, text in rows.items() if asked["q"] in text.split()]
        at = (asked["page"] - 1) * asked["per_page"]
        return {"hits": [{"document": {"id": key}} for key in sorted(found, key=int)[at : at + asked["per_page"]]]}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(http, "_LONGEST_WAIT_SECONDS", 0.0)
    monkeypatch.setenv("TS_KEY", "s3cret-key-of-a-test")
    made = Server()
    with answering(made.answer) as made.url:
        yield made


def engine(server, **settings):
    headers = {"X-TYPESENSE-API-KEY": "${TS_KEY}"}
    return load_retriever({"kind": "typesense", "url": server.url, "headers": headers, **settings})


def test_every_passage_is_indexed_once_and_found(server):
    first, told = engine(server), []
    first.progress = lambda done, of: told.append((done, of))
    first.index(CORPUS)
    assert sorted(server.imported) == list(range(2300))
    assert told == [(1000, 2300), (2000, 2300), (2300, 2300)]
    hits = first.search(["odd", "number7", "nothing"], 600)  # three pages
    assert hits.positions[0].tolist() == list(range(1, 1200, 2))
    assert hits.positions[1, :2].tolist() == [7, -1]
    assert (hits.positions[2] == -1).all()
    assert set(server.keys) == {"s3cret-key-of-a-test"}
    again = engine(server)
    again.index(CORPUS)
    assert len(server.imported) == 2300
    assert (again.search(["odd"], 5).positions == hits.positions[:1, :5]).all()
    assert again.describe() == {
        "family": "typesense", "index_settings": {}, "search_settings": {}, "version": "0.24.1",
    }  # fmt: skip


def test_what_is_held_depends_on_the_passages_and_the_settings_of_the_index(server):
    for corpus, settings in (
        (CORPUS, {}),
        (Passages(CORPUS.ids, TEXTS[::-1]), {}),
        (Passages(CORPUS.ids, TEXTS, language="de"), {}),
        (CORPUS, {"index_settings": {"token_separators": ["-"]}}),
    ):
        engine(server, **settings).index(corpus)
    assert len(server.collections) == 4
    engine(server, search_settings={"drop_tokens_threshold": 9}).index(CORPUS)
    assert len(server.collections) == 4


def test_indexing_goes_on_after_a_failure(server):
    server.failures["import"] = [None] * 5 + [(503, "full")] * 40
    with pytest.raises(ModelError, match=r"typesense: http.*/import\?action=upsert answered 503: full .tried 6 times"):
        engine(server).index(CORPUS)
    before = set(server.imported)
    assert before >= set(range(1000))
    assert len(before) < 2300
    del server.failures["import"]
    engine(server).index(CORPUS)
    assert set(server.imported) == set(range(2300))
    assert sum(one < 1000 for one in server.imported) == 1000  # the first window was not sent again


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        (
            "import",
            (200, '{"success":false,"error":"Field `text` is odd"}'),
            "the index airgen-.*: Field `text` is odd",
        ),
        ("import", (401, {"message": "Forbidden"}), r"/import\?action=upsert answered 401: .*Forbidden"),
        ("import", (200, '{"success":tr'), "returned a response that is not JSON"),
        (
            "import",
            (200, "[]"),
            "responded in an unknown format .*: check that it is typesense, in a version that airgen supports",
        ),
        ("collections", (200, {"name": "x"}), "unknown format .KeyError 'num_documents'"),
        (
            "collections",
            (201, {"num_documents": 2301}),
            "holds 2,301 of 2,300 passages in airgen-.*: delete this index",
        ),
    ],
)
def test_refusals_of_the_index(server, path, answer, words):
    server.failures[path] = [answer] * 40
    with pytest.raises(ModelError, match=words) as caught:
        engine(server).index(CORPUS)
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_refusals_of_a_search(server):
    with pytest.raises(UsageError, match="typesense: there is no index"):
        engine(server).search(["a"], 3)
    made = engine(server)
    made.index(CORPUS)
    (name,) = server.collections
    server.collections[name]["2300"] = "odd"
    with pytest.raises(ModelError, match=r"unknown format .ValueError passage 2300 of 2300"):
        made.search(["odd"], 2000)
    server.collections.clear()
    with pytest.raises(ModelError, match=r"airgen-\w+: Not found\.: if its index was deleted, run again"):
        made.search(["odd"], 3)

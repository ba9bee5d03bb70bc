"""A user's own search service, on a loopback server that also misbehaves."""

from __future__ import annotations

import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from airgen.errors import DatasetError, SettingsError
from airgen.evaluation import EvaluationOptions as Options
from airgen.evaluation import evaluate
from airgen.evaluation.services import checked_results
from airgen.evaluation.systems import SystemSettings

HITS = {"what do cats eat": ["p2", "p1", "p1", "ghost"], "fish in the sea": ["p4"], "market crash": []}


class Handler(BaseHTTPRequestHandler):
    def _answer(self, asked):
        mode, server = self.path.split("?")[0].strip("/"), self.server
        server.asked.append((asked, self.headers.get("Authorization")))
        hits = [{"_id": key, "_score": 9.0 - rank} for rank, key in enumerate(HITS.get(asked.get("q"), []))]
        body = json.dumps({"hits": {"hits": hits}})
        status = 200
        if mode == "html":
            body = "<html><body>Please log in</body></html>"
        elif mode == "nan":
            body = '{"hits": {"hits": [{"_id": "p1", "_score": NaN}]}}'
        elif mode == "error":
            status, body = 503, "overloaded"
        elif mode == "shape":
            body = '{"hits": {"hits": {"p1": 1}}}'
        elif mode == "bare":
            body = json.dumps([hit["_id"] for hit in hits])
        elif mode == "drop":
            self.connection.close()
            return
        elif mode == "hang":
            server.release.wait(20)
        elif mode == "moved":
            status = 302
        self.send_response(status)
        if mode == "moved":
            self.send_header("Location", "/ok")
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def do_POST(self):
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def do_GET(self):
        self._answer(dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query)))

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.asked, made.release = [], threading.Event()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.release.set()
    made.shutdown()
    thread.join()
    made.server_close()


def system(server, mode, **settings):
    base = {"query_field": "q", "hits_path": "hits.hits", "id_path": "_id", "score_path": "_score"}
    url = f"http://127.0.0.1:{server.server_port}/{mode}"
    return SystemSettings.model_validate({"name": "service", "kind": "http", "url": url} | base | settings)


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_hits_are_found_by_their_path(server, dataset, tmp_path, method):
    (result,) = evaluate(dataset, [system(server, "ok", method=method)], tmp_path / "out", Options(top=7))
    assert result.means["RR@10"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert result.notes == {"unknown_passages": 1, "repeated_hits": 1}
    assert result.missing == 1
    assert result.costs.latency_p50_ms > 0
    assert {str(asked["k"]) for asked, _ in server.asked} == {"7"}


def test_a_bare_list_of_ids_keeps_its_order(server, dataset, tmp_path):
    (result,) = evaluate(dataset, [system(server, "bare", hits_path="", score_path=None)], tmp_path / "out")
    assert result.means["RR@10"] == pytest.approx((0.5 + 1 + 0) / 3)


def test_the_key_comes_from_the_environment_and_is_written_nowhere(server, dataset, tmp_path, monkeypatch):
    wanted = system(server, "ok", api_key_env="MY_SEARCH_KEY")
    with pytest.raises(SettingsError, match="MY_SEARCH_KEY is not set"):
        evaluate(dataset, [wanted], tmp_path / "out")
    monkeypatch.setenv("MY_SEARCH_KEY", "s3cret-value")
    evaluate(dataset, [wanted], tmp_path / "out")
    assert server.asked[0][1] == "Bearer s3cret-value"
    assert not any(b"s3cret" in path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())


def test_a_key_in_the_address_is_not_written_either(server, dataset, tmp_path):
    def with_key(mode, address):
        url = f"http://{address}:{server.server_port}/{mode}?key=s3cret"
        return system(server, mode).model_copy(update={"url": url, "body": {"token": "t0ken"}})

    (result,) = evaluate(dataset, [with_key("ok", "127.0.0.1")], tmp_path / "out")
    assert server.asked[0][0]["token"] == "t0ken"
    written = result.paths.json.read_text()
    for wrong in (with_key("html", "127.0.0.1"), with_key("ok", "me:pass-w0rd@127.0.0.1")):
        with pytest.raises(DatasetError) as caught:
            evaluate(dataset, [wrong], tmp_path / "out")
        written += str(caught.value)
    assert written.count("127.0.0.1") >= 3
    assert not any(secret in written for secret in ("pass-w0rd", "s3cret", "t0ken"))


def test_a_service_that_hangs_up(server, dataset, tmp_path):
    with pytest.raises(DatasetError, match=r"query 'q1'.*is the service running"):
        evaluate(dataset, [system(server, "drop", concurrency=1)], tmp_path / "out")


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("html", r"query 'q1': the service gave an answer that is not JSON: '<html>"),
        ("nan", "score nan is not a finite number"),
        ("error", "the service answered 503: overloaded"),
        ("moved", "the service answered 302"),  # the key must not follow to another address
        ("shape", "leads to dict, not to a list"),
        ("bare", "no 'hits' in the answer"),
    ],
)
def test_what_cannot_be_understood_is_said(server, dataset, tmp_path, mode, message):
    with pytest.raises(DatasetError, match=message):
        evaluate(dataset, [system(server, mode, concurrency=1)], tmp_path / "out")


def test_a_service_that_never_answers(server, dataset, tmp_path):
    with pytest.raises(DatasetError, match=r"the service gave no answer within 0\.2 s.*time-out too short"):
        evaluate(dataset, [system(server, "hang", timeout_seconds=0.2)], tmp_path / "out")
    server.release.set()


def test_a_service_that_is_not_there(server, dataset, tmp_path):
    gone = SystemSettings.model_validate({"name": "s", "kind": "http", "url": "http://127.0.0.1:9/search"})
    with pytest.raises(DatasetError, match="is the service running"):
        evaluate(dataset, [gone], tmp_path / "out")


def test_an_empty_query_is_not_sent(server, dataset, tmp_path):
    queries = dataset / "queries.jsonl"
    queries.write_text(queries.read_text().replace("market crash", ""))
    (result,) = evaluate(dataset, [system(server, "ok")], tmp_path / "out")
    assert result.notes["empty_queries"] == 1
    assert all(asked["q"] for asked, _ in server.asked)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "NoneType"),
        ({"q": [1]}, "list"),
        ({"q": {"d": float("nan")}}, "finite"),
        ({"q": {"d": "high"}}, "finite"),
    ],
)
def test_a_foreign_answer_of_the_wrong_form(answer, message):
    with pytest.raises(DatasetError, match=message):
        checked_results(answer, {"q": "text"}, {"d": {}}, 10, "system x")

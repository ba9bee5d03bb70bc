"""A user's own search service, on a loopback server that also misbehaves."""

import dataclasses
import json
import threading
import urllib.parse

import pytest
from dataset_maker import make_content
from http_double import Quiet, answering, serving

from airgen.dataset.beir import BeirDataset
from airgen.dataset.secret import SECRET_FILE, Secret, opaque_document_id
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError, SettingsError, UsageError
from airgen.evaluation import EvaluationOptions as Options
from airgen.evaluation import evaluate
from airgen.evaluation.dataset_split import IdLookup
from airgen.evaluation.measures import parse_measures, score
from airgen.evaluation.result_tables import note_lines
from airgen.evaluation.run import read_run, run_from_dict
from airgen.evaluation.search_service import SearchService
from airgen.evaluation.systems import SystemSettings, load_systems

HITS = {"what do cats eat": ["p2", "p1", "p1", "ghost"], "fish in the sea": ["p4"], "market crash": []}


class Handler(Quiet):
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


@pytest.fixture
def server():
    with serving(Handler) as made:
        made.asked, made.release = [], threading.Event()
        yield made
        made.release.set()


def system(server, mode, **settings):
    base = {"query_field": "q", "hits_path": "hits.hits", "id_path": "_id", "score_path": "_score", "retries": 0}
    base |= {"unknown_ids": "skip"}
    url = f"http://127.0.0.1:{server.server_port}/{mode}"
    return SystemSettings.model_validate({"name": "service", "kind": "http", "url": url} | base | settings)


@pytest.mark.parametrize(
    ("mode", "settings"),
    [("ok", {"method": "POST"}), ("ok", {"method": "GET"}), ("bare", {"hits_path": "", "score_path": None})],
)
def test_hits_are_found_by_their_path(server, dataset, tmp_path, mode, settings):
    queries = dataset / "queries.jsonl"
    queries.write_text(queries.read_text().replace("market crash", ""))
    (result,) = evaluate(dataset, [system(server, mode, **settings)], tmp_path / "out", Options(top=7))
    assert result.means["RR@10"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert result.notes == {"unknown_passages": 1, "repeated_hits": 1, "empty_queries": 1}  # an empty one is not sent
    assert result.missing == 1 and result.costs.latency_p50_ms > 0
    assert {str(asked["k"]) for asked, _ in server.asked} == {"7"} and all(asked["q"] for asked, _ in server.asked)


def test_hits_outside_the_dataset_are_counted_unless_all_are(server, dataset, tmp_path, monkeypatch):
    wanted = system(server, "ok")
    settings = {name: value for name, value in wanted.settings.items() if name != "unknown_ids"}
    wanted = SystemSettings.model_validate({"name": "service", "kind": "http", **settings})
    (result,) = evaluate(dataset, [wanted], tmp_path / "out")
    assert result.notes["unknown_passages"] == 1
    assert "1 hits outside the dataset (dropped by its cleaning" in note_lines([result])
    strict = SystemSettings.model_validate({"name": "service", "kind": "http", **settings, "unknown_ids": "error"})
    with pytest.raises(DatasetError, match=r"what do cats eat' \(q1\): the service answered with the id 'ghost'"):
        evaluate(dataset, [strict], tmp_path / "strict")
    for text in HITS:
        monkeypatch.setitem(HITS, text, ["13"])
    with pytest.raises(DatasetError, match=r"the id '13', which is not in the dataset .* and neither is any other hit"):
        evaluate(dataset, [wanted], tmp_path / "out", Options(fresh=True))


def test_generated_negatives_that_a_service_lacks_are_left_out_for_all(server, dataset, tmp_path):
    systems = [system(server, "ok"), SystemSettings(name="bm25", kind="bm25")]
    with pytest.raises(UsageError, match="unknown which passages were generated: the dataset has no hard negatives"):
        evaluate(dataset, systems, tmp_path / "out", Options(without_negatives=True))
    (dataset / "private").mkdir()
    (dataset / "private" / "lineage.jsonl").write_text('{"query": "q1", "negatives": ["p3", "dropped"]}\n')
    service, bm25 = evaluate(dataset, systems, tmp_path / "out")
    assert (service.notes["generated_negatives_never_found"], bm25.notes) == (1, {})
    assert "service: none of the 1 generated hard negatives was found" in note_lines([service, bm25])
    kept = dict(read_run(bm25.paths.run).ranked().items())
    assert any(passage == "p3" for hits in kept.values() for passage, _ in hits)
    service, bm25 = evaluate(dataset, systems, tmp_path / "out", Options(without_negatives=True))
    assert bm25.rules["generated_negatives"] == "left out" and not service.notes.get("generated_negatives_never_found")
    without = {key: {passage: score for passage, score in hits if passage != "p3"} for key, hits in kept.items()}
    labels = BeirDataset.open(dataset).qrels("test").labels
    wanted = score(run_from_dict(without), labels, parse_measures("nDCG@10")).means()["nDCG@10"]
    assert bm25.means["nDCG@10"] == pytest.approx(wanted, abs=1e-9)
    assert "left out for all systems" in note_lines([service, bm25])


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
    with pytest.raises(DatasetError) as caught:
        evaluate(dataset, [with_key("html", "127.0.0.1")], tmp_path / "out")
    written += str(caught.value)
    assert written.count("127.0.0.1") >= 2
    (tmp_path / "systems.yaml").write_text(
        "systems: [{name: s, kind: http, url: 'http://me:pass-w0rd@127.0.0.1/'}]", "utf-8"
    )
    with pytest.raises(SettingsError, match="set user and password_env") as refused:
        load_systems(tmp_path / "systems.yaml")
    written += str(refused.value)
    assert not any(secret in written for secret in ("pass-w0rd", "s3cret", "t0ken"))


@pytest.mark.parametrize(
    ("mode", "settings", "message"),
    [
        ("html", {}, r"query 'what do cats eat' \(q1\): the service returned a response that is not JSON: '<html>"),
        ("nan", {}, "score nan is not a finite number"),
        ("error", {}, "the service answered 503: overloaded"),
        ("moved", {}, "the service answered 302"),  # the key must not follow to another address
        ("shape", {}, "leads to dict, not to a list"),
        ("bare", {}, "no 'hits' in the answer"),
        ("drop", {}, r"query 'what do cats eat'.*is the service running"),
        ("gone", {"url": "http://127.0.0.1:9/search"}, "is the service running"),
        ("hang", {"timeout_seconds": 0.2}, r"the service returned no response within 0\.2 s.*timeout too short"),
    ],
)
def test_what_cannot_be_understood_is_said(server, dataset, tmp_path, mode, settings, message):
    with pytest.raises(DatasetError, match=message):
        evaluate(dataset, [system(server, mode, concurrency=1, **settings)], tmp_path / "out")
    server.release.set()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"body": {"q": "{query}"}, "query_field": "q"}, "query_field would not be used"),
        ({"body": {"size": "{k}"}}, "add one of them"),
        ({"body": {"from": "{offset}"}}, "add one of them"),
        ({"body": {"v": "{vector}"}}, "`embedder` belong together"),
        ({"embedder": "all-minilm-l6-v2-int8"}, "`embedder` belong together"),
        ({"id_pattern": "^doc-"}, "has no group"),
        ({"id_pattern": "("}, "is not a regular expression"),
        ({"headers": {"Authorization": "ApiKey s3cret"}}, "environment variable"),
        ({"headers": {"X-Tenant": "a\nHost: b"}}, "one line"),
        ({"headers": {"Content-Length": "3"}}, "cannot be set"),
        ({"headers": {"authorization": "Basic ${A}"}, "api_key_env": "B"}, "keep one"),
        ({"user": "me"}, "belong together"),
    ],
)
def test_settings_that_cannot_work(tmp_path, wrong, words):
    path = tmp_path / "systems.yaml"
    path.write_text(json.dumps({"systems": [{"name": "s", "kind": "http", "url": "http://localhost/"} | wrong]}))
    with pytest.raises(SettingsError) as refused:
        load_systems(path)
    assert words in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("place", "limit", "window", "found", "requests"),
    [
        ("offset", 3, 100, 12, 4),  # three hits at once
        ("page", 5, 100, 12, 3),
        ("offset", 100, 100, 12, 1),  # all at once, and none are left
        ("offset", 3, 7, 6, 3),  # the window ends after the second page
    ],
)
def test_further_pages_of_hits_are_asked_for(
    dataset, tmp_path, place, limit, window, found, requests
):  # the service has 12 hits for every query
    asked = []

    def answer(request):
        body = request.json()
        asked.append(body)
        first = body["at"] if place == "offset" else (body["at"] - 1) * min(limit, body["n"])
        if first + min(body["n"], limit) > window:
            return 400, "the window is too large"
        every = [{"id": f"x{rank}", "score": 20.0 - rank} for rank in range(12)]
        return 200, {"hits": every[first : first + min(limit, body["n"])]}

    with answering(answer) as url:
        body = {"q": "{query}", "n": "{k}", "at": f"{{{place}}}"}
        options = SystemSettings.model_validate({"name": "s", "kind": "http", "url": url, "body": body}).options
        service = SearchService(options, IdLookup([f"x{rank}" for rank in range(12)]))
        results, counts = service.search({"q1": "what do cats eat"}, 12)
    assert [len(results["q1"]), len(asked)] == [found, requests]
    assert counts == ({"hits_at_most_for_a_query": found} if found < 12 else {})


def test_a_service_that_ignores_the_page_is_asked_twice(tmp_path):
    asked = []
    with answering(lambda request: (asked.append(1), (200, {"hits": ["x1", "x2"]}))[1]) as url:
        settings = {"url": f"{url}?q={{query}}&p={{page}}", "method": "GET", "score_path": None}
        options = SystemSettings.model_validate({"name": "s", "kind": "http", **settings}).options
        results, _ = SearchService(options, IdLookup(["x1", "x2"])).search({"q1": "cats"}, 10)
    assert len(results["q1"]) == len(asked) == 2


def test_a_template_and_headers(server, dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("TENANT_KEY", "abc-s3cret")
    queries, evil = dataset / "queries.jsonl", '"}, "size": 9 {k} {vector} ${HOME}'  # it cannot change the form
    queries.write_text(queries.read_text().replace("market crash", json.dumps(evil)[1:-1]))
    wanted = system(server, "ok").settings | {
        "body": {"q": "{query}", "size": "{k}", "nested": [{"text": "about {query}", "literal": "{other}"}]},
        "headers": {"Authorization": "ApiKey ${TENANT_KEY}"},
    }
    wanted = {name: value for name, value in wanted.items() if name != "query_field"}
    found = SystemSettings.model_validate({"name": "s", "kind": "http", **wanted})
    evaluate(dataset, [found], tmp_path / "out", Options(top=7))
    asked, key = next(item for item in server.asked if item[0]["q"] == evil)
    assert asked == {"q": evil, "size": 7, "nested": [{"text": f"about {evil}", "literal": "{other}"}]}
    assert key == "ApiKey abc-s3cret"
    monkeypatch.delenv("TENANT_KEY")
    with pytest.raises(SettingsError, match="TENANT_KEY is not set"):
        evaluate(dataset, [found], tmp_path / "other")


def test_the_ids_of_the_corpus_find_the_passages_of_an_exported_dataset(tmp_path):
    for secret in (Secret(bytes(32)), None):
        own = [f"docs/page-{number}.md" for number in range(12)]
        content = make_content(secret=secret)
        new = [opaque_document_id("weather-notes", key, secret) for key in own]
        names = dict(zip([row.id for row in content.corpus], new, strict=True))
        corpus = [dataclasses.replace(row, id=names[row.id]) for row in content.corpus]
        qrels = [dataclasses.replace(row, document=names[row.document]) for row in content.qrels]
        folder = tmp_path / str(bool(secret))
        write_dataset(folder, dataclasses.replace(content, corpus=corpus, qrels=qrels))
        ids = IdLookup([row.id for row in corpus], BeirDataset.open(folder))
        assert [ids.find(key) for key in own] == list(names.values())
        assert ids.find(names["doc003"]) == names["doc003"]
        assert ids.find("docs/page-99.md") is None
        run = run_from_dict({"q-01": {own[1]: 2.0, own[2]: 1.0, "elsewhere": 0.5}}).renamed(ids.find)
        assert dict(run.items()) == {"q-01": [(names["doc001"], 2.0), (names["doc002"], 1.0), ("elsewhere", 0.5)]}
        if secret:  # users who have only the public part are told why
            (folder / "private" / SECRET_FILE).unlink()
            ids = IdLookup(names.values(), BeirDataset.open(folder))
            assert ids.find(own[0]) is None
            assert "only in its private part" in ids.advice


def rising(sign):
    """A service that gives the best first: with distances that rise, or with scores that fall."""

    def answer(asked):
        found = HITS.get(asked.json()["query"], [])
        return 200, {"hits": [{"id": key, "score": sign * rank / 10} for rank, key in enumerate(found)]}

    return answering(answer)


@pytest.mark.parametrize(
    ("sign", "settings"), [(1, {}), (1, {"best": "smallest"}), (-1, {}), (-1, {"best": "largest"})]
)
def test_a_service_whose_best_score_is_the_smallest(dataset, tmp_path, monkeypatch, sign, settings):
    for text, hits in (("what do cats eat", ["p2", "p1", "p4", "p3"]), ("fish in the sea", ["p4", "p1", "p2"])):
        monkeypatch.setitem(HITS, text, hits)
    with rising(sign) as url:
        wanted = SystemSettings.model_validate({"name": "near", "kind": "http", "url": url, **settings})
        (result,) = evaluate(dataset, [wanted], tmp_path / "out")
    assert result.means["RR@10"] == pytest.approx((0.5 + 1 + 0) / 3)
    said = "near: scores rise from the first hit to the last, so the smallest is taken" in note_lines([result])
    assert said == (sign == 1 and not settings)


def test_a_few_scores_that_rise_prove_nothing(dataset, tmp_path, monkeypatch):
    monkeypatch.setitem(HITS, "what do cats eat", ["p2", "p1"])
    with rising(1) as url:
        wanted = SystemSettings.model_validate({"name": "near", "kind": "http", "url": url})
        (result,) = evaluate(dataset, [wanted], tmp_path / "out")
    assert result.means["RR@10"] == pytest.approx((1 + 1 + 0) / 3) and result.notes == {}


def test_labels_of_another_corpus_are_no_zero(dataset, tmp_path):
    path, said = dataset / "qrels" / "test.tsv", []
    one = path.read_text().replace("p1", "doc1")
    path.write_text(one)
    (result,) = evaluate(dataset, [SystemSettings(name="bm25", kind="bm25")], tmp_path / "one", progress=said.append)
    assert any("relevant passages of the test qrels, such as 'doc1', are not in the corpus" in line for line in said)
    lines = [line.split("\t") for line in one.splitlines()]
    path.write_text("".join(f"{query}\tdoc-{passage}\t{label}\n" for query, passage, label in lines[1:]))
    with pytest.raises(DatasetError, match=r"no relevant passage of the test qrels, such as 'doc-.*its ids look like"):
        evaluate(dataset, [SystemSettings(name="bm25", kind="bm25")], tmp_path / "none")
    assert result.queries == 3


def test_one_score_for_all_hits_is_said(dataset, tmp_path):
    (tmp_path / "flat.py").write_text(
        "import numpy as np\nfrom airgen.retrievers import Component, Hits\n\n\nclass Flat(Component):\n"
        "    def index(self, corpus):\n        self.size = len(corpus)\n\n"
        "    def search(self, queries, k):\n        places = np.arange(min(k, self.size))\n"
        "        positions = np.tile(places, (len(queries), 1))\n"
        "        return Hits(positions, np.zeros(positions.shape, np.float32))\n\n"
        "    def describe(self):\n        return {}\n"
    )
    (tmp_path / "systems.yaml").write_text("systems: [{name: flat, kind: 'flat:Flat'}]")
    systems = load_systems(tmp_path / "systems.yaml")
    (result,) = evaluate(dataset, systems, tmp_path / "out", Options(folder=tmp_path))
    assert "flat: all hits of all queries have the same score" in note_lines([result])


@pytest.mark.parametrize(
    "words",
    ["Result window is too large, size must be less than or equal to: [7] but was [1000]; limit 20", "too many hits"],
)
def test_a_service_is_asked_for_as_many_hits_as_it_allows(words):
    asked = []

    def answer(request):
        size = request.json()["k"]
        asked.append(size)
        return (200, {"hits": [{"id": "p1", "score": 1.0}]}) if size <= 20 else (400, {"error": words})

    with answering(answer) as url:
        options = SystemSettings.model_validate({"name": "s", "kind": "http", "url": url, "concurrency": 1}).options
        search = SearchService(options, IdLookup(["p1"]))
        results, counts = search.search({"q1": "one", "q2": "two"}, 1000)
    assert results == {"q1": {"p1": 1.0}, "q2": {"p1": 1.0}}
    limit = 20 if "limit 20" in words else 10
    assert counts["hits_at_most_for_a_query"] == limit and asked[-1] == limit and asked.count(1000) == 1


def test_a_refusal_that_is_not_about_hits_is_shown_as_it_is():
    with answering(lambda request: (400, {"error": "no index 7"})) as url:
        options = SystemSettings.model_validate({"name": "s", "kind": "http", "url": url}).options
        with pytest.raises(DatasetError, match=r"the service answered 400: .*no index 7"):
            SearchService(options, IdLookup(["p1"])).search({"q1": "one"}, 1000)


def test_a_mistyped_placeholder_is_refused():
    body = {"query": {"match": {"text": "{qurey}"}}, "size": "{k}"}
    with pytest.raises(ValueError, match=r"unknown placeholder \{qurey\} \(did you mean \{query\}\?\)"):
        SystemSettings.model_validate({"name": "s", "kind": "http", "url": "http://127.0.0.1:9/", "body": body})

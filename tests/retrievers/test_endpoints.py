import asyncio
import base64
import contextlib
import functools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from http_double import Asked, answering

from airgen.errors import ModelError, SettingsError, UsageError
from airgen.net import http
from airgen.retrievers.endpoints import HttpEmbedder, HttpReranker
from airgen.settings.http import unset_variables

Answer = Callable[[dict[str, Any]], tuple[int, Any]]


class Service:
    """A loopback endpoint; `answers` are used one a request, the last for ever."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[Answer] = []
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []

    def answer(self, asked: Asked) -> tuple[int, Any, dict[str, str]]:
        body = asked.json()
        self.requests.append((asked.path, body, asked.headers))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        status, value = answer(body)
        return status, value, {"Location": "http://127.0.0.1:9/elsewhere"} if status in (301, 302, 307) else {}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(http, "_LONGEST_WAIT_SECONDS", 0.0)
    made = Service()
    with answering(made.answer) as url:
        made.url = f"{url}/v1"
        yield made


def vectors(body: dict[str, Any], dim: int = 3) -> tuple[int, Any]:
    data = [{"index": place, "embedding": [len(text)] * dim} for place, text in enumerate(body["input"])]
    return 200, {"data": data[::-1]}  # the order is the index's, not the list's


def test_embeddings(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    service.answers = [vectors]
    embedder = HttpEmbedder(
        "m", base_url=service.url, api_key_env="SOME_KEY", query_prefix="q: ", batch_size=2, max_chars=6
    )
    assert embedder.dim == 3
    found = embedder.encode(["a", "abc", "abcdefghi"], "query")
    assert found == pytest.approx(np.full((3, 3), 3**-0.5))
    sent = [body["input"] for _, body, _ in service.requests[1:]]
    assert sorted(sent) == [["q: a", "q: abc"], ["q: abc"]]
    path, body, headers = service.requests[0]
    assert path == "/v1/embeddings"
    assert body["model"] == "m"
    assert headers["Authorization"] == "Bearer sk-secret"
    assert "secret" not in json.dumps(dict(embedder.describe()))
    assert embedder.encode([""], "passage").shape == (1, 3)
    assert service.requests[-1][1]["input"] == [" "]


def test_the_address_may_come_from_the_environment(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = HttpEmbedder.Settings(model="m", base_url="${MY_MODEL_URL}")
    assert unset_variables(settings) == ["base_url: the environment variable MY_MODEL_URL is not set"]
    monkeypatch.setenv("MY_MODEL_URL", "localhost:80")
    with pytest.raises(SettingsError, match="MY_MODEL_URL must hold an address: http://HOST:PORT/v1"):
        HttpEmbedder("m", base_url="${MY_MODEL_URL}")
    monkeypatch.setenv("MY_MODEL_URL", service.url)
    service.answers = [vectors]
    assert unset_variables(settings) == []
    assert HttpEmbedder("m", base_url="${MY_MODEL_URL}").encode(["a"], "query").shape == (1, 3)


def test_a_dimension_that_changes_in_the_middle(service: Service) -> None:
    service.answers = [vectors, lambda body: vectors(body, 4)]
    embedder = HttpEmbedder("m", base_url=service.url, batch_size=1, concurrency=1)
    with pytest.raises(ModelError, match="dimension 4 after vectors of dimension 3"):
        embedder.encode(["a", "b"], "passage")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda body: (200, b"<html>Welcome</html>"), "not JSON: '<html>Welcome"),
        (lambda body: (200, {"error": "busy"}), "not respond in the format"),
        (lambda body: (200, {"data": []}), r"embeddings \[\]"),
        (lambda body: (200, {"data": [{"index": 1, "embedding": [1]}]}), "for 1 texts"),
        (lambda body: (200, b'{"data": [{"index": 0, "embedding": [NaN]}]}'), "NaN"),
        (lambda body: (401, {"error": "bad key sk-secret"}), r"answered 401: .*bad key \[key\]"),
        (lambda body: (307, b""), "answered 307"),
    ],
)
def test_answers_that_cannot_be_used(
    service: Service, monkeypatch: pytest.MonkeyPatch, answer: Answer, words: str
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    service.answers = [answer]
    with pytest.raises(ModelError, match=words):
        HttpEmbedder("m", base_url=service.url, api_key_env="SOME_KEY").encode(["a"], "query")
    assert len(service.requests) == 1


def test_what_may_pass_is_tried_again(service: Service) -> None:
    service.answers = [lambda body: (429, b"slow down"), lambda body: (503, b""), vectors]
    assert HttpEmbedder("m", base_url=service.url).encode(["a"], "query").shape == (1, 3)
    service.answers = [lambda body: (500, b"on fire")]
    service.requests.clear()
    with pytest.raises(ModelError, match=r"answered 500: on fire \(tried 6 times\)"):
        HttpEmbedder("m", base_url=service.url).encode(["a"], "query")
    assert len(service.requests) == 6


def test_several_requests_at_once_keep_the_order_and_the_bound(service: Service) -> None:
    together, most, lock, full = 0, 0, threading.Lock(), threading.Barrier(3)

    def slow(body: dict[str, Any]) -> tuple[int, Any]:
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        full.wait(20)  # three requests arrive at once, or this fails
        with lock:
            together -= 1
        return 200, {"data": [{"index": 0, "embedding": [len(body["input"][0]), 1]}]}

    service.answers = [slow]
    embedder = HttpEmbedder("m", base_url=service.url, batch_size=1, concurrency=3, dimensions=2)
    found = embedder.encode(["a" * length for length in range(1, 13)], "passage")
    assert found[:, 0] / found[:, 1] == pytest.approx(np.arange(1, 13))
    assert most == 3


def test_the_first_failure_ends_the_rest(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_LONGEST_WAIT_SECONDS", 3600.0)  # a wait between tries ends, too
    seen = threading.Event()

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        if body["input"] == ["wait"]:
            seen.set()
            return 503, b"busy for an hour"
        seen.wait(20)
        return 400, b"bad text"

    service.answers = [answer]
    embedder = HttpEmbedder("m", base_url=service.url, batch_size=1, concurrency=2, dimensions=2)
    with pytest.raises(ModelError, match="bad text"):
        embedder.encode(["bad", "wait", *["bad"] * 500], "passage")
    assert len(service.requests) < 100


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_LONGEST_WAIT_SECONDS", 0.0)
    with pytest.raises(ModelError, match="cannot be reached"):
        HttpEmbedder("m", base_url="http://127.0.0.1:9/v1").encode(["a"], "query")
    with pytest.raises(UsageError, match=r"base_url: .*https"):
        HttpEmbedder("m", base_url="file:///etc")


def jina(body: dict[str, Any]) -> tuple[int, Any]:
    results = [{"index": place, "relevance_score": len(text)} for place, text in enumerate(body["documents"])]
    return 200, {"results": sorted(results, key=lambda item: -item["relevance_score"])}


def bare(body: dict[str, Any]) -> tuple[int, Any]:
    return 200, [{"index": place, "score": len(text)} for place, text in enumerate(body["documents"])]


@pytest.mark.parametrize("form", [jina, bare])
def test_reranking(service: Service, form: Answer) -> None:
    service.answers = [form]
    reranker = HttpReranker(service.url + "/rerank", "m", batch_size=2)
    pairs = [("q1", "aaa"), ("q2", "b"), ("q1", "c"), ("q1", "dd")]
    assert reranker.score(pairs).tolist() == [3, 1, 1, 2]
    assert sorted((body["query"], body["documents"]) for _, body, _ in service.requests) == [
        ("q1", ["aaa", "c"]),
        ("q1", ["dd"]),
        ("q2", ["b"]),
    ]


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([{"index": 0, "relevance_score": 1.0}], "returned 1 scores for 2 documents"),
        ([{"index": 0, "relevance_score": 1.0}, {"index": 7, "relevance_score": 1.0}], "not sent"),
        ([{"index": 0, "relevance_score": 1.0}, {"index": 0, "relevance_score": 2.0}], "two scores for one document"),
        ([{"index": 0, "relevance_score": 1.0}, {"index": 1, "relevance_score": float("nan")}], "nan"),
        ([{"index": 0}, {"index": 1}], "format of a re-ranking API"),
    ],
)
def test_a_reranker_that_answers_wrongly(service: Service, results: list[Any], words: str) -> None:
    service.answers = [lambda body: (200, {"results": results})]
    with pytest.raises(ModelError, match=words):
        HttpReranker(service.url + "/rerank").score([("q", "a"), ("q", "b")])


def test_threads_that_ask_first_at_once_share_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of one client on two loops fail: "attached to a different loop"."""
    both = threading.Barrier(2)

    def slow() -> SimpleNamespace:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(timeout=0.2)  # passes where a second thread makes a loop, too
        return SimpleNamespace(run_forever=lambda: None)

    monkeypatch.setattr(http, "_started", functools.cache(http._started.__wrapped__))  # other clients keep their loop
    monkeypatch.setattr(asyncio, "new_event_loop", slow)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: http._loop(), range(2))
    assert first is second


@pytest.mark.parametrize("value", [None, [], [[1.0]], "no base64"])
def test_what_is_no_vector(service: Service, value: object) -> None:
    data = [{"index": 0, "embedding": [1.0, 2.0]}, {"index": 1, "embedding": value}]
    service.answers = [lambda _: (200, {"data": data})]
    with pytest.raises(ModelError, match=r"returned no vector for the text 'red'|did not respond in the format"):
        HttpEmbedder("m", base_url=service.url).encode(["blue", "red"], "passage")


def test_vectors_of_zeros_rank_nothing(service: Service) -> None:
    zeros = {"data": [{"index": place, "embedding": [0.0, 0.0]} for place in range(2)]}
    service.answers = [lambda _: (200, zeros)]
    with pytest.raises(ModelError, match="vectors of zeros for all of 2 texts"):
        HttpEmbedder("m", base_url=service.url).encode(["blue", "red"], "passage")


def test_a_server_that_knows_base64_only(service: Service) -> None:
    packed = base64.b64encode(np.array([3.0, 4.0], "<f4").tobytes()).decode()
    service.answers = [lambda _: (200, {"data": [{"index": 0, "embedding": packed}]})]
    assert HttpEmbedder("m", base_url=service.url).encode(["blue"], "passage") == pytest.approx(np.array([[0.6, 0.8]]))


def test_tei_is_asked_in_its_own_form(service: Service) -> None:
    """Once it has said so; a service of the other form gets no field that it does not know."""

    def tei(body: dict[str, Any]) -> tuple[int, Any]:
        if "texts" not in body:
            return 422, "Failed to deserialize the JSON body into the target type: missing field `texts`"
        assert body.keys() == {"query", "texts", "truncate"}
        return 200, [{"index": place, "score": len(text)} for place, text in enumerate(body["texts"])]

    service.answers = [tei]
    reranker = HttpReranker(f"{service.url}/rerank", "m", concurrency=1)
    assert reranker.score([("q", "a"), ("q", "abc")]) == pytest.approx([1, 3])
    assert reranker.score([("p", "ab")]) == pytest.approx([2])
    assert [("texts" in body) for _, body, _ in service.requests] == [False, True, True]


@pytest.mark.parametrize(
    ("status", "words"),
    [(413, "Payload too large"), (422, "batch size 64 > maximum allowed batch size 32"), (400, "too many inputs")],
)
def test_too_much_at_once_names_the_setting(service: Service, status: int, words: str) -> None:
    service.answers = [lambda _: (status, {"error": words})]
    with pytest.raises(ModelError, match=r"a smaller batch_size sends less at once"):
        HttpEmbedder("m", base_url=service.url).encode(["blue", "red"], "passage")


def of_texts(embedding: Callable[[str], object], **more: object) -> Answer:
    return lambda body: (
        200,
        {"data": [{"index": n, "embedding": embedding(t)} | more for n, t in enumerate(body["input"])]},
    )


def numbers(text: str) -> list[float]:
    return [(len(text) + place) ** 0.5 / 7 for place in range(12)]


UNIT = np.array([numbers("a"), numbers("bb"), numbers("ccc")])
UNIT /= np.linalg.norm(UNIT, axis=1, keepdims=True)


def without_index(places: set[int]) -> Answer:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        items = [
            {"embedding": numbers(text)} | ({} if place in places else {"index": place})
            for place, text in enumerate(body["input"])
        ]
        return 200, {"data": items}

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        without_index({0}),  # protobuf leaves zeros out
        without_index({0, 1, 2}),
        of_texts(numbers, index_=None, object="embedding"),
        of_texts(lambda text: base64.b64encode(np.array(numbers(text), "<f4").tobytes()).decode()),
        of_texts(lambda text: base64.b64encode(np.array(numbers(text), "<f8").tobytes()).decode()),
    ],
)
def test_embeddings_in_the_forms_of_other_servers(service: Service, answer: Answer) -> None:
    service.answers = [answer]
    embedder = HttpEmbedder("m", base_url=service.url)
    assert embedder.encode(["a", "bb", "ccc"], "passage") == pytest.approx(UNIT)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda body: (200, {"error": {"message": "no model is loaded", "code": 500}}), "API: no model is loaded"),
        (lambda body: (200, {"embedding": []}), "API"),
        (lambda body: vectors({"input": body["input"][:1]}), r"embeddings \[0\]\.\.\. for 9 texts"),
        (of_texts(numbers, index=0), "for 9 texts"),
        (without_index({0, 1}), "API|for 9 texts"),
        (of_texts(lambda _: [1.0, 2.0]), "the same vector for all of 9 texts"),
        (of_texts(lambda _: [[1.0, 2.0], [2.0, 1.0]]), "2 vectors for the text .* set the server's pooling"),
        (of_texts(lambda _: [0.5, None]), "NaN"),
        (lambda _: (500, "input is too large to process. increase the physical batch size"), "a smaller max_chars"),
        (lambda _: (400, "This model's maximum context length is 512 tokens"), "a smaller max_chars"),
        (lambda _: (400, "batch size is invalid, it should not be larger than 10"), "a smaller batch_size"),
    ],
)
def test_embeddings_that_would_rank_nothing_are_named(service: Service, answer: Answer, words: str) -> None:
    service.answers = [answer]
    texts = [f"text {'x' * place}" for place in range(9)]
    with pytest.raises(ModelError, match=words) as error:
        HttpEmbedder("m", base_url=service.url).encode(texts, "passage")
    assert "\n" not in str(error.value)


def in_form(field: str, results: Callable[[list[float]], Any], *, says: str) -> Answer:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        if field not in body:
            return 422, says
        given = body["text_2"] if field == "text_1" else body[field]
        texts = [text["text"] if isinstance(text, dict) else text for text in given]
        return 200, results([len(text) - 2.5 for text in texts])

    return answer


def texts_of(scores: list[float]) -> list[dict[str, str]]:
    return [{"index": str(place), "score": str(score)} for place, score in enumerate(scores)]


def items(name: str, place: str = "index") -> Callable[[list[float]], list[dict[str, Any]]]:
    return lambda scores: [{place: number, name: score} for number, score in enumerate(scores)][::-1]


@pytest.mark.parametrize(
    "answer",
    [
        in_form("text_1", lambda s: {"data": items("score")(s)}, says="text_1: Field required"),
        in_form("passages", lambda s: {"rankings": items("logit")(s)}, says="passages: field required"),
        in_form("input", lambda s: {"data": items("score")(s)}, says='{"detail": "input is required"}'),
        in_form("documents", lambda s: {"results": [i | {"document": None} for i in items("score")(s)]}, says=""),
        in_form("documents", lambda s: {"output": {"results": items("relevance_score")(s)}}, says=""),
        in_form("documents", lambda s: {"data": texts_of(s)}, says=""),
        in_form("documents", lambda s: {"scores": s}, says=""),
        in_form("documents", lambda s: s, says=""),
    ],
)  # fmt: skip
def test_re_rankers_in_the_forms_of_other_servers(service: Service, answer: Answer) -> None:
    service.answers = [answer]
    reranker = HttpReranker(f"{service.url}/rerank", "m", concurrency=1)
    assert reranker.score([("q", "a"), ("q", "ccc"), ("q", "bb")]) == pytest.approx([-1.5, 0.5, -0.5])
    asked = len(service.requests)
    reranker.score([("p", "a")])
    assert len(service.requests) == asked + 1  # the form is known


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda body: (200, {"message": "no re-ranker is deployed"}), "API: no re-ranker is deployed"),
        (lambda body: (200, {"results": [{"index": 2, "relevance_score": 0.9}]}), "set batch_size to 1"),
        (lambda body: (200, {"results": []}), "returned 0 scores for 6 documents$"),
        (lambda body: (200, [{"text": "a", "score": 1.0}] * 6), "format of a re-ranking API"),
        (lambda body: (200, {"results": items("relevance_score")([0.0] * 6)}), "score 0 for all of 18 pairs"),
        (lambda body: (422, "the texts are in no language that we know"), "answered 422"),
    ],
)
def test_re_rankers_that_would_rank_nothing_are_named(service: Service, answer: Answer, words: str) -> None:
    service.answers = [answer]
    pairs = [(query, f"d{'x' * place}") for query in ("q1", "q2", "q3") for place in range(6)]
    with pytest.raises(ModelError, match=words):
        HttpReranker(f"{service.url}/rerank").score(pairs)

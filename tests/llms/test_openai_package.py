"""The package `openai` sends what the settings say and nothing else, and no key is in what it says, whatever fails."""

import asyncio
import json
import logging
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from http_double import Asked, answering
from simulation import openai, send

from airgen.errors import AirgenError
from airgen.llms.base import Message, Request
from airgen.llms.endpoint import Endpoint
from airgen.llms.openai import OpenAISettings
from airgen.net.http import HttpClient
from airgen.net.openai_client import chat, openai_client, received
from airgen.retrievers.endpoints import HttpEmbedder

KEY = "sk-0123456789abcdefABCDEF/+=="
REQUEST = Request("m", (Message("user", "why?\ud800"),), {"max_tokens": 9})
GOOD = {
    "choices": [{"message": {"content": "because", "new": 1}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
}
THEIRS = {
    "OPENAI_API_KEY": "sk-of-somebody-else", "OPENAI_ORG_ID": "org-of-somebody", "OPENAI_PROJECT_ID": "of-somebody",
    "OPENAI_ADMIN_KEY": "sk-admin-of-somebody", "OPENAI_CUSTOM_HEADERS": "X-Theirs: of-somebody",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/of-somebody", "AZURE_OPENAI_API_KEY": "azure-of-somebody",
    "AZURE_OPENAI_AD_TOKEN": "token-of-somebody", "OPENAI_LOG": "debug",
}  # fmt: skip


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    for name, value in THEIRS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("key", [None, "THE_KEY"])
@pytest.mark.parametrize("settings", [{}, {"query": {"api-version": "2024-10-21"}}])
def test_only_what_the_settings_say_is_sent(key: str | None, settings: dict[str, Any]) -> None:
    seen: list[Asked] = []

    def answer(asked: Asked) -> tuple[Any, ...]:
        seen.append(asked)
        return 200, GOOD

    with answering(answer) as url:
        assert send(openai(f"{url}/v1", key, **settings), REQUEST).text == "because"
    (asked,) = seen
    assert "of-somebody" not in f"{asked.headers} {asked.path}" and "no-key" not in str(asked.headers)
    named = {name.lower(): value for name, value in asked.headers.items()}
    azure = bool(settings)
    assert named.get("authorization") == (f"Bearer {KEY}" if key and not azure else None)
    assert named.get("api-key") == (KEY if key and azure else None)
    assert asked.path == "/v1/chat/completions" + ("?api-version=2024-10-21" if azure else "")
    assert named["content-type"] == "application/json" and named["accept-encoding"] == "gzip, deflate"
    # UTF-8 has no lone surrogates, which a truncated JSON escape leaves.
    body = {"model": "m", "messages": [{"role": "user", "content": "why?\ufffd"}], "max_tokens": 9}
    assert asked.json() == body


def test_the_address_of_azure_names_the_model_where_the_settings_do_not() -> None:
    paths: list[str] = []

    def answer(asked: Asked) -> tuple[Any, ...]:
        paths.append(asked.path.partition("?")[0])
        return 200, GOOD

    with answering(answer) as url:
        for path in ("/openai", "/openai/deployments/mine", "/openai/v1"):
            send(openai(f"{url}{path}", "THE_KEY", query={"api-version": "1"}), REQUEST)
    chat = "/chat/completions"
    assert paths == [f"/openai/deployments/m{chat}", f"/openai/deployments/mine{chat}", f"/openai/v1{chat}"]


def test_embeddings_at_a_url_go_through_the_package() -> None:
    seen: list[Asked] = []

    def answer(asked: Asked) -> tuple[Any, ...]:
        seen.append(asked)
        texts = asked.json()["input"]
        return 200, {"data": [{"index": place, "embedding": [3.0, 4.0]} for place in range(len(texts))], "odd": 1}

    with answering(answer) as url:
        embedder = HttpEmbedder(model="e", base_url=f"{url}/v1", api_key_env="THE_KEY", dimensions=2)
        assert np.allclose(embedder.encode(["a", "b"], "query"), [[0.6, 0.8]] * 2)
    assert seen[0].json() == {"model": "e", "input": ["a", "b"], "encoding_format": "float", "dimensions": 2}
    named = {name.lower(): value for name, value in seen[0].headers.items()}
    assert named["authorization"] == f"Bearer {KEY}" and "OpenAI" in named["user-agent"]


# -- what fails -------------------------------------------------------------------------------------------------------


@contextmanager
def listener(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that does this with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def loop() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        serve(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def says(*parts: bytes, then: Callable[[socket.socket], object] = lambda _: None) -> Callable[[socket.socket], None]:
    """Answers any request with these bytes, in which KEY stands for what came in its header."""

    def serve(connection: socket.socket) -> None:
        asked = connection.recv(1 << 16)
        key = next((line[15:] for line in asked.split(b"\r\n") if line.lower().startswith(b"authorization: ")), b"")
        for part in parts:
            connection.sendall(part.replace(b"KEY", key))
        then(connection)

    return serve


def echo(status: bytes, body: bytes) -> Callable[[socket.socket], None]:
    length = len(body.replace(b"KEY", f"Bearer {KEY}".encode()))
    return says(b"HTTP/1.1 " + status + b"\r\nX-Echo: KEY\r\nContent-Length: %d\r\n\r\n" % length + body)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
FAILURES: dict[str, Callable[[socket.socket], None]] = {
    **{f"status {status}": echo(b"%d KEY" % status, b'{"error": {"message": "KEY", "code": "KEY", "type": "KEY"}}')
       for status in (400, 401, 403, 404, 409, 422, 429, 500, 503)},
    "a redirect": says(b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:9/?KEY\r\nContent-Length: 0\r\n\r\n"),
    "text": echo(b"200 OK", b"KEY"),
    "nested": echo(b"400 No", b"[" * 100_000 + b'"KEY"'),
    "nested, of status 200": echo(b"200 OK", b'{"a":' * 100_000 + b'"KEY"'),
    "digits": echo(b"400 No", b'{"error": ' + b"9" * 5_000 + b"}"),
    "another form": echo(b"200 OK", b'{"choices": "KEY"}'),
    "an error of status 200": echo(b"200 OK", b'{"error": {"message": "KEY", "code": 401}}'),
    "no status": says(b"KEY\r\n\r\n"),
    "a status of many digits": says(b"HTTP/1.1 99999 KEY\r\n\r\n"),
    "nothing": says(),
    "half of the headers": says(HEAD + b"X: KEY"),
    "half of the body": says(HEAD + b"Content-Length: 900\r\n\r\n{KEY"),
    "half closed": says(HEAD, then=lambda one: one.shutdown(socket.SHUT_WR)),
    "a reset": says(then=lambda one: one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")),
    "a header that is none": says(HEAD + b"KEY\r\nContent-Length: 2\r\n\r\n{}"),
    "a damaged body": says(HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nKEY"),
    "another encoding": says(HEAD + b"Content-Encoding: KEY\r\nContent-Length: 3\r\n\r\nabc"),
    "bad chunks": says(HEAD + b"Transfer-Encoding: chunked\r\n\r\nKEY\r\n"),
    "two lengths": says(HEAD + b"Content-Length: 2\r\nContent-Length: 7\r\n\r\n{}KEY"),
}  # fmt: skip


def shown(work: Callable[[], object], caplog: pytest.LogCaptureFixture) -> str:
    """All that anyone can see of a failure: message, traceback with its causes, and the log of every package."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(AirgenError) as caught:
        work()
    whole = traceback.TracebackException.from_exception(caught.value)
    texts = ["".join(whole.format(chain=True)), caplog.text, str(caught.value), repr(caught.value)]
    error: BaseException | None = caught.value
    while error is not None:
        texts += [str(error), repr(error), str(vars(error))]
        error = error.__cause__ or error.__context__
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1200
    return "\n".join(texts)


@pytest.mark.parametrize("failure", FAILURES)
def test_no_key_is_in_a_message_a_log_or_a_traceback(failure: str, caplog: pytest.LogCaptureFixture) -> None:
    with listener(FAILURES[failure]) as where:
        backend = openai(f"http://{where}/v1", "THE_KEY")
        assert KEY[:12] not in shown(lambda: send(backend, REQUEST), caplog)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/v1", "https://127.0.0.1:9/v1", "http://nobody.invalid/v1", "http://[::1]:9/v1"]
)
def test_no_key_where_nobody_answers(url: str, caplog: pytest.LogCaptureFixture) -> None:
    assert KEY[:12] not in shown(lambda: send(openai(url, "THE_KEY"), REQUEST), caplog)


@pytest.mark.parametrize("serve", [echo(b"200 OK", b"{}"), says()], ids=["no TLS", "closed"])
def test_no_key_where_tls_fails(serve: Callable[[socket.socket], None], caplog: pytest.LogCaptureFixture) -> None:
    with listener(serve) as where:
        text = shown(lambda: send(openai(f"https://{where}/v1", "THE_KEY"), REQUEST), caplog)
    assert KEY[:12] not in text and ("connection" in text or "plain HTTP" in text)


def test_a_time_out_leaves_no_key_and_no_connection(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    released = threading.Event()

    async def main(where: str) -> None:
        endpoint = OpenAISettings(model="m", base_url=f"http://{where}/v1", api_key_env="THE_KEY").server()
        task = asyncio.ensure_future(endpoint.chat({"model": "m", "messages": []}))
        await asyncio.to_thread(asked.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await endpoint.close()

    asked = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        asked.set()
        released.wait(30)

    with listener(serve) as where:
        asyncio.run(main(where))
        released.set()
    assert KEY[:12] not in caplog.text


def test_files_come_in_pieces_and_are_bounded() -> None:
    async def read(url: str) -> bytes:
        endpoint = Endpoint(f"{url}/v1")
        try:
            return b"".join([piece async for piece in endpoint.pieces("file-1")])
        finally:
            await endpoint.close()

    content = json.dumps({"a": "b" * 3_000_000}).encode()
    with answering(lambda asked: (200, content) if asked.path == "/v1/files/file-1/content" else (404, "")) as url:
        assert asyncio.run(read(url)) == content
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("airgen.llms.endpoint.LARGEST_FILE", 1 << 20)
            with pytest.raises(AirgenError, match="more than 1 MB"):
                asyncio.run(read(url))


def test_the_package_neither_retries_nor_waits() -> None:
    api = openai_client("http://127.0.0.1:9/v1", {}, {}, HttpClient())
    assert api.max_retries == 0 and api.timeout is None


@pytest.mark.parametrize("query", [{}, {"api-version": "2024-10-21"}])
@pytest.mark.parametrize("headers", [{}, {"Authorization": f"Bearer {KEY}", "X-Mine": "me"}])
def test_each_request_has_the_headers_of_the_settings_and_its_own_body(
    query: dict[str, str], headers: dict[str, str]
) -> None:
    seen: list[Asked] = []

    def answer(asked: Asked) -> tuple[Any, ...]:
        seen.append(asked)
        return 200, GOOD

    messages = [{"role": "user", "content": "why?"}]
    bodies: list[dict[str, Any]] = [
        {"model": "a", "messages": messages},
        {"model": "b", "messages": messages, "chat_template_kwargs": {"thinking": False}, "n": 2, "odd": [None]},
        {"model": "a", "messages": messages, "temperature": 0.0},
    ]

    async def calls(url: str) -> list[Any]:
        client = HttpClient()
        api = openai_client(f"{url}/v1", headers, query, client)
        answers = [received(await chat(api, body)) for body in bodies]
        await client.close()
        return answers

    with answering(answer) as url:
        answers = asyncio.run(calls(url))
    assert [json.loads(content) for _, _, content in answers] == [GOOD] * 3
    assert [asked.json() for asked in seen] == bodies
    named = [{name.lower(): value for name, value in asked.headers.items()} for asked in seen]
    for sent in named:
        assert sent.get("x-mine") == headers.get("X-Mine") and not any("stainless" in name for name in sent)

"""A secret is in no text that is shown: any secret, any encoding, any position, each place."""

import base64
import html
import json
import os
import re
import socket
import ssl
import tempfile
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from http_double import answering
from hypothesis import given
from hypothesis import strategies as st
from simulation import openai, send

from airgen.errors import AirgenError, DatasetError
from airgen.evaluation.search_service import finite_score
from airgen.llms.base import Message, Request
from airgen.net.downloads import from_address
from airgen.net.http import HttpFailure, JsonClient, _proxy
from airgen.publishing.hub import Hub
from airgen.safety.mask_secrets import MASK, error_words, masked, of_addresses, printable
from airgen.tables.cells import finite_number

REQUEST = Request("m", (Message("user", "hello"),), {"max_tokens": 9})
# As keys look: base64 with its signs, URL-safe, hexadecimal, and a password with all that must be escaped.
SECRETS = st.text("abcXYZ0189+/=-_.~", min_size=16, max_size=64) | st.text(
    "aB3\\\"'/&<>%+ ?#@:;|é", min_size=12, max_size=40
).map(lambda text: f"Q{text}7".replace(" ", "_"))


def unicode_escapes(text: str) -> str:
    return "".join(f"\\u{ord(letter):04X}" for letter in text)


ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "address": lambda text: urllib.parse.quote(text, safe=""),
    "address, small": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "address twice": lambda text: urllib.parse.quote(urllib.parse.quote(text, safe=""), safe=""),
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON of PHP": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "JSON, + and / as numbers": lambda text: json.dumps(text)[1:-1].replace("+", "\\u002b").replace("/", "\\u002F"),
    "JSON, all as numbers": unicode_escapes,
    "JSON in JSON": lambda text: json.dumps(json.dumps({"key": text})),
    "HTML": html.escape,
    "HTML, all as numbers": lambda text: "".join(f"&#{ord(letter)};" for letter in text),
    "base64 of a pair": lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
    "base64 for addresses": lambda text: base64.urlsafe_b64encode(f"a:{text}:b".encode()).decode(),
    "with characters that nobody sees": lambda text: "\u200b".join(text),
    "with NUL between": "\x00".join,
}


def parts(secret: str, length: int = 10) -> list[str]:
    return [secret[start : start + length] for start in range(max(1, len(secret) - length + 1))]


def shows(text: str, secret: str) -> bool:
    """Whether a person can read ten characters of the secret in a row, decoded or not."""
    seen = [text]
    for _ in range(3):
        seen.append(html.unescape(urllib.parse.unquote(seen[-1])))
        unescaped = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), seen[-1]).replace("\\/", "/")
        seen.append("".join(letter for letter in unescaped if letter.isprintable() and letter != "\u200b"))
    for run in text.split():
        for start in range(4):
            try:
                seen.append(base64.b64decode(run[start:] + "==", altchars=None).decode("latin-1"))
            except ValueError:
                continue
    return any(part in one for part in parts(secret) for one in seen)


@given(
    secret=SECRETS,
    encoding=st.sampled_from(list(ENCODINGS)),
    before=st.integers(0, 700),
    after=st.integers(0, 700),
    longest=st.integers(20, 600),
    as_bytes=st.booleans(),
)
def test_no_encoding_and_no_position_shows_a_secret(
    secret: str, encoding: str, before: int, after: int, longest: int, as_bytes: bool
) -> None:
    text = f"{'ha ' * before}{ENCODINGS[encoding](secret)} {'ho ' * after}"
    said = printable(text.encode() if as_bytes else text, longest, [secret])
    assert len(said) <= longest and not shows(said, secret), said


@given(secret=SECRETS, cut=st.integers(10, 63), encoding=st.sampled_from(["as it is", "JSON of PHP"]))
def test_a_part_that_the_server_cut_is_not_shown_either(secret: str, cut: int, encoding: str) -> None:
    if len(secret) >= 16:
        assert not shows(printable(f"bad key {secret[:cut]}", 500, [secret]), secret)
        assert not shows(printable(f"...{secret[-cut:]} is bad", 500, [secret]), secret)


@given(st.text(max_size=200), SECRETS)
def test_other_text_is_as_it_was(text: str, secret: str) -> None:
    if not shows(text, secret):
        assert masked(text, [secret]) == text


def test_a_word_of_the_mask_is_no_endless_work() -> None:
    assert printable("the key of a key", 100, ["key", "k", "[key]"]) == "the key of a key"


def test_user_and_password_of_a_proxy_are_known_in_each_form() -> None:
    known = of_addresses("http://alice%40x:p%2Fw%3Dlong@proxy:8080/", "bobby:plain@host:1", "http://host:1", None)
    pair = base64.b64encode(b"alice@x:p/w=long").decode()
    assert {"p/w=long", "p%2Fw%3Dlong", "alice@x", pair, "bobby", "plain", "bobby:plain"} <= set(known)


def test_what_the_environment_names_like_a_secret_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "SEARCH_PASSWORD", "MY_API_KEY"):
        monkeypatch.setenv(name, f"{name.lower()}-0123456789")
    monkeypatch.setenv("KEYBOARD_LAYOUT", "qwertzuiop")
    text = " ".join(f"{name}={value}" for name, value in os.environ.items())
    assert "-0123456789" not in printable(text, 10_000) and "qwertzuiop" in printable(text, 60_000)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "whatever"), "Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1010)"), "TLS: "),
        (ValueError("http://me:my-password@host is odd"), f"http://{MASK}@host is odd"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_errors_of_libraries_in_words(error: Exception, words: str) -> None:
    assert error_words(error).startswith(words)


# -- the places ------------------------------------------------------------------------------------------------------

KEY = "AbC/dEf12345+67890SECRETsecret/xyz=="


@contextmanager
def environment(**values: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        _proxy.cache_clear()
        yield
    _proxy.cache_clear()


def failure(work: Callable[[], object]) -> str:
    try:
        return str(work())
    except (AirgenError, HttpFailure) as error:
        return f"{error} {getattr(error, 'detail', '')} {getattr(error, 'reason', '')}"


def of_llm(url: str) -> str:
    return failure(lambda: send(openai(f"{url}/v1", "THE_KEY"), REQUEST))


def of_service(url: str) -> str:
    return failure(lambda: JsonClient(lambda: ({"Authorization": f"Bearer {KEY}"}, [KEY])).ask(f"{url}/s", {"q": 1}))


def of_hub(url: str) -> str:
    return failure(lambda: Hub(endpoint=url, token=KEY, sleep=lambda _: None).head("o/r"))


def of_download(url: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return failure(lambda: from_address(f"{url}/a.zip?sig={KEY}", Path(folder) / "a"))


PLACES: dict[str, Callable[[str], str]] = {
    "an LLM": of_llm, "a service": of_service, "the Hub": of_hub, "a download": of_download,
}  # fmt: skip


ANSWERS = [(200, 0), (200, 95), (200, 9_990), (400, 0), (401, 0), (401, 95), (401, 270), (401, 480), (404, 0), (422, 0),
           (429, 0), (503, 0)]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "status", "before"),
    [(place, *answer) for place in PLACES for answer in (ANSWERS if place != "a download" else ANSWERS[4:5])],
)
def test_no_answer_of_a_server_shows_the_key(place: str, status: int, before: int) -> None:
    for encode in (ENCODINGS["as it is"], ENCODINGS["JSON of PHP"], ENCODINGS["base64 of a pair"]):
        told = f"{'x' * before} Bearer {encode(KEY)}"
        bodies = [told, f'{{"error": {{"message": "{told}", "code": "{encode(KEY)}"}}}}', f'["{told}"]']
        headers = {"X-Request-Id": KEY, "X-Error-Message": KEY, "Content-Type": f"text/{KEY[:4]}"}
        answers = iter([(status, body, headers) for body in bodies])
        with (
            environment(THE_KEY=KEY, HF_TOKEN=KEY),
            answering(lambda _, answers=answers: next(answers, (status, "no more"))) as url,  # type: ignore[misc]
        ):
            for _ in bodies:
                assert not shows(PLACES[place](url), KEY)


@contextmanager
def proxy_that_says(status: bytes) -> Iterator[int]:
    """A proxy that answers whatever it is asked with this status line and all the headers that it got."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    asked = connection.recv(65536)
                    body = asked.replace(b"\r\n", b" ")
                    connection.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("scheme", ["http://", ""])
@pytest.mark.parametrize("status", [b"407 Proxy Authentication Required", b"502 alice hunter2-pass", b"999 what"])
@pytest.mark.parametrize("target", ["http", "https"])
def test_no_refusal_of_a_proxy_shows_its_password(place: str, scheme: str, status: bytes, target: str) -> None:
    with proxy_that_says(status) as port:
        address = f"{scheme}alice:hunter2-pass@127.0.0.1:{port}"
        proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), address)
        with environment(THE_KEY=KEY, NO_PROXY="", no_proxy="", **proxies):
            said = PLACES[place](f"{target}://example.invalid")
    pair = base64.b64encode(b"alice:hunter2-pass").decode()
    assert said and not [part for part in ("hunter2", "alice", pair, KEY) if part in said], said


def test_an_answer_that_echoes_the_key_reaches_no_row() -> None:
    """Of a search service: its ids, scores and texts go into runs and messages."""
    answer = {"hits": [{"id": f"{KEY}-1", "score": 1, KEY: [KEY]}], "took": 3}
    with answering(lambda _: (200, json.dumps(answer).replace("/", "\\/"))) as url:
        value = JsonClient(lambda: ({}, [KEY])).ask(f"{url}/s", {})
    assert value == {"hits": [{"id": f"{MASK}-1", "score": 1, MASK: [MASK]}], "took": 3}


# -- numbers of any size ---------------------------------------------------------------------------------------------


class Rude:
    def __float__(self) -> float:
        raise RuntimeError("no")


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), 10**400, -(10**4200), Rude(), [1]])
def test_what_is_no_finite_number_is_said_in_one_line(value: Any) -> None:
    assert finite_number(value) is None
    with pytest.raises(DatasetError, match=r"^here: score .{1,70} is not a finite number$"):
        finite_score(value, "here")


def test_numbers_stay() -> None:
    assert finite_number(3) == 3.0 and finite_number(-0.5) == -0.5 and finite_number(10**300) == 1e300

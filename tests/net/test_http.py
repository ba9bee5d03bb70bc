"""The one HTTP client: what headers say of waiting, and ways to a server that no second try can mend."""

import asyncio
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import pytest
from http_double import Quiet, answering, serving

from airgen.llms.endpoint import server_limits
from airgen.net import http
from airgen.net.http import HttpClient, HttpFailure, JsonClient, TransportError, retry_after, seconds_until

NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No proxy of this machine, and the same second throughout."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    http._proxy.cache_clear()
    yield
    http._proxy.cache_clear()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0), ("0.25", 0.25), ("20ms", 0.02), ("1m30s", 90.0), ("6m0.5s", 360.5), ("2h", 7200.0), ("1d", 86400.0),
        ("120us", 0.00012), (f"{NOW + 5:.0f}", 5.0), (f"{(NOW + 5) * 1000:.0f}", 5.0), (f"{NOW - 5:.0f}", 0.0),
        ("2027-01-15T08:00:09Z", 9.0), ("2027-01-15T09:00:09+01:00", 9.0), ("2027-01-15 08:00:09", 9.0),
        (format_datetime(datetime.fromtimestamp(NOW + 30, UTC), usegmt=True), 30.0),
        ("PT30S", 30.0), ("PT1M30.5S", 90.5), ("P1DT1S", 86401.0), ("2 s", 2.0), ("30 seconds", 30.0),
        ("1 minute", 60.0),
        ("3 hours", 10800.0), ("00:01:30", 90.0), ("PT", None), ("P", None), ("3 lamps", None), ("1:2", None),
        ("soon", None), ("", None), ("1m2", None), ("-3", None), ("1x", None), ("2027-13-45", None), ("9" * 400, None),
        ("1.2.3", None),
    ],
)  # fmt: skip
def test_when_a_limit_ends(value: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)
    found = seconds_until(value)
    assert found == (None if seconds is None else pytest.approx(seconds, abs=1e-6))


def test_the_headers_of_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)
    assert retry_after({"x-ratelimit-reset": f"{(NOW + 5) * 1000:.0f}"}) == pytest.approx(5)
    assert retry_after({"Retry-After": "2", "x-ratelimit-reset": "9"}) == 2.0
    assert retry_after({"retry-after-ms": "1500", "Retry-After": "9"}) == 1.5
    assert retry_after({"Retry-After": "40d"}) == 3600.0 and retry_after({"Retry-After": "soon"}) is None
    for name, value, seconds in (
        ("x-ratelimit-reset-after", "2.5", 2.5), ("x-rate-limit-reset", f"{NOW + 4:.0f}", 4),
        ("x-ms-retry-after-ms", "750", 0.75),
        ("ratelimit", "limit=100, remaining=0, reset=20", 20), ("ratelimit", '"default";r=0;t=7', 7),
    ):  # fmt: skip
        assert retry_after({name: value}) == pytest.approx(seconds)
    units = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "3s"}
    units |= {"x-ratelimit-remaining-tokens": "900", "x-ratelimit-reset-tokens": "1h"}
    assert retry_after(units) == 3.0 and retry_after({"ratelimit": "limit=100"}) is None
    headers = {f"anthropic-ratelimit-requests-{name}": value for name, value in (("limit", "50"), ("remaining", "49"))}
    headers["anthropic-ratelimit-requests-reset"] = "2027-01-15T08:00:12Z"
    assert server_limits(headers) == ((50, 49, pytest.approx(12)), (None, None, None))


def fails(url: str) -> TransportError:
    async def send() -> None:
        client = HttpClient()
        try:
            await client.send("POST", url, b"{}")
        finally:
            await client.close()

    with pytest.raises(TransportError) as caught:
        asyncio.run(send())
    return caught.value


def test_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    make = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "own.pem")]
    subprocess.run(["openssl", *make.split(), *files], check=True, capture_output=True)

    class Handler(Quiet):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.pem", tmp_path / "key.pem")
    with serving(Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = f"https://localhost:{server.server_address[1]}/v1"
        error = fails(url)
        assert error.kind == "way" and "is not trusted (self" in str(error) and "SSL_CERT_FILE" in str(error)
        with pytest.raises(HttpFailure, match="certificate of localhost") as caught:
            JsonClient(retries=5).ask(url, {})  # one try: five pauses would take half a minute
        assert "tried" not in str(caught.value)
        program = "import sys; from airgen.net.http import JsonClient; print(JsonClient().ask(sys.argv[1], {}))"
        helped = {**os.environ, "SSL_CERT_FILE": str(tmp_path / "own.pem")}  # what the message says
        said = subprocess.run(
            [sys.executable, "-c", program, url], env=helped, capture_output=True, text=True, check=True
        )
        assert said.stdout.strip() == "{}"


def test_plain_http_behind_https() -> None:
    with answering(lambda _: (200, {})) as url:
        error = fails(url.replace("http:", "https:"))
    assert error.kind == "way" and "responds in plain HTTP: use http:// in its URL" in str(error)


def test_a_proxy_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://someone:password-of-theirs@127.0.0.1:9")
    with answering(lambda _: (200, {})) as url:
        error = fails(url)
        assert error.kind == "way" and "password" not in str(error)
        assert "the proxy 127.0.0.1:9 does not answer: correct the environment variable http_proxy" in str(error)
        monkeypatch.setenv("no_proxy", "example.org, 127.0.0.0/8")
        http._proxy.cache_clear()
        assert JsonClient().ask(url, {}) == {}


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ('{"error": {"code": 429, "details": [{"@type": "x/google.rpc.RetryInfo", "retryDelay": "39s"}]}}', 39),
        ('{"error": {"details": [{"retryDelay": "45.837906927s"}]}}', 45.837906927),
        ('{"error": {"message": "Quota exceeded. Please retry in 26.5s."}}', 26.5),
        ('{"error": {"message": "Rate limit reached. Please try again in 6m0s. Visit https://a.org"}}', 360),
        ('{"error": {"message": "Please try again in 20ms."}}', 0.02),
        ("Requests have exceeded the limit. Please retry after 20 seconds.", 20),
        ("Try again in 2 minutes", 120),
        ('{"message": "slow down", "retry_after": 1.5}', 1.5),
        ('{"message": "try again in a while"}', None),
        ('{"retryDelay": null}', None),
        ('{"retryDelay": "40000s"}', 3600),
    ],
)
def test_a_body_says_how_long_to_wait_where_no_header_does(body: str, seconds: float | None) -> None:
    assert retry_after({}, body.encode()) == seconds
    assert retry_after({"Retry-After": "3"}, body.encode()) == 3

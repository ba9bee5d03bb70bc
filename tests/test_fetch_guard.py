"""What other servers can make this machine do: redirects are judged before a request, a silent Hub is given up."""

import socket
from pathlib import Path

import httpx2
import pytest
from http_double import Asked, answering

from airgen import models
from airgen.errors import FetchError
from airgen.net.downloads import from_address
from airgen.net.http import HttpFailure, JsonClient, refused_redirect
from airgen.net.retrying import retrying

ADDRESSES = {
    "public.test": "93.184.216.34", "other.test": "151.101.1.69", "inside.test": "10.0.0.7", "own.test": "127.0.0.1",
    "metadata.test": "169.254.169.254", "six.test": "::1",
}  # fmt: skip


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def resolve(host: str, *rest: object, **more: object) -> object:
        if host in ADDRESSES:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ADDRESSES[host], 0))]
        if host.endswith(".test"):
            raise socket.gaierror(-2, "unknown")
        return real(host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("airgen.net.http.socket.getaddrinfo", resolve)


@pytest.mark.parametrize(
    ("asked", "target", "words"),
    [
        ("https://public.test/a", "https://other.test/a", ""),
        ("https://public.test/a", "https://public.test:8443/a", ""),
        ("http://public.test/a", "https://public.test/a", ""),
        ("http://own.test:1/a", "http://inside.test/a", ""),
        ("http://own.test:1/a", "http://own.test:2/a", ""),
        ("https://public.test/a", "https://unknown.test/a", ""),
        ("https://public.test/a", "http://public.test/a", "from https to http"),
        ("https://public.test/a", "https://own.test/a", "own network"),
        ("https://public.test/a", "https://inside.test/a", "own network"),
        ("http://public.test/a", "http://metadata.test/latest/meta-data", "own network"),
        ("http://public.test/a", "http://six.test/", "own network"),
        ("http://public.test/a", "http://127.0.0.1/", "own network"),
        ("http://public.test/a", "http://2130706433/", "own network"),
        ("http://public.test/a", "http://0x7f.1/", "own network"),
        ("http://public.test/a", "http://[::ffff:127.0.0.1]/", "own network"),
        ("http://public.test/a", "http://0.0.0.0/", "own network"),
        ("http://public.test/a", "file:///etc/passwd", "not a web address"),
        ("http://public.test/a", "ftp://other.test/", "not a web address"),
        ("http://public.test/a", "http://[x/", "not a valid URL"),
        ("http://public.test/a", "http://other.test:99999999/", "not a valid URL"),
    ],
)
def test_a_redirect_is_judged_before_it_is_followed(names: None, asked: str, target: str, words: str) -> None:
    reason = refused_redirect(asked, target)
    assert (words in reason) if words else reason == ""


def test_a_refused_redirect_sends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def other(asked: Asked) -> tuple[int, str]:
        seen.append(asked.path)
        return 200, "content"

    with answering(other) as target, answering(lambda asked: (302, "", {"Location": f"{target}/x"})) as url:
        monkeypatch.setattr("airgen.net.http._is_inside", lambda host: seen.append(host) or host == "nowhere")
        monkeypatch.setattr("airgen.net.downloads.refused_redirect", lambda *_: "it leads elsewhere")
        with pytest.raises(FetchError, match="a redirect is refused: it leads elsewhere"):
            from_address(f"{url}/f.zip", tmp_path / "f.zip")
        assert seen == [] and not (tmp_path / "f.zip").exists()
        monkeypatch.setattr("airgen.net.downloads.refused_redirect", refused_redirect)
        from_address(f"{url}/f.zip", tmp_path / "f.zip")
        assert (tmp_path / "f.zip").read_text() == "content" and seen == ["/x"]


def test_redirects_in_a_circle_end(tmp_path: Path) -> None:
    with (
        answering(lambda asked: (301, "", {"Location": asked.path})) as url,
        pytest.raises(FetchError, match="10 redir"),
    ):
        from_address(f"{url}/f", tmp_path / "f")


def test_services_never_follow_a_redirect() -> None:
    moved = answering(lambda asked: (307, "", {"Location": "http://127.0.0.1:9/"}))
    with moved as url, pytest.raises(HttpFailure, match="307"):
        JsonClient().ask(f"{url}/s", {})


# -- waiting ----------------------------------------------------------------------------------------------------------


def test_a_service_that_never_answered_is_tried_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("tenacity.asyncio._portable_async_sleep", sleep)
    client = JsonClient(retries=9)
    with pytest.raises(HttpFailure, match=r"cannot be reached.*\(tried 3 times\)"):
        client.ask("http://127.0.0.1:9/s", {})
    assert len(pauses) <= 2 and sum(pauses) < 10


def test_a_silent_hub_is_given_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    asked: list[float] = []

    def head(url: str, timeout: float) -> None:
        asked.append(timeout)
        raise httpx2.ConnectError("refused")

    models.retry_silent_hub()  # another test may have given it up
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(httpx2, "head", head)
    monkeypatch.setattr(
        "airgen.models.fetching.retrying", lambda *args, **more: retrying(*args, **more, sleep=lambda _: None)
    )
    models.give_up_silent_hub.cache_clear()
    assert models.give_up_silent_hub() and models.give_up_silent_hub() and constants.HF_HUB_OFFLINE
    assert len(asked) == 2 and sum(asked) + 2 < 10
    for name in ("nobody/one", "nobody/two"):  # the silent Hub is not waited for again
        assert "does not answer" in models.on_hub(name).problem
    assert len(asked) == 2
    models.retry_silent_hub()  # to publish: the Hub itself is needed, and may be back
    assert not constants.HF_HUB_OFFLINE
    models.give_up_silent_hub.cache_clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(httpx2, "head", lambda url, timeout: httpx2.Response(500))
    assert not models.give_up_silent_hub() and not constants.HF_HUB_OFFLINE
    models.give_up_silent_hub.cache_clear()


def test_one_rule_for_waiting() -> None:
    pauses: list[float] = []
    tries: list[int] = []

    def work() -> str:
        tries.append(1)
        if len(tries) < 5:
            raise ConnectionError(str(len(tries)))
        return "done"

    asked = {"2": 7.5}
    found = retrying(
        work, 6, lambda error: isinstance(error, ConnectionError), first=1, longest=4, sleep=pauses.append,
        requested_wait=lambda error: asked.get(str(error), 0.0),
    )  # fmt: skip
    assert found == "done" and len(pauses) == 4 and pauses[1] == 7.5
    assert 1 <= pauses[0] <= 1.5 and 4 <= pauses[2] <= 4.5 and 4 <= pauses[3] <= 4.5
    with pytest.raises(ConnectionError, match="1"):
        tries.clear()
        retrying(work, 3, lambda error: False, sleep=pauses.append)
    tries.clear()
    with pytest.raises(ConnectionError, match="2"):
        retrying(work, lambda number, error: str(error) == "2", lambda error: True, sleep=lambda _: None)

"""JSON over HTTP, for endpoints of models and for search services.

    client = JsonClient(settings.access, timeout=60.0, retries=5, connections=4)
    client.ask(url, {"query": "..."})                 # one answer
    client.ask_all(work, items)                       # several at once; the first failure ends all of them

Connections are kept open while the client lives. A redirect is an error: it would carry the key to an address that the
user never named. Keys are sent in headers and appear in no message. An answer is bounded in bytes and in time.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, stop_any, stop_when_event_set
from tenacity.nap import sleep_using_event

_LONGEST_WAIT = 60.0  # seconds between two tries, whatever the server asks for
_LARGEST_ANSWER = 1 << 28  # bytes

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class HttpFailure(Exception):
    """A request without a usable answer. `status` is 0 where no answer came."""

    def __init__(self, reason: str, status: int = 0, retry_after: float = 0.0, may_pass: bool = False) -> None:
        super().__init__(reason)
        self.status, self.retry_after, self.may_pass = status, retry_after, may_pass


class JsonClient:
    """Requests to one service. `access` gives the headers and the secrets in them; it is called once.

    `timeout` is in seconds, for one try from its beginning to the end of the answer. `retries` is how often a refusal
    for now (status 429 or 5xx), a dropped connection and a time-out are tried again.
    """

    def __init__(
        self,
        access: Callable[[], tuple[dict[str, str], list[str]]] = lambda: ({}, []),
        *,
        timeout: float = 60.0,
        retries: int = 0,
        connections: int = 1,
    ) -> None:
        headers, self._secrets = access()
        self._timeout, self._retries, self._connections = timeout, retries, connections
        self._stop = threading.Event()
        self._client = httpx.Client(
            headers={"Accept": "application/json", "Accept-Encoding": "identity", **headers},
            timeout=timeout,
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        )
        weakref.finalize(self, self._client.close)

    def ask(self, url: str, body: object = None, parameters: Mapping[str, Any] | None = None) -> Any:
        """The JSON answer to a POST of `body`, or to a GET where there is none. Raises HttpFailure."""
        attempts = Retrying(
            stop=stop_any(stop_after_attempt(self._retries + 1), stop_when_event_set(self._stop)),
            wait=_wait,
            sleep=sleep_using_event(self._stop),
            retry=retry_if_exception(lambda error: isinstance(error, HttpFailure) and error.may_pass),
            reraise=True,
        )
        try:
            return attempts(self._once, url, body, parameters)
        except HttpFailure as failure:
            tries = f" (tried {self._retries + 1} times)" if failure.may_pass and self._retries else ""
            words = str(failure)
            for secret in self._secrets:
                words = words.replace(secret, "***")
            raise HttpFailure(words + tries, failure.status) from None

    def ask_all(self, work: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
        """The answers in the order of the items, as many at once as there are connections.

        The first failure, or Ctrl-C, drops what has not begun and ends the waits between tries.
        """
        pool = ThreadPoolExecutor(self._connections)
        try:
            return list(pool.map(work, items))
        except BaseException:
            self._stop.set()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            self._stop.clear()

    def _once(self, url: str, body: object, parameters: Mapping[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        kind = {} if data is None else {"Content-Type": "application/json"}
        method = "GET" if data is None else "POST"
        deadline = time.monotonic() + self._timeout
        try:
            with self._client.stream(method, url, content=data, params=parameters, headers=kind) as answer:
                limit = _LARGEST_ANSWER if answer.is_success else 2000
                raw = self._read(answer, limit, deadline)
        except (httpx.TimeoutException, TimeoutError):
            raise HttpFailure(
                f"gave no answer within {self._timeout:g} s: is it too busy, or the time-out too short?", may_pass=True
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            words = " ".join(str(error).split())[:300] or type(error).__name__
            raise HttpFailure(f"cannot be reached ({words}): is the service running?", may_pass=True) from None
        if not answer.is_success:
            raise HttpFailure(
                f"answered {answer.status_code}: {_beginning(raw, 300)}",
                answer.status_code,
                _seconds(answer.headers.get("Retry-After")),
                may_pass=answer.status_code == 429 or answer.status_code >= 500,
            )
        if len(raw) > _LARGEST_ANSWER:
            raise HttpFailure(f"gave an answer of more than {_LARGEST_ANSWER >> 20} MB")
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            raise HttpFailure(f"gave an answer that is not JSON: {_beginning(raw, 120)!r}") from None

    @staticmethod
    def _read(answer: httpx.Response, limit: int, deadline: float) -> bytes:
        """At most `limit` + 1 bytes. A server that sends a byte now and then meets the deadline all the same."""
        raw = bytearray()
        for some in answer.iter_bytes():
            raw += some[: limit + 1 - len(raw)]
            if time.monotonic() > deadline:
                raise TimeoutError
            if len(raw) > limit:
                break
        return bytes(raw)


def _wait(state: RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    asked = failure.retry_after if isinstance(failure, HttpFailure) else 0.0
    return min(max(2.0 ** (state.attempt_number - 1), asked), _LONGEST_WAIT)


def _beginning(raw: bytes, length: int) -> str:
    return " ".join(raw[:2000].decode("utf-8", "replace").split())[:length]


def _seconds(header: str | None) -> float:
    try:
        return max(0.0, float(header or 0))
    except ValueError:
        return 0.0

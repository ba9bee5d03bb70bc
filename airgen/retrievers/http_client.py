"""JSON over HTTP, for endpoints of models and for search services.

A redirect is an error: it would carry the key to an address that the user never named. The key is sent in a header
and appears in no message.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

__all__ = ["HttpFailure", "request_json"]

_LONGEST_WAIT = 60.0  # seconds between two tries, whatever the server asks for
_LARGEST_ANSWER = 1 << 28  # bytes


class HttpFailure(Exception):
    """A request without a usable answer. `status` is 0 where no answer came."""

    def __init__(self, reason: str, status: int = 0, retry_after: float = 0.0, may_pass: bool = False) -> None:
        super().__init__(reason)
        self.status, self.retry_after, self.may_pass = status, retry_after, may_pass


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Never follow a redirect."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def request_json(
    url: str, body: object = None, *, api_key: str | None = None, timeout: float = 60.0, retries: int = 0
) -> Any:
    """The JSON answer to a POST of `body`, or to a GET where there is none.

    A refusal for now (status 429 or 5xx), a dropped connection and a time-out are tried again, `retries` times.
    Raises HttpFailure with the server's words.
    """
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    data = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
    attempts = Retrying(
        stop=stop_after_attempt(retries + 1),
        wait=_wait,
        retry=retry_if_exception(lambda error: isinstance(error, HttpFailure) and error.may_pass),
        reraise=True,
    )
    try:
        return attempts(lambda: _once(urllib.request.Request(url, data, headers), timeout))
    except HttpFailure as failure:
        tries = f" (tried {retries + 1} times)" if failure.may_pass and retries else ""
        words = str(failure).replace(api_key, "***") if api_key else str(failure)
        raise HttpFailure(words + tries, failure.status) from None


def _wait(state: RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    asked = failure.retry_after if isinstance(failure, HttpFailure) else 0.0
    return min(max(2.0 ** (state.attempt_number - 1), asked), _LONGEST_WAIT)


def _once(request: urllib.request.Request, timeout: float) -> Any:
    try:
        with _OPENER.open(request, timeout=timeout) as answer:
            raw = answer.read(_LARGEST_ANSWER + 1)
    except urllib.error.HTTPError as error:
        may_pass = error.code == 429 or error.code >= 500
        with error:
            words = f"answered {error.code}: {_beginning(error.read(2000), 300)}"
        raise HttpFailure(words, error.code, _seconds(error.headers.get("Retry-After")), may_pass) from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise HttpFailure(
                f"gave no answer within {timeout:g} s: is it too busy, or the time-out too short?", may_pass=True
            ) from None
        words = str(reason).strip() or type(reason).__name__
        raise HttpFailure(f"cannot be reached ({words}): is the service running?", may_pass=True) from None
    if len(raw) > _LARGEST_ANSWER:
        raise HttpFailure(f"gave an answer of more than {_LARGEST_ANSWER >> 20} MB")
    try:
        return json.loads(raw)
    except ValueError:
        raise HttpFailure(f"gave an answer that is not JSON: {_beginning(raw, 120)!r}") from None


def _beginning(raw: bytes, length: int) -> str:
    return " ".join(raw[:2000].decode("utf-8", "replace").split())[:length]


def _seconds(header: str | None) -> float:
    try:
        return max(0.0, float(header or 0))
    except ValueError:
        return 0.0

"""An LLM endpoint: its URL, and the interpretation of its server's responses.

    endpoint = Endpoint("https://api.openai.com/v1", *settings.access())
    status, headers, content = await endpoint.chat(body)
    raise endpoint.failure(status, headers, content, "gpt-4o-mini")

The key is removed from all text that a server returns, including answers.
"""

import importlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airgen.errors import AirgenError, LlmError
from airgen.llms.base import Allowance, CallFailed, Refused, Reply, Retry
from airgen.llms.chat import chat_reply, load_json, masked
from airgen.llms.error_bodies import LONGEST_ERROR, error_in
from airgen.llms.money import Usage
from airgen.net.http import HttpClient, Received, TransportError, retry_after, seconds_until

if TYPE_CHECKING:
    from openai import AsyncOpenAI

LARGEST_ANSWER = 1 << 24  # bytes per answer after inflation; 20 alternatives for each of 4,096 tokens take 8 MB
LARGEST_FILE = 2 << 30  # bytes of a batch's results
_LONGEST_WAIT = 30 * 86_400.0  # seconds until a reset
_FATAL_CODES = {"insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "account_deactivated"}
_FATAL_CODES |= {"invalid_api_key", "model_not_found"}
_BAD_OUTPUT = re.compile(
    r"json_validate_failed|tool_use_failed|output_parse_failed|failed[_ ]generation|"
    r"failed to (?:generate|validate) json|"
    r"generated (?:json|output|response) (?:does not|did not|could not|cannot|failed)|"
    r"model (?:generated|produced|returned) (?:an )?(?:invalid|malformed)|output that could not be parsed",
    re.IGNORECASE,
)


class Endpoint:
    """A base URL and its connections.

    Args:
        headers, query: Headers and query parameters of each request, which contain the `secrets`.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
        query: Mapping[str, str] | None = None,
    ) -> None:
        parts = urlsplit(base_url)
        self.base_url = base_url.rstrip("/")
        self.where = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
        self._headers, self._query = headers or {}, query or {}
        self.client = HttpClient(secrets=secrets, largest=LARGEST_ANSWER)

    @cached_property
    def _package(self) -> Any:
        return importlib.import_module("airgen.net.openai_client")  # most of a second, so with the first call

    @cached_property
    def api(self) -> "AsyncOpenAI":
        """Return the `openai` package's client, whose responses pass through `call` and `pieces`."""
        return self._package.openai_client(  # type: ignore[no-any-return]
            self.base_url, self._headers, self._query, self.client, largest_file=LARGEST_FILE
        )

    async def chat(self, body: Mapping[str, Any]) -> Received:
        """Ask for a chat completion. Raises the same errors as `call`."""
        return await self.call(lambda api: self._package.chat(api, body))

    async def call(self, work: "Callable[[AsyncOpenAI], Awaitable[Any]]") -> Received:
        """Call a method of the package, and return the status, headers and content of the response.

        Raises Retry if the connection fails, Refused if the response is too large, and LlmError if the URL is invalid.
        """
        try:
            answer = await work(self.api)
        except TransportError as error:
            problem = self.trouble(error)
        except self._package.Answered as error:
            return error.received  # type: ignore[no-any-return]
        except self._package.InvalidURL:
            problem = LlmError(f"{self.where} is not a URL")
        else:
            return self._package.received(answer)  # type: ignore[no-any-return]
        raise problem

    async def pieces(self, file: str, remedy: str = "") -> AsyncIterator[bytes]:
        """Yield the content of a file on the server in pieces. Raises the same errors as `call` and `failure`."""
        try:
            async with self.api.files.with_streaming_response.content(file) as answer:
                async for piece in answer.iter_bytes():
                    yield piece
            return
        except TransportError as error:
            problem = self.trouble(error)
        except self._package.Answered as error:
            status, headers, content = error.received
            problem = self.failure(status, headers, content, f"file {file}", remedy=remedy)
        raise problem

    def trouble(self, error: TransportError) -> AirgenError:
        """Return the exception for a request without a response. Unless it was not sent, it may be billed."""
        if error.kind in ("address", "way"):
            return LlmError(str(error))
        if error.kind == "large":
            return Refused("too_large", f"{self.where} {error}", Usage() if error.status == 200 else None)
        if error.kind == "unreached":
            return Retry("connection", detail=str(error))
        return Retry("bad_body" if error.kind == "body" else "connection", detail=str(error), usage=Usage())

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()

    def scrub(self, message: str) -> str:
        """Return a server's message on one line, without the key."""
        return self.client.scrub(message)

    def reply(self, payload: Any) -> Reply:
        """Return the reply of a chat completion without the key. Raises the same errors as `chat_reply`, also without
        the key."""
        try:
            reply = chat_reply(payload)
            return masked(reply, self.client.mask) if self.client.secrets else reply
        except CallFailed as problem:
            raise type(problem)(problem.reason, detail=self.scrub(problem.detail), usage=problem.usage) from None

    def failure(
        self, status: int, headers: Mapping[str, str], content: bytes, target: str = "", remedy: str = ""
    ) -> AirgenError:
        """Return the exception for a response that is not a success.

        `target` is the requested model or path, and `remedy` says what to do if it no longer exists.
        """
        message, code = error_of(content)
        where = f"{target} at {self.where}" if target else self.where
        error = failure(status, self.scrub(message), code, headers=headers, where=where, content=content)
        hint = remedy if status in (404, 410) and remedy else self._hint(status, code)
        if isinstance(error, LlmError) and hint:
            return LlmError(f"{error} ({hint})")
        return error

    def _hint(self, status: int, code: str) -> str:
        """Return a hint about what the user has probably forgotten if a server refuses."""
        if status == 401 and not self.client.secrets:
            return "no key was sent: llm.api_key_env names the environment variable that holds it"
        if status == 404 and code != "model_not_found" and not urlsplit(self.base_url).path:
            return "llm.base_url has no path, and most servers need /v1 at its end"
        return ""


def error_of(content: bytes) -> tuple[str, str]:
    """Return the message and the code in an error body, which servers write in several formats."""
    text = content.decode("utf-8", "replace")
    try:
        payload = load_json(text)
    except ValueError:
        return re.sub(r"<[^<>]*>", " ", text[:LONGEST_ERROR]).strip(), ""
    return error_in(payload)


def failure(
    status: int, message: str, code: str, headers: Mapping[str, str], where: str, content: bytes = b""
) -> AirgenError:
    """Return the exception for an HTTP status.

    Args:
        status: The HTTP status.
        message: The server's message, without secrets.
        code: The server's own error code, or "".
        headers: The headers, which may say how long to wait.
        where: The endpoint, for the message.
        content: The body, which some servers use for that instead.

    Returns:
        LlmError for a permanent failure, Refused for a fault of this request, Retry for a temporary failure.
    """
    if status in (401, 402, 403, 404, 405) or code in _FATAL_CODES or 300 <= status < 400:
        return LlmError(f"{where} refuses (HTTP {status}): {message or 'it gave no reason'}")
    if status == 429:
        return Retry("rate_limit", retry_after(headers, content), message)
    if status in (408, 409, 425) or status >= 500:
        # Behind a gateway that stopped waiting, the model may have answered.
        usage = Usage() if status in (408, 504) else None
        return Retry(f"http_{status}", retry_after(headers, content), message, usage)
    if _BAD_OUTPUT.search(f"{code} {message}"):  # the model wrote something bad this time, which may be billed
        return Retry("bad_output", retry_after(headers, content), message, Usage())
    lowered = f"{code} {message}".lower()
    if "context" in lowered and ("length" in lowered or "window" in lowered):
        return Refused("context_length", message)
    if "content_filter" in lowered or "content management policy" in lowered or "content_policy" in lowered:
        return Refused("content_filter", message)
    return Refused(f"http_{status}", message)


def no_api(content: bytes, kind: str) -> str:
    """Describe a response other than JSON that retrying would not change: a web page or an event stream."""
    start = content[:200].lstrip().lower()
    if "event-stream" in kind.lower() or start.startswith((b"data:", b"event:", b": ")):
        return "answers with a stream of events (SSE), which was not requested: turn streaming off there"
    if "html" in kind.lower() or start.startswith((b"<!doctype html", b"<html")):
        return "answers with a web page in place of JSON (a login page, or the wrong path): check llm.base_url"
    return ""


def status_in(payload: Mapping[str, Any]) -> int:
    """Return the HTTP status in an error body with status 200, or 500 if it contains none."""
    error = payload["error"]
    code = str(error.get("code")) if isinstance(error, dict) else ""
    return int(code) if re.fullmatch("[45][0-9][0-9]", code) else 500


def server_limits(headers: Mapping[str, str]) -> tuple[Allowance, Allowance] | None:
    """Parse the headers of OpenAI, Anthropic and others that say how many requests and tokens are left; None if there
    are none.
    """
    for names in _LIMITS:
        if any(headers.get(limit) for limit, _, _ in names):
            requests, tokens = (
                Allowance(_whole(headers.get(limit)), _whole(headers.get(remaining)), _reset(headers.get(reset)))
                for limit, remaining, reset in names
            )
            return requests, tokens
    return None


_LIMITS = tuple(  # for each format, the names for requests and for tokens
    tuple(
        tuple(form.format(what=what, unit=unit) for what in ("limit", "remaining", "reset"))
        for unit in ("requests", "tokens")
    )
    for form in ("x-ratelimit-{what}-{unit}", "anthropic-ratelimit-{unit}-{what}")
)


def _whole(value: str | None) -> int | None:
    return int(value) if value and len(value) <= 15 and value.isdecimal() else None


def _reset(value: str | None) -> float | None:
    """Return the seconds until a reset given as a duration, a date or Unix time."""
    seconds = seconds_until(value) if value else None
    return None if seconds is None else min(seconds, _LONGEST_WAIT)

"""One HTTP endpoint: its address, its key, live calls, and the meaning of a status.

    endpoint = Endpoint("https://api.openai.com/v1", "OPENAI_API_KEY")
    status, headers, content = await endpoint.post("/chat/completions", body)

The key is read from the environment and sent in one header. Redirects are not followed, and the key is removed from
all text that a server sends back, answers included.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import zlib
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError

from airgen.errors import AirgenError, LlmError, SettingsError
from airgen.llms.base import Refused, Reply, Retry, ServerLimits, Usage
from airgen.llms.chat import chat_reply, load_json, masked
from airgen.settings import secret
from airgen.settings.http import filled_headers
from airgen.settings.llm import address

if TYPE_CHECKING:
    import aiohttp


OPENAI_URL = "https://api.openai.com/v1"

LARGEST_ANSWER = 1 << 24  # bytes of one answer after inflation: 20 alternatives for each of 4,096 tokens are 8 MB
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_LONGEST_ERROR = 10_000  # characters of a body that are searched for an error message
_SECRET = 8  # characters: a shorter "key", such as "EMPTY" for a server of one's own, is no secret, and may be a word
_LONGEST_WAIT = 30 * 86_400.0  # seconds until a reset
_FATAL_CODES = {"insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "account_deactivated"}
_FATAL_CODES |= {"invalid_api_key", "model_not_found"}


class Endpoint:
    """A base URL, its key and its connections.

    api_key_env names the environment variable with the key, which is sent in `key_header`; None for a server without a
    key. headers, query: more headers, and parameters behind the address, with ${NAME} for what the environment holds.
    versioned: the base URL itself must hold the API's version, such as /v1.
    Raises SettingsError for a base URL that is not http(s), or a variable that is not set.
    """

    def __init__(
        self,
        base_url: str = OPENAI_URL,
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 15.0,
        *,
        query: Mapping[str, str] | None = None,
        key_header: str = "Authorization",
        versioned: bool = False,
    ) -> None:
        try:
            parts = urlsplit(address(base_url))
        except PydanticCustomError as error:
            raise SettingsError([f"llm.base_url: {error.message()}"]) from None
        self.base_url = base_url.rstrip("/")
        self.where = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
        key = secret(api_key_env) or ""
        if api_key_env and not key:
            raise SettingsError([f"llm.api_key_env: the environment variable {api_key_env} is not set: export it"])
        self.headers, in_headers = filled_headers(headers or {})
        self.query, in_query = filled_headers(query or {})
        self._secrets = [one for one in (key, *in_headers, *in_query) if one]
        if key:
            self.headers[key_header] = f"Bearer {key}" if key_header == "Authorization" else key
        self._connect_timeout, self._versioned = connect_timeout, versioned
        self._session: aiohttp.ClientSession | None = None
        importlib.import_module("aiohttp")  # it takes a tenth of a second: not during the first call

    async def post(self, path: str, body: Any) -> tuple[int, Mapping[str, str], bytes]:
        """Send `body` as JSON; returns status, headers and content.

        Raises Retry for a failure of the connection, LlmError where the URL is not an address.
        """
        return await self.post_bytes(path, _ENCODER.encode(body).encode("ascii"))

    async def post_bytes(
        self, path: str, data: bytes, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send JSON that is written already, with more headers. Returns and raises what `post` does."""
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout),
                headers={**self.headers, "Content-Type": "application/json", "Accept-Encoding": "gzip, deflate"},
                auto_decompress=False,  # `_read` bounds what comes out
                proxy=_proxy(self.base_url),  # trust_env would look it up anew for each call, in a thread
            )
        try:
            async with self._session.post(
                self.base_url + path, data=data, headers=headers, params=self.query or None, allow_redirects=False
            ) as response:
                return response.status, response.headers, await self._read(response)
        # `from None`: aiohttp's errors carry the request, and with it the key
        except aiohttp.InvalidURL as error:
            raise LlmError(f"{self.scrub(str(error))} is not an address") from None
        except aiohttp.ClientPayloadError as error:
            raise Retry("bad_body", detail=self.scrub(str(error)), usage=Usage()) from None
        except aiohttp.ClientConnectorError as error:  # nothing was sent
            raise Retry("connection", detail=self.scrub(f"no connection to {self.where}: {_cause(error)}")) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: headers that are none
            detail = self.scrub(str(error) or type(error).__name__)
            raise Retry("connection", detail=detail, usage=Usage()) from None

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """The body, inflated. Raises Refused where it is larger than an answer can be, Retry where it is damaged."""
        coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise Retry("bad_body", detail=f"Content-Encoding {coding[:40]!r} was not asked for", usage=Usage())
        inflate = None if coding in ("", "identity") else zlib.decompressobj(zlib.MAX_WBITS | 32)
        content, first = bytearray(), True
        async for chunk in response.content.iter_any():
            if inflate is not None:
                if first and coding == "deflate" and chunk[0] & 0x0F != 8:
                    inflate = zlib.decompressobj(-zlib.MAX_WBITS)  # no zlib header, as some servers send it
                first = False
                try:
                    chunk = inflate.decompress(chunk, LARGEST_ANSWER + 1 - len(content))
                except zlib.error as error:
                    raise Retry("bad_body", detail=f"damaged {coding}: {error}", usage=Usage()) from None
            content += chunk
            if len(content) > LARGEST_ANSWER:
                detail = f"{self.where} sends an answer of more than {LARGEST_ANSWER >> 20} MB"
                raise Refused("too_large", detail, Usage() if response.status == 200 else None)
        if inflate is not None and content and not inflate.eof:
            raise Retry("bad_body", detail=f"the {coding} body ends early", usage=Usage())
        return bytes(content)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def scrub(self, message: str) -> str:
        """A server's message on one line, without the key."""
        message = " ".join(message.split())
        for one in self._secrets:
            message = message.replace(one, "[key]")
        return message[:500]

    def mask(self, text: str) -> str:
        """A text of the server without the key."""
        for one in self._secrets:
            text = text.replace(one, "[key]") if len(one) >= _SECRET else text
        return text

    def reply(self, payload: Any) -> Reply:
        """The answer of a chat completion without the key. Raises what `chat_reply` raises, without the key."""
        try:
            reply = chat_reply(payload)
            return masked(reply, self.mask) if self._secrets else reply
        except (Retry, Refused) as problem:
            raise type(problem)(problem.reason, detail=self.scrub(problem.detail), usage=problem.usage) from None

    def failure(self, status: int, headers: Mapping[str, str], content: bytes, what: str = "") -> AirgenError:
        """The exception for an answer that is not a success. `what` is the model or path that was asked for."""
        message, code = error_of(content)
        where = f"{what} at {self.where}" if what else self.where
        found = failure(status, self.scrub(message), code, headers, where)
        if isinstance(found, LlmError) and (hint := self._hint(status, code)):
            return LlmError(f"{found} ({hint})")
        return found

    def _hint(self, status: int, code: str) -> str:
        """What the user has probably forgotten, where a server refuses."""
        if status == 401 and not self._secrets:
            return "no key was sent: llm.api_key_env names the environment variable that holds it"
        if status == 404 and self._versioned and code != "model_not_found" and not urlsplit(self.base_url).path:
            return "llm.base_url has no path, and most servers want /v1 at its end"
        return ""


def _cause(error: aiohttp.ClientConnectorError) -> str:
    """Why there is no connection, in the words of the operating system."""
    number = error.os_error.errno or 0
    words = os.strerror(number) if number > 0 else error.os_error.strerror
    return words or str(error) or type(error).__name__


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for this address."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def error_of(content: bytes) -> tuple[str, str]:
    """The message and the code in the body of an error, which servers write in several formats."""
    text = content.decode("utf-8", "replace")
    try:
        payload = load_json(text)
    except ValueError:
        return re.sub(r"<[^<>]*>", " ", text[:_LONGEST_ERROR]).strip(), ""
    return error_in(payload)


def error_in(payload: Any) -> tuple[str, str]:
    """The message and the code in the parsed body of an error."""
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    try:
        if isinstance(error, dict):
            message = error.get("message") or error.get("detail") or json.dumps(error)
            return str(message)[:_LONGEST_ERROR], str(error.get("code") or error.get("type") or "")[:100]
        return "" if error is None else str(error)[:_LONGEST_ERROR], ""
    except RecursionError:
        return "", ""


def failure(status: int, message: str, code: str, headers: Mapping[str, str], where: str) -> AirgenError:
    """The exception for an HTTP status: LlmError for what will never work, Refused, or Retry."""
    if status in (401, 402, 403, 404, 405) or code in _FATAL_CODES or 300 <= status < 400:
        return LlmError(f"{where} refuses (HTTP {status}): {message or 'it gave no reason'}")
    if status == 429:
        return Retry("rate_limit", retry_after(headers), message)
    if status in (408, 409, 425) or status >= 500:
        # behind a gateway that gave up waiting, the model may have answered
        usage = Usage() if status in (408, 504) else None
        return Retry(f"http_{status}", retry_after(headers), message, usage)
    lowered = f"{code} {message}".lower()
    if "context" in lowered and ("length" in lowered or "window" in lowered):
        return Refused("context_length", message)
    if "content_filter" in lowered or "content management policy" in lowered or "content_policy" in lowered:
        return Refused("content_filter", message)
    return Refused(f"http_{status}", message)


def status_in(payload: Mapping[str, Any]) -> int:
    """The HTTP status named in an error body that came with status 200; 500 where it names none."""
    error = payload["error"]
    code = str(error.get("code")) if isinstance(error, dict) else ""
    return int(code) if re.fullmatch("[45][0-9][0-9]", code) else 500


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or from `Retry-After` as seconds or a date; None without a valid one."""
    try:
        if milliseconds := headers.get("retry-after-ms"):
            return _bounded(float(milliseconds) / 1000)
        value = headers.get("Retry-After")
        if not value:
            return None
        value = value[:100].strip()
        if re.fullmatch(r"[\d.]+", value):
            return _bounded(float(value))
        return _bounded(parsedate_to_datetime(value).timestamp() - time())
    except (ValueError, TypeError, OverflowError):
        return None


def _bounded(seconds: float) -> float:
    return min(max(0.0, seconds), 3600.0)


def server_limits(headers: Mapping[str, str]) -> ServerLimits | None:
    """The `x-ratelimit-*` headers, or None where there are none."""
    requests, tokens = headers.get("x-ratelimit-limit-requests"), headers.get("x-ratelimit-limit-tokens")
    if not requests and not tokens:
        return None
    return ServerLimits(
        requests=_whole(requests),
        requests_left=_whole(headers.get("x-ratelimit-remaining-requests")),
        requests_reset=_duration(headers.get("x-ratelimit-reset-requests")),
        tokens=_whole(tokens),
        tokens_left=_whole(headers.get("x-ratelimit-remaining-tokens")),
        tokens_reset=_duration(headers.get("x-ratelimit-reset-tokens")),
    )


def _whole(value: str | None) -> int | None:
    return int(value) if value and len(value) <= 15 and value.isdecimal() else None


def _duration(value: str | None) -> float | None:
    """Seconds of a Go duration, `6m0.5s` or `20ms`, or of a plain number."""
    if not value:
        return None
    units = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "": 1.0}
    found = re.findall(r"([\d.]+)(ms|[dhms]|)", value[:40])
    try:
        seconds = sum(float(number) * units[unit] for number, unit in found)
    except ValueError:
        return None
    return min(seconds, _LONGEST_WAIT) if found else None

"""One HTTP endpoint: connections, the key, and what a status means. Shared by live calls and the Batch API.

    endpoint = Endpoint("https://api.openai.com/v1", "OPENAI_API_KEY")
    status, headers, content = await endpoint.call("POST", "/chat/completions", body)

The key is read from the environment, sent in one header, never followed across a redirect, and taken out of
whatever a server echoes.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airgen.errors import AirgenError, LlmError, SettingsError
from airgen.llms.base import Refused, Retry, ServerLimits
from airgen.settings import secret

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Endpoint", "error_of", "failure", "read_key", "retry_after", "server_limits"]

_LARGEST = 1 << 30  # bytes of one answer; a batch's results can be a few hundred megabytes
_FATAL_CODES = {"insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "account_deactivated"}
_FATAL_CODES |= {"invalid_api_key", "model_not_found"}


class Endpoint:
    """A base URL and its connections.

    api_key_env names the environment variable with the key; None for servers that want none. Raises SettingsError
    for a base URL that is not http(s) or a variable that is not set.
    """

    def __init__(
        self,
        base_url: str = "https://api.openai.com/v1",
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 15.0,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError([f"llm.base_url: {base_url!r} is not an http(s) address"])
        if parts.username or parts.password:
            raise SettingsError(["llm.base_url: must hold no user and password; use llm.api_key_env"])
        self.base_url = base_url.rstrip("/")
        self.where = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
        self._key = read_key(api_key_env) if api_key_env else ""
        self._headers = dict(headers or {})
        if self._key:
            self._headers["Authorization"] = f"Bearer {self._key}"
        self._connect_timeout = connect_timeout
        self._session: aiohttp.ClientSession | None = None
        importlib.import_module("aiohttp")  # a tenth of a second, which the first call should not wait for

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and content of one request; `body` is JSON, or an `aiohttp.FormData`.

        Raises Retry for what fails below HTTP, LlmError for an address that is none.
        """
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout),
                headers=self._headers,
                proxy=_proxy(self.base_url),  # trust_env would look it up anew for each call, in a thread
            )
        headers = None
        if body is not None and not isinstance(body, aiohttp.FormData):
            body = json.dumps(body, separators=(",", ":")).encode("ascii")
            headers = {"Content-Type": "application/json"}
        try:
            async with self._session.request(
                method, self.base_url + path, data=body, headers=headers, allow_redirects=False
            ) as response:
                return response.status, response.headers, await self._read(response)
        # `from None`: aiohttp's errors carry the request, and with it the key
        except aiohttp.InvalidURL as error:
            raise LlmError(f"{self.scrub(str(error))} is not an address") from None
        except aiohttp.ClientPayloadError as error:
            raise Retry("bad_body", detail=self.scrub(str(error))) from None
        except (aiohttp.ClientError, OSError) as error:
            raise Retry("connection", detail=self.scrub(str(error) or type(error).__name__)) from None

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """The body, unless it is larger than any answer can be."""
        if (response.content_length or 0) <= _LARGEST:
            if response.content_length is not None:
                return await response.read()
            content = bytearray()
            async for chunk in response.content.iter_any():
                content += chunk
                if len(content) > _LARGEST:
                    break
            else:
                return bytes(content)
        raise LlmError(f"{self.where} sends an answer of more than {_LARGEST >> 20} MB")

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def scrub(self, words: str) -> str:
        """What a server says, on one line, without the key."""
        words = " ".join(words.split())
        return (words.replace(self._key, "[key]") if self._key else words)[:500]

    def failure(self, status: int, headers: Mapping[str, str], content: bytes, what: str = "") -> AirgenError:
        """The exception for an answer that is not a success; `what` was asked for."""
        words, code = error_of(content)
        where = f"{what} at {self.where}" if what else self.where
        return failure(status, self.scrub(words), code, headers, where)


def read_key(variable: str) -> str:
    """The key that must be in an environment variable. Raises SettingsError, which never shows the value."""
    key = secret(variable)
    if key is None:
        raise SettingsError([f"llm.api_key_env: the environment variable {variable} is not set: export it"])
    return key


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for this address."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def error_of(content: bytes) -> tuple[str, str]:
    """A server's words and its error code, from whatever form its error body has."""
    text = content.decode("utf-8", "replace")
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError):
        return re.sub(r"<[^>]*>", " ", text).strip(), ""
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if isinstance(error, dict):
        words = error.get("message") or error.get("detail") or json.dumps(error)
        return str(words), str(error.get("code") or error.get("type") or "")
    return str(error), ""


def failure(status: int, words: str, code: str, headers: Mapping[str, str], where: str) -> AirgenError:
    """The exception for an HTTP status: LlmError for what will never work, Refused, or Retry."""
    said = words or "no words"
    if status in (401, 402, 403, 404, 405) or code in _FATAL_CODES or 300 <= status < 400:
        return LlmError(f"{where} refuses (HTTP {status}): {said}")
    if status == 429:
        return Retry("rate_limit", retry_after(headers), words)
    if status in (408, 409, 425) or status >= 500:
        return Retry(f"http_{status}", retry_after(headers), words)
    lowered = f"{code} {words}".lower()
    if "context" in lowered and ("length" in lowered or "window" in lowered):
        return Refused("context_length", words)
    if "content_filter" in lowered or "content management policy" in lowered or "content_policy" in lowered:
        return Refused("content_filter", words)
    return Refused(f"http_{status}", words)


def status_in(payload: Mapping[str, Any]) -> int:
    """The HTTP status that an error body with status 200 means."""
    error = payload["error"]
    code = str(error.get("code")) if isinstance(error, dict) else ""
    return int(code) if re.fullmatch("[45][0-9][0-9]", code) else 500


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server wants to be left alone: `retry-after-ms`, or `Retry-After` as seconds or a date."""
    try:
        if milliseconds := headers.get("retry-after-ms"):
            return _sane(float(milliseconds) / 1000)
        value = headers.get("Retry-After")
        if not value:
            return None
        if re.fullmatch(r"\s*[\d.]+\s*", value):
            return _sane(float(value))
        return _sane(parsedate_to_datetime(value).timestamp() - time())
    except (ValueError, TypeError, OverflowError):
        return None


def _sane(seconds: float) -> float:
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
    return int(value) if value and value.isdecimal() else None


def _duration(value: str | None) -> float | None:
    """Seconds of a Go duration, `6m0.5s` or `20ms`, or of a plain number."""
    if not value:
        return None
    units = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "": 1.0}
    found = re.findall(r"([\d.]+)(ms|[dhms]|)", value)
    try:
        return sum(float(number) * units[unit] for number, unit in found) if found else None
    except ValueError:
        return None

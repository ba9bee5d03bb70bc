"""One HTTP endpoint: its address, its key, live calls, and the meaning of a status.

    endpoint = Endpoint("https://api.openai.com/v1", "OPENAI_API_KEY")
    status, headers, content = await endpoint.post("/chat/completions", body)

The key is read from the environment and sent in one header. Redirects are not followed, and the key is removed from
all text that a server sends back.
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

__all__ = ["OPENAI_URL", "Endpoint", "error_in", "error_of", "failure", "retry_after", "server_limits"]

OPENAI_URL = "https://api.openai.com/v1"

_LARGEST = 1 << 30  # bytes of one answer
_FATAL_CODES = {"insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "account_deactivated"}
_FATAL_CODES |= {"invalid_api_key", "model_not_found"}


class Endpoint:
    """A base URL, its key and its connections.

    api_key_env names the environment variable with the key; None for a server without a key. Raises SettingsError
    for a base URL that is not http(s), or a variable that is not set.
    """

    def __init__(
        self,
        base_url: str = OPENAI_URL,
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 15.0,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError([f"llm.base_url: {base_url!r} is not an http(s) address"])
        if parts.username or parts.password:
            raise SettingsError(["llm.base_url: must not hold a user or password; use llm.api_key_env"])
        self.base_url = base_url.rstrip("/")
        self.where = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
        self._key = secret(api_key_env) or ""
        if api_key_env and not self._key:
            raise SettingsError([f"llm.api_key_env: the environment variable {api_key_env} is not set: export it"])
        self.headers = dict(headers or {})
        if self._key:
            self.headers["Authorization"] = f"Bearer {self._key}"
        self._connect_timeout = connect_timeout
        self._session: aiohttp.ClientSession | None = None
        importlib.import_module("aiohttp")  # it takes a tenth of a second: not during the first call

    async def post(self, path: str, body: Any) -> tuple[int, Mapping[str, str], bytes]:
        """Send `body` as JSON; returns status, headers and content.

        Raises Retry for a failure of the connection, LlmError where the URL is not an address.
        """
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout),
                headers={**self.headers, "Content-Type": "application/json"},
                proxy=_proxy(self.base_url),  # trust_env would look it up anew for each call, in a thread
            )
        data = json.dumps(body, separators=(",", ":")).encode("ascii")
        try:
            async with self._session.post(self.base_url + path, data=data, allow_redirects=False) as response:
                return response.status, response.headers, await self._read(response)
        # `from None`: aiohttp's errors carry the request, and with it the key
        except aiohttp.InvalidURL as error:
            raise LlmError(f"{self.scrub(str(error))} is not an address") from None
        except aiohttp.ClientPayloadError as error:
            raise Retry("bad_body", detail=self.scrub(str(error))) from None
        except (aiohttp.ClientError, OSError) as error:
            raise Retry("connection", detail=self.scrub(str(error) or type(error).__name__)) from None

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """The body. Raises LlmError where it is larger than an answer can be."""
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

    def scrub(self, message: str) -> str:
        """A server's message on one line, without the key."""
        message = " ".join(message.split())
        return (message.replace(self._key, "[key]") if self._key else message)[:500]

    def failure(self, status: int, headers: Mapping[str, str], content: bytes, what: str = "") -> AirgenError:
        """The exception for an answer that is not a success. `what` is the model or path that was asked for."""
        message, code = error_of(content)
        where = f"{what} at {self.where}" if what else self.where
        return failure(status, self.scrub(message), code, headers, where)


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for this address."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def error_of(content: bytes) -> tuple[str, str]:
    """The message and the code in the body of an error, which servers write in several formats."""
    text = content.decode("utf-8", "replace")
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError):
        return re.sub(r"<[^>]*>", " ", text).strip(), ""
    return error_in(payload)


def error_in(payload: Any) -> tuple[str, str]:
    """The message and the code in the parsed body of an error."""
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if isinstance(error, dict):
        message = error.get("message") or error.get("detail") or json.dumps(error)
        return str(message), str(error.get("code") or error.get("type") or "")
    return "" if error is None else str(error), ""


def failure(status: int, message: str, code: str, headers: Mapping[str, str], where: str) -> AirgenError:
    """The exception for an HTTP status: LlmError for what will never work, Refused, or Retry."""
    if status in (401, 402, 403, 404, 405) or code in _FATAL_CODES or 300 <= status < 400:
        return LlmError(f"{where} refuses (HTTP {status}): {message or 'it gave no reason'}")
    if status == 429:
        return Retry("rate_limit", retry_after(headers), message)
    if status in (408, 409, 425) or status >= 500:
        return Retry(f"http_{status}", retry_after(headers), message)
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
        if re.fullmatch(r"\s*[\d.]+\s*", value):
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

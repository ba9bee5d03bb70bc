"""Any OpenAI-compatible endpoint over HTTP: OpenAI, vLLM, Ollama, llama.cpp's server, most gateways.

    backend = OpenAIBackend(base_url="http://localhost:8000/v1")
    backend = OpenAIBackend(api_key_env="OPENAI_API_KEY")

The hot path is aiohttp: the openai client's own transport reaches a tenth of the ideal rate at 64 connections.
The key is read from the environment, sent in one header, never followed across a redirect, and taken out of
whatever a server echoes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airgen.errors import AirgenError, LlmError, SettingsError
from airgen.llms.base import Refused, Reply, Request, Retry, ServerLimits
from airgen.llms.chat import FORMATS, chat_body, chat_reply

if TYPE_CHECKING:
    import aiohttp

__all__ = ["OpenAIBackend", "error_of", "read_key", "server_limits"]

_LARGEST = 64 * 1024 * 1024  # bytes of one answer
_FATAL_CODES = {"insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "account_deactivated"}
_FATAL_CODES |= {"invalid_api_key", "model_not_found"}


class OpenAIBackend:
    """`POST {base_url}/chat/completions`, once a call; the engine above repeats, limits and pays.

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
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._where = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
        self._key = read_key(api_key_env) if api_key_env else ""
        self._headers = {**(headers or {}), "Content-Type": "application/json"}
        if self._key:
            self._headers["Authorization"] = f"Bearer {self._key}"
        self._connect_timeout = connect_timeout
        self._session: aiohttp.ClientSession | None = None
        self._forms: dict[str, int] = {}
        self._max_tokens: dict[str, str] = {}

    async def send(self, request: Request) -> Reply:
        """Send one request once, or again without a form that the server has just refused."""
        while True:
            form = self._forms.get(request.model, 0)
            limit = self._max_tokens.get(request.model, "max_tokens")
            status, headers, content = await self._post(chat_body(request, form=FORMATS[form], max_tokens=limit))
            if status == 200:
                return self._reply(request, headers, content)
            words, code = error_of(content)
            words = self._scrub(words)
            if status in (400, 422) and self._learn(request, form, limit, f"{code} {words}"):
                continue
            raise failure(status, words, code, headers, f"{request.model} at {self._where}")

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _post(self, body: dict[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout),
                headers=self._headers,
                trust_env=True,
            )
        data = json.dumps(body, separators=(",", ":")).encode("ascii")
        try:
            async with self._session.post(self._url, data=data, allow_redirects=False) as response:
                # read() alone would take a body without end
                content = await response.content.read(_LARGEST) if response.content_length is None else b""
                if response.content_length is None:
                    while len(content) < _LARGEST and (more := await response.content.read(_LARGEST)):
                        content += more
                elif response.content_length < _LARGEST:
                    content = await response.read()
                return response.status, response.headers, content
        # `from None`: aiohttp's errors carry the request, and with it the key
        except aiohttp.InvalidURL as error:
            raise LlmError(f"{self._scrub(str(error))} is not an address") from None
        except aiohttp.ClientPayloadError as error:
            raise Retry("bad_body", detail=self._scrub(str(error))) from None
        except (aiohttp.ClientError, OSError) as error:
            raise Retry("connection", detail=self._scrub(str(error) or type(error).__name__)) from None

    def _reply(self, request: Request, headers: Mapping[str, str], content: bytes) -> Reply:
        try:
            payload = json.loads(content)
        except (ValueError, RecursionError):
            kind = headers.get("Content-Type", "no type")
            raise Retry("bad_body", detail=f"not JSON ({kind}, {len(content)} bytes)") from None
        if isinstance(payload, dict) and payload.get("error") and not payload.get("choices"):
            words, code = error_of(content)  # some gateways send errors with status 200
            raise failure(_status_in(payload), self._scrub(words), code, headers, f"{request.model} at {self._where}")
        reply = chat_reply(payload)
        prompt, completion = reply.prompt_tokens, reply.completion_tokens
        if not prompt or (not completion and reply.text):
            from airgen.llms.tokens import count_messages, count_tokens

            # A server that does not say what it used: estimated, so that a budget still holds.
            prompt, completion = prompt or count_messages(request.messages), completion or count_tokens(reply.text)
        return Reply(
            text=reply.text,
            finish_reason=reply.finish_reason,
            prompt_tokens=prompt,
            cached_tokens=reply.cached_tokens,
            completion_tokens=completion,
            logprobs=reply.logprobs,
            limits=server_limits(headers),
        )

    def _learn(self, request: Request, form: int, limit: str, words: str) -> bool:
        """Whether the refusal was of a form that there is another of; remembered for the model."""
        if "max_completion_tokens" in words and limit == "max_tokens" and "max_tokens" in request.params:
            self._max_tokens[request.model] = "max_completion_tokens"
            return True
        named = re.search(r"response_format|json_schema|json_object|guided|grammar|structured output", words, re.I)
        if request.schema is not None and named and form + 1 < len(FORMATS):
            self._forms[request.model] = max(form + 1, self._forms.get(request.model, 0))
            return True
        return False

    def _scrub(self, words: str) -> str:
        """What a server says, on one line, without the key."""
        words = " ".join(words.split())
        return (words.replace(self._key, "[key]") if self._key else words)[:500]


def read_key(variable: str) -> str:
    """The key in an environment variable. Raises SettingsError, which never shows the value."""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise SettingsError([f"llm.api_key_env: the environment variable {variable} is not set: export it"])
    if not key.isascii() or not key.isprintable():
        raise SettingsError([f"llm.api_key_env: the value of {variable} is not one line of ASCII"])
    return key


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


def _status_in(payload: Mapping[str, Any]) -> int:
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

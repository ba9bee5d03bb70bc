"""The only HTTP client, for LLM endpoints, remote models and search services.

    client = HttpClient(headers, secrets)
    status, headers, content = await client.send("POST", url, b"{}")

    service = JsonClient(settings.access, timeout=60.0, retries=5, connections=4)
    service.ask(url, {"query": "..."})                # one answer, for code that is not asynchronous
    service.ask_all(work, items)                      # several at once; the first failure ends all of them

Connections are kept alive. Redirects are not followed, because they would send the key to an address that the user
never named. Keys are sent in headers and removed from every message. The size of a response is limited, even after
decompression.
"""

import asyncio
import functools
import importlib
import io
import ipaddress
import json
import re
import socket
import threading
import time
import weakref
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from airgen.net.retrying import retrying_async
from airgen.safety.mask_secrets import SHORTEST, error_words, holds_secret, masked, masked_value, printable

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 15.0
_LONGEST_WAIT_SECONDS = 60.0  # maximum seconds between two attempts of `JsonClient`, whatever the server asks for
_UNREACHED_RETRIES = 2  # attempts of `JsonClient` before the first answer: three seconds of pauses
_LARGEST_ANSWER_BYTES = 1 << 28  # maximum bytes of an answer to `JsonClient`
_WHOLE_BODY_BYTES = 1 << 20  # bytes of a body that are sent at once; more would delay all other requests
_CODINGS = ("gzip", "x-gzip", "deflate")
_ENCODER = json.JSONEncoder(separators=(",", ":"))

Item = TypeVar("Item")
Value = TypeVar("Value")

Received = tuple[int, Mapping[str, str], bytes]
"""Status, headers and content."""


class TransportError(Exception):
    """No readable response was received.

    Args:
        kind: The cause: an invalid URL, a wrong route (an untrusted certificate, a dead proxy, no HTTPS), no connection
            (so that nothing was sent), a broken connection, a damaged body, or a body that is too large.
    """

    def __init__(
        self, kind: Literal["address", "way", "unreached", "broken", "body", "large"], words: str, status: int = 0
    ) -> None:
        super().__init__(words)
        self.kind, self.status = kind, status


class HttpClient:
    """The connections of one event loop.

    `secrets` never appear in a message. `connections` is the maximum number of connections, or 0 for no limit.
    """

    def __init__(
        self,
        headers: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
        *,
        largest: int = _LARGEST_ANSWER_BYTES,
        connections: int = 0,
    ) -> None:
        self.headers = {"Accept-Encoding": "gzip, deflate", **(headers or {})}
        self.secrets = [secret for secret in secrets if secret]
        self.long_secrets = [secret for secret in self.secrets if len(secret) >= SHORTEST]
        self._largest, self._connections = largest, connections
        self._session: aiohttp.ClientSession | None = None
        importlib.import_module("aiohttp")  # it takes a tenth of a second, which should not slow down the first call

    async def send(
        self,
        method: str,
        url: str,
        data: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> Received:
        """Send a request, without retrying. Raises TransportError."""
        if isinstance(data, bytes) and len(data) > _WHOLE_BODY_BYTES:
            data = io.BytesIO(data)
        try:
            async with self._request(method, url, data=data, headers=headers, params=query) as response:
                body = _Body(response, self._largest, _CODINGS, self.scrub)
                pieces = []
                async for piece in response.content.iter_any():
                    pieces.append(body.inflated(piece))  # noqa: PERF401  # a comprehension is one more coroutine
                body.check_end()
                return response.status, response.headers, b"".join(pieces)
        except Exception as error:  # noqa: BLE001  # those of other kinds are raised again
            raise self._translated(error, url) from None  # aiohttp's errors carry the request, and with it the key

    async def pieces(self, url: str, *, headers: Mapping[str, str] | None = None, largest: int) -> AsyncIterator[Any]:
        """Send a GET request; yield (status, headers) first, then the uncompressed content in pieces. Raises
        TransportError."""
        plain = {**(headers or {}), "Accept-Encoding": "identity"}
        try:
            async with self._request("GET", url, headers=plain) as response:
                yield response.status, response.headers
                body = _Body(response, largest, (), self.scrub)
                async for piece in response.content.iter_any():
                    yield body.inflated(piece)
        except Exception as error:  # noqa: BLE001
            raise self._translated(error, url) from None

    def _request(self, method: str, url: str, **more: Any) -> Any:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections, ttl_dns_cache=300),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                headers=self.headers,
                auto_decompress=False,  # `_read` limits the size of the output
            )
        # trust_env would look up the proxy for each call, in a thread
        return self._session.request(method, url, allow_redirects=False, proxy=_proxy(url), **more)

    def _translated(self, error: Exception, url: str) -> Exception:
        import aiohttp

        where = self.scrub(urlsplit(url).netloc)
        proxy = " through the proxy" if _proxy(url) else ""
        if isinstance(error, aiohttp.InvalidURL):
            if proxy:  # the error's own message would show its password
                return TransportError("address", f"{where}{proxy}: the URL or the proxy's URL is not valid")
            return TransportError("address", f"{where} is not a valid URL")
        if words := _wrong_way(error, url):
            return TransportError("way", self.scrub(words))
        if isinstance(error, aiohttp.ClientHttpProxyError):
            reason = self.scrub(error.message)
            return TransportError("unreached", f"no connection to {where}: the proxy responded {error.status} {reason}")
        if isinstance(error, aiohttp.ClientPayloadError):
            return TransportError("body", self.words(error))
        if isinstance(error, aiohttp.ClientConnectorError):
            cause = error_words(error.os_error, self.secrets)
            return TransportError("unreached", f"no connection to {where}{proxy}: {cause}")
        if isinstance(error, aiohttp.ClientError | OSError | ValueError):  # ValueError: invalid headers
            return TransportError("broken", self.words(error))
        return error

    def words(self, error: BaseException) -> str:
        """Describe an error on one line, without the keys."""
        return error_words(error, self.secrets)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def scrub(self, message: str) -> str:
        """Return a server's message on one line, without the keys."""
        return printable(message, 500, self.secrets)

    def mask(self, text: str) -> str:
        """Mask the keys in a text from the server."""
        return masked(text, self.long_secrets)


class _Body:
    """A body that is decompressed up to the maximum size of a response."""

    def __init__(
        self, response: "aiohttp.ClientResponse", largest: int, codings: Sequence[str], scrub: Callable[[str], str]
    ) -> None:
        self._coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        self._status, self._largest, self._length, self._first = response.status, largest, 0, True
        plain = self._coding in ("", "identity")
        if not plain and self._coding not in codings:
            raise TransportError("body", f"Content-Encoding {scrub(self._coding)[:40]!r} was not requested")
        self._inflate = None if plain else zlib.decompressobj(zlib.MAX_WBITS | 32)

    def inflated(self, piece: bytes) -> bytes:
        if self._inflate is not None:
            if self._first and self._coding == "deflate" and piece[0] & 0x0F != 8:
                self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)  # no zlib header, as some servers send it
            self._first = False
            try:
                piece = self._inflate.decompress(piece, self._largest + 1 - self._length)
            except zlib.error as error:
                raise TransportError("body", f"damaged {self._coding}: {error}") from None
        self._length += len(piece)
        if self._length > self._largest:
            raise TransportError("large", f"sends an answer of more than {self._largest >> 20:,} MB", self._status)
        return piece

    def check_end(self) -> None:
        if self._inflate is not None and self._length and not self._inflate.eof:
            raise TransportError("body", f"the {self._coding} body ends early")


def as_json(body: object) -> bytes:
    """Encode a request body as JSON."""
    return _ENCODER.encode(body).encode("ascii")


def _wrong_way(error: Exception, url: str) -> str:
    """Explain why no attempt can succeed until an address or a setting is changed; return "" for other errors."""
    import aiohttp

    where = urlsplit(url).netloc.rpartition("@")[2]
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        return (
            f"the certificate of {where} is not trusted ({reason}): if it is your own or your company's, set the "
            f"environment variable SSL_CERT_FILE to the file of its certificate authority"
        )
    if isinstance(error, aiohttp.ClientSSLError):
        reason = str(getattr(error.os_error, "reason", "") or "").replace("_", " ").lower()
        plain = "wrong version" in reason or "packet length" in reason or "record layer" in reason
        fault = (
            "responds in plain HTTP: use http:// in its URL"
            if plain
            else f"and this machine could not agree on TLS ({reason})"
        )
        return f"{where} {fault}"
    refused = isinstance(error, aiohttp.ClientHttpProxyError) and error.status == 407
    if refused or isinstance(error, aiohttp.ClientProxyConnectionError):
        proxy = urlsplit(_proxy(url) or "").netloc.rpartition("@")[2]
        answer = "requires a user name and a password" if refused else "does not answer"
        return (
            f"the proxy {proxy} {answer}: correct the environment variable {urlsplit(url).scheme}_proxy, or add "
            f"{urlsplit(url).hostname} to no_proxy"
        )
    return ""


@functools.lru_cache(maxsize=1024)
def _proxy(url: str) -> str | None:
    """Return the proxy set in the environment for this URL."""
    parts = urlsplit(url)
    address = (
        None if proxy_bypass(parts.netloc) or _in_a_network(parts.hostname or "") else getproxies().get(parts.scheme)
    )
    return address if not address or "://" in address else f"http://{address}"


def _in_a_network(host: str) -> bool:
    """Return whether no_proxy contains a network (10.0.0.0/8) with this address, since Python itself supports only
    names."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for part in getproxies().get("no", "").split(","):
        with suppress(ValueError):
            if "/" in part and address in ipaddress.ip_network(part.strip(), strict=False):
                return True
    return False


def refused_redirect(origin: str, target: str) -> str:
    """Return why a redirect must not be followed, or "". Called before the request is sent.

    A server on the internet must not make this machine send requests to itself, its own network or its cloud's metadata
    service, nor may it downgrade from TLS.
    """
    try:
        before, after = urlsplit(origin), urlsplit(target)
        _ = after.port
    except ValueError:
        return "its target is not a valid URL"
    if after.scheme not in ("http", "https") or not after.hostname:
        return f"its target is not a web address ({printable(after.scheme, 20) or 'no scheme'})"
    if before.scheme == "https" and after.scheme == "http":
        return "it leads from https to http"
    if after.hostname != before.hostname and _is_inside(after.hostname) and not _is_inside(before.hostname or ""):
        return f"it leads into this machine's own network ({printable(after.hostname, 100)})"
    return ""


def _is_inside(host: str) -> bool:
    """Return whether any address of a host is on this machine or in a private network; False if it has no address."""
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError, ValueError):
        return False
    return any(not ipaddress.ip_address(address.partition("%")[0]).is_global for address in addresses)


def retry_after(headers: Mapping[str, str], content: bytes = b"") -> float | None:
    """Return the seconds to wait, or None.

    They are taken from `retry-after-ms`, `Retry-After` or the end of a rate-limit window in the headers; without any,
    from the body, where Gemini (`retryDelay`), Azure and others say it.
    """
    seconds = _in_headers(headers)
    if seconds is None and (match := _IN_BODY.search(content[:_DELAY_BYTES].decode("utf-8", "replace"))):
        seconds = _bounded(seconds_until(next(filter(None, match.groups())).rstrip(".")))
    return seconds


_DELAY_BYTES = 10_000  # of a body, in which it says how long to wait
_IN_BODY = re.compile(
    r"""["'](?:retryDelay|retry_after)["']\s{0,9}:\s{0,9}["']?([\d.]{1,20}[a-z]{0,2})"""
    r"""|\b(?:try again|retry)(?: again)? (?:in|after) """
    r"""([\d.]{1,20}(?:[hms][\dhms.]{0,20}| ?(?:milli)?sec| ?min| ?hour)?)""",
    re.IGNORECASE,
)


def _in_headers(headers: Mapping[str, str]) -> float | None:
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        if milliseconds := headers.get(name):
            return _bounded(seconds_until(f"{milliseconds.strip()}ms"))
    for name in _RESETS:
        if (value := headers.get(name)) and (seconds := seconds_until(value)) is not None:
            return _bounded(seconds)
    if match := _WINDOW.search(headers.get("ratelimit", "")[:1000]):
        return _bounded(float(match[1]))
    used_up = [
        seconds
        for limit, reset in _UNIT_RESETS
        if headers.get(limit) in (None, "0") and (seconds := seconds_until(headers.get(reset) or "")) is not None
    ]
    return _bounded(max(used_up, default=None))


_RESETS = (
    "Retry-After",
    "x-retry-after",
    "x-ratelimit-reset-after",
    "x-ratelimit-reset",
    "x-rate-limit-reset",
    "ratelimit-reset",
)
_WINDOW = re.compile(r"(?:^|[;,\s])(?:reset|t)=(\d{1,9})\b")  # from the drafts of the field `RateLimit`
_UNIT_RESETS = [
    (form.format(unit=unit, what="remaining"), form.format(unit=unit, what="reset"))
    for form in ("x-ratelimit-{what}-{unit}", "anthropic-ratelimit-{unit}-{what}")
    for unit in ("requests", "tokens", "input-tokens", "output-tokens")
]


_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_DURATION = re.compile(_NUMBER + r"(ms|us|µs|ns|[dhms])")
_DURATIONS = re.compile(rf"(?:{_DURATION.pattern})+")
_ISO_DURATION = re.compile(rf"P(?:{_NUMBER}D)?(?:T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?", re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,3}):(\d\d):(\d\d(?:\.\d*)?)")
_WORDS = re.compile(rf"\A{_NUMBER}\s*(ms|d|h|m|s)(?:illi)?(?:ays?|ours?|rs?|in(?:ute)?s?|ec(?:ond)?s?)?", re.IGNORECASE)
# Seconds. A larger number is not a duration but a time since 1970; above a hundred times this number, it is in
# milliseconds.
_UNIX_TIME_FROM = 1e9


def seconds_until(value: str) -> float | None:
    """Parse the time in a header, and return the seconds until then: 0 for a time in the past, None if it is not a
    time.

    The value may be a number of seconds, a duration (`6m0.5s`, `20ms`, `PT30S`, `2 minutes`, `00:01:30`), an HTTP or
    ISO 8601 date, or a Unix time in seconds or milliseconds.
    """
    value = value[:100].strip()
    try:
        if _DURATIONS.fullmatch(value):
            return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(value))
        if (match := _ISO_DURATION.fullmatch(value)) and any(match.groups()):
            return sum(
                float(number or 0) * size for number, size in zip(match.groups(), (86400, 3600, 60, 1), strict=True)
            )
        if match := _CLOCK.fullmatch(value):
            return int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3])
        if match := _WORDS.fullmatch(value):
            return float(match[1]) * _UNITS[match[2].lower()]
        if re.fullmatch(_NUMBER, value):
            number = float(value)
            if number < _UNIX_TIME_FROM or number > 1e5 * _UNIX_TIME_FROM:
                return number if number < _UNIX_TIME_FROM else None
            return max(0.0, (number / 1000 if number > 100 * _UNIX_TIME_FROM else number) - time.time())
        if re.match(r"\d{4}-\d\d-\d\d", value):
            moment = datetime.fromisoformat(value)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        else:
            moment = parsedate_to_datetime(value)
        return max(0.0, moment.timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _bounded(seconds: float | None) -> float | None:
    return None if seconds is None else min(max(0.0, seconds), 3600.0)


class HttpFailure(Exception):
    """A request without a usable response.

    Attributes:
        code: `http_STATUS` for an error status, or else `unreachable`, `timeout`, `too_large` or `not_json`.
        status: The HTTP status, or 0 if there was no error status.
        after: How many seconds the server asks to wait.
        may_pass: Whether another try may succeed.
    """

    def __init__(
        self, reason: str, code: str, *, status: int = 0, after: float | None = None, may_pass: bool = False
    ) -> None:
        super().__init__(reason)
        self.code, self.status, self.after, self.may_pass = code, status, after or 0.0, may_pass


_starting = threading.Lock()


def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop shared by all `JsonClient`s, which runs in its own thread. Safe to call from several
    threads at once."""
    with _starting:
        return _started()


@functools.cache
def _started() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="airgen http", daemon=True).start()
    return loop


class JsonClient:
    """Send requests to one service from any thread. `access` returns the headers and the secrets in them; it is called
    once.

    `timeout` limits one attempt, from its start to the end of the response, in seconds. `retries` is how often to retry
    after a temporary refusal (status 429 or 5xx), a broken connection or a timeout; there are fewer retries as long as
    the service has never responded.
    """

    def __init__(
        self,
        access: Callable[[], tuple[dict[str, str], list[str]]] = lambda: ({}, []),
        *,
        timeout: float = 60.0,
        retries: int = 0,
        connections: int = 1,
    ) -> None:
        headers, secrets = access()
        self._client = HttpClient({"Accept": "application/json", **headers}, secrets, connections=connections)
        self._timeout, self._retries, self._connections = timeout, retries, connections
        self._pending: set[Future[Any]] = set()
        self._reached = self._stopped = False
        weakref.finalize(self, _close, self._client)

    def ask(
        self, url: str, body: object = None, parameters: Mapping[str, Any] | None = None, *, method: str = ""
    ) -> Any:
        """Return the JSON response to a POST of `body`, or to a GET if there is no body.

        Args:
            url: The URL.
            body: JSON value. Bytes are sent unchanged, and the response is then JSON Lines.
            parameters: Query parameters.
            method: The HTTP method, if it is another one.

        Raises:
            HttpFailure: All attempts failed.
        """
        method = method or ("GET" if body is None else "POST")
        if body is None:
            query = {
                name: value if isinstance(value, list) else str(value) for name, value in (parameters or {}).items()
            }
            return self._wait(lambda: self._client.send(method, url, query=query))
        lines = isinstance(body, bytes)
        kind = {"Content-Type": "application/x-ndjson" if lines else "application/json"}
        data = body if lines else as_json(body)
        return self._wait(lambda: self._client.send(method, url, data, headers=kind), lines)

    def ask_by(self, send: Callable[[HttpClient], Awaitable[Received]]) -> Any:
        """Return the JSON response to the request that `send` makes with the client. Raises HttpFailure."""
        return self._wait(lambda: send(self._client))

    def _wait(self, send: Callable[[], Awaitable[Received]], lines: bool = False) -> Any:
        future = asyncio.run_coroutine_threadsafe(self._ask(send, lines), _loop())
        self._pending.add(future)
        if self._stopped:
            future.cancel()
        try:
            return future.result()
        finally:
            future.cancel()
            self._pending.discard(future)

    def ask_all(self, work: Callable[[Item], Value], items: Iterable[Item]) -> list[Value]:
        """Return the responses in the order of the items, sending as many requests at once as there are connections.

        The first failure, or Ctrl-C, cancels the requests that have not started and ends the pauses between attempts.
        """
        pool = ThreadPoolExecutor(self._connections)
        try:
            return list(pool.map(work, items))
        except BaseException:
            self._stopped = True
            for future in list(self._pending):
                future.cancel()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            self._stopped = False

    async def _ask(self, send: Callable[[], Awaitable[Received]], lines: bool) -> Any:
        def is_last(number: int, error: BaseException) -> bool:
            return number > (self._retries if self._reached else min(self._retries, _UNREACHED_RETRIES))

        number = 0

        async def once() -> Any:
            nonlocal number
            number += 1
            return await self._once(send, lines)

        try:
            return await retrying_async(
                once,
                is_last,
                lambda error: isinstance(error, HttpFailure) and error.may_pass,
                longest=_LONGEST_WAIT_SECONDS,
                requested_wait=lambda error: min(getattr(error, "after", 0.0), _LONGEST_WAIT_SECONDS),
            )
        except HttpFailure as failure:
            tries = f" (tried {number} times)" if number > 1 else ""
            raise HttpFailure(f"{failure}{tries}", failure.code, status=failure.status) from None

    async def _once(self, send: Callable[[], Awaitable[Received]], lines: bool) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                status, headers, raw = await send()
            self._reached = True
        except TimeoutError:
            raise HttpFailure(
                f"returned no response within {self._timeout:g} s: it may be overloaded, or the timeout too short",
                "timeout",
                may_pass=True,
            ) from None
        except TransportError as error:
            if error.kind == "way":
                raise HttpFailure(f"cannot be reached: {error}", "unreachable") from None
            if error.kind == "large":
                limit = f"{_LARGEST_ANSWER_BYTES >> 20} MB"
                raise HttpFailure(f"returned a response of more than {limit}", "too_large") from None
            raise HttpFailure(
                f"cannot be reached ({str(error)[:300]}): is the service running?", "unreachable", may_pass=True
            ) from None
        secrets = self._client.secrets
        if not 200 <= status < 300:
            passing = status == 429 or status >= 500
            words = printable(raw, 300, secrets)
            raise HttpFailure(
                f"answered {status}: {words}",
                f"http_{status}",
                status=status,
                after=retry_after(headers, raw),
                may_pass=passing,
            )
        try:
            value = [json.loads(line) for line in raw.splitlines()] if lines else json.loads(raw)
        except (ValueError, RecursionError):
            words = f"returned a response that is not JSON: {printable(raw, 120, secrets)!r}"
            raise HttpFailure(words, "not_json") from None
        known = self._client.long_secrets
        return masked_value(value, known) if holds_secret(raw, known) else value


def _close(client: HttpClient) -> None:
    asyncio.run_coroutine_threadsafe(client.close(), _loop())

"""The `openai` package on top of our own HTTP client: the only way to OpenAI, Azure and compatible servers.

    api = openai_client("http://localhost:8000/v1", headers, {}, HttpClient(secrets=secrets))
    response = await api.post("/chat/completions", content=body, cast_to=Response)         # the raw answer
    await api.batches.with_raw_response.retrieve("batch_1")

The package builds the requests, and `HttpClient` sends them: without redirects, through the proxies, and with a limit
on the size of responses. An error response is raised as `Answered`, before the package can raise an exception that
quotes the server. Only what the settings say is sent: no key, organisation or header from the package's own environment
variables.

Importing this module imports the package, which takes almost a second, so import it at the first call.
"""

import functools
import gc
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

import httpx2
import openai

from airgen.http import HttpClient, Received, as_json

gc.freeze()  # the package has many permanent objects; checking them again and again costs a sixth of a call

InvalidURL: TypeAlias = httpx2.InvalidURL
Response: TypeAlias = httpx2.Response

_NO_KEY = "airgen-has-no-key-for-this"  # the package requires one; it is not sent
_STREAMED = "x-stainless-raw-response"  # the package's own flag for a request whose answer is read in chunks
_HOP = {"content-encoding", "content-length", "transfer-encoding"}  # the body as received
_RECEIVED = "airgen.received"  # extensions of a response and of a request
_SENT = "airgen.sent"
_EMPTY = httpx2.ByteStream(b"")
# All options of a plain call, because the package would copy the default of each missing option.
_PLAIN: Any = {
    "headers": {},
    "params": {},
    "max_retries": 0,
    "timeout": None,
    "idempotency_key": "",
    "follow_redirects": None,
    "security": {"bearer_auth": True},
    "post_parser": openai.NOT_GIVEN,
    "synthesize_event_and_data": None,
    "stream_mode": "legacy",
    "extra_json": None,
}
_NEVER: dict[str, Any] = {"api_key": _NO_KEY, "admin_api_key": "", "organization": "", "project": ""}


class Answered(Exception):
    """A response with an error status."""

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        super().__init__(f"status {status}")
        self.received: Received = (status, headers, content)


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Sends the package's requests with an `HttpClient`. Raises TransportError or Answered."""

    def __init__(self, client: HttpClient, largest_file: int) -> None:
        self._client, self._largest_file = client, largest_file

    async def handle_async_request(self, request: httpx2.Request) -> Response:
        sent: dict[str, str] | None = request.extensions.get(_SENT)
        headers = sent or {name.decode("ascii"): value.decode("latin-1") for name, value in request.headers.raw}
        if _STREAMED in headers and request.headers[_STREAMED] == "stream":
            return await self._streamed(request, headers)
        data: Any = request.stream  # a form: a large one is sent in chunks
        if isinstance(data, httpx2.ByteStream):
            data = b"".join(data)
        status, answered, content = await self._client.send(request.method, str(request.url), data, headers=headers)
        if not 200 <= status < 300:
            raise Answered(status, answered, content)
        # The response's own headers would be parsed unnecessarily: `received` returns these.
        extensions = {_RECEIVED: (status, answered, content)}
        if sent is not None:  # `post` requires nothing else
            return Response(status, stream=_EMPTY, request=request, extensions=extensions)
        return Response(status, content=content, request=request, extensions=extensions)

    async def _streamed(self, request: httpx2.Request, headers: Mapping[str, str]) -> Response:
        pieces = self._client.pieces(str(request.url), headers=headers, largest=self._largest_file)
        status, answered = await anext(pieces)
        if not 200 <= status < 300:
            raise Answered(status, answered, b"".join([piece async for piece in pieces]))
        kept_headers = [(name, value) for name, value in answered.items() if name.lower() not in _HOP]
        return Response(status, headers=kept_headers, stream=_Pieces(pieces), request=request)


class _Pieces(httpx2.AsyncByteStream):
    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def aclose(self) -> None:
        await self._pieces.aclose()  # type: ignore[attr-defined]  # a generator


class _DirectClient(httpx2.AsyncClient):
    """Passes each request directly to the transport. Redirects, cookies, hooks and proxies of its own would take as
    long as the rest of a call."""

    def __init__(self, transport: BoundedTransport) -> None:
        super().__init__(transport=transport, trust_env=False)
        self._bounded = transport

    def build_request(self, method: str, url: Any, **options: Any) -> httpx2.Request:
        headers = [(name, value) for name, value in options["headers"] if _NO_KEY not in value]
        more = {name: options[name] for name in ("params", "content", "data", "files") if options.get(name) is not None}
        return httpx2.Request(method, _parsed(url), headers=headers, **more)

    async def send(self, request: httpx2.Request, **_: Any) -> Response:
        return await self._bounded.handle_async_request(request)


@functools.lru_cache(maxsize=64)
def _parsed(url: str) -> httpx2.URL:
    return httpx2.URL(url)


class _OnlyTheSettings:
    """Sends only the headers in the settings. The package would add an organisation, a project, and the contents of the
    environment variable OPENAI_CUSTOM_HEADERS."""

    headers_of_settings: dict[str, str | openai.Omit]
    templates: dict[tuple[object, ...], httpx2.Request]

    @property
    def default_headers(self) -> dict[str, str | openai.Omit]:
        return self.headers_of_settings

    def _build_request(self, options: Any, *, retries_taken: int = 0) -> httpx2.Request:
        """Build a request as the package does, but only once per URL, since thousands of calls differ only in their
        bodies.

        For each call, the package merges, checks and parses the same headers and URL, which takes longer than
        everything else it does.
        """
        build = super()._build_request  # type: ignore[misc]
        if options.content is None or isinstance(options.headers, openai.NotGiven):  # not from `post` below
            return build(options, retries_taken=retries_taken)  # type: ignore[no-any-return]
        key = (options.method, options.url, *options.headers.items())
        template = self.templates.get(key)
        if template is None:
            template = self.templates[key] = build(options)
            length = {"content-length", "host"}  # of this body; the connection sets both
            raw = [(name, value) for name, value in template.headers.raw if name.lower().decode() not in length]
            template.extensions[_SENT] = {name.decode("ascii"): value.decode("latin-1") for name, value in raw}
        stream = httpx2.ByteStream(options.content)
        return httpx2.Request(template.method, template.url, stream=stream, extensions=template.extensions)


class _OpenAI(_OnlyTheSettings, openai.AsyncOpenAI):
    pass


class _Azure(_OnlyTheSettings, openai.AsyncAzureOpenAI):
    pass


def openai_client(
    base_url: str,
    headers: Mapping[str, str],
    query: Mapping[str, str],
    client: HttpClient,
    *,
    largest_file: int = 2 << 30,
) -> openai.AsyncOpenAI:
    """Return the package's client without retries and timeouts, or its Azure client if the URL has an API version.

    Args:
        base_url: The part of the URL before `/chat/completions`.
        headers: Headers of each request, including the key. Azure receives the key in `Authorization` as `api-key`.
        query: Query parameters of each request.
        client: Client that sends the requests.
        largest_file: Maximum size in bytes of a file that is read in pieces.
    """
    options: dict[str, Any] = {
        "base_url": base_url,
        "http_client": _DirectClient(BoundedTransport(client, largest_file)),
        "timeout": None,
        "max_retries": 0,
        "default_query": dict(query),
        **_NEVER,
    }
    sent = dict(headers)
    if "api-version" not in query:
        api: Any = _OpenAI(**options)
    else:
        named = {name.lower(): name for name in sent}
        bearer = sent.get(named.get("authorization", ""), "")
        if bearer.startswith("Bearer ") and "api-key" not in named:
            options["api_key"] = sent.pop(named["authorization"]).removeprefix("Bearer ")
        elif "api-key" in named:
            options["api_key"] = sent.pop(named["api-key"])
        api = _Azure(api_version=query["api-version"], **options)
    agent = f"airgen OpenAI/{openai.__version__}"
    api.templates = {}
    api.headers_of_settings = {
        "Accept": "application/json",
        "Content-Type": "application/json",
        "User-Agent": agent,
        **sent,
    }
    api.base = str(api.base_url).rstrip("/")
    return api  # type: ignore[no-any-return]


def received(response: Any) -> Received:
    """Return what was received, from a raw response of the package or of its HTTP library."""
    raw = getattr(response, "http_response", response)
    return raw.extensions[_RECEIVED]  # type: ignore[no-any-return]


async def post(api: openai.AsyncOpenAI, path: str, body: Mapping[str, Any]) -> Response:
    """POST a body of our own, and return the raw response. Raises the transport's errors."""
    # Below `https://NAME.openai.azure.com/openai`, the path names the model.
    if isinstance(api, _Azure) and api.base_url.path.rstrip("/").endswith("/openai"):
        path = f"/deployments/{quote(str(body.get('model')), safe='')}{path}"
    # The whole address, because the package would build it again for each call.
    return await api.post(_base(api) + path, content=as_json(body), cast_to=Response, options=_PLAIN)


def _base(api: openai.AsyncOpenAI) -> str:
    return api.base  # type: ignore[attr-defined, no-any-return]  # `openai_client` sets it

"""The `openai` package on top of our own HTTP client: the only way to OpenAI, Azure and compatible servers.

    api = openai_client("http://localhost:8000/v1", headers, {}, HttpClient(secrets=secrets))
    received(await chat(api, {"model": "gpt-4o-mini", "messages": [...]}))         # status, headers, content
    await api.batches.with_raw_response.retrieve("batch_1")

The package's own methods build the requests, and `HttpClient` sends them: without redirects, through the proxies, and
with a limit on the size of responses. An error response is raised as `Answered`, before the package can raise an
exception that quotes the server. Only the headers of the settings are sent: no key, organisation or header from the
package's own environment variables.

Importing this module imports the package, which takes almost a second, so import it at the first call.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx2
import openai

from airgen.net.http import HttpClient, Received
from airgen.storage.records import storable

InvalidURL: TypeAlias = httpx2.InvalidURL
Response: TypeAlias = httpx2.Response

_NO_KEY = "none"  # the package requires one; it is not sent
_FILE = "/content"  # the end of the address of a file's content, which is read in pieces
_HOP = {"content-encoding", "content-length", "transfer-encoding"}  # the body as received
_RECEIVED = "airgen.received"  # extension of a response


class Answered(Exception):
    """A response with an error status."""

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        super().__init__(f"status {status}")
        self.received: Received = (status, headers, content)


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Sends the package's requests with an `HttpClient` and only with `headers`. Raises TransportError or Answered."""

    def __init__(self, client: HttpClient, headers: Mapping[str, str], largest_file: int) -> None:
        self._client, self._headers, self._largest_file = client, dict(headers), largest_file

    async def handle_async_request(self, request: httpx2.Request) -> Response:
        headers = self._headers
        if (content_type := request.headers.get("content-type")) is not None:
            headers = {**headers, "Content-Type": content_type}
        if request.method == "GET" and request.url.path.endswith(_FILE):
            return await self._in_pieces(request, headers)
        data: Any = request.stream  # a form: a large one is sent in chunks
        if isinstance(data, httpx2.ByteStream):
            data = b"".join(data)
        elif (length := request.headers.get("content-length")) is not None:
            headers = {**headers, "Content-Length": length}  # many servers refuse a form without it
        status, answered, content = await self._client.send(request.method, str(request.url), data, headers=headers)
        if not 200 <= status < 300:
            raise Answered(status, answered, content)
        # The response's own headers would be parsed unnecessarily: `received` returns these.
        return Response(status, content=content, extensions={_RECEIVED: (status, answered, content)})

    async def _in_pieces(self, request: httpx2.Request, headers: Mapping[str, str]) -> Response:
        pieces = self._client.pieces(str(request.url), headers=headers, largest=self._largest_file)
        status, answered = await anext(pieces)
        if not 200 <= status < 300:
            raise Answered(status, answered, b"".join([piece async for piece in pieces]))
        kept_headers = [(name, value) for name, value in answered.items() if name.lower() not in _HOP]
        return Response(status, headers=kept_headers, stream=_Pieces(pieces))


class _Pieces(httpx2.AsyncByteStream):
    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def aclose(self) -> None:
        await self._pieces.aclose()  # type: ignore[attr-defined]  # a generator


def openai_client(
    base_url: str,
    headers: Mapping[str, str],
    query: Mapping[str, str],
    client: HttpClient,
    *,
    largest_file: int = 2 << 30,
) -> openai.AsyncOpenAI:
    """Return the package's client without retries and timeouts, or its Azure client if a URL with an API version ends
    in `/openai`: that client puts the model into the path.

    Args:
        base_url: The part of the URL before `/chat/completions`.
        headers: Headers of each request, including the key. Azure receives the key in `Authorization` as `api-key`.
        query: Query parameters of each request.
        client: Client that sends the requests.
        largest_file: Maximum size in bytes of a file that is read in pieces.
    """
    sent = {"Accept": "application/json", "User-Agent": f"airgen OpenAI/{openai.__version__}", **headers}
    azure = "api-version" in query
    named = {name.lower(): name for name in sent}
    bearer = named.get("authorization", "")
    if azure and "api-key" not in named and sent.get(bearer, "").startswith("Bearer "):
        sent["api-key"] = sent.pop(bearer).removeprefix("Bearer ")
    options: dict[str, Any] = {
        "base_url": base_url,
        "api_key": _NO_KEY,
        "http_client": httpx2.AsyncClient(transport=BoundedTransport(client, sent, largest_file), trust_env=False),
        "timeout": None,
        "max_retries": 0,
        "default_query": dict(query),
    }
    if azure and urlsplit(base_url).path.rstrip("/").endswith("/openai"):
        return openai.AsyncAzureOpenAI(api_version=query["api-version"], **options)
    return openai.AsyncOpenAI(**options)


def received(response: Any) -> Received:
    """Return what was received, from a raw response of the package."""
    return response.http_response.extensions[_RECEIVED]  # type: ignore[no-any-return]


async def chat(api: openai.AsyncOpenAI, body: Mapping[str, Any]) -> Any:
    """Ask for a chat completion with a body of our own, and return the raw response. Raises the transport's errors."""
    messages = [{**message, "content": storable(message["content"])} for message in body["messages"]]
    create: Any = api.chat.completions.with_raw_response.create
    # As arguments, the messages would be compared with every type of message, which takes half of a call's time.
    return await create(model=body["model"], messages=[], extra_body={**body, "messages": messages})

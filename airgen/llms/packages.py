"""The vendors' own packages on airgen's connections.

    status, headers, content = await through(endpoint, lambda client: anthropic.AsyncAnthropic(http_client=client) ...)

A package writes the request as its vendor wants it. The request then goes out as every other one does, through
`airgen.llms.http.Endpoint`: one pool of connections, no redirects, no retries but the engine's, answers bounded in
bytes, keys that the package never sees. The answer is read by airgen, whatever the package makes of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any

from airgen.errors import AirgenError, LlmError
from airgen.llms.http import Endpoint
from airgen.registry import load_extra

NO_KEY = "the-endpoint-sends-it"  # packages want a key; the endpoint replaces it by the real one
_SENT = ("anthropic-version", "anthropic-beta")  # headers of a package that are part of the request

_Answer = tuple[int, Mapping[str, str], bytes]
_CAME: ContextVar[list[_Answer | AirgenError]] = ContextVar("_CAME")


def client_of(endpoint: Endpoint, what: str) -> Any:
    """An `httpx2.AsyncClient` whose requests the endpoint sends. Raises MissingExtra without that package."""
    httpx2 = load_extra("httpx2", what)

    class Transport(httpx2.AsyncBaseTransport):  # type: ignore[misc, name-defined]
        async def handle_async_request(self, request: Any) -> Any:
            path = request.url.raw_path.decode("ascii").partition("?")[0]
            base = httpx2.URL(endpoint.base_url).raw_path.decode("ascii").rstrip("/")
            headers = {name: request.headers[name] for name in _SENT if name in request.headers}
            try:
                came = await endpoint.post_bytes(path.removeprefix(base), await request.aread(), headers)
            except AirgenError as problem:
                _CAME.get().append(problem)
                raise
            _CAME.get().append(came)
            status, answered, content = came
            kind = {"Content-Type": answered.get("Content-Type", "application/json")}
            return httpx2.Response(status, headers=kind, content=content)

    return httpx2.AsyncClient(transport=Transport(), follow_redirects=False)


async def through(call: Callable[[], Awaitable[object]], what: str) -> _Answer:
    """The server's answer to the one request that `call` makes: status, headers and content.

    Raises what `Endpoint.post` raises, and LlmError where the package does not take the request.
    """
    came: list[_Answer | AirgenError] = []
    token = _CAME.set(came)
    try:
        await call()
    except Exception as error:  # noqa: BLE001  # what the package makes of an answer does not count: it is read here
        if not came:
            raise LlmError(f"the package for {what} does not take the request: {str(error)[:300]}") from None
    finally:
        _CAME.reset(token)
    if isinstance(came[0], AirgenError):
        raise came[0]
    return came[0]

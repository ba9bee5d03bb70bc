"""The client of the `openai` package for files and batches, with a bound for every answer.

    client = batch_client(openai, endpoint)
    async for line, whole in result_lines(openai, client, "file-abc"):
        ...

The package reads answers whole. Here they come without compression, so no small answer becomes a large one, and each
is given up where it is larger than it can be.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airgen.errors import LlmError
from airgen.llms.base import Retry, Usage
from airgen.llms.http import LARGEST_ANSWER, Endpoint

if TYPE_CHECKING:
    from openai import AsyncOpenAI


_LARGEST_FILE = 2 << 30  # bytes of the results of one batch
_PIECE = 1 << 16


def batch_client(openai: Any, endpoint: Endpoint) -> AsyncOpenAI:
    """A client that sends the endpoint's headers, never tries again by itself, and follows no redirect."""

    class Bounded(_transport(openai).AsyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any, most: int) -> None:
            self._stream, self._left, self._most = stream, most, most

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in self._stream:
                self._left -= len(piece)
                if self._left < 0:
                    raise LlmError(f"{endpoint.where} sends more than {self._most >> 20:,} MB at once; refused")
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            raise Retry("bad_body", detail=f"Content-Encoding {coding[:40]!r} was not asked for", usage=Usage())
        results = response.status_code == 200 and response.request.url.path.endswith("/content")
        response.stream = Bounded(response.stream, _LARGEST_FILE if results else LARGEST_ANSWER)

    no_account = dict.fromkeys(("OpenAI-Organization", "OpenAI-Project"), openai.Omit())  # of the environment
    client: AsyncOpenAI = openai.AsyncOpenAI(
        base_url=endpoint.base_url,
        api_key="none",  # the package wants one; the headers below have the real one
        default_headers={**no_account, **endpoint.headers, "Accept-Encoding": "identity"},
        default_query=endpoint.query or None,
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False, event_hooks={"response": [bound]}),
    )
    return client


async def result_lines(openai: Any, client: AsyncOpenAI, file: str) -> AsyncIterator[tuple[bytes, bool]]:
    """(line, whether it is whole) of a file at the server; of a line that no answer can have, the beginning.

    Raises the package's errors, Retry for a broken connection, LlmError for a file that is too large.
    """
    try:
        async for line, whole in _lines(client, file):
            yield line, whole
    except _transport(openai).HTTPError as error:
        raise Retry("connection", detail=str(error)[:200] or type(error).__name__) from None


async def _lines(client: AsyncOpenAI, file: str) -> AsyncIterator[tuple[bytes, bool]]:
    async with client.files.with_streaming_response.content(file) as response:
        line, skipping = bytearray(), False
        async for piece in response.iter_bytes(_PIECE):
            *ended, rest = piece.split(b"\n")
            for end in ended:
                if not skipping:
                    yield bytes(line + end), True
                line, skipping = bytearray(), False
            if not skipping:
                line += rest
                if len(line) > LARGEST_ANSWER:
                    yield bytes(line[:_PIECE]), False
                    line, skipping = bytearray(), True
        if line:
            yield bytes(line), True


def _transport(openai: Any) -> Any:
    """The module that the package is built on: httpx, or its successor in later versions."""
    return importlib.import_module(openai.DefaultAsyncHttpxClient.__base__.__module__.partition(".")[0])

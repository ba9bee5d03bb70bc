"""Several servers of one model as one endpoint: calls that share a document go to one server, whose cache knows it.

    servers = Servers(["http://gpu1:8000/v1", "http://gpu2:8000/v1"])
    status, headers, content = await servers.post("/chat/completions", body)

The prompts of one document begin alike (`prefix_of`), so the beginning decides which server is asked: the one that
scores highest in a hash of both (rendezvous hashing). Servers keep their documents when another one comes or goes. A
server that cannot be reached is passed over for a while, and its documents go to the next in their order.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airgen.llms.base import Retry
from airgen.llms.http import Endpoint

__all__ = ["Servers", "prefix_of"]

_AWAY = 30.0  # seconds that a server is passed over after it could not be reached
_PREFIX = 512  # characters that decide where there is no document
_DOCUMENT = 20_000  # characters of a document that decide
_GATEWAY = {502, 503, 504}  # what a proxy says of a server that is away


def prefix_of(body: Mapping[str, Any]) -> str:
    """What the calls on one document have in common: the first message of the user up to the end of the document."""
    messages = body.get("messages") or [{}]
    first = next((one for one in messages if one.get("role") == "user"), messages[0])
    text = str(first.get("content") or "")
    end = text.find("</document>")
    return text[: min(end, _DOCUMENT)] if end >= 0 else text[:_PREFIX]


class Servers(Endpoint):
    """Servers of one model with one key. The parameters are those of `Endpoint`, for each of `base_urls`."""

    def __init__(
        self, base_urls: Sequence[str], *options: Any, clock: Callable[[], float] = time.monotonic, **more: Any
    ) -> None:
        super().__init__(base_urls[0], *options, **more)
        self._servers = [Endpoint(url, *options, **more) for url in base_urls]
        self._away: dict[str, float] = {}  # by address: until when it is passed over
        self._clock = clock
        shown = [server.where for server in self._servers]
        self.where = ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")

    def order(self, body: Mapping[str, Any]) -> list[Endpoint]:
        """All servers, in the order in which a call may go to them; those that are away come last."""
        prefix = hashlib.blake2b(prefix_of(body).encode("utf-8", "surrogatepass"), digest_size=16).digest()

        def score(server: Endpoint) -> bytes:
            return hashlib.blake2b(prefix + server.base_url.encode(), digest_size=8).digest()

        now = self._clock()
        ranked = sorted(self._servers, key=score)
        return sorted(ranked, key=lambda server: self._away.get(server.base_url, 0.0) > now)

    async def post(self, path: str, body: Any) -> tuple[int, Mapping[str, str], bytes]:
        """As `Endpoint.post`, at the first server in the call's order that can be reached.

        A server that may have taken the call is not passed over within it: the error is raised, so that the cost is
        accounted for, and the next try goes to the next server.
        """
        *others, last = self.order(body)
        for server in others:
            try:
                found = await server.post(path, body)
            except Retry as problem:
                self._pass_over(server)
                if problem.usage is not None:
                    raise
                continue
            if found[0] not in _GATEWAY:
                return found
            self._pass_over(server)
        return await last.post(path, body)

    def _pass_over(self, server: Endpoint) -> None:
        self._away[server.base_url] = self._clock() + _AWAY

    async def close(self) -> None:
        """Close the connections of all."""
        for server in self._servers:
            await server.close()

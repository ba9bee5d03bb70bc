"""Any OpenAI-compatible endpoint over HTTP: OpenAI, vLLM, Ollama, llama.cpp's server, most gateways.

    backend = OpenAIBackend(base_url="http://localhost:8000/v1")
    backend = OpenAIBackend(api_key_env="OPENAI_API_KEY")
    backend = OpenAIBackend(["http://gpu1:8000/v1", "http://gpu2:8000/v1"])     # servers of one model

Live calls use aiohttp, because the transport of the `openai` package searches its whole pool at each event: at 64
calls at a time it reached half of aiohttp's rate, at 256 a ninth (docs/llm-engine.md, "Measured").
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import model_validator

from airgen.llms.base import Backend, CallLimits, Retry, Rule, answer_key
from airgen.llms.chat_backend import ChatBackend, EndpointSettings
from airgen.llms.dialect import Dialect
from airgen.llms.http import OPENAI_URL, Endpoint
from airgen.llms.prices import Price, price
from airgen.settings.base import SPEED
from airgen.settings.llm import Seconds, own_answer_settings

DAY = 26 * 3600.0  # seconds: the 24 hours that a batch may take, and time to fetch its results
MOST_SERVERS = 256
BATCH_REQUESTS = 50_000  # OpenAI's limit of one batch file

_AWAY = 30.0  # seconds that a server is passed over after it could not be reached
_PREFIX = 512  # characters that decide where there is no document
_DOCUMENT = 20_000  # characters of a document that decide
_GATEWAY = {502, 503, 504}  # what a proxy says of a server that is away


class OpenAISettings(EndpointSettings):
    """Where the endpoint is, which variable holds its key, and whether calls are sent live or in batches."""

    backend: Annotated[str, SPEED] = "openai"
    base_url: Annotated[str | list[str] | None, SPEED] = None  # type: ignore[assignment]  # or several servers of the model
    mode: Annotated[Literal["live", "batch"], SPEED] = "live"
    batch_poll_seconds: Seconds = 30.0  # mode batch: time between two requests for a batch's status

    @property
    def addresses(self) -> list[str]:
        """The addresses of all servers."""
        return [self.base_url] if isinstance(self.base_url, str) else self.base_url or []

    @model_validator(mode="after")
    def _servers(self) -> OpenAISettings:
        if isinstance(self.base_url, list):
            if not 1 <= len(set(self.base_url)) == len(self.base_url) <= MOST_SERVERS:
                raise ValueError(f"base_url: a list names from 1 to {MOST_SERVERS} servers, each once")
            if self.mode == "batch":
                raise ValueError("base_url: mode batch has one server: give one address")
        return self

    @property
    def workers(self) -> int:
        """In batch mode all calls of a stage, so that they go into one batch."""
        return BATCH_REQUESTS if self.mode == "batch" else self.concurrency

    @property
    def extra(self) -> dict[str, Any]:
        """Members of the body of every call."""
        effort = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort else {}
        return {**effort, **self.extra_body}


class OpenAIBackend(ChatBackend):
    """`POST {base_url}/chat/completions`, once a call.

    See `airgen.llms.http.Endpoint` for the parameters and what they raise.
    """

    Settings = OpenAISettings

    @classmethod
    def make(cls, settings: OpenAISettings, *, folder: Path, rules: Mapping[str, Rule]) -> Backend:
        """A backend for live calls, or for batches, whose state is kept in `folder`."""
        urls, key = settings.addresses or [OPENAI_URL], settings.api_key_env
        if settings.mode == "live":
            return cls(
                urls, key, settings.headers,
                query=settings.query, extra=settings.extra, most_thinking=settings.thinking_tokens,
            )  # fmt: skip
        from airgen.llms.batch import BatchBackend

        poll = settings.batch_poll_seconds
        dialect = Dialect(most_room=settings.thinking_tokens, extra=settings.extra)
        return BatchBackend(
            folder=folder,
            answer_key=answer_key(own_answer_settings(settings)),
            base_url=urls[0],
            api_key_env=key,
            headers=settings.headers,
            query=settings.query,
            dialect=dialect,
            poll=poll,
            gather=min(2.0, poll),
        )

    @classmethod
    def missing(cls, settings: OpenAISettings) -> list[str]:
        """The endpoint, the key, or the package that batches need."""
        found = []
        if settings.base_url is None and settings.api_key_env is None:
            found.append("llm: neither base_url nor api_key_env is given: name the endpoint, or the key's variable")
        found += settings.unset()
        if settings.mode == "batch" and importlib.util.find_spec("openai") is None:
            found.append("llm.mode batch needs the package openai: pip install 'airgen-bench[openai]'")
        return found

    @classmethod
    def price(cls, settings: OpenAISettings) -> Price | None:
        """The price of the pipeline, of the endpoint (the dearest), or of the model's maker; half of it in batches."""
        each = [price(settings.model, settings.prices, url) for url in settings.addresses or [""]]
        known = [one for one in each if one is not None]
        found = max(known, key=lambda one: (one.input + one.output, one.assumed)) if len(known) == len(each) else None
        return found.halved() if found and settings.mode == "batch" else found

    @classmethod
    def limits(cls, settings: OpenAISettings) -> CallLimits:
        """In batch mode a call may take a day, and all calls of a stage are out at a time."""
        found = super().limits(settings)
        if settings.mode == "live":
            return found
        return dataclasses.replace(found, concurrency=settings.workers, adaptive=False, timeout=DAY)

    def __init__(
        self,
        base_url: str | Sequence[str] = OPENAI_URL,
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 15.0,
        *,
        query: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        most_thinking: int = 32_768,
    ) -> None:
        urls = [base_url] if isinstance(base_url, str) else list(base_url)
        make: Any = Endpoint if len(urls) == 1 else Servers
        where = urls[0] if len(urls) == 1 else urls
        endpoint = make(where, api_key_env, headers, connect_timeout, query=query, versioned=True)
        super().__init__(endpoint, Dialect(most_room=most_thinking, extra=extra or {}))

    async def post(self, body: dict[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        """Send a chat completion. Raises what `Endpoint.post` raises."""
        return await self._endpoint.post("/chat/completions", body)


def prefix_of(body: Mapping[str, Any]) -> str:
    """What the calls on one document have in common: the first message of the user up to the end of the document."""
    messages = body.get("messages") or [{}]
    first = next((one for one in messages if one.get("role") == "user"), messages[0])
    text = str(first.get("content") or "")
    end = text.find("</document>")
    return text[: min(end, _DOCUMENT)] if end >= 0 else text[:_PREFIX]


class Servers(Endpoint):
    """Servers of one model with one key: calls that share a document go to one of them, whose cache knows it.

    The prompts of one document begin alike (`prefix_of`), so the beginning decides which server is asked: the one that
    scores highest in a hash of both (rendezvous hashing). Servers keep their documents when another one comes or goes.
    A server that cannot be reached is passed over for a while, and its documents go to the next in their order. The
    parameters are those of `Endpoint`, for each of `base_urls`.
    """

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

"""Any OpenAI-compatible endpoint over HTTP: OpenAI, Anthropic, Gemini, Azure, vLLM, Ollama, llama.cpp, most gateways.

    backend = OpenAIBackend("http://localhost:8000/v1")
    backend = OpenAIBackend(api_key_env="OPENAI_API_KEY")
    backend = OpenAIBackend(["http://gpu1:8000/v1", "http://gpu2:8000/v1"])     # servers of one model

A request is sent in the model's dialect, which is learnt from the server's refusals (`airgen.llms.dialect`). Calls use
aiohttp, because the transport of the `openai` package searches its whole pool at each event: at 64 calls at a time it
reached half of aiohttp's rate, at 256 a ninth (docs/notes/llm-engine.md, "Measured").
"""

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from airgen.http import Received
from airgen.llms.base import Backend, CallLimits, Refused, Reply, Request, Retry, Rule, answer_key
from airgen.llms.chat import billed_in, load_json, with_usage
from airgen.llms.dialect import Dialect, most_output, too_much
from airgen.llms.http import OPENAI_URL, Endpoint, error_of, server_limits, status_in
from airgen.llms.money import Price, Usage, price
from airgen.settings.base import SPEED
from airgen.settings.http import Headers, Parameters, variables_of
from airgen.settings.llm import (
    LlmSettings,
    address,
    hidden,
    looks_like_a_key,
    own_answer_settings,
    secret,
    variable_name,
)

DAY = 26 * 3600.0  # seconds: the 24 hours that a batch may take, and time to fetch its results
MOST_SERVERS = 256
BATCH_REQUESTS = 50_000  # OpenAI's limit of one batch file

_OURS = {"model", "messages", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of", "stream"}
_PERHAPS_FOR_A_PARAMETER = {400, 422, 500, 501}  # llama.cpp answers 500 where a template has no system message
_AWAY = 30.0  # seconds that a server is passed over after it could not be reached
_PREFIX = 512  # characters that decide where there is no document
_DOCUMENT = 20_000  # characters of a document that decide
_GATEWAY = {502, 503, 504}  # what a proxy says of a server that is away


class OpenAISettings(LlmSettings):
    """Where the endpoint is, which variables hold its secrets, what else each call says, and whether calls are sent
    live or in batches."""

    DROPPED: ClassVar[tuple[str, ...]] = ()  # parameters that no model behind the endpoint takes

    backend: Annotated[str, SPEED] = "openai"
    base_url: Annotated[str | list[str] | None, SPEED] = None  # or several servers of the model
    api_key_env: Annotated[str | None, SPEED] = None
    headers: Annotated[Headers, SPEED] = Field(default={})  # more headers; secrets as ${NAME} of the environment
    query: Annotated[Parameters, SPEED] = Field(default={})  # parameters of the address: {api-version: 2024-10-21}
    reasoning_effort: Annotated[str | None, Field(max_length=40)] = None  # minimal, low, medium, high, ...
    extra_body: dict[str, Any] = Field(default={})  # more members of each request's body
    mode: Annotated[Literal["live", "batch"], SPEED] = "live"

    @field_validator("base_url")
    @classmethod
    def _addresses_without_a_key(cls, value: str | list[str] | None) -> str | list[str] | None:
        if isinstance(value, list):
            return [address(one) for one in value]
        return value if value is None else address(value)

    @field_validator("api_key_env")
    @classmethod
    def _a_name_not_a_key(cls, value: str | None) -> str | None:
        return value if value is None else variable_name(value)

    @field_validator("extra_body")
    @classmethod
    def _what_airgen_does_not_set(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(_OURS & value.keys()):
            raise ValueError(f"must not hold {', '.join(taken)}: airgen sets it (llm.model, llm.max_tokens)")
        if any(looks_like_a_key(text) for text in _strings(value)):
            raise hidden("holds what looks like a key: put it into llm.headers as ${NAME}, an environment variable")
        return value

    @model_validator(mode="after")
    def _servers(self) -> "OpenAISettings":
        if isinstance(self.base_url, list):
            if not 1 <= len(set(self.base_url)) == len(self.base_url) <= MOST_SERVERS:
                raise ValueError(f"base_url: a list names from 1 to {MOST_SERVERS} servers, each once")
            if self.mode == "batch":
                raise ValueError("base_url: mode batch has one server: give one address")
        return self

    @property
    def addresses(self) -> list[str]:
        """The addresses of all servers."""
        return [self.base_url] if isinstance(self.base_url, str) else self.base_url or []

    @property
    def workers(self) -> int:
        """In batch mode all calls of a stage, so that they go into one batch."""
        return BATCH_REQUESTS if self.mode == "batch" else self.concurrency

    @property
    def extra(self) -> dict[str, Any]:
        """Members of the body of every call."""
        effort = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort else {}
        return {**effort, **self.extra_body}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        yield from _strings(one)


class OpenAIBackend(Backend):
    """`POST {base_url}/chat/completions`, once a call, and again without what the server has just refused.

    base_url, api_key_env, headers, query: see `airgen.llms.http.Endpoint`. dialect: what is known of every model there.
    """

    Settings = OpenAISettings
    PROBED: ClassVar[bool] = True

    @classmethod
    def make(cls, settings: OpenAISettings, *, folder: Path, rules: Mapping[str, Rule]) -> Backend:
        """A backend for live calls, or for batches, whose state is kept in `folder`."""
        urls, more = settings.addresses or [OPENAI_URL], {"headers": settings.headers, "query": settings.query}
        dialect = Dialect(dropped=list(settings.DROPPED), extra=settings.extra)
        if settings.mode == "live":
            return cls(urls, settings.api_key_env, dialect=dialect, **more)
        from airgen.llms.batch import BatchBackend

        key = answer_key(own_answer_settings(settings))
        endpoint = Endpoint(urls[0], settings.api_key_env, **more)
        return BatchBackend(endpoint, folder, answer_key=key, dialect=dialect)

    @classmethod
    def missing(cls, settings: OpenAISettings) -> list[str]:
        """The endpoint, or a variable of the environment."""
        found = []
        if settings.base_url is None and settings.api_key_env is None:
            found.append("llm: neither base_url nor api_key_env is given: name the endpoint, or the key's variable")
        if settings.api_key_env and not secret(settings.api_key_env):
            found.append(f"llm.api_key_env: the environment variable {settings.api_key_env} is not set")
        named = [*variables_of(settings.headers), *variables_of(settings.query)]
        unset = [f"llm: the environment variable {name} is not set: export it" for name in named if not secret(name)]
        return [*found, *unset]

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
        *,
        query: Mapping[str, str] | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        urls = [base_url] if isinstance(base_url, str) else list(base_url)
        self._servers = Servers(urls, api_key_env, headers, query=query)
        self._start = dialect or Dialect()
        self._dialects: dict[str, Dialect] = {}  # by model

    def dialect(self, model: str) -> Dialect:
        """What is known of a model."""
        if model not in self._dialects:
            self._dialects[model] = dataclasses.replace(self._start, dropped=list(self._start.dropped))
        return self._dialects[model]

    def known(self) -> dict[str, Any]:
        """What was learnt of each model."""
        return {model: dialect.known() for model, dialect in self._dialects.items()}

    def remember(self, known: Mapping[str, Any]) -> None:
        """Take over what `known` gave in another process."""
        for model, learnt in known.items():
            if isinstance(learnt, dict):
                self.dialect(model).remember(learnt)

    def room(self, request: Request) -> int:
        """Tokens for thinking, for a model that was seen to think."""
        return self.dialect(request.model).room

    async def send(self, request: Request) -> Reply:
        """Send one request once, or again without what the server has just refused.

        Raises Retry, Refused, LlmError.
        """
        dialect, room = self.dialect(request.model), request.room
        while True:
            body = dialect.body(request, room)
            status, headers, content = await self._servers.post("/chat/completions", body)
            if status == 200:
                return self._reply(request, headers, content)
            if status in _PERHAPS_FOR_A_PARAMETER:
                message = " ".join(error_of(content))
                if (words := dialect.learn(body, message)) is not None:
                    if words:
                        self.say(f"{request.model} at {self._servers.where} {self._servers.first.scrub(words)}")
                    continue
                if too_much(message, room):  # of this request alone: another one may be shorter
                    room //= 2
                    continue
            raise self._servers.first.failure(status, headers, content, request.model)

    async def close(self) -> None:
        """Close the connections."""
        await self._servers.close()

    def _reply(self, request: Request, headers: Mapping[str, str], content: bytes) -> Reply:
        endpoint = self._servers.first
        try:
            payload = load_json(content)
        except ValueError:
            kind = endpoint.scrub(headers.get("Content-Type", "no type"))[:100]
            raise Retry("bad_body", detail=f"not JSON ({kind}, {len(content)} bytes)", usage=Usage()) from None
        if isinstance(payload, dict) and payload.get("error") and not payload.get("choices"):
            # some gateways send errors with status 200
            problem = endpoint.failure(status_in(payload), headers, content, request.model)
            if isinstance(problem, Retry | Refused):
                problem.usage = billed_in(payload) or problem.usage
            raise problem
        reply = with_usage(request, endpoint.reply(payload))
        if limits := server_limits(headers):
            reply = dataclasses.replace(reply, limits=limits)
        if self.dialect(request.model).cut_off(request, reply):
            allowed = most_output(request) + request.room
            raise Retry("thinking", detail=f"it thought until its {allowed:,} tokens were used up", usage=reply.usage)
        return reply


class AnthropicSettings(OpenAISettings):
    """Anthropic's endpoint for chat completions. It has no seeds, no log-probabilities and no prompt cache."""

    DROPPED: ClassVar[tuple[str, ...]] = ("seed", "logprobs", "top_logprobs")

    backend: Annotated[str, SPEED] = "anthropic"
    base_url: Annotated[str | list[str] | None, SPEED] = "https://api.anthropic.com/v1"
    api_key_env: Annotated[str | None, SPEED] = "ANTHROPIC_API_KEY"


class AnthropicBackend(OpenAIBackend):
    """A preset."""

    Settings = AnthropicSettings


class GeminiSettings(OpenAISettings):
    """Google's endpoint for chat completions."""

    backend: Annotated[str, SPEED] = "gemini"
    base_url: Annotated[str | list[str] | None, SPEED] = "https://generativelanguage.googleapis.com/v1beta/openai"
    api_key_env: Annotated[str | None, SPEED] = "GEMINI_API_KEY"


class GeminiBackend(OpenAIBackend):
    """A preset."""

    Settings = GeminiSettings


def prefix_of(body: Mapping[str, Any]) -> str:
    """What the calls on one document have in common: the first message of the user up to the end of the document."""
    messages = body.get("messages") or [{}]
    first = next((one for one in messages if one.get("role") == "user"), messages[0])
    text = str(first.get("content") or "")
    end = text.find("</document>")
    return text[: min(end, _DOCUMENT)] if end >= 0 else text[:_PREFIX]


class Servers:
    """Servers of one model with one key: calls that share a document go to one of them, whose cache knows it.

    The prompts of one document begin alike (`prefix_of`), so the beginning decides which server is asked: the one that
    scores highest in a hash of both (rendezvous hashing). Servers keep their documents when another one comes or goes.
    A server that cannot be reached is passed over for a while, and its documents go to the next in their order. The
    parameters are those of `Endpoint`, for each of `base_urls`.
    """

    def __init__(
        self, base_urls: Sequence[str], *options: Any, clock: Callable[[], float] = time.monotonic, **more: Any
    ) -> None:
        self._servers = [Endpoint(url, *options, **more) for url in base_urls]
        self.first = self._servers[0]
        self._away: dict[str, float] = {}  # by address: until when it is passed over
        self._clock = clock
        shown = [server.where for server in self._servers]
        self.where = ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")

    def order(self, body: Mapping[str, Any]) -> list[Endpoint]:
        """All servers, in the order in which a call may go to them; those that are away come last."""
        if len(self._servers) == 1:
            return self._servers
        prefix = hashlib.blake2b(prefix_of(body).encode("utf-8", "surrogatepass"), digest_size=16).digest()

        def score(server: Endpoint) -> bytes:
            return hashlib.blake2b(prefix + server.base_url.encode(), digest_size=8).digest()

        now = self._clock()
        ranked = sorted(self._servers, key=score)
        return sorted(ranked, key=lambda server: self._away.get(server.base_url, 0.0) > now)

    async def post(self, path: str, body: Any) -> Received:
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

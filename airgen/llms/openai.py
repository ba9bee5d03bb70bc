"""Backends for OpenAI-compatible endpoints: OpenAI, Anthropic, Gemini, Azure, vLLM, Ollama, llama.cpp, most gateways.

    backend = OpenAIBackend(OpenAISettings(model="m", base_url="http://localhost:8000/v1"))

A request is sent in the model's dialect, which is learnt from the server's refusals
(`airgen.llms.accepted_parameters`), by the package `openai` over our own HTTP client (`airgen.openai_client`).
`base_url` is one address: where several servers have one model, it is that of a router in front of them.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from airgen.errors import LlmError
from airgen.llms.accepted_parameters import Dialect, LearningBackend, most_output, too_much
from airgen.llms.base import Backend, CallFailed, CallLimits, Reply, Request, Retry, Rule, answer_key
from airgen.llms.batch import BATCH_REQUESTS, BatchBackend
from airgen.llms.chat import billed_in, load_json, with_usage
from airgen.llms.endpoint import Endpoint, error_of, no_api, server_limits, status_in
from airgen.llms.money import Price, Usage, price
from airgen.llms.probe import STAGE
from airgen.settings.base import KEY, SPEED
from airgen.settings.http import KeyAccess, Parameters, Variable, filled, unset_variables
from airgen.settings.llm import LlmSettings, check_address, hidden, looks_like_a_key, own_answer_settings

_OURS = {"model", "messages", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of", "stream"}
_PERHAPS_FOR_A_PARAMETER = {400, 422, 500, 501}  # llama.cpp answers 500 if a template has no system message


class OpenAISettings(KeyAccess, LlmSettings):
    """Settings of an OpenAI-compatible endpoint.

    They comprise its URL, the environment variables with its secrets, additional parameters, and whether calls are sent
    live or in batches.
    """

    DROPPED: ClassVar[tuple[str, ...]] = ()  # parameters that no model behind the endpoint accepts

    backend: Annotated[str, SPEED] = "openai"
    base_url: Annotated[str | None, SPEED] = None
    query: Annotated[Parameters, SPEED, KEY] = Field(default={})  # parameters of the address: {api-version: 2024-10-21}
    reasoning_effort: Annotated[str | None, Field(max_length=40)] = None  # minimal, low, medium, high, ...
    extra_body: dict[str, Any] = Field(default={})  # further fields of each request's body
    mode: Annotated[Literal["live", "batch"], SPEED] = "live"

    @field_validator("base_url", mode="before")
    @classmethod
    def _one_address_without_a_key(cls, value: object) -> object:
        if isinstance(value, list):
            raise hidden("must be a single address: for several servers, give the address of a router in front of them")
        if isinstance(value, str):
            check_address(value)
        return value

    @field_validator("extra_body")
    @classmethod
    def _what_airgen_does_not_set(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(_OURS & value.keys()):
            raise ValueError(f"must not contain {', '.join(taken)}: airgen sets it (llm.model, llm.max_tokens)")
        if any(looks_like_a_key(text) for text in _strings(value)):
            raise hidden("contains what looks like a key: put it in llm.headers as ${NAME}, an environment variable")
        return value

    @property
    def address(self) -> str:
        """Return the URL of the endpoint, by default OpenAI's."""
        return self.base_url or "https://api.openai.com/v1"

    @property
    def workers(self) -> int:
        """Return the concurrency. In batch mode, all calls of a stage are concurrent, so that they form one batch."""
        return BATCH_REQUESTS if self.mode == "batch" else self.concurrency

    def dialect(self) -> Dialect:
        """Return what is known about the model's dialect before the first call."""
        effort = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort else {}
        return Dialect(dropped=list(self.DROPPED), extra={**effort, **self.extra_body})

    def server(self) -> Endpoint:
        """Return the server's endpoint. Raises SettingsError if an environment variable is not set."""
        headers, secrets = self.access()
        query, more = filled(self.query)
        return Endpoint(self.address, headers, [*secrets, *more], query)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        yield from _strings(item)


_MAX_PAGES = 6  # answers that are not JSON, after which a server that sent nothing else is not an API


class OpenAIBackend(LearningBackend):
    """Sends `POST {base_url}/chat/completions` for each call, and repeats it without parameters that the server
    refuses."""

    Settings = OpenAISettings
    PROBED: ClassVar[bool] = True

    @classmethod
    def make(cls, settings: OpenAISettings, *, folder: Path, rules: Mapping[str, Rule]) -> Backend:
        """Return a backend for live calls, or for batches, whose state is saved in `folder`."""
        if settings.mode == "live":
            return cls(settings)
        key = functools.partial(answer_key, settings=own_answer_settings(settings))
        return BatchBackend(settings.server(), folder, answer_key=key, dialect=settings.dialect())

    @classmethod
    def missing(cls, settings: OpenAISettings) -> list[str]:
        """Return a line for a missing endpoint or environment variable."""
        if settings.base_url is None and settings.api_key_env is None:
            return ["llm: neither base_url nor api_key_env is given: name the endpoint, or the key's variable"]
        return [f"llm.{line}" for line in unset_variables(settings)]

    @classmethod
    def price(cls, settings: OpenAISettings) -> Price | None:
        """Return the price set in the pipeline, or that of the endpoint or the model's maker; half of it for
        batches."""
        base_price = price(settings.model, settings.prices, settings.address)
        return base_price.halved() if base_price and settings.mode == "batch" else base_price

    @classmethod
    def limits(cls, settings: OpenAISettings) -> CallLimits:
        """Return the limits on calls.

        In batch mode, all calls of a stage are in flight, and only the batch has a time limit. The limits per minute
        apply to live calls.
        """
        limits = super().limits(settings)
        if settings.mode == "live":
            return limits
        return dataclasses.replace(
            limits,
            concurrency=settings.workers,
            adaptive=False,
            timeout=None,
            requests_per_minute=None,
            tokens_per_minute=None,
        )

    def __init__(self, settings: OpenAISettings) -> None:
        super().__init__(settings.dialect())
        self._endpoint = settings.server()
        self._answered, self._pages = False, 0  # whether it returned JSON once, and what else it returned

    async def send(self, request: Request) -> Reply:
        """Send a request, and repeat it only without parameters that the server refuses.

        Raises Retry, Refused or LlmError.
        """
        room, endpoint = request.room, self._endpoint
        while True:
            body = self.dialect.body(request, room)
            status, headers, content = await endpoint.post("/chat/completions", body)
            if status == 200:
                return self._reply(request, headers, content)
            if status in _PERHAPS_FOR_A_PARAMETER:
                message = " ".join(error_of(content))
                if (words := self.dialect.learn(body, message)) is not None:
                    if words:
                        self.say(f"{request.model} at {endpoint.where} {endpoint.scrub(words)}")
                    continue
                if too_much(message, room):  # only this request; another may be shorter
                    room //= 2
                    continue
            raise endpoint.failure(status, headers, content, request.model)

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    def _reply(self, request: Request, headers: Mapping[str, str], content: bytes) -> Reply:
        endpoint = self._endpoint
        payload: Any = None
        try:
            payload, read = load_json(content), True
        except ValueError:
            read = False
        if not read:  # raised outside, so that the error does not carry the decoder's error, which holds the whole body
            kind = endpoint.scrub(headers.get("Content-Type", "no type"))[:100]
            if words := no_api(content, kind):
                self._pages += 1
                # If the server has answered before, a gateway's page may be temporary.
                if request.stage == STAGE or (not self._answered and self._pages >= _MAX_PAGES):
                    raise LlmError(f"{request.model} at {endpoint.where} {words}")
            raise Retry("bad_body", detail=f"not JSON ({kind}, {len(content)} bytes)", usage=Usage())
        if isinstance(payload, dict) and payload.get("error") and not payload.get("choices"):
            # Some gateways send errors with status 200.
            problem = endpoint.failure(status_in(payload), headers, content, request.model)
            if isinstance(problem, CallFailed):
                problem.usage = billed_in(payload) or problem.usage
            raise problem
        self._answered = True
        reply = with_usage(request, endpoint.reply(payload))
        if limits := server_limits(headers):
            reply = dataclasses.replace(reply, limits=limits)
        if self.dialect.cut_off(request, reply):
            allowed = most_output(request) + request.room
            raise Retry("thinking", detail=f"it used all of its {allowed:,} tokens for thinking", usage=reply.usage)
        return reply


class AnthropicSettings(OpenAISettings):
    """Settings of Anthropic's chat completions endpoint, which has no seeds, log-probabilities or prompt cache."""

    DROPPED: ClassVar[tuple[str, ...]] = ("seed", "logprobs", "top_logprobs")

    backend: Annotated[str, SPEED] = "anthropic"
    base_url: Annotated[str | None, SPEED] = "https://api.anthropic.com/v1"
    api_key_env: Annotated[Variable | None, SPEED, KEY] = "ANTHROPIC_API_KEY"


class AnthropicBackend(OpenAIBackend):
    """Backend for Anthropic's models, with its URL and the usual environment variable of its key."""

    Settings = AnthropicSettings


class GeminiSettings(OpenAISettings):
    """Settings of Google's chat completions endpoint."""

    backend: Annotated[str, SPEED] = "gemini"
    base_url: Annotated[str | None, SPEED] = "https://generativelanguage.googleapis.com/v1beta/openai"
    api_key_env: Annotated[Variable | None, SPEED, KEY] = "GEMINI_API_KEY"


class GeminiBackend(OpenAIBackend):
    """Backend for Google's models, with its URL and the usual environment variable of its key."""

    Settings = GeminiSettings

"""Backends for OpenAI-compatible endpoints: OpenAI, Anthropic, Gemini, Azure, vLLM, Ollama, llama.cpp, most gateways.

    backend = OpenAIBackend(OpenAISettings(model="m", base_url="http://localhost:8000/v1"))

A request is sent in the model's dialect, which is learnt from the server's refusals
(`airgen.llms.accepted_parameters`), by the package `openai` over our own HTTP client (`airgen.net.openai_client`).
`base_url` is one address: where several servers have one model, it is that of a router in front of them.
"""

import asyncio
import dataclasses
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from airgen.errors import LlmError, SettingProblem
from airgen.llms.accepted_parameters import (
    Concession,
    Dialect,
    LearningBackend,
    most_output,
    perhaps_for_a_parameter,
    too_much,
)
from airgen.llms.base import Backend, CallFailed, CallLimits, Refused, Reply, Request, Retry, Rule, answer_key
from airgen.llms.batch import BATCH_REQUESTS, BatchBackend
from airgen.llms.chat import billed_in, load_json, with_usage
from airgen.llms.endpoint import Endpoint, error_of, no_api, server_limits, status_in
from airgen.llms.error_bodies import error_in
from airgen.llms.money import Price, Usage, price
from airgen.llms.probe import STAGE
from airgen.net.http import Received
from airgen.settings.base import KEY, SPEED
from airgen.settings.http import KeyAccess, Parameters, Variable, filled, unset_variables
from airgen.settings.llm import LlmSettings, check_address, hidden, looks_like_a_key, own_answer_settings

_OURS = {"model", "messages", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of", "stream"}
_PERHAPS_FOR_A_PARAMETER = {400, 422, 500, 501}  # llama.cpp answers 500 if a template has no system message
_IF_IT_NAMES_ONE = {403, 404}  # otherwise, these are about the key or the model
_NEVER_FOR_A_PARAMETER = {410, 413, 414, 451}


_WORD = re.compile(r"\w+")


def _without_numbers(word: re.Match[str]) -> str:
    """Return a word of a message, or `#` for one with a digit, such as the number of a request."""
    return "#" if any(map(str.isdigit, word[0])) else word[0]


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


def _refusal(received: Received) -> tuple[int, str]:
    """Return the status of a response, and what it says unless it is an answer. Some gateways send errors with status
    200."""
    status, _, content = received
    if status != 200:
        return status, " ".join(error_of(content))
    if b'"error"' not in content or b'"choices"' in content:
        return 200, ""
    try:
        payload = load_json(content)
    except ValueError:
        return 200, ""
    if not isinstance(payload, dict) or not payload.get("error") or billed_in(payload):
        return 200, ""
    return status_in(payload), " ".join(error_in(payload))


def _form_of(request: Request, body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the stage of a request and the parameters with which it is sent."""
    return (request.stage, str((body.get("response_format") or {}).get("type")), *sorted(body))


def _combinations(concessions: Sequence[Concession], from_size: int = 1) -> Iterator[Sequence[Concession]]:
    """Yield single concessions, then pairs, then all."""
    for size in range(from_size, 3):
        yield from itertools.combinations(concessions, size)
    yield concessions


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
    def missing(cls, settings: OpenAISettings) -> Sequence[str]:
        """Return a line for a missing endpoint or environment variable."""
        if settings.base_url is None and settings.api_key_env is None:
            words = "neither base_url nor api_key_env is given: name the endpoint, or the key's variable"
            return [SettingProblem(words, code="missing", setting="llm")]
        return [line.changed(setting=f"llm.{line.setting}") for line in unset_variables(settings)]

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
        self._search = asyncio.Lock()  # one call at a time looks for what the server refuses
        # For refusals by their words and parameters, whether the request was accepted without optional parameters.
        self._accepted_bare: dict[tuple[str, ...], bool] = {}
        self._accepted: set[tuple[str, ...]] = set()  # forms of requests that were accepted as they were
        self._answered, self._pages = False, 0  # whether it returned JSON once, and what else it returned

    async def send(self, request: Request) -> Reply:
        """Send a request, and repeat it only without parameters that the server refuses.

        Raises Retry, Refused or LlmError.
        """
        room, endpoint = request.room, self._endpoint
        while True:
            body = self.dialect.body(request, room)
            received = await endpoint.chat(body)
            status, message = _refusal(received)
            if status == 200:
                self._accepted.add(_form_of(request, body))
                return self._reply(request, received)
            problem = endpoint.failure(status, *received[1:], request.model)
            if isinstance(problem, Retry) and status < 500:
                raise problem
            if status in _PERHAPS_FOR_A_PARAMETER or self._names_one(status, body, message):
                if (words := self.dialect.learn(body, message)) is not None:
                    if words:
                        self.say(f"{request.model} at {endpoint.where} {endpoint.scrub(words)}")
                    continue
                if too_much(message, room):  # only this request; another may be shorter
                    room //= 2
                    continue
            async with self._search:
                if self.dialect.body(request, room) != body:  # another call has found it
                    continue
                if not self._searchable(status, problem, request, body, message):
                    raise problem
                if (reply := await self._find(request, room, body, message)) is not None:
                    return reply
            raise problem

    def _names_one(self, status: int, body: Mapping[str, Any], message: str) -> bool:
        return status in _IF_IT_NAMES_ONE and bool(self.dialect.alternatives_to(body, message)[0])

    def _searchable(
        self, status: int, problem: Exception, request: Request, body: Mapping[str, Any], message: str
    ) -> bool:
        """Return whether a refusal in unknown words may be about a parameter.

        It is not where the server has accepted the same parameters in another call of the stage.
        """
        if not perhaps_for_a_parameter(message):
            return False
        if self._names_one(status, body, message):
            return True
        return (
            isinstance(problem, Refused)
            and problem.reason == f"http_{status}"
            and status not in _NEVER_FOR_A_PARAMETER
            and _form_of(request, body) not in self._accepted
            and bool(self.dialect.alternatives_to(body, message)[1])
        )

    async def _find(self, request: Request, room: int, sent: Mapping[str, Any], message: str) -> Reply | None:
        """Find out which optional part of `sent` the server refuses, remember it, and return the answer without it.

        What the message names is left out first. Then the request is sent without any optional part, and if that is
        accepted, with as many as possible. Refused requests are free, and an attempt ends with the first that is
        accepted, so it costs no more than its reservation. Returns None if the refusal is not about these parts.
        """
        refused = [sent]
        kept: list[Concession] = []  # for what earlier messages of this search named

        async def accepted(concessions: Iterable[Concession]) -> tuple[Received | None, str]:
            body = self.dialect.with_concessions(concessions).body(request, room)
            if body in refused:
                return None, ""
            received = await self._endpoint.chat(body)
            status, words = _refusal(received)
            if status == 200:
                return received, ""
            problem = self._endpoint.failure(status, *received[1:], request.model)
            if isinstance(problem, Retry):
                raise problem
            refused.append(body)
            return None, words

        def learnt(received: Received, concessions: Iterable[Concession]) -> Reply:
            for line in self.dialect.adopt(concessions, sent):
                self.say(f"{request.model} at {self._endpoint.where} {self._endpoint.scrub(line)}")
            return self._reply(request, received)

        every = self.dialect.alternatives_to(sent, message)[1]
        about = message
        while about:
            named = [each for each in self.dialect.alternatives_to(sent, about)[0] if each not in kept]
            about = ""
            for each in named:
                received, words = await accepted([*kept, each])
                if received is not None:
                    return learnt(received, [*kept, each])
                fresh = set(self.dialect.alternatives_to(sent, words)[0]) - set(named) - set(kept)
                if fresh:  # now it refuses something else
                    kept, about = [*kept, each], words
                    break
            else:
                for some in _combinations(named, from_size=2):
                    received, _ = await accepted([*kept, *some])
                    if received is not None:
                        return learnt(received, [*kept, *some])
        refusal = (_WORD.sub(_without_numbers, message), *sorted(sent))
        if refusal not in self._accepted_bare:
            received, _ = await accepted(every)
            self._accepted_bare[refusal] = received is not None
            if received is not None:
                reply = self._reply(request, received)
                raise Retry("parameter", detail=self._endpoint.scrub(message), usage=reply.usage)
        if not self._accepted_bare[refusal]:
            return None
        del self._accepted_bare[refusal]
        for some in _combinations(every):
            received, _ = await accepted(some)
            if received is not None:
                return learnt(received, some)
        return None

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    def _reply(self, request: Request, received: Received) -> Reply:
        endpoint, (_, headers, content) = self._endpoint, received
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

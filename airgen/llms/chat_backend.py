"""What the backends of live calls share: they ask in the model's dialect, learn from refusals, and give room to think.

A subclass says how a body in the format of chat completions is sent, and how an answer is read as one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from airgen.llms.base import Backend, Refused, Reply, Request, Retry, Usage
from airgen.llms.chat import billed_in, load_json, with_usage
from airgen.llms.dialect import Dialect, most_output, too_much
from airgen.llms.http import Endpoint, error_of, server_limits, status_in
from airgen.settings.base import SPEED
from airgen.settings.http import Headers, Parameters, variables_of
from airgen.settings.llm import LlmSettings, address, hidden, looks_like_a_key, secret, variable_name

_OURS = {"model", "messages", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of", "stream"}
_PERHAPS_FOR_A_PARAMETER = {400, 422, 500, 501}  # llama.cpp answers 500 where a template has no system message


class EndpointSettings(LlmSettings):
    """Where an endpoint is, which variables hold its secrets, and what else each call says."""

    base_url: Annotated[str | None, SPEED] = None
    api_key_env: Annotated[str | None, SPEED] = None
    headers: Annotated[Headers, SPEED] = Field(default={})  # more headers; secrets as ${NAME} of the environment
    query: Annotated[Parameters, SPEED] = Field(default={})  # parameters of the address: {api-version: 2024-10-21}
    reasoning_effort: Annotated[str | None, Field(max_length=40)] = None  # minimal, low, medium, high, ...
    extra_body: dict[str, Any] = Field(default={})  # more members of each request's body

    @field_validator("base_url")
    @classmethod
    def _an_address_without_a_key(cls, value: str | list[str] | None) -> str | list[str] | None:
        if isinstance(value, list):  # where a backend's settings allow several
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

    def unset(self) -> list[str]:
        """A line for each environment variable that is named here and not set."""
        key = [f"llm.api_key_env: the environment variable {self.api_key_env} is not set"]
        named = [*variables_of(self.headers), *variables_of(self.query)]
        others = [f"llm: the environment variable {name} is not set: export it" for name in named if not secret(name)]
        return [*(key if self.api_key_env and not secret(self.api_key_env) else []), *others]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        yield from _strings(one)


class ChatBackend(Backend):
    """See the module. `start` is what is known of every model of this kind of endpoint."""

    PROBED: ClassVar[bool] = True

    def __init__(self, endpoint: Endpoint, start: Dialect) -> None:
        self._endpoint, self._start = endpoint, start
        self._dialects: dict[str, Dialect] = {}  # by model

    async def post(self, body: dict[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request in the format of chat completions; returns status, headers and content."""
        raise NotImplementedError

    def read(self, payload: Any) -> Any:
        """An answer of status 200 in the format of chat completions. May raise Refused."""
        return payload

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
            status, headers, content = await self.post(body)
            if status == 200:
                return self._reply(request, headers, content)
            if status in _PERHAPS_FOR_A_PARAMETER:
                message = " ".join(error_of(content))
                if (words := dialect.learn(body, message)) is not None:
                    if words:
                        self.say(f"{request.model} at {self._endpoint.where} {self._endpoint.scrub(words)}")
                    continue
                if too_much(message, room):  # of this request alone: another one may be shorter
                    room //= 2
                    continue
            raise self._endpoint.failure(status, headers, content, request.model)

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    def _reply(self, request: Request, headers: Mapping[str, str], content: bytes) -> Reply:
        try:
            payload = load_json(content)
        except ValueError:
            kind = self._endpoint.scrub(headers.get("Content-Type", "no type"))[:100]
            raise Retry("bad_body", detail=f"not JSON ({kind}, {len(content)} bytes)", usage=Usage()) from None
        if isinstance(payload, dict) and payload.get("error") and not payload.get("choices"):
            # some gateways send errors with status 200
            problem = self._endpoint.failure(status_in(payload), headers, content, request.model)
            if isinstance(problem, Retry | Refused):
                problem.usage = billed_in(payload) or problem.usage
            raise problem
        reply = with_usage(request, self._endpoint.reply(self.read(payload)))
        if limits := server_limits(headers):
            reply = dataclasses.replace(reply, limits=limits)
        if self.dialect(request.model).cut_off(request, reply):
            allowed = most_output(request) + request.room
            raise Retry("thinking", detail=f"it thought until its {allowed:,} tokens were used up", usage=reply.usage)
        return reply

"""Any OpenAI-compatible endpoint over HTTP: OpenAI, vLLM, Ollama, llama.cpp's server, most gateways.

    backend = OpenAIBackend(base_url="http://localhost:8000/v1")
    backend = OpenAIBackend(api_key_env="OPENAI_API_KEY")

Live calls use aiohttp, because the transport of the `openai` package searches its whole pool at each event: at 64
calls at a time it reached half of aiohttp's rate, at 256 a ninth (docs/llm-engine.md, "Measured").
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import field_validator

from airgen.llms.base import Backend, CallLimits, Refused, Reply, Request, Retry, Rule, Usage
from airgen.llms.chat import billed_in, load_json, with_usage
from airgen.llms.dialect import Dialect, most_output, too_much
from airgen.llms.http import OPENAI_URL, Endpoint, error_of, server_limits, status_in
from airgen.llms.prices import Price, price
from airgen.settings.base import SPEED
from airgen.settings.llm import LlmSettings, Seconds, hidden, secret, secret_in

__all__ = ["OpenAIBackend", "OpenAISettings"]

DAY = 26 * 3600.0  # seconds: the 24 hours that a batch may take, and time to fetch its results
BATCH_REQUESTS = 50_000  # OpenAI's limit of one batch file
_PERHAPS_FOR_A_PARAMETER = {400, 422, 500, 501}  # llama.cpp answers 500 where a template has no system message


class OpenAISettings(LlmSettings):
    """Where the endpoint is, which variable holds its key, and whether calls are sent live or in batches."""

    backend: Annotated[str, SPEED] = "openai"
    base_url: Annotated[str | None, SPEED] = None
    api_key_env: Annotated[str | None, SPEED] = None
    mode: Annotated[Literal["live", "batch"], SPEED] = "live"
    batch_poll_seconds: Seconds = 30.0  # mode batch: time between two requests for a batch's status

    @property
    def workers(self) -> int:
        """In batch mode all calls of a stage, so that they go into one batch."""
        return BATCH_REQUESTS if self.mode == "batch" else self.concurrency

    @field_validator("base_url")
    @classmethod
    def _an_address_without_a_key(cls, value: str | None) -> str | None:
        if value is not None and (problem := secret_in(value)):
            raise hidden(problem)
        return value

    @field_validator("api_key_env")
    @classmethod
    def _a_name_not_a_key(cls, value: str | None) -> str | None:
        if value is not None and not value.replace("_", "").isalnum():
            raise hidden("must be the name of an environment variable, not the key itself")
        return value


class OpenAIBackend(Backend):
    """`POST {base_url}/chat/completions`, once a call.

    See `airgen.llms.http.Endpoint` for the parameters and what they raise.
    """

    Settings = OpenAISettings

    @classmethod
    def make(cls, settings: OpenAISettings, *, folder: Path, rules: Mapping[str, Rule]) -> Backend:
        """A backend for live calls, or for batches, whose state is kept in `folder`."""
        url, key = settings.base_url or OPENAI_URL, settings.api_key_env
        if settings.mode == "live":
            return cls(url, key, most_thinking=settings.thinking_tokens)
        from airgen.llms.batch import BatchBackend

        poll = settings.batch_poll_seconds
        return BatchBackend(folder=folder, base_url=url, api_key_env=key, poll=poll, gather=min(2.0, poll))

    @classmethod
    def missing(cls, settings: OpenAISettings) -> list[str]:
        """The endpoint, the key, or the package that batches need."""
        found = []
        if settings.base_url is None and settings.api_key_env is None:
            found.append("llm: neither base_url nor api_key_env is given: name the endpoint, or the key's variable")
        if settings.api_key_env and not secret(settings.api_key_env):
            found.append(f"llm.api_key_env: the environment variable {settings.api_key_env} is not set")
        if settings.mode == "batch" and importlib.util.find_spec("openai") is None:
            found.append("llm.mode batch needs the package openai: pip install 'airgen-bench[openai]'")
        return found

    @classmethod
    def price(cls, settings: OpenAISettings) -> Price | None:
        """The price of the pipeline, of the endpoint, or of the model's maker; half of it in batches."""
        found = price(settings.model, settings.prices, settings.base_url or "")
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
        base_url: str = OPENAI_URL,
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 15.0,
        most_thinking: int = 32_768,
    ) -> None:
        self._endpoint = Endpoint(base_url, api_key_env, headers, connect_timeout)
        self._most_thinking = most_thinking
        self._dialects: dict[str, Dialect] = {}  # by model

    def dialect(self, model: str) -> Dialect:
        """What is known of a model."""
        if model not in self._dialects:
            self._dialects[model] = Dialect(most_room=self._most_thinking)
        return self._dialects[model]

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
            status, headers, content = await self._endpoint.post("/chat/completions", body)
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
        reply = dataclasses.replace(with_usage(request, self._endpoint.reply(payload)), limits=server_limits(headers))
        if self.dialect(request.model).cut_off(request, reply):
            allowed = most_output(request) + request.room
            raise Retry("thinking", detail=f"it thought until its {allowed:,} tokens were used up", usage=reply.usage)
        return reply

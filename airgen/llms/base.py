"""What an LLM call is: `Request` in, `Answer` out.

    request = Request(model="gpt-4o-mini", messages=(Message("user", "..."),), params={"temperature": 1.0})
    answer = await llm.ask(request)          # from the answers on disk, or paid for exactly once

`llm` is an `airgen.llms.engine.Engine`: answers on disk first, then budget, rate limits, the backend's `send`,
retries, and the answer committed before anyone sees it. A backend only sends; everything above it is shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from airgen.errors import AirgenError
from airgen.keys import content_key
from airgen.records import Answer

__all__ = [
    "AnswerStore",
    "Backend",
    "Llm",
    "Message",
    "Refused",
    "Reply",
    "Request",
    "Retry",
    "ServerLimits",
    "parse_logprobs",
]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """The complete outgoing request: all that can change the answer, and nothing else.

    `params` goes to the endpoint as it is (temperature, max_tokens, top_p, seed, logprobs, top_logprobs, ...).
    `schema` is the JSON schema of the answer, or None. `sample` tells apart several draws of one request (and the
    retries of a bad answer). `endpoint` separates providers on purpose. `stage` and `estimate` are for the
    accounts and the scripted backend, and are not part of the key.
    """

    model: str
    messages: tuple[Message, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    sample: int = 0
    endpoint: str = "default"
    stage: str = ""

    @property
    def key(self) -> str:
        """The answer's identity: a hash of everything but `stage`."""
        return content_key(
            {
                "model": self.model,
                "messages": [[message.role, message.content] for message in self.messages],
                "params": dict(self.params),
                "schema": self.schema,
                "sample": self.sample,
                "endpoint": self.endpoint,
            }
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """What a backend got: the text, what it used, and log-probabilities as [[token, logprob], ...] a token."""

    text: str
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    logprobs: Sequence[Sequence[tuple[str, float]]] = ()
    limits: ServerLimits | None = None


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What a server says of its limits: each quantity with what remains and the seconds until it is full again."""

    requests: int | None = None
    requests_left: int | None = None
    requests_reset: float | None = None
    tokens: int | None = None
    tokens_left: int | None = None
    tokens_reset: float | None = None


class Retry(AirgenError):
    """A failure that may pass: 429, 5xx, a dropped connection, a time-out. `after` is the server's wish in seconds.

    `reason` is a short name: `rate_limit`, `http_503`, `timeout`, `connection`, `bad_body`; `detail` is what the
    server or the operating system said.
    """

    def __init__(self, reason: str, after: float | None = None, detail: str = "") -> None:
        self.reason, self.after, self.detail = reason, after, detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


class Refused(AirgenError):
    """A failure of this request alone: content filter, too long a prompt. Kept as a row, never retried by itself.

    `reason` is a short name, which failures are counted by; `detail` is what the server said.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


class Backend(Protocol):
    """One way to reach a model. Raises Retry, Refused, or `airgen.errors.LlmError` for what will never work."""

    async def send(self, request: Request) -> Reply:
        """Send one request once."""
        ...

    async def close(self) -> None:
        """Release connections and processes."""
        ...


class AnswerStore(Protocol):
    """What the engine needs of `airgen.store.Store`."""

    def answers(self, keys: Sequence[str]) -> dict[str, Answer]:
        """The answers that are on the disk, by key. May block."""
        ...

    def forget(self, answers: Sequence[str]) -> None:
        """Remove failed answers, so that they can be asked again. May block."""
        ...

    async def commit(self, rows: Sequence[Answer]) -> None:
        """Return once the rows are on the disk."""
        ...


class Llm(Protocol):
    """What a stage sees."""

    async def ask(self, request: Request) -> Answer:
        """The answer, from disk or fresh. A refusal or a final failure is an Answer with `error` set.

        Raises BudgetSpent, Stopped, LlmError; never anything of a backend's.
        """
        ...


def parse_logprobs(answer: Answer) -> list[list[tuple[str, float]]]:
    """For each generated token its top alternatives as (token, logprob); empty where none were asked for."""
    import json

    if not answer.logprobs:
        return []
    return [[(token, value) for token, value in alternatives] for alternatives in json.loads(answer.logprobs)]

"""What an LLM call is: `Request` in, `Answer` out; and what a backend is.

    request = Request(model="gpt-4o-mini", messages=(Message("user", "..."),), params={"temperature": 1.0})
    answer = await llm.ask(request)          # from the answers on disk, or paid for exactly once

`llm` is an `airgen.llms.engine.Engine`. It looks the answer up on disk, keeps the budget and the rate limits, lets a
backend send the request, repeats what failed, and commits the answer before it returns it. A backend only sends.
"""

import functools
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from airgen.errors import AirgenError, LlmError
from airgen.guard import guarded
from airgen.keys import content_key
from airgen.llms.money import FREE, Price, Usage, price_in
from airgen.records import Answer
from airgen.registry import resolve
from airgen.settings.llm import LlmSettings

_LOG = logging.getLogger(__name__)

RETRIES = 6  # of a call of a job: about half a minute of pauses


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """The complete outgoing request: all that can change the answer.

    `params` goes to the endpoint as it is (temperature, max_tokens, top_p, seed, logprobs, top_logprobs, ...).
    `schema` is the JSON schema of the answer, or None. `sample` distinguishes several answers to one request, and the
    second try after a bad answer. `endpoint` distinguishes providers of one model. `stage` is for accounting and the
    scripted backend; it is not part of the key. `room` is the number of tokens beyond the maximum that the model may
    write while thinking: the engine has reserved the money for them. It is not part of the key either.
    """

    model: str
    messages: tuple[Message, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    sample: int = 0
    endpoint: str = "default"
    stage: str = ""
    room: int = 0

    @property
    def key(self) -> str:
        """Return the answer's identity: a hash of everything but `stage` and `room`."""
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


Rule = Callable[[Request], str]
"""What the scripted backend answers to the requests of a stage."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a backend received: the text, the tokens used, and for each token [[alternative, log-probability], ...].

    The text is the answer alone; thinking_tokens, which are among completion_tokens, came before it.
    estimated: the tokens were counted here, because the server gave no usable count.
    """

    text: str
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    logprobs: Sequence[Sequence[tuple[str, float]]] = ()
    limits: "tuple[Allowance, Allowance] | None" = None
    estimated: bool = False
    thinking_tokens: int = 0

    @property
    def usage(self) -> Usage:
        """Return the token counts that the server bills."""
        if self.estimated:
            return Usage()
        return Usage(self.prompt_tokens, self.cached_tokens, self.completion_tokens, self.thinking_tokens)


class Allowance(NamedTuple):
    """What a server's headers allow, of requests or of tokens: the limit, what is left, seconds until the reset."""

    limit: int | None = None
    left: int | None = None
    reset: float | None = None


class CallFailed(AirgenError):
    """A call without an answer.

    `reason` is a short name, by which failures are counted; `detail` is the message of the server or the operating
    system; `usage` is what the server bills, None if it bills nothing.
    """

    def __init__(self, reason: str, detail: str = "", usage: Usage | None = None) -> None:
        self.reason, self.detail, self.usage = reason, detail, usage
        super().__init__(f"{reason}: {detail}" if detail else reason)


class Refused(CallFailed):
    """A failure of this request alone, such as a content filter: kept as a row, and asked again only on request."""


class Retry(CallFailed):
    """A failure that may pass: `rate_limit`, `http_503`, `timeout`, `connection`, `bad_body`, ...

    `thinking`: the model thought until its room was used up, and gets more from now on. `after` is how many seconds the
    server asks to wait.
    """

    def __init__(self, reason: str, after: float | None = None, detail: str = "", usage: Usage | None = None) -> None:
        super().__init__(reason, detail, usage)
        self.after = after


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How one LLM may be asked.

    Attributes:
        concurrency: The maximum number of calls at a time; if `adaptive`, the engine goes below it for a slow or
            failing server.
        timeout: Seconds for one attempt, None for no bound.
        retries: Attempts after the first, for 5xx, time-outs and dropped connections.
        backoff: The first pause between attempts in seconds; it doubles each time.
        requests_per_minute, tokens_per_minute: Limits of the account, where they are known.
    """

    concurrency: int = 16
    adaptive: bool = True
    timeout: float | None = 600.0
    retries: int = 5
    backoff: float = 0.5
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


class Backend:
    """One way to reach a model. A subclass needs only `send`; it can override the other methods.

    The pipeline names it in `llm.backend`: by its line in the registry, or as `module:Class`. `Settings` declares
    the keys of `llm:` that it adds; see `airgen.settings.llm.LlmSettings`.
    """

    Settings: ClassVar[type[LlmSettings]] = LlmSettings
    RECOVERS: ClassVar[bool] = False  # a later process gets the answers to what this one had in flight, at no new cost
    SMALL: ClassVar[bool] = False  # its models have few parameters: `airgen check` warns where they are too few
    SERIAL: ClassVar[bool] = False  # one call at a time, so that nothing is won by asking for more than is needed
    PROBED: ClassVar[bool] = False  # `airgen run` asks the model a few short questions first (`airgen.llms.probe`)
    COLLECTS: ClassVar[bool] = False  # it holds requests back until `send_collected`
    say: Callable[[str], None] = staticmethod(_LOG.warning)  # shows the user a line; the engine sets it
    collected: Callable[[], None] = staticmethod(lambda: None)  # called when it has kept a request; the engine sets it

    def __init_subclass__(cls, **options: Any) -> None:
        """Call a backend of the user's under the guard: whatever it raises ends the job in one line."""
        super().__init_subclass__(**options)
        if cls.__module__.partition(".")[0] != "airgen":
            _guard(cls)

    @classmethod
    def make(cls, settings: Any, *, folder: Path, rules: Mapping[str, Rule]) -> "Backend":
        """Return the backend of one LLM. `settings` is of the class's own `Settings`.

        `folder` is for files of this LLM that a later process needs; `rules` holds the scripted answers by stage.
        Raises SettingsError if a setting cannot work.
        """
        return cls()

    @classmethod
    def missing(cls, settings: Any) -> list[str]:
        """Return what these settings need but this machine lacks, one line each, for `airgen check`."""
        return []

    @classmethod
    def price(cls, settings: Any) -> Price | None:
        """Return the price in the pipeline's `prices`, else free; None if a price exists and is unknown."""
        return price_in(settings.prices, settings.model) or FREE

    @classmethod
    def limits(cls, settings: Any) -> CallLimits:
        """Return the limits on calls to the LLM."""
        return CallLimits(
            concurrency=settings.concurrency,
            timeout=settings.timeout_seconds,
            retries=RETRIES,
            requests_per_minute=settings.requests_per_minute,
            tokens_per_minute=settings.tokens_per_minute,
        )

    def room(self, request: Request) -> int:
        """Return how many tokens the model may need for thinking, beyond the request's maximum: the budget reserves
        them.
        """
        return 0

    def known(self) -> dict[str, Any]:
        """Return what the backend has learnt of its model, as JSON values: a later process remembers it."""
        return {}

    def remember(self, known: Mapping[str, Any]) -> None:
        """Restore what an earlier process has learnt about the model."""

    async def send(self, request: Request) -> Reply:
        """Send one request once. Raises Retry, Refused, or LlmError for what will never work."""
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        """Return how many of its calls end only when its batch does."""
        return 0

    def send_collected(self) -> None:
        """Send the collected requests: no other request can come before one of them has an answer."""

    def leave(self) -> list[str]:
        """Wait no longer for calls that a later process gets the answers to: they are cancelled. Returns what stays
        with the server, a line each.
        """
        return []

    async def close(self) -> None:
        """Release connections and processes."""


def _guard(backend: type[Backend]) -> None:
    """Replace what the class defines of `Backend` by the same under the guard."""
    name = f"{backend.__module__}:{backend.__name__}"
    for method in ("make", "missing", "price", "limits"):
        if isinstance(defined := vars(backend).get(method), classmethod):
            setattr(backend, method, classmethod(_guarded(defined.__func__, name)))
    for method in ("room", "known", "remember", "send_collected", "leave"):
        if callable(defined := vars(backend).get(method)):
            setattr(backend, method, _guarded(defined, name))
    for method in ("send", "close"):
        if callable(defined := vars(backend).get(method)):
            setattr(backend, method, _guarded_call(defined, name))


def _guarded(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with guarded(name, LlmError):
            return method(*args, **kwargs)

    return call


def _guarded_call(method: Callable[..., Awaitable[Any]], name: str) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        # A time-out is a call without an answer, which the engine repeats.
        with guarded(name, LlmError, passing=(TimeoutError,)):
            return await method(*args, **kwargs)

    return call


def answer_key(request: Request, settings: Mapping[str, Any]) -> str:
    """Return the identity of the answer to a request; `settings` are those of the backend itself that change an
    answer.
    """
    return content_key({"request": request.key, **settings}) if settings else request.key


def backend_class(llm: LlmSettings) -> type[Backend]:
    """Return the class that `llm.backend` names."""
    backend: type[Backend] = resolve("backend", llm.backend)
    return backend


class Llm(Protocol):
    """What a stage sees."""

    async def ask(self, request: Request) -> Answer:
        """Return the answer, from disk or fresh. A refusal or a final failure is an Answer with `error` set.

        Raises BudgetSpent, Stopped or LlmError, and no exception of a backend.
        """
        ...


def parse_logprobs(answer: Answer) -> list[list[tuple[str, float]]]:
    """Return for each generated token its top alternatives as (token, logprob); empty if none were requested."""
    if not answer.logprobs:
        return []
    return [[(token, value) for token, value in alternatives] for alternatives in json.loads(answer.logprobs)]

"""The interface of LLM calls, `Request` in and `Answer` out, and of backends.

    request = Request(model="gpt-4o-mini", messages=(Message("user", "..."),), params={"temperature": 1.0})
    answer = await llm.ask(request)          # from the answers on disk, or paid for exactly once

`llm` is an `airgen.llms.engine.Engine`. It looks up the answer on disk, enforces the budget and the rate limits, lets a
backend send the request, retries failures, and commits the answer before returning it. A backend only sends.
"""

import functools
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, cast

from airgen.components.keys import content_key
from airgen.components.registry import resolve
from airgen.errors import AirgenError, LlmError
from airgen.llms.money import FREE, Price, Usage, price_in
from airgen.safety.escaping import one_line
from airgen.safety.guard import guarded
from airgen.settings.llm import LlmSettings
from airgen.storage.records import Answer

_LOG = logging.getLogger(__name__)

RETRIES = 6  # attempts per call of a job: about half a minute of pauses


@dataclass(frozen=True, slots=True)
class Message:
    """A chat message. `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """The complete outgoing request: everything that can change the answer.

    `params` is sent to the endpoint unchanged (temperature, max_tokens, top_p, seed, logprobs, top_logprobs, ...).
    `schema` is the JSON schema of the answer, or None. `sample` distinguishes several answers to the same request, and
    the second attempt after a bad answer. `endpoint` distinguishes providers of the same model. `stage` is for
    accounting and the scripted backend, and is not part of the key. `room` is the number of tokens beyond the maximum
    that the model may use for thinking, for which the engine has reserved the cost. It is not part of the key either.
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
"""The scripted backend's answers to the requests of a stage."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a backend received: the text, the numbers of tokens, and [[alternative, log-probability], ...] for each
    token.

    The text is only the answer. `thinking_tokens`, which are included in `completion_tokens`, came before it.
    `estimated` means that airgen counted the tokens, because the server reported no usable counts. `stated` is what it
    reported if that cannot be true.
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
    stated: str = ""

    @property
    def usage(self) -> Usage:
        """Return the token counts that the server bills."""
        if self.estimated:
            return Usage(stated=self.stated)
        return Usage(self.prompt_tokens, self.cached_tokens, self.completion_tokens, self.thinking_tokens)


class Allowance(NamedTuple):
    """The requests or tokens that a server's headers allow: the limit, what is left, and the seconds until the
    reset."""

    limit: int | None = None
    left: int | None = None
    reset: float | None = None


class CallFailed(AirgenError):
    """A call without an answer.

    `reason` is a short name by which failures are counted. `detail` is the message of the server or the operating
    system. `usage` is what the server bills, or None if it bills nothing.
    """

    def __init__(self, reason: str, detail: str = "", usage: Usage | None = None) -> None:
        self.reason, self.detail, self.usage = reason, detail, usage
        super().__init__(f"{reason}: {detail}" if detail else reason)


class Refused(CallFailed):
    """A failure of this request only, such as by a content filter. It is saved as a row, and retried only on
    request."""


class Retry(CallFailed):
    """A temporary failure: `rate_limit`, `http_503`, `timeout`, `connection`, `bad_body`, ...

    With the reason `thinking`, the model used up its room for thinking, and gets more from now on. `after` is the
    number of seconds that the server asks to wait.
    """

    def __init__(self, reason: str, after: float | None = None, detail: str = "", usage: Usage | None = None) -> None:
        super().__init__(reason, detail, usage)
        self.after = after


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits on calls to one LLM.

    Attributes:
        concurrency: Maximum number of calls at a time. If `adaptive`, the engine reduces it for a slow or failing
            server.
        timeout: Time limit for one attempt in seconds, or None for no limit.
        retries: Number of attempts after the first, for 5xx errors, timeouts and dropped connections.
        backoff: First pause between attempts in seconds, which doubles each time.
        requests_per_minute, tokens_per_minute: Limits of the account, if known.
    """

    concurrency: int = 16
    adaptive: bool = True
    timeout: float | None = 600.0
    retries: int = 5
    backoff: float = 0.5
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


class Backend:
    """Base class of backends, which reach a model. A subclass must define `send`, and may override the other methods.

    A pipeline names it in `llm.backend`, by its name in the registry or as `module:Class`. `Settings` declares the keys
    that it adds to `llm`; see `airgen.settings.llm.LlmSettings`.
    """

    Settings: ClassVar[type[LlmSettings]] = LlmSettings
    RECOVERS: ClassVar[bool] = False  # a later process gets the answers to the calls in flight, at no extra cost
    SMALL: ClassVar[bool] = False  # its models have few parameters; `airgen check` warns if they are too few
    SERIAL: ClassVar[bool] = False  # one call at a time, so there is no benefit in asking for more than needed
    PROBED: ClassVar[bool] = False  # `airgen run` asks the model a few short questions first (`airgen.llms.probe`)
    COLLECTS: ClassVar[bool] = False  # holds requests back until `send_collected`
    say: Callable[[str], None] = staticmethod(_LOG.warning)  # shows the user a line; the engine sets it
    collected: Callable[[], None] = staticmethod(lambda: None)  # called after it has kept a request; the engine sets it

    def __init_subclass__(cls, **options: Any) -> None:
        """Guard a user's backend, so that any exception ends the job with a one-line error."""
        super().__init_subclass__(**options)
        if cls.__module__.partition(".")[0] != "airgen":
            _guard(cls)

    @classmethod
    def make(cls, settings: Any, *, folder: Path, rules: Mapping[str, Rule]) -> "Backend":
        """Create the backend of an LLM. `settings` is an instance of the class's own `Settings`.

        `folder` is for this LLM's files that a later process needs. `rules` holds the scripted answers by stage. Raises
        SettingsError if a setting cannot work.
        """
        return cls()

    @classmethod
    def missing(cls, settings: Any) -> Sequence[str]:
        """Return a line for each missing requirement of these settings, for `airgen check`."""
        return []

    @classmethod
    def price(cls, settings: Any) -> Price | None:
        """Return the price in the pipeline's `prices`, otherwise a price of 0, or None if the price is unknown."""
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
        """Return how many tokens the model may need for thinking beyond the request's maximum, which the budget
        reserves.
        """
        return 0

    def known(self) -> dict[str, Any]:
        """Return what the backend has learnt about its model, as JSON values, for later processes."""
        return {}

    def remember(self, known: Mapping[str, Any]) -> None:
        """Restore what an earlier process has learnt about the model."""

    async def send(self, request: Request) -> Reply:
        """Send a request, without retrying. Raises Retry, Refused, or LlmError if the request can never succeed."""
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        """Return how many calls end only when their batch ends."""
        return 0

    def send_collected(self) -> None:
        """Send the collected requests, because no other request can arrive before one of them is answered."""

    def leave(self) -> list[str]:
        """Stop waiting for calls whose answers a later process can retrieve, and cancel them. Returns a line for each
        batch that stays with the server.
        """
        return []

    async def close(self) -> None:
        """Release connections and processes."""


def _guard(backend: type[Backend]) -> None:
    """Wrap the `Backend` methods that the class defines with the guard."""
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
        # A timeout is a call without an answer, which the engine repeats.
        with guarded(name, LlmError, passing=(TimeoutError,)):
            result = await method(*args, **kwargs)
        return _checked(result, name) if method.__name__ == "send" else result

    return call


def _checked(reply: Any, name: str) -> Reply:
    """Return a reply whose fields have the right types. Token counts of other types count as not reported.

    Raises LlmError if a backend returned no reply, or a reply without a text.
    """
    if not issubclass(type(reply), Reply):
        raise LlmError(f"{name}: send returned {one_line(type(reply).__name__, 80)}, but must return a Reply")
    if not isinstance(reply.text, str) or not isinstance(reply.finish_reason, str):
        raise LlmError(f"{name}: the text and the finish_reason of a Reply must be texts")
    counts = (reply.prompt_tokens, reply.cached_tokens, reply.completion_tokens, reply.thinking_tokens)
    if all(type(count) is int for count in counts):
        return cast(Reply, reply)
    unknown = dict.fromkeys(("prompt_tokens", "cached_tokens", "completion_tokens", "thinking_tokens"), 0)
    return replace(cast(Reply, reply), **unknown, estimated=True)  # type: ignore[arg-type]


def answer_key(request: Request, settings: Mapping[str, Any]) -> str:
    """Return the key of the answer to a request. `settings` are the backend-specific settings that change an answer."""
    return content_key({"request": request.key, **settings}) if settings else request.key


def backend_class(llm: LlmSettings) -> type[Backend]:
    """Return the class that `llm.backend` names."""
    backend: type[Backend] = resolve("backend", llm.backend)
    return backend


class Llm(Protocol):
    """The interface of the engine for stages."""

    async def ask(self, request: Request) -> Answer:
        """Return the answer, saved or new. A refusal or a final failure is an Answer with `error` set.

        Raises BudgetSpent, Stopped or LlmError, but never a backend's exceptions.
        """
        ...


def parse_logprobs(answer: Answer) -> list[list[tuple[str, float]]]:
    """Return the top alternatives for each generated token as (token, logprob); empty if none were requested."""
    if not answer.logprobs:
        return []
    return [[(token, value) for token, value in alternatives] for alternatives in json.loads(answer.logprobs)]

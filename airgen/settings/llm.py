"""The settings of an LLM, which its backend extends, and the only code that reads API keys.

    llm: {backend: embedded, model: qwen2.5-coder-1.5b, threads: 2}

The settings in this module apply to every backend. The class that `backend` names adds its own in its `Settings` (such
as `threads` above), so a key of another backend is an unknown key.
"""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from airgen.components.registry import resolve, target_of
from airgen.errors import AirgenError, SettingsError
from airgen.settings.base import SPEED, Settings, answer_settings, marked

_KEY = re.compile(
    r"(?:sk|pk|rk|gsk|hf|r8|ghp|xai|nvapi|pplx|csk)[-_](?=.*\d).{6,}|(?:AIza|eyJ|Bearer ).{6,}", re.DOTALL
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")

L = TypeVar("L", bound="LlmSettings")

Concurrency = Annotated[int, SPEED, Field(ge=1, le=4096)]
Seconds = Annotated[float, SPEED, Field(gt=0)]


class LlmSettings(Settings):
    """The LLM, with its rate limits, concurrency, retries and prices.

    Fields marked SPEED do not affect answers. They can be changed at any time, and no call is repeated.
    """

    backend: str = "openai"  # a registered name, or `module:Class`
    model: str  # the model's name on its server
    endpoint: str = "default"  # distinguishes two providers of one model; it is part of an answer's key
    temperature: float = Field(default=1.0, ge=0, le=2)  # from a secondary source on the paper's generation
    max_tokens: int = Field(default=1024, ge=1)  # the maximum length of the answer; reasoning has its own limit
    concurrency: Concurrency = 64
    budget_usd: Annotated[float | None, SPEED, Field(ge=0)] = None  # for the whole job
    requests_per_minute: Annotated[int | None, SPEED, Field(ge=1)] = None
    tokens_per_minute: Annotated[int | None, SPEED, Field(ge=1)] = None
    timeout_seconds: Seconds = 120.0
    # small: below 5 billion parameters, with its own prompts, lengths and judge; by default, taken from the model's
    # name
    size: Annotated[Literal["small", "large"] | None, SPEED] = None
    # model: {input, output, cached} in USD per million tokens
    prices: Annotated[dict[str, dict[str, Annotated[float, Field(ge=0)]]], SPEED] = {}

    @property
    def workers(self) -> int:
        """Return how many calls to keep ready at a time."""
        return self.concurrency

    @model_validator(mode="wrap")
    @classmethod
    def _as_the_backend_declares(cls: type[L], value: Any, handler: ModelWrapValidatorHandler[L]) -> L:
        """Validate a mapping with the `Settings` of the class that `backend` names."""
        if not isinstance(value, dict):
            return handler(value)
        if cls is LlmSettings:
            name = str(value.get("backend", "openai"))
            try:
                if (target := target_of("backend", name)) != name:
                    value = {**value, "backend": target}
                kind = getattr(resolve("backend", name), "Settings", None)
            except AirgenError as error:
                raise _problem(cls, name, str(error)) from error
            if not (isinstance(kind, type) and issubclass(kind, LlmSettings)):
                raise _problem(cls, name, f"{name} is not a backend: derive it from airgen.llms.base.Backend")
            if kind is not LlmSettings:
                return kind.model_validate(value)  # type: ignore[return-value]  # a subclass
        return handler(value)


def _problem(cls: type[BaseModel], name: str, message: str) -> ValidationError:
    custom = PydanticCustomError("backend", "{message}", {"message": message})
    details = InitErrorDetails(type=custom, loc=("backend",), input=name)
    return ValidationError.from_exception_data(cls.__name__, [details])


def answer_parts(llm: LlmSettings) -> dict[str, Any]:
    """Return the LLM settings that can change an answer. They are part of the fingerprint of each stage that asks
    it."""
    shared = {name: value for name, value in answer_settings(llm).items() if name in LlmSettings.model_fields}
    return {**shared, **own_answer_settings(llm)}


def own_answer_settings(llm: LlmSettings) -> dict[str, Any]:
    """Return the backend-specific settings that change an answer and differ from their defaults.

    A request does not contain these settings, so the engine adds them to the answer's key. Defaults are omitted, so
    that the same model behind two backends shares its answers.
    """
    own = {name: field for name, field in type(llm).model_fields.items() if name not in LlmSettings.model_fields}
    changed = {
        name for name, field in own.items() if getattr(llm, name) != field.get_default(call_default_factory=True)
    }
    return {name: value for name, value in answer_settings(llm).items() if name in changed}


def by_model(llms: Mapping[str, LlmSettings]) -> dict[tuple[str, str], LlmSettings]:
    """Return a job's LLMs by endpoint and model, which identify the LLM of a call.

    `llms` maps paths in the YAML to LLMs.

    LLMs with the same endpoint and model share a backend and a queue. Their backend-specific settings must be equal,
    and a limit that only one of them sets applies to both. Raises ValueError if they contradict each other.
    """
    shared = {name for name, _ in marked(LlmSettings, "speed")} - {"budget_usd"}
    by_endpoint: dict[tuple[str, str], tuple[str, LlmSettings]] = {}
    for path, llm in llms.items():
        first, other = by_endpoint.setdefault((llm.endpoint, llm.model), (path, llm))
        fields = type(llm).model_fields.keys() | type(other).model_fields.keys()
        own = {"backend"} | fields - LlmSettings.model_fields.keys()
        both_set = llm.model_fields_set & other.model_fields_set
        differ = [name for name in sorted(own | shared) if getattr(llm, name, None) != getattr(other, name, None)]
        if wrong := [name for name in differ if name in own | both_set]:
            raise ValueError(
                f"{first} and {path} are one model ({llm.model!r}) at one endpoint ({llm.endpoint!r}) with different "
                f"values of {', '.join(wrong)}: make them equal, or give one of them another name as `endpoint`"
            )
        limits = {name: getattr(llm, name) for name in differ if name in llm.model_fields_set}
        by_endpoint[llm.endpoint, llm.model] = (first, other.model_copy(update=limits))
    return {where: llm for where, (_, llm) in by_endpoint.items()}


def hidden(problem: str) -> PydanticCustomError:
    """Return a validation error that does not show the value, which may contain a key."""
    return PydanticCustomError("secret", "{message}", {"message": problem})


def looks_like_a_key(value: str) -> bool:
    """Return whether a text is probably a key rather than a variable's name, and must not be shown."""
    if _KEY.match(value.strip()):
        return True
    digits = sum(letter.isdigit() for letter in value)
    mixed = any(letter.islower() for letter in value) or not re.search(r"[_\W]", value)
    return len(value) >= 20 and digits >= 4 and mixed and not re.search(r"[\s/.]|\$\{", value)


def variable_name(value: str) -> str:
    """Validate the name of an environment variable. The error does not show an invalid name, which may be the key
    itself."""
    if not _VARIABLE.fullmatch(value) or looks_like_a_key(value):
        raise hidden("must be the name of an environment variable, not the key itself")
    return value


def check_address(url: str) -> None:
    """Validate an http(s) URL without secrets. The error does not show anything that may contain a key."""
    try:
        parts = urlsplit(url)
        holds_more = parts.username is not None or parts.password is not None or parts.query or parts.fragment
    except ValueError:
        raise hidden("is not a URL") from None
    if holds_more:
        raise hidden(
            "must not contain a user name, password, key or other parameters: name the key's variable in "
            "llm.api_key_env, and put parameters into llm.query"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise hidden(f"{url[:100]!r} is not an http(s) address: it begins with http:// or https://")


def secret(name: str | None) -> str | None:
    """Return the stripped key in an environment variable, or None if it is not set. Only this function reads keys.

    Raises SettingsError, which never shows the value, if it is not one line of ASCII and thus not a valid header.
    """
    key = os.environ.get(name, "").strip() if name else ""
    if key and not (key.isascii() and key.isprintable()):
        raise SettingsError([f"the value of the environment variable {name} is not one line of ASCII"])
    return key or None

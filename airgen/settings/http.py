"""Settings shared by all HTTP services: headers, and keys and passwords, which are read from the environment.

    headers: {X-Tenant: acme, Authorization: "ApiKey ${SEARCH_KEY}"}
    api_key_env: SEARCH_KEY                  # short for {Authorization: "Bearer ${SEARCH_KEY}"}
    user: reader                             # basic authentication
    password_env: SEARCH_PASSWORD

A secret is named by its environment variable. It never appears in a settings file, a message or a result.
"""

import base64
import re
import urllib.parse
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from airgen.errors import SettingProblem, SettingsError
from airgen.settings.base import KEY, SPEED, Settings, marked
from airgen.settings.llm import hidden, looks_like_a_key, secret, variable_name

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,99})\}")
"""An environment variable in a text: ${NAME}."""
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_SECRET_NAME = re.compile(r"key|token|auth|secret|cookie|password", re.IGNORECASE)
_OURS = {"content-length", "content-type", "host", "transfer-encoding", "connection"}


def unset_variables(settings: Settings) -> list[SettingProblem]:
    """Return a line for each environment variable that a field marked KEY names and that is not set."""
    unset = list[SettingProblem]()
    for name, _ in marked(type(settings), "key"):
        value = getattr(settings, name)
        texts = value.values() if isinstance(value, Mapping) else [f"${{{value}}}"] if value else []
        variables = [variable for text in texts for variable in VARIABLE.findall(text)]
        missing = [variable for variable in variables if not secret(variable)]
        unset += [
            SettingProblem(f"the environment variable {variable} is not set", code="unset_variable", setting=name)
            for variable in missing
        ]
    return unset


def _checked(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or name.lower() in _OURS:
            raise hidden(f"{name[:40]!r} cannot be set as a header")
        if not (value.isascii() and value.isprintable()):
            raise hidden(f"the value of the header {name} must be one line of ASCII")
        _hold_no_secret(f"the header {name}", name, value)
    return headers


def _hold_no_secret(what: str, name: str, value: str) -> None:
    if _SECRET_NAME.search(name) and not VARIABLE.search(value):
        raise hidden(f"{what} contains a secret: write ${{NAME}}, where NAME is an environment variable")
    if looks_like_a_key(value):
        raise hidden(f"the value of {what} looks like a key: write ${{NAME}}, an environment variable")


def _without_password(url: str) -> str:
    if "@" in urllib.parse.urlsplit(url).netloc:
        raise hidden("must not contain a user name or password: set user and password_env")
    return url


Address = Annotated[str, Field(pattern=r"^https?://"), AfterValidator(_without_password)]
"""Of a service."""


ServerAddress = Annotated[
    str, Field(pattern=r"^(https?://|\$\{[A-Za-z_][A-Za-z0-9_]{0,99}\})"), AfterValidator(_without_password)
]
"""The address of a server, or ${NAME}, the environment variable that holds it."""


def address(text: str) -> str:
    """Return an address with its variables filled in.

    Raises SettingsError if a variable is not set, or if the result is not an address.
    """
    for name in VARIABLE.findall(text):
        if not (secret(name) or "").startswith(("http://", "https://")):
            raise SettingsError(
                [f"base_url: the environment variable {name} must hold an address: http://HOST:PORT/v1"]
            )
    return filled({"": text})[0][""]


def _as_text(values: object) -> object:
    """Convert values to text as written, since YAML reads 2024-10-21 as a date and 5 as a number."""
    if not isinstance(values, Mapping):
        return values
    return {
        name: str(value) if isinstance(value, int | float | date) and not isinstance(value, bool) else value
        for name, value in values.items()
    }


def _checked_parameters(parameters: dict[str, str]) -> dict[str, str]:
    for name, value in parameters.items():
        _hold_no_secret(repr(name[:40]), name, value)
    return parameters


Parameters = Annotated[dict[str, str], BeforeValidator(_as_text), AfterValidator(_checked_parameters)]
"""Query parameters of a URL."""

Headers = Annotated[dict[str, str], BeforeValidator(_as_text), AfterValidator(_checked)]
Variable = Annotated[str, AfterValidator(variable_name)]
"""The name of an environment variable that holds a key."""


class KeyAccess(Settings):
    """The key of a server and additional headers. These settings do not affect a model's answers."""

    headers: Annotated[Headers, SPEED, KEY] = Field(default={})  # more headers; write secrets as ${NAME} (environment)
    api_key_env: Annotated[Variable | None, SPEED, KEY] = None

    def access(self) -> tuple[dict[str, str], list[str]]:
        """Return all headers to send, and the secrets in them, which must not appear in messages.

        Raises SettingsError if a variable is not set, or if its value is not a single line of ASCII.
        """
        if problems := unset_variables(self):
            raise SettingsError(problems)
        headers, secrets = filled(self.headers)
        if key := secret(self.api_key_env):
            headers["Authorization"] = f"Bearer {key}"
            secrets.append(key)
        return headers, secrets


def filled(values: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Replace ${NAME} in the values from the environment, and return the values and the replacements."""
    secrets = [secret(name) or "" for text in values.values() for name in VARIABLE.findall(text)]
    return {name: VARIABLE.sub(lambda match: secret(match[1]) or "", text) for name, text in values.items()}, secrets


class ServiceAccess(KeyAccess):
    """How to reach a service."""

    user: Annotated[str | None, SPEED] = Field(default=None, pattern=r"^[\x20-\x39\x3b-\x7e]+$")
    password_env: Annotated[Variable | None, SPEED, KEY] = None

    @model_validator(mode="after")
    def _one_authorization(self) -> Self:
        given = [name for name in self.headers if name.lower() == "authorization"]
        given += [name for name in ("api_key_env", "user") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} all set the header Authorization: keep one of them")
        if (self.user is None) != (self.password_env is None):
            raise ValueError("user and password_env belong together: set both or none")
        return self

    def access(self) -> tuple[dict[str, str], list[str]]:
        """Return all headers to send, and the secrets in them. Raises SettingsError like `KeyAccess.access`."""
        headers, secrets = super().access()
        if self.user is not None:
            password = secret(self.password_env) or ""
            pair = base64.b64encode(f"{self.user}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
            secrets += [password, pair]
        return headers, secrets

"""What all settings share: one strict base, and marks that say what a field is about.

    class Dense(Settings):
        embedder: Annotated[Any, Part("embedder")]     # a name, or {kind: ..., settings of that kind}
        path: Annotated[str, FILE]                     # a file or folder; a relative path starts at the YAML's folder
        batch_size: Annotated[int, SPEED] = 64         # changes only the speed, never the result

Fingerprints, `airgen check`, the reuse of finished results and the builder of parts all read the marks. There is no
second list of names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from airgen.registry import closest

Spec = str | dict[str, Any]  # a name, or {kind: ..., settings of that kind}


@dataclass(frozen=True)
class Mark:
    """What a field is about, written into its type: `Annotated[int, SPEED]`."""

    name: str


SPEED = Mark("speed")  # changes only the time or the cost of a result, never the result
FILE = Mark("file")  # names a file or folder that must exist; a relative path starts at the folder of the YAML file
MODEL = Mark("model")  # names a model: of the catalogue, of the Hub, or a folder (relative as for FILE)
SERVED = Mark("served")  # names a model that an endpoint runs: nothing is needed on this machine
KEY = Mark("key")  # names environment variables that hold keys: a name, or headers with ${NAME}
LABEL = Mark("label")  # a name for display


class Settings(BaseModel):
    """Base of every settings model: unknown keys, NaN and infinity are errors, values are frozen.

    `packages` are the imports without which a component with these settings cannot run.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        protected_namespaces=(),
        arbitrary_types_allowed=True,
        allow_inf_nan=False,
    )
    packages: ClassVar[tuple[str, ...]] = ()

    def required_packages(self) -> tuple[str, ...]:
        """The imports that these values need; a subclass may have some that only certain values need."""
        return self.packages

    @model_validator(mode="wrap")
    @classmethod
    def _with_closest_names(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """An unknown key is reported with the closest known one."""
        try:
            return handler(value)
        except ValidationError as error:
            known = [field.alias or name for name, field in cls.model_fields.items()]
            raise moved(error, lambda place: place, known) from None


def moved(error: ValidationError, to: Any, known: list[str] | None = None) -> ValidationError:
    """The same problems at other places: `to` maps each place to its new one.

    With `known`, a key that the model lacks gets the closest of these names.
    """
    lines = []
    for item in error.errors():
        kind, words = item["type"], item["msg"]
        if known is not None and kind == "extra_forbidden" and len(item["loc"]) == 1:
            kind, words = "unknown_key", f"unknown key{closest(str(item['loc'][0]), known)}"
        custom = PydanticCustomError(kind, "{message}", {"message": words})
        lines.append(InitErrorDetails(type=custom, loc=to(item["loc"]), input=item["input"]))
    return ValidationError.from_exception_data(error.title, lines)


def message(error: Mapping[str, Any]) -> str:
    """One problem of a ValidationError in words, without its place. A value that may hold a key is not shown."""
    if error["type"] in ("missing", "unknown_key"):
        return "is missing" if error["type"] == "missing" else str(error["msg"])
    words = str(error["msg"]).removeprefix("Value error, ")
    given = error.get("input")
    if error["type"] != "secret" and isinstance(given, str | int | float | bool) and repr(given) not in words:
        words += f", not {given!r}"
    return words[:1].lower() + words[1:]


def marked(model: type[BaseModel], mark: str) -> Iterator[tuple[str, Mark]]:
    """The names of a model's fields that carry a mark of this name, each with its mark."""
    for name, field in model.model_fields.items():
        for item in field.metadata:
            if isinstance(item, Mark) and item.name == mark:
                yield name, item


def answer_settings(settings: BaseModel) -> dict[str, Any]:
    """All fields that can change what comes out, as JSON values: those marked SPEED are left out, at any depth."""
    speed = {name for name, _ in marked(type(settings), "speed")}
    found: dict[str, Any] = {}
    for name in (name for name in type(settings).model_fields if name not in speed):
        value = getattr(settings, name)
        many = value if isinstance(value, list) else [value]
        if nested := [answer_settings(one) for one in many if isinstance(one, BaseModel)]:
            found[name] = nested if many is value else nested[0]
        else:
            found[name] = settings.model_dump(mode="json", include={name})[name]
    return found

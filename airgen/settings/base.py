"""What all settings share: one strict base, and marks that say once what a field is about.

    class Dense(Settings):
        embedder: Annotated[Spec, Part("embedder")]    # a name, or {kind: ..., settings of that kind}
        path: Annotated[str, FILE]                     # a file or folder, relative to the YAML file
        batch_size: Annotated[int, SPEED] = 64         # changes how fast an answer comes, never the answer

Whoever needs to know (fingerprints, `airgen check`, the cost table, the reuse of finished results) asks the marks:
there is no second list of names anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

__all__ = ["FILE", "MODEL", "SPEED", "Mark", "Part", "Settings", "Spec", "answer_settings", "marked"]

Spec = str | dict[str, Any]  # a name, or {kind: ..., settings of that kind}


@dataclass(frozen=True)
class Mark:
    """What a field is about, written into its type: `Annotated[int, SPEED]`."""

    name: str


SPEED = Mark("speed")  # changes how fast or how dearly, never what comes out
FILE = Mark("file")  # names a file or folder; a relative path starts at the folder of the YAML file
MODEL = Mark("model")  # names a model: of the catalogue, of the Hub, or a folder (relative as for FILE)


@dataclass(frozen=True)
class Part(Mark):
    """The field holds a component of a registered kind: `Part("embedder")`, `Part("reranker")`, `Part("retriever")`."""

    def __init__(self, kind: str) -> None:
        object.__setattr__(self, "name", "part")
        object.__setattr__(self, "kind", kind)

    kind: str = ""


class Settings(BaseModel):
    """Base of every settings model: unknown keys are errors, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, protected_namespaces=())


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
    for name in type(settings).model_fields:
        if name not in speed:
            value = getattr(settings, name)
            found[name] = _plain(value) if _nested(value) else settings.model_dump(mode="json", include={name})[name]
    return found


def _nested(value: object) -> bool:
    return isinstance(value, BaseModel) or (
        isinstance(value, list) and any(isinstance(one, BaseModel) for one in value)
    )


def _plain(value: Any) -> Any:
    return [answer_settings(one) for one in value] if isinstance(value, list) else answer_settings(value)

"""The settings of all YAML files as Markdown, for `airgen show settings`.

Names, types, limits and defaults are read from the settings models, and descriptions from their docstrings, fields and
comments, so the reference always matches the code.
"""

import functools
import inspect
import re
import sys
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined
from pydantic_core.core_schema import ModelSchema

from airgen.components.registry import REGISTRY, resolve
from airgen.corpus.settings import CorpusSettings
from airgen.evaluation.search_service import HttpSystem
from airgen.evaluation.systems import FunctionSystem, RunSystem, SystemSettings
from airgen.settings import Pipeline
from airgen.settings.base import marked
from airgen.settings.spec import Part
from airgen.settings.suite import Suite

_HEAD = """# Settings

The ten settings that you are most likely to change are on page 1 of the guide: `airgen help ten settings`.
All others can stay as they are.

Every key of every YAML file follows. `airgen show settings` makes this text from the models that check the files. A key
that is not listed is an error. "speed" marks settings that change no result: nothing is recomputed when they
change.
"""
_COMMENT = re.compile(r"^[ \t]+(\w+): [^#\n]*#(?! (?:type:|noqa)) (.+)$", re.MULTILINE)
_NAMES = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "nothing", Path: "path"}
_LIMITS = {"ge": "from {}", "gt": "above {}", "le": "to {}", "lt": "below {}", "min_length": "at least {}"}
_KINDS = (
    ("retriever", "Retrievers", "`control.pools` and `systems`"),
    ("reranker", "Re-rankers", "`control.rerankers`, and systems of kind `rerank`"),
    ("embedder", "Embedders", "`control.recall.model`, `generation.meaning.model`, and systems of kind `dense`"),
    ("token-embedder", "Token embedders", "systems of kind `late`, and the re-ranker `maxsim`"),
    ("sparse-embedder", "Sparse embedders", "systems of kind `sparse`, and the re-ranker `splade`"),
)

Printed = dict[type[BaseModel], str]
"""The place where the keys of a model were printed; other places refer to it."""


def reference() -> str:
    """Return the whole text."""
    lines = [_HEAD, "## A pipeline\n"]
    printed: Printed = {}
    lines += _model(Pipeline, printed, skip=("llm",))
    lines += ["## LLMs\n", "`llm`, and `control.judge.llm`, by `backend`.\n"]
    lines += _registered(printed, "backend", "llm: {{backend: {}}}", skip=("backend",))
    lines += ["## A corpus\n", *_model(CorpusSettings, printed)]
    lines += ["## Readers\n", "`reader` of a corpus.\n", *_registered(printed, "reader", "reader: {{kind: {}}}")]
    lines += ["## Systems\n", *_model(SystemSettings, printed)]
    for kind, model in (("run", RunSystem), ("http", HttpSystem), ("module:function", FunctionSystem)):
        lines += [f"### `kind: {kind}`\n", *_model(model, printed, nested=False, place=f"kind: {kind}")]
    for part, title, where in _KINDS:
        lines += [f"## {title}\n", f"In {where}.\n", *_registered(printed, part, "kind: {}")]
    lines += ["## A suite\n", *_model(Suite, printed)]
    lines += ["## Training\n", "`airgen train recipe KIND` prints the settings of a training with their reasons.\n"]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n") + "\n"


FILES: dict[str, type[BaseModel]] = {"pipeline": Pipeline, "corpus": CorpusSettings, "suite": Suite}
"""The YAML files whose keys an editor can check and complete."""


class _Described(GenerateJsonSchema):
    """A schema generator that uses the descriptions of `reference`."""

    def model_schema(self, schema: ModelSchema) -> dict[str, Any]:
        shape = super().model_schema(schema)
        for name, what in _words(schema["cls"]).items():
            shape["properties"][name]["description"] = what
        return shape


def json_schema(file: str) -> dict[str, Any]:
    """Return the JSON schema of one of `FILES`. Only airgen itself checks keys that depend on a neighbouring `kind`."""
    schema = FILES[file].model_json_schema(schema_generator=_Described)
    definitions = schema.get("$defs", {})
    for name in REGISTRY["backend"] if "LlmSettings" in definitions else ():
        backend = resolve("backend", name).Settings.model_json_schema(schema_generator=_Described)
        definitions |= {
            key: definition for key, definition in backend.get("$defs", {}).items() if key not in definitions
        }
        definitions["LlmSettings"]["properties"] |= backend["properties"]
    return schema


def _registered(printed: Printed, part: str, form: str, skip: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the keys that several kinds of a part share, once, and then the additional keys of each kind."""
    models = {name: resolve(part, name).Settings for name in sorted(REGISTRY[part])}
    kinds: dict[tuple[str, str], list[str]] = {}
    for name, model in models.items():
        for key, row in _rows(model, skip).items():
            kinds.setdefault((key, row), []).append(name)
    shared = {row: names for row, names in kinds.items() if len(names) > 1}
    if shared:
        yield f"### Keys of several kinds of {part}\n"
        yield (
            "\n".join(
                ["| key | value | default | | kinds |", "|---|---|---|---|---|"]
                + [f"{row} {', '.join(names)} |" for (_, row), names in sorted(shared.items())]
            )
            + "\n"
        )
    for name, model in models.items():
        yield f"### `{form.format(name)}`\n"
        common = tuple(key for key, row in _rows(model, skip).items() if (key, row) in shared)
        also = f"Keys in the table above: {', '.join(f'`{key}`' for key in common)}." if common else ""
        about = "\n\n".join(filter(None, [_about(resolve(part, name)), _about(model), also]))
        yield from _model(model, printed, skip=(*skip, *common), nested=False, about=about, place=form.format(name))


def _rows(model: type[BaseModel], skip: tuple[str, ...]) -> dict[str, str]:
    """Return the row of each key without nested settings."""
    comments = _words(model)
    return {
        name: _row(field.alias or name, _type(field), field, comments)
        for name, field in model.model_fields.items()
        if name not in skip and name != "kind" and _inner(field.annotation) is None
    }


def _row(key: str, shown: str, field: FieldInfo, comments: dict[str, str]) -> str:
    return f"| `{key}` | {shown} | {_default(field)} | {_cell(comments.get(key, ''))} |"


def _model(
    model: type[BaseModel],
    printed: Printed,
    *,
    place: str = "",
    skip: tuple[str, ...] = (),
    nested: bool = True,
    about: str = "",
) -> Iterator[str]:
    """Yield a table of the model's keys, and a section for each nested model."""
    if words := about or _about(model):
        yield f"{words}\n"
    comments = _words(model)
    rows, below = [], []
    for name, field in model.model_fields.items():
        if name in skip or name == "kind":
            continue
        key = field.alias or name
        inner = _inner(field.annotation)
        shown = f"see `{f'{place}.' if place else ''}{key}` below" if inner and nested else _type(field)
        rows.append(_row(key, shown, field, comments))
        if inner is not None:
            below.append((key, inner))
    if rows:
        yield "\n".join(["| key | value | default | |", "|---|---|---|---|", *rows]) + "\n"
    for key, inner in below:
        where = f"{place}.{key}" if place and nested else key
        if inner in printed:
            words = f"The keys of `{printed[inner]}`.\n"
            yield f"### `{where}`\n\n{words}" if nested else f"`{key}`: {words[0].lower()}{words[1:]}"
            continue
        printed[inner] = where if nested else f"{key}` of `{place}"
        if nested:
            yield f"### `{where}`\n"
            yield from _model(inner, printed, place=where)
        else:
            yield from _model(inner, printed, nested=False, about=f"`{key}`:\n\n{_about(inner)}", place=place)


def _about(model: Any) -> str:
    """Return the model's own docstring without its attributes, which appear in the table of keys."""
    text, _ = _own_docstring(model)
    if text.startswith("Settings of "):  # a summary for readers of the code, which the heading replaces
        text = text.partition("\n\n")[2]
    return "" if text in ("No settings.", "") else re.sub(r"\n(?!\n)(?<!\n\n)", " ", text).replace("\n ", "\n\n")


def _own_docstring(model: Any) -> tuple[str, dict[str, str]]:
    """Split the model's own docstring into its text and the descriptions under `Attributes:`."""
    text, _, section = inspect.cleandoc(model.__dict__.get("__doc__") or "").partition("\n\nAttributes:\n")
    described = re.findall(r"^    (\w+(?:, \w+)*): (.+(?:\n {5,}.+)*)", section, re.MULTILINE)
    return text, {name: _as_cell(" ".join(words.split())) for names, words in described for name in names.split(", ")}


def _as_cell(words: str) -> str:
    """Format a description like the comments on keys: start with a lower-case letter and drop a single full stop."""
    small = words if words[1:2].isupper() else words[:1].lower() + words[1:]
    return small if ". " in small else small.removesuffix(".")


_CLASS = re.compile(r"^( *)class (\w+).*\n((?:(?:\1(?: +|\)).*)?\n)*)", re.MULTILINE)
"""A class: its indentation, its name, and its body, which begins with the rest of a long list of bases."""


@functools.cache
def _class_sources(module: str) -> dict[str, str]:
    """Return the source of each class of a module by its qualified name. Parsing 50 modules would take longer."""
    sources: dict[str, str] = {}

    def collect(text: str, prefix: str) -> None:
        for match in _CLASS.finditer(text):
            sources[prefix + match[2]] = match[0]
            collect(match[3], f"{prefix}{match[2]}.")

    collect(inspect.getsource(sys.modules[module]), "")
    return sources


def _words(model: type[BaseModel]) -> dict[str, str]:
    """Return the description of each key, including inherited keys, from its docstring or its comment."""
    comments: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            comments.update(_own_docstring(base)[1])
            for match in _COMMENT.finditer(_class_sources(base.__module__)[base.__qualname__]):
                comments[match[1]] = match[2].strip()
    speed = {name for name, _ in marked(model, "speed")}
    words = {
        field.alias or name: "; ".join(
            filter(None, ["speed" * (name in speed), field.description or comments.get(name)])
        )
        for name, field in model.model_fields.items()
    }
    return {key: text for key, text in words.items() if text}


def _inner(annotation: Any) -> type[BaseModel] | None:
    """Return the settings model of a field, whether alone, in a list or optional."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    models = [_inner(argument) for argument in get_args(annotation)]
    return next((model for model in models if model is not None), None)


def _type(field: FieldInfo) -> str:
    part = next((item for item in field.metadata if isinstance(item, Part)), None)
    if part is not None:
        return f"{part.kind}"
    limits = [
        words.format(f"{value:g}" if isinstance(value, int | float) else value)
        for item in field.metadata
        for name, words in _LIMITS.items()
        if (value := getattr(item, name, None)) is not None
    ]
    return _cell(" ".join([_name(field.annotation), ", ".join(limits)]).strip())


def _name(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        part = next((argument for argument in arguments if isinstance(argument, Part)), None)
        return part.kind if part else _name(arguments[0])
    if origin is Literal:
        return ", ".join(str(argument) for argument in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_name(argument) for argument in arguments))
    if origin in (list, tuple, set):
        names = dict.fromkeys(_name(argument) for argument in arguments if argument is not ...)
        return f"list of {' and '.join(names)}"
    if origin is dict:
        return f"mapping of {_name(arguments[0])} to {_name(arguments[1])}"
    return _NAMES.get(annotation, "any" if annotation is Any else str(getattr(annotation, "__name__", annotation)))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True) if field.default is PydanticUndefined else field.default
    if value is None:
        return ""
    if isinstance(value, BaseModel):
        return ""
    if isinstance(value, Enum | bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list | tuple):
        return _cell(f"`[{', '.join(map(str, value))}]`")
    if isinstance(value, dict):
        return _cell("`{" + ", ".join(f"{key}: {item}" for key, item in value.items()) + "}`")
    return _cell(f"`{value}`" if value != "" else "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")

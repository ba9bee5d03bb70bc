"""Retrievers, re-rankers and embedders as a YAML file names them: what a name means, what it needs, what is wrong.

    read_part("reranker", "maxsim")                          kind maxsim with its default settings
    read_part("embedder", "BAAI/bge-m3")                     kind bge-m3, model BAAI/bge-m3
    read_part("retriever", {"kind": "bm25", "k1": 1.2})      kind bm25
    needs(settings, folder)                                  the files, models and packages that are missing

Everything here is read from declarations: the registry, the catalogue, the table below, and the marks of the settings
models. No component is made.
"""

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Any, TypeGuard, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import core_schema

from airgen import models
from airgen.errors import AirgenError
from airgen.models.catalogue import catalogue
from airgen.registry import EXTRAS, REGISTRY, installed, meant, names, resolve
from airgen.settings.base import Mark, Settings, Spec, answer_settings, marked, message
from airgen.settings.http import unset_variables

# The kind that runs a model of the Hub, or of a folder, where the catalogue does not know better.
_USUAL_KIND = {
    "embedder": "sentence-transformers",
    "token-embedder": "multi-vector",
    "sparse-embedder": "sparse-encoder",
    "sparta-encoder": "sparta",
    "term-weigher": "deepct",
    "reranker": "cross-encoder",
}
# Models of the Hub that FlagEmbedding runs, where it is installed: BAAI's own, and the paper's other re-rankers.
_FLAG_EMBEDDING = {
    "embedder": {
        r"BAAI/bge-m3": "bge-m3",
        r"BAAI/bge-(small|base|large)-(en|zh)(-v1\.5)?|BAAI/bge-(multilingual-gemma2|en-icl)": "flag-embedding",
    },
    "token-embedder": {r"BAAI/bge-m3": "bge-m3"},
    "sparse-embedder": {r"BAAI/bge-m3": "bge-m3"},
    "reranker": {
        r"BAAI/bge-reranker-(base|large|v2-m3|v2-gemma|v2-minicpm-layerwise)|maidalun1020/bce-reranker-base_v1"
        r"|nreimers/mmarco-mMiniLMv2-L12-H384-v1": "flag-reranker",
    },
}
_CLASS = re.compile(r"(?<![\w.])[A-Za-z_][\w.]*+:[A-Za-z_]\w*+")


@dataclass(frozen=True)
class Part(Mark):
    """The field holds a component of a registered kind: `Part("embedder")`, `Part("reranker")`, `Part("retriever")`.

    A value from YAML is checked with the settings model of its kind and kept as it was written. In Python the field
    can also hold a component that was made already.
    """

    name: str = dataclass_field(default="part", init=False)
    kind: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        kind = {"type": "string", "examples": names(self.kind)}
        return {"anyOf": [kind, {"type": "object", "properties": {"kind": kind}, "required": ["kind"]}]}

    def _checked(self, value: Any, info: core_schema.ValidationInfo) -> Any:
        if value is None or isinstance(value, int | float | list | tuple):
            raise ValueError(f"must be the name of a {self.kind}, or a mapping with its kind and settings")
        if is_spec(value):
            read_part(self.kind, value, (info.context or {}).get("folder"))
        return value


def parts(model: type[BaseModel]) -> Iterator[tuple[str, Part]]:
    """The names of a model's fields that hold a part, or a list of parts."""
    for name, field in model.model_fields.items():
        found = next((item for item in field.metadata if isinstance(item, Part)), None) or _part(field.annotation)
        if found is not None:
            yield name, found


def _part(annotation: Any) -> Part | None:
    for argument in get_args(annotation):
        found = argument if isinstance(argument, Part) else _part(argument)
        if found is not None:
            return found
    return None


@dataclass(frozen=True)
class ReadPart:
    """A part as it was read: its kind's name and its settings, checked."""

    kind: str
    settings: Settings


def is_spec(value: object) -> TypeGuard[Spec]:
    """Whether a value is a part as YAML writes it; anything else is a component that was made already."""
    return isinstance(value, str | Mapping)


def as_mapping(part: str, spec: Spec) -> dict[str, Any]:
    """`{kind: ..., settings}` for a name: of a kind, of a model of the catalogue, of the Hub, or of a folder.

    Raises ValueError for a model of the catalogue that cannot be such a part, and for a kind that is misspelt.
    """
    if not isinstance(spec, str):
        return dict(spec)
    kinds = REGISTRY[part]
    if part == "retriever" or spec in kinds or _CLASS.fullmatch(spec):
        return {"kind": spec}
    catalogue = models.catalogue()
    if spec not in catalogue:
        near = meant(spec, kinds, 0.75)
        if near and "/" not in spec and not Path(spec).exists():  # a model of the Hub has an owner: owner/name
            raise ValueError(f"no {part} is named {spec!r}{near}")
        return {"kind": _kind_of(part, spec), "model": spec}
    kind = catalogue[spec].kind
    if kind in kinds:
        return {"kind": kind, "model": spec}
    if part == "reranker" and kind in REGISTRY["token-embedder"].keys() - REGISTRY["embedder"].keys():
        return {"kind": "maxsim", "model": spec}
    if part == "reranker":  # its vectors' inner product is the score
        return {"kind": "dense", "embedder": spec}
    able = ", ".join(name for name, entry in catalogue.items() if entry.kind in kinds)
    article = "an" if part[0] in "aeiou" else "a"
    raise ValueError(f"{spec} ({kind}) is not {article} {part}; these are: {able}")


def _kind_of(part: str, model: str) -> str:
    """The kind that runs a model of the Hub, or of a folder."""
    own = (kind for names, kind in _FLAG_EMBEDDING.get(part, {}).items() if re.fullmatch(names, model))
    kind = next(own, None)
    return _USUAL_KIND[part] if kind is None or importlib.util.find_spec("FlagEmbedding") is None else kind


def component_settings(part: str, kind: str, folder: Path | None = None) -> type[Settings]:
    """The settings model of a kind. Raises UsageError for an unknown kind, or for a class without `Settings`."""
    found = getattr(resolve(part, kind, folder), "Settings", None)
    if not (isinstance(found, type) and issubclass(found, Settings)):
        raise ValueError(f"{part} {kind!r} has no nested class Settings, a subclass of airgen.settings.base.Settings")
    return found


def library_of(kind: str) -> str:
    """The package that runs models of this kind of the catalogue, or reads its files."""
    if kind == "vocabulary":
        return "tiktoken"
    part = next((part for part in _USUAL_KIND if kind in REGISTRY[part]), None)
    packages = component_settings(part, kind).packages if part else ("xllamacpp",)
    return EXTRAS["onnxruntime" if "onnxruntime" in packages else packages[-1]][0]


def read_part(part: str, spec: Spec, folder: Path | None = None) -> ReadPart:
    """Kind and checked settings of a part. Raises ValidationError with every problem, ValueError for its kind."""
    settings = as_mapping(part, spec)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str):
        raise ValueError(f"{part} {spec!r}: `kind` is missing")
    try:
        model = component_settings(part, kind, folder)
    except AirgenError as error:
        raise ValueError(str(error)) from error
    return ReadPart(kind, model.model_validate(settings, context={"folder": folder}))


def problems(error: ValueError) -> list[str]:
    """One line for each problem of a part, with its place."""
    if not isinstance(error, ValidationError):
        return [str(error)]
    lines = []
    for item in error.errors():
        place = ".".join(str(step) for step in item["loc"])
        lines.append(f"{place}: {message(item)}" if place else message(item))
    return lines


def walk(settings: BaseModel, folder: Path | None = None, place: str = "") -> Iterator[tuple[str, str, Settings]]:
    """(place, kind, settings) of every part below these settings, each before those that it holds itself.

    Parts that were made already (in Python) are passed over.
    """
    prefix = f"{place}." if place else ""
    held = dict(parts(type(settings)))
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        many = value if isinstance(value, list | tuple) else [value]
        for number, one in enumerate(many):
            here = f"{prefix}{name}.{number}" if many is value else f"{prefix}{name}"
            if name in held and is_spec(one):
                read = read_part(held[name].kind, one, folder)
                yield here, read.kind, read.settings
                yield from walk(read.settings, folder, here)
            elif isinstance(one, BaseModel):
                yield from walk(one, folder, here)


def located(value: str, folder: Path | None) -> Path:
    """A path of a YAML file; a relative one starts at the file's folder."""
    return (folder or Path()) / Path(value).expanduser()


def elsewhere(value: str, folder: Path | None) -> str:
    """A hint for a path of a YAML file that is not there: where it is, if it was written for the working directory."""
    here = Path.cwd() / value
    if folder is None or folder.resolve() == Path.cwd() or Path(value).is_absolute() or not here.exists():
        return ""
    right = os.path.relpath(here, folder.resolve())
    return f"; paths start at the folder of the YAML file, and {here} exists: write {Path(right).as_posix()}"


def files_of(settings: BaseModel) -> Iterator[tuple[str, str, bool]]:
    """(field, value, whether it names a model) of the files and models that these settings name, nested ones too."""
    speed = {name for name, _ in marked(type(settings), "speed")}
    for mark in ("file", "model"):
        for name, _ in marked(type(settings), mark):
            value = getattr(settings, name)
            if isinstance(value, str | Path) and name not in speed:
                yield name, str(value), mark == "model"
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from ((f"{name}.{inner}", text, is_model) for inner, text, is_model in files_of(value))


def hub_models(settings: BaseModel, folder: Path | None) -> list[str]:
    """The models of the Hub that these settings name themselves."""
    return [
        value
        for _, value, is_model in files_of(settings)
        if is_model and "/" in value and value[:1] not in "./~" and "{" not in value
        and value not in catalogue() and not located(value, folder).exists()
    ]  # fmt: skip


def texts_of(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """(place, text) of every text in plain values, at any depth."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from texts_of(one, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from texts_of(one, f"{place}.{number}")


def needs(settings: Settings, folder: Path | None = None) -> list[str]:
    """One line for each file, model and package that a component with these settings lacks; its parts are not read."""
    missing = [line for package in settings.required_packages() for line in installed(package, _what(settings))]
    for name, value, is_model in files_of(settings):
        place = located(value, folder)
        if value in models.catalogue():
            if not models.fetched(value):
                missing.append(f"the model {value} is not here: airgen fetch {value}")
        elif "{" not in value and not place.exists() and (not is_model or value[:1] in "./~"):
            missing.append(f"{name}: {place}: no such file or folder{elsewhere(value, folder)}")
    return missing + settings.lacks(folder) + unset_variables(settings)


def _what(settings: Settings) -> str:
    name = model_of(settings)
    if not name:
        return type(settings).__qualname__.split(".")[0]
    return f"the model {name}" + ("" if name in models.catalogue() else meant(name, models.catalogue(), 0.85))


def model_of(settings: BaseModel) -> str | None:
    """The model that these settings name themselves, or None."""
    for mark in ("model", "served"):
        for name, _ in marked(type(settings), mark):
            if isinstance(value := getattr(settings, name), str):
                return value
    return None


def identity_of(settings: BaseModel, folder: Path | None = None) -> dict[str, Any]:
    """Everything in settings, and in the parts below them, that can change a result: all but what is about speed."""
    found = answer_settings(settings)
    found |= settings.of_machine() if isinstance(settings, Settings) else {}
    for name, held in parts(type(settings)):
        value = getattr(settings, name)
        many = value if isinstance(value, list | tuple) else [value]
        if all(is_spec(one) for one in many):
            read = [read_part(held.kind, one, folder) for one in many]
            described = [{"kind": one.kind, **identity_of(one.settings, folder)} for one in read]
            found[name] = described if many is value else described[0]
    return found

"""A retriever, re-ranker, embedder or reader as specified in YAML, validated once, when it is read.

    read_spec("reranker", "maxsim")                          kind maxsim with its default settings
    read_spec("embedder", "BAAI/bge-m3")                     kind bge-m3, model BAAI/bge-m3
    read_spec("retriever", {"kind": "bm25", "k1": 1.2})      kind bm25

    spec.kind, spec.settings, spec.folder     what it is, its checked settings, where its relative paths start
    spec.identity(), spec.model, spec.all_parts(), spec.make()

A settings field marked `Part("embedder")` holds a Spec as soon as the model is created, and so do the fields of the
spec's own settings. All information comes from declarations: the registry, the catalogue, the tables in this module and
the marks of the settings models. No component is created before `make`.
"""

import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Any, TypeGuard, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import core_schema

from airgen import models
from airgen.components.registry import EXTRAS, REGISTRY, is_known, meant, names, resolve, target_of
from airgen.errors import AirgenError, UsageError
from airgen.safety.guard import guarded
from airgen.settings.base import Mark, Settings, Written, answer_settings, marked, message
from airgen.settings.hosted import hosted_embedder
from airgen.settings.user_function import PYTHON

# The kind that runs a model from the Hub or from a folder, unless the catalogue names another.
_USUAL_KIND = {
    "embedder": "sentence-transformers",
    "token-embedder": "multi-vector",
    "sparse-embedder": "sparse-encoder",
    "sparta-encoder": "sparta",
    "term-weigher": "deepct",
    "reranker": "cross-encoder",
}
# Models of the Hub that FlagEmbedding runs if it is installed: BAAI's own, and the paper's other re-rankers.
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
class Spec:
    """A component as specified in YAML, validated.

    Attributes:
        part: Its role ("retriever", "reranker", "embedder", ...).
        kind: Its name in the registry, or `module:Class`.
        settings: The validated settings of the kind.
        folder: Folder where relative paths start. None is the working directory.
        written: The value in the YAML file, which is also what is saved in files.
    """

    part: str
    kind: str
    settings: Settings
    folder: Path | None
    written: Written

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as written: another process reads it again, where the module of its kind may not be imported yet."""
        return read_spec, (self.part, self.written, None if self.folder is None else self.folder.absolute())

    @property
    def component_class(self) -> Any:
        """Return the class of its kind. Raises UsageError or MissingExtra."""
        return resolve(self.part, self.kind, self.folder)

    @property
    def model(self) -> str | None:
        """Return the model that is named directly in the part's settings, or None."""
        return next(model_names(self.settings), None)

    @property
    def name(self) -> str:
        """Return the name of the model or, without a model, of the kind."""
        if isinstance(self.written, str):
            return self.written
        return str(self.written.get("model") or self.written.get("name") or self.kind)

    def make(self) -> Any:
        """Build the component. Errors of its class are raised as airgen's errors."""
        with guarded(f"{self.part} {self.kind}"):
            return self.component_class(self.settings, folder=self.folder)

    def all_parts(self, place: str = "") -> "Iterator[tuple[str, Spec]]":
        """Return (location, spec) for the spec and every part below it, each before its own parts."""
        yield place, self
        yield from held_specs(self.settings, place)

    def identity(self) -> dict[str, Any]:
        """Return the kind and all settings that can change a result, which excludes those marked SPEED."""
        return {"kind": self.kind, **identity_of(self.settings)}


@dataclass(frozen=True)
class Part(Mark):
    """Marks a field that holds a component: `Part("embedder")`, `Part("reranker")`, `Part("retriever")`.

    A value from YAML becomes a `Spec`. In Python, the field can also hold a finished component, or anything that
    `build` accepts.
    """

    name: str = dataclass_field(default="part", init=False)
    kind: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(_as_written)
        return core_schema.with_info_plain_validator_function(self._read, serialization=written)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        kind = {"type": "string", "examples": names(self.kind)}
        return {"anyOf": [kind, {"type": "object", "properties": {"kind": kind}, "required": ["kind"]}]}

    def _read(self, value: Any, info: core_schema.ValidationInfo) -> Any:
        if value is None or isinstance(value, int | float | list | tuple):
            raise ValueError(f"must be the name of a {self.kind}, or a mapping with its kind and settings")
        return read_spec(self.kind, value, (info.context or {}).get("folder")) if is_written(value) else value


def _as_written(value: Any) -> Any:
    return value.written if isinstance(value, Spec) else value


def is_written(value: object) -> TypeGuard[Written]:
    """Return whether a value is a part as written in YAML; anything else has already been read or built."""
    return isinstance(value, str | Mapping)


def read_spec(part: str, written: Written, folder: Path | None = None) -> Spec:
    """Validate a part as written in YAML. Raises ValidationError with every problem, or ValueError for its kind."""
    settings = as_mapping(part, written)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str):
        raise ValueError(f"{part} {written!r}: `kind` is missing")
    if (target := target_of(part, kind)) != kind:  # of an installed package, whose code is part of its identity
        kind, written = target, {"kind": target, **settings}
    try:
        model = component_settings(part, kind, folder)
    except AirgenError as error:
        raise ValueError(str(error)) from error
    return Spec(
        part=part,
        kind=kind,
        settings=model.model_validate(settings, context={"folder": folder}),
        folder=folder,
        written=written,
    )


def spec_given(part: str, written: Written, folder: Path | None = None) -> Spec:
    """Validate a part given to a command or function, like `read_spec`. Raises UsageError with every problem."""
    try:
        return read_spec(part, written, folder)
    except ValueError as error:
        named = written if isinstance(written, str) else written.get("kind")
        raise UsageError("\n".join(f"{part} {named!r}: {line}" for line in problems(error))) from None


def build(part: str, value: Any, folder: Path | None = None) -> Any:
    """Build a component from a spec or from YAML values, whose relative paths start in `folder`. Components are
    returned unchanged.

    A function or a model of another library becomes the embedder or re-ranker that wraps it (`retrievers.user_models`).
    Raises UsageError with every problem, MissingExtra for a missing package.
    """
    if isinstance(value, Spec):
        return value.make()
    if is_written(value):
        return spec_given(part, value, folder).make()
    foreign = PYTHON in REGISTRY[part] and not hasattr(value, "describe")
    return resolve(part, PYTHON).of(value, folder) if foreign else value


def as_mapping(part: str, written: Written) -> dict[str, Any]:
    """Return `{kind: ..., settings}` for the name of a kind, a catalogue model, a Hub model or a folder.

    Raises ValueError for a catalogue model that cannot be such a part, and for a misspelt kind.
    """
    if part == "embedder" and (hosted := hosted_embedder(written)) is not None:
        return hosted
    if not isinstance(written, str):
        return dict(written)
    kinds = REGISTRY[part]
    if part == "retriever" or written in kinds or _CLASS.fullmatch(written):
        return {"kind": written}
    catalogue = models.catalogue()
    if written not in catalogue:
        if is_known(part, written):
            return {"kind": written}
        near = meant(written, kinds, 0.75)
        if near and "/" not in written and not Path(written).exists():  # a model on the Hub has an owner: owner/name
            raise ValueError(f"no {part} is named {written!r}{near}")
        if part not in _USUAL_KIND:
            raise ValueError(f"no {part} is named {written!r:.80}; known: {', '.join(sorted(kinds))}")
        return {"kind": _kind_of(part, written), "model": written}
    kind = catalogue[written].kind
    if kind in kinds:
        return {"kind": kind, "model": written}
    if part == "reranker" and kind in REGISTRY["token-embedder"].keys() - REGISTRY["embedder"].keys():
        return {"kind": "maxsim", "model": written}
    if part == "reranker":  # the inner product of its vectors is the score
        return {"kind": "dense", "embedder": written}
    able = ", ".join(name for name, entry in catalogue.items() if entry.kind in kinds)
    article = "an" if part[0] in "aeiou" else "a"
    raise ValueError(f"{written} ({kind}) is not {article} {part}; these are: {able}")


def _kind_of(part: str, model: str) -> str:
    """Return the kind that runs a Hub model or a model in a folder."""
    own = (kind for names, kind in _FLAG_EMBEDDING.get(part, {}).items() if re.fullmatch(names, model))
    kind = next(own, None)
    return _USUAL_KIND[part] if kind is None or importlib.util.find_spec("FlagEmbedding") is None else kind


def component_settings(part: str, kind: str, folder: Path | None = None) -> type[Settings]:
    """Return the settings model of a kind. Raises UsageError for an unknown kind, and ValueError if it has no
    `Settings`."""
    model = getattr(resolve(part, kind, folder), "Settings", None)
    if not (isinstance(model, type) and issubclass(model, Settings)):
        raise ValueError(f"{part} {kind!r} has no nested class Settings, a subclass of airgen.settings.base.Settings")
    return model


def library_of(kind: str) -> str:
    """Return the package that runs this kind of catalogue model, or reads its files."""
    if kind == "vocabulary":
        return "tiktoken"
    part = next((part for part in _USUAL_KIND if kind in REGISTRY[part]), None)
    packages = component_settings(part, kind).packages if part else ("xllamacpp",)
    return EXTRAS["onnxruntime" if "onnxruntime" in packages else packages[-1]][0]


def problems(error: ValueError) -> list[str]:
    """Return a line for each problem of a part, with its location."""
    if not isinstance(error, ValidationError):
        return [str(error)]
    lines = []
    for item in error.errors():
        place = ".".join(str(step) for step in item["loc"])
        lines.append(f"{place}: {message(item)}" if place else message(item))
    return lines


def part_fields(model: type[BaseModel]) -> Iterator[tuple[str, Part]]:
    """Yield the names of a model's fields that hold a part, or a list of parts."""
    for name, field in model.model_fields.items():
        part = next((item for item in field.metadata if isinstance(item, Part)), None) or _part_in(field.annotation)
        if part is not None:
            yield name, part


def _part_in(annotation: Any) -> Part | None:
    for argument in get_args(annotation):
        part = argument if isinstance(argument, Part) else _part_in(argument)
        if part is not None:
            return part
    return None


def held_specs(settings: BaseModel, place: str = "") -> Iterator[tuple[str, Spec]]:
    """Yield (location, spec) for every part below these settings, each before its own parts.

    Components that are already built (in Python) are skipped.
    """
    prefix = f"{place}." if place else ""
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        items = value if isinstance(value, list | tuple) else [value]
        for number, item in enumerate(items):
            here = f"{prefix}{name}.{number}" if items is value else f"{prefix}{name}"
            if isinstance(item, Spec):
                yield from item.all_parts(here)
            elif isinstance(item, BaseModel):
                yield from held_specs(item, here)


def model_names(settings: BaseModel) -> Iterator[str]:
    """Yield the models named directly in these settings, local models before those at an endpoint."""
    for mark in ("model", "served"):
        for name, _ in marked(type(settings), mark):
            if isinstance(value := getattr(settings, name), str):
                yield value


def identity_of(settings: BaseModel) -> dict[str, Any]:
    """Return everything in the settings, and in the parts below them, that can change a result: all but the SPEED
    fields."""
    identity = answer_settings(settings)
    if isinstance(settings, Settings) and settings.rules:
        identity["rules"] = settings.rules
    for name, _ in part_fields(type(settings)):
        value = getattr(settings, name)
        items = value if isinstance(value, list | tuple) else [value]
        if all(isinstance(item, Spec) for item in items):
            described = [item.identity() for item in items]
            identity[name] = described if items is value else described[0]
    return identity

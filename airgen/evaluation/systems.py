"""Systems to evaluate, as a YAML file names them.

    systems:
      - {name: bm25, kind: bm25, k1: 0.9, b: 0.4, fields: multi}
      - {name: minilm, kind: dense, embedder: all-minilm-l6-v2-int8}
      - {name: bm25+maxsim, kind: rerank, first: bm25, reranker: maxsim, top: 100}
      - {name: hybrid, kind: fuse, systems: [bm25, minilm]}
      - {name: theirs, kind: run, path: "runs/{dataset}.run"}
      - {name: service, kind: http, url: "http://localhost:9200/search", query_field: q, hits_path: hits.hits}
      - {name: mine, kind: python, class: "my_package.retrieval:MyRetriever", settings: {batch_size: 8}}

`bm25`, `dense`, ... are the registry's retrievers: their settings are their constructor's keywords. `rerank` and
`fuse` name other systems of the file, whose results are made once and used again.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from airgen.errors import MissingExtra, SettingsError
from airgen.registry import closest, names, resolve
from airgen.settings.yaml_file import load_yaml

__all__ = [
    "FuseSystem",
    "HttpSystem",
    "PythonSystem",
    "RerankSystem",
    "RunSystem",
    "SystemSettings",
    "SystemsFile",
    "in_order",
    "load_systems",
]


class _Options(BaseModel):
    """Settings of the kinds that this package runs itself."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, protected_namespaces=())


class RunSystem(_Options):
    """A TREC run file that exists already; `{dataset}` and `{split}` in the path are filled in."""

    path: str


class RerankSystem(_Options):
    """Re-rank another system's `top` hits; below them its own order stays.

    `reranker` is a name or a mapping that `airgen.retrievers.load_reranker` takes, or `python:module:Class` for an
    air-benchmark Reranker.
    """

    first: str
    reranker: str | dict[str, Any]
    top: int = Field(default=100, ge=1)


class FuseSystem(_Options):
    """Join other systems' rankings: reciprocal rank fusion (with its constant), or a weighted sum of scores."""

    systems: list[str] = Field(min_length=2)
    method: Literal["rrf", "sum"] = "rrf"
    weights: list[float] = []
    constant: float = Field(default=60.0, ge=0)
    normalisation: Literal["min-max", "z-score", "none"] = "min-max"
    depth: int = Field(default=1000, ge=1)

    @model_validator(mode="after")
    def _one_weight_each(self) -> FuseSystem:
        if self.weights and len(self.weights) != len(self.systems):
            raise ValueError(f"{len(self.weights)} weights for {len(self.systems)} systems")
        return self


class HttpSystem(_Options):
    """A search service. Paths are keys joined by dots; `hits_path` leads to the list, the others start at a hit.

    Without `score_path` the order of the hits is taken. The key is read from the environment variable named.
    """

    url: str = Field(pattern=r"^https?://")
    query_field: str = "query"
    hits_path: str = "hits"
    id_path: str = "id"
    score_path: str | None = "score"
    size_field: str | None = "k"
    method: Literal["GET", "POST"] = "POST"
    body: dict[str, Any] = {}
    api_key_env: str | None = None
    timeout_seconds: float = Field(default=30.0, gt=0)
    concurrency: int = Field(default=4, ge=1, le=256)


class PythonSystem(_Options):
    """An air-benchmark Retriever by dotted name (`module:Class`), made with `settings`."""

    target: str = Field(alias="class", pattern=r"^[\w.]+[:.]\w+$")
    settings: dict[str, Any] = {}


_OWN: dict[str, type[_Options]] = {
    "run": RunSystem,
    "rerank": RerankSystem,
    "fuse": FuseSystem,
    "http": HttpSystem,
    "python": PythonSystem,
}


class SystemSettings(BaseModel):
    """One system: a name, a kind, and the kind's own settings beside them.

    `family` groups systems in reports (the kind, if not given); `weakened` marks one that is bad on purpose.
    """

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$")
    kind: str
    family: str = ""
    weakened: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """The kind's own settings, as given."""
        return dict(self.model_extra or {})

    @property
    def options(self) -> _Options:
        """The checked settings of a kind that this package runs itself. Raises KeyError for a registry kind."""
        return _OWN[self.kind].model_validate(self.settings)

    @property
    def uses(self) -> list[str]:
        """The names of the systems that this one builds on."""
        options = self.options if self.kind in ("rerank", "fuse") else None
        if isinstance(options, RerankSystem):
            return [options.first]
        return list(options.systems) if isinstance(options, FuseSystem) else []

    @model_validator(mode="after")
    def _known(self) -> SystemSettings:
        kinds = sorted({*_OWN, *names("retriever")})
        if self.kind not in kinds:
            raise ValueError(f"unknown kind {self.kind!r}{closest(self.kind, kinds)}")
        if self.kind in _OWN:
            _check_own(self.kind, self.settings)
        else:
            _check_registered(self.kind, self.settings)
        return self


class SystemsFile(BaseModel):
    """A systems YAML."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    systems: list[SystemSettings] = Field(min_length=1)

    @model_validator(mode="after")
    def _references(self) -> SystemsFile:
        in_order(self.systems)
        return self


def load_systems(path: str | Path) -> list[SystemSettings]:
    """The systems of a YAML file, each after those it builds on. Raises SettingsError with every problem found."""
    return in_order(load_yaml(Path(path), SystemsFile).systems)


def in_order(systems: Sequence[SystemSettings]) -> list[SystemSettings]:
    """The same systems, each after those it builds on, else in the order given.

    Raises SettingsError for a name that comes twice, is not there, or builds on itself.
    """
    by_name = {system.name: system for system in systems}
    problems = []
    if len(by_name) < len(systems):
        every = [system.name for system in systems]
        problems = [f"the system name {name!r} comes twice" for name in by_name if every.count(name) > 1]
    for system in systems:
        for name in system.uses:
            if name not in by_name:
                problems.append(f"{system.name} builds on {name!r}, which is no system{closest(name, list(by_name))}")
    if problems:
        raise SettingsError(problems)
    done: dict[str, SystemSettings] = {}

    def visit(system: SystemSettings, above: tuple[str, ...]) -> None:
        if system.name in above:
            raise SettingsError([f"{' -> '.join((*above, system.name))}: a system cannot build on itself"])
        for name in system.uses:
            visit(by_name[name], (*above, system.name))
        done.setdefault(system.name, system)

    for system in systems:
        visit(system, ())
    return list(done.values())


def _check_own(kind: str, settings: Mapping[str, Any]) -> None:
    model = _OWN[kind]
    try:
        model.model_validate(settings)
    except ValidationError as error:
        raise ValueError("; ".join(_own_problem(model, dict(item)) for item in error.errors())) from None


def _own_problem(model: type[_Options], error: dict[str, Any]) -> str:
    path = ".".join(str(part) for part in error["loc"]) or "settings"
    known = [field.alias or name for name, field in model.model_fields.items()]
    if error["type"] == "extra_forbidden":
        return f"unknown setting {path!r}{closest(path, known)}"
    if error["type"] == "missing":
        return f"setting {path!r} is missing"
    return f"setting {path!r}: {str(error['msg']).removeprefix('Value error, ')}"


def _check_registered(kind: str, settings: Mapping[str, Any]) -> None:
    """Setting names against the constructor's. A family whose package is missing is reported when it is run."""
    try:
        parameters = inspect.signature(resolve("retriever", kind)).parameters
    except MissingExtra:
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = [name for name in parameters if name not in ("name", "progress")]
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise ValueError("; ".join(f"unknown setting {name!r}{closest(name, known)}" for name in unknown))

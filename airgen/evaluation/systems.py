"""Systems to evaluate, as specified in a YAML file.

    systems:
      - {name: bm25, kind: bm25, k1: 0.9, b: 0.4, fields: multi}
      - {name: bm25+maxsim, kind: rerank, first: bm25, reranker: maxsim, top: 100}
      - {name: mine, kind: "my_module:MyRetriever", depth: 3}

A kind is a retriever in the registry or `module:Class` (each with a settings model), a function `module:search`, or one
of `run`, `http`, `python`, `rerank` and `fuse`. The last two name other systems in the file, whose results are computed
once and reused. Paths are relative to the file's folder.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, PrivateAttr, ValidationError, ValidationInfo, field_validator, model_validator

from airgen import models
from airgen.components.registry import REGISTRY, closest, names, resolve, target_of
from airgen.components.user_code import own_code
from airgen.display.study import Plain, Study, Table, columns
from airgen.errors import AirgenError, SettingsError, Stopped, UsageError
from airgen.evaluation.document_level import Level
from airgen.evaluation.returned_hits import Best
from airgen.evaluation.search_service import HttpSystem
from airgen.evaluation.user_search import OwnSystem, is_retriever_class
from airgen.retrievers.combine import FusionSettings, RerankingSettings
from airgen.safety.guard import guarded
from airgen.settings import ControlSettings
from airgen.settings.base import FILE, Settings, load_yaml, marked, merged
from airgen.settings.requirements import files_of, located, needs, texts_of
from airgen.settings.spec import Part, Spec, component_settings, identity_of, problems
from airgen.settings.user_function import PYTHON

Failed = Callable[[str, AirgenError], None]
"""A function that takes the name of a failed system and the reason."""


class RunSystem(Settings):
    """Settings of an existing TREC run file. `{dataset}` and `{split}` in the path are filled in.

    Attributes:
        best: Which score is best (`airgen.evaluation.returned_hits.Best`).
    """

    path: Annotated[str, FILE]
    best: Best = "auto"


class RerankSystem(RerankingSettings):
    """Settings for re-ranking another system's `top` hits. Lower hits keep their order."""

    first: str
    reranker: Annotated[Any, Part("reranker")]


class FuseSystem(FusionSettings):
    """Settings for fusing other systems' rankings by reciprocal rank fusion (with its constant) or a weighted sum of
    scores."""

    systems: list[str] = Field(min_length=2)


class FunctionSystem(Settings):
    """Settings of a function `search(queries, k)`.

    Attributes:
        settings: Further arguments of the function.
        best: Which score is best (`airgen.evaluation.returned_hits.Best`).
    """

    settings: dict[str, Any] = Field(default={})
    best: Best = "auto"


_OWN: dict[str, type[Settings]] = {
    "run": RunSystem,
    "rerank": RerankSystem,
    "fuse": FuseSystem,
    "http": HttpSystem,
    PYTHON: OwnSystem,
}


def _is_called(value: Any) -> bool:
    """Return whether a user's object can search as it is: a function, or an air-benchmark Retriever."""
    return inspect.isfunction(value) or is_retriever_class(value)


class SystemSettings(Settings):
    """The settings of a system: its name, its kind, and the settings of the kind.

    Attributes:
        level: What a hit is (`airgen.evaluation.document_level`). With `document`, hits are pages, or are taken as the
            pages of the passages that a retriever finds. `auto` does this if a service, function or run returns pages.
        datasets: Settings that override the system's own on a dataset, such as {quora: {embedder: {passage_prefix:
            "query: "}}}, because E5 needs other prefixes on Quora.
    """

    model_config = ConfigDict(extra="allow")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$")  # the name in tables and files
    kind: str  # a retriever, rerank, fuse, run, http, python, or module:Class
    family: str = ""  # groups systems in reports; by default, the kind
    weakened: bool = False  # bad on purpose
    price: float | None = Field(default=None, ge=0, allow_inf_nan=False)  # US dollars per 1,000 queries, if known
    level: Level = "auto"
    datasets: dict[str, dict[str, Any]] = Field(default={})  # settings for one dataset, by its name

    _spec: Spec = PrivateAttr()
    _on: dict[str, "SystemSettings"] = PrivateAttr(default={})

    @property
    def settings(self) -> dict[str, Any]:
        """Return the kind's own settings, as given, and what a hit is, if that was given."""
        given = {"level": self.level} if "level" in self.model_fields_set else {}
        return {**(self.model_extra or {}), **given}

    @property
    def spec(self) -> Spec:
        """Return the validated kind and settings."""
        return self._spec

    @property
    def options(self) -> Settings:
        """Return the kind's own settings, validated."""
        return self._spec.settings

    @property
    def folder(self) -> Path:
        """Return the folder to which paths are relative: that of the YAML file, or the working directory."""
        return self._spec.folder or Path()

    def on(self, dataset: str) -> "SystemSettings":
        """Return the system with its settings for one dataset."""
        return self._on.get(dataset, self)

    def below(self, folder: Path | None) -> "SystemSettings":
        """Return the same system. If it was not read from a file, its paths become relative to this folder."""
        return self if folder is None or self._spec.folder is not None else self._read_again({}, folder)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> "SystemSettings":
        """Return a copy with other settings, which are also validated."""
        return self._read_again(update or {}, self._spec.folder)

    def _read_again(self, update: Mapping[str, Any], folder: Path | None) -> "SystemSettings":
        settings = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self).model_validate({**settings, **update}, context={"folder": folder})

    @property
    def uses(self) -> list[str]:
        """Return the names of the systems on which this system builds."""
        options = self.options
        if isinstance(options, RerankSystem):
            return [options.first]
        return list(options.systems) if isinstance(options, FuseSystem) else []

    def parts(self) -> Iterator[tuple[str, Spec]]:
        """Yield (location, spec) for the system itself and every part in it."""
        return self._spec.all_parts()

    def identity(self, dataset: str, split: str, stamp: Callable[[Path], Any]) -> dict[str, Any]:
        """Return everything on which the system's hits depend: kind, settings, the user's code, and the files.

        Args:
            dataset: Name of the dataset, for paths with {dataset}.
            split: Its split, for paths with {split}.
            stamp: Returns the state of a file or folder, which can change under the same name.
        """

        def path_of(value: str) -> Path:
            return located(value.replace("{dataset}", dataset).replace("{split}", split), self.folder)

        named = [
            (place, name, path_of(value)) for place, spec in self.parts() for name, value, _ in files_of(spec.settings)
        ]
        files = [[place, name, stamp(path)] for place, name, path in named if path.exists()]
        if ":" in self.kind:  # settings of the user's own code do not declare which of them are files
            texts = ((name, path_of(value)) for name, value in texts_of(self.settings))
            files += [["", name, stamp(path)] for name, path in texts if path.is_file()]
        return {
            "kind": self.kind,
            "settings": identity_of(self.options),
            "level": self.level,
            "files": files,
            "code": own_code(self.spec.written, self.folder),
        }

    @field_validator("kind")
    @classmethod
    def _of_a_package(cls, kind: str) -> str:
        return kind if kind in _OWN else target_of("retriever", kind)

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> "SystemSettings":
        if ":" not in self.kind and self.kind not in _OWN | REGISTRY["retriever"]:
            raise ValueError(f"unknown kind {self.kind!r}{closest(self.kind, [*_OWN, *names('retriever')])}")
        folder = (info.context or {}).get("folder")
        try:
            self._spec = _spec_of(self.name, self.kind, dict(self.model_extra or {}), folder)
            for dataset, changes in self.datasets.items():
                settings = merged(self.settings, changes) | {"datasets": {}}
                self._on = {**self._on, dataset: self._read_again(settings, folder)}
        except UsageError as error:
            raise ValueError(str(error)) from error
        return self


def _spec_of(name: str, kind: str, given: dict[str, Any], folder: Path | None) -> Spec:
    """Validate a system's kind and settings. Raises ValidationError, UsageError, ValueError."""
    model: type[Settings]
    if ":" in kind and _is_called(resolve("retriever", kind, folder)):
        model = FunctionSystem
    else:
        model = _OWN.get(kind) or component_settings("retriever", kind, folder)
    checked = model.model_validate({**given, "name": name} if model is OwnSystem else given, context={"folder": folder})
    return Spec(part="retriever", kind=kind, settings=checked, folder=folder, written={"kind": kind, **given})


class SystemsFile(Settings):
    """The contents of a systems YAML."""

    systems: list[SystemSettings] = Field(min_length=1)

    @model_validator(mode="after")
    def _references(self) -> "SystemsFile":
        in_order(self.systems)
        return self


def load_systems(path: str | Path) -> list[SystemSettings]:
    """Load the systems in a YAML file, each after those on which it builds. Raises SettingsError with every problem."""
    return in_order(load_yaml(Path(path), SystemsFile).systems)


@dataclass(frozen=True, slots=True)
class SystemNeeds:
    """What a system needs: models by name with revision and location, and a line for each missing requirement.

    A Hub model counts as available, because only running the system shows whether it is in the library's cache.
    """

    name: str
    kind: str
    models: tuple[str, ...]
    packages: tuple[str, ...]
    missing: tuple[str, ...]


def system_needs(systems: Sequence[SystemSettings]) -> list[SystemNeeds]:
    """Return the models, packages, files and keys that each system needs."""
    wanted = []
    for system in systems:
        named: list[str] = []
        packages: list[str] = []
        missing: list[str] = []
        for place, spec in system.parts():
            missing += [f"system {system.name}: {f'{place}: ' if place else ''}{line}" for line in needs(spec)]
            packages += spec.settings.required_packages()
            if spec.model:
                named.append(f"{spec.model} ({_whereabouts(spec, spec.model)})")
        once = (tuple(dict.fromkeys(each)) for each in (named, packages, missing))
        wanted.append(SystemNeeds(system.name, system.kind, *once))
    return wanted


def needs_study(needed: Sequence[SystemNeeds]) -> Study:
    """Return a table of what systems need, with a line for each requirement that is missing."""
    rows = [(system.name, system.kind, ", ".join(system.models), ", ".join(system.packages)) for system in needed]
    missing = [Plain(f"  ! {line}") for system in needed for line in system.missing]
    return Study("Systems", [Table(rows, columns("system", "kind", "models", "packages", left=(1, 2, 3))), *missing])


def missing_needs(systems: Sequence[SystemSettings]) -> list[str]:
    """Return a line for each missing file, model, package and key that a system needs."""
    return [line for need in system_needs(systems) for line in need.missing]


def _whereabouts(spec: Spec, model: str) -> str:
    """Describe where a model is: on this machine, not fetched, missing, on the Hub, or at an endpoint."""
    settings = spec.settings
    if any(getattr(settings, name) == model for name, _ in marked(type(settings), "served")):
        return f"served at {getattr(settings, 'base_url', '') or getattr(settings, 'url', '')}"
    if model in models.catalogue():
        return "here" if models.fetched(model) else "not fetched"
    if located(model, spec.folder).exists():
        return "here"
    revision = getattr(settings, "revision", None)
    return "missing" if model[:1] in "./~" else f"Hub, revision {revision[:8]}" if revision else "Hub"


def run_all(
    ordered: Sequence[SystemSettings], run: Callable[[SystemSettings], None], failed: Failed | None = None
) -> None:
    """Call `run` with each system. A failing system does not stop the others, but systems that build on it are skipped.

    `failed` is called with each failure. Without it, failures are raised at the end: a single one unchanged, several as
    one error with a line each. Stopped is raised at once.
    """
    errors: dict[str, AirgenError] = {}
    for system in ordered:
        failed_base = next((name for name in system.uses if name in errors), None)
        try:
            if failed_base is not None:
                raise UsageError(f"it builds on the system {failed_base}, which failed")
            with guarded(system.kind):
                run(system)
        except Stopped:
            raise
        except AirgenError as error:
            errors[system.name] = error
            if failed is not None:
                failed(system.name, error)
    if errors and failed is None:
        first, *others = errors.values()
        if others:
            raise AirgenError("\n".join(named_once([name], str(error)) for name, error in errors.items())) from first
        raise first


def named_once(names: Sequence[str], words: str) -> str:
    """Prefix an error of some systems with their names, unless it already begins with them."""
    who = f"system {', '.join(names)}: "
    return who + words.removeprefix(who)


def models_of(systems: Sequence[SystemSettings]) -> dict[str, frozenset[str]]:
    """Return {system: parts}, with the model name of each neural part and the kind (bm25, rm3, lsa) of other parts.

    Each system must come after those on which it builds, as in the result of `load_systems`.
    """
    models_by_system: dict[str, frozenset[str]] = {}
    for system in systems:
        options = system.options
        models = {model_or_kind(system.spec)}
        if isinstance(options, RerankSystem | FuseSystem):
            reranker = getattr(options, "reranker", None)
            models = {model_or_kind(reranker)} if isinstance(reranker, Spec) else set()
        models_by_system[system.name] = frozenset(models.union(*(models_by_system[name] for name in system.uses)))
    return models_by_system


def model_or_kind(spec: Spec) -> str:
    """Return the model that a part, or one of its own parts, runs, or the part's kind if there is no model."""
    return next((inner.model for _, inner in spec.all_parts() if inner.model), spec.kind)


def labelling_models(control: ControlSettings) -> frozenset[str]:
    """Return the models and kinds that quality control will recall and vote with."""
    return frozenset(map(model_or_kind, [*control.voters.values(), *control.recallers.values()]))


def label_makers(provenance: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the models and kinds that retrieved or voted for a dataset's labels, according to its manifest."""
    roles = ("recall", "re-ranker (pre-label)")
    return frozenset(str(entry.get("model", "")) for entry in provenance if entry.get("role") in roles)


def made_labels(systems: Sequence[SystemSettings], makers: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return {system: its parts that also made the labels}, which have an unfair advantage."""
    named = {name for maker in makers for name in (maker, maker.rpartition(" ")[2])}
    return {name: tuple(sorted(parts & named)) for name, parts in models_of(systems).items() if parts & named}


def in_order(systems: Sequence[SystemSettings]) -> list[SystemSettings]:
    """Sort the systems so that each comes after those on which it builds, otherwise keeping the given order.

    Raises SettingsError if a name occurs twice, is not in the file, or builds on itself.
    """
    by_name = {system.name: system for system in systems}
    problems = []
    if len(by_name) < len(systems):
        names = [system.name for system in systems]
        problems = [
            f"the system name {name!r} appears twice: give each its own name"
            for name in by_name
            if names.count(name) > 1
        ]
    for system in systems:
        for name in system.uses:
            if name not in by_name:
                hint = closest(name, list(by_name))
                problems.append(f"{system.name} builds on {name!r}, which is not a system of the file{hint}")
    if problems:
        raise SettingsError(problems)
    ordered: dict[str, SystemSettings] = {}

    def visit(system: SystemSettings, above: tuple[str, ...]) -> None:
        if system.name in above:
            raise SettingsError([f"{' -> '.join((*above, system.name))}: a system cannot build on itself"])
        for name in system.uses:
            visit(by_name[name], (*above, system.name))
        ordered.setdefault(system.name, system)

    for system in systems:
        visit(system, ())
    return list(ordered.values())


def chosen_systems(systems: Sequence[SystemSettings], only: Sequence[str] | None) -> list[SystemSettings]:
    """Return the systems with these names and those on which they build, in order; all systems if no names are given.

    Raises UsageError for an unknown name.
    """
    if not only:
        return list(systems)
    by_name = {system.name: system for system in systems}
    if unknown := next((name for name in only if name not in by_name), None):
        words = f"no system {unknown!r} in the file{closest(unknown, list(by_name))}"
        raise UsageError(words, code="unknown_name", where="systems", names=by_name)
    wanted = set(only)
    for system in reversed(systems):  # systems that build on others come after them
        if system.name in wanted:
            wanted.update(system.uses)
    return [system for system in systems if system.name in wanted]


def before_and_after(before: str, after: str, file: Path | None) -> tuple[list[SystemSettings], Path]:
    """Return two systems to compare, after those on which they build, and the folder of their paths.

    They are systems in the file or, without a file, dense systems with these embedding models. Raises UsageError if
    both are the same, and any errors of loading them.
    """
    if before == after:
        raise UsageError("--before and --after are the same")
    if file is not None:
        systems = chosen_systems(load_systems(file), [before, after])
        pair = [next(system for system in systems if system.name == name) for name in (before, after)]
        return [*(system for system in systems if system not in pair), *pair], file.resolve().parent
    try:
        return [
            SystemSettings.model_validate({"name": name, "kind": "dense", "embedder": model})
            for name, model in zip(_model_names(before, after), (before, after), strict=True)
        ], Path.cwd()
    except ValidationError as error:
        raise UsageError("; ".join(problems(error))) from error


def _model_names(*models_: str) -> list[str]:
    """Name each model by its last part, prefixed by what precedes it if last parts are equal."""
    for parts in (1, 2):
        names_ = [
            re.sub(r"[^A-Za-z0-9._+-]+", "-", "-".join(Path(model).parts[-parts:])).strip("-._+") for model in models_
        ]
        if len(set(names_)) == len(names_) and all(names_):
            return [model[:100] for model in names_]
    return ["before", "after"]


def stamp_of(path: Path) -> list[list[object]]:
    """Return the names, sizes and times of the files at a path."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files if file.is_file()]

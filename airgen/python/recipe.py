"""A job defined in Python, with the same pipeline, work directory and output bytes as from its YAML file.

    bench = generate(corpus, n=50, llm="gpt-4o-mini", relevance="answer", budget=0.50, work="runs/handbook")
    print(bench.recipe.to_yaml())                     # runs/handbook/pipeline.yaml, with which `airgen run` goes on

Settings that are not given have the values that `airgen init` would write for this machine, and the file records them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from airgen.components.registry import REGISTRY, is_known
from airgen.components.user_functions import Function, name_of, named, required, synchronous
from airgen.errors import UsageError
from airgen.evaluation.systems import SystemSettings
from airgen.job.job import Job
from airgen.job.starter import KEY, Machine, openai_model, pipeline_defaults
from airgen.job.starter import name_of as name_of_folder
from airgen.models import catalogue
from airgen.python.convert_systems import systems_of
from airgen.python.corpus import Corpus, corpus_of
from airgen.python.entrance import RECIPE
from airgen.settings import Pipeline
from airgen.settings.base import merged, validate
from airgen.settings.control import NONE, VOTES
from airgen.settings.model_size import size_of
from airgen.settings.spec import build, is_written
from airgen.settings.user_function import PYTHON
from airgen.storage.paths import RUNS
from airgen.storage.whole_files import write_text

AUTO = "auto"
"""The value of `judge` that chooses as `airgen init` does."""

_HEAD = "# Written by airgen.generate: `airgen run` with this file continues it. Defaults for: {}\n"
_PROFILE = re.compile(r"^# Written by airgen\.\w+: .* Defaults for: (.*)$", re.MULTILINE)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


@dataclass(frozen=True)
class JobRecipe:
    """The settings, corpus and work directory of a job.

    Attributes:
        values: The content of the pipeline YAML.
        corpus: The corpus.
        work: The work directory, which also holds `pipeline.yaml`, `corpus.yaml` and the given rows.
        profile: The kind of LLM and machine for which the defaults were chosen.
        files: Other files in the work directory, as {name: text}.
    """

    values: Mapping[str, Any]
    corpus: Corpus
    work: Path
    profile: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    def to_yaml(self) -> str:
        """Return the text of the pipeline YAML."""
        head = _HEAD.format(self.profile or "nothing, as every setting is named")
        return head + yaml.safe_dump(dict(self.values), sort_keys=False, allow_unicode=True, width=100)

    def write(self) -> Path:
        """Write the pipeline, the corpus and the rows to the work directory, and return the pipeline's path."""
        self.corpus.write(self.work)
        for name, text in {**self.files, "pipeline.yaml": self.to_yaml()}.items():
            write_text(self.work / name, text)
        return self.work / "pipeline.yaml"

    def job(self, runs: Path | None = None) -> Job:
        """Write the files, and return the job, whose work directory is in `runs` (default: where the files are)."""
        return Job(self.write(), runs or self.work.parent)

    def __repr__(self) -> str:
        return f"JobRecipe of {self.work}:\n{self.to_yaml()}"


def make_recipe(
    corpus: Any,
    *,
    n: int | None,
    llm: Any = None,
    relevance: Literal["answer", "subject"] = "answer",
    judge: Any = AUTO,
    rerankers: Sequence[Any] | None = None,
    systems: Any = None,
    queries: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
    work: str | Path | None = None,
    budget: float | None = None,
    settings: Mapping[str, Any] | None = None,
) -> JobRecipe:
    """Return the recipe for these settings, each of which may be a function. Nothing is written.

    Raises SettingsError listing every wrong setting, and UsageError for a value that cannot be a setting.
    """
    own = dict(settings or {})
    if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
        raise UsageError(f"n: {n!r} is not a number of queries: give 1 or more")
    source = corpus_of(corpus, own.get("task", "qa"))
    folder = Path(work) if work is not None else RUNS / name_of_folder(Path(source.name))
    name = own.pop("name", folder.name)
    if not _NAME.fullmatch(str(name)):
        better = re.sub(r"[^a-z0-9._-]+", "-", str(name).lower()).strip("-._") or "handbook"
        raise UsageError(f"work: the folder's name is the benchmark's, and {name!r} cannot be one: call it {better!r}")
    if folder.name != name:
        folder = folder / name
    asked = llm_settings(llm)
    machine = Machine.here(source.language)
    small = asked is not None and size_of(asked)[0] == "small"
    machine = replace(machine, key=not small if asked is not None else machine.key)
    profile = _kept_profile(folder / "pipeline.yaml") or _profile(machine)
    machine = _machine_of(profile, machine)
    defaults = pipeline_defaults(machine, source.language, relevance, asked)
    values: dict[str, Any] = {
        "name": name,
        "task": source.task,
        "corpus": source.reference,
        "language": source.language,
        "domain": source.settings.domain,
        "relevance": relevance,
        **({"target": n} if n is not None else {}),
        "seed": 42,
        "llm": asked or {key: value for key, value in defaults["llm"].items() if key != "budget_usd"},
        **({"queries": dict(queries)} if queries else {"generation": defaults["generation"]}),
        "control": defaults["control"],
        "export": {"splits": {"test": 1}, "licence": "proprietary", "ids": "original", "secret": False},
    }
    if queries:
        small = size_of(values["llm"])[0] == "small"
        values["generation"] = {"prompts": "small" if small else "default"}
    if rerankers is not None:
        values["control"] = {
            **values["control"],
            "rerankers": [part_settings("reranker", reranker) for reranker in rerankers],
        }
    if judge is None:
        values["control"] = {"judge": {"kind": NONE}}
    elif not (isinstance(judge, str) and judge == AUTO):
        values["control"] = {**values["control"], "judge": judge_settings(judge)}
    if budget is not None:
        values["llm"] = {**values["llm"], "budget_usd": budget}
    extra = dict(files or {})
    if systems is not None:
        extra["systems.yaml"] = systems_text(systems_of(systems)[0])
        values["control"] = {**values["control"], "systems": "systems.yaml"} if queries else values["control"]
        values["evaluate"] = {"systems": "systems.yaml", "split": "all"}
    values = merged(values, {key: plain_settings(value) for key, value in own.items()})
    if task_of(values) == "long-doc":
        values["generation"] = {**(values.get("generation") or {}), "hard_negatives": [0, 0]}
    validate(values, Pipeline, RECIPE, folder=folder.resolve())
    return JobRecipe(values=values, corpus=source, work=folder, profile=profile, files=extra)


def task_of(values: Mapping[str, Any]) -> str:
    """Return the task: qa or long-doc."""
    return str(values.get("task", "qa"))


def plain_settings(value: Any) -> Any:
    """Return a setting as YAML would have it: a settings object becomes a mapping."""
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return {str(key): plain_settings(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain_settings(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def llm_settings(given: Any, where: str = "llm", others: Iterable[str] = ()) -> dict[str, Any] | None:
    """Return the `llm` setting for a model's name, a mapping of settings, or a function of messages; None for None.

    A name may begin with a backend: "anthropic:claude-...", "embedded:...". A model in the catalogue runs on this
    machine. A mapping without `backend` names a server (`base_url`), or else a model by its name.

    Args:
        given: The value of the argument.
        where: The argument.
        others: Names, other than those of LLMs, that the argument accepts.

    Raises:
        UsageError: A name is an address, or that of no known model.
    """
    if given is None:
        return None
    if isinstance(given, Mapping):
        settings = {str(key): value for key, value in given.items()}
        if "backend" in settings:
            return settings
        if "base_url" in settings or not isinstance(settings.get("model"), str):
            return {"backend": "openai", **settings}
        named_model = llm_settings(settings.pop("model"), where) or {}
        return {**named_model, **settings}
    if isinstance(given, str):
        backend, mark, model = given.partition(":")
        if mark and is_known("backend", backend):
            return {"backend": backend, "model": model, **({"api_key_env": KEY} if backend == "openai" else {})}
        if is_known("backend", given) and given not in ("openai", PYTHON):
            return {"backend": given} if given == "scripted" else {"backend": given, "model": given}
        if given in catalogue() or given.endswith(".gguf"):
            return {"backend": "embedded", "model": given, "temperature": 0.7, "max_tokens": 512}
        return {"backend": "openai", "model": openai_model(where, given, others), "api_key_env": KEY}
    return _function(where, given, "python", "a function of messages, [{'role': ..., 'content': ...}]", most=1)


def _function(where: str, given: Any, backend: str, wanted: str, most: int) -> dict[str, Any]:
    given = synchronous(given)
    inner = given.value if isinstance(given, Function) else given
    if not callable(inner):
        raise UsageError(
            f"{where}: a {type(inner).__name__} is not a model: give a name, a mapping of settings, or {wanted}"
        )
    needed = required(inner)
    if needed and len(needed) > most:
        raise UsageError(f"{where}: {name_of(inner)} needs {', '.join(needed)}: it must be {wanted}")
    function = named(given)
    settings = {"backend": backend, "model": function["name"], "version": function["version"]}
    return {**settings, **({"place": function["place"]} if "place" in function else {})}


def judge_settings(given: Any) -> Any:
    """Return the `control.judge` setting for "votes", a model's name, a mapping, or a function of messages or of
    pairs."""
    if isinstance(given, Mapping):
        settings = {str(key): value for key, value in given.items()}
        if "llm" not in settings and settings.keys() & {"model", "base_url", "backend"}:
            return {"llm": llm_settings(settings, "judge")}  # the mapping that `llm` takes
        return {**settings, "llm": llm_settings(settings["llm"], "judge")} if "llm" in settings else settings
    kinds = {VOTES, NONE, *REGISTRY["judge"]}
    if isinstance(given, str):
        is_kind = given in kinds or is_known("judge", given)
        return {"kind": given} if is_kind else {"llm": llm_settings(given, "judge", kinds)}
    inner = given.value if isinstance(given, Function) else given
    if callable(inner) and len(required(inner)) >= 2:
        wanted = "a function of (query, passages)"
        return {"kind": PYTHON, "llm": _function("judge", given, "python-judge", wanted, most=2)}
    return {"llm": llm_settings(given, "judge")}


def part_settings(part: str, given: Any) -> Any:
    """Return the setting for a re-ranker or embedder given as a name, a mapping, a function or a model."""
    inner = given.value if isinstance(given, Function) else given
    if is_written(inner):
        return dict(inner) if isinstance(inner, Mapping) else inner
    settings = build(part, given)
    if hasattr(settings, "settings") and hasattr(settings.settings, "version"):
        return {
            "kind": PYTHON,
            **settings.settings.model_dump(include={"name", "version", "place"}, exclude_defaults=True),
        }
    return {"kind": PYTHON, **named(given)}


def systems_text(systems: Sequence[SystemSettings]) -> str:
    """Return the text of a systems YAML."""
    return yaml.safe_dump(
        {"systems": [system.model_dump(mode="json", exclude_unset=True) for system in systems]}, sort_keys=False
    )


def _profile(machine: Machine) -> str:
    words = [
        machine.profile,
        "an LLM" if machine.key else "a small LLM",
        *(["numba"] if "numba" in machine.packages else []),
    ]
    return ", ".join(words)


def _kept_profile(path: Path) -> str:
    """Return the profile for which the existing pipeline was written: a job keeps its defaults, whatever is
    installed."""
    if not path.is_file():
        return ""
    match = _PROFILE.search(path.read_text(encoding="utf-8", errors="replace"))
    return match[1].strip() if match else ""


def _machine_of(profile: str, machine: Machine) -> Machine:
    """Return a machine with a profile's defaults. The `llm` setting, not the profile, determines the LLM."""
    words = profile.split(", ")
    torch = frozenset({"torch", "sentence_transformers"}) if words[0] in ("paper", "torch") else frozenset()
    packages = frozenset({"numba"} if "numba" in words else ()) | torch
    return replace(machine, packages=packages, gpu=words[0] == "paper", small=words[0] == "small")

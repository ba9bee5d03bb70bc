"""Convert systems given in Python to settings: names, specs, runs, functions, models, retrievers and components.

    systems_of({"bm25": "bm25", "new": SentenceTransformer("..."), "site": my_search, "old": {"q1": {"d3": 0.7}}})

What is settings already (a YAML file, a name, a mapping with `kind`) stays so. What is an object gets a name and a
version (`airgen.components.user_functions`), so its results are kept like those of any other system.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from airgen import models
from airgen.components.registry import is_known, meant, names
from airgen.components.user_functions import Function, name_of, named, refuse, synchronous
from airgen.dataset.beir import read_qrels
from airgen.errors import SettingsError, UsageError
from airgen.evaluation.run import Run, read_run, run_from_dict
from airgen.evaluation.systems import SystemSettings, SystemsFile, in_order, load_systems
from airgen.evaluation.user_search import check_search, is_search
from airgen.retrievers.component import Component
from airgen.retrievers.protocols import Retriever
from airgen.retrievers.user_models import Own, OwnEmbedder, OwnReranker, is_embedding
from airgen.settings.base import find_yaml, validate
from airgen.settings.hosted import PROVIDERS, hosted_embedder
from airgen.settings.user_function import PYTHON

_RUNS = (".run", ".trec", ".run.gz", ".trec.gz", ".run.txt")
_NO_NAME = re.compile(r"[^A-Za-z0-9._+-]+")


def systems_of(given: Any) -> tuple[list[SystemSettings], Path]:
    """Return the systems in order, each after the systems on which it builds.

    Args:
        given: A systems YAML or its name; one system; a mapping of names to systems; or a list of systems. A system is
            a kind ("bm25"), a model's name, a run file, a mapping with `kind`, a run {query id: {passage id: score}}, a
            function, an object with `encode`, a retriever of llama-index or LangChain, or a component of airgen.

    Returns:
        The systems, and the folder where their relative paths start.

    Raises:
        SettingsError: Settings of a system are wrong.
        UsageError: An object is not a system, or is the result of a call instead of the function itself.
    """
    if isinstance(given, str | Path) and (path := _file(given)) is not None:
        return load_systems(path), path.resolve().parent
    if isinstance(given, SystemSettings):
        given = [given]
    if isinstance(given, Mapping) and _is_many(given):
        pairs = [(str(name), value) for name, value in given.items()]
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping | Path) and not is_search(given):
        pairs = [("", value) for value in given]
    else:
        pairs = [("", given)]
    if not pairs:
        raise UsageError("no system is given: name one, such as {'bm25': 'bm25'}")
    values = [value if isinstance(value, SystemSettings) else _settings(name, value) for name, value in pairs]
    mappings = [
        value.model_dump(exclude_unset=True) if isinstance(value, SystemSettings) else value for value in values
    ]
    file = validate({"systems": mappings}, SystemsFile, "systems", folder=Path.cwd())
    return in_order(file.systems), Path.cwd()


def _is_many(given: Mapping[Any, Any]) -> bool:
    """Return whether a mapping holds systems by name, rather than one system's settings or one run's hits."""
    return not (isinstance(given.get("kind"), str) or is_run(given))


def is_run(given: Any) -> bool:
    """Return whether an object is a run as in pytrec_eval and ranx: {query id: {passage id: score}}."""
    if not isinstance(given, Mapping) or not given:
        return False
    rows = list(given.values())
    some = next((row for row in rows if isinstance(row, Mapping) and row), None)
    if not all(isinstance(row, Mapping) for row in rows) or some is None or "kind" in some:
        return False
    return not isinstance(next(iter(some.values())), Mapping)


def _file(given: str | Path) -> Path | None:
    """Return the systems YAML with this name, or None if it is the name of a single system."""
    text = str(given)
    if is_known("retriever", text) or text.lower().endswith(_RUNS):
        return None
    try:
        path = find_yaml("pipelines", given)
    except SettingsError:
        return None
    return path if path.is_file() or path.suffix in (".yaml", ".yml") else None


def _settings(name: str, value: Any) -> dict[str, Any]:
    """Convert a system to an entry of a systems YAML."""
    value = synchronous(value)
    given = value.value if isinstance(value, Function) else value
    called = name or (value.name if isinstance(value, Function) else "")
    if isinstance(given, str) and name in PROVIDERS and _is_a_model_name(given):
        return {"name": name, "kind": "dense", "embedder": {name: given}}
    if isinstance(given, str | Path):
        return _by_name(called, given)
    refuse(given)
    if hasattr(given, "to_dict") and type(given).__module__.partition(".")[0] == "ranx":
        called, given = called or str(getattr(given, "name", "") or ""), given.to_dict()
    if isinstance(given, Mapping):
        if isinstance(given.get("kind"), str):
            return {
                "name": called or str(given.get("name") or given["kind"]),
                **given,
                **({"name": name} if name else {}),
            }
        if "kind" in given and not is_run(given):  # a function, retriever or run with settings, such as `best`
            own = _settings(called, given["kind"])
            return {**own, **{key: setting for key, setting in given.items() if key != "kind"}, "name": own["name"]}
        if (hosted := hosted_embedder(given)) is not None:
            return {"name": called or _plain(str(hosted["model"])), "kind": "dense", "embedder": dict(given)}
        if not is_run(given):
            raise UsageError(
                f"system {called or given!r}: a mapping is a system with its `kind`, or a run {{query id: {{passage "
                f"id: score}}}}, not {{{', '.join(map(repr, list(given)[:3]))}: ...}}"
            )
        return _own(called or "run", _checked_run(called or "run", given))
    if isinstance(given, OwnReranker):
        raise UsageError(
            f"{called or name_of(given)}: a re-ranker needs a first stage: {{'kind': 'rerank', 'first': ...}}"
        )
    if isinstance(given, Component) and not isinstance(given, Own):
        if not isinstance(given, Retriever):
            raise UsageError(
                f"{called or name_of(given)}: a {type(given).__name__} is not a retriever: Dense(...) makes one"
            )
        return _own(called or name_of(given), given)
    embeds = any(
        callable(getattr(given, method, None)) for method in ("encode", "embed_documents", "get_query_embedding")
    )
    embeds = (embeds and not callable(getattr(given, "search", None))) or is_embedding(given)
    if isinstance(given, OwnEmbedder) or embeds:
        from airgen.retrievers.dense.retriever import Dense

        embedder = given if isinstance(given, OwnEmbedder) else OwnEmbedder.of(value)
        return _own(called or name_of(given), Dense(embedder))
    check_search(given, called or name_of(given))
    return _own(called, value)


def _is_a_model_name(given: str) -> bool:
    """Return whether a text can only be the name of a provider's model, and of nothing on this machine or the Hub."""
    known = is_known("retriever", given) or given in models.catalogue()
    return not (known or "/" in given or given.lower().endswith(_RUNS) or Path(given).exists())


def _own(name: str, value: Any) -> dict[str, Any]:
    """Convert an object to a system of kind `python`."""
    given = value if isinstance(value, Function) else Function(value)
    name = _plain(name or given.name or name_of(given.value))
    function = named(Function(given.value, name, given.version))
    return {**function, "kind": PYTHON}


def _by_name(name: str, given: str | Path) -> dict[str, Any]:
    """Return the system for the name of a retriever kind, a run file, or a model (a dense system)."""
    text = str(given)
    if isinstance(given, Path) or text.lower().endswith(_RUNS):
        path = Path(given)
        if not path.is_file():
            raise UsageError(f"{text}: no such file")
        return {"name": name or _plain(path.name.partition(".")[0]), "kind": "run", "path": str(path.resolve())}
    if is_known("retriever", text) or ":" in text:
        return {"name": name or _plain(text), "kind": text}
    near = meant(text, names("retriever"), 0.75)
    if near and "/" not in text and not Path(text).exists():
        raise UsageError(f"no system is named {text!r}{near}")
    return {"name": name or _plain(Path(text).name), "kind": "dense", "embedder": text}


def _checked_run(name: str, given: Mapping[Any, Any]) -> dict[str, dict[str, float]]:
    """Return a run with text ids and numeric scores. Raises UsageError for scores that are text."""
    run: dict[str, dict[str, float]] = {}
    for query, hits in given.items():
        row = run[str(query)] = {}
        for passage, score in hits.items():
            if isinstance(score, str | bool) or not hasattr(score, "__float__"):
                raise UsageError(
                    f"the run {name}: query {query!r}: passage {passage!r} has the score {score!r}: a number is needed"
                )
            row[str(passage)] = float(score)
    return run


def _plain(name: str) -> str:
    """Return a valid system name, with only letters, digits and `._+-`."""
    return _NO_NAME.sub("-", name).strip("-._+")[:100]


def run_given(given: Any, name: str) -> Run:
    """Read a run from a file or from {query id: {passage id: score}}.

    Raises:
        DatasetError: The file is not a run.
        UsageError: The object is not a run.
    """
    if isinstance(given, str | Path):
        return read_run(given)
    values = given.to_dict() if hasattr(given, "to_dict") else given
    if not is_run(values):
        raise UsageError(
            f"{name}: a run is a file, or {{query id: {{passage id: score}}}}, not a {type(given).__name__}"
        )
    return run_from_dict(_checked_run(name, values))


def labels_given(given: Any) -> dict[str, dict[str, float]]:
    """Read labels from a qrels file, from {query id: {passage id: label}}, or from a Benchmark.

    Raises:
        DatasetError: The file is not a qrels file.
        UsageError: The object has no labels.
    """
    if isinstance(given, str | Path):
        return read_qrels(given).labels
    values = getattr(given, "qrels", given)
    values = values.to_dict() if hasattr(values, "to_dict") else values
    if not is_run(values):
        raise UsageError(
            f"qrels: a file, or {{query id: {{passage id: label}}}}, is needed, not a {type(given).__name__}"
        )
    return _checked_run("qrels", values)

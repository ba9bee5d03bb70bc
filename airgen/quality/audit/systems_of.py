"""The systems of a folder of results: their runs, their families, and which of them share a model with the judge."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from airgen.dataset.manifest import load_manifest
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.result import Paths
from airgen.kept import DAMAGE, read_json
from airgen.registry import REGISTRY, closest

_RUN = ".run.gz"


def find_runs(results: Path, wanted: Sequence[str]) -> dict[str, Path]:
    """{system: run file}. `wanted` are names of the results or run files; all of the results if it is empty.

    Raises UsageError for a system that is not there.
    """
    known = {path.name.removesuffix(_RUN): path for path in sorted(results.glob(f"*{_RUN}"))}
    if not wanted:
        if len(known) < 2:
            raise UsageError(f"{results}: {len(known)} systems: evaluate two with `airgen evaluate`, or name run files")
        return known
    found: dict[str, Path] = {}
    for name in wanted:
        path = Path(name)
        if name not in known and not path.is_file():
            raise UsageError(f"{name!r} is neither a system of {results} nor a run file{closest(name, list(known))}")
        key = name if name in known else path.name.removesuffix(".gz").removesuffix(".run").removesuffix(".trec")
        if key in found:
            raise UsageError(f"two systems are named {key!r}: rename a run file")
        found[key] = known.get(name, path)
    return found


def families_of(results: Path, names: Collection[str]) -> dict[str, str]:
    """{system: family}: lexical, dense, sparse, late, or hybrid for a system that builds on others.

    A system that has no result here, such as a run file, has no family.
    """
    found = {}
    for name in names:
        kind = str(_result(results, name).get("kind") or "")
        module = REGISTRY["retriever"].get(kind, "").partition("airgen.retrievers.")[2]
        family = "hybrid" if kind in ("fuse", "rerank") else module.split(".")[0]
        if family and family != "http":
            found[name] = family
    return found


def share_models(dataset: Path, results: Path, names: Collection[str]) -> list[str]:
    """The systems that share a model, or a kind such as bm25, with those that made the dataset's labels."""
    try:
        used = {use.model for use in load_manifest(dataset).provenance if use.role not in ("generation", "generator")}
    except DatasetError:  # a collection without a manifest says nothing of how its labels came about
        return []
    return [name for name in names if used & _parts(results, name, frozenset())]


def _parts(results: Path, name: str, seen: frozenset[str]) -> set[str]:
    """The kinds and models of a system and of those that it builds on."""
    result = _result(results, name)
    words = {str(result.get("kind")), *_words(result.get("settings"))}
    return words.union(*(_parts(results, word, seen | {name}) for word in words - seen - {name}))


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _words(part)
    elif isinstance(value, list):
        for part in value:
            yield from _words(part)


def _result(results: Path, name: str) -> dict[str, Any]:
    try:
        return read_json(Paths.of(results, name).json)
    except DAMAGE:
        return {}

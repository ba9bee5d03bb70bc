"""Everything that a job needs, looked at before it begins: keys, models, extras, disk, licence."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airgen.corpus.needs import missing
from airgen.errors import AirgenError
from airgen.llms.base import backend_class
from airgen.pipeline.job import Job
from airgen.registry import resolve

__all__ = ["preflight"]

FREE_BYTES = 1 << 30  # what a small job writes, with room to spare


def preflight(job: Job) -> list[str]:
    """One line for each thing that is missing; nothing is loaded, nothing is asked."""
    problems: list[str] = []

    def attempt(work: Callable[[], object]) -> None:
        try:
            work()
        except AirgenError as error:
            problems.extend(str(error).splitlines())

    pipeline, control = job.pipeline, job.pipeline.control
    problems += missing(job.corpus, pipeline.task)
    for llm in pipeline.llms.values():
        attempt(lambda llm=llm: problems.extend(backend_class(llm).missing(llm)))  # type: ignore[misc]
    for judge in control.judge.members:
        attempt(lambda name=judge.prompt: job.prompts.get(name))  # type: ignore[misc]
    models = [*control.rerankers] if control.recall.pools_only else [control.recall.model, *control.rerankers]
    models += [pipeline.generation.meaning.model] if pipeline.generation.meaning else []
    pools = [{"kind": pool} if isinstance(pool, str) else pool for pool in control.pools]
    for kind in [str(pool.get("kind")) for pool in pools]:
        attempt(lambda kind=kind: resolve("retriever", kind))  # type: ignore[misc]
    for name in [*map(_named, models), *map(_named, pools)]:
        if name:
            attempt(lambda name=name: _local_model(name, problems))  # type: ignore[misc]
    place = next(folder for folder in [job.directory, *job.directory.resolve().parents] if folder.exists())
    if shutil.disk_usage(place).free < FREE_BYTES:
        problems.append(f"{place}: less than 1 GB is free on this disk")
    return list(dict.fromkeys(problems))


def _named(model: str | dict[str, Any]) -> str | None:
    """The model of a spec, which a kind such as bm25 or http lacks, or brings from elsewhere."""
    if isinstance(model, str):
        return model
    found = model.get("model") or model.get("embedder")
    if isinstance(found, dict):
        return _named(found)
    elsewhere = model.get("kind") == "http" or (isinstance(found, str) and Path(found).exists())
    return str(found) if found and not elsewhere else None


def _local_model(name: str, problems: list[str]) -> None:
    from airgen.models import catalogue, fetched

    needed = {"maxsim": "all-minilm-l6-v2-int8", "splade": "splade-bert-tiny", "dense": "all-minilm-l6-v2-int8"}
    name = needed.get(name, name)
    if name == "bm25":
        return
    if name in catalogue():
        if not fetched(name):
            problems.append(f"the model {name} is not here: airgen models fetch {name}")
    elif importlib.util.find_spec("sentence_transformers") is None:
        problems.append(f"the model {name} needs torch and more: pip install 'airgen-bench[models]'")

"""A rehearsal: every local model of a job is loaded and used once, before the first paid call.

A model that is missing on the Hub, a wrong key of an embedding endpoint, or too little memory is found in the first
minute, not after the generation that was paid for. Each model is let go again: the generation may need its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from airgen.errors import ModelError
from airgen.evaluation.systems import load_systems
from airgen.keys import content_key
from airgen.pipeline.job import Job
from airgen.pipeline.progress import Display
from airgen.registry import names
from airgen.retrievers import Component, Corpus, load_embedder, load_reranker, load_retriever
from airgen.retrievers.base import CorpusReranker
from airgen.settings.base import Spec
from airgen.settings.parts import parts

__all__ = ["rehearse"]

QUERY, PASSAGE = "how do bees find flowers", "Bees find flowers by colour and by scent."
_TEXTS = (PASSAGE, "Lighthouses warn ships of rocks.")

Load = Callable[[], Any]


def rehearse(job: Job, display: Display, *, until: str | None = None, evaluate: bool = True) -> None:
    """Load and use each model that the run will use; `until` and `evaluate` as for `preflight`.

    Raises ModelError, MissingExtra and UsageError with the place in the YAML.
    """
    wanted = {content_key([kind, spec]): (place, load) for place, kind, spec, load in _models(job, until, evaluate)}
    if not wanted:
        return
    with display.stage("models", len(wanted)) as bar:
        for place, load in wanted.values():
            try:
                _use(load(), Corpus(["a", "b"], _TEXTS, language=job.pipeline.language))
            except (OSError, RuntimeError, ValueError, ImportError) as error:
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
                raise ModelError(f"{place}: the model cannot be used: {reason}") from error
            bar.advance(note=place)


def _models(job: Job, until: str | None, evaluate: bool) -> Iterator[tuple[str, str, Any, Load]]:
    """(place in the YAML, kind of part, spec, how to load it)"""
    pipeline, folder = job.pipeline, job.folder
    generation, control = pipeline.generation, pipeline.control
    if until == "corpus":
        return
    if generation.meaning is not None and generation.rewrites:
        yield _one("generation.meaning.model", "embedder", generation.meaning.model, folder)
    if until == "hard_negative":
        return
    if not control.recall.pools_only:
        yield _one("control.recall.model", "embedder", control.recall.model, folder)
    for number, spec in enumerate(control.pools):
        yield _one(f"control.pools.{number}", "retriever", spec, folder)
    for number, spec in enumerate(control.rerankers):
        yield _one(f"control.rerankers.{number}", "reranker", spec, folder)
    path = job.systems_file
    if until is None and evaluate and path is not None:
        own = path.resolve().parent
        for system in load_systems(path):
            where = f"{path.name}: system {system.name}"
            if system.kind == "rerank":
                options = system.options(own)
                for name, part in parts(type(options)):
                    value = getattr(options, name)
                    if isinstance(value, str | dict):
                        yield _one(where, part.kind, value, own)
            elif system.kind != "fuse" and (":" in system.kind or system.kind in names("retriever")):
                yield _one(where, "retriever", {"kind": system.kind, **system.settings}, own)


def _one(place: str, kind: str, spec: Spec, folder: Path) -> tuple[str, str, Any, Load]:
    loaders: dict[str, Callable[[Spec, Path], Any]] = {
        "embedder": load_embedder,
        "reranker": load_reranker,
        "retriever": load_retriever,
    }
    return place, kind, [spec, str(folder)], lambda: loaders[kind](spec, folder)


def _use(part: Any, corpus: Corpus) -> None:
    """Use a component once; one that only joins others is used through its parts."""
    if isinstance(part, CorpusReranker):
        part.fit(corpus)
    if hasattr(part, "score"):
        part.score([(QUERY, PASSAGE)])
    elif hasattr(part, "encode"):
        part.encode([QUERY], "query")
    elif hasattr(part, "token_vectors"):
        part.token_vectors([QUERY], "query")
    elif isinstance(part, Component):
        for held in part.components():
            _use(held, corpus)

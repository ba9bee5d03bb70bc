"""Everything that a job needs, checked before it begins: keys, models, files, extras, disk, the systems to evaluate."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from airgen.corpus.needs import missing
from airgen.errors import AirgenError
from airgen.evaluation.systems import load_systems, missing_needs
from airgen.llms.base import backend_class
from airgen.pipeline.engines import unpriced
from airgen.pipeline.job import Job
from airgen.settings.parts import needs, walk

__all__ = ["preflight"]

FREE_BYTES = 1 << 30  # what a small job writes, with room to spare


def preflight(job: Job) -> list[str]:
    """One line for each thing that is missing; nothing is loaded, and no model is asked."""
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
    if pipeline.llm.budget_usd is not None:
        attempt(lambda: problems.extend(unpriced(pipeline)))
    for judge in control.judge.members:
        attempt(lambda name=judge.prompt: job.prompts.get(name))  # type: ignore[misc]
    for place, _, settings in walk(pipeline, job.folder):
        if not (control.recall.pools_only and place.startswith("control.recall.model")):
            problems.extend(f"{place}: {line}" for line in needs(settings, job.folder))
    attempt(lambda: _systems(job, problems))
    folder = next(folder for folder in [job.directory, *job.directory.resolve().parents] if folder.exists())
    if shutil.disk_usage(folder).free < FREE_BYTES:
        problems.append(f"{folder}: less than 1 GB is free on this disk")
    return list(dict.fromkeys(problems))


def _systems(job: Job, problems: list[str]) -> None:
    path = job.systems_file
    if path is not None:
        lines = missing_needs(load_systems(path), path.resolve().parent)
        problems.extend(f"{path.name}: {line}" for line in lines)

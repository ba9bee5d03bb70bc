"""Everything that a job needs, checked before it begins: keys, models, files, extras, disk, the systems to evaluate.

preflight(job)      # one line for each thing that is missing; `airgen check` prints them
ensure_ready(job)   # the same as an error; `airgen run` and `airgen agree` call it before anything is read or paid
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from airgen import models
from airgen.corpus.needs import missing
from airgen.errors import AirgenError, SettingsError
from airgen.evaluation.systems import labelling_models, load_systems, made_labels, missing_needs
from airgen.languages import language_name
from airgen.llms.base import backend_class
from airgen.pipeline.control.judge import judge_kind
from airgen.pipeline.control.judge_kinds import YesNo
from airgen.pipeline.engines import unpriced
from airgen.pipeline.job import Job
from airgen.pipeline.multi_hop import PARTNERS
from airgen.pipeline.starter import MULTILINGUAL
from airgen.registry import installed
from airgen.settings.parts import model_of, needs, walk
from airgen.settings.yaml_file import find_yaml

__all__ = ["advice", "ensure_ready", "preflight"]

FREE_BYTES = 1 << 30  # what a small job writes, with room to spare


def preflight(
    job: Job, *, until: str | None = None, evaluate: bool = True, budget_usd: float | None = None
) -> list[str]:
    """One line for each thing that is missing; nothing is loaded, and no model is asked.

    `until` (corpus, hard_negative, judgment) and `evaluate=False` leave out what a run that ends earlier does not use.
    `budget_usd`: a budget that replaces the pipeline's.
    """
    problems: list[str] = []

    def attempt(work: Callable[[], object]) -> None:
        try:
            work()
        except AirgenError as error:
            problems.extend(str(error).splitlines())

    pipeline, control = job.pipeline, job.pipeline.control
    problems += missing(job.corpus, pipeline.task)
    if until != "corpus":
        if pipeline.generation.multi_hop and pipeline.task == "qa" and job.corpus.chunk is None:
            problems.append(f"generation.multi_hop: each document of this corpus is one passage: {PARTNERS}")
        for llm in pipeline.llms.values():
            attempt(lambda llm=llm: problems.extend(backend_class(llm).missing(llm)))  # type: ignore[misc]
        if budget_usd is not None or pipeline.llm.budget_usd is not None:
            attempt(lambda: problems.extend(unpriced(pipeline)))
        for judge in control.judge.members:
            attempt(lambda name=judge.prompt: job.prompts.get(name))  # type: ignore[misc]
        for place, _, settings in walk(pipeline, job.folder):
            later = until == "hard_negative" and place.startswith("control.")
            if not later and not (control.recall.pools_only and place.startswith("control.recall.model")):
                problems.extend(f"{place}: {line}" for line in needs(settings, job.folder))
    if control.systems is not None and until not in ("corpus", "hard_negative"):
        own = control.systems
        attempt(lambda: _systems(find_yaml("pipelines", own, job.path.parent), problems))
    if evaluate and until is None and (systems := job.systems_file) is not None:
        attempt(lambda: _systems(systems, problems))
    if pipeline.compute.kind == "ray":
        problems += installed("ray", "compute: ray")
    problems += _folder_problems(job.directory)
    return list(dict.fromkeys(problems))


def advice(job: Job) -> list[str]:
    """One line for each setting that works, but not well."""
    found = []
    ours, theirs = job.pipeline.language, job.corpus.language
    if job.pipeline.queries is None and ours != theirs:
        found.append(
            f"language: queries will be written in {language_name(ours)}, and the corpus is in {language_name(theirs)}:"
            f" write language: {theirs} unless you want that"
        )
    for judge in job.pipeline.control.judge.members:
        llm = judge.llm or job.pipeline.llm
        if backend_class(llm).SMALL and judge_kind(judge).GRADED:
            found.append(
                f"control.judge: levels of a small model such as {llm.model} say little (the prompt {judge.prompt!r} "
                f"is for large ones): write judge: {{kind: yes-no, prompt: {YesNo.PROMPT}, threshold: 0.5}}"
            )
    if job.pipeline.cross_lingual or not (job.pipeline.control.judge.members or job.pipeline.language == "en"):
        found += _one_language(job)
    found += _circular(job)
    return list(dict.fromkeys(found))


def _circular(job: Job) -> list[str]:
    """Which of the systems to evaluate will have made their own labels."""
    try:
        systems = load_systems(job.systems_file) if job.systems_file is not None else []
        makers = labelling_models(job.pipeline.control, job.folder)
        found = made_labels(systems, makers, job.systems_file.parent if job.systems_file is not None else None)
    except (AirgenError, ValueError):
        return []  # `preflight` says what is wrong with them
    if not found:
        return []
    names = ", ".join(f"{name} ({', '.join(parts)})" for name, parts in found.items())
    return [
        f"evaluate.systems: {len(found)} of {len(systems)} share a model with recall or votes, so their scores may be "
        f"too high: {names}"
    ]


LEXICAL = frozenset({"bm25", "rm3", "query-likelihood", "lsa", "augment", "expanded", "deepct", "sparta", "sparse"})
"""Retrievers that compare words, and find nothing across languages but names and numbers."""
_ENGLISH = re.compile(
    r"(?:^|[-_/.])en(?:glish)?(?:[-_/.]|$)|all-minilm|all-mpnet|msmarco-(?:minilm|distil|bert)|splade"
)


def _one_language(job: Job) -> list[str]:
    """What in recall and votes does not know both languages of a cross-lingual job."""
    pipeline, found = job.pipeline, []
    asked, corpus = language_name(pipeline.query_language), language_name(pipeline.language)
    for place, kind, settings in walk(pipeline.control, job.folder, "control"):
        if pipeline.control.recall.pools_only and place.startswith("control.recall.model"):
            continue
        model = model_of(settings)
        if kind in LEXICAL or (kind == "maxsim" and model is None):
            found.append(
                f"{place}: {kind} compares words: queries in {asked} share hardly any with passages in {corpus}"
            )
        if model and (_says_english(model) or _ENGLISH.search(model.lower())):
            found.append(
                f"{place}: {model} knows English only, and cannot compare {asked} with {corpus}: choose a multilingual "
                f"model, such as BAAI/bge-m3, BAAI/bge-reranker-v2-m3 or {MULTILINGUAL}"
            )
    generation = pipeline.generation
    if generation.max_overlap or generation.max_title_overlap:
        found.append("generation: max_overlap and max_title_overlap compare words, so they do nothing across languages")
    return found


def _says_english(model: str) -> bool:
    """Whether the catalogue says of a model that it is for English."""
    entry = models.catalogue().get(model)
    return entry is not None and "English" in entry.purpose


def ensure_ready(job: Job, *, until: str | None = None, evaluate: bool = True, budget_usd: float | None = None) -> None:
    """Raise SettingsError with every line of `preflight`, if there is one."""
    if problems := preflight(job, until=until, evaluate=evaluate, budget_usd=budget_usd):
        raise SettingsError(problems)


def _systems(path: Path, problems: list[str]) -> None:
    lines = missing_needs(load_systems(path), path.resolve().parent)
    problems.extend(f"{path.name}: {line}" for line in lines)


def _folder_problems(directory: Path) -> list[str]:
    """Why a job's directory cannot be made or written."""
    nearest = next(folder for folder in [directory, *directory.absolute().parents] if folder.exists())
    if not nearest.is_dir():
        return [f"{nearest}: a file stands where a folder is needed: choose another folder (--runs)"]
    if not os.access(nearest, os.W_OK | os.X_OK):
        return [f"{nearest}: you may not write in this folder: choose another one (--runs)"]
    if shutil.disk_usage(nearest).free < FREE_BYTES:
        return [f"{nearest}: less than 1 GB is free on this disk"]
    return []

"""Arguments and options that several commands share, each with its help text. The commands set the defaults."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from airgen.errors import AirgenError, UsageError
from airgen.paths import fetched_collection

Place = str | Path
Places = str | Path | Sequence[str | Path]
Systems = str | Path | Mapping[str, Any] | Sequence[Any] | Callable[..., Any]
"""A systems YAML; in Python also names, specs, runs, functions, models, retrievers (`airgen.python.systems`)."""
RunGiven = str | Path | Mapping[str, Mapping[str, float]]
"""A run file or qrels file; in Python also {query id: {passage id: number}}."""


def finite(value: float | None) -> float | None:
    """The value of an option, where it is a number. Neither limit of a range keeps NaN out."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


def arg(name: str, about: str, **limits: Any) -> Any:
    """An argument: its name in the help text, and what it is."""
    return typer.Argument(metavar=name, help=about, **limits)


def opt(about: str, *names: str, **limits: Any) -> Any:
    """An option: what it is, its names (by default that of the parameter), its limits."""
    return typer.Option(*names, help=about, **limits)


def number(about: str, *names: str, **limits: Any) -> Any:
    """An option that is a finite number."""
    return typer.Option(*names, help=about, callback=finite, **limits)


def path_or_none(given: Place | None) -> Path | None:
    """The path of an option that may be missing."""
    return None if given is None else Path(given)


def dataset_of(given: Place) -> Path:
    """The folder of a dataset, which is its own name; a finished job's dataset by any of the names of the job; or a
    fetched collection by its name (`scifact`).

    Raises UsageError for a job that has no dataset yet.
    """
    from airgen.pipeline.job import Job
    from airgen.pipeline.show import find_place, is_job

    path = Path(given)
    if path.is_dir() and not is_job(path):
        return path
    try:
        job = Job(*find_place(path))
    except AirgenError:
        return fetched_collection(path) or path  # none of them: who reads it says what it lacks
    if not job.dataset.is_dir():
        raise UsageError(f"{given}: this job has no dataset yet: run `airgen run {job.path}`")
    return job.dataset


def paths(given: Places) -> list[Path]:
    """One path or several as a list."""
    return [Path(given)] if isinstance(given, str | os.PathLike) else [Path(one) for one in given]


Runs = Annotated[
    Place | None, opt("Folder that holds the work directories of jobs. Default: runs beside the pipeline's file.")
]
JobName = Annotated[Place, arg("JOB", "A pipeline's YAML or name (quickstart), or a job's name or work directory.")]
Target = Annotated[int | None, opt("Number of accepted queries to generate; replaces the pipeline's `target`.", min=1)]
Budget = Annotated[
    float | None,
    number("Maximum cost in US dollars, earlier runs of this work included. At the limit the command stops; run it "
           "again with a higher limit to go on.", "--budget", min=0),
]  # fmt: skip
Dataset = Annotated[
    Place,
    arg("DATASET", "A dataset directory in BEIR format, a fetched collection (scifact), or a finished job."),
    dataset_of,
]
Datasets = Annotated[
    Places,
    arg("DATASET", "Dataset directories in BEIR format, fetched collections (scifact), or finished jobs."),
    dataset_of,
]
DatasetOrSuite = Annotated[
    Place, arg("DATASET|SUITE", "A finished dataset, its job, or a finished version of a suite."), dataset_of
]
Compute = Annotated[
    str | None,
    opt("Where heavy work runs: local, local:8 (processes), ray, ray:8, ray://HOST:10001. Results are the same.",
        metavar="WHERE"),
]  # fmt: skip
Quiet = Annotated[bool, opt("Print only what went wrong.", "--quiet", "-q")]
Split = Annotated[str, opt("The split whose relevance labels (qrels) are used.")]
Seed = Annotated[int, opt("Seed of the random choices.")]
Language = Annotated[str | None, opt("Language of the corpus, if the dataset has no manifest that names it.")]
PassageLimit = Annotated[int | None, opt("Maximum number of passages to read.", min=1)]
Device = Annotated[str | None, opt("Where to compute: cpu, cuda, cuda:1, mps, ... By default a GPU if there is one.")]
IgnoreIdenticalIds = Annotated[bool, opt("Leave out hits whose id is the query's own id (ArguAna, Quora).")]

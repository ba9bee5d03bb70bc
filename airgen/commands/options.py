"""Arguments and options that several commands share, with their help texts. The commands set the defaults."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from airgen.errors import AirgenError, UsageError
from airgen.storage.paths import fetched_collection

Place = str | Path
Places = str | Path | Sequence[str | Path]
Bench = str | os.PathLike[str]
"""A folder; in Python also a Benchmark."""
Systems = str | Path | Mapping[str, Any] | Sequence[Any] | Callable[..., Any]
"""A systems YAML; in Python also names, specs, runs, functions, models or retrievers."""
RunGiven = str | Path | Mapping[str, Mapping[str, float]]
"""A run file or qrels file; in Python also {query id: {passage id: number}}."""
IN_PYTHON: dict[Any, str] = {
    Bench: "Also a Benchmark.",
    Bench | Sequence[Bench]: "Also a Benchmark, or a list of these.",
    RunGiven: "Also {query id: {passage id: number}}.",
    Systems: "Also a name ('bm25', 'BAAI/bge-m3'), a function of a query or of (queries, k), a model with `encode`, a "
    "retriever, a run {query id: {passage id: score}}, a mapping with `kind`, or {name: any of these}.",
}
"""What an argument of this type also accepts in Python."""


def finite(value: float | None) -> float | None:
    """Return the value of an option. Raises BadParameter for NaN and infinity, which range limits allow."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


def arg(name: str, about: str, **limits: Any) -> Any:
    """Declare an argument, with its name in the help text and a description."""
    return typer.Argument(metavar=name, help=about, **limits)


def opt(about: str, *names: str, **limits: Any) -> Any:
    """Declare an option, with a description, its names (default: the parameter's) and its limits."""
    return typer.Option(*names, help=about, **limits)


def number(about: str, *names: str, **limits: Any) -> Any:
    """Declare an option that takes a finite number."""
    return typer.Option(*names, help=about, callback=finite, **limits)


def path_or_none(given: Place | None) -> Path | None:
    """Return the path that an option names, or None."""
    return None if given is None else Path(given)


def dataset_of(given: Bench) -> Path:
    """Return the folder of a dataset.

    It may be given as the folder itself, as a finished job (its pipeline, name or work directory), or as the name of a
    fetched collection (`scifact`). Raises UsageError for a job that has no dataset yet.
    """
    from airgen.job.show import is_job, read_job

    path = Path(given)
    if path.is_dir() and not is_job(path):
        return path
    try:
        job = read_job(path)
    except AirgenError:
        return fetched_collection(path) or path  # the reader of the dataset reports what is wrong
    if not job.dataset.is_dir():
        raise UsageError(f"{given}: this job has no dataset yet: run `airgen run {job.words}`")
    return job.dataset


def paths(given: Bench | Sequence[Bench]) -> list[Path]:
    """Return one or more paths as a list."""
    return [Path(given)] if isinstance(given, str | os.PathLike) else [Path(path) for path in given]


Runs = Annotated[Place | None, opt("Folder of the jobs' work directories. Default: runs, next to the pipeline's file.")]
JobName = Annotated[
    Place, arg("JOB", "A pipeline (YAML or name, such as quickstart), or a job (name or work directory).")
]
Target = Annotated[int | None, opt("Number of accepted queries to generate; overrides the pipeline's `target`.", min=1)]
Budget = Annotated[
    float | None,
    number(
        "Maximum cost in US dollars, including earlier runs of this job. The command stops at the limit; run it "
        "again with a higher limit to continue.",
        "--budget",
        min=0,
    ),
]
Dataset = Annotated[
    Bench,
    arg("DATASET", "A dataset directory in BEIR format, a fetched collection (scifact), or a finished job."),
    dataset_of,
]
Datasets = Annotated[
    Bench | Sequence[Bench],
    arg("DATASET", "Dataset directories in BEIR format, fetched collections (scifact), or finished jobs."),
    dataset_of,
]
DatasetOrSuite = Annotated[
    Bench, arg("DATASET|SUITE", "A finished dataset, its job, or a finished version of a suite."), dataset_of
]
Compute = Annotated[
    str | None,
    opt(
        "Where heavy work runs: local, local:8 (processes), ray, ray:8, ray://HOST:10001. Does not affect results.",
        metavar="WHERE",
    ),
]
Quiet = Annotated[bool, opt("Print errors only.", "--quiet", "-q")]
Verbose = Annotated[
    bool, opt("Report progress every 5 s instead of 30 s without a terminal; list all reasons.", "--verbose", "-v")
]
Log = Annotated[
    Literal["text", "json"], opt("Format of standard error: `json` prints one line per stage, for machines.")
]
RetryFailed = Annotated[bool, opt("Retry LLM calls that failed in earlier runs.")]
Evaluate = Annotated[bool, opt("Evaluate the pipeline's systems when done.", "--evaluate/--no-evaluate")]
WritesReport = Annotated[bool, opt("Write the report when done.", "--report/--no-report")]
Split = Annotated[str, opt("Split whose relevance labels (qrels) are used.")]
Seed = Annotated[int, opt("Random seed.")]
Language = Annotated[str | None, opt("Language of the corpus, if the dataset's manifest does not give it.")]
PassageLimit = Annotated[int | None, opt("Maximum number of passages to read.", min=1)]
Device = Annotated[str | None, opt("Device: cpu, cuda, cuda:1, mps, ... Default: a GPU if available.")]
IgnoreIdenticalIds = Annotated[bool, opt("Ignore hits whose id equals the query's id (ArguAna, Quora).")]

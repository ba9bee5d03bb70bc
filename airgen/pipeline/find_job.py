"""Find a job by what a user has at hand: its pipeline, its work directory, its name, or the id of a query."""

from __future__ import annotations

from pathlib import Path

from airgen.errors import SettingsError, UsageError
from airgen.pipeline.job import Job
from airgen.pipeline.progress import read_status
from airgen.pipeline.show import name_of
from airgen.settings.yaml_file import find_yaml

__all__ = ["find_job", "job_of_directory", "job_with", "last_run"]

STATUS = "status.json"


def find_job(name: str, runs: Path) -> Job | None:
    """The job of a pipeline (a file, or the name of a shipped one), a work directory, or a job's name under `runs`.

    None where the words are none of these. Raises UsageError for a work directory whose pipeline is not there any more.
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return Job(path, runs)
    for directory in (path, runs / name):
        if (directory / STATUS).is_file():
            found = job_of_directory(directory)
            if isinstance(found, str):
                raise UsageError(f"{directory}: {found}: name the pipeline's YAML instead")
            return found
    try:
        return Job(find_yaml("pipelines", name), runs)
    except SettingsError:
        return None


def job_of_directory(directory: Path) -> Job | str:
    """The job of a work directory, by the pipeline that its status file names; or why it cannot be had."""
    pipeline = Path(str((read_status(directory / STATUS) or {}).get("pipeline", "")))
    if not pipeline.name:
        return "its status.json names no pipeline"
    if not pipeline.is_file():
        return f"its pipeline {pipeline} is not there"
    try:
        job = last_run(pipeline, directory.parent)
    except SettingsError as error:
        return error.problems[0]
    if job.directory.resolve() != directory.resolve():
        return f"its pipeline {pipeline} is now named {job.pipeline.name!r}"
    return job


def last_run(pipeline: Path, runs: Path) -> Job:
    """The job with the target that it was last run with, which `airgen run --target` may have set."""
    job = Job(pipeline, runs)
    target = (read_status(job.directory / STATUS) or {}).get("target")
    known = isinstance(target, int) and target > 0
    return Job(pipeline, runs, target=target) if known and target != job.pipeline.target else job


def job_with(name: str, runs: Path) -> Job:
    """The one job under `runs` that has a query of this id (or beginning). Raises UsageError for none or several."""
    found: list[Job] = []
    others: list[Job] = []
    for status in sorted(runs.glob(f"*/{STATUS}")):
        path = Path(str((read_status(status) or {}).get("pipeline", "")))
        if not path.is_file() or not status.with_name("work.duckdb").is_file():
            continue
        job = Job(path, runs)
        with job.open_store(read_only=True) as store:
            accepted = job.accepted(store)
        every, ids = [*accepted.lineages, *(one.lineage for one in accepted.rejected)], job.ids
        (found if any(name_of(one, ids).startswith(name) for one in every) else others).append(job)
    if len(found) == 1:
        return found[0]
    where = ", ".join(job.pipeline.name for job in found or others) or "no job"
    problem = "several jobs have a query" if found else "no job has a query"
    raise UsageError(f"{problem} {name!r} under {runs} ({where}): give the pipeline's YAML before the id")

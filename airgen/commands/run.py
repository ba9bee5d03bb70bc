"""`airgen run`: build a benchmark or a suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from airgen.commands.command import command
from airgen.commands.options import (
    Budget,
    Compute,
    Evaluate,
    Log,
    Place,
    Quiet,
    RetryFailed,
    Runs,
    Target,
    Verbose,
    WritesReport,
    arg,
    opt,
    path_or_none,
)
from airgen.commands.outcome import Outcome
from airgen.commands.printing import echo, end_event, logging_events, say
from airgen.display.study import Plain
from airgen.errors import AirgenError
from airgen.safety.escaping import dollars, terminal_text
from airgen.storage.paths import RUNS, beside

if TYPE_CHECKING:
    from airgen.job.job import Job
    from airgen.job.run_result import RunResult


@command
def run(
    pipeline: Annotated[Place, arg("JOB", "A pipeline (YAML or name), a job (name or work directory), or a suite.")],
    like: Annotated[
        str | None, opt("Word queries as the real ones in this file are, ten or more: text, CSV, ... ('' ends that).")
    ] = None,
    budget: Budget = None,
    target: Target = None,
    until: Annotated[str | None, opt("Stop after this stage, such as corpus, hard_negative or judgment.")] = None,
    retry_failed: RetryFailed = False,
    compute: Compute = None,
    runs: Runs = None,
    root: Annotated[Place, opt("Folder for the versions of suites.")] = Path("suites"),
    evaluate: Evaluate = True,
    report: WritesReport = True,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log: Log = "text",
) -> Outcome[RunResult]:
    """Build a benchmark from a corpus: generate, control, export, evaluate, report. Run a stopped job again to resume.

    For a suite, all pipelines are run, and their datasets are collected as a version.

    Example: airgen run pipelines/quickstart.yaml

    Returns:
        The work directory, the manifest of the dataset, the scores of the systems, and the cost.

    Raises:
        SettingsError: A setting is wrong, or something is missing; nothing has been paid for.
        BudgetSpent: The budget is spent; the same call with a higher budget continues.
        Stopped: The user stopped the job; the same call continues.
        AirgenError: The dataset is finished, but a system failed.
    """
    from airgen.job.show import find_suite, read_job

    if (suite := find_suite(pipeline)) is not None:
        return _suite(suite, path_or_none(runs) or beside(suite) / RUNS, Path(root), budget)
    job = read_job(pipeline, path_or_none(runs), target=target)
    if like is not None:
        from airgen.job.job import match_queries

        job = match_queries(job, like)
    with logging_events(log == "json") as events:
        return run_and_report(
            job,
            report=report,
            verbose=verbose,
            quiet=quiet,
            budget_usd=budget,
            until=until,
            retry_failed=retry_failed,
            evaluate=evaluate,
            compute=compute,
            log=events,
        )


def run_and_report(
    job: Job,
    *,
    report: bool = True,
    verbose: bool = False,
    quiet: bool = False,
    log: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> Outcome[RunResult]:
    """Run one pipeline, and write its report. `log` receives each stage instead of the terminal."""
    from rich.console import Console

    from airgen.dataset.beir import BeirDataset
    from airgen.job.refresh import earlier_version
    from airgen.job.run_job import run_pipeline
    from airgen.job.run_result import result_values
    from airgen.report.report import report_of_run
    from airgen.steps.progress import BEAT_SECONDS
    from airgen.studies.broad_queries import broad_queries
    from airgen.studies.compare_versions import drift_since
    from airgen.studies.label_sets import label_sets_of_job

    console, every = Console(stderr=True, quiet=quiet), 5.0 if verbose else BEAT_SECONDS
    result = run_pipeline(job, console=console, every=every, log=log, **options)
    if report:
        result = report_of_run(job, result, say if log else lambda line: echo(line, err=True))
    names = [row["system"] for row in result.scores]
    if names and (sets := label_sets_of_job(job, names)) is not None:
        result = replace(result, labels=terminal_text(f"Labels: {sets.sentence}"))
    by_votes = not job.pipeline.generates and job.pipeline.control.votes_decide
    if by_votes and names and (broad := broad_queries(BeirDataset.open(job.dataset), job.pipeline.evaluate.split)):
        result = replace(result, labels=terminal_text(f"Labels: {broad}"))
    version = earlier_version(result.manifest)
    if version is not None and not result.already_done and result.scores:
        say(drift_since(job, version))  # how the ranking of the pipeline's systems has changed
    study = result.study(100 if verbose else 4)
    if (wanted := job.pipeline.target) != (written := job.written.target):
        other = f"target: {wanted:,} this time; {job.path} sets {written:,}, to which a run without --target continues"
        study = replace(study, parts=[*study.parts, Plain(other)])
    error = AirgenError("\n".join(result.failed)) if result.failed else None
    if log is not None:
        log(end_event(error, directory=result.directory, verdict=result.verdict, seconds=round(result.seconds, 3)))
        if error is not None:
            error.was_printed = True
    return Outcome(result, study.text(title=False), json=result_values(result), error=error)


def _suite(path: Path, runs: Path, root: Path, budget: float | None) -> Outcome[RunResult]:
    from airgen.job.job import Job
    from airgen.job.run_job import run_pipeline
    from airgen.job.run_result import RunResult
    from airgen.publishing.suites import FinishedPipeline, build
    from airgen.settings.suite import load_suite
    from airgen.steps.ask import money
    from airgen.text.token_counts import count_tokens

    def finish(path: Path, budget_usd: float | None) -> FinishedPipeline:
        job = Job(path, runs)
        run_pipeline(job, budget_usd=budget_usd, evaluate=False)
        with job.open_store(read_only=True) as store:
            return FinishedPipeline(job.dataset, money(store).spent)

    built = build(load_suite(path), root, finish, budget_usd=budget, count_tokens=count_tokens, say=say)
    value = {"directory": built.directory, "spent_usd": built.spent_usd, "datasets": sorted(built.datasets)}
    text = (built.directory / "statistics.md").read_text(encoding="utf-8")
    return Outcome(RunResult(built.directory), [text, f"{built.directory}, {dollars(built.spent_usd)}"], json=value)

"""`airgen run`: build a benchmark, label existing queries, or build a suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from airgen.commands.command import command
from airgen.commands.options import Budget, Compute, Place, Quiet, Runs, Target, arg, opt, path_or_none
from airgen.commands.outcome import Outcome
from airgen.commands.printing import echo, end_event, logging_events, say
from airgen.errors import AirgenError, UsageError
from airgen.paths import RUNS, beside
from airgen.study import Plain
from airgen.text.escaping import dollars, terminal_text

if TYPE_CHECKING:
    from airgen.pipeline.run_result import RunResult


@command
def run(
    pipeline: Annotated[
        Place | None, arg("JOB", "A pipeline (YAML or name), a job (name or work directory), or a suite.")
    ] = None,
    queries: Annotated[
        Place | None, opt("Label these queries: text, CSV, TSV, JSONL, or a folder in BEIR format.")
    ] = None,
    corpus: Annotated[str | None, opt("With --queries: corpus (YAML or name).")] = None,
    labels: Annotated[
        Sequence[Place], opt("With --queries: known labels (qrels, Quepid's CSV, OpenSearch's JSON).")
    ] = (),
    no_labels: Annotated[bool, opt("With --queries: ignore the qrels of a BEIR folder.")] = False,
    systems: Annotated[Place | None, opt("With --queries: also judge the hits of these systems.", exists=True)] = None,
    sample: Annotated[int | None, opt("With --queries: size of a sample, weighted by frequency.", min=1)] = None,
    column: Annotated[str, opt("With --queries: column of the text. Default: detected by its name.")] = "",
    count_column: Annotated[str, opt("With --queries: column of the query's frequency.")] = "",
    keep_languages: Annotated[
        bool, opt("With --queries: keep queries in languages other than the pipeline's.")
    ] = False,
    name: Annotated[str, opt("With --queries: name of the dataset. Default: the file's name.")] = "",
    check: Annotated[bool, opt("Report what is missing and what the job will cost, and stop.")] = False,
    like: Annotated[
        str | None, opt("Word queries as the real ones in this file are, ten or more: text, CSV, ... ('' ends that).")
    ] = None,
    budget: Budget = None,
    target: Target = None,
    until: Annotated[str | None, opt("Stop after this stage, such as corpus, hard_negative or judgment.")] = None,
    retry_failed: Annotated[bool, opt("Retry LLM calls that failed in earlier runs.")] = False,
    compute: Compute = None,
    runs: Runs = None,
    root: Annotated[Place, opt("Folder for the versions of suites.")] = Path("suites"),
    evaluate: Annotated[bool, opt("Evaluate the pipeline's systems when done.", "--evaluate/--no-evaluate")] = True,
    report: Annotated[bool, opt("Write the report when done.", "--report/--no-report")] = True,
    quiet: Quiet = False,
    verbose: Annotated[
        bool, opt("Report progress every 5 s instead of 30 s without a terminal; list all reasons.", "--verbose", "-v")
    ] = False,
    log: Annotated[
        Literal["text", "json"], opt("Format of standard error: `json` prints one line per stage, for machines.")
    ] = "text",
) -> Outcome[RunResult]:
    """Build a benchmark from a corpus: generate, control, export, evaluate, report. Run a stopped job again to resume.

    With --queries, nothing is generated: several retrievers retrieve passages for your own queries, and a judge labels
    them. JOB provides the LLM, judge and retrievers. The command writes a new pipeline, NAME.yaml; to continue, use
    `airgen run NAME.yaml`. For a suite, all pipelines are run, and their datasets are collected as a version.

    Example: airgen run pipelines/quickstart.yaml
    Example: airgen run pipeline.yaml --queries log.csv --corpus corpus.yaml --sample 300

    Returns:
        The work directory, the manifest of the dataset, the scores of the systems, and the cost.

    Raises:
        SettingsError: A setting is wrong, or something is missing; nothing has been paid for.
        BudgetSpent: The budget is spent; the same call with a higher budget continues.
        Stopped: The user stopped the job; the same call continues.
        AirgenError: The dataset is finished, but a system failed.
    """
    from airgen.pipeline.label_pipeline import label_pipeline
    from airgen.pipeline.show import find_place
    from airgen.settings.suite import is_suite

    own = {
        "--corpus": corpus,
        "--labels": labels,
        "--no-labels": no_labels,
        "--systems": systems,
        "--sample": sample,
        "--column": column,
        "--count-column": count_column,
        "--keep-languages": keep_languages,
        "--name": name,
    }
    if queries is None and (without := [option for option, value in own.items() if value]):
        raise UsageError(f"{without[0]} needs --queries FILE")
    if queries is None and pipeline is None:
        raise UsageError("give a pipeline, a job or a suite, or use --queries FILE")
    path, folder = find_place(pipeline or "quickstart", path_or_none(runs))
    if queries is not None:
        if labels and no_labels:
            raise UsageError("--labels and --no-labels: choose one")
        other_language = "keep" if keep_languages else ""
        settings = {"column": column, "count_column": count_column, "other_language": other_language}
        path = label_pipeline(
            Path(queries),
            path,
            corpus=corpus,
            name=name,
            sample=sample,
            settings={key: value for key, value in settings.items() if value},
            labels=[] if no_labels else [Path(path) for path in labels] or None,
            systems=path_or_none(systems),
        )
        folder = beside(path) / RUNS if runs is None else Path(runs)
        say(f"{path}: pipeline written")
    if like is not None:
        from airgen.pipeline.job import match_queries

        match_queries(path, folder, like)
    if check:
        from airgen.commands.check import check_job
        from airgen.pipeline.job import Job
        from airgen.pipeline.run_result import RunResult

        job = Job(path, folder, target=target)
        checked = check_job(job, budget=budget)
        return Outcome(RunResult(job.directory), checked.text, json=checked.value, code=checked.code)
    if is_suite(path):
        return _suite(path, folder, Path(root), budget)
    with logging_events(log == "json") as events:
        return run_and_report(
            path,
            folder,
            report=report,
            verbose=verbose,
            quiet=quiet,
            budget_usd=budget,
            target=target,
            until=until,
            retry_failed=retry_failed,
            evaluate=evaluate,
            compute=compute,
            log=events,
        )


def run_and_report(
    path: Place,
    runs: Path,
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
    from airgen.pipeline.job import Job
    from airgen.pipeline.refresh import earlier_version
    from airgen.pipeline.run import run_pipeline
    from airgen.pipeline.run_result import result_values
    from airgen.report.report import report_of_run
    from airgen.settings import load_pipeline
    from airgen.settings.base import find_yaml
    from airgen.steps.progress import BEAT_SECONDS
    from airgen.studies.broad_queries import broad_queries
    from airgen.studies.compare_versions import drift_since
    from airgen.studies.label_sets import label_sets_of_job

    console, every = Console(stderr=True, quiet=quiet), 5.0 if verbose else BEAT_SECONDS
    result = run_pipeline(Path(path), runs=runs, console=console, every=every, log=log, **options)
    if report:
        target = options.get("target")
        result = report_of_run(
            result, Path(path), runs=runs, target=target, say=say if log else lambda line: echo(line, err=True)
        )
    names = [row["system"] for row in result.scores]
    if names and (sets := label_sets_of_job(Job(Path(path), runs, target=options.get("target")), names)) is not None:
        result = replace(result, labels=terminal_text(f"Labels: {sets.sentence}"))
    job = Job(Path(path), runs, target=options.get("target"))
    by_votes = job.pipeline.queries is not None and not job.pipeline.control.judge.members
    if by_votes and names and (broad := broad_queries(BeirDataset.open(job.dataset), job.pipeline.evaluate.split)):
        result = replace(result, labels=terminal_text(f"Labels: {broad}"))
    version = earlier_version(result.manifest)
    if version is not None and not result.already_done and result.scores:
        say(drift_since(Job(Path(path), runs), version))  # how the ranking of the pipeline's systems has changed
    study = result.study(100 if verbose else 4)
    wanted = options.get("target")
    if wanted is not None and wanted != (written := load_pipeline(find_yaml("pipelines", path)).target):
        other = f"target: {wanted:,} this time; {path} sets {written:,}, to which a run without --target continues"
        study = replace(study, parts=[*study.parts, Plain(other)])
    error = AirgenError("\n".join(result.failed)) if result.failed else None
    if log is not None:
        log(end_event(error, directory=result.directory, verdict=result.verdict, seconds=round(result.seconds, 3)))
        if error is not None:
            error.was_printed = True
    return Outcome(result, study.text(title=False), json=result_values(result), error=error)


def _suite(path: Path, runs: Path, root: Path, budget: float | None) -> Outcome[RunResult]:
    from airgen.pipeline.job import Job
    from airgen.pipeline.run import run_pipeline
    from airgen.pipeline.run_result import RunResult
    from airgen.publishing.suites import FinishedPipeline, build
    from airgen.settings.suite import load_suite
    from airgen.steps.ask import money
    from airgen.text.token_counts import count_tokens

    def finish(path: Path, budget_usd: float | None) -> FinishedPipeline:
        run_pipeline(path, runs=runs, budget_usd=budget_usd, evaluate=False)
        job = Job(path, runs)
        with job.open_store(read_only=True) as store:
            return FinishedPipeline(job.dataset, money(store).spent)

    built = build(load_suite(path), root, finish, budget_usd=budget, count_tokens=count_tokens, say=say)
    value = {"directory": built.directory, "spent_usd": built.spent_usd, "datasets": sorted(built.datasets)}
    text = (built.directory / "statistics.md").read_text(encoding="utf-8")
    return Outcome(RunResult(built.directory), [text, f"{built.directory}, {dollars(built.spent_usd)}"], json=value)

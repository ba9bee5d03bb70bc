"""`airgen label`: label queries that exist already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    Verbose,
    WritesReport,
    arg,
    number,
    opt,
    path_or_none,
)
from airgen.commands.outcome import Outcome
from airgen.commands.printing import logging_events, say
from airgen.commands.run import run_and_report
from airgen.errors import UsageError

if TYPE_CHECKING:
    from airgen.job.run_result import RunResult


@command
def label(
    queries: Annotated[Place, arg("QUERIES", "Text, CSV, TSV, JSON, Parquet, or a folder in BEIR format.")],
    corpus: Annotated[
        str | None, opt("Corpus (YAML or name). Default: that of a BEIR folder or of --pipeline.")
    ] = None,
    pipeline: Annotated[
        Place, opt("Pipeline (YAML or name) with the LLM, the judge, the retrievers and the re-rankers.")
    ] = "quickstart",
    labels: Annotated[Sequence[Place], opt("Known labels: qrels, or a table of queries, documents and ratings.")] = (),
    no_judge: Annotated[bool, opt("Use the labels alone: no model finds or judges anything.")] = False,
    no_labels: Annotated[bool, opt("Ignore the qrels of a BEIR folder.")] = False,
    label_column: Annotated[str, opt("With --labels: column of the document. Default: detected.")] = "",
    rating_column: Annotated[str, opt("With --labels: column of the rating. Default: detected.")] = "",
    relevant_from: Annotated[
        float | None, number("With --labels: the lowest rating that means relevant, such as 4 of 5 stars. Default: 1.")
    ] = None,
    systems: Annotated[Place | None, opt("Also judge the hits of these systems (YAML).", exists=True)] = None,
    sample: Annotated[int | None, opt("Size of a sample, weighted by frequency. Default: all queries.", min=1)] = None,
    column: Annotated[str, opt("Column of the query's text. Default: detected by its name.")] = "",
    count_column: Annotated[str, opt("Column of the query's frequency. Default: detected by its name.")] = "",
    keep_languages: Annotated[bool, opt("Keep queries in languages other than the pipeline's.")] = False,
    name: Annotated[str, opt("Name of the dataset. Default: the file's name.")] = "",
    check: Annotated[bool, opt("Report what is missing and what the job will cost, and stop.")] = False,
    budget: Budget = None,
    retry_failed: RetryFailed = False,
    compute: Compute = None,
    runs: Runs = None,
    evaluate: Evaluate = True,
    report: WritesReport = True,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log: Log = "text",
) -> Outcome[RunResult]:
    """Label your own queries: retrievers find passages for them, and a judge labels these. Nothing is generated.

    The command writes a new pipeline, NAME.yaml; to continue, use `airgen run NAME.yaml`. In Python, `airgen.label`
    also takes texts, rows and data frames.

    Example: airgen label log.csv --corpus corpus.yaml --pipeline pipeline.yaml --sample 300

    Returns:
        The work directory, the manifest of the dataset, the scores of the systems, and the cost.

    Raises:
        UsageError: The queries, labels or corpus cannot be used, or NAME.yaml is that of another job.
        SettingsError: A setting is wrong, or something is missing; nothing has been paid for.
        BudgetSpent: The budget is spent; the same call with a higher budget continues.
        Stopped: The user stopped the job; the same call continues.
    """
    from airgen.job.label_pipeline import label_pipeline
    from airgen.job.show import job_file, read_job

    if labels and no_labels:
        raise UsageError("--labels and --no-labels: choose one")
    of_labels = {"document_column": label_column, "rating_column": rating_column, "relevant_from": relevant_from}
    settings = {
        "column": column,
        "count_column": count_column,
        "other_language": "keep" if keep_languages else "",
    }
    path = label_pipeline(
        Path(queries),
        job_file(pipeline),
        corpus=corpus,
        name=name,
        sample=sample,
        settings={key: value for key, value in settings.items() if value},
        labels=[] if no_labels else [Path(path) for path in labels] or None,
        of_labels={key: value for key, value in of_labels.items() if value not in ("", None)},
        systems=path_or_none(systems),
        judge=not no_judge,
        runs=path_or_none(runs),
    )
    say(f"{path}: pipeline written")
    job = read_job(path, path_or_none(runs))
    if check:
        from airgen.commands.check import outcome_of
        from airgen.job.check_job import check_job
        from airgen.job.run_result import RunResult

        checked = outcome_of(check_job(job, budget=budget))
        return Outcome(RunResult(job.directory), checked.text, json=checked.json, code=checked.code)
    with logging_events(log == "json") as events:
        return run_and_report(
            job,
            report=report,
            verbose=verbose,
            quiet=quiet,
            budget_usd=budget,
            retry_failed=retry_failed,
            evaluate=evaluate,
            compute=compute,
            log=events,
        )

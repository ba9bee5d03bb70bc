"""`airgen check`: report what a pipeline or a suite lacks and what it will cost; try out prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from airgen.commands.command import command
from airgen.commands.options import Budget, JobName, Runs, Target, arg, opt, path_or_none
from airgen.commands.outcome import Outcome
from airgen.errors import UsageError
from airgen.storage.paths import RUNS, beside

if TYPE_CHECKING:
    from airgen.job.check_job import Check
    from airgen.job.try_prompts import PromptTrial


@command
def check(
    pipeline: JobName,
    target: Target = None,
    budget: Budget = None,
    probe: Annotated[
        bool, opt("Ask each LLM a few short questions, to learn what it supports and how fast it is.")
    ] = False,
    stages: Annotated[bool, opt("Show the calls, tokens and cost of each stage.")] = False,
    runs: Runs = None,
) -> Outcome[Check]:
    """Check settings, prompts, models, extras, keys and disk space; estimate calls, tokens and cost of each stage.

    The first line gives the price and the time. To measure their speed, local models read a few passages. The systems
    of the pipeline are checked as well. LLMs are called only with --probe, which costs a few cents at most. For a
    suite, every dataset is checked and priced, by its published size if the corpus has not been downloaded.

    Example: airgen check pipelines/full.yaml --probe

    Returns:
        The problems, the advice and the estimate.

    Raises:
        SettingsError: A file cannot be read.
        UsageError: An option does not apply to a suite.
    """
    from airgen.job.check_job import Check, check_job
    from airgen.job.check_suite import check_suite
    from airgen.job.show import find_suite, read_job

    path = find_suite(pipeline)
    if path is None:
        job = read_job(pipeline, path_or_none(runs), target=target)
        return outcome_of(check_job(job, budget=budget, probe=probe, stages=stages))
    if target is not None or probe:
        raise UsageError("--target and --probe apply to one pipeline: name a dataset of the suite, SUITE.yaml#DATASET")
    suite_estimate = check_suite(path, path_or_none(runs) or beside(path) / RUNS, budget_usd=budget)
    rows = [{**asdict(row), "usd": row.estimate.usd if row.estimate else None} for row in suite_estimate.datasets]
    value = Check(
        list(suite_estimate.problems),
        list(suite_estimate.warnings),
        suite_estimate.suite.name,
        usd=suite_estimate.usd,
        datasets=rows,
    )
    shown = {
        **value.as_dict(),
        "problems": suite_estimate.problems,
        "advice": suite_estimate.warnings,
    }
    return Outcome(value, suite_estimate.study(), json=shown, code=1 if suite_estimate.problems else 0)


def outcome_of(checked: Check) -> Outcome[Check]:
    """Return what a command prints about a job, and its exit code: 1 if something is missing."""
    return Outcome(checked, checked.study(), json=checked.as_dict(), code=1 if checked.problems else 0)


@command
def check_prompts(
    pipeline: JobName,
    names: Annotated[Sequence[str], arg("PROMPT", "One or more prompts: names, or .j2 files.")],
    documents: Annotated[int, opt("Number of documents.", "-n", min=1)] = 3,
    runs: Runs = None,
) -> Outcome[PromptTrial]:
    """Send prompts for real documents and show the parsed answers side by side, with the results of a job's checks.

    Answers are saved, so none is paid for twice.

    Example: airgen check prompts pipelines/quickstart.yaml query my/query.j2 -n 5

    Returns:
        The answers by document and prompt, and the totals of each prompt.

    Raises:
        PromptError: There is no such prompt, or its template is wrong.
    """
    from airgen.job.show import read_job
    from airgen.job.try_prompts import try_on_documents

    trial = try_on_documents(read_job(pipeline, path_or_none(runs)), list(names), documents)
    return Outcome(trial, trial.study(), json={"documents": trial.rows, "totals": trial.totals()})

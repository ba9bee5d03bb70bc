"""`airgen check`: is everything there that a pipeline needs, and what will it cost?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from airgen.commands.options import RUNS, Json, PipelineFile, Runs, Target, echo, new_app

if TYPE_CHECKING:
    from airgen.pipeline.estimate import Estimate
    from airgen.pipeline.job import Job

__all__ = ["app", "print_check"]

app = new_app()


@app.command()
def check(
    pipeline: PipelineFile,
    target: Target = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Check settings, prompts, models, extras, keys and disk space; estimate calls, tokens and cost of each stage.

    The systems file of the pipeline is checked as well. Example: airgen check pipelines/full.yaml
    """
    from airgen.pipeline.job import Job

    print_check(Job(pipeline, runs, target=target), as_json=as_json)


def print_check(job: Job, *, as_json: bool) -> None:
    """Print what a job will cost and what it lacks; exit code 1 where it lacks something."""
    import json
    from dataclasses import asdict

    from airgen.corpus.language_checks import in_words
    from airgen.errors import AirgenError
    from airgen.pipeline.estimate import estimate
    from airgen.pipeline.preflight import preflight

    problems = preflight(job)
    found = None
    try:
        found = estimate(job)
    except AirgenError as error:  # the corpus cannot be read, or its cleaning lacks a package
        problems += str(error).splitlines()
    if as_json:
        figures = {"usd": found.usd, **asdict(found)} if found else {"usd": None}
        echo(json.dumps({"problems": problems, **figures}, indent=1))
    else:
        if found:
            _print_estimate(job, found)
        if line := in_words(job.pipeline.language):
            echo(f"  {line}")
        for line in [*(found.warnings if found else []), *problems]:
            echo(f"  ! {line}")
        if not problems:
            echo("  everything that it needs is there")
    if problems:
        raise typer.Exit(1)


def _print_estimate(job: Job, found: Estimate) -> None:
    echo(f"{job.pipeline.name}: {job.pipeline.target:,} queries from about {found.samples:,} documents")
    echo(f"  {'stage':<14}{'calls':>9}{'tokens in':>13}{'tokens out':>13}{'USD':>10}")
    for stage in found.stages:
        usd = "unknown" if stage.usd is None else f"{stage.usd:.4f}"
        tokens = f"{stage.prompt_tokens:>13,}{stage.completion_tokens:>13,}"
        echo(f"  {stage.stage:<14}{stage.calls:>9,}{tokens}{usd:>10}")
    calls = sum(stage.calls for stage in found.stages)
    total = "unknown" if found.usd is None else f"{found.usd:.4f}"
    read = sum(stage.prompt_tokens for stage in found.stages)
    wrote = sum(stage.completion_tokens for stage in found.stages)
    echo(f"  {'in all':<14}{calls:>9,}{read:>13,}{wrote:>13,}{total:>10}")

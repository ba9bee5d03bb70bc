"""`airgen check`: is everything there that a pipeline needs, and what will it cost?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airgen.commands.options import RUNS, Budget, Json, PipelineFile, Runs, Target, echo, new_app

if TYPE_CHECKING:
    from airgen.pipeline.estimate import Estimate
    from airgen.pipeline.job import Job


app = new_app()


@app.command()
def check(
    pipeline: PipelineFile,
    target: Target = None,
    budget: Budget = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Ask each model a few short questions: what it takes, how fast it is.")
    ] = False,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Check settings, prompts, models, extras, keys and disk space; estimate calls, tokens and cost of each stage.

    The systems file of the pipeline is checked as well. Nothing is asked of a model without --probe, which costs cents
    at most and makes the estimate one of minutes, too. Of a suite, every dataset is checked and priced, by its
    published size where the corpus is not here. Example: airgen check pipelines/full.yaml --probe
    """
    from airgen.commands.suite_costs import print_suite_check
    from airgen.errors import UsageError
    from airgen.pipeline.job import Job
    from airgen.settings.suite import is_suite

    if is_suite(pipeline):
        if target is not None or probe:
            raise UsageError("--target, --probe: are for one pipeline: name one of the suite, SUITE.yaml#DATASET")
        print_suite_check(pipeline, runs, budget_usd=budget, as_json=as_json)
        return
    print_check(Job(pipeline, runs, target=target), budget_usd=budget, probe=probe, as_json=as_json)


@dataclass(frozen=True)
class CheckedJob:
    """What a job costs and lacks. found: the estimate, if the corpus can be read. probed: what the probe learnt."""

    found: Estimate | None
    problems: list[str]
    advice: list[str]
    probed: list[str]
    untested: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        found = self.found
        figures = {"usd": found.usd, "seconds": found.seconds, **asdict(found)} if found else {"usd": None}
        lines = {name: getattr(self, name) for name in ("problems", "advice", "probed", "untested")}
        return {**lines, **figures}


def checked(job: Job, *, budget_usd: float | None = None, probe: bool = False) -> CheckedJob:
    """What a job will cost and take, and what it lacks.

    With `probe`, each LLM that is not known yet is asked a few questions.
    """
    from airgen.corpus.fetch import is_fetched
    from airgen.errors import AirgenError
    from airgen.pipeline.estimate import estimate
    from airgen.pipeline.preflight import advice, downloads, preflight, probe_models, unprobed
    from airgen.settings.suite import published_sizes

    problems, warnings = preflight(job, budget_usd=budget_usd), [*advice(job), *downloads(job)]
    said: list[str] = []
    if probe and not problems:
        try:
            probe_models(job, said.append, budget_usd=budget_usd, every=True)
        except AirgenError as error:
            problems += str(error).splitlines()
    elif probe:
        problems.append("no model was probed, because of the problems above: solve them, then probe")
    untested = [llm.model for llm in unprobed(job).values()]
    found, published = None, None if is_fetched(job.corpus) else published_sizes(job.path)
    if published:
        warnings.append(f"its corpus is not here: it is priced by the published {published.tokens:,} tokens a passage")
    try:
        found = estimate(job, published.tokens if published else None, budget_usd)
        problems += found.problems
    except AirgenError as error:  # the corpus cannot be read, or its cleaning lacks a package
        problems += [line for line in str(error).splitlines() if line not in problems]
    return CheckedJob(found, problems, warnings, said, untested)


def print_check(job: Job, *, as_json: bool, budget_usd: float | None = None, probe: bool = False) -> None:
    """Print what a job will cost and take, and what it lacks; exit code 1 where it lacks something."""
    import json

    done = checked(job, budget_usd=budget_usd, probe=probe)
    if as_json:
        echo(json.dumps(done.as_dict(), indent=1))
    else:
        print_checked(job, done)
    if done.problems:
        raise typer.Exit(1)


def print_checked(job: Job, done: CheckedJob) -> None:
    """The estimate, then each line that somebody must know."""
    from airgen.corpus.language_checks import in_words
    from airgen.settings import RELEVANCE

    if done.found:
        _print_estimate(job, done.found)
    echo(f"  relevant: {RELEVANCE[job.pipeline.relevance]} (relevance: {job.pipeline.relevance})")
    if line := in_words(job.pipeline.language):
        echo(f"  {line}")
    for line in done.probed:
        echo(f"  probe: {line}")
    for line in [*(done.found.warnings if done.found else []), *done.advice, *done.problems]:
        echo(f"  ! {line}")
    if not done.problems:
        echo("  everything that it needs is there")
        if done.untested:
            echo(f"  not tested: whether {', '.join(done.untested)} answers, and how fast: airgen check --probe asks")


def _print_estimate(job: Job, found: Estimate) -> None:
    if job.pipeline.queries is not None:
        echo(f"{job.pipeline.name}: {found.samples:,} queries of your own; labels that you bring are not judged again")
    else:
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
    if found.seconds is not None:
        minutes = f"{found.seconds / 60:,.0f} minutes" if found.seconds >= 90 else f"{found.seconds:.0f} seconds"
        echo(f"  about {minutes} of calls to models, besides retrieval and re-ranking")

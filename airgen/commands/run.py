"""`airgen run`: the main job."""

from __future__ import annotations

from typing import Annotated

import typer

from airgen.commands.options import RUNS, Budget, Compute, Json, PipelineFile, Runs, Target, echo, new_app, show_drift

app = new_app()


@app.command()
def run(
    pipeline: PipelineFile,
    budget: Budget = None,
    target: Target = None,
    until: Annotated[str | None, typer.Option(help="Stop after this stage: corpus, hard_negative, judgment.")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Repeat LLM calls that failed before.")] = False,
    compute: Compute = None,
    runs: Runs = RUNS,
    evaluate: Annotated[bool, typer.Option(help="Evaluate the pipeline's systems at the end.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only what went wrong.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Without a terminal a line every 5 s, not 30; all reasons.")
    ] = False,
    report: Annotated[bool, typer.Option(help="Write the report, a page to browse, at the end.")] = True,
    as_json: Json = False,
) -> None:
    """Build a benchmark from a corpus: generate, control, export, evaluate, report. Run a stopped job again to go on.

    Example: airgen run pipelines/quickstart.yaml
    """
    from rich.console import Console

    from airgen.errors import AirgenError
    from airgen.pipeline.progress import BEAT_SECONDS
    from airgen.pipeline.summary import print_result, run_pipeline
    from airgen.report.report import report_of_run

    result = run_pipeline(
        pipeline, runs=runs, budget_usd=budget, target=target, until=until, retry_failed=retry_failed,
        evaluate=evaluate, console=Console(stderr=True, quiet=quiet), every=5.0 if verbose else BEAT_SECONDS,
        compute=compute,
    )  # fmt: skip
    if report:
        result = report_of_run(result, pipeline, runs, target, lambda line: echo(line, err=True))
    if as_json or not quiet:
        print_result(result, as_json=as_json, reasons=100 if verbose else 4)
    show_drift(pipeline, runs, result, quiet=quiet)
    if result.failed:
        raise AirgenError("\n".join(result.failed))

"""`airgen run`: the main job."""

from __future__ import annotations

from typing import Annotated

import typer

from airgen.commands.options import RUNS, Budget, Json, PipelineFile, Runs, Target, new_app

__all__ = ["app"]

app = new_app()


@app.command()
def run(
    pipeline: PipelineFile,
    budget: Budget = None,
    target: Target = None,
    until: Annotated[str | None, typer.Option(help="Stop after this stage: corpus, hard_negative, judgment.")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Repeat LLM calls that failed before.")] = False,
    runs: Runs = RUNS,
    evaluate: Annotated[bool, typer.Option(help="Evaluate the pipeline's systems at the end.")] = True,
    as_json: Json = False,
) -> None:
    """Build a benchmark from a corpus: generate, control, export, evaluate. Run a stopped job again to go on.

    Example: airgen run pipelines/quickstart.yaml
    """
    from airgen.errors import AirgenError
    from airgen.pipeline.summary import print_result, run_pipeline

    result = run_pipeline(
        pipeline, runs=runs, budget_usd=budget, target=target, until=until, retry_failed=retry_failed, evaluate=evaluate
    )
    print_result(result, as_json=as_json)
    if result.failed:
        raise AirgenError("\n".join(result.failed))

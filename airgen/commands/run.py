"""`airgen run`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def run(
    pipeline: Annotated[Path, typer.Argument(metavar="PIPELINE.yaml", help="The pipeline to run.")],
    budget: Annotated[float | None, typer.Option(help="US dollars that the job may cost in all.")] = None,
    target: Annotated[int | None, typer.Option(min=1, help="Accepted queries wanted, instead of the YAML's.")] = None,
    until: Annotated[str | None, typer.Option(help="Stop after this stage: corpus, hard_negative, judgment.")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Ask again what failed before.")] = False,
    runs: Annotated[Path, typer.Option(help="Where work directories are.")] = Path("runs"),
    evaluate: Annotated[bool, typer.Option(help="Evaluate the pipeline's systems at the end.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Build a benchmark from a corpus: generate, control, export, evaluate. Run it again to go on after a stop.

    Example: airgen run pipelines/quickstart.yaml
    """
    from airgen.pipeline.summary import print_result, run_pipeline

    result = run_pipeline(
        pipeline, runs=runs, budget_usd=budget, target=target, until=until, retry_failed=retry_failed, evaluate=evaluate
    )
    print_result(result, as_json=as_json)

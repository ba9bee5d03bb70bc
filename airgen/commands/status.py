"""`airgen status`: how far a job is, also while another process runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def status(
    pipeline: Annotated[Path, typer.Argument(metavar="PIPELINE.yaml", help="The pipeline of the job.")],
    runs: Annotated[Path, typer.Option(help="Where work directories are.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Stages, counts, rates, failures and the bill, from the status file and, where it is free, the work database.

    Example: airgen status pipelines/quickstart.yaml
    """
    import json

    from airgen.pipeline.job import Job
    from airgen.pipeline.status import read_report, render_report

    report = read_report(Job(pipeline, runs))
    typer.echo(json.dumps(report, ensure_ascii=False, indent=1) if as_json else render_report(report))

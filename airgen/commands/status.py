"""`airgen status`: the progress of a job, also while another process runs it."""

from __future__ import annotations

from airgen.commands.options import RUNS, Json, PipelineFile, Runs, echo, new_app

app = new_app()


@app.command()
def status(
    pipeline: PipelineFile,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Show stages, counts, rates, failures and cost of a job.

    They come from the status file and, when no other process uses it, from the work database.

    Example: airgen status pipelines/quickstart.yaml
    """
    import json

    from airgen.pipeline.job import Job
    from airgen.pipeline.show import read_report, render_report

    report = read_report(Job(pipeline, runs))
    echo(json.dumps(report, ensure_ascii=False, indent=1) if as_json else render_report(report))

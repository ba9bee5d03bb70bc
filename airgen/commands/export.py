"""`airgen export`: write the dataset of a job again, elsewhere, or without a stage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import RUNS, Json, PipelineFile, Runs, echo, new_app

app = new_app()


@app.command()
def export(
    pipeline: PipelineFile,
    out: Annotated[Path | None, typer.Option(help="Directory to write. Default: the job's own dataset.")] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave out a stage: `control`, `correction`, `negatives` or `rewrite` (paper, Table 5; repeatable)."
        ),
    ] = None,
    layout: Annotated[str | None, typer.Option(help="Convert the finished dataset to trec or air-bench.")] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Write the dataset from the rows of the work database. No LLM is called.

    Example: airgen export pipelines/quickstart.yaml --without control --out ablation
    """
    import json

    from airgen.errors import UsageError
    from airgen.pipeline.assemble import ABLATIONS
    from airgen.pipeline.job import Job
    from airgen.registry import closest

    for name in without or []:
        if name not in ABLATIONS:
            raise UsageError(f"--without {name}{closest(name, list(ABLATIONS))}")
    if without and out is None:
        raise UsageError("--without needs --out: the job's own dataset is the complete one")
    job = Job(pipeline, runs)
    if layout is not None:
        from airgen.dataset.layouts import export_layout

        if out is None or without:
            raise UsageError("--layout needs --out, and writes the finished dataset: it takes no --without")
        export_layout(job.dataset, layout, out)
        echo(json.dumps({"directory": str(out), "layout": layout}) if as_json else f"{out}: {layout}")
        return
    directory = out or job.dataset
    with job.open_store() as store:
        manifest = job.export(store, job.accepted(store), directory, without or ())
    counts = {
        "passages": manifest.statistics.passages,
        "queries": {k: v.queries for k, v in manifest.statistics.splits.items()},
    }
    echo(json.dumps({"directory": str(directory), **counts}) if as_json else f"{directory}: {counts}")

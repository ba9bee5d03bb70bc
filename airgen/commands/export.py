"""`airgen export`: write the dataset again, elsewhere, or without a stage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def export(
    pipeline: Annotated[Path, typer.Argument(metavar="PIPELINE.yaml", help="The pipeline that was run.")],
    out: Annotated[Path | None, typer.Option(help="The directory to write; the job's own if not given.")] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="Leave out `control`, `negatives` or `rewrite` (Table 5).")
    ] = None,
    layout: Annotated[str | None, typer.Option(help="Another layout of the finished dataset: trec, air-bench.")] = None,
    runs: Annotated[Path, typer.Option(help="Where work directories are.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print counts as JSON.")] = False,
) -> None:
    """Export from the rows that stand; nothing is asked, nothing is paid.

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
        typer.echo(json.dumps({"directory": str(out), "layout": layout}) if as_json else f"{out}: {layout}")
        return
    directory = out or job.dataset
    with job.open_store() as store:
        manifest = job.export(store, job.accepted(store), directory, without or ())
    counts = {
        "passages": manifest.statistics.passages,
        "queries": {k: v.queries for k, v in manifest.statistics.splits.items()},
    }
    typer.echo(json.dumps({"directory": str(directory), **counts}) if as_json else f"{directory}: {counts}")

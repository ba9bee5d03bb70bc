"""`airgen report`: a page to browse everything that is known of jobs, datasets and results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import RUNS, Json, Runs, echo, new_app

app = new_app()


@app.command()
def report(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...", help="Pipelines, work directories of jobs, datasets, suites, folders of results."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The folder to write, or the HTML file. Default: RUNS/NAME/report, else ./report."),
    ] = None,
    single_file: Annotated[
        bool, typer.Option("--single-file", help="Write one HTML file instead of a folder; for small runs.")
    ] = False,
    public: Annotated[
        bool, typer.Option("--public", help="Leave out private labels and all that could tell them.")
    ] = False,
    private_qrels: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPLIT",
            help="With --public: a split whose labels are private (repeatable). Default: every split but dev.",
        ),
    ] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Write a report to browse: every query, label and system. It opens in a browser, without a server or a network.

    Of a job that runs or was stopped, the report shows what there is so far.

    Example: airgen report pipelines/quickstart.yaml        airgen report datasets/scifact results --single-file
    """
    import json

    from airgen.errors import UsageError
    from airgen.report.report import make_report

    if private_qrels and not public:
        raise UsageError("--private-qrels says what a public report leaves out: add --public")
    page = make_report(what, out, runs=runs, single_file=single_file, public=public, private=private_qrels)
    echo(json.dumps({"page": str(page)}) if as_json else str(page))

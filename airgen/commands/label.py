"""`airgen label`: a benchmark from queries that are there already."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import RUNS, Budget, Compute, Json, Runs, echo, new_app, shipped, show_drift

app = new_app()


@app.command()
def label(
    queries: Annotated[
        Path,
        typer.Argument(
            metavar="QUERIES", help="Text with a query a line; CSV, TSV or JSONL; or a folder in BEIR format."
        ),
    ],
    corpus: Annotated[
        str | None,
        typer.Option(help="A corpus YAML, or a shipped corpus. Default: that of the BEIR folder or of the pipeline."),
    ] = None,
    pipeline: Annotated[
        Path,
        typer.Option(
            help="The pipeline whose LLM, judge and retrievers are used; its file or its name.", callback=shipped
        ),
    ] = Path("quickstart"),
    labels: Annotated[
        list[Path] | None,
        typer.Option(help="Labels that exist: qrels, Quepid's CSV, OpenSearch's JSON. May be repeated."),
    ] = None,
    no_labels: Annotated[bool, typer.Option("--no-labels", help="Leave out the qrels of a BEIR folder.")] = False,
    systems: Annotated[
        Path | None, typer.Option(help="A systems YAML: what these systems find is judged, too.", exists=True)
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Draw so many queries, by how often they were asked. Default: all.")
    ] = None,
    column: Annotated[str, typer.Option(help="Column of the query's text. Default: found by its name.")] = "",
    count_column: Annotated[str, typer.Option(help="Column that says how often the query was asked.")] = "",
    keep_languages: Annotated[
        bool, typer.Option("--keep-languages", help="Keep queries in another language than the pipeline's.")
    ] = False,
    name: Annotated[str, typer.Option(help="Name of the dataset. Default: that of the file.")] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Write the pipeline, say what is missing and what it will cost, and stop.")
    ] = False,
    budget: Budget = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Repeat LLM calls that failed before.")] = False,
    compute: Compute = None,
    runs: Runs = RUNS,
    evaluate: Annotated[bool, typer.Option(help="Evaluate the pipeline's systems at the end.")] = True,
    report: Annotated[bool, typer.Option(help="Write the report, a page to browse, at the end.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only what went wrong.")] = False,
    as_json: Json = False,
) -> None:
    """Label your own queries: find passages with several retrievers, judge them, and write a benchmark.

    Writes NAME.yaml, a pipeline, and runs it: `airgen run NAME.yaml` does the same from then on.
    Example: airgen label log.csv --corpus corpus.yaml --pipeline pipeline.yaml --sample 300
    """
    from rich.console import Console

    from airgen.commands.check import print_check
    from airgen.errors import AirgenError, UsageError
    from airgen.pipeline.job import Job
    from airgen.pipeline.label_pipeline import label_pipeline
    from airgen.pipeline.summary import print_result, run_pipeline
    from airgen.report.report import report_of_run

    if labels and no_labels:
        raise UsageError("--labels and --no-labels: choose one")
    settings = {
        **({"column": column} if column else {}),
        **({"count_column": count_column} if count_column else {}),
        **({"other_language": "keep"} if keep_languages else {}),
    }
    path = label_pipeline(
        queries, pipeline, corpus=corpus, name=name, sample=sample, labels=[] if no_labels else labels or None,
        systems=systems, settings=settings,
    )  # fmt: skip
    if not quiet:
        echo(f"{path}: the pipeline of this job", err=True)
    if check:
        print_check(Job(path, runs), as_json=as_json, budget_usd=budget)
        return
    result = run_pipeline(
        path,
        runs=runs,
        budget_usd=budget,
        retry_failed=retry_failed,
        evaluate=evaluate,
        console=Console(stderr=True, quiet=quiet),
        compute=compute,
    )
    if report:
        result = report_of_run(result, path, runs, None, lambda line: echo(line, err=True))
    if as_json or not quiet:
        print_result(result, as_json=as_json)
    show_drift(path, runs, result, quiet=quiet)
    if result.failed:
        raise AirgenError("\n".join(result.failed))

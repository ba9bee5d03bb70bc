"""`airgen diversity`: how diverse the queries of datasets are, and how far their corpora differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def diversity(
    datasets: Annotated[
        list[Path], typer.Argument(metavar="DATASET...", help="Directories with corpus.jsonl, queries.jsonl, qrels/.")
    ],
    out: Annotated[Path, typer.Option(help="Where the report, its charts and the labels are written.")] = Path(
        "diversity"
    ),
    label_with: Annotated[
        Path | None, typer.Option(metavar="PIPELINE.yaml", help="Label types and styles with the LLM of this pipeline.")
    ] = None,
    most: Annotated[
        int | None, typer.Option(min=1, help="Label at most this many queries of a dataset, chosen by their ids.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="The most that labels may cost, in US dollars.")] = None,
    language: Annotated[
        str | None, typer.Option(help="The language of corpora whose manifest does not say it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the content of diversity.json.")] = False,
) -> None:
    """Measure how diverse queries are: types and styles, lengths, overlap with positives, vocabulary, duplicates.

    Several datasets are also compared by the weighted Jaccard similarity of their corpora. Labels are kept in OUT and
    not paid for twice; after a stop, the same command goes on.

    Example: airgen diversity runs/quickstart/dataset scifact --label-with pipelines/quickstart.yaml
    """
    import json

    from airgen.quality.diversity.measure import profile_datasets
    from airgen.quality.diversity.report import summary_rows, write_diversity
    from airgen.text.display import terminal_table

    profiles, failed = profile_datasets(
        datasets, out, language=language, pipeline=label_with, most=most, budget_usd=budget
    )
    for reason, count in failed.items():
        typer.echo(f"{count} queries have no label: {reason}", err=True)
    value = write_diversity(out, profiles)
    if as_json:
        typer.echo(json.dumps(value, ensure_ascii=False, indent=1))
        return
    typer.echo(terminal_table(summary_rows(profiles)))
    typer.echo(f"report: {out / 'diversity.md'}, with .json, .csv and charts")

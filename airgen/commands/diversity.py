"""`airgen diversity`: how diverse the queries of datasets are, and how far their corpora differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import Budget, Datasets, Json, Language, echo, new_app, shipped

__all__ = ["app"]

app = new_app()


@app.command()
def diversity(
    datasets: Datasets,
    out: Annotated[Path, typer.Option(help="Folder for the report, its charts and the labels.")] = Path("diversity"),
    label_with: Annotated[
        Path | None, typer.Option(help="A pipeline whose LLM labels query types and styles.", callback=shipped)
    ] = None,
    most: Annotated[int | None, typer.Option(min=1, help="Maximum number of queries to label per dataset.")] = None,
    budget: Budget = None,
    language: Language = None,
    as_json: Json = False,
) -> None:
    """Measure query types and styles, lengths, word overlap with positives, vocabulary and duplicates of datasets.

    Between datasets it measures the weighted Jaccard similarity of their corpora. Labels are kept in OUT, so that none
    is paid for twice; run a stopped command again to go on.

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
        echo(f"{count} queries have no label: {reason}", err=True)
    value = write_diversity(out, profiles)
    if as_json:
        echo(json.dumps(value, ensure_ascii=False, indent=1))
        return
    echo(terminal_table(summary_rows(profiles)))
    echo(f"report: {out / 'diversity.md'}, with .json, .csv and charts")

"""`airgen diversity`: how diverse the queries of datasets are, and how far their corpora differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airgen.commands.options import Budget, Datasets, Json, Language, echo, new_app, shipped

if TYPE_CHECKING:
    from airgen.quality.diversity.likeness import Likeness


app = new_app()


@app.command()
def diversity(
    datasets: Datasets,
    out: Annotated[Path, typer.Option(help="Folder for the report, its charts and the labels.")] = Path("diversity"),
    label_with: Annotated[
        Path | None, typer.Option(help="A pipeline whose LLM labels query types and styles.", callback=shipped)
    ] = None,
    real: Annotated[
        Path | None,
        typer.Option(help="Real queries to compare with: text, CSV, TSV, JSONL or a BEIR folder; ten or more."),
    ] = None,
    most: Annotated[int | None, typer.Option(min=1, help="Maximum number of queries to label per dataset.")] = None,
    budget: Budget = None,
    language: Language = None,
    as_json: Json = False,
) -> None:
    """Measure query types and styles, lengths, word overlap with positives, vocabulary and duplicates of datasets.

    Between datasets it measures the weighted Jaccard similarity of their corpora. Labels are kept in OUT, so that none
    is paid for twice; run a stopped command again to go on. With --real it also says how much the queries look like
    real ones: lengths, forms, words, meanings.

    Example: airgen diversity runs/quickstart/dataset scifact --real log.csv
    """
    import json

    from airgen.quality.diversity.likeness import likeness_rows, write_likeness
    from airgen.quality.diversity.measure import profile_datasets
    from airgen.quality.diversity.report import summary_rows, write_diversity
    from airgen.text.display import terminal_table

    profiles, failed = profile_datasets(
        datasets, out, language=language, pipeline=label_with, most=most, budget_usd=budget
    )
    for reason, count in failed.items():
        echo(f"{count} queries have no label: {reason}", err=True)
    value = write_diversity(out, profiles)
    alike = _likeness(datasets, real, profiles[0].language) if real else []
    if alike:
        value["likeness"] = write_likeness(out, alike)["datasets"]
    if as_json:
        echo(json.dumps(value, ensure_ascii=False, indent=1))
        return
    echo(terminal_table(summary_rows(profiles)))
    if alike:
        echo("\n" + terminal_table(likeness_rows(alike)))
    more = f", {out / 'likeness.md'}" if alike else ""
    echo(f"report: {out / 'diversity.md'}, with .json, .csv and charts{more}")


def _likeness(datasets: Sequence[Path], real: Path, language: str) -> list[Likeness]:
    """The datasets' queries beside real ones; meanings are compared where a small embedder is on this machine."""
    from airgen import models
    from airgen.dataset.beir import BeirDataset
    from airgen.pipeline.own_tables import read_queries
    from airgen.pipeline.starter import ENGLISH, MULTILINGUAL
    from airgen.quality.diversity.likeness import likeness
    from airgen.retrievers import load_embedder
    from airgen.settings import QueriesSettings

    texts = [line.text for line in read_queries(QueriesSettings(file=str(real)), real, language) if line.text.strip()]
    name = ENGLISH[0] if language == "en" else MULTILINGUAL
    embedder = load_embedder(name) if models.fetched(name) else None
    if embedder is None:
        echo(f"meanings are not compared: airgen models fetch {name}", err=True)
    found = []
    for path in datasets:
        dataset = BeirDataset.open(path)
        asked = [query.text for query in dataset.queries().values()]
        found.append(likeness(dataset.name, asked, texts, language, embedder))
    return found

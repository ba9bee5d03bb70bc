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
    out: Annotated[Path, typer.Option(help="Where the report, its pictures and labels are written.")] = Path(
        "diversity"
    ),
    label_with: Annotated[
        Path | None, typer.Option(metavar="PIPELINE.yaml", help="Label types and styles with this pipeline's LLM.")
    ] = None,
    most: Annotated[
        int | None, typer.Option(min=1, help="Label at most so many queries of a dataset, drawn by their ids.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Most US dollars to spend on labels.")] = None,
    language: Annotated[str | None, typer.Option(help="The corpora's language where no manifest says it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what diversity.json holds.")] = False,
) -> None:
    """Shares of query types and styles, lengths, overlap with positives, vocabulary, duplicates; between datasets
    the weighted Jaccard similarity of their corpora.

    Labels are kept in OUT and not paid twice; a run that was stopped goes on with the same command.

    Example: airgen diversity runs/quickstart/dataset scifact --label-with pipelines/quickstart.yaml
    """
    import json

    from airgen.dataset.beir import BeirDataset
    from airgen.errors import UsageError
    from airgen.evaluation.terminal import columns
    from airgen.quality.diversity.measure import profile_dataset
    from airgen.quality.diversity.report import summary_rows, write_diversity

    if label_with is None and (most is not None or budget is not None):
        raise UsageError("--most and --budget are for --label-with")
    opened = [BeirDataset.open(path) for path in datasets]
    labels: list[dict[str, dict[str, str]]] = [{} for _ in opened]
    if label_with is not None:
        from airgen.quality.diversity.labels import label_queries

        texts = [{key: query.text for key, query in dataset.queries().items()} for dataset in opened]
        found, failed = label_queries(label_with, out, texts, most=most, budget_usd=budget)
        labels = found
        rows = (
            {"dataset": dataset.name, "query": key, **values}
            for dataset, of in zip(opened, labels, strict=True)
            for key, values in of.items()
        )
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (out / "labels.jsonl").write_text(lines, encoding="utf-8", errors="surrogatepass")
        for reason, count in failed.items():
            typer.echo(f"{count} queries have no label: {reason}", err=True)
    profiles = []
    for dataset, of in zip(opened, labels, strict=True):
        fallback = None if dataset.info.get("language") else language
        profiles.append(profile_dataset(dataset, language=fallback, labels=of))
    value = write_diversity(out, profiles)
    if as_json:
        typer.echo(json.dumps(value, ensure_ascii=False, indent=1))
        return
    typer.echo(columns(summary_rows(profiles)))
    typer.echo(f"report: {out / 'diversity.md'}, with .json, .csv and pictures")

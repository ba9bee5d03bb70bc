"""`airgen convert`: the labels of a dataset in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import Dataset, Json, Split, echo, new_app

app = new_app()


@app.command()
def convert(
    dataset: Dataset,
    to: Annotated[
        str, typer.Option(help="quepid, opensearch, elasticsearch, ranx, trec (pytrec_eval) or ir_datasets.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; for ir_datasets a folder. Default: its usual name.")
    ] = None,
    split: Split = "test",
    variant: Annotated[
        str, typer.Option(help="Other labels of a dataset of airgen: graded (0 to 3), positives, soft.")
    ] = "",
    index: Annotated[str, typer.Option(help="elasticsearch: the index that is searched.")] = "my-index",
    fields: Annotated[str, typer.Option(help="elasticsearch: the fields that are searched.")] = "title text",
    as_json: Json = False,
) -> None:
    """Write queries and labels for other tools. `airgen label` reads labels of Quepid, OpenSearch and TREC back.

    Example: airgen convert runs/quickstart/dataset --to opensearch --variant graded
    """
    import json

    from airgen.dataset.beir import BeirDataset
    from airgen.dataset.layouts import FORMATS
    from airgen.dataset.layouts import convert as write

    target = out or Path(FORMATS[to][0] if to in FORMATS else to)
    found = write(
        BeirDataset.open(dataset),
        split,
        to,
        target,
        variant=variant,
        index=index,
        fields=fields.replace(",", " ").split(),
    )
    if as_json:
        value = {"out": str(found.out), "queries": found.queries, "labels": found.labels}
        echo(json.dumps({**value, "without_text": found.without_text}, ensure_ascii=False))
        return
    echo(f"{found.out}: {found.labels:,} labels of {found.queries:,} queries")
    if found.without_text:
        echo(f"{found.without_text:,} of these queries have no text in the dataset", err=True)

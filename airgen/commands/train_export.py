"""`airgen train export`: write a trained augmentation's queries for Lucene and other engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from airgen.commands.options import Json, Split, echo, new_app

app = new_app()


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="A folder that `airgen train augment` wrote.")],
    on: Annotated[Path, typer.Option("--on", help="The dataset whose corpus and queries are written.")],
    out: Annotated[Path, typer.Option(help="Folder for the files; it must be empty.")],
    to: Annotated[Literal["lucene"], typer.Option("--export", help="The form of the queries.")] = "lucene",
    split: Split = "test",
    as_json: Json = False,
) -> None:
    """Write corpus and weighted queries for Lucene, Pyserini and other engines that take boosts of terms.

    The engine indexes the terms as they are, so its own stemmer must be off (Pyserini: --pretokenized).

    Example: airgen train export models/augment-scifact --on scifact --out lucene
    """
    import json
    from dataclasses import asdict

    from airgen.training.lucene_export import export_lucene

    found = export_lucene(model, on, out, split)
    if as_json:
        echo(json.dumps(asdict(found), default=str))
        return
    echo(f"{found.passages:,} passages: {found.corpus}")
    echo(f"{found.asked:,} queries of {found.terms:.1f} terms: {found.queries}")
    echo(f"BM25 of the engine: k1 {found.k1}, b {found.b}, terms divided by spaces")

"""`airgen train explain`: show what a trained query augmentation does to a query."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import Json, echo, new_app

app = new_app()


@app.command()
def explain(
    model: Annotated[Path, typer.Argument(help="A folder that `airgen train augment` wrote.")],
    queries: Annotated[list[str], typer.Argument(help="One or more queries.")],
    on: Annotated[Path | None, typer.Option("--on", help="A dataset; its document frequencies enter weights.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Maximum number of added terms to show.")] = 15,
    as_json: Json = False,
) -> None:
    """Show the terms that a trained augmentation adds to a query, and the query terms that it drops or weakens.

    Weights are divided by the mean weight of the query's own terms: only their ratios affect the ranking.

    Example: airgen train explain models/augment-scifact "statins lower the risk of stroke"
    """
    import json
    from dataclasses import asdict

    from airgen.retrievers.lexical.augment import Augmented
    from airgen.text.display import terminal_table, terminal_text

    system = Augmented(model)
    if on is not None:
        from airgen.training.data import read_corpus

        system.index(read_corpus(on))
    rows = []
    for query in queries:
        terms = system.explain(query)
        own = [term for term in terms if term.in_query]
        shown = [*own, *terms[len(own) : len(own) + top]]
        if as_json:
            listed = [{**asdict(term), "change": term.change} for term in shown]
            rows.append({"query": query, "terms": listed, "added": len(terms) - len(own)})
            continue
        table = [["term", "what", "weight", *(["passages"] if on else [])]]
        table += [[t.term, t.change, f"{t.relative:.2f}", *([str(t.passages)] if on else [])] for t in shown]
        echo(f"{terminal_text(query)}\n{terminal_table(table)}")
        if len(shown) < len(terms):
            echo(f"and {len(terms) - len(shown)} more")
    if as_json:
        echo(json.dumps(rows, ensure_ascii=False))

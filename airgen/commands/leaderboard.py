"""`airgen leaderboard`: saved scores as a static page and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def leaderboard(
    scores: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of `airgen score --save`.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write; the folder DIR if not given.")
    ] = None,
    title: Annotated[str, typer.Option(help="The page's title.")] = "Leaderboard",
    as_json: Annotated[bool, typer.Option("--json", help="Print the tables as JSON too.")] = False,
) -> None:
    """Write saved scores as tables: AIR-Bench's three classes by task, domain and language.

    Example: airgen leaderboard scores/ --title "Python retrieval"
    """
    from airgen.publishing.leaderboard import write_leaderboard
    from airgen.publishing.scores import load_scores

    paths = write_leaderboard(load_scores(scores), out or scores, title=title)
    if as_json:
        typer.echo(paths[1].read_text(encoding="utf-8"), nl=False)
        return
    for path in paths:
        typer.echo(str(path))

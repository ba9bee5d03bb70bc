"""`airgen leaderboard`: write saved scores as a static page and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import Json, echo, new_app

app = new_app()


@app.command()
def leaderboard(
    scores: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with the files of `airgen score --save`.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to write to. Default: the first DIR.")] = None,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Leaderboard",
    as_json: Json = False,
) -> None:
    """Write a page with saved scores: AIR-Bench's three classes of systems, by task, domain and language.

    Example: airgen leaderboard scores/ --title "Python retrieval"
    """
    from airgen.publishing.leaderboard import write_leaderboard
    from airgen.publishing.scores import load_scores

    paths = write_leaderboard(load_scores(scores), out or scores, title=title)
    if as_json:
        echo(paths[1].read_text(encoding="utf-8"), nl=False)
        return
    for path in paths:
        echo(str(path))

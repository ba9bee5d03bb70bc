"""`airgen settings`: the reference of all settings."""

from __future__ import annotations

from typing import Annotated

import typer

from airgen.commands.options import echo, new_app

app = new_app()


@app.command()
def settings(
    find: Annotated[str, typer.Argument(metavar="[WORD]", help="Print only the lines with this word.")] = "",
) -> None:
    """Print every key of every YAML file, with its type, limits and default, as Markdown.

    Example: airgen settings rerankers
    """
    from airgen.pipeline.settings_reference import reference

    text = reference()
    if not find:
        echo(text, nl=False)
        return
    heading, found = "", []
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line
        elif find.lower() in line.lower() and line.startswith("| `"):
            found += [heading, line] if heading else [line]
            heading = ""
    echo("\n".join(found) if found else f"no setting mentions {find!r}")

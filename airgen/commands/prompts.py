"""`airgen prompts`: list, show, render, try."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Prompts: list, show, render, try.")

Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Pipeline = Annotated[Path, typer.Argument(metavar="PIPELINE.yaml", help="The pipeline whose settings are used.")]
Name = Annotated[str, typer.Argument(metavar="PROMPT", help="Its name: query, small/query, judge, ...")]


@app.command("list")
def list_prompts(as_json: Json = False) -> None:
    """All prompts, with version, inputs and fingerprint.

    Example: airgen prompts list
    """
    import json

    from airgen.prompts import PromptSet

    prompts = PromptSet()
    rows = [prompts.get(name) for name in prompts.names()]
    if as_json:
        value = [
            {
                "name": one.name,
                "version": one.version,
                "about": one.about,
                "inputs": one.inputs,
                "fingerprint": one.fingerprint,
            }
            for one in rows
        ]
        typer.echo(json.dumps(value, indent=1))
        return
    for one in rows:
        typer.echo(f"{one.name:<24} v{one.version:<3} {one.fingerprint[:8]}  {one.about}")


@app.command()
def show(name: Name) -> None:
    """The template of a prompt, as it is on the disk.

    Example: airgen prompts show query
    """
    from airgen.prompts import PromptSet

    prompt = PromptSet().get(name)
    for included, text in prompt.included.items():
        typer.echo(f"# {included}\n{text}")
    typer.echo(prompt.source)


@app.command()
def render(
    pipeline: Pipeline,
    name: Name,
    place: Annotated[int, typer.Option("--document", help="Which document of the corpus, from 0.")] = 0,
) -> None:
    """A prompt on a real document of the pipeline's corpus, as it would be sent.

    Example: airgen prompts render pipelines/quickstart.yaml small/query --document 3
    """
    from airgen.runner.trial import trial_inputs

    prompts, values, _ = trial_inputs(pipeline, place)
    for message in prompts.get(name).render(**values):
        typer.echo(f"=== {message.role} ===\n{message.content}\n")


@app.command("try")
def try_prompts(
    pipeline: Pipeline,
    names: Annotated[list[str], typer.Argument(metavar="PROMPT...", help="One prompt, or two to compare.")],
    documents: Annotated[int, typer.Option("-n", help="How many documents.")] = 3,
    as_json: Json = False,
) -> None:
    """Send prompts for real documents and show the parsed answers side by side. Answers are kept and not paid twice.

    Example: airgen prompts try pipelines/quickstart.yaml small/query query -n 5
    """
    import json

    from airgen.runner.trial import try_on_documents

    rows: list[dict[str, Any]] = try_on_documents(pipeline, names, documents)
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    for row in rows:
        typer.echo(f"{row['document']}  {row['title']}")
        for name, answer in row["answers"].items():
            typer.echo(f"  {name:<24} {answer}")

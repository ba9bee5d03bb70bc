"""Options that several commands share, each with its name and help text, and the app that a command module defines.

    app = new_app()

    @app.command()
    def status(pipeline: PipelineFile, runs: Runs = RUNS, as_json: Json = False) -> None: ...

The commands set the defaults.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from airgen.commands import COMMANDS
from airgen.text.display import visible


def finite(value: float | None) -> float | None:
    """The value of an option, where it is a number. Neither limit of a range keeps NaN out."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


def new_app(group: str | None = None) -> typer.Typer:
    """The app of a command module. `group`: the name of a command that has subcommands."""
    about = COMMANDS[group] if group else None
    return typer.Typer(add_completion=False, help=about, no_args_is_help=group is not None)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print what a command has to say, JSON or not. Every command prints with this: no control character gets through.

    `err`: on standard error. `nl`: with a line end after it.
    """
    typer.echo(visible(text), err=err, nl=nl)


def show_drift(path: Path, runs: Path, result: Any, *, quiet: bool) -> None:
    """After a run that made the next version of a dataset: how the ranking of the pipeline's systems has changed.

    `result` is what `run_pipeline` gave. The report goes to standard error: JSON on standard output stays whole.
    """
    from airgen.pipeline.job import Job
    from airgen.pipeline.refresh import earlier_version

    version = earlier_version(result.manifest)
    if version is None or result.already_done or not result.scores:
        return
    from airgen.quality.versions import drift_since

    text = drift_since(Job(path, runs), version)
    if not quiet:
        echo(text, err=True)


def shipped(value: Path | None) -> Path | None:
    """The file of a pipeline or of systems, by its path or by its name; None stays None."""
    from airgen.settings.base import find_yaml

    return None if value is None else find_yaml("pipelines", value)


RUNS = Path("runs")

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Runs = Annotated[Path, typer.Option(help="Folder that holds the work directories of jobs.")]
PipelineFile = Annotated[
    Path,
    typer.Argument(
        metavar="PIPELINE", help="A pipeline YAML, or the name of one that airgen ships: quickstart.", callback=shipped
    ),
]
Target = Annotated[
    int | None, typer.Option(min=1, help="Number of accepted queries to generate; replaces the pipeline's `target`.")
]
Budget = Annotated[
    float | None,
    typer.Option(
        min=0,
        callback=finite,
        help="Maximum cost in US dollars, earlier runs of this work included. "
        "At the limit the command stops; run it again with a higher limit to go on.",
    ),
]
Dataset = Annotated[Path, typer.Argument(metavar="DATASET", help="A dataset directory in BEIR format.")]
Datasets = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATASET...", help="Dataset directories in BEIR format (corpus.jsonl, queries.jsonl, qrels/)."
    ),
]
Compute = Annotated[
    str | None,
    typer.Option(
        "--compute",
        metavar="WHERE",
        help="Where heavy work runs: local, local:8 (processes), ray, ray:8, ray://HOST:10001. Results are the same.",
    ),
]
Split = Annotated[str, typer.Option(help="The split whose relevance labels (qrels) are used.")]
Seed = Annotated[int, typer.Option(help="Seed of the random choices.")]
Language = Annotated[
    str | None, typer.Option(help="Language of the corpus, if the dataset has no manifest that names it.")
]
PassageLimit = Annotated[int | None, typer.Option(min=1, help="Maximum number of passages to read.")]
Device = Annotated[
    str | None, typer.Option(help="Where to compute: cpu, cuda, cuda:1, mps, ... By default a GPU if there is one.")
]
IgnoreIdenticalIds = Annotated[
    bool,
    typer.Option("--ignore-identical-ids", help="Leave out hits whose id is the query's own id (ArguAna, Quora)."),
]

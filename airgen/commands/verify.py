"""`airgen verify`: is a dataset directory whole and fit to be given away?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def verify(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Finished datasets, or versions of suites.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the problems as JSON.")] = False,
) -> None:
    """Check hashes, ids, labels, splits and leaks of finished datasets; exit 1 if anything is wrong.

    Example: airgen verify runs/python-reference/dataset
    """
    import json
    from dataclasses import asdict

    from airgen.dataset.verify import Problem
    from airgen.dataset.verify import verify as find_problems

    results: dict[str, list[Problem]] = {}
    for directory in directories:
        if (directory / "suite.json").is_file():
            from airgen.publishing.suites import verify_suite

            results |= verify_suite(directory)
        else:
            results[str(directory)] = find_problems(directory)
    if as_json:
        value = {name: [asdict(problem) for problem in problems] for name, problems in results.items()}
        typer.echo(json.dumps(value, ensure_ascii=False, indent=1))
    else:
        for name, problems in results.items():
            for problem in problems:
                typer.echo(f"{name}: {problem}")
            if not problems:
                typer.echo(f"{name}: whole")
    if any(problem.severity == "error" for problems in results.values() for problem in problems):
        raise typer.Exit(1)

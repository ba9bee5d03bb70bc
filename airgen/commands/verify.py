"""`airgen verify`: is a dataset directory complete and fit to be given away?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import Json, echo, new_app

app = new_app()


@app.command()
def verify(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Datasets or versions of suites.")],
    as_json: Json = False,
) -> None:
    """Check hashes, ids, labels, splits and leaks of finished datasets. The exit code is 1 if there is an error.

    Example: airgen verify runs/python-reference/dataset
    """
    import json
    from dataclasses import asdict

    from airgen.publishing.suites import verify_directory

    results = {name: problems for home in directories for name, problems in verify_directory(home).items()}
    if as_json:
        value = {name: [asdict(problem) for problem in problems] for name, problems in results.items()}
        echo(json.dumps(value, ensure_ascii=False, indent=1))
    else:
        for name, problems in results.items():
            for problem in problems:
                echo(f"{name}: {problem}")
            if not problems:
                echo(f"{name}: whole")
    if any(problem.severity == "error" for problems in results.values() for problem in problems):
        raise typer.Exit(1)

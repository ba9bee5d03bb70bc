"""`airgen view`: the report on this machine, following a running job."""

from __future__ import annotations

from typing import Annotated

import typer

from airgen.commands.options import RUNS, Json, Runs, echo, new_app

app = new_app()


@app.command()
def view(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...", help="Pipelines, work directories of jobs, datasets, suites, folders of results."
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1. Default: a free one.")] = 0,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Serve the report of `airgen report` to this machine only, and follow a running job. Ctrl-C ends it.

    Open the address that is printed: it holds a token, without which nothing is shown. The job is only read.

    Example: airgen view pipelines/quickstart.yaml
    """
    import json
    import signal
    import sys
    import threading
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from airgen.report.server import serving
    from airgen.report.view import View

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with TemporaryDirectory(prefix="airgen-view-") as folder:
            found = View(what, Path(folder), runs)
            with serving(found, port) as address:
                if as_json:
                    echo(json.dumps({"address": address}))
                else:
                    echo(f"{found.title}: open {address}")
                    echo("Only this machine can open it, and only with this address. Ctrl-C ends it.")
                sys.stdout.flush()
                found.watch(threading.Event())
    except KeyboardInterrupt:
        echo("\nended", err=True)

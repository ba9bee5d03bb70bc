"""`airgen report`: write or serve a report on jobs, datasets and results."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from airgen.commands.command import command
from airgen.commands.options import Place, Places, Runs, arg, opt, path_or_none, paths
from airgen.commands.outcome import Outcome
from airgen.commands.printing import echo, is_silent
from airgen.errors import UsageError
from airgen.safety.escaping import json_text


@command
def report(
    what: Annotated[Places, arg("WHAT", "Jobs (pipelines, names, work directories), datasets, suites or results.")],
    out: Annotated[Place | None, opt("Folder or HTML file to write. Default: RUNS/NAME/report or ./report.")] = None,
    single_file: Annotated[bool, opt("Write a single HTML file instead of a folder (for small jobs).")] = False,
    public: Annotated[bool, opt("Leave out private labels, and everything that could reveal them.")] = False,
    private_qrels: Annotated[
        Sequence[str],
        opt("With --public: split with private labels. Default: every split except dev.", metavar="SPLIT"),
    ] = (),
    live: Annotated[bool, opt("Serve the report on this machine and follow a running job, until Ctrl-C.")] = False,
    port: Annotated[int, opt("With --live: port on 127.0.0.1. Default: a free port.", min=0, max=65535)] = 0,
    runs: Runs = None,
) -> Outcome[Path]:
    """Write a report for your browser, with every query, label and system. It needs neither a server nor a network.

    For a job that is running or was stopped, the report shows the results so far. With --live, nothing is written: open
    the address that is printed. It contains a token, without which the server shows nothing.

    Example: airgen report pipelines/quickstart.yaml        airgen report datasets/scifact results --single-file

    Returns:
        The path of the page.

    Raises:
        UsageError: Options contradict each other.
        DatasetError: There is nothing to report on, or it cannot be read.
    """
    from airgen.report.report import make_report

    if private_qrels and not public:
        raise UsageError("--private-qrels needs --public")
    if live and (public or single_file or out):
        raise UsageError("--live writes no files: remove --out, --single-file and --public")
    if live:
        return _serve(paths(what), port, path_or_none(runs))
    page = make_report(
        paths(what),
        path_or_none(out),
        runs=path_or_none(runs),
        single_file=single_file,
        public=public,
        private=list(private_qrels) or None,
    )
    return Outcome(page, str(page), json={"page": page})


def _serve(what: list[Path], port: int, runs: Path | None) -> Outcome[Path]:
    """Serve the report until the user stops it. The address is printed at once."""
    from airgen.report.live import View
    from airgen.report.server import serving

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with TemporaryDirectory(prefix="airgen-live-") as folder:
            view = View([str(path) for path in what], Path(folder), runs)
            with serving(view, port) as address:
                only = "It can be opened only on this machine and with this address. Press Ctrl-C to stop."
                echo(json_text({"address": address}) if is_silent() else f"{view.title}: open {address}\n{only}")
                sys.stdout.flush()
                view.watch(threading.Event())
    except KeyboardInterrupt:
        echo("\nstopped", err=True)
    return Outcome(Path(), hidden=True)

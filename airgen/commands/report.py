"""`airgen report`: a page to browse everything that is known of jobs, datasets and results, written or served."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from airgen.commands.command import Outcome, command, echo, is_silent
from airgen.commands.options import Place, Places, Runs, arg, opt, path_or_none, paths
from airgen.errors import UsageError
from airgen.text.display import json_text


@command
def report(
    what: Annotated[Places, arg("WHAT", "Jobs (pipelines, names, work directories), datasets, suites, results.")],
    out: Annotated[Place | None, opt("The folder, or the HTML file. Default: RUNS/NAME/report, ./report.")] = None,
    single_file: Annotated[bool, opt("Write one HTML file instead of a folder; for small runs.")] = False,
    public: Annotated[bool, opt("Leave out private labels and all that could tell them.")] = False,
    private_qrels: Annotated[
        Sequence[str],
        opt("With --public: a split whose labels are private. Default: every split but dev.",
            metavar="SPLIT"),
    ] = (),
    live: Annotated[bool, opt("Serve the page to this machine only, and follow a running job, until Ctrl-C.")] = False,
    port: Annotated[int, opt("With --live: port on 127.0.0.1. Default: a free one.", min=0, max=65535)] = 0,
    runs: Runs = None,
) -> Outcome[Path]:  # fmt: skip
    """Write a report to browse: every query, label and system. It opens in a browser, without a server or a network.

    Of a job that runs or was stopped, the report shows what there is so far. With --live nothing is written, and the
    job is only read: open the address that is printed, which holds a token, without which nothing is shown.

    Example: airgen report pipelines/quickstart.yaml        airgen report datasets/scifact results --single-file
    """
    from airgen.report.report import make_report

    if private_qrels and not public:
        raise UsageError("--private-qrels says what a public report leaves out: add --public")
    if live and (public or single_file or out):
        raise UsageError("--live writes nothing: it takes no --out, --single-file or --public")
    if live:
        return _serve(paths(what), port, path_or_none(runs))
    page = make_report(
        paths(what), path_or_none(out), runs=path_or_none(runs), single_file=single_file, public=public,
        private=list(private_qrels) or None,
    )  # fmt: skip
    return Outcome(page, str(page), json={"page": page})


def _serve(what: list[Path], port: int, runs: Path | None) -> Outcome[Path]:
    """Serve the report until the user ends it. The address is said at once: the command ends only then."""
    from airgen.report.server import serving
    from airgen.report.view import View

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with TemporaryDirectory(prefix="airgen-live-") as folder:
            found = View([str(one) for one in what], Path(folder), runs)
            with serving(found, port) as address:
                only = "Only this machine can open it, and only with this address. Ctrl-C ends it."
                echo(json_text({"address": address}) if is_silent() else f"{found.title}: open {address}\n{only}")
                sys.stdout.flush()
                found.watch(threading.Event())
    except KeyboardInterrupt:
        echo("\nended", err=True)
    return Outcome(Path(), hidden=True)

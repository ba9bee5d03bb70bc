"""`airgen demo`: a first benchmark in minutes, without a key, a GPU or torch."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from airgen.commands.options import RUNS, Json, Runs, echo, new_app

app = new_app()

EXTRAS = ("embedded", "long-doc", "corpus")  # what the demo needs beside the base


@app.command()
def demo(
    task: Annotated[Literal["qa", "long-doc"], typer.Option(help="The paper's task to show.")] = "qa",
    target: Annotated[int, typer.Option(min=1, help="Number of accepted queries.")] = 8,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Make a small benchmark with a model on this machine, and evaluate four systems on it.

    Installs the packages that are missing (in a virtual environment only), fetches the models (1.2 GB, once), and runs
    a pipeline that airgen ships. Run it again to go on. Example: airgen demo
    """
    from airgen import models
    from airgen.commands.models import fetch
    from airgen.errors import AirgenError
    from airgen.pipeline.job import Job
    from airgen.pipeline.show import read_report, render_work
    from airgen.pipeline.summary import print_result, run_pipeline
    from airgen.report.report import report_of_run
    from airgen.settings.base import find_yaml

    _install(not as_json)
    if any(not models.fetched(name) for name in models.expand(["quickstart"])):
        fetch(["quickstart"])
    name = "quickstart"
    if task == "long-doc":
        from airgen.corpus import load_corpus_settings
        from airgen.corpus.fetch import fetch as fetch_corpus
        from airgen.corpus.fetch import is_fetched

        name = "quickstart-long-doc"
        corpus = load_corpus_settings("indian-constitution")
        if not is_fetched(corpus):
            fetch_corpus(corpus, say=lambda line: echo(line, err=True))
    pipeline = find_yaml("pipelines", name)
    result = run_pipeline(pipeline, runs=runs, target=target)
    result = report_of_run(result, pipeline, runs, target, lambda line: echo(line, err=True))
    print_result(result, as_json=as_json)
    if result.failed:
        raise AirgenError("\n".join(result.failed))
    if not as_json:
        echo("\n" + render_work(read_report(Job(pipeline, runs, target=target))))
        where = "" if runs == RUNS else f" --runs {runs}"
        echo(f"\nLook inside:        airgen show {name}{where}")
        echo("Your own documents: airgen init FOLDER")


def _install(say: bool) -> None:
    """Install the missing packages of the demo with pip. Raises AirgenError with the command where that cannot be."""
    import importlib
    import importlib.metadata
    import importlib.util
    import subprocess
    import sys

    from airgen.errors import AirgenError
    from airgen.registry import EXTRAS as PACKAGES

    needed = [name for name, (_, extra) in PACKAGES.items() if extra in EXTRAS]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if not missing:
        return
    command = f"pip install 'airgen-bench[{','.join(EXTRAS)}]'"
    if sys.prefix == sys.base_prefix:
        raise AirgenError(f"the demo needs {', '.join(missing)}: {command}, best in a virtual environment")
    try:
        declared = importlib.metadata.requires("airgen-bench") or []
    except importlib.metadata.PackageNotFoundError:
        raise AirgenError(f"the demo needs {', '.join(missing)}: {command}") from None
    parts = (line.partition(";") for line in declared)
    marks = [f"extra == {quote}{extra}{quote}" for extra in EXTRAS for quote in "'\""]
    wanted = [name.strip() for name, _, rest in parts if any(mark in rest for mark in marks)]
    if say:
        echo(f"installing {', '.join(wanted)}", err=True)
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *wanted], stdout=sys.stderr, check=False)
    if done.returncode:
        raise AirgenError(f"pip could not install the packages of the demo: see its words above, or try {command}")
    importlib.invalidate_caches()

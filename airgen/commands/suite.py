"""`airgen suite`: many datasets under one name, in versions that never change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Build and compare suites of datasets.")

_JSON = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]


@app.command()
def build(
    suite: Annotated[Path, typer.Argument(metavar="SUITE.yaml", help="Name, version and pipelines of the suite.")],
    budget: Annotated[float | None, typer.Option(help="US dollars for all pipelines together.")] = None,
    runs: Annotated[Path, typer.Option(help="Where the pipelines' work directories are.")] = Path("runs"),
    root: Annotated[Path, typer.Option(help="Where suites are.")] = Path("suites"),
    as_json: _JSON = False,
) -> None:
    """Run a suite's pipelines and collect their datasets as a version. Run it again to go on after a stop.

    Example: airgen suite build suites/python.yaml --budget 20
    """
    import json

    from airgen.pipeline.job import Job
    from airgen.pipeline.summary import run_pipeline
    from airgen.publishing.suites import Outcome, load_suite
    from airgen.publishing.suites import build as build_version
    from airgen.text.tokens import count_tokens

    def run(path: Path, budget_usd: float | None) -> Outcome:
        run_pipeline(path, runs=runs, budget_usd=budget_usd, evaluate=False)
        job = Job(path, runs)
        with job.open_store(read_only=True) as store:
            rows = list(store.query("SELECT coalesce(sum(cost_usd), 0) FROM answer"))
        return Outcome(job.dataset, float(rows[0][0]))

    built = build_version(
        load_suite(suite),
        root,
        run,
        budget_usd=budget,
        count_tokens=count_tokens,
        say=lambda line: typer.echo(line, err=True),
    )
    if as_json:
        value = {"directory": str(built.directory), "spent_usd": built.spent_usd, "datasets": sorted(built.datasets)}
        typer.echo(json.dumps(value, indent=1))
    else:
        typer.echo((built.directory / "statistics.md").read_text(encoding="utf-8"))
        typer.echo(f"{built.directory}, ${built.spent_usd:.2f}")


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The directory of a finished version.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The directory of another.")],
    as_json: _JSON = False,
) -> None:
    """Say what a version changed: datasets added, trimmed, grown, and queries that changed split (none should).

    Example: airgen suite diff suites/python/26.11 suites/python/26.12
    """
    import json
    from dataclasses import asdict

    from airgen.publishing.diff import diff as compare
    from airgen.publishing.diff import diff_text

    changes = compare(old, new)
    typer.echo(json.dumps([asdict(change) for change in changes], indent=1) if as_json else diff_text(changes))


@app.command()
def stats(
    home: Annotated[Path, typer.Argument(metavar="DIR", help="A finished version of a suite, or a dataset.")],
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: _JSON = False,
) -> None:
    """Print passages, tokens, queries, positives, hard negatives and licences, as the paper's Tables 16 to 21.

    Example: airgen suite stats suites/python/26.11 --csv
    """
    import json

    from airgen.dataset.manifest import MANIFEST, load_manifest
    from airgen.dataset.statistics import statistics_csv, statistics_markdown, table_rows
    from airgen.publishing.suites import datasets_of

    manifests = [load_manifest(home)] if (home / MANIFEST).is_file() else list(datasets_of(home).values())
    rows = table_rows(manifests)
    text = statistics_csv(rows) if as_csv else json.dumps(rows, indent=1) if as_json else statistics_markdown(rows)
    typer.echo(text.rstrip("\n"))


@app.command()
def layout(
    home: Annotated[Path, typer.Argument(metavar="DIR", help="A finished version of a suite, or a dataset.")],
    kind: Annotated[str, typer.Argument(metavar="LAYOUT", help="trec or air-bench.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The directory to write.")],
    as_json: _JSON = False,
) -> None:
    """Write datasets for other tools: TREC files (ir_datasets, trec_eval), or AIR-Bench's folders (air-benchmark).

    Example: airgen suite layout suites/python/26.11 air-bench --out export
    """
    import json

    from airgen.dataset.layouts import export_layout, export_layouts
    from airgen.dataset.manifest import MANIFEST
    from airgen.publishing.suites import datasets_of

    if (home / MANIFEST).is_file():
        files = export_layout(home, kind, out)
    else:
        files = export_layouts({key: home / key for key in datasets_of(home)}, kind, out)
    names = [path.relative_to(out).as_posix() for path in files]
    typer.echo(json.dumps({"directory": str(out), "files": names}, indent=1) if as_json else "\n".join(names))

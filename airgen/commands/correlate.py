"""`airgen correlate`: do two benchmarks, or two tasks, rank systems alike?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from airgen.commands.options import Json, echo, new_app

app = new_app()


@app.command()
def correlate(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS...",
            help="Folders of `airgen evaluate --out`, folders of MTEB's results, or CSV tables of systems.",
        ),
    ],
    by: Annotated[
        Literal["folder", "task", "domain", "language", "dataset"],
        typer.Option(help="What is compared: each source as a whole, or its tasks, domains, languages or datasets."),
    ] = "folder",
    names: Annotated[
        Path | None, typer.Option(metavar="YAML", help="{name in a source: common name}, where systems differ in name.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Compare only this system (repeatable).")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Use only this dataset or task (repeatable).")] = None,
    measure: Annotated[
        str | None, typer.Option(help="The measure of airgen's results; by default the one that ranks systems.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="The split of datasets that have several; else test, then dev.")
    ] = None,
    least: Annotated[int, typer.Option(min=3, help="Fewest common systems of two benchmarks.")] = 3,
    out: Annotated[Path, typer.Option(help="Folder for the report and its charts.")] = Path("correlation"),
    as_json: Json = False,
) -> None:
    """Correlate the rankings of the same systems by several benchmarks: Spearman and Kendall, p-values, intervals.

    Systems are matched by name; `intfloat/e5-large-v2` is `e5-large-v2`. A benchmark is the mean over its datasets.

    Example: airgen correlate results --by task
    Example: airgen correlate results mteb-results --names names.yaml --dataset ArguAna --dataset SciFact
    """
    import json

    from airgen.errors import UsageError
    from airgen.evaluation.correlate import correlate as compare
    from airgen.evaluation.score_tables import benchmarks, read_names, read_system_scores
    from airgen.text.display import distinct_names

    if len(set(sources)) < len(sources):
        raise UsageError("a source is given twice")
    titles = distinct_names(path.stem if path.is_file() else path.resolve().name for path in sources)
    rows = {
        title: read_system_scores(path, measure=measure, split=split)
        for title, path in zip(titles, sources, strict=True)
    }
    mapped = read_names(names) if names else {}
    study = compare(benchmarks(rows, by=by, names=mapped, only=only or (), datasets=dataset or ()), least=least)
    study.write(out)
    if as_json:
        echo(json.dumps(study.as_dict(), ensure_ascii=False, indent=1))
        return
    echo(study.text())
    echo(f"{out / 'correlation.md'}, correlation.json, correlation.svg, scores.svg")

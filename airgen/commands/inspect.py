"""`airgen inspect`: is a benchmark, generated or not, any good?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import Dataset, Json, Language, Split, echo, new_app, shipped

app = new_app()


@app.command()
def inspect(
    dataset: Dataset,
    results: Annotated[
        Path | None,
        typer.Option(help="Runs that are there already: the --out of `airgen evaluate`, or a folder of TREC runs."),
    ] = None,
    systems: Annotated[
        Path | None,
        typer.Option(help="A systems YAML to run. Default: cheap systems, systems-inspect.", callback=shipped),
    ] = None,
    against: Annotated[
        list[Path] | None, typer.Option(help="Another collection whose texts must not be here (repeatable).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the page, the JSON and the results. Default: inspect/NAME/SPLIT.")
    ] = None,
    split: Split = "test",
    language: Language = None,
    as_json: Json = False,
) -> None:
    """Look for what makes a benchmark useless: labels, queries and systems, with a verdict and what to do.

    It takes any dataset in BEIR format, with or without airgen's manifest. Cheap systems run on the spot unless
    --results names runs. The exit code is 0 for every verdict.

    Example: airgen inspect datasets/scifact --against datasets/nfcorpus
    """
    import json

    from airgen.dataset.beir import BeirDataset
    from airgen.errors import UsageError
    from airgen.evaluation.experiment import results_folder
    from airgen.evaluation.result import without_nan
    from airgen.quality.inspection.inspect_dataset import inspect_dataset
    from airgen.report.inspection import inspection_text, write_inspection

    if results is not None and systems is not None:
        raise UsageError("--results takes runs that are there, --systems makes them: give one of the two")

    def say(line: str) -> None:
        if not as_json:
            echo(line, err=True)

    folder = out or results_folder("inspect", BeirDataset.open(dataset).name, split)
    found = inspect_dataset(
        dataset, systems=systems, out=folder, split=split, language=language, results=results, against=against or (),
        say=say,
    )  # fmt: skip
    files = write_inspection(found, folder)
    if as_json:
        echo(json.dumps(without_nan(found.as_dict(), 6), ensure_ascii=False, indent=1))
        return
    echo(inspection_text(found))
    echo(f"page: {files[0]}, with .json")

"""`airgen gain`: what a change of a model is worth, on several datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import Datasets, Json, Language, Split, echo, finite, new_app, shipped

app = new_app()


@app.command()
def gain(
    datasets: Datasets,
    before: Annotated[
        str, typer.Option(help="The embedding model before: a folder, a Hub name, ...; with --systems a system's name.")
    ],
    after: Annotated[str, typer.Option(help="The model, or the system, after.")],
    systems: Annotated[
        Path | None, typer.Option(help="A systems YAML that has both systems.", callback=shipped)
    ] = None,
    measure: Annotated[
        str | None, typer.Option(help="By default nDCG@10, and Recall@10 for Long-Doc datasets.")
    ] = None,
    split: Split = "test",
    results: Annotated[Path, typer.Option(help="Folder of results; what is there does not run again.")] = Path(
        "results"
    ),
    out: Annotated[Path, typer.Option(help="Folder for the report and its chart.")] = Path("gain"),
    alpha: Annotated[
        float, typer.Option(min=0.0001, max=0.5, callback=finite, help="Significance level, Holm-corrected.")
    ] = 0.05,
    language: Language = None,
    as_json: Json = False,
) -> None:
    """Compare a model before and after fine-tuning, on two or more datasets: where does it gain, where does it lose?

    Both are evaluated on each dataset, and the differences have paired intervals.

    Example: airgen gain datasets/finance datasets/law --before all-minilm-l6-v2 --after models/finance
    """
    import json

    from airgen.commands.evaluate import opened_datasets
    from airgen.evaluation import DEFAULT_MEASURES, EvaluationOptions, evaluate
    from airgen.evaluation.gain import gains
    from airgen.evaluation.systems import before_and_after

    pair, folder = before_and_after(before, after, systems)
    options = EvaluationOptions(
        split, (*DEFAULT_MEASURES, *([measure] if measure else [])), language=language, folder=folder
    )
    found = []
    for opened in opened_datasets(datasets).values():
        done = evaluate(opened, pair, results, options, progress=lambda line: echo(line, err=True))
        by_name = {result.name: result for result in done}
        found.append((opened, by_name[pair[-2].name], by_name[pair[-1].name]))
    report = gains(found, measure=measure, alpha=alpha)
    report.write(out)
    if as_json:
        echo(json.dumps(report.as_dict(), ensure_ascii=False, indent=1))
        return
    echo(report.text())
    echo(f"{out / 'gain.md'}, gain.json, gain.svg; by system: {results}/DATASET/{split}/report.md")

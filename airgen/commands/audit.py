"""`airgen audit`: people check a sample of a dataset's labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False, help="People check a sample of a dataset's labels.", no_args_is_help=True)

_PIPELINE = typer.Argument(metavar="PIPELINE.yaml", help="The pipeline that was run.")
_OUT = typer.Option(help="The folder of the sample; runs/NAME/audit if not given.")
_RUNS = typer.Option(help="Where work directories are.")


@app.command()
def sample(
    pipeline: Annotated[Path, _PIPELINE],
    count: Annotated[int, typer.Argument(metavar="N", min=1, help="How many pairs people see.")],
    out: Annotated[Path | None, _OUT] = None,
    seed: Annotated[int, typer.Option(help="A different seed draws different pairs.")] = 0,
    runs: Annotated[Path, _RUNS] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Draw pairs of every kind and level, as one HTML page and a CSV; neither shows the judge's answers.

    Example: airgen audit sample pipelines/quickstart.yaml 40
    """
    import json

    from airgen.pipeline.job import Job
    from airgen.quality.audit.job_audit import draw_sample

    job = Job(pipeline, runs)
    folder = out or job.directory / "audit"
    drawn = draw_sample(job, count, folder, seed)
    if as_json:
        value = {"folder": str(folder), "pairs": len(drawn.items), "strata": dict(drawn.populations)}
        typer.echo(json.dumps(value, ensure_ascii=False))
        return
    typer.echo(f"{len(drawn.items)} pairs of {sum(drawn.populations.values())}: open {folder / 'audit.html'}")
    typer.echo(f"then: airgen audit score {pipeline} audit-answers.json")


@app.command()
def score(
    pipeline: Annotated[Path, _PIPELINE],
    answers: Annotated[
        list[Path], typer.Argument(help="The files that people saved: JSON of the page, or the filled-in CSV.")
    ],
    out: Annotated[Path | None, _OUT] = None,
    runs: Annotated[Path, _RUNS] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Compare the answers with the labels, by kind of document and by level, and write that into the dataset's card.

    Example: airgen audit score pipelines/quickstart.yaml audit-answers.json
    """
    import json

    from airgen.pipeline.job import Job
    from airgen.quality.audit.job_audit import score_answers
    from airgen.text.display import terminal_table

    job = Job(pipeline, runs)
    result = score_answers(job, answers, out or job.directory / "audit")
    if as_json:
        typer.echo(json.dumps(result.as_dict(), ensure_ascii=False))
        return
    typer.echo(terminal_table([["", "people say"], *([name, str(value)] for name, value in result.as_card().items())]))
    typer.echo(f"written into {job.dataset / 'README.md'}")

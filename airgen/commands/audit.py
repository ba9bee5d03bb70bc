"""`airgen audit`: people check a sample of a dataset's labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import RUNS, Json, Runs, Seed, Split, echo, new_app

__all__ = ["app"]

app = new_app("audit")

AuditFolder = Annotated[
    Path | None, typer.Option(help="Folder of the sample. Default: RUNS/NAME/audit, for a dataset audit/NAME.")
]
PipelineOrDataset = Annotated[
    Path, typer.Argument(metavar="PIPELINE.yaml", help="The pipeline; or a dataset directory, such as a released one.")
]


@app.command()
def sample(
    pipeline: PipelineOrDataset,
    count: Annotated[int, typer.Argument(metavar="N", min=1, help="Number of pairs that people are shown.")],
    out: AuditFolder = None,
    seed: Seed = 0,
    split: Split = "test",
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Draw pairs of every kind and level and write them as an HTML page and a CSV file.

    Neither file shows the label that the judge gave. Of a dataset without its job the labels of --split are drawn.

    Example: airgen audit sample pipelines/quickstart.yaml 40
    """
    import json

    from airgen.pipeline.job import Job
    from airgen.quality.audit.dataset_audit import draw_from_labels
    from airgen.quality.audit.job_audit import draw_sample

    if pipeline.is_dir():
        folder = out or _folder(pipeline)
        drawn = draw_from_labels(pipeline, split, count, folder, seed)
    else:
        job = Job(pipeline, runs)
        folder = out or job.directory / "audit"
        drawn = draw_sample(job, count, folder, seed)
    if as_json:
        value = {"folder": str(folder), "pairs": len(drawn.items), "strata": dict(drawn.populations)}
        echo(json.dumps(value, ensure_ascii=False))
        return
    echo(f"{len(drawn.items)} pairs of {sum(drawn.populations.values())}: open {folder / 'audit.html'}")
    of_split = f" --split {split}" if pipeline.is_dir() and split != "test" else ""
    at = f" --out {out}" if out else ""
    echo(f"then: airgen audit score {pipeline} audit-answers.json{of_split}{at}")


@app.command()
def score(
    pipeline: PipelineOrDataset,
    answers: Annotated[list[Path], typer.Argument(help="Answers: the JSON that the page saves, or the filled-in CSV.")],
    out: AuditFolder = None,
    split: Split = "test",
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Read people's answers and write their agreement, by kind of document and by level, into the dataset's card.

    Example: airgen audit score pipelines/quickstart.yaml audit-answers.json
    """
    import json

    from airgen.pipeline.job import Job
    from airgen.quality.audit.dataset_audit import score_labels
    from airgen.quality.audit.job_audit import score_answers
    from airgen.text.display import terminal_table

    if pipeline.is_dir():
        folder = out or _folder(pipeline)
        result, place = score_labels(pipeline, split, answers, folder), folder / "result.json"
    else:
        job = Job(pipeline, runs)
        result, place = score_answers(job, answers, out or job.directory / "audit"), job.dataset / "README.md"
    if as_json:
        echo(json.dumps(result.as_dict(), ensure_ascii=False))
        return
    echo(terminal_table([["", "people say"], *([name, str(value)] for name, value in result.as_card().items())]))
    echo(f"written into {place}")


def _folder(dataset: Path) -> Path:
    """The folder of the sample of a dataset without its job."""
    from airgen.dataset.beir import BeirDataset
    from airgen.evaluation.experiment import results_folder

    return results_folder("audit", BeirDataset.open(dataset).name, "")

"""What airgen does, as functions of Python: `import airgen`, then `airgen.check`, `airgen.run_pipeline`, ...

    print(airgen.check("pipeline.yaml").problems)
    result = airgen.run_pipeline("pipeline.yaml", budget_usd=5.0)
    for found in airgen.evaluate(result.directory / "dataset", "systems.yaml", split="all"):
        print(found.name, found.score)

Each does what the command of its name does, prints nothing with `quiet=True`, and raises an error of `airgen.errors`.
They can be called in a notebook.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from airgen import pipeline as jobs
from airgen.dataset.beir import BeirDataset
from airgen.errors import AirgenError
from airgen.evaluation import EvaluationOptions, Result, SystemSettings, load_systems, write_overview
from airgen.evaluation import evaluate as evaluate_dataset
from airgen.pipeline.estimate import Estimate, estimate
from airgen.pipeline.label_pipeline import label_pipeline
from airgen.pipeline.preflight import preflight
from airgen.pipeline.show import read_report
from airgen.settings.base import find_yaml

Place = str | Path


@dataclass(frozen=True)
class Check:
    """What a job lacks, a line each, and what it will cost; None where the corpus cannot be read."""

    problems: list[str]
    estimate: Estimate | None


def check(pipeline: Place, *, runs: Place = "runs", target: int | None = None) -> Check:
    """What a pipeline needs and lacks, and its cost; no model is asked. Raises SettingsError for its YAML."""
    job = jobs.Job(Path(pipeline), Path(runs), target=target)
    problems = preflight(job)
    try:
        return Check(problems, estimate(job))
    except AirgenError as error:
        return Check([*problems, *str(error).splitlines()], None)


def run_pipeline(
    pipeline: Place,
    *,
    runs: Place = "runs",
    budget_usd: float | None = None,
    target: int | None = None,
    until: str | None = None,
    retry_failed: bool = False,
    evaluate: bool = True,
    compute: str | None = None,
    quiet: bool = False,
) -> jobs.RunResult:
    """Build a benchmark, or go on building it; `pipeline` is a YAML or the name of a shipped one.

    budget_usd: US dollars, earlier runs included. until: stop after `corpus`, `hard_negative` or `judgment`. evaluate:
    run the pipeline's systems at the end. compute: where heavy work runs, as `--compute` says it, in place of the
    pipeline's own. Raises SettingsError with all that is missing before anything is asked, and
    Stopped or BudgetSpent where the same call goes on later.
    """
    return jobs.run_pipeline(
        Path(pipeline), runs=Path(runs), budget_usd=budget_usd, target=target, until=until, retry_failed=retry_failed,
        evaluate=evaluate, console=Console(stderr=True, quiet=quiet), compute=compute,
    )  # fmt: skip


def label(
    queries: Place,
    *,
    corpus: Place | None = None,
    pipeline: Place = "quickstart",
    labels: Sequence[Place] | None = None,
    systems: Place | None = None,
    sample: int | None = None,
    name: str = "",
    settings: Mapping[str, Any] | None = None,
    runs: Place = "runs",
    budget_usd: float | None = None,
    retry_failed: bool = False,
    evaluate: bool = True,
    compute: str | None = None,
    quiet: bool = False,
) -> jobs.RunResult:
    """Label queries that are there already, or go on: writes NAME.yaml, a pipeline, and runs it.

    queries: a text, CSV, TSV or JSONL file, or a folder in BEIR format. labels: files of labels that exist (None: the
    qrels of a BEIR folder). systems: a systems YAML whose hits are judged, too. settings: other fields of `queries:`.
    Raises what `run_pipeline` raises, UsageError where NAME.yaml says something else, DatasetError for bad files.
    """
    path = label_pipeline(
        Path(queries), Path(pipeline), corpus=None if corpus is None else str(corpus), name=name, sample=sample,
        labels=None if labels is None else [Path(one) for one in labels],
        systems=None if systems is None else Path(systems), settings=settings,
    )  # fmt: skip
    return run_pipeline(
        path, runs=runs, budget_usd=budget_usd, retry_failed=retry_failed, evaluate=evaluate, compute=compute,
        quiet=quiet,
    )  # fmt: skip


def status(pipeline: Place, *, runs: Place = "runs") -> dict[str, Any]:
    """Stages, calls, failures and money of a job, as `airgen status --json` prints them."""
    return read_report(jobs.Job(Path(pipeline), Path(runs)))


def evaluate(
    datasets: Place | Sequence[Place],
    systems: Place | Sequence[SystemSettings],
    out: Place = "results",
    *,
    split: str = "test",
    measures: str | Sequence[str] = (),
    top: int = 1000,
    quiet: bool = False,
) -> list[Result]:
    """Run systems on datasets in BEIR format, and keep runs, scores and tables in `out`; a result of before is reused.

    systems: a systems YAML, the name of a shipped one, or systems. top: hits of each query. One Result for each system
    and dataset. Raises SettingsError before the first system runs; the error of a system that fails comes at the end.
    """
    console = Console(stderr=True, quiet=quiet)
    folder = Path.cwd()
    if isinstance(systems, str | Path):
        path = find_yaml("pipelines", systems)
        systems, folder = load_systems(path), path.resolve().parent
    options = EvaluationOptions(split, measures, top, folder=folder) if measures else EvaluationOptions(
        split, top=top, folder=folder)  # fmt: skip
    results: list[Result] = []
    for dataset in [datasets] if isinstance(datasets, str | Path) else datasets:
        results += evaluate_dataset(
            dataset, systems, out, options, progress=lambda line: console.print(line, markup=False, highlight=False)
        )
    if results:
        write_overview(Path(out), results)
    return results


def open_dataset(path: Place) -> BeirDataset:
    """A dataset in BEIR format: its passages, queries and qrels. Raises DatasetError."""
    return BeirDataset.open(path)

"""The runs that a benchmark is inspected with: given ones, or those of cheap systems that are run on the spot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from airgen.errors import DatasetError, UsageError
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.experiment import EvaluationOptions, evaluate, results_folder
from airgen.evaluation.result import Paths, load_result
from airgen.evaluation.run import Run, read_run
from airgen.evaluation.systems import SystemSettings, load_systems, missing_needs
from airgen.settings.parts import model_of
from airgen.settings.yaml_file import find_yaml

DEFAULT_SYSTEMS = "systems-inspect"
_MOST_PASSAGES = 2000  # that a model reads on a machine without a GPU in about a minute

_ENDINGS = (".run", ".run.gz", ".trec", ".trec.gz")


def given_runs(results: Path, task: DatasetSplit) -> dict[str, Run]:
    """{system: run} of a folder: the `--out` of `airgen evaluate`, or a folder with TREC run files.

    Raises DatasetError for a folder without runs, or with results of another version of the dataset.
    """
    inner = results_folder(results, task.dataset.name, task.split)
    folder = inner if inner.is_dir() else results
    files = {path: path.name.removesuffix(end) for end in _ENDINGS for path in sorted(folder.glob(f"*{end}"))}
    if not files:
        raise DatasetError(
            f"{results}: neither it nor {inner} has runs (*.run.gz): give the --out folder of `airgen evaluate`, "
            "or leave out --results"
        )
    runs = {}
    for path, name in sorted(files.items(), key=lambda one: one[1]):
        known = load_result(Paths.of(folder, name))
        if known is not None and known.about.get("digest") != task.digest:
            raise DatasetError(
                f"{path}: was made on another version of {task.dataset.name}: run `airgen evaluate` again"
            )
        run = read_run(path)
        if not set(run.query_ids) & set(task.qrels.labels):
            raise DatasetError(f"{path}: has no query of {task.dataset.name} {task.split}")
        runs[name] = run
    return runs


def own_runs(
    systems: Path | None, out: Path, task: DatasetSplit, say: Callable[[str], None]
) -> tuple[dict[str, Run], list[str]]:
    """{system: run} of the systems of a YAML file, and a line for each that is left out.

    Without a file these are the shipped ones; of them, English models run on small English corpora only. Results are
    kept in `out`. Raises UsageError if no system can run.
    """
    cheap = systems is None
    systems = systems or find_yaml("pipelines", DEFAULT_SYSTEMS)
    folder = systems.resolve().parent
    chosen: list[SystemSettings] = []
    left_out: list[str] = []
    for system in load_systems(systems):
        lacks = missing_needs([system], folder)
        if cheap and any(model_of(part) for _, _, part in system.parts(folder)):
            lacks += _dear(task)
        lacks += [f"{used} is left out" for used in system.uses if used not in {one.name for one in chosen}]
        if lacks:
            left_out.append(f"{system.name} is left out: {lacks[0].removeprefix(f'system {system.name}: ')}")
        else:
            chosen.append(system)
    if not chosen:
        raise UsageError(f"{systems}: no system can run here: {left_out[0]}")
    options = EvaluationOptions(task.split, top=100, language=task.language, folder=folder, report=False)
    results = evaluate(
        task.dataset, chosen, out, options, progress=say, failed=lambda name, error: left_out.append(f"{name}: {error}")
    )
    if not results:
        raise UsageError(f"{systems}: every system failed: {left_out[0]}")
    return {result.name: read_run(result.paths.run) for result in results}, left_out


def _dear(task: DatasetSplit) -> list[str]:
    """Why a model does not run by default."""
    if task.language != "en":
        return [f"its model is English, the corpus is {task.language} (--systems runs it all the same)"]
    if len(task.corpus) > _MOST_PASSAGES:
        return [f"the corpus has more than {_MOST_PASSAGES:,} passages (--systems runs it all the same)"]
    return []

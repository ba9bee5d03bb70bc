"""Run systems on a split whose labels are private: the runs are kept, and the scores wait for the labels.

searched = run_without_labels("data/notes", load_systems("systems.yaml"), "results", EvaluationOptions())
searched[0].run                    # the TREC run that `airgen submit` packs
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from airgen.dataset.beir import BeirDataset
from airgen.errors import SettingsError
from airgen.evaluation.costs import Costs
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.experiment import EvaluationOptions, results_folder, run_key
from airgen.evaluation.result import Paths, without_secrets, write_json
from airgen.evaluation.run import read_run, write_run
from airgen.evaluation.run_system import FinishedRun, RunContext, run_system
from airgen.evaluation.systems import Failed, SystemSettings, in_order, missing_needs, run_all


@dataclass(frozen=True, slots=True)
class Searched:
    """One system's run on a split without labels. cached: the run was made before."""

    name: str
    dataset: str
    split: str
    queries: int
    run: Path
    cached: bool = False


def run_without_labels(
    dataset: str | Path | BeirDataset,
    systems: Sequence[SystemSettings],
    out: str | Path,
    options: EvaluationOptions,
    *,
    started: Callable[[str], None] | None = None,
    failed: Failed | None = None,
) -> list[Searched]:
    """Search all queries of a withheld split with every system; one Searched a system, in the order given.

    The arguments are those of `evaluate`. Raises what it raises.
    """
    opened, base = dataset if isinstance(dataset, BeirDataset) else BeirDataset.open(dataset), options.base
    task = DatasetSplit(opened, options.split, options.language or str(opened.info.get("language") or "en"))
    ordered = in_order(systems)
    if missing := missing_needs(ordered, base):
        raise SettingsError(missing)
    target = results_folder(out, opened.name, options.split)
    target.mkdir(parents=True, exist_ok=True)
    keys: dict[str, str] = {}
    done: dict[str, FinishedRun] = {}
    found: dict[str, Searched] = {}

    def search(system: SystemSettings) -> None:
        name, paths = system.name, Paths.of(target, system.name)
        note = target / f"{name}.searched.json"
        key = keys[name] = run_key(task, system, options, [keys[used] for used in system.uses])
        kept = not options.fresh and paths.run.is_file() and _key_in(note) == key
        if kept:
            done[name] = FinishedRun(read_run(paths.run), {}, Costs())
        else:
            if started is not None:
                started(f"{opened.name}: {name}: running")
            texts = {id_: query.text for id_, query in task.queries.items()}
            context = RunContext(task.corpus, texts, options.top, opened.name, task.split, base, done, task.ids)
            done[name] = run_system(system, context)
            write_run(paths.run, done[name].run, name)
            description = without_secrets(done[name].description)
            write_json(note, {"key": key, "system": name, "split": task.split, "description": description})
        found[name] = Searched(name, opened.name, task.split, len(task.queries), paths.run, kept)

    run_all(ordered, search, failed)
    return [found[system.name] for system in systems if system.name in found]


def _key_in(note: Path) -> str:
    try:
        return str(json.loads(note.read_text("utf-8"))["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # there is none, or it is damaged: the system runs again

"""Systems that are run beside each other on workers: those of a registered family that run no model.

What runs a model stays with the driver, which has its texts encoded by all workers; so does a system that builds on
others. A worker reads the dataset itself, from the same path, so that no corpus travels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from airgen.compute import Work, current
from airgen.dataset.beir import BeirDataset
from airgen.errors import AirgenError
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.run_system import FinishedRun, RunContext, run_system
from airgen.evaluation.systems import SystemSettings
from airgen.registry import REGISTRY
from airgen.settings.parts import model_of


@dataclass(frozen=True)
class _Place:
    """Where a worker finds the split, and what it must be."""

    dataset: Path
    called: str
    split: str
    language: str
    digest: str
    top: int
    folder: Path

    def make(self) -> Callable[[list[SystemSettings]], list[FinishedRun | None]]:
        """The function of a worker, which holds the corpus. A system that fails gives None."""
        try:
            dataset = replace(BeirDataset.open(self.dataset), called=self.called)
        except AirgenError as error:
            raise AirgenError(f"a worker cannot read the dataset: {error}: put it where all workers find it") from error
        task = DatasetSplit(dataset, self.split, self.language)
        if task.digest != self.digest:
            raise AirgenError(f"{self.dataset}: where a worker runs, another dataset stands there: share one folder")
        context = context_of(task, self.top, self.folder)

        def run(systems: list[SystemSettings]) -> list[FinishedRun | None]:
            found: list[FinishedRun | None] = []
            for system in systems:
                try:
                    found.append(run_system(system, context))
                except AirgenError:
                    found.append(None)  # it is run again where its error can be told
            return found

        return run


def context_of(task: DatasetSplit, top: int, folder: Path) -> RunContext:
    """What systems that build on no other are run on."""
    texts = {key: query.text for key, query in (task.queries | task.unanswered).items()}
    return RunContext(task.corpus, texts, top, task.dataset.name, task.split, folder, {}, task.ids)


def runs_alone(system: SystemSettings, folder: Path) -> bool:
    """Whether a system needs neither another one nor a model."""
    if system.uses or system.kind not in REGISTRY["retriever"]:
        return False
    return all(model_of(part) is None for _, _, part in system.parts(folder))


def run_beside(
    task: DatasetSplit, systems: Iterable[SystemSettings], top: int, folder: Path, started: Callable[[str], None]
) -> Iterator[tuple[str, FinishedRun]]:
    """(name, run) of those systems that a worker could run, as they come. With one worker there are none."""
    chosen = [system for system in systems if runs_alone(system, folder)]
    if current().workers < 2 or len(chosen) < 2:
        return
    place = _Place(
        task.dataset.path.absolute(), task.dataset.called, task.split, task.language, task.digest, top,
        folder.absolute(),
    )  # fmt: skip

    def items() -> Iterator[tuple[str, SystemSettings]]:
        for system in chosen:
            started(f"{task.dataset.name}: {system.name}: running")
            yield system.name, system

    context = context_of(task, top, folder)
    work: Work[SystemSettings, FinishedRun | None] = Work(
        f"systems of {task.dataset.name}", lambda some: [run_system(one, context) for one in some], place.make
    )
    for name, done in current().map(work, items(), ordered=False):
        if done is not None:
            yield name, done

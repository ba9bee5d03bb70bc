"""Compare how a generated dataset's labels and its sources alone rank the systems. This needs no human labels.

    sets = label_sets(task.dataset, task.qrels.labels, runs, "nDCG@10")
    sets.spearman                            # Interval(value=0.42, low=0.2, high=0.61)

The sources from which queries were generated are one set of labels; with the positives that quality control adds, they
form the other. If one set is wrong for most queries, the two rank systems differently. This happens with vague queries,
for which voters find several answers, and with broad subjects, for which the source is one answer among many. Only a
person can tell which set is wrong (`airgen audit relevance`). Both sets have the same queries, and the interval
resamples them jointly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from airgen.dataset.beir import BeirDataset
from airgen.dataset.layouts import read_rows
from airgen.evaluation.experiment import results_folder
from airgen.evaluation.intervals import Interval, resampled_means
from airgen.evaluation.measures import score
from airgen.evaluation.result import Paths, Result, load_result
from airgen.evaluation.run import Run, read_own_run
from airgen.evaluation.verdict import FEWEST
from airgen.storage.paths import EVALUATION
from airgen.studies.agree.rankings import Side, correlate
from airgen.studies.rank_correlation import LEAST_SYSTEMS, average_ranks

if TYPE_CHECKING:
    from airgen.job.job import Job

Labels = Mapping[str, Mapping[str, float]]

ALIKE, UNLIKE = 0.9, 0.7
"""Spearman's rho above which two sets of labels rank systems alike, and below which they contradict each other (the
limits of split-half reliability, Nunnally 1978).
"""


@dataclass(frozen=True, slots=True)
class LabelSets:
    """The rankings of `systems` systems by the labels of `queries` queries, and by their sources alone.

    `positives` is the mean number per query. `moved` is the system whose rank differs most, with its ranks by the
    labels and by the sources, from 1 for the best.
    """

    systems: int
    queries: int
    positives: float
    spearman: Interval
    moved: tuple[str, float, float]

    @property
    def differ(self) -> bool:
        """Return whether the two sets rank systems differently."""
        return not self.spearman.value > ALIKE

    @property
    def figures(self) -> str:
        """Return the correlation, its interval, and the numbers of systems and queries."""
        rho = self.spearman
        return (
            f"Spearman {rho.value:.2f} [{rho.low:.2f}, {rho.high:.2f}] over {self.systems} systems and "
            f"{self.queries} queries with {self.positives:.1f} positives each"
        )

    @property
    def sentence(self) -> str:
        """Explain the result in a sentence. The system's name is external text."""
        if not self.differ:
            return f"The labels and the sources alone rank the systems alike: {self.figures}."
        name, labels, sources = self.moved
        return (
            f"The labels and the sources alone rank the systems differently: {self.figures}; {name} is "
            f"{_ordinal(labels)} by the labels and {_ordinal(sources)} by the sources. One of the two is wrong: "
            "use `airgen audit relevance` to ask a person which, and `airgen export --without correction` to "
            "export the other"
        )


def _ordinal(rank: float) -> str:
    """Format a rank. Tied systems share the mean of their ranks."""
    return f"number {rank:g}"


def sources_of(dataset: BeirDataset) -> dict[str, dict[str, float]]:
    """Return the sources of each generated query as labels; none if there is no lineage, as in a published dataset.

    Raises DatasetError if the lineage cannot be read.
    """
    path = dataset.path / "private" / "lineage.jsonl"
    if not path.is_file():
        return {}
    sources = {}
    for row in read_rows(path):
        ids = [row[name] for name in ("positive", "second") if isinstance(row.get(name), str)]
        if ids and isinstance(row.get("query"), str):
            sources[row["query"]] = dict.fromkeys(ids, 1.0)
    return sources


def label_sets(dataset: BeirDataset, labels: Labels, runs: Mapping[str, Run], measure: str) -> LabelSets | None:
    """Compare the ranking by the labels with the ranking by the sources alone.

    Args:
        dataset: A generated dataset with its lineage.
        labels: The labels of the queries that count.
        runs: The runs of at least three systems, by name.
        measure: The measure that ranks the systems.

    Returns:
        The comparison. `None` if there is no lineage, if no query has a positive besides its source, if all systems
        have equal scores, or if there are too few systems or queries to rank.

    Raises:
        DatasetError: The lineage cannot be read.
    """
    sources = {key: row for key, row in sources_of(dataset).items() if key in labels}
    positives = {key: {id_ for id_, label in labels[key].items() if label > 0} for key in sources}
    if len(runs) < LEAST_SYSTEMS or len(sources) < FEWEST:
        return None
    if all(positives[key] <= row.keys() for key, row in sources.items()):
        return None
    own = {key: labels[key] for key in sources}
    names = tuple(runs)
    sides = [
        Side(names, np.array([score(run, label_set, measure).of(measure) for run in runs.values()]))
        for label_set in (own, sources)
    ]
    # The same seed draws the same queries for both sides.
    correlation = correlate(sides[0], sides[1], [resampled_means(side.scores) for side in sides])
    if np.isnan(correlation.spearman.value):
        return None
    ranks = [average_ranks(-side.means) for side in sides]
    most = int(np.abs(ranks[0] - ranks[1]).argmax())
    moved = (names[most], float(ranks[0][most]), float(ranks[1][most]))
    count = sum(map(len, positives.values())) / len(positives)
    return LabelSets(
        systems=len(names), queries=len(sources), positives=count, spearman=correlation.spearman, moved=moved
    )


def label_sets_of(dataset: BeirDataset, split: str, results: Sequence[Result]) -> LabelSets | None:
    """Return the comparison from systems' results on a split. Raises DatasetError if they cannot be read."""
    if len(results) < LEAST_SYSTEMS or not sources_of(dataset):
        return None  # before the runs are read, which takes seconds
    runs = {result.name: read_own_run(result.paths.run) for result in results}
    return label_sets(dataset, dataset.qrels(split).labels, runs, results[0].headline)


def label_sets_of_job(job: "Job", systems: Sequence[str]) -> LabelSets | None:
    """Return the comparison from a finished job's saved results of these systems."""
    dataset, split = BeirDataset.open(job.dataset), job.pipeline.evaluate.split
    folder = results_folder(job.directory / EVALUATION, dataset.name, split)
    results = [load_result(Paths.of(folder, name)) for name in systems]
    return label_sets_of(dataset, split, [result for result in results if result is not None])

"""Scores where a dataset has pairs that its judge was not sure of: they have a soft gain and no label.

    pairs = unsure_pairs(task)                          # {query: {passage: P(relevant)}}
    scores, intervals = score_unsure(run, labels, pairs, measures, "drawn")

`not relevant`: they count as unjudged passages do. `left out`: ranked lists without them. `judged only`: lists without
all passages that have no label for the query (condensed lists, Sakai 2007; trec_eval's -J). `drawn`: their labels are
drawn from their probabilities, the same for all systems; a score is the mean over the draws, and its interval holds the
spread of draws and queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.beir import read_qrels
from airgen.dataset.content import UNSURE
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.measures import Measure, Scores, score
from airgen.evaluation.run import Run
from airgen.evaluation.significance import bootstrap_interval, resampled_means

Unsure = Literal["not relevant", "left out", "judged only", "drawn"]
Labels = Mapping[str, Mapping[str, float]]
DRAWS, SAMPLES = 20, 2000


def unsure_pairs(task: DatasetSplit) -> dict[str, dict[str, float]]:
    """{query: {passage: P(relevant)}} of the pairs with a soft gain and no label; empty where a dataset has none."""
    notes = task.dataset.manifest.get("notes")
    if not isinstance(notes, dict) or UNSURE not in notes:
        return {}
    splits = task.dataset.splits if task.split == "all" and "all" not in task.dataset.splits else [task.split]
    labels, found = task.qrels.labels, {}
    for split in splits:
        for query, gains in read_qrels(task.dataset.path / "qrels-soft" / f"{split}.tsv").labels.items():
            if rest := {passage: gain for passage, gain in gains.items() if passage not in labels.get(query, {})}:
                found[query] = rest
    return found


def score_unsure(
    run: Run, labels: Labels, pairs: Labels, measures: Sequence[Measure], how: Unsure
) -> tuple[Scores, NDArray[np.float64]]:
    """The scores of a run, and the 95 % intervals of their means, (measures, 2)."""
    if not pairs or how != "drawn":
        if pairs:
            run = {"left out": run.without(pairs), "judged only": run.only(labels)}.get(how, run)
        scores = score(run, labels, measures)
        return scores, bootstrap_interval(scores.values)
    every = [score(run, _drawn(labels, pairs, seed), measures) for seed in range(DRAWS)]
    means = [
        resampled_means(one.values, samples=SAMPLES // DRAWS, seed=seed) for seed, one in enumerate(every)
    ]  # (samples, measures)
    intervals = np.quantile(np.concatenate(means), [0.025, 0.975], axis=0).T
    return replace(every[0], values=np.mean([one.values for one in every], axis=0)), intervals


def _drawn(labels: Labels, pairs: Labels, seed: int) -> dict[str, dict[str, float]]:
    """The labels, and those of the unsure pairs drawn: the same for every system."""
    random = np.random.default_rng(seed)
    found = {query: dict(of) for query, of in labels.items()}
    for query in sorted(pairs):
        for passage, chance in sorted(pairs[query].items()):
            if random.random() < chance and query in found:
                found[query][passage] = 1.0
    return found

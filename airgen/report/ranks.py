"""Where systems rank the documents of each query: of each run the first hits, and the ranks of labelled documents."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from airgen.evaluation.run import Run
from airgen.report.sources import ReportSource

__all__ = ["TOP", "SystemRanks", "rankings"]

TOP = 10
"""How many hits of a system are shown."""


@dataclass(frozen=True, slots=True)
class SystemRanks:
    """One system's answer to one query: ids of the first hits, and the ranks (from 1) of labelled documents."""

    top: tuple[str, ...]
    ranks: Mapping[str, int]


def rankings(source: ReportSource, split: str) -> dict[str, dict[str, SystemRanks]]:
    """{system: {query id: ranking}} of a split, one run in memory at a time; empty for a withheld split."""
    labels, found = source.labels(split), {}
    for result in source.results.get(split, ()) if labels else ():
        run = source.run(result)
        if run is not None:
            found[result.name] = _of_run(run, labels)
    return found


def _of_run(run: Run, labels: Mapping[str, Mapping[str, float]]) -> dict[str, SystemRanks]:
    ids, found = run.passage_ids, {}
    for place, query in enumerate(run.query_ids):
        if query not in labels:
            continue
        hits = run.passages[run.offsets[place] : run.offsets[place + 1]]
        ranks = {}
        for id_ in labels[query]:
            number = bisect_left(ids, id_)
            if number < len(ids) and ids[number] == id_ and (at := np.flatnonzero(hits == number)).size:
                ranks[id_] = int(at[0]) + 1
        found[query] = SystemRanks(tuple(ids[number] for number in hits[:TOP].tolist()), ranks)
    return found

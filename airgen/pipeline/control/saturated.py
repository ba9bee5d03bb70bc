"""Queries that tell no system from another: the systems of quality control put a positive first already.

A query that every system answers perfectly costs time in an evaluation and raises all means alike. Dropping such
queries has a price: the rest is harder for the models of quality control than for other models, so the report of
`airgen agree` gives their gain in rank separately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from airgen.pipeline.stage import Plan
from airgen.records import Decision, Prelabel, Recall
from airgen.store import Store


def share_on_top(recall: Recall | None, prelabels: Sequence[Prelabel], positives: set[str]) -> float:
    """The share of quality control's rankings of one query, recall and re-rankers, that begin with a positive."""
    first = [recall.ids[0]] if recall is not None and recall.ids else []
    first += [one.ids[int(np.argmax(one.scores))] for one in prelabels if one.ids]
    return sum(id_ in positives for id_ in first) / len(first) if first else 0.0


def saturated_queries(store: Store, plan: Plan, decisions: Mapping[str, Sequence[Decision]], bound: float) -> set[str]:
    """Keys of the final queries of which at least `bound` of the rankings begin with a positive."""
    recalls = {row.parent: row for row in store.made(Recall, plan.get("recall", ""), decisions)}
    prelabels: dict[str, list[Prelabel]] = {}
    for stage, fingerprint in plan.items():
        for row in store.made(Prelabel, fingerprint, decisions) if stage.startswith("prelabel:") else ():
            prelabels.setdefault(row.parent, []).append(row)
    found = set()
    for key, rows in decisions.items():
        positives = {row.id for row in rows if row.action in ("keep_query", "add_positive")}
        if share_on_top(recalls.get(key), prelabels.get(key, ()), positives) >= bound:
            found.add(key)
    return found

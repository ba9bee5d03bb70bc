"""Can a threshold on a system's best score tell the queries that nothing answers? For tuning a RAG system's refusal.

    refusal(run, answerable={"q1", "q2"}, unanswered={"q3"})
    # {"queries": 1, "auroc": 1.0, "threshold": 4.2, "false_refusals": 0.0, "false_hits": 0.0, ...}

A query is refused if the best score of its hits is below the threshold, or if it has no hit. The threshold is the
highest that refuses at most 5 % of the queries with an answer. Scores that do not compare from query to query (rank
fusion, for example) show here as an AUROC near .5.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from airgen.evaluation.run import Run

FALSE_REFUSALS = 0.05
"""The share of answerable queries that may be refused."""

Tops = NDArray[np.float64]


def refusal(run: Run, answerable: Collection[str], unanswered: Collection[str]) -> dict[str, float]:
    """The figures of one system; empty where one of the two kinds of queries is missing.

    queries: how many have no answer. auroc: how probable it is that a query with an answer has a higher best score than
    one without (ties count half); auroc_low, auroc_high: its 95 % interval (DeLong et al. 1988). threshold: see the
    module; -inf if more than 5 % of the answerable queries have no hit at all. false_refusals: the share of
    answerable queries below it. false_hits: the share of queries without an answer that reach it.
    """
    tops = _tops(run)
    asked = np.array([tops.get(key, -np.inf) for key in sorted(answerable)])
    empty = np.array([tops.get(key, -np.inf) for key in sorted(unanswered)])
    if not len(asked) or not len(empty):
        return {}
    threshold = float(np.sort(asked)[int(FALSE_REFUSALS * len(asked))])
    won, lost = _placements(asked, empty), _placements(-empty, -asked)
    auroc = float(won.mean())
    error = math.sqrt(sum(_variance(part) / len(part) for part in (won, lost)))
    return {
        "queries": len(empty),
        "auroc": auroc,
        "auroc_low": max(auroc - 1.96 * error, 0.0),
        "auroc_high": min(auroc + 1.96 * error, 1.0),
        "threshold": threshold,
        "false_refusals": float((_refused(asked, threshold)).mean()),
        "false_hits": float((~_refused(empty, threshold)).mean()),
    }


def _tops(run: Run) -> Mapping[str, float]:
    """The best score of each query that has hits."""
    return {
        key: float(run.scores[first:last].max())
        for key, first, last in zip(run.query_ids, run.offsets[:-1], run.offsets[1:], strict=True)
        if last > first
    }


def _refused(tops: Tops, threshold: float) -> NDArray[np.bool_]:
    refused: NDArray[np.bool_] = (tops < threshold) | np.isneginf(tops)
    return refused


def _placements(asked: Tops, empty: Tops) -> Tops:
    """For each value of `asked` the share of `empty` that is below it; ties count half. In n log n steps."""
    ordered = np.sort(empty)
    below = np.searchsorted(ordered, asked, side="left")
    equal = np.searchsorted(ordered, asked, side="right") - below
    shares: Tops = (below + equal / 2) / len(empty)
    return shares


def _variance(values: Tops) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0

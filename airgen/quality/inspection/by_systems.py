"""What the scores of systems say about a benchmark.

found = by_systems(runs, labels, "nDCG@10", passages=5183)

Each system is a run; what is scored is the headline measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airgen.evaluation.measures import judged_hits, parse_measure, score
from airgen.evaluation.rank_correlation import LEAST_SYSTEMS
from airgen.evaluation.run import Run
from airgen.evaluation.significance import bootstrap_interval, compare, resampled_means
from airgen.exact import log2
from airgen.quality.agreement.rankings import Side, split_half
from airgen.quality.inspection.finding import Finding, finding, not_measured

Labels = Mapping[str, Mapping[str, float]]
Matrix = NDArray[np.float64]

_TOP = 5
_DEPTH = 10
_PERFECT = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class SystemRow:
    """A system's mean of the headline measure with its 95 % interval; the floor has none."""

    name: str
    mean: float
    low: float
    high: float


def system_rows(scores: Mapping[str, Matrix]) -> list[SystemRow]:
    """The systems, best first. scores: {system: float64 (queries,)}."""
    intervals = bootstrap_interval(np.array(list(scores.values()))).tolist()
    rows = [
        SystemRow(name, float(values.mean()), low, high)
        for (name, values), (low, high) in zip(scores.items(), intervals, strict=True)
    ]
    return sorted(rows, key=lambda row: (-row.mean, row.name))


def scores_of(runs: Mapping[str, Run], labels: Labels, measure: str) -> dict[str, Matrix]:
    """{system: score of each query of the labels}."""
    return {name: score(run, labels, measure).of(measure) for name, run in runs.items()}


def random_floor(labels: Labels, measure: str, passages: int) -> float:
    """The mean score that a random order of the corpus is expected to have. `measure`: nDCG@k or Recall@k."""
    wanted = parse_measure(measure)
    cutoff = min(wanted.cutoff or passages, passages)
    if wanted.name == "Recall":
        return cutoff / passages
    discounts = 1 / log2(np.arange(2, max(cutoff, 2) + 2))
    expected = []
    for row in labels.values():
        gains = np.sort([max(label, 0.0) for label in row.values()])[::-1]
        ideal = float((gains[:cutoff] * discounts[: len(gains[:cutoff])]).sum())
        expected.append(gains.sum() / passages * discounts[:cutoff].sum() / ideal if ideal else 0.0)
    return float(np.mean(expected))


def by_systems(runs: Mapping[str, Run], labels: Labels, measure: str, passages: int) -> list[Finding]:
    """The findings from {system: run}. `passages`: how many the corpus has."""
    scores = scores_of(runs, labels, measure)
    names, matrix = list(scores), np.array(list(scores.values()))
    answerable = np.array([any(label > 0 for label in row.values()) for row in labels.values()])
    return [
        *_floors(runs, labels, matrix, names, answerable, measure, passages),
        *_rankings(names, matrix),
        _judged(runs, labels),
    ]


def _floors(
    runs: Mapping[str, Run],
    labels: Labels,
    matrix: Matrix,
    names: list[str],
    answerable: NDArray[np.bool_],
    measure: str,
    passages: int,
) -> list[Finding]:
    means = matrix.mean(axis=1)
    best, floor = int(means.argmax()), random_floor(labels, measure, passages)
    found = np.array([score(run, labels, f"Success@{_DEPTH}").values[0] for run in runs.values()]).max(axis=0)
    keys = np.array(list(labels), dtype=object)
    unsolved = keys[(found == 0) & answerable].tolist()
    solved = keys[(matrix >= _PERFECT).all(axis=0)].tolist()
    of_answerable = int(answerable.sum()) or 1
    above = (means[best] - floor) / (1 - floor) if floor < 1 else np.nan
    lexical = f"; bm25 {means[names.index('bm25')]:.3f}" if "bm25" in names else ""
    return [
        finding("random labels", above, f"{measure}: random order {floor:.4f}{lexical}; best {means[best]:.3f}"),
        finding("unsolved", len(unsolved) / of_answerable, f"{len(unsolved):,} of {of_answerable:,} queries", unsolved),
        finding("saturation", means[best], f"{names[best]} has {measure} {means[best]:.3f}"),
        finding("solved by all", len(solved) / len(keys), f"{len(solved):,} of {len(keys):,} queries", solved),
    ]


def _rankings(names: list[str], matrix: Matrix) -> list[Finding]:
    few = f"{len(names)} system(s); {LEAST_SYSTEMS} are needed"
    if len(names) < LEAST_SYSTEMS:
        return [not_measured(name, few) for name in ("reliability", "told apart", "top five")]
    half = split_half(Side(tuple(names), matrix))
    pairs = compare(names, matrix).pairs
    apart = sum(pair.fisher_holm <= 0.05 for pair in pairs)
    wanted = sorted(pair.queries_needed for pair in pairs if pair.fisher_holm > 0.05 and pair.queries_needed)
    need = f"; half of the others need up to {wanted[len(wanted) // 2]:,} queries" if wanted else ""
    return [
        finding("reliability", half, f"{len(names)} systems, halves of {matrix.shape[1] // 2:,} queries"),
        finding("told apart", apart / len(pairs), f"{apart:,} of {len(pairs):,} pairs{need}"),
        _top_five(names, matrix),
    ]


def _top_five(names: list[str], matrix: Matrix) -> Finding:
    if len(names) < _TOP + LEAST_SYSTEMS:
        return not_measured("top five", f"{len(names)} systems; {_TOP + LEAST_SYSTEMS} are needed")
    top = np.argsort(-matrix.mean(axis=1), kind="stable")[:_TOP]
    drawn = np.argsort(-resampled_means(matrix), axis=1, kind="stable")[:, :_TOP]
    kept = np.isin(drawn, top).sum(axis=1)
    first = float((drawn[:, 0] == top[0]).mean())
    best = ", ".join(names[place] for place in top)
    return finding("top five", float(kept.mean()) / _TOP, f"{best}; the first stays first in {first:.0%} of the draws")


def _judged(runs: Mapping[str, Run], labels: Labels) -> Finding:
    shares = [_judged_share(run, labels) for run in runs.values()]
    positives = sum(label > 0 for row in labels.values() for label in row.values()) / len(labels)
    pairs = sum(map(len, labels.values())) / len(labels)
    detail = f"{pairs:.1f} labels a query, {positives:.1f} of them above 0"
    return finding("judged", float(np.mean(shares)), detail)


def _judged_share(run: Run, labels: Labels) -> float:
    """The share of a run's first ten hits of labelled queries that have a label."""
    hits = judged_hits(run, labels)
    known = {key: min(int(length), _DEPTH) for key, length in zip(run.query_ids, run.lengths, strict=True)}
    total = sum(known.get(key, 0) for key in labels)
    return int((hits.rank <= _DEPTH).sum()) / total if total else 0.0

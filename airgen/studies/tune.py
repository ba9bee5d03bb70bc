"""Tune the weights of a hybrid on some labels, and estimate the gain on other queries.

The best of many weights looks good on the queries used to choose it, partly by chance. Queries are therefore divided
into folds: weights are chosen without a fold and scored on it, fold by fold (nested validation). The gain is based on
the held-out scores; the returned weights are chosen with all queries.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from airgen.components.keys import text_key
from airgen.display.study import Plain, Shown, Study, Table, columns
from airgen.errors import UsageError
from airgen.evaluation.intervals import DIFFERENCES, Interval, resampled_means
from airgen.evaluation.measures import check_common, score
from airgen.evaluation.run import Run, run_from_hits
from airgen.retrievers.combine import DEPTH, Normalisation, reciprocal_rank_fusion, weighted_sum
from airgen.retrievers.hits import Hits

FOLDS = 5
LEAST_QUERIES = 20
_STEPS = {2: 20, 3: 10, 4: 6}  # weights are multiples of 1 / step; about the same number of candidates for each
_FUSED_HITS = 10  # no measure looks deeper

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fusion:
    """One way to fuse systems. The weights sum to 1."""

    method: Literal["rrf", "sum"]
    normalisation: Normalisation
    weights: tuple[float, ...]

    def as_system(self, name: str, systems: Sequence[str]) -> dict[str, Any]:
        """Return the entry for a systems YAML. A system with weight 0 is left out."""
        used = [(system, weight) for system, weight in zip(systems, self.weights, strict=True) if weight > 0]
        extra = {"normalisation": self.normalisation} if self.method == "sum" else {}
        names, weights = [system for system, _ in used], [weight for _, weight in used]
        return {"name": name, "kind": "fuse", "systems": names, "method": self.method, **extra, "weights": weights}


@dataclass(frozen=True)
class TunedHybrid(Shown):
    """The result of tuning. `chosen` is chosen with all queries, `apparent` is its mean on these queries, and
    `held_out` is the mean of the nested validation. `gain` is the held-out score minus that of equal weights
    (reciprocal rank fusion), and `over_best` minus that of the best single system, which is also chosen without the
    fold. `stable` is the share of folds that chose the same method as all queries.
    """

    systems: tuple[str, ...]
    measure: str
    queries: int
    folds: int
    chosen: Fusion
    apparent: float
    held_out: float
    equal: float
    singles: Mapping[str, float]
    gain: Interval
    over_best: Interval
    stable: float

    def study(self, split: str = "") -> Study:
        """Return the scores, and whether tuning is worthwhile."""
        rows = [
            *self.singles.items(),
            ("equal weights (rrf)", self.equal),
            ("tuned, on held-out queries", self.held_out),
            ("tuned, on the same queries (optimistic)", self.apparent),
        ]
        head = f"{self.queries} queries of {split}" if split else f"{self.queries} queries"
        sentences = []
        for other, gain in (("equal weights", self.gain), ("the best single system", self.over_best)):
            sure = "better" if gain.low > 0 else "worse" if gain.high < 0 else "no significant difference"
            sentences.append(f"over {other}: {gain.value:+.4f} (95 % {gain.low:+.4f} to {gain.high:+.4f}): {sure}")
        sentences.append(f"{self.stable:.0%} of the folds chose the same method")
        return Study("", [Table(rows, columns(head, self.measure, form=".4f")), *map(Plain, sentences)])


def candidates(systems: int) -> list[Fusion]:
    """Return all weights in steps, for reciprocal rank fusion and sums of scores, beginning with equal weights and rrf.

    Raises UsageError if there are fewer than two or more than four systems.
    """
    if systems not in _STEPS:
        raise UsageError(f"{systems} systems: weights are tuned for two to four")
    step = _STEPS[systems]
    grid = [
        tuple(part / step for part in parts)
        for parts in itertools.product(range(step + 1), repeat=systems)
        if sum(parts) == step and sum(part > 0 for part in parts) > 1
    ]
    equal = Fusion("rrf", "none", (1 / systems,) * systems)
    methods: list[tuple[Literal["rrf", "sum"], Normalisation]] = [
        ("rrf", "none"),
        ("sum", "min-max"),
        ("sum", "z-score"),
    ]
    fusions = [Fusion(method, normalisation, weights) for method, normalisation in methods for weights in grid]
    return [equal, *(fusion for fusion in fusions if fusion != equal)]


def tune(
    runs: Mapping[str, Run],
    labels: Mapping[str, Mapping[str, float]],
    *,
    measure: str = "nDCG@10",
    seed: int = 0,
) -> TunedHybrid:
    """Choose weights for fusing the runs. Raises UsageError if fewer than twenty queries have a relevant passage."""
    answered = sum(any(label > 0 for label in row.values()) for row in labels.values())
    if answered < LEAST_QUERIES:
        raise UsageError(f"{answered} queries with a relevant passage: tuning needs at least {LEAST_QUERIES}")
    for name, run in runs.items():
        check_common(name, run, labels)
    queries, fusions = list(labels), candidates(len(runs))
    passages = sorted({id_ for run in runs.values() for id_ in run.passage_ids})
    hits = [_hits(run, queries, {id_: place for place, id_ in enumerate(passages)}) for run in runs.values()]

    def scores_of(fused: Hits) -> Matrix:
        return score(run_from_hits(queries, passages, fused), labels, measure).of(measure)

    scores = np.array([scores_of(_joined(hits, fusion)) for fusion in fusions])
    singles = np.array([score(run, labels, measure).of(measure) for run in runs.values()])
    place = {query: at for at, query in enumerate(sorted(queries, key=lambda q: text_key(f"fold\x1f{seed}\x1f{q}")))}
    fold = np.array([place[query] % FOLDS for query in queries])
    held_out, best_single, methods = np.empty(len(queries)), np.empty(len(queries)), []
    chosen = int(scores.mean(axis=1).argmax())
    for number in range(FOLDS):
        inside = fold == number
        best = int(scores[:, ~inside].mean(axis=1).argmax())
        held_out[inside] = scores[best, inside]
        best_single[inside] = singles[int(singles[:, ~inside].mean(axis=1).argmax()), inside]
        methods.append((fusions[best].method, fusions[best].normalisation))
    same = (fusions[chosen].method, fusions[chosen].normalisation)
    return TunedHybrid(
        systems=tuple(runs),
        measure=measure,
        queries=len(queries),
        folds=FOLDS,
        chosen=fusions[chosen],
        apparent=float(scores[chosen].mean()),
        held_out=float(held_out.mean()),
        equal=float(scores[0].mean()),
        singles=dict(zip(runs, singles.mean(axis=1).tolist(), strict=True)),
        gain=_gain(held_out - scores[0]),
        over_best=_gain(held_out - best_single),
        stable=methods.count(same) / FOLDS,
    )


def _gain(differences: Matrix) -> Interval:
    return Interval.of(differences.mean(), resampled_means(differences)[:, 0], differences, span=DIFFERENCES)


def _hits(run: Run, queries: Sequence[str], places: Mapping[str, int]) -> Hits:
    """Return the top hits of a run for these queries. Ties keep the order of the run."""
    hits, ranked = Hits.none(len(queries), DEPTH), dict(run.ranked().items())
    for row, query in enumerate(queries):
        best = ranked.get(query, [])[:DEPTH]
        hits.positions[row, : len(best)] = [places[id_] for id_, _ in best]
        hits.scores[row, : len(best)] = [value for _, value in best]
    return hits


def _joined(hits: Sequence[Hits], fusion: Fusion) -> Hits:
    used = [(system, weight) for system, weight in zip(hits, fusion.weights, strict=True) if weight > 0]
    systems, weights = [system for system, _ in used], [weight for _, weight in used]
    if fusion.method == "rrf":
        return reciprocal_rank_fusion(systems, _FUSED_HITS, weights=weights)
    return weighted_sum(systems, _FUSED_HITS, weights, fusion.normalisation)

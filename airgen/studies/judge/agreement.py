"""Select human-labelled pairs, and measure how well a judge agrees with them.

    pairs = select_pairs(every_pair(labels, pools), 60)    # 30 relevant, 30 not, from as many queries as possible

`pools` are the top results of retrieval, because these are the pairs that a judge sees in quality control. Unjudged
pairs are the hard ones. Intervals resample queries, because pairs of the same query are not independent. A threshold is
chosen on one half of the queries and used on the other half, and vice versa.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from airgen.components.keys import text_key
from airgen.display.study import Column, Table, columns
from airgen.errors import UsageError
from airgen.evaluation.breakdown import placements
from airgen.evaluation.intervals import Interval
from airgen.safety.escaping import figure, md

Kind = Literal["relevant", "judged", "unjudged"]
KINDS: tuple[Kind, ...] = ("relevant", "judged", "unjudged")


@dataclass(frozen=True, slots=True)
class CalibrationPair:
    """A pair. `label` is the human label, or None if the pair is unjudged."""

    query: str
    id: str
    kind: Kind
    label: float | None

    @property
    def relevant(self) -> bool:
        """Return the answer that the judge should give."""
        return self.kind == "relevant"


def every_pair(
    labels: Mapping[str, Mapping[str, float]],
    pools: Mapping[str, Sequence[str]],
    *,
    relevant_from: float = 1,
    ignore: Collection[float] = (),
) -> list[CalibrationPair]:
    """Return all pairs in the pools, in order. Labels of `relevant_from` and above are relevant.

    Pairs with a label in `ignore` are left out, because some collections use a label for something else: in cranfield,
    0 marks a query's own source paper.
    """
    pairs = []
    for query, pool in pools.items():
        known = labels.get(query, {})
        for id_ in dict.fromkeys(pool):
            label = known.get(id_)
            if label is None or label not in ignore:
                kind: Kind = "unjudged" if label is None else "relevant" if label >= relevant_from else "judged"
                pairs.append(CalibrationPair(query, id_, kind, label))
    return pairs


def select_pairs(pairs: Sequence[CalibrationPair], count: int, *, seed: int = 0) -> list[CalibrationPair]:
    """Return at most `count` pairs, half of them relevant, sorted by query and passage.

    The other half consists of judged and unjudged pairs in equal numbers; if there are too few of one kind, the other
    fills up. Each query contributes one pair of a kind before any query contributes a second one, as determined by the
    seed.
    """
    turns = Counter[tuple[str, str]]()
    order: dict[str, list[tuple[int, str, CalibrationPair]]] = {kind: [] for kind in KINDS}
    for pair in sorted(pairs, key=lambda pair: text_key(f"{seed}\x1f{pair.query}\x1f{pair.id}")):
        turns[pair.kind, pair.query] += 1
        order[pair.kind].append((turns[pair.kind, pair.query], text_key(f"{seed}\x1f{pair.query}"), pair))
    relevant, judged, unjudged = (
        [pair for _, _, pair in sorted(order[kind], key=lambda entry: entry[:2])] for kind in KINDS
    )
    side = min(count // 2, len(relevant), len(judged) + len(unjudged))
    half = min(len(judged), max(side // 2, side - len(unjudged)))
    chosen = relevant[:side] + judged[:half] + unjudged[: side - half]
    return sorted(chosen, key=lambda pair: (pair.query, pair.id))


def halves(queries: Sequence[str]) -> list[int]:
    """Return 0 or 1 for each entry, so that equal queries are in the same half, and the halves differ by at most one
    query."""
    order = sorted(set(queries), key=lambda query: text_key(f"half\x1f0\x1f{query}"))
    half = {query: place % 2 for place, query in enumerate(order)}
    return [half[query] for query in queries]


Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
BINS = 10  # of equal width, as in Guo et al. (2017)


def auc(scores: Floats, relevant: Bools) -> float:
    """Return the share of (relevant, not relevant) pairs that the scores order correctly, where ties count half.

    NaN if there are no relevant or no other items.

    >>> auc(np.array([0.9, 0.4, 0.4]), np.array([True, True, False]))
    0.75
    """
    if relevant.all() or not relevant.any():
        return math.nan
    return float(placements(scores[relevant], scores[~relevant]).mean())


def kappa(decided: Bools, relevant: Bools) -> float:
    """Compute Cohen's kappa of two binary labellings, or 0 if both are the same constant.

    >>> round(kappa(np.array([True, True, False, False]), np.array([True, False, False, False])), 3)
    0.5
    """
    observed = float((decided == relevant).mean())
    left, right = float(decided.mean()), float(relevant.mean())
    chance = left * right + (1 - left) * (1 - right)
    return (observed - chance) / (1 - chance) if chance < 1 else 0.0


def expected_calibration_error(probabilities: Floats, relevant: Bools) -> float:
    """Return the expected calibration error: the mean distance between stated probabilities and shares of relevant
    pairs, weighted by bin size.
    """
    place = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    gaps = np.bincount(place, weights=relevant - probabilities, minlength=BINS)
    return float(np.abs(gaps).sum() / len(probabilities))


def noise_floor(probabilities: Floats, samples: int = 1000) -> float:
    """Return the calibration error of a perfectly calibrated judge on the same number of pairs.

    Labels are drawn from the stated probabilities. An error below this value is not meaningful.
    """
    random = np.random.default_rng(0)
    simulated = random.random((samples, len(probabilities))) < probabilities
    return float(np.mean([expected_calibration_error(probabilities, labels) for labels in simulated]))


def best_threshold(scores: Floats, relevant: Bools) -> float:
    """Return the threshold with the greatest kappa. Pairs with at least this score count as relevant.

    It lies midway between two scores. If several are equally good, the lowest is used. Raises UsageError if there are
    no scores.

    >>> best_threshold(np.array([0.1, 0.4, 0.6, 0.9]), np.array([False, False, True, True]))
    0.5
    """
    values = np.unique(scores)
    if not len(values):
        raise UsageError("a threshold cannot be chosen, because there are no scores")
    cuts = np.concatenate([values[:1], (values[1:] + values[:-1]) / 2])
    return float(cuts[int(np.argmax([kappa(scores >= cut, relevant) for cut in cuts]))])


def cross_decided(scores: Floats, relevant: Bools, queries: Sequence[str]) -> Bools:
    """Return the decision for each pair by the threshold chosen on the other half of the queries, bool (n,).

    If there is a single query, its own threshold is used.
    """
    half = np.array(halves(queries))
    decided = np.zeros(len(scores), bool)
    for side in (0, 1):
        here, other = half == side, half != side
        cut = best_threshold(scores[other], relevant[other]) if other.any() else best_threshold(scores, relevant)
        decided[here] = scores[here] >= cut
    return decided


def interval(statistic: Callable[[NDArray[np.int64]], float], queries: Sequence[str]) -> Interval:
    """Return a statistic of pairs, given by their positions, with its 95% interval from resampling whole queries.

    Resamples with an undefined statistic (NaN) are ignored.
    """
    names, place = np.unique(np.array(queries), return_inverse=True)
    groups = [np.flatnonzero(place == at) for at in range(len(names))]
    random = np.random.default_rng(0)
    resampled = [
        statistic(np.concatenate([groups[at] for at in random.integers(0, len(groups), len(groups))]))
        for _ in range(1000)
    ]
    return Interval.of(statistic(np.arange(len(place))), np.array(resampled))


@dataclass(frozen=True, slots=True)
class Opinion:
    """A judge's answer for a pair: a score on any scale and, if given, a level and a probability."""

    score: float
    level: int | None = None
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Assessment:
    """The figures of one judge on one collection.

    `auc` compares relevant passages with `judged` irrelevant ones, with `unjudged` ones, and with `all`; it is None for
    a kind that the collection does not have. `threshold` is the threshold to use, chosen on all pairs or given. `kappa`
    is for decisions by thresholds chosen without the pair itself. `error` is the expected calibration error of the
    stated probabilities, and `error_floor` that of a perfectly calibrated judge on the same number of pairs, or None
    without probabilities. `confusion` is {human label: {level or decision: pairs}}. `refused` counts pairs without an
    opinion, which are otherwise ignored.
    """

    collection: str
    counts: Mapping[str, int]
    queries: int
    refused: int
    auc: Mapping[str, Interval | None]
    kappa: Interval
    threshold: float
    error: float | None = None
    error_floor: float | None = None
    confusion: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def assess(
    collection: str,
    pairs: Sequence[CalibrationPair],
    opinions: Sequence[Opinion | None],
    *,
    threshold: float | None = None,
) -> Assessment:
    """Compute the figures. A given `threshold` is used unchanged. An opinion of None is a refusal."""
    known = [(pair, opinion) for pair, opinion in zip(pairs, opinions, strict=True) if opinion is not None]
    if not known:
        none = Interval(math.nan, math.nan, math.nan)
        return Assessment(
            collection=collection,
            counts=dict.fromkeys(KINDS, 0),
            queries=0,
            refused=len(pairs),
            auc={},
            kappa=none,
            threshold=threshold or math.nan,
        )
    scores = np.array([opinion.score for _, opinion in known], np.float64)
    relevant, kinds = (np.array([getattr(pair, name) for pair, _ in known]) for name in ("relevant", "kind"))
    queries = [pair.query for pair, _ in known]
    stated = [opinion.probability for _, opinion in known]
    probabilities = None if None in stated else np.array(stated, np.float64)
    if threshold is None:
        decided, cut = cross_decided(scores, relevant, queries), best_threshold(scores, relevant)
    else:
        decided, cut = scores >= threshold, threshold

    confusion: dict[str, Counter[str]] = {}
    for (pair, opinion), yes in zip(known, decided.tolist(), strict=True):
        row = "unjudged" if pair.label is None else f"{pair.label:g}"
        column = ("relevant" if yes else "not relevant") if opinion.level is None else f"level {opinion.level}"
        confusion.setdefault(row, Counter())[column] += 1

    def area(kind: str) -> Interval | None:
        here = np.flatnonzero(relevant | (kinds == kind) | (kind == "all"))
        x, y = scores[here], relevant[here]
        if y.all() or not y.any():
            return None
        return interval(lambda at: auc(x[at], y[at]), [queries[at] for at in here])

    return Assessment(
        collection=collection,
        counts={kind: int((kinds == kind).sum()) for kind in KINDS},
        queries=len(set(queries)),
        refused=len(pairs) - len(known),
        auc={kind: area(kind) for kind in ("judged", "unjudged", "all")},
        kappa=interval(lambda at: kappa(decided[at], relevant[at]), queries),
        threshold=cut,
        error=None if probabilities is None else expected_calibration_error(probabilities, relevant),
        error_floor=None if probabilities is None else noise_floor(probabilities),
        confusion={row: dict(sorted(confusion[row].items())) for row in sorted(confusion)},
    )


def assessments_table(assessments: Sequence[Assessment]) -> list[str | Table]:
    """Return a table of the figures with a row per collection, followed by each collection's confusion matrix by
    level."""
    parts: list[str | Table] = [Table(assessments, _COLUMNS)]
    for assessment in assessments:
        answers = sorted({answer for cells in assessment.confusion.values() for answer in cells})
        rows = [[row, *(cells.get(answer, 0) for answer in answers)] for row, cells in assessment.confusion.items()]
        if answers:
            parts.append(f"{md(assessment.collection)}: human labels (rows) and the judge's answers (columns)")
            parts.append(Table(rows, columns("label", *answers)))
    return parts


_COLUMNS = (
    Column("collection", lambda assessment: assessment.collection),
    Column(
        "pairs",
        lambda assessment: (
            " + ".join(str(assessment.counts.get(kind, 0)) for kind in KINDS)
            + (f", {assessment.refused} refused" if assessment.refused else "")
        ),
    ),
    *(
        Column(f"AUC {kind}", partial(lambda kind, assessment: _interval(assessment.auc.get(kind)), kind))
        for kind in ("judged", "unjudged", "all")
    ),
    Column("kappa", lambda assessment: _interval(assessment.kappa)),
    Column("threshold", lambda assessment: assessment.threshold, ".3f"),
    Column(
        "ECE (floor)",
        lambda assessment: (
            "–" if assessment.error is None else f"{figure(assessment.error)} ({figure(assessment.error_floor)})"
        ),
    ),
)


def _interval(value: Interval | None) -> str:
    return "–" if value is None or math.isnan(value.value) else f"{value.value:.2f} ({value.low:.2f}–{value.high:.2f})"

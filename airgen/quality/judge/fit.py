"""Fitting the combined judge: on some collections, tested on the one that was left out, then on all.

No label of the collection that is left out enters the fit: it changes neither the weights nor the threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airgen.errors import UsageError
from airgen.pipeline.control.combined_judge import SOURCE, Combination, features
from airgen.pipeline.control.judge_kinds import level_of_probability
from airgen.quality.judge.agreement_figures import best_threshold
from airgen.quality.judge.assess import Assessment, Opinion, assess
from airgen.quality.judge.evidence import Evidence
from airgen.quality.judge.labelled_pairs import CalibrationPair
from airgen.quality.judge.logistic import fit, predict
from airgen.records import Prelabel, Recall, SourceLikeness

__all__ = ["applied", "fit_combination", "leave_one_out", "precise_cut"]

RIDGE = 1.0
PRECISION, LEAST = 0.9, 20  # of the positives of the profile `train`, and the pairs that show it
_DECIMALS = 4  # of a coefficient: far below what labels can tell, and readable

Floats = NDArray[np.float64]
Probability = Callable[[str, CalibrationPair], float | None]
"""The LLM's probability of Yes by collection and pair; None where it refused."""


@dataclass(frozen=True)
class _Rows:
    """The pairs of one collection that have all features."""

    name: str
    kept: list[CalibrationPair]
    values: np.ndarray
    relevant: np.ndarray


def _rows(one: Evidence, said: Probability, names: Sequence[str]) -> _Rows:
    kept, values = [], []
    for pair in one.pairs:
        found = features(pair.id, *_known(one, pair, said))
        if all(name in found for name in names):
            kept.append(pair)
            values.append([found[name] for name in names])
    matrix = np.array(values, np.float64).reshape(len(kept), len(names))
    return _Rows(one.name, kept, matrix, np.array([pair.relevant for pair in kept], bool))


def _known(
    one: Evidence, pair: CalibrationPair, said: Probability
) -> tuple[Recall, list[Prelabel], float | None, SourceLikeness | None]:
    """What features are made of, besides the passage's id."""
    query = pair.query
    return one.recalls[query], one.prelabels[query], said(one.name, pair), one.likeness.get(query)


def fit_combination(
    evidence: Sequence[Evidence], said: Probability, judge: Mapping[str, str], names: Sequence[str]
) -> Combination:
    """Fit weights on all these collections, which count equally; where the likeness to a source is among the features,
    those without it, too. Raises UsageError if there are no pairs.
    """
    rows = [_rows(one, said, names) for one in evidence]
    rows = [one for one in rows if len(one.kept)]
    if not rows:
        raise UsageError("a combined judge cannot be fitted, because the LLM answered none of the pairs")
    mean = sum(len(one.kept) for one in rows) / len(rows)
    weights = np.concatenate([np.full(len(one.kept), mean / len(one.kept)) for one in rows])
    values, relevant = np.vstack([one.values for one in rows]), np.concatenate([one.relevant for one in rows])
    found = np.round(fit(values, relevant, ridge=RIDGE, weights=weights), _DECIMALS)
    stated = predict(found, values)
    threshold = best_threshold(stated, relevant, weights)
    pairs = ", ".join(f"{one.name} {len(one.kept)}" for one in rows)
    notes = {"fitted on pairs of": pairs, "with": _systems(evidence)}
    threshold = round(min(max(threshold, 0.01), 0.99), _DECIMALS)
    profiles = {"rank": threshold, "train": precise_cut(stated, relevant, weights)}
    plain = [name for name in names if name != SOURCE]
    sourceless = fit_combination(evidence, said, {}, plain) if SOURCE in names else None
    return Combination(
        "fitted", dict(zip(names, found[:-1].tolist(), strict=True)), float(found[-1]),
        threshold, dict(judge) if "llm" in names else {}, notes, profiles, sourceless,
    )  # fmt: skip


def precise_cut(stated: Floats, relevant: NDArray[np.bool_], weights: Floats) -> float:
    """The lowest hundredth from which nine of ten pairs are relevant; .99 where there is none.

    stated: probabilities, (n,). weights: of the pairs, (n,). At least 20 pairs must be above the cut, because fewer
    say nothing of a share of nine in ten.

    >>> stated = np.arange(100) / 100
    >>> precise_cut(stated, stated > 0.6, np.ones(100))
    0.57
    """
    for cut in np.arange(1, 100) / 100:
        above = stated >= cut
        if above.sum() < LEAST:
            break
        if weights[above & relevant].sum() >= PRECISION * weights[above].sum():
            return float(cut)
    return 0.99


def _systems(evidence: Sequence[Evidence]) -> str:
    one = evidence[0]
    query = one.pairs[0].query
    return ", ".join([one.recalls[query].model, *(row.model for row in one.prelabels[query])])


def applied(combination: Combination, one: Evidence, said: Probability) -> Assessment:
    """How a combination does on a collection."""
    opinions: list[Opinion | None] = []
    for pair in one.pairs:
        probability = combination.probability(pair.id, *_known(one, pair, said))
        level = None if probability is None else level_of_probability(probability, combination.threshold)
        opinions.append(None if probability is None else Opinion(probability, level, probability))
    return assess(one.name, one.pairs, opinions, threshold=combination.threshold)


def leave_one_out(
    evidence: Sequence[Evidence], said: Probability, judge: Mapping[str, str], names: Sequence[str]
) -> list[Assessment]:
    """For each collection, the figures of the combination that was fitted on all others."""
    found = []
    for one in evidence:
        others = [other for other in evidence if other is not one]
        found.append(applied(fit_combination(others, said, judge, names), one, said))
    return found

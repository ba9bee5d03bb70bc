"""The figures of one judge on one collection, as `airgen study judge` prints them, and logistic regression for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from airgen.errors import UsageError
from airgen.evaluation.significance import Interval
from airgen.quality.judge.figures import (
    KINDS,
    CalibrationPair,
    auc,
    best_threshold,
    cross_decided,
    expected_calibration_error,
    halves,
    interval,
    kappa,
    logistic,
    noise_floor,
    sigmoid,
)
from airgen.study import Column, Table, columns
from airgen.text.display import figure, md

Floats = NDArray[np.float64]


def fit(features: Floats, relevant: NDArray[np.bool_], *, ridge: float = 1.0, weights: Floats | None = None) -> Floats:
    """The coefficients that minimise the weighted log-loss plus ridge / 2 times their squares (without the intercept).

    features: (n, d), on comparable scales. weights: (n,), 1 by default. Raises UsageError if all labels are equal.
    """
    if relevant.all() or not relevant.any():
        raise UsageError("a judge cannot be fitted: all pairs have the same label, relevant or not")
    rows = np.hstack([features, np.ones((len(features), 1))])
    penalty = np.full(rows.shape[1], ridge)
    penalty[-1] = 1e-9  # nearly no penalty for the intercept; 0 could make Newton's step unsolvable
    return logistic(rows, relevant.astype(np.float64), penalty, np.zeros(rows.shape[1]), weights)


def predict(weights: Floats, features: Floats) -> Floats:
    """Probabilities, (n,)."""
    return sigmoid(features @ weights[:-1] + weights[-1])


@dataclass(frozen=True, slots=True)
class Opinion:
    """A judge's answer for one pair: a score on any scale, and a level and a probability if it gives them."""

    score: float
    level: int | None = None
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Assessment:
    """The figures of one judge on one collection.

    auc: of relevant passages against `judged` not relevant ones, against `unjudged` ones, and against `all`; None for
    a kind that the collection does not have. threshold: the threshold to use, chosen on all pairs or given. kappa: of
    decisions by thresholds that were chosen without their pair. error: expected calibration error of the probabilities
    as stated; None if there are none. error_scaled: the same after Platt's scaling, fitted on the other half of the
    queries. error_floor: the error of a perfectly calibrated judge on as many pairs. confusion: {human label: {level or
    decision: pairs}}. refused: pairs without an opinion, which count nowhere else.
    """

    collection: str
    counts: Mapping[str, int]
    queries: int
    refused: int
    auc: Mapping[str, Interval | None]
    kappa: Interval
    threshold: float
    error: float | None
    error_scaled: float
    error_floor: float
    confusion: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def assess(
    collection: str,
    pairs: Sequence[CalibrationPair],
    opinions: Sequence[Opinion | None],
    *,
    threshold: float | None = None,
    seed: int = 0,
) -> Assessment:
    """Compute the figures. A given `threshold` is used as it is. An opinion of None is a refusal."""
    known = [(pair, opinion) for pair, opinion in zip(pairs, opinions, strict=True) if opinion is not None]
    asked = [pair for pair, _ in known]
    scores = np.array([opinion.score for _, opinion in known], np.float64)
    relevant = np.array([pair.relevant for pair in asked], bool)
    queries = [pair.query for pair in asked]
    kinds = np.array([pair.kind for pair in asked])
    stated = [opinion.probability for _, opinion in known]
    probabilities = None if None in stated or not stated else np.array(stated, np.float64)
    if not len(known):
        return _nothing(collection, len(pairs), threshold)
    if threshold is None:
        decided, cut = cross_decided(scores, relevant, queries, seed), best_threshold(scores, relevant)
    else:
        decided, cut = scores >= threshold, threshold
    areas: dict[str, Interval | None] = {}
    for kind in ("judged", "unjudged", "all"):
        here = np.flatnonzero(relevant | (kinds == kind)) if kind != "all" else np.arange(len(known))
        some = bool((~relevant[here]).any()) and bool(relevant[here].any())
        areas[kind] = _auc_interval(scores[here], relevant[here], [queries[at] for at in here], seed) if some else None
    scaled = _scaled(scores, relevant, queries, seed)
    error = None if probabilities is None else expected_calibration_error(probabilities, relevant)
    return Assessment(
        collection,
        {kind: int((kinds == kind).sum()) for kind in KINDS},
        len(set(queries)),
        len(pairs) - len(known),
        areas,
        interval(lambda at: kappa(decided[at], relevant[at]), queries, seed=seed),
        cut,
        error,
        expected_calibration_error(scaled, relevant),
        noise_floor(scaled if probabilities is None else probabilities, seed=seed),
        _confusion(known, decided),
    )


def _nothing(collection: str, refused: int, threshold: float | None) -> Assessment:
    none = Interval(math.nan, math.nan, math.nan)
    counts: dict[str, int] = dict.fromkeys(KINDS, 0)
    return Assessment(collection, counts, 0, refused, {}, none, threshold or math.nan, None, math.nan, math.nan)


def _auc_interval(scores: Floats, relevant: NDArray[np.bool_], queries: Sequence[str], seed: int) -> Interval:
    return interval(lambda at: auc(scores[at], relevant[at]), queries, seed=seed)


def _scaled(scores: Floats, relevant: NDArray[np.bool_], queries: Sequence[str], seed: int) -> Floats:
    """Probabilities by Platt's scaling, each fitted on the other half of the queries."""
    half = np.array(halves(queries, seed))
    spread = float(scores.std()) or 1.0
    rows = ((scores - scores.mean()) / spread)[:, None]
    found = np.full(len(scores), float(relevant.mean()))
    for side in (0, 1):
        other = half != side
        if relevant[other].any() and not relevant[other].all():
            found[half == side] = predict(fit(rows[other], relevant[other]), rows[half == side])
    return found


def _confusion(
    known: Sequence[tuple[CalibrationPair, Opinion]], decided: NDArray[np.bool_]
) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for (pair, opinion), yes in zip(known, decided.tolist(), strict=True):
        row = "unjudged" if pair.label is None else f"{pair.label:g}"
        column = ("relevant" if yes else "not relevant") if opinion.level is None else f"level {opinion.level}"
        cells = table.setdefault(row, {})
        cells[column] = cells.get(column, 0) + 1
    return {row: dict(sorted(table[row].items())) for row in sorted(table)}


def assessments_table(assessments: Sequence[Assessment]) -> list[str | Table]:
    """The figures with a row for each collection, and below it each collection's confusion by level."""
    parts: list[str | Table] = [Table(assessments, _COLUMNS)]
    for one in assessments:
        answers = sorted({answer for cells in one.confusion.values() for answer in cells})
        rows = [[row, *(cells.get(answer, 0) for answer in answers)] for row, cells in one.confusion.items()]
        if answers:
            parts.append(f"{md(one.collection)}: human labels (rows) and the judge's answers (columns)")
            parts.append(Table(rows, columns("label", *answers)))
    return parts


_COLUMNS = (
    Column("collection", lambda one: one.collection),
    Column("pairs", lambda one: " + ".join(str(one.counts.get(kind, 0)) for kind in KINDS)
           + (f", {one.refused} refused" if one.refused else "")),
    Column("AUC judged", lambda one: _interval(one.auc.get("judged"))),
    Column("AUC unjudged", lambda one: _interval(one.auc.get("unjudged"))),
    Column("AUC all", lambda one: _interval(one.auc.get("all"))),
    Column("kappa", lambda one: _interval(one.kappa)),
    Column("threshold", lambda one: one.threshold, ".3f"),
    Column("ECE", lambda one: "–" if one.error is None else f"{figure(one.error)} ({figure(one.error_floor)})"),
    Column("ECE scaled (floor)", lambda one: f"{figure(one.error_scaled)} ({figure(one.error_floor)})"),
)  # fmt: skip


def _interval(value: Interval | None) -> str:
    return "–" if value is None or math.isnan(value.value) else f"{value.value:.2f} ({value.low:.2f}–{value.high:.2f})"

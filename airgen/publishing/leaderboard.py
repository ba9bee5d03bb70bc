"""Write a leaderboard of saved scores as a static page without scripts, and as JSON.

Each version has AIR-Bench's three classes of systems, and each task of a class has one table with the mean of the main
measure over all datasets, and over those of each domain and language. A system that was not scored on all datasets has
no mean and is listed below the others.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from airgen.display.study import Column, Study, Table
from airgen.errors import DatasetError
from airgen.evaluation.significance import rank_bounds
from airgen.publishing import version_order
from airgen.publishing.scores import CLASSES, DIGITS, HEAD, DatasetScore, SystemScore
from airgen.publishing.submission import NO_RERANKER
from airgen.safety.escaping import md
from airgen.storage.json_values import write_json
from airgen.storage.whole_files import write_text

_SHOWN = f".{DIGITS - 2}f"  # of a score multiplied by 100


@dataclass(frozen=True, slots=True)
class Standings:
    """The table of one class and task of a version. `columns` are groups of datasets, and `rows` are systems, best
    first.

    A row is {rank, ranks, model, reranker, mean, margin, cells: {column: mean or None}, datasets, missing_queries}.
    `margin` is half the 95% interval of the mean, `ranks` the 95% interval of the rank ([low, high], or None).
    """

    version: str
    system_class: str
    task: str
    measure: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]


def leaderboard(scores: Iterable[SystemScore]) -> list[Standings]:
    """Return the tables for test, newest version first, with classes in the paper's order. Means are in [0, 1] or
    None."""
    scores = list(scores)
    tables = []
    for version in sorted({score.version for score in scores}, key=version_order, reverse=True):
        mine = [score for score in scores if score.version == version]
        for task, measure in HEAD.items():
            every = {(row.domain, row.language, row.dataset) for score in mine for row in _of(score, task)}
            if not every:
                continue
            for name in CLASSES:
                systems = [score for score in mine if score.system_class == name and _of(score, task)]
                if systems:
                    tables.append(_table(version, name, task=task, measure=measure, systems=systems, every=every))
    return tables


def _of(score: SystemScore, task: str) -> list[DatasetScore]:
    return [row for row in score.datasets if row.task == task and row.split == "test"]


def _table(
    version: str,
    name: str,
    task: str,
    measure: str,
    systems: Sequence[SystemScore],
    every: set[tuple[str, str, str]],
) -> Standings:
    ordered = sorted(every)
    groups = {
        f"{attribute} {value}": [key for key in ordered if key[at] == value]
        for at, attribute in enumerate(("domain", "language"))
        for value in sorted({key[at] for key in every})
    }
    rows: list[dict[str, Any]] = []
    for system in systems:
        scores = {(score.domain, score.language, score.dataset): score for score in _of(system, task)}

        def mean(keys: Iterable[tuple[str, str, str]], scores: dict[Any, DatasetScore] = scores) -> float | None:
            values = [scores[key].measures.get(measure) if key in scores else None for key in keys]
            known = [value for value in values if value is not None]
            return round(fmean(known), DIGITS) if known and len(known) == len(values) else None

        rows.append(
            {
                "model": system.model,
                "reranker": system.reranker,
                "mean": mean(ordered),
                "margin": _margin([scores[key] for key in ordered if key in scores], len(ordered), measure),
                "cells": {title: mean(keys) for title, keys in groups.items()},
                "datasets": f"{len(scores)} of {len(every)}",
                "missing_queries": sum(score.missing_count for score in scores.values()),
            }
        )
    rows.sort(key=lambda row: (row["mean"] is None, -(row["mean"] or 0.0), row["model"], row["reranker"]))
    ranked = tuple(
        {"rank": place if row["mean"] is not None else None, "ranks": ranks, **row}
        for place, (row, ranks) in enumerate(zip(rows, _ranks(rows), strict=True), 1)
    )
    return Standings(version=version, system_class=name, task=task, measure=measure, columns=tuple(groups), rows=ranked)


def _ranks(rows: Sequence[dict[str, Any]]) -> list[list[int] | None]:
    """Return the interval of each rank for systems with a margin; None for all if a system has a mean but no margin.

    A leaderboard has means and standard errors, but no scores per query. The errors of systems on the same queries are
    correlated, so differences are more certain than assumed: the intervals are conservative.
    """
    means = [row["mean"] for row in rows if row["mean"] is not None]
    margins = [row["margin"] for row in rows if row["mean"] is not None]
    if not means or None in margins:
        return [None] * len(rows)
    errors = np.array(margins) / 1.96
    noise = np.random.default_rng(0).normal(size=(2000, len(means))) * errors
    intervals: list[list[int] | None] = list(rank_bounds(np.array(means), np.array(means) + noise).tolist())
    return intervals + [None] * (len(rows) - len(means))


def _margin(scores: Sequence[DatasetScore], datasets: int, measure: str) -> float | None:
    """Return half the 95% interval of the mean over datasets, or None if a score or its standard error is missing."""
    errors = [score.standard_errors.get(measure) for score in scores]
    known = [error for error in errors if error is not None]
    if len(known) < datasets:
        return None
    return round(1.96 * math.sqrt(sum(error * error for error in known)) / datasets, DIGITS)


def write_leaderboard(scores: Iterable[SystemScore], out: Path, *, title: str = "Leaderboard") -> list[Path]:
    """Write index.html and leaderboard.json to `out`. Raises DatasetError if there are no scores."""
    tables = leaderboard(scores)
    if not tables:
        raise DatasetError("there are no scores to show: save some with `airgen publish score --save DIR`")
    parts: list[str | Table] = [
        "Scores are multiplied by 100. ± is half the 95% interval of a mean over its queries, and beside a place is "
        "the 95% interval of the rank. The best score of a column is bold, the second is underlined. A query without "
        "results counts as zero."
    ]
    for version in dict.fromkeys(table.version for table in tables):
        parts.append(f"## Version {md(version)}")
        for table in tables:
            if table.version == version:
                parts += [f"### {md(table.system_class)}: {md(table.task)}, {md(table.measure)}", _html_table(table)]
    write_text(out / "index.html", Study(title, parts).html())
    rows = [
        {
            "version": table.version,
            "class": table.system_class,
            "task": table.task,
            "measure": table.measure,
            "rows": table.rows,
        }
        for table in tables
    ]
    write_json(out / "leaderboard.json", rows)
    return [out / "index.html", out / "leaderboard.json"]


def _html_table(table: Standings) -> Table:
    def score(name: str) -> Column:
        return Column(name, lambda row: _hundredfold(row["cells"][name]), _SHOWN, best=True)

    reranker = Column("re-ranker", lambda row: row["reranker"], left=True)
    lost = Column("queries without results", lambda row: row["missing_queries"], ",")
    return Table(
        table.rows,
        [
            Column("#", lambda row: row["rank"]),
            Column("95 %", lambda row: row["ranks"] and tuple(row["ranks"])),
            Column("model", lambda row: row["model"], left=True),
            *[reranker] * any(row["reranker"] != NO_RERANKER for row in table.rows),
            Column("mean", lambda row: _hundredfold(row["mean"]), _SHOWN, best=True),
            Column("±", lambda row: _hundredfold(row["margin"]), _SHOWN),
            *map(score, table.columns),
            Column("datasets", lambda row: row["datasets"]),
            *[lost] * any(row["missing_queries"] for row in table.rows),
        ],
    )


def _hundredfold(value: float | None) -> float | None:
    return None if value is None else value * 100

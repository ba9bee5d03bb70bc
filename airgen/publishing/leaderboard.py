"""A leaderboard of saved scores: a static page without scripts, and the same as JSON.

Each version has AIR-Bench's three classes of systems, and each task of a class has one table: the mean of the head
measure over all datasets, over those of each domain, and over those of each language. A system that was not scored on
all datasets has no mean and is listed below the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from airgen.dataset.files import write_text
from airgen.errors import DatasetError
from airgen.evaluation.significance import rank_bounds
from airgen.kept import write_json
from airgen.publishing.scores import CLASSES, HEAD, DatasetScore, SystemScore
from airgen.publishing.submission import NO_RERANKER
from airgen.text.display import html_text


@dataclass(frozen=True, slots=True)
class Standings:
    """One class and task of one version: `columns` are groups of datasets, `rows` are systems, the best first.

    A row is {rank, ranks, model, reranker, mean, margin, cells: {column: mean or None}, datasets, missing_queries}.
    `margin` is half the 95 % interval of the mean, `ranks` the 95 % interval of the rank ([low, high], or None).
    """

    version: str
    system_class: str
    task: str
    measure: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]


def leaderboard(scores: Iterable[SystemScore], split: str = "test") -> list[Standings]:
    """The tables, the newest version first, classes in the paper's order. Means are in [0, 1] or None."""
    scores = list(scores)
    tables = []
    for version in sorted({score.version for score in scores}, key=_order, reverse=True):
        mine = [score for score in scores if score.version == version]
        for task, measure in HEAD.items():
            every = {(one.domain, one.language, one.dataset) for score in mine for one in _of(score, task, split)}
            if not every:
                continue
            for name in CLASSES:
                systems = [s for s in mine if s.system_class == name and _of(s, task, split)]
                if systems:
                    tables.append(_table(version, name, task, measure, systems, every, split))
    return tables


def _order(version: str) -> tuple[list[int], str]:
    return [int(part) for part in version.replace("_", ".").split(".") if part.isdigit()], version


def _of(score: SystemScore, task: str, split: str) -> list[DatasetScore]:
    return [one for one in score.datasets if one.task == task and one.split == split]


def _table(
    version: str,
    name: str,
    task: str,
    measure: str,
    systems: Sequence[SystemScore],
    every: set[tuple[str, str, str]],
    split: str,
) -> Standings:
    domains = sorted({domain for domain, _, _ in every})
    languages = sorted({language for _, language, _ in every})
    columns = (*(f"domain {domain}" for domain in domains), *(f"language {language}" for language in languages))
    rows: list[dict[str, Any]] = []
    for system in systems:
        found = {(one.domain, one.language, one.dataset): one for one in _of(system, task, split)}

        def mean(keys: Iterable[tuple[str, str, str]], found: dict[Any, DatasetScore] = found) -> float | None:
            values = [found[key].measures.get(measure) if key in found else None for key in keys]
            known = [value for value in values if value is not None]
            return round(fmean(known), 6) if known and len(known) == len(values) else None

        ordered = sorted(every)
        cells = {f"domain {domain}": mean([key for key in ordered if key[0] == domain]) for domain in domains}
        cells |= {f"language {lang}": mean([key for key in ordered if key[1] == lang]) for lang in languages}
        rows.append(
            {
                "model": system.model,
                "reranker": system.reranker,
                "mean": mean(ordered),
                "margin": _margin([found[key] for key in ordered if key in found], len(ordered), measure),
                "cells": cells,
                "datasets": f"{len(found)} of {len(every)}",
                "missing_queries": sum(one.missing_count for one in found.values()),
            }
        )
    rows.sort(key=lambda row: (row["mean"] is None, -(row["mean"] or 0.0), row["model"], row["reranker"]))
    known = _ranks(rows)
    ranked = tuple(
        {"rank": place if row["mean"] is not None else None, "ranks": ranks, **row}
        for place, (row, ranks) in enumerate(zip(rows, known, strict=True), 1)
    )
    return Standings(version, name, task, measure, columns, ranked)


def _ranks(rows: Sequence[dict[str, Any]]) -> list[list[int] | None]:
    """The interval of each rank, of systems that have a margin; None for all if one that has a mean lacks it.

    A leaderboard knows means and their errors, not the scores by query. Errors of systems on the same queries go
    together, which makes a difference more certain than is assumed here: the intervals are wide rather than wrong.
    """
    means = [row["mean"] for row in rows if row["mean"] is not None]
    margins = [row["margin"] for row in rows if row["mean"] is not None]
    if not means or None in margins:
        return [None] * len(rows)
    errors = np.array(margins) / 1.96
    noise = np.random.default_rng(0).normal(size=(2000, len(means))) * errors
    found: list[list[int] | None] = list(rank_bounds(np.array(means), np.array(means) + noise).tolist())
    return found + [None] * (len(rows) - len(means))


def _margin(scores: Sequence[DatasetScore], datasets: int, measure: str) -> float | None:
    """Half the 95 % interval of the mean over datasets; None where a score is missing or came without its error."""
    errors = [one.standard_errors.get(measure) for one in scores]
    known = [error for error in errors if error is not None]
    if len(known) < datasets:
        return None
    return round(1.96 * math.sqrt(sum(error * error for error in known)) / datasets, 6)


def write_leaderboard(scores: Iterable[SystemScore], out: Path, *, title: str = "Leaderboard") -> list[Path]:
    """Write index.html and leaderboard.json to `out`. Raises DatasetError if there are no scores."""
    tables = leaderboard(scores)
    if not tables:
        raise DatasetError("there are no scores to show: save some with `airgen publish score --save DIR`")
    write_text(out / "index.html", _page(tables, title))
    rows = [
        {"version": one.version, "class": one.system_class, "task": one.task, "measure": one.measure, "rows": one.rows}
        for one in tables
    ]
    write_json(out / "leaderboard.json", rows)
    return [out / "index.html", out / "leaderboard.json"]


_STYLE = """
:root { --page: #fff; --head: #f6f8fa; --line: #d8dee4; --quiet: #57606a; --best: #dafbe1 }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem;
  color: #1b1f24; background: var(--page) }
h1, .name { overflow-wrap: anywhere } h1 { margin-bottom: 0; line-height: 1.2 }
h2 { margin-top: 2.5rem; border-bottom: 2px solid var(--line) } h3 { margin-bottom: .4rem }
p, .sub { color: var(--quiet) } p { margin-top: .4rem; max-width: 48rem }
.wide { overflow-x: auto } table { border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums }
th, td { padding: .35rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
th { background: var(--head); font-weight: 600 } .group { text-align: center; border-left: 1px solid var(--line) }
.name { text-align: left; white-space: normal; width: 18rem; min-width: 9rem; max-width: 18rem;
  position: sticky; left: 0; background: var(--page) }
th.name { background: var(--head) } .sub { display: block; font-size: .8em; line-height: 1.2 }
td.mean { font-weight: 600 } td.mean .sub { display: inline; font-weight: 400; margin-left: .3rem }
.best { background: var(--best) } tr:hover td:not(.best) { background: var(--head) } .warn { color: #9a6700 }
@media (max-width: 40rem) {
  body { font-size: 13px; margin: 1rem auto } th, td { padding: .3rem .4rem } .name { width: 9rem; max-width: 9rem }
}
@media (prefers-color-scheme: dark) {
  :root { --page: #0d1117; --head: #161b22; --line: #30363d; --quiet: #9198a1; --best: #12391f }
  body { color: #e6edf3 } .warn { color: #d29922 }
}
"""


def _page(tables: Sequence[Standings], title: str) -> str:
    head = (
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name=viewport content="width=device-width">\n'
        f"<title>{_cell(title)}</title>\n<style>{_STYLE}</style>\n<h1>{_cell(title)}</h1>\n"
        "<p>Scores are multiplied by 100. ± is half the 95 % interval of a mean over its queries. The small "
        "figures under a rank are the 95 % interval of the rank. The best score of each column is marked. A query "
        "without results counts as zero; −3 beside the number of datasets means three such queries.</p>\n"
    )
    parts = [head]
    version = ""
    for table in tables:
        if table.version != version:
            version = table.version
            parts.append(f"<h2>Version {_cell(version)}</h2>\n")
        parts.append(f"<h3>{_cell(table.system_class)}: {_cell(table.task)}, {_cell(table.measure)}</h3>\n")
        parts.append(_html_table(table))
    return "".join(parts)


def _html_table(table: Standings) -> str:
    with_reranker = any(row["reranker"] != NO_RERANKER for row in table.rows)
    best = {name: max((row["cells"][name] or 0.0 for row in table.rows), default=0.0) for name in table.columns}
    best[""] = max((row["mean"] or 0.0 for row in table.rows), default=0.0)
    groups = [
        (kind, [name for name in table.columns if name.startswith(f"{kind} ")]) for kind in ("domain", "language")
    ]
    lines = ["<div class=wide><table>\n<tr><th rowspan=2>#<th rowspan=2 class=name>model"]
    lines += ["<span class=sub>re-ranker</span>"] * with_reranker
    lines += ["<th rowspan=2>mean", *(f"<th class=group colspan={len(names)}>{kind}" for kind, names in groups)]
    lines += ["<th rowspan=2>datasets\n<tr>", *(f"<th>{_cell(name.partition(' ')[2])}" for name in table.columns), "\n"]
    for row in table.rows:
        rank = f"<td>{row['rank'] or '–'}"
        if row["ranks"] and row["ranks"][0] < row["ranks"][1]:
            rank += "<span class=sub>{}–{}</span>".format(*row["ranks"])
        cells = [rank, f"<td class=name>{_cell(row['model'])}"]
        cells += [f"<span class=sub>{_cell(row['reranker'])}</span>"] * with_reranker
        cells.append(_number(row["mean"], best[""], "mean"))
        if row["mean"] is not None and row["margin"] is not None:
            cells.append(f"<span class=sub>±{row['margin'] * 100:.1f}</span>")
        cells += [_number(row["cells"][name], best[name]) for name in table.columns]
        warn = f" <span class=warn title='queries without results'>−{row['missing_queries']:,}</span>" * bool(
            row["missing_queries"]
        )
        cells.append(f"<td>{_cell(row['datasets'])}{warn}")
        lines.append("<tr>" + "".join(cells) + "\n")
    return "".join(lines) + "</table></div>\n"


def _cell(text: str) -> str:
    return html_text(text, 120)


def _number(value: float | None, best: float, css: str = "") -> str:
    if value is None:
        return f'<td class="{css}">–'
    classes = f"{css} best".strip() if value == best else css
    return f'<td class="{classes}">{value * 100:.2f}'

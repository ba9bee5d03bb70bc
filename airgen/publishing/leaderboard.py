"""A leaderboard of saved scores: a static page without scripts, and the same as JSON.

Each version has AIR-Bench's three classes of systems, and each task of a class has one table: the mean of the head
measure over all datasets, over those of each domain, and over those of each language. A system that was not scored on
all datasets has no mean and is listed below the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from airgen.dataset.files import write_text
from airgen.errors import DatasetError
from airgen.publishing.scores import CLASSES, DatasetScore, SystemScore
from airgen.publishing.submission import NO_RERANKER
from airgen.text.display import html_text, json_text

__all__ = ["HEAD", "Table", "leaderboard", "write_leaderboard"]

HEAD = {"qa": "nDCG@10", "long-doc": "Recall@10"}


@dataclass(frozen=True, slots=True)
class Table:
    """One class and task of one version: `columns` are groups of datasets, `rows` are systems, the best first.

    A row is {rank, model, reranker, mean, cells: {column: mean or None}, datasets, missing_queries}.
    """

    version: str
    system_class: str
    task: str
    measure: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]


def leaderboard(scores: Iterable[SystemScore], split: str = "test") -> list[Table]:
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
) -> Table:
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
                "cells": cells,
                "datasets": f"{len(found)} of {len(every)}",
                "missing_queries": sum(one.missing_count for one in found.values()),
            }
        )
    rows.sort(key=lambda row: (row["mean"] is None, -(row["mean"] or 0.0), row["model"], row["reranker"]))
    ranked = tuple({"rank": place if row["mean"] is not None else None, **row} for place, row in enumerate(rows, 1))
    return Table(version, name, task, measure, columns, ranked)


def write_leaderboard(scores: Iterable[SystemScore], out: Path, *, title: str = "Leaderboard") -> list[Path]:
    """Write index.html and leaderboard.json to `out`. Raises DatasetError if there are no scores."""
    tables = leaderboard(scores)
    if not tables:
        raise DatasetError("there are no scores to show: save some with `airgen score --save DIR`")
    write_text(out / "index.html", _page(tables, title))
    value = [
        {
            "version": table.version,
            "class": table.system_class,
            "task": table.task,
            "measure": table.measure,
            "rows": list(table.rows),
        }
        for table in tables
    ]
    write_text(out / "leaderboard.json", json_text(value, indent=1) + "\n")
    return [out / "index.html", out / "leaderboard.json"]


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1b1f24 }
h1 { margin-bottom: 0 } h2 { margin-top: 2.5rem; border-bottom: 2px solid #d0d7de } h3 { margin-bottom: .4rem }
p { color: #57606a; margin-top: .2rem }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100% }
th, td { padding: .35rem .7rem; text-align: right; border-bottom: 1px solid #d8dee4; white-space: nowrap }
th { background: #f6f8fa; font-weight: 600 } th.l, td.l { text-align: left }
th.group { text-align: center; border-left: 1px solid #d8dee4 }
td.mean { font-weight: 600 } td.best { background: #dafbe1 } tr:hover td { background: #f6f8fa }
tr:hover td.best { background: #c7f5d1 } .warn { color: #9a6700 }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3 } th { background: #161b22 } th, td, h2 { border-color: #30363d }
  td.best, tr:hover td.best { background: #12391f } tr:hover td { background: #161b22 } p { color: #9198a1 }
}
"""


def _page(tables: Sequence[Table], title: str) -> str:
    head = (
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name=viewport content="width=device-width">\n'
        f"<title>{_cell(title)}</title>\n<style>{_STYLE}</style>\n<h1>{_cell(title)}</h1>\n"
        "<p>Scores are multiplied by 100. A query without results counts as zero. The best score of each column is "
        "marked. −3 beside the number of datasets means three queries without results.</p>\n"
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


def _html_table(table: Table) -> str:
    with_reranker = any(row["reranker"] != NO_RERANKER for row in table.rows)
    best = {name: max((row["cells"][name] or 0.0 for row in table.rows), default=0.0) for name in table.columns}
    best[""] = max((row["mean"] or 0.0 for row in table.rows), default=0.0)
    groups = [
        (kind, [name for name in table.columns if name.startswith(f"{kind} ")]) for kind in ("domain", "language")
    ]
    lines = ["<div class=wide><table>\n<tr><th rowspan=2>#<th rowspan=2 class=l>model"]
    lines += ["<th rowspan=2 class=l>re-ranker"] * with_reranker
    lines += ["<th rowspan=2>mean", *(f"<th class=group colspan={len(names)}>{kind}" for kind, names in groups)]
    lines += ["<th rowspan=2>datasets\n<tr>", *(f"<th>{_cell(name.partition(' ')[2])}" for name in table.columns), "\n"]
    for row in table.rows:
        cells = [f"<td>{row['rank'] or '–'}", f"<td class=l>{_cell(row['model'])}"]
        cells += [f"<td class=l>{_cell(row['reranker'])}"] * with_reranker
        cells.append(_number(row["mean"], best[""], "mean"))
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

"""Results as tables: Markdown for people, CSV for programs. Best bold, second underlined.

Text in a table comes from datasets and systems files, so it is escaped: a name cannot break a row or open a tag.
"""

from __future__ import annotations

import csv
import html
import io
import string
from collections.abc import Iterable, Sequence

import numpy as np

from airgen.evaluation.result import Result
from airgen.evaluation.significance import Comparison

__all__ = [
    "comparison_table",
    "cost_table",
    "csv_text",
    "dataset_table",
    "group_letters",
    "overview_table",
    "safe",
    "to_csv",
    "to_markdown",
]

Row = Sequence[str]


def safe(text: object) -> str:
    """Text for a Markdown cell: no line breaks, no HTML, no column separator, no emphasis."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    escaped = html.escape(flat, quote=False)
    for sign in "\\|`*[]":
        escaped = escaped.replace(sign, "\\" + sign)
    return escaped


def to_markdown(header: Row, rows: Sequence[Row]) -> str:
    """A table whose cells are Markdown already; the first column is left-aligned, the others right."""
    lines = [f"| {' | '.join(header)} |", f"|{'|'.join([' --- ', *[' ---: '] * (len(header) - 1)])}|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows]) + "\n"


def csv_text(header: Row, rows: Iterable[Sequence[object]]) -> str:
    """A CSV file's text, cells as they are: one that begins like a formula becomes text in a spreadsheet."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow(
            [f"'{cell}" if str(cell).startswith(("=", "+", "-", "@")) and not _number(cell) else cell for cell in row]
        )
    return stream.getvalue()


def to_csv(results: Sequence[Result]) -> str:
    """Every mean with its interval, one row a dataset, split, system and measure."""
    rows: list[list[object]] = []
    for result in results:
        for measure, mean in result.means.items():
            numbers = [f"{value:.6f}" for value in (mean, *result.intervals[measure])]
            rows.append([result.dataset, result.split, result.name, measure, *numbers, result.queries, result.missing])
    header = ["dataset", "split", "system", "measure", "mean", "low", "high", "queries", "missing"]
    return csv_text(header, rows)


def dataset_table(results: Sequence[Result], comparison: Comparison | None = None) -> str:
    """One dataset: systems by rows, measures by columns, the headline's interval, and letters of equal groups."""
    headline = results[0].headline
    measures = [headline, *(name for name in results[0].means if name != headline)]
    letters = group_letters(comparison) if comparison else {}
    # Holes and judged shares say how far to trust the others: they have no best.
    plain = [""] * len(results)
    marks = {
        name: plain if name.startswith(("Hole", "Judged")) else _marks([result.means[name] for result in results])
        for name in measures
    }
    rows = []
    for place in sorted(range(len(results)), key=lambda at: -results[at].score):
        result = results[place]
        low, high = result.intervals[headline]
        cells = [_marked(result.means[name], marks[name][place]) for name in measures]
        rows.append([safe(result.name), cells[0], f"{low:.3f}–{high:.3f}", letters.get(result.name, ""), *cells[1:]])
    return to_markdown(["system", headline, "95 %", "group", *measures[1:]], rows)


def cost_table(results: Sequence[Result]) -> str:
    """What each system costs, as BEIR's Table 3."""
    rows = []
    for result in results:
        cost = result.costs
        rows.append(
            [
                safe(result.name),
                _cell(cost.latency_p50_ms, "{:.1f}"),
                _cell(cost.latency_p95_ms, "{:.1f}"),
                _cell(cost.batch_ms, "{:.2f}"),
                _cell(cost.queries_per_second, "{:,.0f}"),
                _cell(cost.index_seconds, "{:.1f}"),
                _cell(cost.index_bytes, "{:.1f}", 1e-6),
                _cell(cost.memory_bytes, "{:.0f}", 1e-6),
                _cell(cost.parameters, "{:.1f}", 1e-6),
                safe(cost.device or "–"),
            ]
        )
    header = ["system", "p50 ms", "p95 ms", "batched ms", "queries/s", "index s", "index MB", "memory MB"]
    return to_markdown([*header, "parameters M", "device"], rows)


def overview_table(results: Sequence[Result]) -> str:
    """Many datasets: the headline score of each system on each, their mean, and means by task, domain, language.

    A mean is given only for systems that have every dataset of it.
    """
    names = list(dict.fromkeys(result.name for result in results))
    sets = list(dict.fromkeys((result.dataset, result.split) for result in results))
    found = {(result.name, result.dataset, result.split): result for result in results}
    columns: list[tuple[str, list[tuple[str, str]]]] = [("mean", sets)] if len(sets) > 1 else []
    for attribute in ("task", "domain", "language"):
        members: dict[str, list[tuple[str, str]]] = {}
        for result in results:
            value = str(result.about.get(attribute) or "")
            if value and (result.dataset, result.split) not in members.setdefault(value, []):
                members[value].append((result.dataset, result.split))
        if len(members) > 1:
            columns += [(f"{attribute} {value}", each) for value, each in sorted(members.items())]
    columns += [(name if split == "test" else f"{name} ({split})", [(name, split)]) for name, split in sets]

    def mean(system: str, members: list[tuple[str, str]]) -> float | None:
        scores = [found[(system, *member)].score for member in members if (system, *member) in found]
        return float(np.mean(scores)) if len(scores) == len(members) else None

    table = {name: [mean(name, members) for _, members in columns] for name in names}
    first = {name: row[0] for name, row in table.items()}
    names.sort(key=lambda name: -(first[name] or 0.0))
    marks = [_marks([table[name][place] for name in names]) for place in range(len(columns))]
    rows = [
        [safe(name), *(_marked(table[name][place], marks[place][at]) for place in range(len(columns)))]
        for at, name in enumerate(names)
    ]
    return to_markdown(["system", *(safe(title) for title, _ in columns)], rows)


def comparison_table(comparison: Comparison) -> str:
    """Every pair: difference, p-values, and how many queries it would take to see that difference."""
    rows = [
        [
            f"{safe(pair.first)} – {safe(pair.second)}",
            f"{pair.difference:+.4f}",
            _p(pair.fisher),
            _p(pair.fisher_holm),
            _p(pair.t),
            _p(pair.t_holm),
            f"{pair.effect:.2f}",
            "–" if pair.queries_needed is None else f"{pair.queries_needed:,}",
        ]
        for pair in comparison.pairs
    ]
    header = ["pair", "difference", "p Fisher", "Holm", "p t-test", "Holm", "effect d", "queries for power .8"]
    return to_markdown(header, rows)


def group_letters(comparison: Comparison) -> dict[str, str]:
    """The groups of each system as letters: two systems that share one cannot be told apart."""
    signs = string.ascii_letters
    found: dict[str, str] = {}
    for place, group in enumerate(comparison.groups):
        sign = signs[place] if place < len(signs) else f"({place + 1})"
        for name in group:
            found[name] = found.get(name, "") + sign
    return found


def _marks(values: Sequence[float | None]) -> list[str]:
    """For each value: best, second or nothing, as the figures shown would be ranked."""
    shown = sorted({round(value, 4) for value in values if value is not None}, reverse=True)
    rank = dict(zip(shown, ("best", "second"), strict=False)) if len(values) > 1 else {}
    return ["" if value is None else rank.get(round(value, 4), "") for value in values]


def _marked(value: float | None, mark: str) -> str:
    if value is None:
        return "–"
    text = f"{value:.4f}"
    return {"best": f"**{text}**", "second": f"<u>{text}</u>"}.get(mark, text)


def _cell(value: float | None, form: str, scale: float = 1.0) -> str:
    return "–" if value is None else form.format(value * scale)


def _p(value: float) -> str:
    return "<.0001" if value < 0.0001 else f"{value:.4f}"


def _number(value: object) -> bool:
    return isinstance(value, int | float) or str(value).replace(".", "", 1).lstrip("-").isdigit()

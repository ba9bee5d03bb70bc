"""Results as tables: Markdown for people, CSV for programs. The best value is bold, the second is underlined."""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np

from airgen.evaluation.result import Result
from airgen.evaluation.significance import Comparison
from airgen.text.display import csv_text, markdown_table, md

__all__ = [
    "attribute_table",
    "bias_table",
    "comparison_table",
    "cost_table",
    "dataset_table",
    "group_letters",
    "note_lines",
    "overview_table",
    "results_csv",
]


def results_csv(results: Sequence[Result]) -> str:
    """CSV of every mean with its interval; one row for each dataset, split, system and measure."""
    rows: list[list[object]] = []
    for result in results:
        for measure, mean in result.means.items():
            numbers = [f"{value:.6f}" for value in (mean, *result.intervals[measure])]
            rows.append([result.dataset, result.split, result.name, measure, *numbers, result.queries, result.missing])
    header = ["dataset", "split", "system", "measure", "mean", "low", "high", "queries", "missing"]
    return csv_text(header, rows)


def dataset_table(results: Sequence[Result], comparison: Comparison | None = None) -> str:
    """One dataset: a row for each system, a column for each measure, the headline's interval, and group letters."""
    headline = results[0].headline
    measures = [headline, *(name for name in results[0].means if name != headline)]
    letters = group_letters(comparison) if comparison else {}
    # Hole and Judged say how far the other measures can be trusted, so they have no best value.
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
        rows.append([md(result.name), cells[0], f"{low:.3f}–{high:.3f}", letters.get(result.name, ""), *cells[1:]])
    return markdown_table(["system", headline, "95 %", "group", *measures[1:]], rows)


def cost_table(results: Sequence[Result]) -> str:
    """What each system costs, as in BEIR's Table 3."""
    rows = []
    for result in results:
        cost = result.costs
        rows.append(
            [
                md(result.name),
                _cell(cost.latency_p50_ms, "{:.1f}"),
                _cell(cost.latency_p95_ms, "{:.1f}"),
                _cell(cost.batch_ms, "{:.2f}"),
                _cell(cost.queries_per_second, "{:,.0f}"),
                _cell(cost.index_seconds, "{:.1f}"),
                _cell(cost.index_bytes, "{:.1f}", 1e-6),
                _cell(cost.memory_bytes, "{:.0f}", 1e-6),
                _cell(cost.parameters, "{:.1f}", 1e-6),
                md(cost.device or "–"),
            ]
        )
    header = ["system", "p50 ms", "p95 ms", "batched ms", "queries/s", "index s", "index MB", "memory MB"]
    return markdown_table([*header, "parameters M", "device"], rows)


def overview_table(results: Sequence[Result]) -> str:
    """Many datasets: each system's headline score on each, the mean, and means by task, domain and language.

    A system gets a mean only if it was evaluated on all datasets of that mean.
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
        [md(name), *(_marked(table[name][place], marks[place][at]) for place in range(len(columns)))]
        for at, name in enumerate(names)
    ]
    return markdown_table(["system", *(md(title) for title, _ in columns)], rows)


def comparison_table(comparison: Comparison) -> str:
    """Every pair of systems: difference, p-values, and how many queries are needed to detect that difference."""
    rows = [
        [
            f"{md(pair.first)} – {md(pair.second)}",
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
    return markdown_table(header, rows)


def attribute_table(results: Sequence[Result]) -> str:
    """The headline measure by attribute of the query, a column for each system."""
    rows = []
    for group in results[0].groups:
        means = [
            next((g.mean for g in result.groups if (g.attribute, g.value) == (group.attribute, group.value)), None)
            for result in results
        ]
        cells = [_cell(mean, "{:.4f}") for mean in means]
        rows.append([md(group.attribute), md(group.value), str(group.queries), *cells])
    return markdown_table(["attribute", "value", "queries", *(md(result.name) for result in results)], rows)


def bias_table(results: Sequence[Result]) -> str:
    """Length and word overlap of what each system puts on top, beside those of relevant passages and the corpus."""
    rows = []
    for result in results:
        bias, above = result.biases, result.negatives_above
        rows.append(
            [
                md(result.name),
                _cell(result.means.get("Hole@10"), "{:.3f}"),
                f"{bias['top_characters']:.0f}",
                f"{bias['relevant_characters']:.0f}",
                f"{bias['corpus_characters']:.0f}",
                f"{bias['top_overlap']:.2f}",
                f"{bias['relevant_overlap']:.2f}",
                f"{above['share']:.2f} of {above['queries']:.0f}" if above["queries"] else "–",
            ]
        )
    header = ["system", "Hole@10", "top 10 characters", "relevant characters", "corpus characters"]
    header += ["top 10 word overlap", "relevant word overlap", "queries with a negative above the best positive"]
    return markdown_table(header, rows)


def note_lines(results: Sequence[Result]) -> str:
    """A line for each system of which something unusual was counted, such as queries without a result."""
    lines = []
    for result in results:
        counts = {"queries without a result": result.missing, "queries not judged": result.unjudged}
        counts |= {name.replace("_", " "): count for name, count in result.notes.items()}
        text = ", ".join(f"{count} {md(name)}" for name, count in counts.items() if count)
        if text:
            lines.append(f"- {md(result.name)}: {text}")
    return "\n".join(lines)


def group_letters(comparison: Comparison) -> dict[str, str]:
    """The groups of each system as letters: two systems that share a letter cannot be told apart."""
    signs = string.ascii_letters
    found: dict[str, str] = {}
    for place, group in enumerate(comparison.groups):
        sign = signs[place] if place < len(signs) else f"({place + 1})"
        for name in group:
            found[name] = found.get(name, "") + sign
    return found


def _marks(values: Sequence[float | None]) -> list[str]:
    """For each value: best, second or nothing, by the rounded figures that are shown."""
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

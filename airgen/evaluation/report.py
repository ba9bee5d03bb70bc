"""The files beside the results: tables, comparison and plots of one dataset, and the overview of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from airgen.evaluation.plots import bars, heat_map, scatter
from airgen.evaluation.result import Result, as_matrix, write_json
from airgen.evaluation.significance import Comparison, compare
from airgen.evaluation.tables import comparison_table, cost_table, dataset_table, overview_table, safe, to_csv

__all__ = ["compare_results", "write_overview", "write_reports"]


def compare_results(results: Sequence[Result]) -> Comparison:
    """All pairs of one dataset's systems on the headline measure."""
    return compare([result.name for result in results], as_matrix(results, results[0].headline))


def write_reports(folder: Path, results: Sequence[Result]) -> None:
    """`report.md`, `results.csv`, `comparison.json` and the plots of one split of one dataset."""
    comparison = compare_results(results)
    headline = results[0].headline
    write_json(folder / "comparison.json", asdict(comparison))
    _write(folder / "results.csv", to_csv(results))
    _write(folder / "report.md", _report(results, comparison))
    timed = [result for result in results if result.costs.batch_ms]
    _write(
        folder / "latency.svg",
        scatter(
            [result.name for result in timed],
            [result.costs.batch_ms or 0.0 for result in timed],
            [result.score for result in timed],
            x_label="milliseconds a query, all asked at once",
            y_label=headline,
            title=f"{results[0].dataset}: {headline} against time",
        ),
    )
    if len(results) > 1:
        matrix = _correlation(as_matrix(results, headline))
        names = [result.name for result in results]
        _write(folder / "correlation.svg", heat_map(names, matrix, title=f"{headline} by query, correlation"))


def write_overview(out: Path, results: Sequence[Result]) -> None:
    """`results.md`, `results.csv` and `datasets.svg` over many datasets."""
    headlines = ", ".join(sorted({result.headline for result in results}))
    _write(out / "results.csv", to_csv(results))
    _write(out / "results.md", f"# Results ({headlines})\n\nBest bold, second underlined.\n\n{overview_table(results)}")
    sets = list(dict.fromkeys(result.dataset for result in results))
    names = list(dict.fromkeys(result.name for result in results))
    values = np.full((len(sets), len(names)), np.nan)
    for result in results:
        values[sets.index(result.dataset), names.index(result.name)] = result.score
    _write(out / "datasets.svg", bars(sets, names, values, title=headlines))
    if len(sets) > 2 and len(names) > 2 and not np.isnan(values).any():
        _write(out / "agreement.svg", heat_map(sets, _correlation(values), title="system scores, correlation"))


def _report(results: Sequence[Result], comparison: Comparison) -> str:
    first = results[0]
    parts = [
        f"# {safe(first.dataset)}, {safe(first.split)}",
        f"{first.queries} queries, {first.about['passages']} passages, content hash `{first.about['digest'][:16]}`. "
        f"Systems that share a letter cannot be told apart (Fisher's randomisation test, Holm, {comparison.alpha}). "
        "Intervals: 95 %, bootstrap over queries. Best bold, second underlined.",
        dataset_table(results, comparison),
        _missing(results),
        "## Costs\n\n" + cost_table(results),
        "## Pairs\n\n" + comparison_table(comparison) if comparison.pairs else "",
        "## By kind of query\n\n" + _groups(results) if any(result.groups for result in results) else "",
        "## Bias\n\n" + _bias(results),
        "## Rules\n\n" + "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in first.rules.items()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _missing(results: Sequence[Result]) -> str:
    lines = []
    for result in results:
        odd = {"queries without a result": result.missing, "queries not judged": result.unjudged}
        odd |= {name.replace("_", " "): count for name, count in result.notes.items()}
        said = ", ".join(f"{count} {safe(name)}" for name, count in odd.items() if count)
        if said:
            lines.append(f"- {safe(result.name)}: {said}")
    return "\n".join(lines)


def _groups(results: Sequence[Result]) -> str:
    from airgen.evaluation.tables import to_markdown

    rows = []
    for group in results[0].groups:
        means = [
            next((g.mean for g in result.groups if (g.attribute, g.value) == (group.attribute, group.value)), None)
            for result in results
        ]
        shown = ["–" if mean is None else f"{mean:.4f}" for mean in means]
        rows.append([safe(group.attribute), safe(group.value), str(group.queries), *shown])
    return to_markdown(["attribute", "value", "queries", *(safe(result.name) for result in results)], rows)


def _bias(results: Sequence[Result]) -> str:
    from airgen.evaluation.tables import to_markdown

    rows = []
    for result in results:
        bias, above = result.biases, result.negatives_above
        rows.append(
            [
                safe(result.name),
                f"{result.means['Hole@10']:.3f}" if "Hole@10" in result.means else "–",
                f"{bias['top_characters']:.0f}",
                f"{bias['relevant_characters']:.0f}",
                f"{bias['corpus_characters']:.0f}",
                f"{bias['top_overlap']:.2f}",
                f"{bias['relevant_overlap']:.2f}",
                f"{above['share']:.2f} of {above['queries']:.0f}" if above["queries"] else "–",
            ]
        )
    header = ["system", "Hole@10", "top 10 characters", "relevant characters", "corpus characters"]
    return to_markdown(
        [*header, "top 10 word overlap", "relevant word overlap", "queries with a negative above the best positive"],
        rows,
    )


def _correlation(
    rows: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Pearson's correlation between rows; NaN where a row is constant."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    norms = np.sqrt((centred**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (centred @ centred.T) / np.outer(norms, norms)  # type: ignore[no-any-return]


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="backslashreplace")

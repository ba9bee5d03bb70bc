"""What is said about one split of one dataset, and about many datasets: each is one value that writes its own files.

report = DatasetReport.of(results)
report.comparison.ranks                   # intervals of the ranks
report.write(Path("results/scifact/test"))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airgen.evaluation.rank_correlation import spearman
from airgen.evaluation.result import Result, as_matrix, write_json
from airgen.evaluation.significance import Comparison, compare
from airgen.evaluation.tables import (
    answer_table,
    attribute_table,
    bias_table,
    comparison_table,
    cost_table,
    dataset_table,
    note_lines,
    overview_table,
    parent_table,
    refusal_table,
    results_csv,
)
from airgen.text.display import md

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class DatasetReport:
    """The systems of one split of one dataset.

    comparison: every pair of systems on the headline measure. correlation: Pearson's r between the systems' scores
    by query, float64 (systems, systems).
    """

    results: tuple[Result, ...]
    comparison: Comparison
    correlation: Matrix

    @classmethod
    def of(cls, results: Sequence[Result]) -> DatasetReport:
        """Compare the systems. Raises DatasetError where per-query scores cannot be read."""
        scores = as_matrix(results, results[0].headline)
        return cls(tuple(results), compare([result.name for result in results], scores), _correlation(scores))

    def write(self, folder: Path) -> None:
        """Write `report.md`, `results.csv`, `comparison.json`, `latency.svg` and `correlation.svg`."""
        from airgen.evaluation.charts import heat_map, latency_chart, save_svg

        write_json(folder / "comparison.json", asdict(self.comparison))
        _write(folder / "results.csv", results_csv(self.results))
        _write(folder / "report.md", self.markdown())
        save_svg(latency_chart(self.results), folder / "latency.svg")
        if len(self.results) > 1:
            title = f"{self.results[0].headline} by query: correlation of the systems"
            save_svg(heat_map(self.comparison.names, self.correlation, title=title), folder / "correlation.svg")

    def markdown(self) -> str:
        """The report for people; text from outside is escaped."""
        first = self.results[0]
        sections = {
            "By document": parent_table(self.results) if any(result.by_document for result in self.results) else "",
            "Costs": cost_table(self.results),
            "Pairs": comparison_table(self.comparison) if self.comparison.pairs else "",
            "By kind of query": attribute_table(self.results) if any(result.groups for result in self.results) else "",
            "Answers in the best passages": _answers(self.results),
            "Queries without an answer": _unanswered(self.results),
            "Bias": bias_table(self.results),
            "Rules": "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in first.rules.items()),
        }
        parts = [
            f"# {md(first.dataset)}, {md(first.split)}",
            f"{first.queries} queries, {first.about['passages']} passages, content hash "
            f"`{first.about['digest'][:16]}`. Intervals are 95 % bootstrap intervals over queries. `rank` is the "
            "interval of the rank: with 95 % no other system is told apart from this one wrongly. `not told apart from "
            "#` names the lines whose difference is not significant (Fisher's randomisation test, Holm's correction "
            f"over all pairs, alpha {self.comparison.alpha}). The best value of a column is bold, the second is "
            "underlined.",
            dataset_table(self.results, self.comparison),
            note_lines(self.results),
            *(f"## {title}\n\n{text}" for title, text in sections.items() if text),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"


def _answers(results: Sequence[Result]) -> str:
    """Nothing where no query has a known answer."""
    known = [result for result in results if result.answers]
    if not known:
        return ""
    return (
        f"The share of the {known[0].about['queries_with_answers']} queries with known answers of which one stands in "
        f"the text of the best k passages, labelled or not (DPR's accuracy).\n\n{answer_table(known)}"
    )


def _unanswered(results: Sequence[Result]) -> str:
    """Nothing where the split has no such queries."""
    known = [result for result in results if result.refusal]
    if not known:
        return ""
    return (
        f"{known[0].refusal['queries']:.0f} queries that no passage answers. AUROC: how probable it is that a query "
        "with an answer has a higher best score than one without. Threshold: the highest that refuses at most 5 % of "
        "the queries with an answer (false refusals); false hits are the queries without an answer that reach it."
        f"\n\n{refusal_table(known)}"
    )


def compare_results(results: Sequence[Result]) -> Comparison:
    """All pairs of one dataset's systems on the headline measure."""
    return compare([result.name for result in results], as_matrix(results, results[0].headline))


def write_overview(out: Path, results: Sequence[Result]) -> None:
    """Write `results.md`, `results.csv`, `datasets.svg` and, from three datasets and systems on, `agreement.svg`."""
    from airgen.evaluation.charts import heat_map, save_svg, scores_chart

    headlines = ", ".join(sorted({result.headline for result in results}))
    text = f"# Results ({headlines})\n\nBest bold, second underlined.\n\n{overview_table(results)}"
    _write(out / "results.md", text)
    _write(out / "results.csv", results_csv(results))
    save_svg(scores_chart(results), out / "datasets.svg")
    sets = list(dict.fromkeys(result.dataset for result in results))
    names = list(dict.fromkeys(result.name for result in results))
    scores = np.full((len(sets), len(names)), np.nan)
    for result in results:
        scores[sets.index(result.dataset), names.index(result.name)] = result.score
    if len(sets) > 2 and len(names) > 2 and not np.isnan(scores).any():
        title = "Spearman's rho between the rankings of the systems"
        save_svg(heat_map(sets, spearman(scores[:, None], scores[None]), title=title), out / "agreement.svg")


def _correlation(rows: Matrix) -> Matrix:
    """Pearson's correlation between rows; NaN where a row is constant."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    norms = np.sqrt((centred**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Matrix = (centred @ centred.T) / np.outer(norms, norms)
    return found


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="backslashreplace")

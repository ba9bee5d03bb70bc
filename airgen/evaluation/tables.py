"""Results as tables, and what is said about one split and about many datasets.

Results as tables: Markdown, CSV, and plain text for a terminal. The best value is bold, the second underlined.

What is said about one split of one dataset, and about many datasets: each is one value that writes its own files.

report = DatasetReport.of(results)
report.comparison.ranks                   # intervals of the ranks
report.write(Path("results/scifact/test"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from airgen.evaluation.rank_correlation import spearman
from airgen.evaluation.result import Result, as_matrix, write_json
from airgen.evaluation.significance import Comparison, SystemPair, compare
from airgen.text.display import csv_text, figure, markdown_table, md, one_line, p_value, terminal_table

T = TypeVar("T")


def results_csv(results: Sequence[Result]) -> str:
    """CSV of every mean with its interval; one row for each dataset, split, system and measure."""
    rows: list[list[object]] = []
    for result in results:
        for measure, mean in result.means.items():
            numbers = [f"{value:.6f}" for value in (mean, *result.intervals[measure])]
            rows.append([result.dataset, result.split, result.name, measure, *numbers, result.queries, result.missing])
        for measure, three in result.answers.items():
            numbers, counts = [f"{value:.6f}" for value in three], [result.about["queries_with_answers"], ""]
            rows.append([result.dataset, result.split, result.name, measure, *numbers, *counts])
    header = ["dataset", "split", "system", "measure", "mean", "low", "high", "queries", "missing"]
    return csv_text(header, rows)


def dataset_table(results: Sequence[Result], comparison: Comparison) -> str:
    """One dataset: a row for each system, a column for each measure, and the intervals of its score and rank."""
    headline = results[0].headline
    measures = [headline, *(name for name in results[0].means if name != headline)]
    ranks = rank_text(comparison)
    beside = places_text(comparison)
    # Hole and Judged say how far the other measures can be trusted, so they have no best value.
    plain = [""] * len(results)
    marks = {
        name: plain if name.startswith(("Hole", "Judged")) else _marks([result.means[name] for result in results])
        for name in measures
    }
    rows = []
    at = {result.name: place for place, result in enumerate(results)}
    for number, name in enumerate(comparison.names, 1):  # "not told apart from" names places in this order
        place = at[name]
        result = results[place]
        low, high = result.intervals[headline]
        cells = [_marked(result.means[measure], marks[measure][place]) for measure in measures]
        known = [ranks[name], beside[name]]
        rows.append([str(number), md(name) + result.mark, cells[0], f"{low:.3f}–{high:.3f}", *known, *cells[1:]])
    header = ["#", "system", headline, "95 %", "rank", "not told apart from #", *measures[1:]]
    return markdown_table(header, rows, right=[name != "system" for name in header])


def parent_table(results: Sequence[Result]) -> str:
    """A dataset of chunks read per document, the best system first: a document is as good as its best chunk."""
    found = sorted((one for one in results if one.by_document), key=lambda one: -one.by_document[one.headline][0])
    headline = found[0].headline
    others = [name for name in found[0].by_document if name != headline]
    rows = []
    for result in found:
        mean, low, high = result.by_document[headline]
        cells = [f"{result.by_document[name][0]:.4f}" for name in others]
        rows.append([md(result.name), f"{mean:.4f}", f"{low:.3f}–{high:.3f}", *cells])
    header = ["system", headline, "95 %", *others]
    return (
        "Passages are chunks. Here each document has the best score and the highest label of its chunks.\n\n"
        + markdown_table(header, rows, right=[name != "system" for name in header])
    )


def cost_table(results: Sequence[Result]) -> str:
    """What each system costs, as in BEIR's Table 3."""
    return _columns_table(
        results,
        {
            "system": lambda result: md(result.name),
            "p50 ms": lambda result: figure(result.costs.latency_p50_ms, ".1f"),
            "p95 ms": lambda result: figure(result.costs.latency_p95_ms, ".1f"),
            "batched ms": lambda result: figure(result.costs.batch_ms, ".2f"),
            "queries/s": lambda result: figure(result.costs.queries_per_second, ",.0f"),
            "index s": lambda result: figure(result.costs.index_seconds, ".1f"),
            "index MB": lambda result: figure(result.costs.index_bytes, ".1f", scale=1e-6),
            "memory MB": lambda result: figure(result.costs.memory_bytes, ".0f", scale=1e-6),
            "parameters M": lambda result: figure(result.costs.parameters, ".1f", scale=1e-6),
            "device": lambda result: md(result.costs.device or "–"),
        },
    )


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
    return _columns_table(
        comparison.pairs,
        {
            "pair": lambda pair: f"{md(pair.first)} – {md(pair.second)}",
            "difference": lambda pair: f"{pair.difference:+.4f}",
            "p Fisher": lambda pair: p_value(pair.fisher),
            "Fisher, Holm": lambda pair: p_value(pair.fisher_holm),
            "p t-test": lambda pair: p_value(pair.t),
            "t-test, Holm": lambda pair: p_value(pair.t_holm),
            "effect d": lambda pair: f"{pair.effect:.2f}",
            "queries for power .8": lambda pair: figure(pair.queries_needed, ","),
        },
    )


def attribute_table(results: Sequence[Result]) -> str:
    """The headline measure by attribute of the query, a column for each system."""
    rows = []
    for group in results[0].groups:
        means = [
            next((g.mean for g in result.groups if (g.attribute, g.value) == (group.attribute, group.value)), None)
            for result in results
        ]
        cells = [figure(mean, ".4f") for mean in means]
        rows.append([md(group.attribute), md(group.value), str(group.queries), *cells])
    return markdown_table(["attribute", "value", "queries", *(md(result.name) for result in results)], rows)


def bias_table(results: Sequence[Result]) -> str:
    """Length and word overlap of what each system puts on top, beside those of relevant passages and the corpus."""

    def above(result: Result) -> str:
        counts = result.negatives_above
        return f"{counts['share']:.2f} of {counts['queries']:.0f}" if counts["queries"] else "–"

    return _columns_table(
        results,
        {
            "system": lambda result: md(result.name),
            "Hole@10": lambda result: figure(result.means.get("Hole@10")),
            "top 10 characters": lambda result: f"{result.biases['top_characters']:.0f}",
            "relevant characters": lambda result: f"{result.biases['relevant_characters']:.0f}",
            "corpus characters": lambda result: f"{result.biases['corpus_characters']:.0f}",
            "top 10 word overlap": lambda result: f"{result.biases['top_overlap']:.2f}",
            "relevant word overlap": lambda result: f"{result.biases['relevant_overlap']:.2f}",
            "queries with a negative above the best positive": above,
        },
    )


def answer_table(results: Sequence[Result]) -> str:
    """How often an answer stands in the best passages, with intervals."""

    def cell(result: Result, name: str) -> str:
        mean, low, high = result.answers[name]
        return f"{mean:.3f} ({low:.3f}–{high:.3f})"

    columns: dict[str, Callable[[Result], str]] = {"system": lambda result: md(result.name)}
    return _columns_table(results, columns | {name: partial(cell, name=name) for name in results[0].answers})


def refusal_table(results: Sequence[Result]) -> str:
    """How well a threshold on the best score tells queries without an answer from the others."""
    return _columns_table(
        [result for result in results if result.refusal],
        {
            "system": lambda result: md(result.name),
            "AUROC": lambda result: figure(result.refusal["auroc"]),
            "95 %": lambda result: f"{figure(result.refusal['auroc_low'])}–{figure(result.refusal['auroc_high'])}",
            "threshold": lambda result: f"{result.refusal['threshold']:.4g}",
            "false refusals": lambda result: f"{result.refusal['false_refusals']:.1%}",
            "false hits": lambda result: f"{result.refusal['false_hits']:.1%}",
        },
    )


def _columns_table(items: Sequence[T], columns: Mapping[str, Callable[[T], str]]) -> str:
    """A row for each item, with the cells that the functions make of it."""
    return markdown_table(list(columns), [[cell(item) for cell in columns.values()] for item in items])


def note_lines(results: Sequence[Result]) -> str:
    """A line for each system of which something unusual was counted, such as queries without a result."""
    lines = []
    for result in results:
        counts = {"queries without a result": result.missing, "queries not judged": result.unjudged}
        counts |= {name.replace("_", " "): count for name, count in result.notes.items()}
        text = ", ".join(f"{count} {md(name)}" for name, count in counts.items() if count)
        if text:
            lines.append(f"- {md(result.name)}: {text}")
    if said := label_makers_text(results):
        lines.insert(0, f"- {md(said)}")
    return "\n".join(lines)


def rank_text(comparison: Comparison) -> dict[str, str]:
    """The interval of each system's rank, such as `3–9`, or `3` where it is certain."""
    return {name: _span(*ranks) for name, ranks in zip(comparison.names, comparison.ranks, strict=True)}


def places_text(comparison: Comparison) -> dict[str, str]:
    """For each system the places, in the order of the means, of those that it is not told apart from: `1, 3–7`."""
    place = {name: at for at, name in enumerate(comparison.names, 1)}
    found = {}
    for name, others in zip(comparison.names, comparison.together, strict=True):
        runs: list[list[int]] = []
        for at in sorted(place[other] for other in others):
            if runs and runs[-1][1] == at - 1:
                runs[-1][1] = at
            else:
                runs.append([at, at])
        found[name] = ", ".join(_span(*run) for run in runs) or "–"
    return found


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}–{high}"


def ranking_text(results: Sequence[Result], comparison: Comparison) -> str:
    """For a terminal: the systems, best first, with the intervals of score and rank."""
    headline = results[0].headline
    ranks, beside = rank_text(comparison), places_text(comparison)
    by_name = {result.name: result for result in results}
    rows = [["#", "system", headline, "95 %", "rank", "not told apart from #", "missing", "ms/query"]]
    for number, name in enumerate(comparison.names, 1):
        result = by_name[name]
        low, high = result.intervals[headline]
        time = "" if result.costs.batch_ms is None else f"{result.costs.batch_ms:.2f}"
        known = [f"{low:.3f}-{high:.3f}", ranks[name], beside[name]]
        rows.append([str(number), name + result.mark, f"{result.score:.4f}", *known, str(result.missing), time])
    return "\n".join([terminal_table(rows, left=(1,)), *filter(None, [label_makers_text(results)])])


def label_makers_text(results: Sequence[Result]) -> str:
    """One sentence about the marked systems; empty where there are none."""
    marked = [f"{one.name} ({', '.join(one.made_labels)})" for one in results if one.made_labels]
    if not marked:
        return ""
    return one_line(f"† made the labels itself, in part: its score may be too high: {', '.join(marked)}")


def pair_text(pair: SystemPair, measure: str) -> str:
    """For a terminal: one comparison of two systems."""
    needed = "" if pair.queries_needed is None else f"; {pair.queries_needed:,} queries would show it (power .8)"
    return (
        f"{measure}: {pair.first} - {pair.second} = {pair.difference:+.4f}  p {pair.fisher:.4f} (Fisher), "
        f"{pair.t:.4f} (t), after Holm {pair.fisher_holm:.4f}, {pair.t_holm:.4f}; d {pair.effect:.2f}{needed}"
    )


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

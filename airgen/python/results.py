"""Results of an evaluation: a row per system, the scores of each query, comparisons, charts and a verdict.

results = evaluate(bench, {"bm25": "bm25", "new": Dense(model)})
results                               # a table with intervals, and the verdict below it
results.compare("new", "bm25")        # difference, interval, p-value, wins, queries needed
results.per_query(); results.plot("intervals"); results.report("handbook.html")
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, SupportsIndex, overload

import numpy as np

from airgen.components.registry import closest, load_extra
from airgen.dataset.beir import BeirDataset
from airgen.display.study import Column, Plain, Rows, Study, Table, columns, fragment
from airgen.errors import AirgenError, UsageError
from airgen.evaluation.breakdown import Group
from airgen.evaluation.result import Result, all_scores, as_matrix
from airgen.evaluation.result_tables import compare_results, fairness_lines, note_lines, rank_text
from airgen.evaluation.significance import Comparison, Verdict, compare
from airgen.evaluation.verdict import FEWEST, advise
from airgen.python.entrance import in_python
from airgen.retrievers.model_facts import ModelSetup
from airgen.safety.escaping import md

_MOST_COLUMNS = 12  # maximum columns of the table
_MEASURES = ("nDCG@10", "Recall@10", "Recall@100", "RR@10", "AP@1000", "Hole@10")


@dataclass(frozen=True)
class Compared:
    """A paired comparison of two systems.

    Attributes:
        first: Name of the first system.
        second: Name of the system it is compared with.
        measure: Measure of the scores.
        difference: Mean score of `first` minus that of `second`.
        low: Lower bound of the 95% confidence interval of the difference.
        high: Upper bound of the interval.
        p: P-value of Fisher's randomisation test for this pair alone.
        wins: Number of queries for which `first` is better.
        losses: Number of queries for which `second` is better.
        ties: Number of queries with equal scores.
        queries: Number of queries.
        queries_needed: Number of queries needed to detect this difference with a power of 0.8. None if there is no
            difference.
        verdict: Whether `first` is "better" or "worse", or "cannot tell".
    """

    first: str
    second: str
    measure: str
    difference: float
    low: float
    high: float
    p: float
    wins: int
    losses: int
    ties: int
    queries: int
    queries_needed: int | None
    verdict: Verdict

    @property
    def words(self) -> str:
        """The comparison as a sentence."""
        sentence = f"{self.first} {self.difference:+.4f} {self.measure} against {self.second} "
        sentence += f"({self.low:+.4f} to {self.high:+.4f}, p {self.p:.4f}): {self.verdict}; "
        sentence += f"better for {self.wins} of {self.queries} queries, worse for {self.losses}"
        if self.verdict == "cannot tell" and (self.queries_needed or 0) > self.queries:
            sentence += f"; about {self.queries_needed:,} queries are needed"
        return sentence

    def study(self) -> Study:
        """Return the comparison as a table and a sentence."""
        parts = [
            ("difference", f"{self.difference:+.4f}"),
            ("95 %", f"{self.low:+.4f} to {self.high:+.4f}"),
            ("p", f"{self.p:.4f}"),
            ("verdict", self.verdict),
            ("wins", self.wins),
            ("losses", self.losses),
            ("ties", self.ties),
            ("queries needed", self.queries_needed),
        ]
        return Study(f"{self.first} against {self.second}", [Table(parts, columns("", self.measure)), md(self.words)])

    def to_pandas(self) -> Any:
        """Return the comparison as a data frame with one row."""
        names = list(self.__dataclass_fields__)
        return load_extra("pandas", "to_pandas()").DataFrame([{name: getattr(self, name) for name in names}])

    def save(self, path: str | Path) -> Path:
        """Write the comparison as .md, .html, .csv or .json, and return the path."""
        return self.study().save(path)

    def __repr__(self) -> str:
        return self.words

    def _repr_html_(self) -> str:
        return self.study()._repr_html_()


Kind = Literal["intervals", "cost", "pairs", "wins", "overlap"]


class Results(Rows[Result]):
    """The results of systems on one or more datasets, as a list of `Result` in the order of the systems.

    Methods that concern a single dataset use the first one. To use another, call `on` first:
    `results.on("scifact").compare("bm25", "dense")`.
    """

    out: Path = Path("results")  # where runs, scores and tables are
    places: tuple[Path, ...] = ()  # the datasets' folders
    sliced: str = ""  # the attribute of `evaluate(by=...)`, by which they are shown too
    failed: Sequence[str]  # only where systems failed beside these: a line for each, with its reason

    @property
    def datasets(self) -> list[str]:
        """Names of the datasets."""
        return list(dict.fromkeys(result.dataset for result in self))

    def on(self, dataset: str) -> "Results":
        """Return the results on one dataset. Raises UsageError if there are none."""
        if dataset not in self.datasets:
            raise UsageError(f"no result on {dataset!r}{closest(dataset, self.datasets)}")
        return self._of(result for result in self if result.dataset == dataset)

    def _of(self, results: Iterable[Result]) -> "Results":
        selection = Results(results)
        selection.out, selection.places, selection.sliced = self.out, self.places, self.sliced
        if hasattr(self, "failed"):
            selection.failed = self.failed
        return selection

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> Result: ...
    @overload
    def __getitem__(self, key: slice) -> "Results": ...

    def __getitem__(self, key: SupportsIndex | slice | str) -> "Result | Results":
        """Return a result by its index or by the name of its system."""
        if isinstance(key, str):
            result = next((result for result in self if result.name == key), None)
            if result is None:
                known = [result.name for result in self]
                raise UsageError(f"no system {key!r}{closest(key, known)}", code="unknown_name", names=known)
            return result
        return self._of(super().__getitem__(key)) if isinstance(key, slice) else super().__getitem__(key)

    @cached_property
    def _first(self) -> "Results":
        return self.on(self.datasets[0]) if len(self.datasets) > 1 else self

    @cached_property
    def comparison(self) -> Comparison:
        """The comparison of all pairs of systems by the main measure, with confidence intervals for the ranks."""
        return compare_results(self._first)

    def table(self) -> Rows[dict[str, Any]]:
        """Return one row per system, best first, with score, interval, rank, other measures and cost.

        If a system was not run again, `kept` is the time when it ran.
        """
        rows: Rows[dict[str, Any]] = Rows()
        several = len(self.datasets) > 1
        for name in self.datasets:
            part = self.on(name)
            ranks = rank_text(part.comparison) if len(part) > 1 else {}
            for result in sorted(part, key=lambda each: -each.score):
                low, high = result.intervals[result.headline]
                row: dict[str, Any] = {"dataset": name} if several else {}
                kept = {"kept": result.kept or None} if any(each.cached for each in self) else {}
                row |= {
                    "system": result.name,
                    result.headline: result.score,
                    "low": low,
                    "high": high,
                    "rank": ranks.get(result.name),
                    **kept,
                }
                row |= {measure: result.means[measure] for measure in _MEASURES if measure in result.means}
                row |= {"ms_per_query": result.costs.batch_ms, "index_seconds": result.costs.index_seconds}
                rows.append(dict(list(row.items())[:_MOST_COLUMNS]))
        return rows

    def to_pandas(self) -> Any:
        """Return `table` as a data frame. If a system has a model, more columns say how each model was run."""
        if not any(result.models for result in self):
            return load_extra("pandas", "to_pandas()").DataFrame(self.table())
        of = {(result.dataset, result.name): result for result in self}
        rows = [
            {**row, **_run_as(of[row.get("dataset", self.datasets[0]), row["system"]].models)} for row in self.table()
        ]
        return load_extra("pandas", "to_pandas()").DataFrame(rows)

    def per_query(self, measure: str = "") -> Any:
        """Return the score of each system for each query, in long format.

        Args:
            measure: Name of a measure. Default: the one that ranks systems.

        Returns:
            Rows with `system`, `query` (its id), its `text`, `measure`, `score` and, if there are several datasets,
            `dataset`.

        Raises:
            UsageError: The measure was not computed.
        """
        rows: Rows[dict[str, Any]] = Rows()
        texts = self._texts()
        for name in self.datasets:
            part = list(self.on(name))
            of_dataset = texts.get(name, {})
            chosen = self._measure(part[0], measure)
            scores_of = all_scores([result.paths.scores for result in part], chosen)
            for result, scores in zip(part, scores_of, strict=True):
                head = {"dataset": name} if len(self.datasets) > 1 else {}
                rows += [
                    {
                        **head,
                        "system": result.name,
                        "query": key,
                        "text": of_dataset.get(key),
                        "measure": chosen,
                        "score": score,
                    }
                    for key, score in scores.items()
                ]
        return rows

    def _texts(self) -> dict[str, dict[str, str]]:
        """Return {dataset: {query id: text}} of the datasets that are still in their folders."""
        texts: dict[str, dict[str, str]] = {}
        for place in self.places:
            with suppress(AirgenError):
                dataset = BeirDataset.open(place)
                texts[dataset.name] = {key: query.text for key, query in dataset.queries().items()}
        return texts

    def _measure(self, result: Result, measure: str) -> str:
        chosen = measure or result.headline
        if chosen not in result.means:
            known = list(result.means)
            raise UsageError(f"the measure {chosen!r} was not computed{closest(chosen, known)}: name it in `metrics`")
        return chosen

    def compare(self, first: str, second: str, measure: str = "") -> Compared:
        """Compare two systems query by query.

        Args:
            first: Name of a system.
            second: Name of the system to compare it with.
            measure: Name of a measure. Default: the one that ranks systems.

        Returns:
            The difference with its 95% confidence interval and p-value, wins, losses and ties, and the number of
            queries needed to detect the difference.

        Raises:
            UsageError: A system is unknown, both are the same, or the measure was not computed.
        """
        results = [self._first[first], self._first[second]]
        chosen = self._measure(results[0], measure)
        if first == second:
            raise UsageError(f"{first} cannot be compared with itself")
        _, scores = as_matrix(results, chosen)
        difference = scores[0] - scores[1]
        pair = compare([first, second], scores).pairs[0].seen_from(first)
        return Compared(
            first=first,
            second=second,
            measure=chosen,
            difference=pair.difference,
            low=pair.low,
            high=pair.high,
            p=pair.fisher,
            wins=int((difference > 0).sum()),
            losses=int((difference < 0).sum()),
            ties=int((difference == 0).sum()),
            queries=len(difference),
            queries_needed=pair.queries_needed,
            verdict=pair.alone,
        )

    @property
    def verdict(self) -> str:
        """A sentence on whether the systems differ significantly on these queries, and what to do next."""
        part = self._first
        if not part:
            return "no system was evaluated"
        if not part[0].about.get("generated"):
            return _worded(advise(part, more="label more queries").sentence)
        return _worded(advise(part, more="raise n", passages=part[0].about.get("passages")).sentence)

    def by(self, attribute: str) -> Study:
        """Break scores down by an attribute of the queries, or by the metadata of their relevant passages.

        Args:
            attribute: An attribute such as "type", "length" or "metadata.product".

        Returns:
            A table with a row per value: the mean score of each system, with its 95% interval.

        Raises:
            UsageError: The queries have no such attribute.
        """
        part = self._first
        known = list(dict.fromkeys(group.attribute for group in part[0].groups))
        if attribute not in known:
            raise UsageError(
                f"by: no attribute {attribute!r}{closest(attribute, known) or ': these queries have none'}"
            )
        values = [group for group in part[0].groups if group.attribute == attribute]
        groups = {
            (result.name, group.value): group
            for result in part
            for group in result.groups
            if group.attribute == attribute
        }
        names = [result.name for result in part]

        def mean(name: str, group: Group) -> float | None:
            found = groups.get((name, group.value))
            return None if found is None else found.mean

        def interval(name: str, group: Group) -> tuple[float, float] | None:
            found = groups.get((name, group.value))
            return None if found is None else found.interval

        shown = [Column(attribute, lambda group: group.value), Column("queries", lambda group: group.queries, ",")]
        for name in names:
            shown += [Column(name, partial(mean, name), ".4f"), Column(f"{name} 95 %", partial(interval, name), ".3f")]
        few = [group.value for group in values if group.queries < FEWEST]
        doubt = f"Fewer than {FEWEST} queries rank no systems: {', '.join(few)}" if few else ""
        return Study(f"{part[0].headline} by {attribute}", [Table(values, shown), md(doubt)])

    def plot(self, kind: Kind = "intervals", ax: Any = None) -> Any:
        """Plot the results.

        Args:
            kind: "intervals" plots the scores with confidence intervals, "cost" plots score against cost, "pairs" plots
                the difference of every pair, and "wins" the number of queries for which each system is best.
            ax: Matplotlib axes to draw on. Default: an SVG, which notebooks display.

        Returns:
            A Chart with a method `save`, or the axes.

        Raises:
            UsageError: The kind is unknown.
        """
        from airgen.python.plots import drawn

        return drawn(self._first, kind, ax)

    def report(self, file: str | Path = "report.html") -> Path:
        """Write a report with every query, label and system.

        Args:
            file: An HTML file to write, or a folder if the name does not end in .html.

        Returns:
            The path of the page.
        """
        from airgen.report.report import make_report

        path = Path(file)
        return make_report([*self.places, self.out], path, single_file=path.suffix.lower() in (".html", ".htm"))

    def save(self, path: str | Path) -> Path:
        """Write the table as .md, .html, .csv or .json; return the path.

        A .md file fits a message: it has the score, interval and rank of each system, and the verdict.
        """
        ending = Path(path).suffix.lower()
        if ending in (".md", ".markdown", ".txt") and self:
            return self._short().save(path)
        return (self._study(self.table()) if ending in (".csv", ".json") else self.study()).save(path)

    def _short(self) -> Study:
        """Return the table for a message."""
        names = ["dataset"] if len(self.datasets) > 1 else []
        rows = [
            [row.get("dataset"), row["system"], row[headline], (row["low"], row["high"]), row["rank"]]
            for row in self._marked_rows()
            for headline in [self[0].headline if self[0].headline in row else next(iter(row))]
        ]
        table = Table(rows, columns("dataset", "system", self[0].headline, "95 %", "rank", form=".3f"))
        return Study(self._title, [replace(table, columns=table.columns[not names :]), md(self.verdict)])

    def _marked_rows(self) -> list[dict[str, Any]]:
        """Return `table` with the marks of systems that helped to make the labels."""
        marked = {(result.dataset, result.name): result.name + result.mark for result in self}
        return [{**row, "system": marked[row.get("dataset", self.datasets[0]), row["system"]]} for row in self.table()]

    @property
    def _title(self) -> str:
        return f"{', '.join(self.datasets)}: {self[0].queries:,} queries"

    def study(self) -> Study:
        """Return the table with intervals, notes on unfair comparisons, and the verdict."""
        return self._study(self._marked_rows())

    def _study(self, rows: Sequence[Mapping[str, Any]]) -> Study:
        if not self:
            return Study("Results", ["No system was evaluated."])
        names = list(dict.fromkeys(name for row in rows for name in row))
        forms = {"low": ".3f", "high": ".3f", "ms_per_query": ".2f", "index_seconds": ".1f"}
        shown = [
            Column(
                name.replace("_", " "),
                partial(_cell, name),
                forms.get(name, ".4f"),
                left=name in ("system", "dataset"),
                best=name == self[0].headline and len(self.datasets) == 1,
            )
            for name in names
        ]
        texts = {name for row in rows for name, value in row.items() if isinstance(value, str | int)}
        shown = [
            replace(column, form="") if name in texts else column for name, column in zip(names, shown, strict=True)
        ]
        return Study(
            self._title,
            [Table(rows, shown), *self._slices, _worded(note_lines(self)), *map(md, self._failures), md(self.verdict)],
        )

    @property
    def _slices(self) -> list[Any]:
        """Return the scores by the attribute of `evaluate(by=...)`."""
        parts = self.by(self.sliced).parts if self.sliced and self else ()
        return [part for part in parts if isinstance(part, Table)]

    @property
    def _failures(self) -> list[str]:
        return [f"failed: {line}" for line in getattr(self, "failed", ())]

    def __repr__(self) -> str:
        if not self:
            return "Results: no system was evaluated"
        rows = self._marked_rows()
        names = list(list(rows[0])[:8])
        table = Table([[_text(row.get(name)) for name in names] for row in rows[:30]], columns(*names))
        more = f"... and {len(rows) - 30} more" if len(rows) > 30 else ""
        lines = [more, *map(_worded, fairness_lines(self)), *self._failures, self.verdict]
        return Study("", [table, *self._slices, *map(Plain, lines)]).text()

    def _repr_html_(self) -> str:
        return fragment([f"### {md(self.study().title)}", *self.study().parts])


def _worded(text: str) -> str:
    """Return advice with functions in place of commands."""
    return in_python(text, "evaluate", {})


_SETUP = ("query_prompt", "passage_prompt", "max_length", "dim", "dtype", "similarity", "revision")


def _run_as(models: Sequence[ModelSetup]) -> dict[str, Any]:
    """Return columns for the models of a system. Those of several models are joined."""
    columns: dict[str, Any] = {"models": " + ".join(model.model for model in models) or None}
    for name in _SETUP:
        values = [getattr(model, name) for model in models]
        columns[name] = values[0] if len(values) == 1 else " + ".join(str(value) for value in values) or None
    cuts = [model.passages or model.pairs for model in models]
    columns["cut_share"] = max((cut.cut / max(1, cut.texts) for cut in cuts if cut), default=None)
    return columns


def _cell(name: str, row: Mapping[str, Any]) -> Any:
    return row.get(name)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float | np.floating) else str(value)

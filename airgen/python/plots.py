"""Charts of results: intervals, score against cost, pairs and wins, as SVG or on matplotlib axes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airgen.components.registry import closest
from airgen.errors import UsageError
from airgen.evaluation.intervals import DIFFERENCES, bootstrap_interval
from airgen.evaluation.result import Result, as_matrix
from airgen.evaluation.wordings import by_wording

Row = dict[str, Any]
_KINDS = ("intervals", "cost", "pairs", "wins", "overlap")


@dataclass(frozen=True)
class Chart:
    """A chart as SVG, which a notebook displays.

    Attributes:
        svg: The SVG source of the chart.
    """

    svg: str

    def save(self, path: str | Path) -> Path:
        """Write the chart as .svg or .png, and return the path.

        Raises:
            UsageError: The file name has another ending.
        """
        path = Path(path)
        if path.suffix.lower() == ".png":
            import vl_convert

            path.write_bytes(vl_convert.svg_to_png(self.svg, scale=2.0))
        elif path.suffix.lower() == ".svg":
            path.write_text(self.svg + "\n", encoding="utf-8", errors="backslashreplace")
        else:
            raise UsageError(f"{path}: a chart is written as .svg or .png")
        return path

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Chart of {len(self.svg):,} bytes of SVG: .save('chart.svg')"


def drawn(results: Sequence[Result], kind: str, ax: Any) -> Any:
    """Draw a chart.

    Args:
        results: Results of systems on the same queries.
        kind: The chart: intervals, cost, pairs, wins or overlap.
        ax: Matplotlib axes to draw on, or None for SVG.

    Returns:
        A `Chart`, or `ax`.

    Raises:
        UsageError: The kind is unknown, or the results have nothing to draw.
    """
    if kind not in _KINDS:
        raise UsageError(f"plot: no chart {kind!r}{closest(kind, list(_KINDS))}; there are: {', '.join(_KINDS)}")
    if not results:
        raise UsageError("plot: no system was evaluated")
    if kind == "overlap":
        return _by_overlap(results, ax)
    rows, labels = _rows(results, kind)
    if ax is not None:
        return _on_axes(ax, rows, kind, labels)
    from airgen.evaluation.charts import svg_text

    return Chart(svg_text(_specification(rows, kind, labels, results)))


def _by_overlap(results: Sequence[Result], ax: Any) -> Any:
    """Draw scores by overlap. Raises UsageError if the dataset has one wording."""
    worded = by_wording(results)
    if worded is None:
        raise UsageError("plot: the dataset has no wordings (generation.method: needs makes them)")
    if ax is None:
        return Chart(worded.svg())
    classes = worded.classes()
    for place, name in enumerate(worded.systems):
        ax.plot([label for label, _, _ in classes], [scores[place] for _, _, scores in classes], label=name)
    ax.set_xlabel("overlap with the passage")
    ax.set_ylabel(worded.headline)
    ax.legend()
    return ax


def _rows(results: Sequence[Result], kind: str) -> tuple[list[Row], tuple[str, str]]:
    """Return the points of a chart, and the labels of its axes."""
    ranked = sorted(results, key=lambda result: -result.score)
    head = ranked[0].headline
    if kind == "intervals":
        return [
            {
                "name": result.name,
                "value": result.score,
                "low": result.intervals[head][0],
                "high": result.intervals[head][1],
            }
            for result in ranked
        ], (head, "")
    if kind == "cost":
        timed = [result for result in ranked if result.costs.batch_ms]
        if not timed:
            raise UsageError("plot: query times are unknown, because existing runs were not timed")
        return [{"name": result.name, "value": result.score, "cost": result.costs.batch_ms} for result in timed], (
            "milliseconds per query",
            head,
        )
    _, scores = as_matrix(ranked, head)
    if kind == "wins":
        best = scores.max(axis=0)
        return [
            {
                "name": result.name,
                "value": int((row == best).sum()),
                "alone": int(((row == best) & _alone(scores)).sum()),
            }
            for result, row in zip(ranked, scores, strict=True)
        ], (f"queries with the best {head} (dark: without a tie)", "")
    places = [(first, second) for first in range(len(ranked)) for second in range(first + 1, len(ranked))]
    if not places:
        raise UsageError("plot: pairs need two systems")
    differences = np.array([scores[first] - scores[second] for first, second in places])
    ends = bootstrap_interval(differences, span=DIFFERENCES).tolist()
    return [
        {"name": f"{ranked[first].name} - {ranked[second].name}", "value": float(row.mean()), "low": low, "high": high}
        for (first, second), row, (low, high) in zip(places, differences, ends, strict=True)
    ], (f"difference of {head}", "")


def _alone(scores: Any) -> Any:
    """Return, for each query, whether exactly one system is best."""
    return (scores == scores.max(axis=0)).sum(axis=0) == 1


def _specification(rows: list[Row], kind: str, labels: tuple[str, str], results: Sequence[Result]) -> dict[str, Any]:
    import altair as alt

    from airgen.evaluation.charts import chart_names, titled

    names = chart_names([row["name"] for row in rows])
    data = alt.InlineData(values=[{**row, "name": name} for row, name in zip(rows, names, strict=True)])
    base = alt.Chart(data)
    title = f"{results[0].dataset}, {results[0].queries:,} queries"
    by_name = alt.Y("name:N", sort=names, title=None)
    blue = alt.value("#4477aa")
    if kind == "cost":
        across = alt.X("cost:Q", scale=alt.Scale(type="log"), title=labels[0])
        up = alt.Y("value:Q", scale=alt.Scale(zero=False), title=labels[1])
        points = base.mark_circle(size=90).encode(x=across, y=up, color=blue)
        words = base.mark_text(align="left", dx=9).encode(x=across, y=up, text="name:N")
        chart = titled(alt.layer(points, words).properties(width=460, height=300), title)
    elif kind == "wins":
        all_ = base.mark_bar(color="#aac4dd").encode(x=alt.X("value:Q", title=labels[0]), y=by_name)
        alone = base.mark_bar(color="#4477aa").encode(x="alone:Q", y=by_name)
        chart = titled(alt.layer(all_, alone).properties(width=460, height=alt.Step(26)), title)
    else:
        across = alt.X("value:Q", scale=alt.Scale(zero=kind == "pairs"), title=labels[0])
        lines = base.mark_rule(strokeWidth=2).encode(
            x=alt.X("low:Q", title=labels[0]), x2="high:Q", y=by_name, color=blue
        )
        points = base.mark_circle(size=80, opacity=1).encode(x=across, y=by_name, color=blue)
        layers = [lines, points]
        if kind == "pairs":
            zero = alt.Chart(alt.InlineData(values=[{"zero": 0}])).mark_rule(strokeDash=[3, 3]).encode(x="zero:Q")
            layers.insert(0, zero)
        chart = titled(alt.layer(*layers).properties(width=460, height=alt.Step(26)), title)
    specification: dict[str, Any] = chart.to_dict(validate=False)
    return specification


def _on_axes(ax: Any, rows: list[Row], kind: str, labels: tuple[str, str]) -> Any:
    """Draw a chart on matplotlib axes."""
    names, places = [row["name"] for row in rows], list(range(len(rows)))
    values = [row["value"] for row in rows]
    if kind == "cost":
        ax.scatter([row["cost"] for row in rows], values)
        for row in rows:
            ax.annotate(row["name"], (row["cost"], row["value"]))
        ax.set_xscale("log")
        ax.set_xlabel(labels[0])
        ax.set_ylabel(labels[1])
        return ax
    if kind == "wins":
        ax.barh(places, values)
    else:
        spread = [[row["value"] - row["low"] for row in rows], [row["high"] - row["value"] for row in rows]]
        ax.errorbar(values, places, xerr=spread, fmt="o")
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    ax.set_xlabel(labels[0])
    return ax

"""Charts of an evaluation, each as a Vega-Lite specification.

Every text is data in the specification: Vega escapes it, and `label` removes control characters first. Equal results
give equal bytes. Nothing is fetched: the renderer and its fonts come with vl-convert. Import this module only to write
a chart, because Altair takes half a second to import. Validation against Vega-Lite's schema is left to the tests.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from altair.utils.schemapi import debug_mode
from numpy.typing import NDArray

from airgen.display.study import write_lines
from airgen.safety.escaping import distinct_names, one_line

COLOURS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#222255"]  # Paul Tol's
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # vl-convert has the first; the others have the same width
_LONGEST_LABEL = 60  # characters of a name
_MEMBERS = frozenset(
    [
        *("__proto__", "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString"),
        *("toString", "valueOf", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__"),
    ]
)  # of every JavaScript object

AnyChart = alt.Chart | alt.LayerChart | alt.ConcatChart | alt.FacetChart


def save_svg(chart: AnyChart, path: Path) -> None:
    """Write the chart to a file without network access."""
    write_lines(path, svg_text(chart.to_dict(validate=False)) + "\n")


def svg_text(specification: dict[str, Any]) -> str:
    """Render a Vega-Lite specification as SVG, without network access."""
    version = "_".join(alt.SCHEMA_VERSION.split(".")[:2])
    return vl_convert.vegalite_to_svg(specification, vl_version=version, allowed_base_urls=[])


def label(text: object) -> str:
    """Turn text into a label: one line without control characters, truncated if very long.

    Vega looks labels up in JavaScript objects, each of which has a member `constructor`. Such a label gets a space.
    """
    line = one_line(text, _LONGEST_LABEL)
    return f"{line}\N{NO-BREAK SPACE}" if line in _MEMBERS else line


def chart_names(names: Sequence[str]) -> list[str]:
    """Return distinct labels for names, numbering those that would look the same."""
    return distinct_names(map(label, names))


def colours(field: str, names: Sequence[str], palette: Sequence[str] = COLOURS) -> alt.Color:
    """Assign a colour to each name. After the eighth name, colours repeat with another dash pattern."""
    return alt.Color(f"{field}:N", scale=_cycle(names, palette, 1), legend=_legend(names))


def dashes(field: str, names: Sequence[str]) -> alt.StrokeDash:
    """Assign solid lines to the first eight names, and dashed lines to the others."""
    return alt.StrokeDash(f"{field}:N", scale=_cycle(names, _DASHES, len(COLOURS)), legend=_legend(names))


def _cycle(names: Sequence[str], values: Sequence[Any], each: int) -> alt.Scale:
    return alt.Scale(domain=list(names), range=[values[at // each % len(values)] for at in range(len(names))])


def _legend(names: Sequence[str]) -> alt.Legend | None:
    return alt.Legend(title=None) if len(names) > 1 else None


def titled(chart: AnyChart, title: str) -> AnyChart:
    """Add a title, and the common style of all charts."""
    text: dict[str, Any] = {"labelLimit": 0, "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"}
    config = alt.Config(
        font=_FONT,
        background="white",
        axis=alt.AxisConfig(**text, gridColor="#e4e4e4", domainColor="#999999", tickColor="#999999"),
        legend=alt.LegendConfig(**text, orient="bottom", columns=4, symbolStrokeWidth=2),
        view=alt.ViewConfig(stroke=None),
    )
    heading = alt.TitleParams(one_line(title, 100), anchor="start", fontSize=14, offset=12)
    titled_chart: AnyChart = chart.properties(
        title=heading, padding=12, config=config
    )  # each call copies the whole chart
    return titled_chart


def nothing_chart(title: str) -> AnyChart:
    """Draw a placeholder for a chart without values."""
    chart = alt.Chart(alt.InlineData(values=[{}])).mark_text(text="nothing to show", fontSize=12)
    return titled(chart.properties(width=300, height=60), title)


def lines_chart(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], x: alt.X, y: alt.Y, *, title: str, size: tuple[int, int]
) -> AnyChart:
    """Draw a line for each `name` of the rows, in the order of `names`."""
    if not rows:
        return nothing_chart(title)
    chart = alt.Chart(alt.InlineData(values=rows)).mark_line(strokeWidth=2)
    chart = chart.encode(x=x, y=y, color=colours("name", names), strokeDash=dashes("name", names))
    return titled(chart.properties(width=size[0], height=size[1]), title)


def overlap_chart(
    names: Sequence[str], classes: Sequence[tuple[str, int, Sequence[float]]], *, measure: str, title: str
) -> AnyChart:
    """Draw the mean score of each system by class of overlap.

    Args:
        names: The systems.
        classes: Label, number of queries and mean score of each system, by class.
        measure: Name of the measure.
        title: Title of the chart.
    """
    shown = chart_names(names)
    rows = [
        {"name": name, "overlap": f"{label} ({count})", "score": round(scores[place], 6)}
        for label, count, scores in classes
        for place, name in enumerate(shown)
    ]
    order = [f"{label} ({count})" for label, count, _ in classes]
    x = alt.X("overlap:O", sort=order, axis=alt.Axis(title="overlap with the passage (queries)", labelAngle=0))
    y = alt.Y("score:Q", axis=alt.Axis(title=measure, tickCount=6))
    return lines_chart(rows, shown, x, y, title=title, size=(480, 260))


@debug_mode(False)
def heat_map(names: Sequence[str], values: NDArray[Any], *, title: str) -> AnyChart:
    """Draw a square matrix from -1 (red) through 0 (white) to 1 (blue), with undefined values in grey."""
    shown = chart_names(names)
    cells = tuple(
        {"row": shown[row], "column": shown[column], "value": None if math.isnan(value) else round(value, 6)}
        for row, line in enumerate(values.tolist())
        for column, value in enumerate(line)
    )

    def axis(angle: int) -> alt.Axis:
        return alt.Axis(title=None, labelAngle=angle, ticks=False, domain=False, grid=False)

    base = alt.Chart(alt.InlineData(values=cells)).encode(
        x=alt.X("column:N", sort=shown, axis=axis(-45)), y=alt.Y("row:N", sort=shown, axis=axis(0))
    )
    colour = alt.Color("value:Q", scale=alt.Scale(scheme="redblue", domain=[-1, 1]), legend=None)
    rects = base.mark_rect(stroke="white", invalid=None).encode(
        color=alt.condition("isValid(datum.value)", colour, alt.value("#eeeeee"))
    )
    valid = base.transform_filter("isValid(datum.value)")
    numbers = valid.mark_text(fontSize=10, aria=False).encode(
        text=alt.Text("value:Q", format=".2f"),
        color=alt.condition("abs(datum.value) > 0.6", alt.value("white"), alt.value("black")),
    )
    return titled(alt.layer(rects, numbers).properties(width=alt.Step(30), height=alt.Step(26)), title)

"""Charts of an agreement report: ranks on both sides, scores on both sides, and the paper's Figure 3."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import altair as alt

from airgen.evaluation.charts import (
    COLOURS,
    AnyChart,
    Panel,
    chart_names,
    colours,
    dashes,
    label,
    nothing_chart,
    panels_chart,
    titled,
)
from airgen.evaluation.significance import bootstrap_interval
from airgen.quality.agreement.bias import RankGain
from airgen.quality.agreement.rankings import Resamplings, Side


def ranks_chart(
    gains: Sequence[RankGain], *, title: str, palette: Sequence[str] = COLOURS, width: int = 340
) -> AnyChart:
    """A slope graph: human ranks on the left, generated ones on the right; a colour a family, best on top.

    Systems of equal rank stand below each other, so that no two names overlap. `width`: pixels between the sides.
    """
    if not gains:
        return nothing_chart(title)
    shown = dict(zip([gain.system for gain in gains], chart_names([gain.system for gain in gains]), strict=True))
    left, right = _places(gains, "human"), _places(gains, "generated")
    rows = [
        {
            "system": shown[gain.system],
            "family": label(gain.family) or "other",
            "left": left[gain.system],
            "right": right[gain.system],
            "human": f"{gain.human:g}",
            "generated": f"{gain.generated:g}",
            "width": 1 + min(abs(gain.gain), 8) / 4,
        }
        for gain in gains
    ]
    scale = alt.Scale(domain=[-1.2, len(gains) - 0.5], reverse=True, nice=False, zero=False)
    base = alt.Chart(alt.InlineData(values=rows))
    left_y, right_y = (alt.Y(f"{side}:Q", scale=scale, axis=None) for side in ("left", "right"))
    families = list(dict.fromkeys(str(row["family"]) for row in rows))
    lines = base.mark_rule().encode(
        x=alt.value(0), x2=alt.value(width), y=left_y, y2="right:Q",
        color=colours("family", families, palette), strokeDash=dashes("family", families),
        strokeWidth=alt.StrokeWidth("width:Q", scale=None),
    )  # fmt: skip
    layers = [lines]
    ends: list[tuple[str, str, alt.Y, Literal["left", "right"], int, int]] = [
        ("human labels", "human", left_y, "right", -6, -34),
        ("generated", "generated", right_y, "left", width + 6, width + 34),
    ]
    for head, field, y, align, rank_at, name_at in ends:
        # The rank and the name are separate texts, because a right-to-left name would draw the rank to its other side.
        texts = base.mark_text(align=align, fontSize=11).encode(y=y)
        heading = alt.Chart(alt.InlineData(values=[{"head": head, "place": -1}]))
        layers += [
            texts.encode(x=alt.value(rank_at), text=f"{field}:N"),
            texts.encode(x=alt.value(name_at), text="system:N"),
            heading.mark_text(align=align, fontSize=11, fontWeight="bold").encode(
                x=alt.value(rank_at), y=alt.Y("place:Q", scale=scale, axis=None), text="head:N"
            ),
        ]
    return titled(alt.layer(*layers).properties(width=width, height=18 * (len(gains) + 1)), title)


def scores_chart(human: Side, generated: Side, families: Mapping[str, str], *, measure: str, title: str) -> AnyChart:
    """Each system's score on both sides with 95 % intervals, the best by human labels on top; axes fit their scores."""
    panels = []
    for name, side in (("human labels", human), ("generated", generated)):
        ends = bootstrap_interval(side.scores).tolist()
        values = {system: (mean, *end) for (system, mean), end in zip(side.by_name.items(), ends, strict=True)}
        panels.append(Panel(f"{measure}, {name}", values))
    names = sorted(human.names, key=lambda name: -human.by_name[name])
    return panels_chart(names, panels, families, title=title)


def resamplings_chart(draws: Resamplings, ceiling: Resamplings, whole: float, *, title: str) -> AnyChart:
    """The paper's Figure 3: a dot for each draw of generated queries, a line for all of them and for human queries."""
    levels = {"all generated queries": whole, f"{ceiling.queries} human queries": ceiling.mean}
    values = [value for value in (*draws.values, *levels.values()) if not math.isnan(value)]
    if not values:
        return nothing_chart(title)
    y = alt.Y(
        "rho:Q",
        scale=alt.Scale(domain=[min(0.0, *values), 1.0], nice=True),
        axis=alt.Axis(title="Spearman's rho", tickCount=6),
    )
    x = alt.X(
        "draw:Q",
        scale=alt.Scale(domain=[0, len(draws.values) + 1], nice=False),
        axis=alt.Axis(title=f"draws of {draws.queries} generated queries", labels=False, ticks=False, grid=False),
    )
    rows = [{"line": name, "rho": value} for name, value in levels.items() if not math.isnan(value)]
    lines = alt.Chart(alt.InlineData(values=rows)).mark_rule(strokeWidth=2)
    rows = [{"draw": at, "rho": value} for at, value in enumerate(draws.values, 1) if not math.isnan(value)]
    dots = alt.Chart(alt.InlineData(values=rows)).mark_circle(size=56, opacity=1, color="black")
    layers = alt.layer(lines.encode(y=y, color=colours("line", list(levels))), dots.encode(x=x, y=y))
    return titled(layers.properties(width=560, height=240), title)


def _places(gains: Sequence[RankGain], side: str) -> dict[str, int]:
    """Rows of the chart from 0, without ties."""
    order = sorted(gains, key=lambda gain: (getattr(gain, side), gain.system))
    return {gain.system: place for place, gain in enumerate(order)}

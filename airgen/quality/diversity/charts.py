"""Charts of a diversity report: shares of queries by attribute, and the growth of the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from airgen.evaluation.charts import AnyChart, chart_names, colours, dashes, label, nothing_chart, titled
from airgen.quality.diversity.vocabulary import Growth


def shares_chart(columns: Mapping[str, Mapping[str, int]], values: Sequence[str], *, title: str) -> AnyChart:
    """A panel for each column of the report, {value: queries}, with a bar for each value in the order given."""
    shown = dict(zip(values, chart_names(values), strict=True))
    axis = alt.Axis(title=None, format="~%", tickCount=4)
    panels = []
    for place, (name, counts) in enumerate(columns.items()):
        shares = {value: counts.get(value, 0) / sum(counts.values()) for value in values}
        rows = [{"value": shown[value], "share": share, "text": f"{share:.1%}"} for value, share in shares.items()]
        base = alt.Chart(alt.InlineData(values=rows)).encode(
            y=alt.Y("value:N", sort=None, axis=alt.Axis(title=None, ticks=False, domain=False, labels=place % 4 == 0))
        )
        x = alt.X("share:Q", scale=alt.Scale(domainMin=0, nice=True), axis=axis)
        bars = base.mark_bar(height=11, color="#4477aa").encode(x=x)
        texts = base.mark_text(align="left", dx=4, fontSize=10, aria=False).encode(x=x, text="text:N")
        heading = alt.TitleParams(label(name), fontSize=12, anchor="start", frame="group", offset=6)
        panels.append(alt.layer(bars, texts).properties(width=200, height=18 * len(values), title=heading))
    return titled(alt.concat(*panels, columns=4, spacing=36).resolve_scale(x="shared"), title)


def growth_chart(names: Sequence[str], growths: Sequence[Growth], *, title: str) -> AnyChart:
    """The number of different words after so many words, a line for each dataset, on logarithmic axes."""
    shown = chart_names(names)
    rows = [
        {"dataset": name, "tokens": tokens, "types": types}
        for name, growth in zip(shown, growths, strict=True)
        for tokens, types in zip(growth.tokens, growth.types, strict=True)
    ]
    if not rows:
        return nothing_chart(title)
    scale = alt.Scale(type="log", nice=True)
    chart = alt.Chart(alt.InlineData(values=rows)).mark_line(strokeWidth=2)
    chart = chart.encode(
        x=alt.X("tokens:Q", scale=scale, axis=alt.Axis(title="words (tokens)", format="~s", tickCount=6)),
        y=alt.Y("types:Q", scale=scale, axis=alt.Axis(title="different words (types)", format="~s", tickCount=6)),
        color=colours("dataset", shown), strokeDash=dashes("dataset", shown),
    )  # fmt: skip
    return titled(chart.properties(width=520, height=340), title)

"""The report's charts, as SVG texts: for light and dark pages, for wide and narrow ones.

    drawings = score_against_time(results)
    drawings["dark-narrow"]                  # "<svg ...>"

A page shows a drawing as an image, in which no script runs. Where Altair or vl-convert is missing, `MISSING` says what
to install, and a report has no charts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from airgen.evaluation.result import Result
from airgen.quality.agreement.rankings import RankGain

if TYPE_CHECKING:
    from airgen.evaluation.charts import AnyChart


Drawings = dict[str, str]

MISSING = (
    ""
    if find_spec("altair") and find_spec("vl_convert")
    else "Charts are left out, because a package is missing: pip install altair vl-convert-python"
)

# Okabe and Ito's colours, which the colour-blind can tell apart; on dark pages lighter ones of the same hues.
_LIGHT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#a17400", "#2b9bd7", "#666666", "#1a1a1a")
_DARK = ("#56b4e9", "#ff8a4c", "#2fc79c", "#e6a3c9", "#e6b422", "#9fd8ff", "#b0b0b0", "#f2f2f2")
_PAGES = {
    "light": {"ink": "#1d1d20", "muted": "#5d6068", "grid": "#e7e7ea", "palette": _LIGHT},
    "dark": {"ink": "#ececf0", "muted": "#a3a6ad", "grid": "#33353b", "palette": _DARK},
}
_WIDTHS = {"wide": 640, "narrow": 270}  # pixels of the drawing without its axis
_SLOPE_WIDTHS = {"wide": 300, "narrow": 70}


def score_against_time(results: Sequence[Result]) -> Drawings:
    """The headline against milliseconds a query, best result first; systems without a time are left out.

    A system that no other beats in both has its name, the others have their place in `results`, where there is room.
    Empty without two systems that have a time.
    """
    timed = [(at, one) for at, one in enumerate(results, 1) if one.costs.batch_ms is not None]
    if MISSING or len(timed) < 2:
        return {}
    from airgen.evaluation.charts import label

    rows, fastest = [], math.inf
    for place, one in timed:  # the best first, so a system stands out if it is faster than all before it
        time = max(one.costs.batch_ms or 0.0, 1e-6)
        low, high = one.intervals[one.headline]
        rows.append(
            {"name": label(one.name) + one.mark, "place": str(place), "time": time, "score": one.score, "low": low,
             "high": high, "front": time < fastest}
        )  # fmt: skip
        fastest = min(fastest, time)
    return _drawings(_WIDTHS, lambda page, width: _scatter(rows, results[0].headline, page, width))


def rank_slopes(gains: Sequence[RankGain], title: str) -> Drawings:
    """The ranks of systems by people's labels on the left, by generated ones on the right. Empty below two systems."""
    if MISSING or len(gains) < 2:
        return {}
    from airgen.quality.agreement.report import ranks_chart

    return _drawings(
        _SLOPE_WIDTHS, lambda page, width: ranks_chart(gains, title=title, palette=page["palette"], width=width)
    )


def _drawings(widths: dict[str, int], draw: Callable[[dict[str, Any], int], AnyChart]) -> Drawings:
    """`light-wide`, `light-narrow`, `dark-wide` and `dark-narrow`."""
    from airgen.evaluation.charts import svg_text

    found = {}
    for name, page in _PAGES.items():
        for size, width in widths.items():
            specification = draw(page, width).to_dict()
            config = specification.setdefault("config", {})
            config["background"] = "transparent"
            config["text"] = {"color": page["ink"]}
            axis = {"labelColor": page["muted"], "titleColor": page["muted"], "gridColor": page["grid"],
                    "domainColor": page["grid"], "tickColor": page["grid"]}  # fmt: skip
            config["axis"] = {**config.get("axis", {}), **axis}
            config["legend"] = {**config.get("legend", {}), "labelColor": page["ink"]}
            config["title"] = {"color": page["ink"]}
            if size == "narrow":
                config["legend"]["columns"] = 2
            found[f"{name}-{size}"] = svg_text(specification)
    return found


def _scatter(rows: list[dict[str, Any]], headline: str, page: dict[str, Any], width: int) -> AnyChart:
    import altair as alt

    from airgen.evaluation.charts import titled

    times, ends = [row["time"] for row in rows], [row[end] for row in rows for end in ("low", "high")]
    # Names stand to the left of their points, above the line of the best: nothing else can be there.
    limits = min(times) / 2.5, max(times) * 1.6
    height = round(width * 0.25 + 200)
    rows = _named(rows, limits, (min(ends), max(ends)), width, height)
    x = alt.X(
        "time:Q",
        scale=alt.Scale(type="log", domain=limits, nice=False),
        axis=alt.Axis(title="milliseconds a query", format="~g", tickCount=5, grid=False),
    )
    y = alt.Y("score:Q", scale=alt.Scale(zero=False, nice=True, padding=10), axis=alt.Axis(title=headline, tickCount=6))
    base = alt.Chart(alt.InlineData(values=rows)).encode(x=x)
    front, others = base.transform_filter("datum.front"), base.transform_filter("!datum.front")
    accent, muted = page["palette"][0], page["muted"]
    layers = [
        base.mark_rule(color=muted, opacity=0.3).encode(y=alt.Y("low:Q", title=headline), y2="high:Q"),
        front.mark_line(color=accent, opacity=0.45, strokeDash=[4, 3], interpolate="step-after").encode(y=y),
        others.mark_circle(size=36, color=muted, opacity=0.9).encode(y=y),
        front.mark_circle(size=64, color=accent, opacity=1).encode(y=y),
        others.mark_text(align="left", dx=6, fontSize=10, color=muted).encode(y=y, text="text:N"),
        front.mark_text(align="right", dx=-8, dy=-7, fontSize=11, fontWeight=600).encode(y=y, text="text:N"),
    ]
    return titled(alt.layer(*layers).properties(width=width, height=height), "")


def _named(
    rows: list[dict[str, Any]], times: tuple[float, float], scores: tuple[float, float], width: int, height: int
) -> list[dict[str, Any]]:
    """The rows with the text of each point: none where it would stand on another text or on a dot."""
    span = (scores[1] - scores[0]) or 1.0
    places = [
        (
            width * math.log(row["time"] / times[0]) / math.log(times[1] / times[0]),
            height * (scores[1] - row["score"]) / span,
        )
        for row in rows
    ]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    found = []
    for row, (x, y) in sorted(zip(rows, places, strict=True), key=lambda one: not one[0]["front"]):
        text = row["name"] if row["front"] else row["place"]
        wide = 6.6 * len(text)
        box = (x - 8 - wide, y - 14, x - 8, y - 1) if row["front"] else (x + 6, y - 6, x + 6 + wide, y + 6)
        free = not any(box[0] < x2 and x1 < box[2] and box[1] < y2 and y1 < box[3] for x1, y1, x2, y2 in taken)
        if free:
            taken.append(box)
        found.append({**row, "text": text if free else ""})
    return found

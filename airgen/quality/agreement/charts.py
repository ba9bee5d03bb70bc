"""Plots of an agreement report as plain SVG: ranks that slope, scores side against side, the paper's Figure 3."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from airgen.evaluation.svg import COLOURS, line, svg, text
from airgen.quality.agreement.bias import RankGain
from airgen.quality.agreement.rankings import Resamplings

__all__ = ["ranks_plot", "resamplings_plot", "scores_plot"]


def ranks_plot(gains: Sequence[RankGain], *, title: str) -> str:
    """A slope graph: human ranks on the left, generated ones on the right; a colour a family, best on top."""
    step, top, left, right, width = 18, 60, 210, 550, 760
    if not gains:
        return svg(width, 120, [text(width / 2, 60, "nothing to show")])
    places = [_places(gains, side) for side in ("human", "generated")]
    colour = _colours([gain.family for gain in gains])
    height = top + step * len(gains) + 20
    parts = [text(width / 2, 22, title, bold=True)]
    parts += [text(left, 44, "human labels", "end"), text(right, 44, "generated", "start")]
    for gain in gains:
        ends = [top + step * place[gain.system] for place in places]
        stroke = colour[gain.family]
        parts.append(
            f'<line x1="{left + 6}" y1="{ends[0]:.1f}" x2="{right - 6}" y2="{ends[1]:.1f}" stroke="{stroke}" '
            f'stroke-width="{1 + min(abs(gain.gain), 8) / 4:.2f}"/>'
        )
        parts.append(text(left, ends[0] + 4, f"{gain.system}  {gain.human:g}", "end"))
        parts.append(text(right, ends[1] + 4, f"{gain.generated:g}  {gain.system}", "start"))
    return svg(width, height + _legend(parts, colour, height), parts)


def scores_plot(
    names: Sequence[str],
    human: Sequence[float],
    generated: Sequence[float],
    families: Mapping[str, str],
    *,
    measure: str,
    title: str,
) -> str:
    """Each system as a point, human score across and generated score up; both axes fit their own scores."""
    width, height, left, bottom, top, right = 620, 460, 70, 60, 40, 30
    colour = _colours([families.get(name, "") for name in names])
    parts = [text(width / 2, 22, title, bold=True)]
    spans = [(min(values) - 0.02, max(values) + 0.02) for values in (human, generated)] if names else []

    def place(x: float, y: float) -> tuple[float, float]:
        (x0, x1), (y0, y1) = spans
        across = left + (x - x0) / (x1 - x0) * (width - left - right)
        return across, height - bottom - (y - y0) / (y1 - y0) * (height - top - bottom)

    for step in range(6 if names else 0):
        x, y = (low + (high - low) * step / 5 for low, high in spans)
        (across, _), (_, up) = place(x, spans[1][0]), place(spans[0][0], y)
        parts += [line(left, up, width - right, up, "#dddddd"), text(left - 8, up + 4, f"{y:.2f}", "end")]
        parts += [line(across, top, across, height - bottom, "#dddddd")]
        parts += [text(across, height - bottom + 18, f"{x:.2f}")]
    for name, x, y in zip(names, human, generated, strict=True):
        across, up = place(x, y)
        fill = colour[families.get(name, "")]
        parts.append(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="4" fill="{fill}"/>')
        parts.append(text(across + 6, up + 3, name, "start", size=9))
    parts.append(text((left + width - right) / 2, height - 22, f"{measure}, human labels"))
    parts.append(text(left - 52, top - 12, f"{measure}, generated", "start"))
    return svg(width, height + _legend(parts, colour, height), parts)


def resamplings_plot(drawn: Resamplings, ceiling: Resamplings, whole: float, *, title: str) -> str:
    """The paper's Figure 3: one point a draw of generated queries, with lines for all of them and for human queries."""
    width, height, left, bottom, top, right = 760, 320, 60, 50, 50, 190
    values = [value for value in drawn.values if not math.isnan(value)]
    lines = {"all generated queries": whole, f"{ceiling.queries} human queries": ceiling.mean}
    known = [*values, *(value for value in lines.values() if not math.isnan(value))]
    if not known:
        return svg(width, 120, [text(width / 2, 60, "nothing to show")])
    floor, ceiling_at = min([0.0, *known]), 1.0

    def up(value: float) -> float:
        return height - bottom - (value - floor) / (ceiling_at - floor) * (height - top - bottom)

    parts = [text(width / 2, 22, title, bold=True)]
    for step in range(6):
        value = floor + (ceiling_at - floor) * step / 5
        at = up(value)
        parts += [line(left, at, width - right, at, "#dddddd"), text(left - 8, at + 4, f"{value:.2f}", "end")]
    for number, value in enumerate(drawn.values):
        if not math.isnan(value):
            across = left + (number + 0.5) * (width - left - right) / len(drawn.values)
            parts.append(f'<circle cx="{across:.1f}" cy="{up(value):.1f}" r="4" fill="{COLOURS[0]}"/>')
    for number, (name, value) in enumerate(lines.items(), 1):
        if not math.isnan(value):
            parts.append(line(left, up(value), width - right, up(value), COLOURS[number]))
            parts.append(text(width - right + 6, up(value) + (4 if number == 1 else -6), name, "start"))
    parts.append(text((left + width - right) / 2, height - 14, f"draws of {drawn.queries} generated queries"))
    parts.append(text(left - 44, top - 14, "Spearman's rho", "start"))
    return svg(width, height, parts)


def _places(gains: Sequence[RankGain], side: str) -> dict[str, int]:
    """Lines of the graph, from 0: ranks without ties, so that no two names stand on each other."""
    order = sorted(gains, key=lambda gain: (getattr(gain, side), gain.system))
    return {gain.system: place for place, gain in enumerate(order)}


def _colours(families: Sequence[str]) -> dict[str, str]:
    return {family: COLOURS[place % len(COLOURS)] for place, family in enumerate(dict.fromkeys(families))}


def _legend(parts: list[str], colour: Mapping[str, str], below: float) -> float:
    """The families' colours in a row below the graph; the height that they take."""
    for number, (family, fill) in enumerate(colour.items()):
        x, y = 20 + 180 * (number % 4), below + 18 * (number // 4)
        parts.append(f'<rect x="{x}" y="{y:.1f}" width="10" height="10" fill="{fill}"/>')
        parts.append(text(x + 16, y + 9, family or "other", "start"))
    return 18.0 * math.ceil(len(colour) / 4) + 12

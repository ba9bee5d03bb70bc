"""Plots as plain SVG text: score against latency, scores by dataset, curves, correlation as a heat map.

No plotting library: four small charts do not justify one, and the same results give the same bytes. All text is
escaped. Sizes are pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from airgen.evaluation.svg import COLOURS, clean, line, svg, text

__all__ = ["bars", "heat_map", "lines", "scatter"]


def scatter(
    names: Sequence[str], x: Sequence[float], y: Sequence[float], *, x_label: str, y_label: str, title: str
) -> str:
    """Points with names; x (positive) on a logarithmic axis, as latencies spread over orders of magnitude."""
    width, height, left, bottom, top, right = 760, 460, 70, 60, 40, 160
    if not names:
        return svg(width, height, [text(width / 2, height / 2, "nothing to show", "middle")])
    low, high = math.log10(max(min(x), 1e-6)) - 0.15, math.log10(max(max(x), 1e-6)) + 0.15
    ticks = _ticks(max(0.0, min(y) - 0.02), min(1.0, max(y) + 0.02))
    floor, ceiling = ticks[0], ticks[-1]

    def place(a: float, b: float) -> tuple[float, float]:
        across = (math.log10(max(a, 1e-6)) - low) / (high - low)
        up = (b - floor) / max(ceiling - floor, 1e-9)
        return left + across * (width - left - right), height - bottom - up * (height - top - bottom)

    parts = [text(width / 2, 22, title, "middle", bold=True)]
    for value in ticks:
        _, at = place(x[0], value)
        parts += [line(left, at, width - right, at, "#dddddd"), text(left - 8, at + 4, f"{value:.2f}", "end")]
    for power in range(math.ceil(low), math.floor(high) + 1):
        at, _ = place(10.0**power, floor)
        parts += [line(at, top, at, height - bottom, "#dddddd"), text(at, height - bottom + 18, f"{10.0**power:g}")]
    parts.append(text((left + width - right) / 2, height - 16, x_label))
    parts.append(text(left - 52, top - 12, y_label, "start"))
    points = [place(*point) for point in zip(x, y, strict=True)]
    taken = [(across - 5, across + 5, up - 5, up + 5) for across, up in points]
    for number in sorted(range(len(names)), key=lambda row: (-y[row], row)):
        across, up = points[number]
        colour = COLOURS[number % len(COLOURS)]
        start, middle = _free(across, up, 7.0 * len(names[number]) + 4, taken, left)
        parts.append(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="4" fill="{colour}"/>')
        if abs(middle - up) > 8:
            parts.append(line(across, up, start if start > across else across - 9, middle, colour))
        if start > across:
            parts.append(text(start, middle + 4, names[number], "start"))
        else:
            parts.append(text(across - 8, middle + 4, names[number], "end"))
    return svg(width, int(max(height, max(box[3] for box in taken) + 20)), parts)


def _ticks(low: float, high: float) -> list[float]:
    """Round values with equal steps that hold both ends, five to eleven of them."""
    rough = max(high - low, 1e-6) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (5, 2, 1) if power * factor <= rough)
    first = math.floor(low / step + 1e-9)
    count = math.ceil(high / step - 1e-9) - first
    return [(first + number) * step for number in range(max(1, count) + 1)]


def _free(
    across: float, up: float, wide: float, taken: list[tuple[float, float, float, float]], left: float
) -> tuple[float, float]:
    """Where a label begins and its middle: beside its point, or the nearest place above or below that is free.

    The place is added to `taken`, boxes of (x from, x to, y from, y to).
    """
    offers = [
        (start, up + shift)
        for distance in range(0, 400, 4)
        for shift in ((0,) if not distance else (-distance, distance))
        for start in (across + 9, across - 9 - wide)
        if start >= left
    ] or [(across + 9, up)]

    def clear(start: float, middle: float) -> bool:
        return middle > 40 and not any(
            start < right and start + wide > begin and middle - 6 < below and middle + 6 > above
            for begin, right, above, below in taken
        )

    start, middle = next((offer for offer in offers if clear(*offer)), offers[-1])
    taken.append((start, start + wide, middle - 6, middle + 6))
    return start, middle


def bars(groups: Sequence[str], names: Sequence[str], values: NDArray[np.float64], *, title: str) -> str:
    """Grouped bars: values (groups, names) from 0 to 1; NaN leaves a gap.

    More names than colours get a row each, and a panel for each group.
    """
    if len(names) > len(COLOURS):
        return _panels(groups, names, values, title)
    bar, gap, left, top, height = 12, 26, 50, 40, 260
    wide = len(names) * bar + gap
    width = max(420, left + wide * len(groups) + 20)
    parts = [text(width / 2, 22, title, "middle", bold=True)]
    for step in range(6):
        at = top + height * (1 - step / 5)
        parts += [line(left, at, width - 10, at, "#dddddd"), text(left - 6, at + 4, f"{step / 5:.1f}", "end")]
    for row, group in enumerate(groups):
        start = left + gap / 2 + row * wide
        for column in range(len(names)):
            value = float(values[row, column])
            if not math.isnan(value):
                tall = height * min(max(value, 0.0), 1.0)
                parts.append(
                    f'<rect x="{start + column * bar:.1f}" y="{top + height - tall:.1f}" width="{bar - 2}" '
                    f'height="{tall:.1f}" fill="{COLOURS[column % len(COLOURS)]}">'
                    f"<title>{clean(f'{names[column]}: {value:.4f}')}</title></rect>"
                )
        parts.append(text(start + (wide - gap) / 2, top + height + 18, group))
    base = top + height + 40
    for column, name in enumerate(names):
        at = base + 18 * column
        parts.append(f'<rect x="{left}" y="{at - 10}" width="10" height="10" fill="{COLOURS[column % len(COLOURS)]}"/>')
        parts.append(text(left + 16, at, name, "start"))
    return svg(width, base + 18 * len(names) + 6, parts)


def _panels(groups: Sequence[str], names: Sequence[str], values: NDArray[np.float64], title: str) -> str:
    row_height, panel, gap, top = 18, 190, 24, 66
    left = 24 + 7 * max(map(len, names))
    width = left + (panel + gap) * len(groups) + 20
    bottom = top + row_height * len(names)
    parts = [text(width / 2, 22, title, "middle", bold=True)]
    for row, name in enumerate(names):
        parts.append(text(left - 10, top + row_height * row + 13, name, "end"))
    for place, group in enumerate(groups):
        start = left + place * (panel + gap)
        parts.append(text(start, top - 12, group, "start", bold=True))
        for step in range(6):
            at = start + panel * step / 5
            parts += [line(at, top, at, bottom, "#dddddd"), text(at, bottom + 16, f"{step / 5:.1f}", size=10)]
        for row, name in enumerate(names):
            value = float(values[place, row])
            if math.isnan(value):
                continue
            long = panel * min(max(value, 0.0), 1.0)
            at = top + row_height * row
            parts.append(
                f'<rect x="{start}" y="{at + 2}" width="{long:.1f}" height="{row_height - 4}" fill="{COLOURS[0]}">'
                f"<title>{clean(f'{name}: {value:.4f}')}</title></rect>"
            )
            inside = long > 40
            words = text(start + long + (-4 if inside else 4), at + 13, f"{value:.3f}", "end" if inside else "start")
            parts.append(words.replace("<text ", '<text fill="white" ', 1) if inside else words)
    return svg(width, bottom + 30, parts)


def lines(
    names: Sequence[str],
    curves: Sequence[tuple[Sequence[float], Sequence[float]]],
    *,
    x_label: str,
    y_label: str,
    title: str,
) -> str:
    """A curve (x, y) for each name, all values at least 1, on logarithmic axes; an empty curve is only named."""
    width, height, left, bottom, top, right = 760, 460, 70, 60, 40, 180
    most = [max((max(curve[axis], default=1.0) for curve in curves), default=1.0) for axis in (0, 1)]
    powers = [max(1, math.ceil(math.log10(max(value, 1.0)))) for value in most]

    def place(x: float, y: float) -> tuple[float, float]:
        across = left + math.log10(max(x, 1.0)) / powers[0] * (width - left - right)
        return across, height - bottom - math.log10(max(y, 1.0)) / powers[1] * (height - top - bottom)

    parts = [text(width / 2, 22, title, "middle", bold=True)]
    for power in range(powers[0] + 1):
        at, _ = place(10.0**power, 1)
        parts += [line(at, top, at, height - bottom, "#dddddd"), text(at, height - bottom + 18, f"{10**power:,}")]
    for power in range(powers[1] + 1):
        _, at = place(1, 10.0**power)
        parts += [line(left, at, width - right, at, "#dddddd"), text(left - 8, at + 4, f"{10**power:,}", "end")]
    parts += [text((left + width - right) / 2, height - 16, x_label), text(left - 52, top - 12, y_label, "start")]
    for number, (name, (across, up)) in enumerate(zip(names, curves, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in zip(across, up, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = top + 10 + 18 * number
        parts.append(line(width - right + 14, at - 4, width - right + 30, at - 4, colour))
        parts.append(text(width - right + 36, at, name, "start"))
    return svg(width, max(height, top + 20 + 18 * len(names)), parts)


def heat_map(names: Sequence[str], values: NDArray[np.float64], *, title: str) -> str:
    """A square matrix of correlations from -1 (red) over 0 (white) to 1 (blue)."""
    cell, left, top = 44, 170, 60
    width = max(420, left + cell * len(names) + 20)
    parts = [text(width / 2, 22, title, "middle", bold=True)]
    for row, name in enumerate(names):
        parts.append(text(left - 8, top + cell * row + cell / 2 + 4, name, "end"))
        at = left + cell * row + cell / 2
        below = top + cell * len(names) + 12
        label = clean(name)
        parts.append(
            f'<text x="{at}" y="{below}" text-anchor="end" transform="rotate(-45 {at} {below})" '
            f'font-family="sans-serif" font-size="12">{label}</text>'
        )
        for column in range(len(names)):
            value = float(values[row, column])
            shown = "" if math.isnan(value) else f"{value:.2f}"
            x, y = left + cell * column, top + cell * row
            parts.append(f'<rect x="{x}" y="{y}" width="{cell}" height="{cell}" fill="{_shade(value)}"/>')
            parts.append(text(x + cell / 2, y + cell / 2 + 4, shown))
    return svg(width, top + cell * len(names) + 130, parts)


def _shade(value: float) -> str:
    if math.isnan(value):
        return "#eeeeee"
    strength = round(255 - 155 * min(1.0, abs(value)))
    return f"#{strength:02x}{strength:02x}ff" if value >= 0 else f"#ff{strength:02x}{strength:02x}"

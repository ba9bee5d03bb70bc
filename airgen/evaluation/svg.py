"""The few shapes that plots are made of, as SVG text. All text is escaped; sizes are pixels."""

from __future__ import annotations

import html
from collections.abc import Sequence

__all__ = ["COLOURS", "clean", "line", "svg", "text"]

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#222255")


def text(x: float, y: float, words: str, anchor: str = "middle", *, bold: bool = False, size: int = 12) -> str:
    """Words at a place; `anchor` is start, middle or end."""
    weight = ' font-weight="bold"' if bold else ""
    font = f'font-family="sans-serif" font-size="{size}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {font}{weight}>{clean(words)}</text>'


def clean(words: str) -> str:
    """Text for SVG: XML allows no control characters, not even escaped."""
    return html.escape("".join(c if c.isprintable() else " " for c in words))


def line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    """A straight line, one pixel wide."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def svg(width: float, height: float, parts: Sequence[str]) -> str:
    """The whole picture on white."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"]) + "\n"

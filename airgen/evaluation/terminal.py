"""Results for a terminal: plain columns, control characters taken out."""

from __future__ import annotations

from collections.abc import Sequence

from airgen.evaluation.result import Result
from airgen.evaluation.significance import Comparison, Pair

__all__ = ["columns", "pair_lines", "ranking"]


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as aligned columns, the first to the left, the others to the right."""
    clean = [["".join(c for c in cell if c.isprintable()) for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in clean) for place in range(len(clean[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in clean)
    )


def ranking(results: Sequence[Result], comparison: Comparison) -> str:
    """Systems best first, with intervals, and which of them cannot be told apart."""
    headline = results[0].headline
    rows = [["system", headline, "95 %", "missing", "ms/query"]]
    for result in sorted(results, key=lambda result: -result.score):
        low, high = result.intervals[headline]
        time = result.costs.batch_ms
        shown = "" if time is None else f"{time:.2f}"
        rows.append([result.name, f"{result.score:.4f}", f"{low:.3f}-{high:.3f}", str(result.missing), shown])
    text = columns(rows)
    groups = [group for group in comparison.groups if len(group) > 1]
    if groups:
        text += "\ncannot be told apart: " + "; ".join(", ".join(group) for group in groups)
    return text


def pair_lines(pair: Pair, measure: str) -> str:
    """One comparison in words."""
    needed = "" if pair.queries_needed is None else f"; {pair.queries_needed:,} queries would show it (power .8)"
    return (
        f"{measure}: {pair.first} - {pair.second} = {pair.difference:+.4f}  p {pair.fisher:.4f} (Fisher), "
        f"{pair.t:.4f} (t), after Holm {pair.fisher_holm:.4f}, {pair.t_holm:.4f}; d {pair.effect:.2f}{needed}"
    )

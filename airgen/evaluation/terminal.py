"""Results for a terminal: plain columns without control characters."""

from __future__ import annotations

from collections.abc import Sequence

from airgen.evaluation.result import Result
from airgen.evaluation.significance import Comparison, Pair
from airgen.text.display import terminal_table, terminal_text

__all__ = ["pair_lines", "ranking"]


def ranking(results: Sequence[Result], comparison: Comparison) -> str:
    """The systems, best first, with intervals, and which of them cannot be told apart."""
    headline = results[0].headline
    rows = [["system", headline, "95 %", "missing", "ms/query"]]
    for result in sorted(results, key=lambda result: -result.score):
        low, high = result.intervals[headline]
        time = result.costs.batch_ms
        shown = "" if time is None else f"{time:.2f}"
        rows.append([result.name, f"{result.score:.4f}", f"{low:.3f}-{high:.3f}", str(result.missing), shown])
    text = terminal_table(rows)
    groups = [group for group in comparison.groups if len(group) > 1]
    if groups:
        text += "\ncannot be told apart: " + terminal_text("; ".join(", ".join(group) for group in groups))
    return text


def pair_lines(pair: Pair, measure: str) -> str:
    """One comparison of two systems as text."""
    needed = "" if pair.queries_needed is None else f"; {pair.queries_needed:,} queries would show it (power .8)"
    return (
        f"{measure}: {pair.first} - {pair.second} = {pair.difference:+.4f}  p {pair.fisher:.4f} (Fisher), "
        f"{pair.t:.4f} (t), after Holm {pair.fisher_holm:.4f}, {pair.t_holm:.4f}; d {pair.effect:.2f}{needed}"
    )

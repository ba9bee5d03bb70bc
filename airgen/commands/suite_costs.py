"""What `airgen check SUITE.yaml` prints: the cost of each dataset, the sum, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from airgen.commands.options import echo

if TYPE_CHECKING:
    from airgen.pipeline.preflight import SuiteEstimate


def print_suite_check(path: Path, runs: Path, *, budget_usd: float | None, as_json: bool) -> None:
    """Print what each dataset of a suite costs, the sum, and what is missing; exit code 1 where something is."""
    import json
    from dataclasses import asdict

    from airgen.pipeline.preflight import check_suite

    found = check_suite(path, runs, budget_usd=budget_usd)
    if as_json:
        rows = [{**asdict(row), "usd": row.estimate.usd if row.estimate else None} for row in found.datasets]
        lines = {"problems": found.problems, "advice": found.warnings}
        echo(json.dumps({"name": found.suite.name, "usd": found.usd, **lines, "datasets": rows}, indent=1))
    else:
        _print_suite(found)
    if found.problems:
        raise typer.Exit(1)


def _print_suite(found: SuiteEstimate) -> None:
    rows, suite = found.datasets, found.suite
    queries = sum(row.queries for row in rows)
    echo(f"{suite.name} {suite.version}: {len(rows)} datasets, {queries:,} queries")
    width = max(len(row.name) for row in rows)
    echo(f"  {'dataset':<{width}}{'queries':>9}{'calls':>11}{'tokens in':>16}{'tokens out':>14}{'USD':>11}")
    sums, total = [0, 0, 0], 0.0
    for row in rows:
        stages = row.estimate.stages if row.estimate else []
        figures = [
            sum(stage.calls for stage in stages),
            sum(stage.prompt_tokens for stage in stages),
            sum(stage.completion_tokens for stage in stages),
        ]
        sums = [one + other for one, other in zip(sums, figures, strict=True)]
        usd = row.estimate.usd if row.estimate else None
        total += usd or 0.0
        money = "unknown" if usd is None else f"{usd:,.2f}"
        source = "   by its corpus" if row.estimate and not row.published else ""
        echo(f"  {row.name:<{width}}{row.queries:>9,}{_figures(figures)}{money:>11}{source}")
    money = f"{total:,.2f}" if found.usd is not None else f"> {total:,.2f}"
    echo(f"  {'in all':<{width}}{queries:>9,}{_figures(sums)}{money:>11}")
    known = [row for row in rows if row.passages is not None and row.embedded is not None]
    passages, tokens = sum(row.passages or 0 for row in known), sum(row.embedded or 0 for row in known)
    pairs = sum(row.reranked for row in rows)
    echo(f"  besides, {passages:,} passages ({tokens:,} tokens) are encoded once, and {pairs:,} pairs are re-ranked")
    for line, count in [*found.warnings.items(), *found.problems.items()]:
        echo(f"  ! {line}" + (f" ({count} datasets)" if count > 1 else ""))
    if not found.problems:
        echo("  everything that it needs is there")


def _figures(values: list[int]) -> str:
    calls, read, wrote = values
    return f"{calls:>11,}{read:>16,}{wrote:>14,}"

"""`airgen score`: a submission against private labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app", "measure"]

app = typer.Typer(add_completion=False)


def measure(qrels: Mapping[str, Mapping[str, float]], hits: Mapping[str, Mapping[str, float]]) -> Mapping[str, float]:
    """AIR-Bench's measures of hits, means over the labels' queries."""
    from airgen.evaluation.measures import AIR_BENCH, score
    from airgen.evaluation.run import run_from_dict

    return score(run_from_dict(hits), qrels, AIR_BENCH).means()


@app.command()
def score(
    submission: Annotated[Path, typer.Argument(metavar="ZIP", help="A submission, ours or air-benchmark's.")],
    qrels: Annotated[
        list[Path], typer.Option(metavar="DIR", help="Datasets or label parts, or folders of them; repeatable.")
    ],
    split: Annotated[str, typer.Option(help="The split whose labels are used.")] = "test",
    bm25: Annotated[
        Path | None, typer.Option(metavar="ZIP", help="The official BM25 submission, to check Reranking Only against.")
    ] = None,
    save: Annotated[Path | None, typer.Option(metavar="DIR", help="Save the score for airgen leaderboard.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every measure as JSON.")] = False,
) -> None:
    """Validate a submission and score it with private labels; queries without results count as zero.

    Example: airgen score bm25.zip --qrels private/ --save scores/
    """
    import json
    from dataclasses import asdict

    from airgen.publishing.leaderboard import HEAD
    from airgen.publishing.scores import load_labels, save_score, score_results
    from airgen.publishing.submission import Submission

    first = Submission(bm25) if bm25 else None
    scored = score_results(Submission(submission), load_labels(qrels, split), measure, first=first)
    path = save_score(scored, save) if save else None
    if as_json:
        typer.echo(json.dumps({"class": scored.system_class, **asdict(scored)}, ensure_ascii=False, indent=1))
        return
    typer.echo(f"{scored.model} + {scored.reranker}, version {scored.version}: {scored.system_class}")
    for one in scored.datasets:
        head = HEAD[one.task]
        line = f"{one.task}_{one.domain}_{one.language}/{one.dataset} {one.split}: {head} {one.measures[head]:.5f}"
        if one.missing_count:
            line += f"; {one.missing_count} of {one.queries} queries missing: {', '.join(one.missing[:5])}"
        if one.unknown_queries:
            line += f"; {one.unknown_queries} unknown queries left out"
        if one.unknown_documents:
            line += f"; {one.unknown_documents} hits of unknown documents"
        typer.echo(line)
    for name in scored.absent:
        typer.echo(f"no results for {name}")
    if path:
        typer.echo(str(path))
